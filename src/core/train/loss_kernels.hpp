// loss_kernels.hpp: negative log-likelihood and gradient of one block.
//
//   value = sum over sequences of weight * (log Z - score of the gold path)
//   d value / d u[t][j]    = weight * (P(j at t) - [gold is j at t])
//   d value / d a[i][j]    = weight * (sum_t P(i at t, j at t+1) - gold transitions)
#pragma once
#include "beam/beam_kernels.hpp"
#include "chain/chain_kernels.hpp"
#include "model/scoring.hpp"
#include "train/beam_loss.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
struct LossWorkspace : ChainWorkspace<T, W> {
  LocalRows<T, W> state, edge, tangent_state, tangent_edge;
  Buffer<T> init;           // where a token's scores start: 0, pads -inf
  Buffer<T> edge_row;       // marginals of one transition             [labels][stride]
  Buffer<T> step_scores;    // scores of one transition                [labels][stride]
  Buffer<T> scores, nodes;  // and gradients of a pack                 [rows][stride]
  std::vector<double> pair_gradient, start_gradient, end_gradient;
  std::vector<double> gold_score;
  BeamWorkspace<T> beam;
  BeamLossWorkspace<T> beam_loss;
  Buffer<T> unary;  // of one sequence                         [steps][labels]
};

template <class T, int W>
class LossKernel {
  static constexpr int kByMarginals = 256;  // labels up to which exact marginals choose beams

 public:
  LossKernel(const LossJob<T>& job, const Block<T>& block, Workspace& workspace)
      : job_(job),
        block_(block),
        ws_(static_cast<LossWorkspace<T, W>&>(workspace)),
        n_(job.layout->n_labels),
        stride_(job.stride),
        own_steps_(job.layout->has_edges()) {
    load();
  }

  void loss(const u16* gold, i64 task) {
    {
      const FlushDenormals flush;
      gold_ = gold;
      clear();
      for (std::size_t p = 0; p < block_.packs.size(); ++p) run_pack(p);
    }
    for (int part = 0; part < job_.turns->parts(); ++part) {
      job_.turns->wait(part, task);
      merge(part);
      job_.turns->pass(part, task);
    }
  }

  // Picks beams that hold the gold labels, joins them with those before, and lays out what they need.
  void choose(const u16* gold, const Criterion& criterion, const Beams& before, BeamBlock<T>& out) {
    BeamBuilder<T> builder(*job_.state, n_, block_.state, before, out);
    // Exact marginals of few labels, many sequences at a time, cost less than messages from beam to beam.
    if (n_ <= kByMarginals && criterion.amount > 0) choose_by_marginals(gold, criterion, builder);
    else choose_by_messages(gold, criterion, builder);
    builder.finish();
  }

 protected:
  void load() {
    ws_.state.load(block_.state, *job_.state, job_.state_table, job_.w);
    ws_.init.reserve(stride_);
    std::fill_n(ws_.init.data(), stride_, -std::numeric_limits<T>::infinity());
    std::fill_n(ws_.init.data(), n_, T(0));
    if (!own_steps_) return;
    ws_.edge.load(block_.edge, *job_.edge, job_.edge_table, job_.w);
    ws_.edge_row.reserve(static_cast<std::size_t>(n_) * stride_);
    ws_.step_scores.reserve(static_cast<std::size_t>(n_) * stride_);
  }

  void clear() {
    ws_.state.clear_gradient();
    if (own_steps_) ws_.edge.clear_gradient();
    ws_.pairs.reserve(static_cast<std::size_t>(n_) * stride_);
    ws_.pair_gradient.assign(static_cast<std::size_t>(n_) * n_, 0);
    ws_.start_gradient.assign(n_, 0);
    ws_.end_gradient.assign(n_, 0);
    value_ = 0;
  }

  double weight(const Pack& pack, int s) const { return job_.seq_weight ? job_.seq_weight[pack.seq[s]] : 1.0; }
  int length(const Pack& pack, int s) const {
    return static_cast<int>(job_.offsets[pack.seq[s] + 1] - job_.offsets[pack.seq[s]]);
  }

  // u: [rows][stride], the scores of all tokens of the pack, start and end weights included
  void score_pack(const Pack& pack, T* u) {
    ws_.state.score(base_, pack.rows(), ws_.init.data(), u);
    add_ends(pack, job_.start, job_.end, u);
  }
  void add_ends(const Pack& pack, const T* start, const T* end, T* u) const {
    for (int s = 0; s < pack.n_seq(); ++s) {
      T* first = u + static_cast<i64>(pack.row(0, s)) * stride_;
      T* last = u + static_cast<i64>(pack.row(length(pack, s) - 1, s)) * stride_;
      for (int j = 0; j < n_; ++j) first[j] += start[j];
      for (int j = 0; j < n_; ++j) last[j] += end[j];
    }
  }

