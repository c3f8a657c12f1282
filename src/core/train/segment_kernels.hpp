// segment_kernels.hpp: what training on segmentations asks of the kernels.
#pragma once
#include "segment/item_rows.hpp"
#include "segment/kernels.hpp"
#include "train/kernels.hpp"

namespace crfkit {

// Sequences of a block, and what is known of their segmentations.
template <class T>
struct SegmentBlock {
  std::vector<Pack> packs;
  std::vector<i64> base;        // first token row of each pack
  std::vector<i64> item_base;   // first row of each pack's listed segments, among all rows
  Group<T> state;               // rows of tokens, pack by pack, then of listed segments
  std::vector<ItemRows> items;  // of each pack
  std::vector<i32> label;       // as in KnownLabels   [token rows]
  std::vector<u8> border;       // [token rows]
  bool full = true;             // whether all is known
};

// Sums over all blocks, besides those of the attributes' weights.
struct SegmentGradient {
  std::vector<double> pairs, lengths, tail, start, end;
  void clear(i64 n, i64 k) {
    for (auto* x : {&tail, &start, &end}) x->assign(n, 0.0);
    pairs.assign(n * n, 0.0);
    lengths.assign(n * k, 0.0);
  }
  void add(const SegmentGradient& x) {
    const auto sum = [](const std::vector<double>& from, std::vector<double>& to) {
      for (std::size_t k = 0; k < from.size(); ++k) to[k] += from[k];
    };
    sum(x.pairs, pairs);
    sum(x.lengths, lengths);
    sum(x.tail, tail);
    sum(x.start, start);
    sum(x.end, end);
  }
};

template <class T>
struct SegmentLossJob : LossJob<T> {
  const ReadyTables<T>* tables = nullptr;
  const T *first = nullptr, *last = nullptr;  // scores of the first and of the last label   [labels]
  bool has_begin = false, has_end = false;    // whether there are columns for these
  const T* hints = nullptr;                   // [hints][labels]
  SegmentGradient* sums = nullptr;            // out
  i64* redone = nullptr;                      // out: sequences that went through log space
};

template <class T>
struct SegmentLossKernels {
  std::unique_ptr<Workspace> (*workspace)();
  void (*loss)(const SegmentLossJob<T>&, const SegmentBlock<T>&, i64 task, Workspace&);
};

CRFKIT_IN_EACH_SET(template <class T> const SegmentLossKernels<T>& segment_loss_kernels(int n_labels);)

template <class T>
const SegmentLossKernels<T>& segment_loss_kernels_for(int n_labels) {
  return CRFKIT_PICK_NARROW(segment_loss_kernels<T>)(n_labels);
}

}  // namespace crfkit
