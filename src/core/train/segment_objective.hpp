// segment_objective.hpp: the negative log-likelihood of segmentations and its gradient.
#pragma once
#include <mutex>

#include "model/weights.hpp"
#include "train/gradient_sum.hpp"
#include "train/segment_kernels.hpp"

namespace crfkit {

// Which weight is the score of what, besides those of attributes: numbers of weights, or kFree: none, the score is
// zero; or kForbidden. Attributes have weights for columns: labels, beginnings of them and ends of them.
struct SegmentLayout {
  static constexpr i32 kFree = -1, kForbidden = -2;
  int n_labels = 0, max_length = 0, tail_order = 0;
  bool has_begin = false, has_end = false;
  std::vector<i32> pairs, lengths, tail, start, end;  // [L][L], [K][L], [L] or empty, [L], [L]
  i64 size = 0;                                       // all weights

  // Numbers are within the weights, and there is a column for everything.
  void check(const Layout& columns) const;
  SegmentTables tables(const double* w) const;
};

struct KnownSegments {
  KnownLabels labels;
  const u8* border = nullptr;  // [tokens]
  i64 n_full = 0;              // sequences of which all is known: they come first
};

template <class T>
class SegmentObjective {
 public:
  // data: tokens, then the listed segments, one after another as if they were tokens of one more sequence, in the order
  // of items. items.score is not used.
  SegmentObjective(std::shared_ptr<const Layout> columns, SegmentLayout layout, const Tokens& data,
                   const SegmentItems<T>& items, const KnownSegments& known, const double* seq_weight,
                   const Threads& threads);
  double value_and_grad(const double* w, double c2, double* g, const Threads& threads);
  i64 size() const { return layout_.size; }
  // Sequences that the last evaluation went through in log space.
  i64 n_redone() const { return redone_; }

 private:
  void make_block(const Tokens& data, const SegmentItems<T>& items, const KnownSegments& known,
                  std::pair<i64, i64> seqs, SegmentBlock<T>& out) const;

  std::mutex lock_;
  const std::shared_ptr<const Layout> columns_;
  const SegmentLayout layout_;
  const SegmentLossKernels<T>& kernels_;
  Family state_, edge_;
  Weights<T> weights_;
  GradientSum<T> sum_;
  std::vector<double> seq_weight_;
  Buffer<T> hints_;
  std::vector<SegmentBlock<T>> blocks_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
  i64 redone_ = 0;
};

}  // namespace crfkit