  // Scores of the transition t -> t+1 in a pack of one sequence: shared ones plus what the input adds.
  void step_scores(int t, T* out) { ws_.edge.score(base_ + t + 1, 1, job_.transitions->score.data(), out); }
  Steps<T, W> steps_of(const Pack& pack) const {
    return own_steps_ ? Steps<T, W>(n_, stride_, pack.steps(), fill_) : Steps<T, W>(*job_.transitions);
  }
  // Scores of the transition t -> t+1, or their transpose, for log space   [labels][log_stride]
  const double* log_matrix(int t, bool transposed) {
    if (!own_steps_) return transposed ? job_.log_transitions->score_t.data() : job_.log_transitions->score.data();
    const int wide = log_stride(n_);
    step_scores(t, ws_.step_scores.data());
    ws_.matrix.reserve(static_cast<std::size_t>(n_) * wide);
    std::fill_n(ws_.matrix.data(), static_cast<i64>(n_) * wide, -std::numeric_limits<double>::infinity());
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j)
        ws_.matrix[transposed ? j * wide + i : i * wide + j] =
            static_cast<double>(ws_.step_scores[static_cast<i64>(i) * stride_ + j]);
    return ws_.matrix.data();
  }
  // Sequence s, whose scores are in u [rows of the pack][stride], in log space.
  void run_log_lattice(const Pack& pack, int s, const T* u) {
    ws_.log_lattice.run(
        length(pack, s), n_,
        [&](int t, double* out) {
          pad_rows(u + static_cast<i64>(pack.row(t, s)) * stride_, 1, n_, log_stride(n_), out);
        },
        [&](int t) { return log_matrix(t, false); }, [&](int t) { return log_matrix(t, true); });
  }

  void choose_by_messages(const u16* gold, const Criterion& criterion, BeamBuilder<T>& builder) {
    BeamResult beams;
    std::vector<i32> keep;
    for (std::size_t p = 0; p < block_.packs.size(); ++p) {
      const Pack& pack = block_.packs[p];
      base_ = block_.base[p];
      ws_.lattice.start(pack, n_, stride_);
      T* u = ws_.lattice.q.data();
      score_pack(pack, u);
      for (int s = 0; s < pack.n_seq(); ++s) {
        const int steps = length(pack, s);
        ws_.unary.reserve(static_cast<std::size_t>(steps) * n_);
        keep.clear();
        for (int t = 0; t < steps; ++t) {
          const i64 r = pack.row(t, s);
          std::copy_n(u + r * stride_, n_, ws_.unary.data() + static_cast<i64>(t) * n_);
          keep.push_back(gold[base_ + r]);
        }
        const i64 offsets[2] = {0, steps};
        ChainJob<T> job;
        job.n_labels = n_;
        job.stride = stride_;
        job.offsets = offsets;
        job.unary = ws_.unary.data();
        job.shared = job_.transitions;
        job.n_seq = 1;
        const BeamRule rule{criterion, keep.data(), BeamRule::Form::smoothed, criterion.amount > 0};
        BeamKernel<T>(job, rule, 0, ws_.beam).choose(beams);
        builder.add(beams, keep.data(), weight(pack, s), [&](int t) { return base_ + pack.row(t, s); });
      }
    }
  }

  void choose_by_marginals(const u16* gold, const Criterion& criterion, BeamBuilder<T>& builder) {
    const FlushDenormals flush;
    BeamResult beams;
    std::vector<i32> keep;
    gold_ = gold;
    clear();
    for (std::size_t p = 0; p < block_.packs.size(); ++p) {
      const Pack& pack = start_pack(p);
      Steps<T, W> steps = steps_of(pack);
      run_nodes(pack, steps, false);
      for (int s = 0; s < pack.n_seq(); ++s) {
        beams.start(length(pack, s));
        keep.clear();
        for (int t = 0; t < length(pack, s); ++t) {
          const i64 r = pack.row(t, s);
          keep.push_back(gold[base_ + r]);
          ws_.beam.selector.select(ws_.lattice.e.data() + r * stride_, n_, stride_, criterion, keep.back(),
                                   beams.labels);
          beams.ptr.push_back(beams.labels.size());
        }
        builder.add(beams, keep.data(), weight(pack, s), [&](int t) { return base_ + pack.row(t, s); });
      }
    }
  }

  // Scores all tokens of the pack, and those of the gold paths.
  const Pack& start_pack(std::size_t p) {
    const Pack& pack = block_.packs[p];
    base_ = block_.base[p];
    auto& lattice = ws_.lattice;
    lattice.start(pack, n_, stride_);
    T* u = lattice.q.data();  // not needed before the backward pass
    score_pack(pack, u);
    ws_.gold_score.assign(pack.n_seq(), 0);
    for (int t = 0; t < pack.steps(); ++t)
      for (int s = 0; s < pack.active(t); ++s) {
        const i64 r = pack.row(t, s);
        ws_.gold_score[s] += static_cast<double>(u[r * stride_ + gold_[base_ + r]]);
      }
    lattice.set_rows(pack, u);
    return pack;
  }

  void run_pack(std::size_t p) {
    const Pack& pack = start_pack(p);
    run_lattice(pack);
    T* p_rows = ws_.lattice.e.data();
    for (int s = 0; s < pack.n_seq(); ++s) {
      const T scale = static_cast<T>(weight(pack, s));
      for (int t = 0; t < length(pack, s); ++t) {
        const i64 r = pack.row(t, s);
        T* row = p_rows + r * stride_;
        row[gold_[base_ + r]] -= T(1);
        if (scale != T(1))
          for (int j = 0; j < n_; ++j) row[j] *= scale;
      }
      const T* first = p_rows + static_cast<i64>(pack.row(0, s)) * stride_;
      const T* last = p_rows + static_cast<i64>(pack.row(length(pack, s) - 1, s)) * stride_;
      for (int j = 0; j < n_; ++j) ws_.start_gradient[j] += static_cast<double>(first[j]);
      for (int j = 0; j < n_; ++j) ws_.end_gradient[j] += static_cast<double>(last[j]);
    }
    ws_.state.scatter(base_, pack.rows(), p_rows);
  }

  void run_lattice(const Pack& pack) {
    Steps<T, W> steps = steps_of(pack);
    run_nodes(pack, steps, true);
    if (own_steps_) return own_edges(pack, steps);
    for (int s = 0; s < pack.n_seq(); ++s)
      if (weight(pack, s) != 1.0) scale_q(pack, s);
    add_shared_edges(pack);
  }

  // Probabilities of the labels, in e; adds to the value. lenient: as in Lattice::forward.
  void run_nodes(const Pack& pack, Steps<T, W>& steps, bool lenient) {
    auto& lattice = ws_.lattice;
    lattice.forward(pack, steps, lenient);
    redone_.clear();
    for (int s = 0; s < pack.n_seq(); ++s) {
      double log_z;
      if (lattice.good(s)) {
        log_z = lattice.log_z(pack, s) + steps.total_shift(length(pack, s));
      } else {
        log_z = in_log_space(pack, s);
        lattice.drop(pack, s);
      }
      value_ += weight(pack, s) * (log_z - ws_.gold_score[s] - gold_transitions(pack, s));
    }
    lattice.backward(pack, steps);
    std::size_t k = 0;
    for (const auto& [s, t0] : redone_)
      for (int t = 0; t < length(pack, s); ++t, k += n_)
        std::copy_n(redone_nodes_.data() + k, n_, lattice.e.data() + static_cast<i64>(pack.row(t, s)) * stride_);
    redone_nodes_.clear();
  }

  // The score of the gold path's transitions; takes them out of the gradient.
  double gold_transitions(const Pack& pack, int s) {
    double total = 0;
    for (int t = 0; t + 1 < length(pack, s); ++t) {
      const int i = gold_[base_ + pack.row(t, s)], j = gold_[base_ + pack.row(t + 1, s)];
      ws_.pair_gradient[static_cast<i64>(i) * n_ + j] -= weight(pack, s);
      if (own_steps_) {
        step_scores(t, ws_.step_scores.data());
        total += static_cast<double>(ws_.step_scores[static_cast<i64>(i) * stride_ + j]);
      } else {
        total += job_.transitions->exact[static_cast<i64>(i) * n_ + j];
      }
    }
    return total;
  }

  void scale_q(const Pack& pack, int s) {
    const T scale = static_cast<T>(weight(pack, s));
    for (int t = 1; t < length(pack, s); ++t) {
      T* q = ws_.lattice.q.data() + static_cast<i64>(pack.row(t, s)) * stride_;
      for (int j = 0; j < n_; ++j) q[j] *= scale;
    }
  }

  // Sums of a pack in T, of packs in double precision: transitions are frequent, and their gradient is a
  // difference of large counts.
  void add_shared_edges(const Pack& pack) {
    std::fill_n(ws_.pairs.data(), static_cast<std::size_t>(n_) * stride_, T(0));
    ws_.lattice.add_edges(pack, ws_.pairs.data());
    const T* m = job_.transitions->m.data();
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) {
        const i64 ij = static_cast<i64>(i) * stride_ + j;
        ws_.pair_gradient[static_cast<i64>(i) * n_ + j] +=
            static_cast<double>(ws_.pairs[ij]) * static_cast<double>(m[ij]);
      }
  }

  void own_edges(const Pack& pack, Steps<T, W>& steps) {
    const double scale = weight(pack, 0);
    const bool redone = !ws_.lattice.good(0);
    for (int t = 0; t + 1 < pack.steps(); ++t) {
      T* row = ws_.edge_row.data();
      if (redone) {
        step_scores(t, ws_.step_scores.data());
      }
      const T* m = redone ? ws_.step_scores.data() : steps.matrix(t);
      const T* a = ws_.lattice.alpha.data() + static_cast<i64>(t) * stride_;
      const T* q = ws_.lattice.q.data() + static_cast<i64>(t + 1) * stride_;
      for (int i = 0; i < n_; ++i) {
        T* out = row + static_cast<i64>(i) * stride_;
        const T* mi = m + static_cast<i64>(i) * stride_;
        for (int j = 0; j < n_; ++j)
          out[j] =
              redone ? static_cast<T>(ws_.log_lattice.edge(t, i, j, static_cast<double>(mi[j]))) : a[i] * mi[j] * q[j];
        std::fill(out + n_, out + stride_, T(0));
        for (int j = 0; j < n_; ++j) ws_.pair_gradient[i * n_ + j] += scale * static_cast<double>(out[j]);
      }
      row[static_cast<i64>(gold_[base_ + t]) * stride_ + gold_[base_ + t + 1]] -= T(1);
      if (scale != 1.0)
        for (i64 k = 0; k < static_cast<i64>(n_) * stride_; ++k) row[k] *= static_cast<T>(scale);
      ws_.edge.scatter(base_ + t + 1, 1, row);
    }
  }

  // The scaled pass lost something: redo sequence s in log space. Its scores still lie in q.
  double in_log_space(const Pack& pack, int s) {
    auto& log_lattice = ws_.log_lattice;
    const int wide = log_stride(n_), steps = length(pack, s);
    run_log_lattice(pack, s, ws_.lattice.q.data());
    redone_.emplace_back(s, 0);
    for (int t = 0; t < steps; ++t)
      for (int j = 0; j < n_; ++j) redone_nodes_.push_back(static_cast<T>(log_lattice.node(t, j)));
    if (!own_steps_)
      for (int t = 0; t + 1 < steps; ++t)
        for (int i = 0; i < n_; ++i)
          for (int j = 0; j < n_; ++j)
            ws_.pair_gradient[i * n_ + j] +=
                weight(pack, s) *
                log_lattice.edge(t, i, j, job_.log_transitions->score[static_cast<i64>(i) * wide + j]);
    return log_lattice.log_z;
  }

  void merge(int part) {
    const int parts = job_.turns->parts();
    ws_.state.merge(*job_.state, part, parts, job_.state_gradient, job_.g);
    if (own_steps_) ws_.edge.merge(*job_.edge, part, parts, job_.edge_gradient, job_.g);
    if (part > 0) return;
    *job_.value += value_;
    for (std::size_t k = 0; k < ws_.pair_gradient.size(); ++k) job_.pair_gradient[k] += ws_.pair_gradient[k];
    for (int j = 0; j < n_; ++j) job_.start_gradient[j] += ws_.start_gradient[j];
    for (int j = 0; j < n_; ++j) job_.end_gradient[j] += ws_.end_gradient[j];
  }

  const LossJob<T>& job_;
  const Block<T>& block_;
  LossWorkspace<T, W>& ws_;
  const int n_, stride_;
  const bool own_steps_;
  struct Fill {
    LossKernel* kernel;
    void operator()(int t, T* a) const { kernel->step_scores(t, a); }
  };
  const Fill fill_{this};
  const u16* gold_ = nullptr;
  i64 base_ = 0;  // first token row of the pack at hand
  double value_ = 0;
  std::vector<std::pair<int, int>> redone_;
  std::vector<T> redone_nodes_;
};

// in kernels.cpp
#define CRFKIT_EXTERN(T, W) extern template class LossKernel<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_EXTERN)
#undef CRFKIT_EXTERN

}  // namespace crfkit::CRFKIT_ISA
