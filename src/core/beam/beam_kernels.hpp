// beam_kernels.hpp: sum-product and max-product within a beam of labels at each step.
//
// A walk along the sequence picks the beams (walk.hpp); a walk back may pick them afresh, from what leads to a label
// and what follows it (smoothed). Then the lattice that has only the beams' labels is solved exactly
// (frozen_lattice.hpp).
#pragma once
#include "beam/frozen_lattice.hpp"
#include "beam/kernels.hpp"
#include "beam/paper_form.hpp"
#include "beam/walk.hpp"
#include "chain/chain_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
struct BeamWorkspace : Workspace {
  BeamWalk<T, kNarrowest<T>> walk;  // beams gain little by wider vectors
  BeamWalk<double, kLogWidth> log_walk;
  FrozenLattice frozen;
  Buffer<T> forward;  // messages of all steps
  BeamResult back;    // what a backward walk gives, last step first
};

template <class T>
class BeamKernel {
  static constexpr int W = kNarrowest<T>;
  using S = Simd<T, W>;
  using Sums = SumTimes<T, W>;
  using Maxima = MaxPlus<T, W>;
  using Form = BeamRule::Form;
  using Beam = std::span<const u16>;
  static constexpr double kInf = std::numeric_limits<double>::infinity();

 public:
  BeamKernel(const ChainJob<T>& job, const BeamRule& rule, i64 seq, Workspace& workspace)
      : job_(job),
        rule_(rule),
        seq_(seq),
        ws_(static_cast<BeamWorkspace<T>&>(workspace)),
        n_(job.n_labels),
        stride_(job.stride),
        begin_(job.offsets[seq]),
        length_(static_cast<int>(job.offsets[seq + 1] - job.offsets[seq])) {}

  void sum_product(BeamResult& out) {
    if (choose(out) && rule_.form == Form::paper) return;
    if (out.log_mass == -kInf) return;
    auto& frozen = ws_.frozen;
    frozen.start(length_, [&](int t) { return out.ptr[t]; });
    double shift = 0;
    bool lossy = false;
    for (int t = 0; t < length_; ++t) {
      for (std::size_t k = 0; k < out.size(t); ++k)
        frozen.u()[out.ptr[t] + k] = static_cast<double>(unary(t)[out.label(t, k)]);
      if (t + 1 < length_) lossy |= !load_block(t, out, frozen.m() + frozen.edge(t), shift);
    }
    out.log_mass = frozen.run(lossy, shift, [&](int t, std::size_t i, std::size_t k) {
      return static_cast<double>(scores_from(t, out.label(t, i))[out.label(t + 1, k)]);
    });
    if (!(out.log_mass > -kInf)) return;
    out.nodes.assign(frozen.nodes(), frozen.nodes() + out.labels.size());
    out.start_edges();
    std::copy_n(frozen.edges(), out.edges.size(), out.edges.begin());
  }

  // Picks the beams. log_mass of the result is minus infinity if no path is allowed. False if this was done in log
  // space, forward only.
  bool choose(BeamResult& out) {
    const FlushDenormals flush;
    if (forward(out)) {
      if (rule_.form != Form::frozen) revise(out);
      return true;
    }
    choose_in_logs<LogSumPlus>(ws_.log_walk, log_stride(n_), out);
    return false;
  }

  // Beams by max-product: the message is the score of the best path so far, its belief the exponential. Leaves the
  // scores, the best of a step at zero, in `nodes`.
  void choose_for_maximum(BeamResult& out) { choose_in_logs<Maxima>(ws_.walk, stride_, out); }

  // The same with all labels that could be on the best path. False if there are too many to gain anything by it.
  bool undominated(const Dominance<T>& dominance, BeamResult& out) {
    constexpr int kTrial = 8, kWorthwhile = 6;  // steps after which, and fraction of the labels up to which, it goes on
    bool worthwhile = true;
    walk_in_logs<Maxima>(ws_.walk, stride_, out, [&](int t) {
      leave_out_dominated(dominance, t + 1 == length_, out.labels);
      out.end_step(1);
      worthwhile = t < kTrial || static_cast<i64>(out.labels.size()) * kWorthwhile <= static_cast<i64>(t + 1) * n_;
      return worthwhile ? out.last() : Beam();
    });
    return worthwhile;
  }

