// segment_kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
//
//   value = sum over sequences of weight * (log Z - log Z of what is known)
//
// and its gradient: expected numbers of tokens, beginnings, ends, pairs, lengths and listed segments, less those of
// what is known. Where all is known, that is one segmentation.
#include "train/segment_kernels.hpp"

#include "model/scoring.hpp"
#include "segment/scaled_or_log.hpp"

namespace crfkit::CRFKIT_ISA {
namespace {

template <class T, int W>
struct SegmentLossWorkspace : Workspace {
  LocalRows<T, W> state;
  SegmentSumProduct<T, W> sum;
  Buffer<T> init, scores, gradient;  // [rows][width]
  SegmentGradient sums;
  std::vector<double> weight;
};

template <class T, int W>
class SegmentLossKernel {
 public:
  SegmentLossKernel(const SegmentLossJob<T>& job, const SegmentBlock<T>& block, Workspace& workspace)
      : job_(job),
        block_(block),
        ws_(static_cast<SegmentLossWorkspace<T, W>&>(workspace)),
        n_(job.tables->n_labels),
        stride_(job.tables->stride),
        width_(job.state->width),
        begin_(job.has_begin ? n_ : -1),
        end_(job.has_end ? n_ * (job.has_begin ? 2 : 1) : -1) {}

  void loss(i64 task) {
    {
      const FlushDenormals flush;
      ws_.state.load(block_.state, *job_.state, job_.state_table, job_.w);
      ws_.state.clear_gradient();
      ws_.init.assign(width_, T(0));
      ws_.sums.clear(n_, job_.tables->max_length);
      for (std::size_t p = 0; p < block_.packs.size(); ++p) run_pack(p);
    }
    merge(task);
  }

 private:
  double weight(const Pack& pack, int s) const { return job_.seq_weight ? job_.seq_weight[pack.seq[s]] : 1.0; }

  void run_pack(std::size_t p) {
    const Pack& pack = block_.packs[p];
    base_ = block_.base[p];
    item_base_ = block_.item_base[p];
    const i64 rows = pack.rows(), n_items = std::ssize(block_.items[p].length), all = rows + n_items;
    ws_.scores.reserve(all * width_);
    ws_.gradient.assign(all * width_, T(0));
    ws_.state.score(base_, rows, ws_.init.data(), ws_.scores.data());
    if (n_items) ws_.state.score(item_base_, n_items, ws_.init.data(), ws_.scores.data() + rows * width_);
    run(pack, p, false);
    if (block_.full) {
      for (int s = 0; s < pack.n_seq(); ++s) take_gold(pack, block_.items[p], s);
    } else {
      run(pack, p, true);
    }
    ws_.state.scatter(base_, rows, ws_.gradient.data());
    if (n_items) ws_.state.scatter(item_base_, n_items, ws_.gradient.data() + rows * width_);
  }

  // Adds the lattice of all segmentations, or takes away that of those that fit what is known.
  void run(const Pack& pack, std::size_t p, bool known) {
    auto& sum = ws_.sum;
    sum.start(pack, *job_.tables, job_.has_begin, job_.has_end);
    load(pack, p, known);
    sum.forward();
    *redone() += sum.n_redone();
    const double sign = known ? -1 : 1;
    ws_.weight.resize(job_.seq_weight || known ? pack.seq.back() + 1 : 0);
    for (int s = 0; s < pack.n_seq(); ++s) {
      value_ += sign * weight(pack, s) * sum.log_z(s);
      if (ws_.weight.empty()) continue;
      if (pack.seq[s] >= std::ssize(ws_.weight)) ws_.weight.resize(pack.seq[s] + 1);
      ws_.weight[pack.seq[s]] = sign * weight(pack, s);
    }
    SegmentGradient& g = ws_.sums;
    sum.backward(ws_.weight.empty() ? nullptr : ws_.weight.data(), g.pairs.data(), g.lengths.data(),
                 job_.tables->tail_order ? g.tail.data() : nullptr);
    add_rows(pack, p);
  }

  void load(const Pack& pack, std::size_t p, bool known) {
    auto& x = ws_.sum.lattice;
    constexpr T inf = std::numeric_limits<T>::infinity();
    const i64 rows = pack.rows();
    for (i64 r = 0; r < rows; ++r) {
      const T* from = ws_.scores.data() + r * width_;
      copy(from, x.u.data() + r * stride_, -inf);
      if (begin_ >= 0) copy(from + begin_, x.begin.data() + r * stride_, T(0));
      if (end_ >= 0) copy(from + end_, x.end.data() + r * stride_, T(0));
      if (!known) continue;
      restrict_row(block_.label[base_ + r], job_.hints, n_, x.u.data() + r * stride_);
      x.border[r] = block_.border[base_ + r];
    }
    for (int s = 0; s < pack.n_seq(); ++s) {
      T* first = x.u.data() + pack.row(0, s) * stride_;
      T* last = x.u.data() + pack.row(pack.length(s) - 1, s) * stride_;
      for (i64 j = 0; j < n_; ++j) first[j] += job_.first[j];
      for (i64 j = 0; j < n_; ++j) last[j] += job_.last[j];
    }
    const auto& items = block_.items[p];
    if (items.length.empty()) return;
    static_cast<ItemRows&>(x.items) = items;
    x.items.make_room(stride_);
    for (i64 i = 0; i < x.items.size(); ++i)
      copy(ws_.scores.data() + (rows + i) * width_, x.items.score.data() + i * stride_, -inf);
  }
  void copy(const T* from, T* to, T pad) const {
    std::copy_n(from, n_, to);
    std::fill(to + n_, to + stride_, pad);
  }

