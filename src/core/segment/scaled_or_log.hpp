// scaled_or_log.hpp: sum-product over the segmentations of a pack, in scaled probability space or, where that loses
// something, in log space.
#pragma once
#include "chain/pair_sums.hpp"
#include "segment/scaled_lattice.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
class SegmentSumProduct {
 public:
  SegmentLattice<T, W> lattice;

  // Makes room for a pack; the caller then fills the lattice's scores.
  void start(const Pack& pack, const ReadyTables<T>& tables, bool with_begin, bool with_end) {
    pack_ = &pack;
    tables_ = &tables;
    lattice.start(pack, tables, with_begin, with_end);
    redone_.assign(pack.n_seq(), -1);
    logs_.clear();
  }

  void forward() {
    lattice.forward();
    for (int s = 0; s < pack_->n_seq(); ++s)
      if (!lattice.good(s)) redo(s);
  }
  double log_z(int s) const { return redone_[s] < 0 ? lattice.log_z(s) : logs_[redone_[s]].log_z; }
  bool alive(int s) const { return log_z(s) > -std::numeric_limits<double>::infinity(); }
  i64 n_redone() const { return std::ssize(logs_); }

  // Sums as in SegmentSums, with its weights; pairs, lengths and tail are added to, each may be null. Probabilities of
  // tokens are in the lattice's rows; zero where no segmentation is allowed.
  void backward(const double* weight, double* pairs, double* lengths, double* tail) {
    lattice.backward(weight, lengths, tail);
    const i64 n = tables_->n_labels, stride = tables_->stride;
    for (int s = 0; s < pack_->n_seq(); ++s) {
      const double w = weight ? weight[pack_->seq[s]] : 1.0;
      if (redone_[s] < 0) lattice.weigh(s, T(w));
      else write(s, w);
    }
    if (pairs) {
      sums_.assign(n * stride, T(0));
      pair_sums<T, W>(*pack_, lattice.alpha.data(), lattice.q.data(), n, stride, sums_.data());
      const T* m = tables_->transitions.m.data();
      for (i64 i = 0; i < n; ++i)
        for (i64 j = 0; j < n; ++j) pairs[i * n + j] += double{sums_[i * stride + j]} * m[i * stride + j];
    }
    for (int s = 0; s < pack_->n_seq(); ++s) {
      if (redone_[s] < 0 || !alive(s)) continue;
      const SequenceSums& x = logs_[redone_[s]];
      const double w = weight ? weight[pack_->seq[s]] : 1.0;
      const auto add = [&](const std::vector<double>& from, double* to) {
        for (std::size_t k = 0; to && k < from.size(); ++k) to[k] += w * from[k];
      };
      add(x.pairs, pairs);
      add(x.lengths, lengths);
      add(x.tail, tail);
    }
  }

  void messages(int s, FunctionRef<void(int t, i64 j, double enter, double leave)> f) const {
    if (redone_[s] < 0) return lattice.messages(s, f);
    const SequenceSums& x = logs_[redone_[s]];
    const i64 n = tables_->n_labels;
    for (int t = 0; alive(s) && t < pack_->length(s); ++t)
      for (i64 j = 0; j < n; ++j) f(t, j, x.enter[t * n + j], x.leave[t * n + j]);
  }

 private:
  CRFKIT_KERNEL void redo(int s) {
    const i64 n = tables_->n_labels, stride = tables_->stride;
    const int steps = pack_->length(s);
    SegmentScores x;
    x.steps = steps;
    x.begin.assign(steps * n, 0.0);
    x.end.assign(steps * n, 0.0);
    x.item_ptr.push_back(0);
    for (int t = 0; t < steps; ++t) {
      const i64 r = pack_->row(t, s), at = r * stride;
      x.u.insert(x.u.end(), lattice.u.data() + at, lattice.u.data() + at + n);
      if (lattice.has_begin) std::copy_n(lattice.begin.data() + at, n, x.begin.data() + t * n);
      if (lattice.has_end) std::copy_n(lattice.end.data() + at, n, x.end.data() + t * n);
      x.border.push_back(lattice.border[r]);
      const PackItems<T>& items = lattice.items;
      for (i64 i = items.ptr.empty() ? 0 : items.ptr[r]; !items.ptr.empty() && i < items.ptr[r + 1]; ++i) {
        x.item_length.push_back(items.length[i]);
        const T* score = items.score.data() + i * stride;
        x.item_score.insert(x.item_score.end(), score, score + n);
      }
      x.item_ptr.push_back(std::ssize(x.item_length));
    }
    redone_[s] = static_cast<int>(logs_.size());
    logs_.push_back(log_sums(*tables_->exact, x, false));
    lattice.drop(s);
  }

  // What log space gave, into the lattice's rows.
  CRFKIT_KERNEL void write(int s, double w) {
    const i64 n = tables_->n_labels, stride = tables_->stride;
    const SequenceSums& x = logs_[redone_[s]];
    i64 item = 0;
    for (int t = 0; t < pack_->length(s); ++t) {
      const i64 r = pack_->row(t, s);
      const std::pair<Buffer<T>*, const std::vector<double>*> rows[] = {
          {&lattice.nodes, &x.nodes}, {&lattice.begins, &x.begins}, {&lattice.ends, &x.ends}, {&lattice.q, nullptr}};
      for (const auto& [to, from] : rows) {
        std::fill_n(to->data() + r * stride, stride, T(0));
        for (i64 j = 0; from && alive(s) && j < n; ++j) (*to)[r * stride + j] = T(w * (*from)[t * n + j]);
      }
      const PackItems<T>& items = lattice.items;
      for (i64 i = items.ptr.empty() ? 0 : items.ptr[r]; !items.ptr.empty() && i < items.ptr[r + 1]; ++i, ++item)
        for (i64 j = 0; j < stride; ++j)
          lattice.item_nodes[i * stride + j] = j < n && alive(s) ? T(w * x.items[item * n + j]) : T(0);
    }
  }

  const Pack* pack_ = nullptr;
  const ReadyTables<T>* tables_ = nullptr;
  std::vector<int> redone_;  // where the sums of a sequence that scaling could not serve are, or -1
  std::vector<SequenceSums> logs_;
  Buffer<T> sums_;
};

}  // namespace crfkit::CRFKIT_ISA