 private:
  const T* unary(int t) const { return job_.unary + (begin_ + t) * n_; }
  // Scores of the transitions t -> t+1 out of label i  [labels]
  const T* scores_from(int t, int i) const {
    if (job_.shared) return job_.shared->score.data() + static_cast<i64>(i) * stride_;
    return job_.pairwise + ((job_.edge_first[seq_] + t) * n_ + i) * static_cast<i64>(n_);
  }

  template <class U, int V>
  const U* scores(BeamWalk<U, V>& walk, int t) const {
    pad_rows(unary(t), 1, n_, walk.stride(), walk.scores.data());
    return walk.scores.data();
  }
  template <class Algebra, class Walk>
  Beam pick(Walk& walk, int t, BeamResult& out) const {
    out.end_step(walk.template select<Algebra>(rule_.criterion, rule_.keep ? rule_.keep[begin_ + t] : -1, out.labels));
    return out.last();
  }
  // Rows of the walk: those of a table that all steps share, or room for copies.
  void use_rows_of(const Buffer<T>& table, Beam beam) {
    for (u16 i : beam) ws_.walk.rows.push_back(table.data() + static_cast<i64>(i) * stride_);
  }
  template <class U, int V>
  static void use_copies(BeamWalk<U, V>& walk, std::size_t n) {
    walk.table.reserve(n * walk.stride());
    for (std::size_t k = 0; k < n; ++k) walk.rows.push_back(walk.table.data() + k * walk.stride());
  }
  template <class U, int V>
  void copy_rows(BeamWalk<U, V>& walk, int t, Beam beam) const {
    use_copies(walk, beam.size());
    for (std::size_t k = 0; k < beam.size(); ++k)
      pad_rows(scores_from(t, beam[k]), 1, n_, walk.stride(), walk.table.data() + k * walk.stride());
  }

  // Adds the labels that none dominates; at the last step, the best.
  CRFKIT_KERNEL void leave_out_dominated(const Dominance<T>& dominance, bool last, std::vector<u16>& labels) const {
    constexpr T inf = std::numeric_limits<T>::infinity(), relative = 16 * std::numeric_limits<T>::epsilon();
    const T* v = ws_.walk.belief.data();
    if (last) {
      labels.push_back(static_cast<u16>(std::find(v, v + n_, T(0)) - v));
      return;
    }
    typename S::Vec high = S::splat(-inf);
    for (int k = 0; k < stride_; k += W) high = S::max(high, S::load(v + k) + S::load(dominance.lowest.data() + k));
    const T least = S::highest(high) - dominance.noise;
    for (int k = 0; k < stride_; k += W) {
      const typename S::Vec x = S::load(v + k);
      const typename S::Mask stays = (x > -inf) & (x + S::load(dominance.highest.data() + k) - x * relative >= least);
      if (!S::any(stays)) continue;
      for (int j = 0; j < W; ++j)
        if (stays[j]) labels.push_back(static_cast<u16>(k + j));
    }
  }

