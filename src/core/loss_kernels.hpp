// loss_kernels.hpp: negative log-likelihood and gradient of one block; scores of one block.
//
//   value = sum over sequences of weight * (log Z - score of the gold path)
//   d value / d u[t][j]    = weight * (P(j at t) - [gold is j at t])
//   d value / d a[i][j]    = weight * (sum_t P(i at t, j at t+1) - gold transitions)
#pragma once
#include "beam_kernels.hpp"
#include "beam_loss.hpp"
#include "scoring.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
struct LossWorkspace : BeamWorkspace<T, W> {
  LocalRows<T, W> state, edge;
  Buffer<T> init, edge_init;     // where a token's scores start: 0, pads -inf; transitions likewise
  Buffer<T> pairs;               // sum alpha x q of a pack                 [labels][stride]
  Buffer<T> edge_row;            // marginals of one transition             [labels][stride]
  Buffer<T> step_scores;         // scores of one transition                [labels][stride]
  std::vector<double> pair_gradient, start_gradient, end_gradient;
  std::vector<double> gold_score;
  BeamLossWorkspace<T, W> beam_loss;
  Buffer<T> unary;               // of one sequence                         [steps][labels]
  std::vector<u32> row_weight;   // of local dense rows                     [rows][width]
};

template <class T, int W>
class LossKernel {
 public:
  LossKernel(const LossJob<T>& job, const Block<T>& block, Workspace& workspace)
      : job_(job), block_(block), ws_(static_cast<LossWorkspace<T, W>&>(workspace)),
        n_(job.layout->n_labels), stride_(job.stride), own_steps_(job.layout->has_edges()) {
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

  // Picks beams that hold the gold labels, and lays out what they need.
  void choose(const u16* gold, const Criterion& criterion, BeamBlock<T>& out) {
    out = BeamBlock<T>();
    out.first.push_back(0);
    out.ptr.push_back(0);
    find_row_weights();
    used_.assign(flat_runs_ + block_.state.weight.size(), 0);
    local_.assign(n_, kNone);
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
        BeamKernel<T, W>(job, rule, 0, ws_).choose(beams);
        for (int t = 0; t < steps; ++t) {
          const i64 size = static_cast<i64>(beams.size(t));
          ++out.n_tokens;
          out.n_labels += size;
          out.largest = std::max(out.largest, size);
        }
        for (int t = 0; t < steps;) {
          if (beams.size(t) == 1) {
            ++t;
            continue;
          }
          const int begin = std::max(0, t - 1);
          while (t < steps && beams.size(t) > 1) ++t;
          const int end = std::min(steps, t + 1);
          out.chains.push_back({static_cast<u32>(out.gold.size()), static_cast<u32>(end - begin), begin == 0, end == steps, weight(pack, s)});
          for (int k = begin; k < end; ++k)
            add_beam(base_ + pack.row(k, s), beams.labels.data() + beams.ptr[k], beams.size(k), keep[k], out);
        }
      }
    }
    number(out);
  }

  void score(const i64* edge_first, T* unary, T* pairwise) {
    for (std::size_t p = 0; p < block_.packs.size(); ++p) {
      const Pack& pack = block_.packs[p];
      base_ = block_.base[p];
      ws_.row.reserve(static_cast<std::size_t>(pack.rows()) * stride_);
      score_pack(pack, ws_.row.data());
      for (int t = 0; t < pack.steps(); ++t)
        for (int s = 0; s < pack.active(t); ++s) {
          const i64 r = pack.row(t, s);
          std::copy_n(ws_.row.data() + r * stride_, n_, unary + block_.token[base_ + r] * n_);
        }
      if (!own_steps_) continue;
      for (int t = 0; t + 1 < pack.steps(); ++t) {
        step_scores(t, ws_.step_scores.data());
        T* out = pairwise + (edge_first[pack.seq[0]] + t) * static_cast<i64>(n_) * n_;
        for (int i = 0; i < n_; ++i)
          std::copy_n(ws_.step_scores.data() + static_cast<i64>(i) * stride_, n_, out + static_cast<i64>(i) * n_);
      }
    }
  }

 protected:
  void load() {
    load_rows(ws_.state, block_.state, *job_.state, job_.state_table, job_.state_runs);
    ws_.init.reserve(stride_);
    std::fill_n(ws_.init.data(), stride_, -std::numeric_limits<T>::infinity());
    std::fill_n(ws_.init.data(), n_, T(0));
    if (!own_steps_) return;
    load_rows(ws_.edge, block_.edge, *job_.edge, job_.edge_table, job_.edge_runs);
    ws_.edge_row.reserve(static_cast<std::size_t>(n_) * stride_);
    ws_.step_scores.reserve(static_cast<std::size_t>(n_) * stride_);
  }

  void load_rows(LocalRows<T, W>& rows, const Group<T>& group, const Family& family, const T* table, const RunWeight<T>* runs) {
    if (group.own_rows) rows.load(group, family, table, job_.w);
    else rows.borrow(group, family, table, runs);
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
    for (int s = 0; s < pack.n_seq(); ++s) {
      T* first = u + static_cast<i64>(pack.row(0, s)) * stride_;
      T* last = u + static_cast<i64>(pack.row(length(pack, s) - 1, s)) * stride_;
      for (int j = 0; j < n_; ++j) first[j] += job_.start[j];
      for (int j = 0; j < n_; ++j) last[j] += job_.end[j];
    }
  }

  // Scores of the transition t -> t+1 in a pack of one sequence: shared ones plus what the input adds.
  void step_scores(int t, T* out) {
    ws_.edge.score(base_ + t + 1, 1, job_.transitions->score.data(), out);
  }

  void run_pack(std::size_t p) {
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
    if (own_steps_) {
      const auto fill = [this](int t, T* a) { step_scores(t, a); };
      run_lattice(pack, OwnSteps<T, W, decltype(fill)>(n_, stride_, std::max(0, pack.steps() - 1), fill));
    } else {
      run_lattice(pack, SharedSteps<T, W>(*job_.transitions));
    }
    T* p_rows = lattice.e.data();
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

  // The entries of a block's local weights are numbered: dense rows in full, then runs.
  void find_row_weights() {
    const Group<T>& group = block_.state;
    const Family& family = *job_.state;
    flat_runs_ = group.dense.size() * family.width;
    ws_.row_weight.assign(flat_runs_, kNone);
    for (std::size_t r = 0; r < group.dense.size(); ++r) {
      const u32 a = family.dense_attr[group.dense[r]];
      for (u32 k = family.ptr[a]; k < family.ptr[a + 1]; ++k) ws_.row_weight[r * family.width + family.column[k]] = k;
    }
  }

  // Appends a token's beam and the weights that its labels have there, if there is a choice.
  void add_beam(i64 row, const u16* labels, std::size_t n, int gold, BeamBlock<T>& out) {
    const Group<T>& group = block_.state;
    const Family& family = *job_.state;
    for (std::size_t k = 0; k < n; ++k) {
      u32& local = local_[labels[k]];
      if (local == kNone) {
        local = static_cast<u32>(out.labels.size());
        out.labels.push_back(labels[k]);
      }
      if (labels[k] == gold) out.gold.push_back(static_cast<u16>(k));
    }
    const u32 begin = group.ptr[row], middle = begin + (n > 1 ? group.n_dense[row] : 0), end = n > 1 ? group.ptr[row + 1] : begin;
    const auto id = [&](u32 e) { return group.wide_id.empty() ? u32{group.id[e]} : group.wide_id[e]; };
    slot_of_.resize(n_, -1);
    for (std::size_t k = 0; k < n; ++k) slot_of_[labels[k]] = static_cast<i32>(k);
    run_entries_.clear();
    for (u32 e = middle; e < end; ++e) {
      const u32 first = group.run_ptr.empty() ? id(e) : group.run_ptr[id(e)];
      const u32 last = group.run_ptr.empty() ? first + 1 : group.run_ptr[id(e) + 1];
      for (u32 q = first; q < last; ++q) {
        const i32 slot = slot_of_[family.column[group.weight[q]]];
        if (slot >= 0) run_entries_.push_back({slot, static_cast<u32>(flat_runs_ + q), e});
      }
    }
    for (std::size_t k = 0; k < n; ++k) slot_of_[labels[k]] = -1;
    const auto add = [&](u32 flat, u32 e) {
      out.id.push_back(flat);
      used_[flat] = 1;
      if (!group.value.empty()) out.value.push_back(group.value[e]);
    };
    for (std::size_t k = 0; k < n; ++k) {
      for (u32 e = begin; e < middle; ++e) {
        const u32 flat = id(e) * static_cast<u32>(family.width) + labels[k];
        if (ws_.row_weight[flat] != kNone) add(flat, e);
      }
      for (const RunEntry& x : run_entries_)
        if (x.slot == static_cast<i32>(k)) add(x.flat, x.entry);
      out.label.push_back(static_cast<u16>(local_[labels[k]]));
      out.ptr.push_back(static_cast<u32>(out.id.size()));
    }
    out.first.push_back(static_cast<u32>(out.label.size()));
  }

  // Numbers the weights in use by their order in the model.
  void number(BeamBlock<T>& out) {
    std::vector<std::pair<u32, u32>> order;  // weight, flat: dense rows ascend, and so do runs
    for (std::size_t f = 0; f < flat_runs_; ++f)
      if (used_[f]) order.emplace_back(ws_.row_weight[f], static_cast<u32>(f));
    const i64 middle = static_cast<i64>(order.size());
    for (std::size_t f = flat_runs_; f < used_.size(); ++f)
      if (used_[f]) order.emplace_back(block_.state.weight[f - flat_runs_], static_cast<u32>(f));
    std::inplace_merge(order.begin(), order.begin() + middle, order.end());
    std::vector<u32> number(used_.size());
    for (const auto& [weight, flat] : order) {
      number[flat] = static_cast<u32>(out.weight.size());
      out.weight.push_back(weight);
    }
    for (u32& id : out.id) id = number[id];
    out.id.shrink_to_fit();
  }

  template <class Steps>
  void run_lattice(const Pack& pack, Steps steps) {
    auto& lattice = ws_.lattice;
    lattice.forward(pack, steps);
    redone_.clear();
    for (int s = 0; s < pack.n_seq(); ++s) {
      double log_z;
      if (lattice.good(s)) {
        log_z = lattice.log_z(pack, s) + total_shift(steps, length(pack, s));
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
    if constexpr (std::is_same_v<Steps, SharedSteps<T, W>>) {
      for (int s = 0; s < pack.n_seq(); ++s)
        if (weight(pack, s) != 1.0) scale_q(pack, s);
      add_shared_edges(pack);
    } else {
      own_edges(pack, steps);
    }
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
        ws_.pair_gradient[static_cast<i64>(i) * n_ + j] += static_cast<double>(ws_.pairs[ij]) * static_cast<double>(m[ij]);
      }
  }

  template <class Steps>
  void own_edges(const Pack& pack, Steps& steps) {
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
          out[j] = redone ? static_cast<T>(ws_.log_lattice.edge(t, i, j, static_cast<double>(mi[j]))) : a[i] * mi[j] * q[j];
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
    const auto matrix = [&](int t, bool transposed) -> const double* {
      if (!own_steps_) return transposed ? job_.log_transitions->score_t.data() : job_.log_transitions->score.data();
      step_scores(t, ws_.step_scores.data());
      ws_.matrix.reserve(static_cast<std::size_t>(n_) * wide);
      std::fill_n(ws_.matrix.data(), static_cast<i64>(n_) * wide, -std::numeric_limits<double>::infinity());
      for (int i = 0; i < n_; ++i)
        for (int j = 0; j < n_; ++j)
          ws_.matrix[transposed ? j * wide + i : i * wide + j] =
              static_cast<double>(ws_.step_scores[static_cast<i64>(i) * stride_ + j]);
      return ws_.matrix.data();
    };
    log_lattice.run(
        steps, n_,
        [&](int t, double* out) {
          pad_rows(ws_.lattice.q.data() + static_cast<i64>(pack.row(t, s)) * stride_, 1, n_, wide, out);
        },
        [&](int t) { return matrix(t, false); }, [&](int t) { return matrix(t, true); });
    redone_.emplace_back(s, 0);
    for (int t = 0; t < steps; ++t)
      for (int j = 0; j < n_; ++j) redone_nodes_.push_back(static_cast<T>(log_lattice.node(t, j)));
    if (!own_steps_)
      for (int t = 0; t + 1 < steps; ++t)
        for (int i = 0; i < n_; ++i)
          for (int j = 0; j < n_; ++j)
            ws_.pair_gradient[i * n_ + j] +=
                weight(pack, s) * log_lattice.edge(t, i, j, job_.log_transitions->score[static_cast<i64>(i) * wide + j]);
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
  const u16* gold_ = nullptr;
  i64 base_ = 0;  // first token row of the pack at hand
  double value_ = 0;
  std::vector<std::pair<int, int>> redone_;
  std::vector<T> redone_nodes_;

  // while beams are chosen
  struct RunEntry {
    i32 slot;
    u32 flat, entry;
  };
  std::size_t flat_runs_ = 0;
  std::vector<u8> used_;
  std::vector<u32> local_;
  std::vector<i32> slot_of_;
  std::vector<RunEntry> run_entries_;
};

}  // namespace crfkit::CRFKIT_ISA
