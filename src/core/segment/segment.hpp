// segment.hpp: inference on segmentations: sequences cut into labelled segments, on threads.
//
// A segmentation of T tokens is a row of segments (a, b, j): tokens a, ..., b - 1 with label j. Its score is
//
//   sum over segments of  begin[a][j] + sum_{a <= t < b} u[t][j] + end[b-1][j] + length(b - a, j) + item(a, b, j)
//   + sum over neighbours of  pairwise[i][j]
//
// length(k, j) is lengths[k-1][j] for k <= K. Longer segments are allowed only where there is a tail, of order r: then
//
//   length(K + m, j) = lengths[K-1][j] + m tail[j] + log C(m + r - 1, r - 1),
//
// geometric for r = 1, negative-binomial else. item(a, b, j) is zero but for the segments that are listed.
#pragma once
#include <vector>

#include "base/parallel.hpp"

namespace crfkit {

// What is known of the border in front of a token.
enum Border : u8 { kAnyBorder = 0, kBorder = 1, kNoBorder = 2 };

// Scores of single segments. Those whose last token is t are ptr[t], ..., ptr[t+1] - 1, by rising length.
template <class T>
struct SegmentItems {
  const i64* ptr = nullptr;  // [tokens + 1], or null: none
  const i32* length = nullptr;
  const T* score = nullptr;  // [items][labels]
};

template <class T>
struct SegmentInput {
  int n_labels = 0, max_length = 0, tail_order = 0;  // tail_order: 0 for no tail
  i64 n_seq = 0;
  const i64* offsets = nullptr;  // first token of each sequence                    [n_seq + 1]
  const T* unary = nullptr;      // [tokens][labels]; scores of first and last labels are in it
  const T* begin = nullptr;      // [tokens][labels], or null: zero
  const T* end = nullptr;        // [tokens][labels], or null: zero
  const T* pairwise = nullptr;   // [labels][labels]
  const T* lengths = nullptr;    // [max_length][labels]
  const T* tail = nullptr;       // [labels], where there is one
  const u8* border = nullptr;    // [tokens], or null: any
  SegmentItems<T> items;

  i64 n_tokens() const { return offsets[n_seq]; }
  i64 n_items() const { return items.ptr ? items.ptr[n_tokens()] : 0; }
};

// Sums over all segmentations; null where not wanted, left as they are where none is allowed; there log_z is minus
// infinity. Each is the gradient of the sum of weight[s] log Z by the scores of the same shape.
template <class T>
struct SegmentSums {
  double* log_z = nullptr;         // [n_seq]
  T* nodes = nullptr;              // P(token t has label j)                          [tokens][labels]
  T* begins = nullptr;             // P(a segment j begins at t)                      [tokens][labels]
  T* ends = nullptr;               // P(t is the last token of a segment j)           [tokens][labels]
  double* pairs = nullptr;         // [labels][labels]
  double* lengths = nullptr;       // [max_length][labels]
  double* tail = nullptr;          // [labels]
  T* items = nullptr;              // [items][labels]
  const double* weight = nullptr;  // [n_seq], or null: all one
  // The logarithm of what leads to a segment j that begins at t, with begin[t][j]; and of what follows one that ends
  // with t, with end[t][j].
  double *enter = nullptr, *leave = nullptr;  // [tokens][labels]
};

template <class T>
void segment_sums(const SegmentInput<T>& in, const Threads& threads, const SegmentSums<T>& out);

// The entropies of the distributions of segmentations [n_seq]; and the gradients of their sum, where out has a place
// for them.
void segment_entropies(const SegmentInput<double>& in, const Threads& threads, double* entropy,
                       const SegmentSums<double>& out);

// A segmentation: ends and labels of its segments, first to last.
struct Segmentation {
  std::vector<i64> end;
  std::vector<i32> label;
  double score = 0;
};
// The k best of each sequence, best first; none where none is allowed.
template <class T>
std::vector<std::vector<Segmentation>> best_segmentations(const SegmentInput<T>& in, i64 k, const Threads& threads);

// n of each sequence, drawn. seed: of the first sequence; each has its own numbers.
std::vector<std::vector<Segmentation>> sample_segmentations(const SegmentInput<double>& in, i64 n, u64 seed,
                                                            const Threads& threads);

}  // namespace crfkit
