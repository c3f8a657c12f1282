// loss_kernels.hpp: negative log-likelihood and gradient of one block.
//
//   value = sum over sequences of weight * (log Z - score of the gold path)
//   d value / d u[t][j]    = weight * (P(j at t) - [gold is j at t])
//   d value / d a[i][j]    = weight * (sum_t P(i at t, j at t+1) - gold transitions)
#pragma once
#include "chain/scaled_or_log.hpp"
#include "model/scoring.hpp"
#include "train/kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
struct LossWorkspace : Workspace {
  SumProduct<T, W> sum;
  LocalRows<T, W> state, edge;
  Buffer<T> init;         // where a token's scores start: 0, pads -inf
  Buffer<T> edge_row;     // marginals of one transition             [labels][stride]
  Buffer<T> step_scores;  // scores of one transition                [labels][stride]
  std::vector<double> pair_gradient, start_gradient, end_gradient;
  std::vector<double> gold_score;
};

template <class T, int W>
class LossKernel {
 public:
  // rows: whether those of the tokens' attributes are needed
  LossKernel(const LossJob<T>& job, const Block<T>& block, Workspace& workspace, bool rows = true)
      : job_(job),
        block_(block),
        ws_(static_cast<LossWorkspace<T, W>&>(workspace)),
        n_(job.layout->n_labels),
        stride_(job.stride),
        own_steps_(job.layout->has_edges()) {
    if (rows) ws_.state.load(block_.state, *job_.state, job_.state_table, job_.w);
    load();
  }

  void loss(const u16* gold, i64 task) {
    {
      const FlushDenormals flush;
      gold_ = gold;
      clear();
      for (std::size_t p = 0; p < block_.packs.size(); ++p) run_pack(p);
    }
    merge(task);
  }

 protected:
  void load() {
    ws_.init.assign(stride_, -std::numeric_limits<T>::infinity());
    std::fill_n(ws_.init.data(), n_, T(0));
    if (!own_steps_) return;
    ws_.edge.load(block_.edge, *job_.edge, job_.edge_table, job_.w);
    ws_.edge_row.reserve(n_ * stride_);
    ws_.step_scores.reserve(n_ * stride_);
  }

  void clear() {
    ws_.state.clear_gradient();
    if (own_steps_) ws_.edge.clear_gradient();
    ws_.pair_gradient.assign(n_ * n_, 0);
    ws_.start_gradient.assign(n_, 0);
    ws_.end_gradient.assign(n_, 0);
    value_ = 0;
  }

  double weight(const Pack& pack, int s) const { return job_.seq_weight ? job_.seq_weight[pack.seq[s]] : 1.0; }

  // u: [rows][stride], the scores of all tokens of the pack, start and end weights included
  void score_pack(const Pack& pack, T* u) {
    ws_.state.score(base_, pack.rows(), ws_.init.data(), u);
    add_ends(pack, job_.start, job_.end, u);
  }
  void add_ends(const Pack& pack, const T* start, const T* end, T* u) const {
    for (int s = 0; s < pack.n_seq(); ++s) {
      T* first = u + pack.row(0, s) * stride_;
      T* last = u + pack.row(pack.length(s) - 1, s) * stride_;
      for (i64 j = 0; j < n_; ++j) first[j] += start[j];
      for (i64 j = 0; j < n_; ++j) last[j] += end[j];
    }
  }

  // Scores of the transition t -> t+1 in a pack of one sequence: shared ones plus what the input adds.
  void step_scores(int t, T* out) { ws_.edge.score(base_ + t + 1, 1, job_.transitions->score.data(), out); }
  Steps<T, W> steps_of(const Pack& pack) const {
    return own_steps_ ? Steps<T, W>(n_, stride_, pack.steps(), fill_) : Steps<T, W>(*job_.transitions, job_.pairwise);
  }

  void run_pack(std::size_t p) {
    const Pack& pack = run_nodes(p, true);
    T* p_rows = ws_.sum.lattice.e.data();
    for (int s = 0; s < pack.n_seq(); ++s) {
      const T scale = T(weight(pack, s));
      const int steps = pack.length(s);
      for (int t = 0; t < steps; ++t) {
        const i64 r = pack.row(t, s);
        T* row = p_rows + r * stride_;
        row[gold_[base_ + r]] -= T(1);
        if (scale != T(1))
          for (i64 j = 0; j < n_; ++j) row[j] *= scale;
      }
      if (!own_steps_) ws_.sum.weigh(s, weight(pack, s));
      add_to_ends(p_rows + pack.row(0, s) * stride_, p_rows + pack.row(steps - 1, s) * stride_);
    }
    if (own_steps_) own_edges(pack);
    else ws_.sum.add_pairs(ws_.pair_gradient.data());
    ws_.state.scatter(base_, pack.rows(), p_rows);
  }