  void add_rows(const Pack& pack, std::size_t p) {
    const auto& x = ws_.sum.lattice;
    const i64 rows = pack.rows();
    const auto add = [&](const Buffer<T>& from, i64 column) {
      if (column < 0) return;
      for (i64 r = 0; r < rows; ++r) {
        T* to = ws_.gradient.data() + r * width_ + column;
        for (i64 j = 0; j < n_; ++j) to[j] += from[r * stride_ + j];
      }
    };
    add(x.nodes, 0);
    add(x.begins, begin_);
    add(x.ends, end_);
    for (int s = 0; s < pack.n_seq(); ++s) {
      const T* first = x.nodes.data() + pack.row(0, s) * stride_;
      const T* last = x.nodes.data() + pack.row(pack.length(s) - 1, s) * stride_;
      for (i64 j = 0; j < n_; ++j) ws_.sums.start[j] += first[j];
      for (i64 j = 0; j < n_; ++j) ws_.sums.end[j] += last[j];
    }
    for (i64 i = 0; i < std::ssize(block_.items[p].length); ++i) {
      T* to = ws_.gradient.data() + (rows + i) * width_;
      for (i64 j = 0; j < n_; ++j) to[j] += x.item_nodes[i * stride_ + j];
    }
  }

  // Takes the one segmentation that is known out of value and gradient.
  void take_gold(const Pack& pack, const ItemRows& items, int s) {
    const double w = weight(pack, s);
    const int steps = pack.length(s);
    double total = 0;
    const auto take = [&](i64 row, i64 column) {
      total += ws_.scores[row * width_ + column];
      ws_.gradient[row * width_ + column] -= T(w);
    };
    i64 before = -1;
    for (int first = 0; first < steps;) {
      const i64 j = block_.label[base_ + pack.row(first, s)];
      int last = first;
      while (last + 1 < steps && block_.border[base_ + pack.row(last + 1, s)] != kBorder) ++last;
      for (int t = first; t <= last; ++t) take(pack.row(t, s), j);
      if (begin_ >= 0) take(pack.row(first, s), begin_ + j);
      if (end_ >= 0) take(pack.row(last, s), end_ + j);
      total += gold_length(last - first + 1, j, w);
      const i64 r = pack.row(last, s);
      for (i64 i = items.ptr.empty() ? 0 : items.ptr[r]; !items.ptr.empty() && i < items.ptr[r + 1]; ++i)
        if (items.length[i] == last - first + 1) take(pack.rows() + i, j);
      if (before >= 0) {
        total += job_.tables->transitions.exact[before * n_ + j];
        ws_.sums.pairs[before * n_ + j] -= w;
      } else {
        total += job_.first[j];
        ws_.sums.start[j] -= w;
      }
      before = j;
      first = last + 1;
    }
    total += job_.last[before];
    ws_.sums.end[before] -= w;
    value_ -= w * total;
  }
  double gold_length(int k, i64 j, double w) {
    const int in_table = std::min(k, job_.tables->max_length);
    ws_.sums.lengths[(in_table - 1) * n_ + j] -= w;
    if (k > in_table) ws_.sums.tail[j] -= w * (k - in_table);
    return k > in_table ? job_.tables->exact->length(k, j) : job_.tables->length[(k - 1) * n_ + j];
  }

  void merge(i64 task) {
    const int parts = job_.turns->parts();
    for (int part = 0; part < parts; ++part) {
      job_.turns->wait(part, task);
      ws_.state.merge(*job_.state, part, parts, job_.state_gradient, job_.g);
      if (part == 0) {
        *job_.value += value_;
        job_.sums->add(ws_.sums);
        *job_.redone += redone_;
      }
      job_.turns->pass(part, task);
    }
  }
  i64* redone() { return &redone_; }

  const SegmentLossJob<T>& job_;
  const SegmentBlock<T>& block_;
  SegmentLossWorkspace<T, W>& ws_;
  const i64 n_, stride_, width_, begin_, end_;  // begin_, end_: first columns, or -1
  i64 base_ = 0, item_base_ = 0, redone_ = 0;
  double value_ = 0;
};

}  // namespace

template <class T>
const SegmentLossKernels<T>& segment_loss_kernels(int n_labels) {
  return with_width<T>(n_labels, [](auto width) -> const SegmentLossKernels<T>& {
    constexpr int W = width;
    static const SegmentLossKernels<T> kernels = {
        .workspace = [] { return std::unique_ptr<Workspace>(new SegmentLossWorkspace<T, W>); },
        .loss = [](const SegmentLossJob<T>& job, const SegmentBlock<T>& block, i64 task,
                   Workspace& ws) { SegmentLossKernel<T, W>(job, block, ws).loss(task); },
    };
    return kernels;
  });
}
#define CRFKIT_DEFINE(T) template const SegmentLossKernels<T>& segment_loss_kernels<T>(int);
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
