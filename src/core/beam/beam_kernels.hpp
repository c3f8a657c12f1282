// beam_kernels.hpp: sum-product and max-product within a beam of labels at each step.
//
// A walk along the sequence picks the beams (walk.hpp); a walk back may pick them afresh, from what leads to a label
// and what follows it (smoothed). Then the lattice that has only the beams' labels is solved exactly
// (frozen_lattice.hpp).
#pragma once
#include "beam/frozen_lattice.hpp"
#include "beam/kernels.hpp"
#include "beam/study.hpp"
#include "beam/walk.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
struct BeamWorkspace : Workspace {
  BeamWalk<T, kNarrowest<T>> walk;  // beams gain little by wider vectors
  BeamWalk<double, kLogWidth> log_walk;
  FrozenLattice frozen;
  Buffer<T> forward;  // messages of all steps
};

template <class T>
class BeamKernel {
  static constexpr int W = kNarrowest<T>;
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  using Mask = typename S::Mask;
  using Sums = SumTimes<T, W>;
  using Maxima = MaxPlus<T, W>;
  using Form = BeamRule::Form;
  using Beam = std::span<const u16>;
  static constexpr T kInf = std::numeric_limits<T>::infinity();

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
    frozen.start(length_, out.ptr.data());
    double shift = 0;
    bool lossy = false;
    for (int t = 0; t < length_; ++t) {
      for (std::size_t k = out.ptr[t]; k < out.ptr[t + 1]; ++k) frozen.u()[k] = unary(t)[out.labels[k]];
      if (t + 1 < length_) lossy |= !load_block(t, out, frozen.m() + frozen.edge_ptr()[t], shift);
    }
    out.log_mass = frozen.run(lossy, shift, [&](int t, std::size_t i, std::size_t k) {
      return score(t, out.label(t, i), out.label(t + 1, k));
    });
    if (!(out.log_mass > -kInf)) return;
    out.nodes.assign(frozen.nodes(), frozen.nodes() + out.labels.size());
    out.edge_ptr = frozen.edge_ptr();
    out.edges.assign(frozen.edges(), frozen.edges() + out.edge_ptr.back());
  }

  // Picks the beams. log_mass of the result is minus infinity if no path is allowed. False if this was done in log
  // space, forward only.
  bool choose(BeamResult& out) {
    const FlushDenormals flush;
    if (forward(out)) {
      if (rule_.form != Form::frozen) revise(out);
      return true;
    }
    walk_in_logs<LogSumPlus>(ws_.log_walk, log_stride(n_), out,
                             [&](int t) { return pick<LogSumPlus>(ws_.log_walk, t, out); });
    return false;
  }

  // Beams by max-product: the message is the score of the best path so far, its belief the exponential. Leaves the
  // scores, the best of a step at zero, in `nodes`.
  void choose_for_maximum(BeamResult& out) {
    walk_in_logs<Maxima>(ws_.walk, stride_, out, [&](int t) { return pick<Maxima>(ws_.walk, t, out); });
  }

  // The same with all labels that could be on the best path. False if there are too many to gain anything by it.
  bool undominated(const Dominance<T>& dominance, BeamResult& out) {
    bool worthwhile = true;
    walk_in_logs<Maxima>(ws_.walk, stride_, out, [&](int t) {
      worthwhile = ws_.walk.select_undominated(dominance, t, length_, out.labels);
      out.end_step(1);
      return worthwhile ? out.last() : Beam();
    });
    return worthwhile;
  }

 private:
  const T* unary(int t) const { return job_.unary + (begin_ + t) * n_; }
  // Scores of the transitions t -> t+1 out of label i  [labels]
  const T* scores_from(int t, int i) const {
    if (job_.shared) return job_.shared->score.data() + i * stride_;
    return job_.pairwise + ((job_.edge_first[seq_] + t) * n_ + i) * n_;
  }
  double score(int t, int i, int j) const { return scores_from(t, i)[j]; }

  template <class Algebra, class Walk>
  Beam pick(Walk& walk, int t, BeamResult& out) const {
    out.end_step(walk.template select<Algebra>(rule_.criterion, rule_.keep ? rule_.keep[begin_ + t] : -1, out.labels));
    return out.last();
  }
  // exp(score - what is added to shift) between the beams of t and t+1; false if some allowed one is lost
  bool load_block(int t, const BeamResult& out, double* m, double& shift) const {
    const std::size_t n = out.size(t), next = out.size(t + 1);
    double high = -kInf;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < next; ++k)
        high = std::max(high, m[i * next + k] = score(t, out.label(t, i), out.label(t + 1, k)));
    if (!(high > -kInf)) return false;
    shift += high;
    bool good = true;
    for (std::size_t k = 0; k < n * next; ++k) {
      good &= !(m[k] > -kInf && m[k] - high < -230);
      m[k] = std::exp(m[k] - high);
    }
    return good;
  }

  template <class U, int V>
  auto scores(BeamWalk<U, V>& walk) const {
    return [this, &walk](int t) {
      pad_row(unary(t), n_, walk.stride(), walk.scores.data());
      return walk.scores.data();
    };
  }

  // False where single precision loses labels that the criterion may ask for.
  bool forward(BeamResult& out) {
    const bool messages = rule_.form != Form::frozen;
    if (messages) ws_.forward.reserve(length_ * stride_);
    auto& walk = ws_.walk;
    out.start(length_);
    walk.start(n_, stride_, rule_.lenient ? Underflow::loses : Underflow::fails);
    return walk.template run<Sums>(
        length_, scores(walk), [&](int t, Beam beam) { return load_rows<Sums>(walk, t - 1, beam); },
        [&](int t) { return pick<Sums>(walk, t, out); },
        [&](int t) {
          for (i64 k = 0; messages && k < stride_; k += W)
            S::store(ws_.forward.data() + t * stride_ + k, S::load(walk.belief.data() + k) / walk.scale);
          out.log_mass += std::log(double{walk.scale}) + double{walk.top} + (t > 0 ? shift_ : 0.0);
        });
  }

  // The rows out of the beam's labels: scores or, for sums, exp(score - shift); false if some allowed one is lost.
  template <class Algebra, class U, int V>
  bool load_rows(BeamWalk<U, V>& walk, int t, Beam beam) {
    constexpr bool sums = std::is_same_v<Algebra, Sums>;
    if constexpr (!std::is_same_v<Algebra, LogSumPlus>)
      if (job_.shared) {
        for (u16 i : beam) walk.rows.push_back((sums ? job_.shared->m : job_.shared->score).data() + i * stride_);
        shift_ = job_.shared->shift;
        return !job_.shared->lossy;
      }
    U* m = walk.own_rows(beam.size());
    for (std::size_t k = 0; k < beam.size(); ++k)
      pad_row(scores_from(t, beam[k]), n_, walk.stride(), m + k * walk.stride());
    if constexpr (!sums) {
      return true;
    } else {
      const i64 size = static_cast<i64>(beam.size()) * stride_;
      const T high = *std::max_element(m, m + size);
      shift_ = high > -kInf ? double{high} : 0.0;
      Mask lost = {};
      for (i64 k = 0; k < size; k += W) {
        const Vec x = S::load(m + k), y = S::exp(x - T(shift_));
        lost |= (x > -kInf) & (y == T(0));
        S::store(m + k, y);
      }
      return !S::any(lost);
    }
  }

  // Picks the beams afresh on the way back.
  void revise(BeamResult& out) {
    auto& walk = ws_.walk;
    const double mass = out.log_mass;
    out.start(length_);
    out.log_mass = mass;
    walk.start(n_, stride_, Underflow::restarts, ws_.forward.data());
    walk.template run<Sums>(
        length_, scores(walk), [&](int t, Beam beam) { return load_columns(t, beam); },
        [&](int t) {
          const Beam beam = pick<Sums>(walk, t, out);
          if (rule_.form == Form::paper)
            add_paper_marginals(
                walk, beam, t + 1 < length_ ? out.beam(length_ - 2 - t) : Beam(), ws_.forward.data() + t * stride_,
                [&](int i, int j) { return score(t, i, j); }, out);
          return beam;
        },
        [](int) {});
    out.reverse();
  }

  // The rows exp(score), up to a factor, into the labels of the beam of t+1, from those that the forward walk reached.
  bool load_columns(int t, Beam beam) {
    if (job_.shared) {
      for (u16 j : beam) ws_.walk.rows.push_back(job_.shared->m_t.data() + j * stride_);
      return true;
    }
    T* m = ws_.walk.own_rows(beam.size());
    std::fill_n(m, static_cast<i64>(beam.size()) * stride_, T(0));
    const T* reached = ws_.forward.data() + t * stride_;
    T high = -kInf;
    for (int i = 0; i < n_; ++i)
      for (u16 j : beam)
        if (reached[i] > 0) high = std::max(high, scores_from(t, i)[j]);
    for (int i = 0; i < n_; ++i)
      for (std::size_t k = 0; k < beam.size(); ++k)
        if (reached[i] > 0) m[k * stride_ + i] = std::exp(scores_from(t, i)[beam[k]] - high);
    return true;
  }

  // In log space, where labels too small for a number of their own still count as possible.
  template <class Algebra, class Walk, class Pick>
  void walk_in_logs(Walk& walk, i64 stride, BeamResult& out, Pick pick) {
    out.start(length_);
    walk.start(n_, stride, Underflow::fails);
    const auto load = [&](int t, Beam beam) { return load_rows<Algebra>(walk, t - 1, beam); };
    const auto keep = [&](int) { out.nodes.insert(out.nodes.end(), walk.kept.begin(), walk.kept.end()); };
    if (!walk.template run<Algebra>(length_, scores(walk), load, pick, keep)) out.log_mass = -kInf;
  }

  const ChainJob<T>& job_;
  const BeamRule& rule_;
  const i64 seq_;
  BeamWorkspace<T>& ws_;
  const i64 n_, stride_, begin_;
  const int length_;
  double shift_ = 0;  // of the transition rows at hand
};

}  // namespace crfkit::CRFKIT_ISA
