// ready_tables.hpp: the tables that all sequences share, made ready for the kernels.
#pragma once
#include "chain/transitions.hpp"
#include "segment/log_lattice.hpp"

namespace crfkit {

// Scores that are not lowered by the largest of their row must not be above this: their exponentials are factors.
template <class T>
constexpr T kMostScore = sizeof(T) == 4 ? T(40) : T(300);

// Rows are padded to whole vectors. The transitions' shift is in the lengths: every segment but the first has both.
template <class T>
struct ReadyTables {
  int n_labels = 0, stride = 0, max_length = 0, tail_order = 0;
  const SegmentTables* exact = nullptr;  // must stay
  Transitions<T> transitions;
  Buffer<T> factor;            // exp(length + shift), zero for K where there is a tail   [K][stride], pads 0
  Buffer<T> full;              // exp(length K + shift), where there is a tail           [stride]
  Buffer<T> tail;              // exp(tail)  [stride], pads 0
  std::vector<double> length;  // scores as the factors have them after rounding         [K][labels]
  std::vector<u8> open;        // whether length k is allowed                            [K][stride]
  std::vector<u8> follows;     // whether j may follow i                                 [labels][stride]
  // Of each length that is the longest of some label: zero for these, one for others   [stride]
  struct Longest {
    int length;
    std::vector<T> mask;
  };
  std::vector<Longest> longest;
  std::vector<int> label_longest;  // [labels]
  bool holes = false;              // a transition is not allowed, or a length below a label's longest
  bool gaps = false;               // a length below a label's longest is not allowed
  bool safe = true;                // scores are not too large for the kernels
  T first = 1;                     // exp(-shift): for the first segment, which has no transition

  void prepare(const SegmentTables& tables, int padded) {
    exact = &tables;
    n_labels = tables.n_labels;
    stride = padded;
    max_length = tables.max_length;
    tail_order = tables.tail_order;
    transitions.prepare(tables.pairwise.data(), n_labels, stride);
    const double shift = transitions.shift;
    const i64 n = n_labels, k_most = max_length;
    factor.assign(k_most * stride, T(0));
    full.assign(stride, T(0));
    tail.assign(stride, T(0));
    length.assign(k_most * n, 0.0);
    open.assign(k_most * stride, 0);
    label_longest.assign(n, 0);
    safe = std::abs(shift) <= kMostScore<T>;
    first = T(std::exp(-shift));
    for (i64 k = 0; k < k_most; ++k)
      for (i64 j = 0; j < n; ++j) {
        const double score = tables.lengths[k * n + j];
        const T e = T(std::exp(score + shift));
        length[k * n + j] = e > 0 ? std::log(double{e}) - shift : score;
        if (!(score > -std::numeric_limits<double>::infinity())) continue;
        open[k * stride + j] = 1;
        label_longest[j] = static_cast<int>(k) + 1;
        if (!(std::abs(score + shift) <= kMostScore<T>)) safe = false;
        else if (tail_order && k + 1 == k_most) full[j] = e;
        else factor[k * stride + j] = e;
      }
    for (i64 j = 0; j < n && tail_order; ++j) {
      if (tables.tail[j] <= kMostScore<T>) tail[j] = T(std::exp(tables.tail[j]));
      else safe = false;
      length[(k_most - 1) * n + j] = tables.lengths[(k_most - 1) * n + j];
    }
    follows.assign(n * stride, 0);
    for (i64 i = 0; i < n; ++i)
      for (i64 j = 0; j < n; ++j)
        follows[i * stride + j] = tables.pairwise[i * n + j] > -std::numeric_limits<double>::infinity();
    find_longest();
  }

  // The most by which lengths k + n and n differ in their scores, in a sequence of so many steps.
  double length_range(double steps) const {
    double range = length_range_;
    if (tail_order == 0) return range;
    double highest = 0;
    for (double x : exact->tail) highest = std::max(highest, x);
    return range + highest * steps + tail_order * std::log(steps + tail_order);
  }

 private:
  void find_longest() {
    longest.clear();
    gaps = false;
    length_range_ = 0;
    holes = false;
    for (i64 j = 0; j < n_labels; ++j) {
      const int most = label_longest[j];
      holes |= most == 0;
      double lowest = std::numeric_limits<double>::infinity();
      for (int k = 0; k < most; ++k) {
        gaps |= !open[k * stride + j];
        const double score = exact->lengths[k * n_labels + j];
        length_range_ = std::max(length_range_, score - lowest);
        lowest = std::min(lowest, score);
      }
      auto at = std::find_if(longest.begin(), longest.end(), [&](const Longest& x) { return x.length == most; });
      if (at == longest.end()) at = longest.insert(longest.end(), {most, std::vector<T>(stride, T(1))});
      at->mask[j] = 0;
    }
    holes |= gaps || transitions.has_zeros;
  }

  double length_range_ = 0;
};

}  // namespace crfkit
