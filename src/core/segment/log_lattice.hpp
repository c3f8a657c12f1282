// log_lattice.hpp: sum-product over the segmentations of one sequence in log space, slower and always right.
//
//   g[t][j] = begin[t][j] + log sum_i exp(a[t-1][i] + s[i][j]),  g[0] = begin[0]
//   a[t][j] = end[t][j] + log sum_k exp(g[t-k+1][j] + u[t-k+1][j] + ... + u[t][j] + length(k, j) + item)
//   h[t][j] = log sum_k exp(u[t][j] + ... + u[t+k-1][j] + length(k, j) + item + end[t+k-1][j] + b[t+k-1][j])
//   b[t][i] = log sum_j exp(s[i][j] + begin[t+1][j] + h[t+1][j]),  b[last] = 0
//
// A tail of order r is r states in each label that a segment passes one after another, staying in each as long as it
// likes. The numbers may be dual: then all sums have a derivative in the direction of the scores.
#pragma once
#include <vector>

#include "segment/segment.hpp"

namespace crfkit {

// What all sequences share, in double precision.
struct SegmentTables {
  int n_labels = 0, max_length = 0, tail_order = 0;
  std::vector<double> pairwise, lengths, tail;

  template <class T>
  explicit SegmentTables(const SegmentInput<T>& in)
      : n_labels(in.n_labels),
        max_length(in.max_length),
        tail_order(in.tail_order),
        pairwise(in.pairwise, in.pairwise + i64{in.n_labels} * in.n_labels),
        lengths(in.lengths, in.lengths + i64{in.max_length} * in.n_labels),
        tail(in.tail_order ? in.n_labels : 0) {
    for (std::size_t j = 0; j < tail.size(); ++j) tail[j] = in.tail[j];
  }
  SegmentTables() = default;
  // The score of a length, and how long a segment of n tokens' room may be.
  double length(i64 k, i64 j) const;
  i64 longest(i64 n) const { return tail_order ? n : std::min<i64>(n, max_length); }
};

// One sequence, in double precision.
struct SegmentScores {
  int steps = 0;
  std::vector<double> u, begin, end;  // [steps][labels]
  std::vector<u8> border;             // [steps]
  std::vector<i64> item_ptr;          // [steps + 1]
  std::vector<i32> item_length;
  std::vector<double> item_score;  // [items][labels]

  template <class T>
  void load(const SegmentInput<T>& in, i64 s);
  bool may_cross(i64 t) const { return border[t] != kBorder; }  // from token t - 1 into t
  bool may_begin(i64 t) const { return t == 0 || border[t] != kNoBorder; }
  // The listed scores of segments that end with t, as rows; null where a length has none.
  const double* item(i64 t, i64 k, i64 n_labels) const {
    for (i64 i = item_ptr[t]; i < item_ptr[t + 1]; ++i)
      if (item_length[i] == k) return item_score.data() + i * n_labels;
    return nullptr;
  }
};

// What a sequence adds to sums; all may be empty.
struct SequenceSums {
  double log_z = 0, mean = 0;                // mean: of the score, if duals were asked for
  std::vector<double> nodes, begins, ends;   // [steps][labels]
  std::vector<double> pairs, lengths, tail;  // as in SegmentSums
  std::vector<double> items;                 // [items][labels]
  std::vector<double> enter, leave;          // [steps][labels]
};
// dual: all but log_z, enter and leave are derivatives in the direction of the scores.
SequenceSums log_sums(const SegmentTables& tables, const SegmentScores& x, bool dual);

// The messages forward alone: g and a, [steps][labels].
void log_forward(const SegmentTables& tables, const SegmentScores& x, std::vector<double>& g, std::vector<double>& a);

}  // namespace crfkit