  // exp(score - what is added to shift) between the beams of t and t+1; false if some allowed one is lost
  bool load_block(int t, const BeamResult& out, double* m, double& shift) const {
    const std::size_t n = out.size(t), next = out.size(t + 1);
    double high = -kInf;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < next; ++k)
        high =
            std::max(high, m[i * next + k] = static_cast<double>(scores_from(t, out.label(t, i))[out.label(t + 1, k)]));
    if (!(high > -kInf)) return false;
    shift += high;
    bool good = true;
    for (std::size_t k = 0; k < n * next; ++k) {
      good &= !(m[k] > -kInf && m[k] - high < -230);
      m[k] = std::exp(m[k] - high);
    }
    return good;
  }

  // False where single precision loses labels that the criterion may ask for.
  bool forward(BeamResult& out) {
    const bool messages = rule_.form != Form::frozen;
    if (messages) ws_.forward.reserve(static_cast<std::size_t>(length_) * stride_);
    auto& walk = ws_.walk;
    out.start(length_);
    walk.start(n_, stride_, rule_.lenient ? Underflow::loses : Underflow::fails);
    return walk.template run<Sums>(
        length_, [&](int t) { return scores(walk, t); }, [&](int t, Beam beam) { return load_rows(t - 1, beam); },
        [&](int t) { return pick<Sums>(walk, t, out); },
        [&](int t) {
          for (int v = 0; messages && v < stride_; v += W)
            S::store(ws_.forward.data() + static_cast<i64>(t) * stride_ + v,
                     S::load(walk.belief.data() + v) / walk.scale);
          out.log_mass +=
              std::log(static_cast<double>(walk.scale)) + static_cast<double>(walk.top) + (t > 0 ? shift_ : 0.0);
        });
  }

  // The rows exp(score - shift) out of the beam's labels; false if some allowed one is lost.
  bool load_rows(int t, Beam beam) {
    if (job_.shared) {
      use_rows_of(job_.shared->m, beam);
      shift_ = job_.shared->shift;
      return !job_.shared->lossy;
    }
    constexpr T inf = std::numeric_limits<T>::infinity();
    copy_rows(ws_.walk, t, beam);
    T high = -inf;
    for (const T* row : ws_.walk.rows) high = std::max(high, *std::max_element(row, row + n_));
    shift_ = high > -inf ? static_cast<double>(high) : 0.0;
    typename S::Mask lost = {};
    T* m = ws_.walk.table.data();
    for (std::size_t q = 0; q < beam.size() * stride_; q += W) {
      const typename S::Vec x = S::load(m + q), y = S::exp(x - static_cast<T>(shift_));
      lost |= (x > -inf) & (y == T(0));
      S::store(m + q, y);
    }
    return !S::any(lost);
  }

  // The backward walk picks beams afresh.
  void revise(BeamResult& out) {
    auto& walk = ws_.walk;
    BeamResult& back = ws_.back;
    back.start(length_);
    walk.start(n_, stride_, Underflow::restarts, ws_.forward.data());
    walk.template run<Sums>(
        length_, [&](int t) { return scores(walk, t); }, [&](int t, Beam beam) { return load_columns(t, beam); },
        [&](int t) {
          const Beam beam = pick<Sums>(walk, t, back);
          if (rule_.form == Form::paper)
            add_paper_marginals(
                walk, beam, t + 1 < length_ ? back.beam(length_ - 2 - t) : Beam(), alpha(t),
                [&](int i, int j) { return static_cast<double>(scores_from(t, i)[j]); }, back);
          return beam;
        },
        [](int) {});
    out.take_reversed(back);
  }
  const T* alpha(int t) const { return ws_.forward.data() + static_cast<i64>(t) * stride_; }

  // The rows exp(score), up to a factor, into the labels of the beam of t+1, from those that the forward walk reached.
  bool load_columns(int t, Beam beam) {
    if (job_.shared) {
      use_rows_of(job_.shared->m_t, beam);
      return true;
    }
    use_copies(ws_.walk, beam.size());
    std::fill_n(ws_.walk.table.data(), beam.size() * stride_, T(0));
    T high = -std::numeric_limits<T>::infinity();
    for (int i = 0; i < n_; ++i)
      for (u16 j : beam)
        if (alpha(t)[i] > 0) high = std::max(high, scores_from(t, i)[j]);
    for (int i = 0; i < n_; ++i)
      for (std::size_t k = 0; k < beam.size(); ++k)
        if (alpha(t)[i] > 0) ws_.walk.table[k * stride_ + i] = std::exp(scores_from(t, i)[beam[k]] - high);
    return true;
  }

  // In log space, where labels too small for a number of their own still count as possible.
  template <class Algebra, class Walk>
  void choose_in_logs(Walk& walk, int stride, BeamResult& out) {
    walk_in_logs<Algebra>(walk, stride, out, [&](int t) { return pick<Algebra>(walk, t, out); });
  }
  template <class Algebra, class Walk, class Pick>
  void walk_in_logs(Walk& walk, int stride, BeamResult& out, Pick pick) {
    out.start(length_);
    walk.start(n_, stride, Underflow::fails);
    const auto load = [&](int t, Beam beam) {
      if constexpr (std::is_same_v<Algebra, Maxima>)
        if (job_.shared) {
          use_rows_of(job_.shared->score, beam);
          return true;
        }
      copy_rows(walk, t - 1, beam);
      return true;
    };
    const bool done = walk.template run<Algebra>(
        length_, [&](int t) { return scores(walk, t); }, load, pick,
        [&](int) { out.nodes.insert(out.nodes.end(), walk.kept.begin(), walk.kept.end()); });
    if (!done) out.log_mass = -kInf;
  }

  const ChainJob<T>& job_;
  const BeamRule& rule_;
  const i64 seq_;
  BeamWorkspace<T>& ws_;
  const int n_, stride_;
  const i64 begin_;
  const int length_;
  double shift_ = 0;  // of the transition rows at hand
};

}  // namespace crfkit::CRFKIT_ISA