  void add_to_ends(const T* first, const T* last) {
    for (i64 j = 0; j < n_; ++j) ws_.start_gradient[j] += first[j];
    for (i64 j = 0; j < n_; ++j) ws_.end_gradient[j] += last[j];
  }

  // Probabilities of the labels of pack p, in e; adds to the value. lenient: as in Lattice::forward.
  const Pack& run_nodes(std::size_t p, bool lenient) {
    const Pack& pack = block_.packs[p];
    base_ = block_.base[p];
    auto& sum = ws_.sum;
    T* u = sum.start(pack, n_, stride_);
    score_pack(pack, u);
    ws_.gold_score.assign(pack.n_seq(), 0);
    for (int t = 0; t < pack.steps(); ++t)
      for (int s = 0; s < pack.active(t); ++s) {
        const i64 r = pack.row(t, s);
        ws_.gold_score[s] += u[r * stride_ + gold_[base_ + r]];
      }
    sum.forward(u, steps_of(pack), lenient);
    for (int s = 0; s < pack.n_seq(); ++s)
      value_ += weight(pack, s) * (sum.log_z(s) - ws_.gold_score[s] - gold_transitions(pack, s));
    sum.backward();
    return pack;
  }

  // The score of the gold path's transitions; takes them out of the gradient.
  double gold_transitions(const Pack& pack, int s) {
    double total = 0;
    const int steps = pack.length(s);
    for (int t = 0; t + 1 < steps; ++t) {
      const i64 i = gold_[base_ + pack.row(t, s)], j = gold_[base_ + pack.row(t + 1, s)];
      ws_.pair_gradient[i * n_ + j] -= weight(pack, s);
      if (own_steps_) {
        step_scores(t, ws_.step_scores.data());
        total += ws_.step_scores[i * stride_ + j];
      } else {
        total += job_.transitions->exact[i * n_ + j];
      }
    }
    return total;
  }

  // In a pack of one sequence.
  void own_edges(const Pack& pack) {
    const double scale = weight(pack, 0);
    T* row = ws_.edge_row.data();
    for (int t = 0; t + 1 < pack.steps(); ++t) {
      ws_.sum.edge(t, 0, row, stride_);
      for (i64 i = 0; i < n_; ++i)
        for (i64 j = 0; j < n_; ++j) ws_.pair_gradient[i * n_ + j] += scale * row[i * stride_ + j];
      row[gold_[base_ + t] * stride_ + gold_[base_ + t + 1]] -= T(1);
      if (scale != 1.0)
        for (i64 k = 0; k < n_ * stride_; ++k) row[k] *= T(scale);
      ws_.edge.scatter(base_ + t + 1, 1, row);
    }
  }

  // Adds what the block gives to the whole, when its turn comes.
  void merge(i64 task) {
    const int parts = job_.turns->parts();
    for (int part = 0; part < parts; ++part) {
      job_.turns->wait(part, task);
      ws_.state.merge(*job_.state, part, parts, job_.state_gradient, job_.g);
      if (own_steps_) ws_.edge.merge(*job_.edge, part, parts, job_.edge_gradient, job_.g);
      if (part == 0) {
        *job_.value += value_;
        for (i64 k = 0; k < n_ * n_; ++k) job_.pair_gradient[k] += ws_.pair_gradient[k];
        for (i64 j = 0; j < n_; ++j) job_.start_gradient[j] += ws_.start_gradient[j];
        for (i64 j = 0; j < n_; ++j) job_.end_gradient[j] += ws_.end_gradient[j];
      }
      job_.turns->pass(part, task);
    }
  }

  const LossJob<T>& job_;
  const Block<T>& block_;
  LossWorkspace<T, W>& ws_;
  const i64 n_, stride_;
  const bool own_steps_;
  struct Fill {
    LossKernel* kernel;
    void operator()(int t, T* a) const { kernel->step_scores(t, a); }
  };
  const Fill fill_{this};
  const u16* gold_ = nullptr;
  i64 base_ = 0;  // first token row of the pack at hand
  double value_ = 0;
};

// in kernels.cpp
#define CRFKIT_EXTERN(T, W) extern template class LossKernel<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_EXTERN)
#undef CRFKIT_EXTERN

}  // namespace crfkit::CRFKIT_ISA
