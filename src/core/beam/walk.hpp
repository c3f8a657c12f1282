// walk.hpp: a walk along a sequence that picks a beam of labels at each step.
//
// The labels kept at the step before send a message to all labels. With the step's own scores it gives their belief, by
// which a beam is picked; what the picked labels hold, normalised, is sent on:
//
//   message[j] = sum_k kept[k] row[k][j]       row[k]: exp(transition scores) out of the k-th label kept
//   belief[j]  = e[t][j] message[j]            e[t][j] = exp(u[t][j] - max_j u[t][j])
//   kept[k]    = belief[label k] / their sum
//
// Backward, belief[j] = forward[t][j] message[j], and kept is e[t] message, divided by the largest of the beam; rows
// lead into a label. In log space times is plus, and a sum is the logarithm of a sum or, for best paths, a maximum; the
// belief is shifted so that its largest is zero.
#pragma once
#include <span>
#include <type_traits>
#include <vector>

#include "base/rows.hpp"
#include "beam/dominance.hpp"
#include "beam/selector.hpp"
#include "chain/log_lattice.hpp"

namespace crfkit::CRFKIT_ISA {

struct LogSumPlus {};  // the algebra of sums in log space, beside SumTimes and MaxPlus; in double precision

// What becomes of a walk in which numbers underflow.
enum class Underflow : u8 {
  fails,     // it ends where a possible label is lost
  loses,     // it ends where a whole beam is lost
  restarts,  // it never ends: where a whole beam is lost, all labels of it count alike
};

template <class T, int W>
class BeamWalk {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  static constexpr T kInf = std::numeric_limits<T>::infinity();
  static constexpr T kTiny = std::numeric_limits<T>::min();
  template <class Algebra>
  static constexpr bool kLogs = !std::is_same_v<Algebra, SumTimes<T, W>>;

 public:
  Buffer<T> weights, message, belief;  // e, message and belief of all labels at the step at hand   [stride]
  std::vector<T> kept;                 // what the beam sends on
  std::vector<const T*> rows;          // and along which rows; for LogSumPlus, one after another in memory
  T top = 0, scale = 0;                // taken out of the step's scores, and of the beam
  Buffer<T> scores;                    // room for a step's scores, where they must be copied
  Selector<T, W> selector;

  // forward: messages of a forward walk to all labels  [steps][stride]; then the walk goes backward
  void start(i64 n_labels, i64 stride, Underflow underflow, const T* forward = nullptr) {
    n_ = n_labels;
    stride_ = stride;
    underflow_ = underflow;
    forward_ = forward;
    for (Buffer<T>* b : {&weights, &message, &belief, &scores}) b->reserve(stride);
    rows.clear();
  }
  i64 stride() const { return stride_; }
  // Room for n rows, which become the walk's.
  T* own_rows(std::size_t n) {
    table_.reserve(n * stride_);
    for (std::size_t k = 0; k < n; ++k) rows.push_back(table_.data() + k * stride_);
    return table_.data();
  }

  // scores(t): the scores of step t, padded with minus infinity. load(t, beam) sets the rows between the labels of the
  // last beam and those of step t; false if some of it was lost. pick(t) gives the beam, none to end the walk. keep(t)
  // may look at what is kept. False if the walk ended early.
  template <class Algebra, class Scores, class Load, class Pick, class Keep>
  bool run(int steps, Scores scores_of, Load load, Pick pick, Keep keep) {
    std::span<const u16> beam;
    for (int k = 0; k < steps; ++k) {  // recursion: forward, backward, viterbi
      const int t = forward_ ? steps - 1 - k : k;
      bool whole = true;
      if (k == 0) {
        std::fill_n(message.data(), stride_, kLogs<Algebra> ? T(0) : T(1));
      } else {
        rows.clear();
        whole = load(t, beam);
        send<Algebra>();
      }
      const T* u = scores_of(t);
      if constexpr (kLogs<Algebra>) add(u);
      else multiply(u, forward_ ? forward_ + t * stride_ : nullptr);
      if (!(top > -kInf) && underflow_ != Underflow::restarts) return false;
      if (underflow_ == Underflow::fails && !kLogs<Algebra> && (!whole || lost(u))) return false;
      beam = pick(t);
      if (beam.empty() && !forward_) return false;
      kept.clear();
      for (u16 j : beam) kept.push_back(forward_ ? weights[j] * message[j] : belief[j]);
      if constexpr (!kLogs<Algebra>)
        if (!normalise()) return false;
      keep(t);
    }
    return true;
  }

  // Adds the labels that the rule picks to `out`; gives the share of the belief that they hold.
  template <class Algebra>
  double select(const Criterion& rule, int keep, std::vector<u16>& out) {
    const T* p = belief.data();
    if constexpr (kLogs<Algebra>) {
      for (i64 k = 0; k < stride_; k += W) {  // what is possible keeps some belief
        const Vec x = S::load(belief.data() + k), y = S::exp(x);
        S::store(message.data() + k, x > -kInf ? S::max(y, S::splat(kTiny)) : y);
      }
      p = message.data();
    }
    return selector.select(p, n_, stride_, rule, keep, out);
  }

  // Adds the labels that none dominates; at the last step, the best. False if there have been too many, with those of
  // the steps before, to gain anything by it.
  CRFKIT_KERNEL bool select_undominated(const Dominance<T>& dominance, int t, int steps, std::vector<u16>& out) {
    constexpr int kTrial = 8, kWorthwhile = 6;  // steps after which, and fraction of the labels up to which, it goes on
    constexpr T relative = 16 * std::numeric_limits<T>::epsilon();
    const T* v = belief.data();
    if (t + 1 == steps) {
      out.push_back(static_cast<u16>(std::find(v, v + n_, T(0)) - v));
      return true;
    }
    Vec high = S::splat(-kInf);
    for (i64 k = 0; k < stride_; k += W) high = S::max(high, S::load(v + k) + S::load(dominance.lowest.data() + k));
    const T least = S::highest(high) - dominance.noise;
    for (i64 k = 0; k < stride_; k += W) {
      const Vec x = S::load(v + k);
      const typename S::Mask stays = (x > -kInf) & (x + S::load(dominance.highest.data() + k) - x * relative >= least);
      if (!S::any(stays)) continue;
      for (int j = 0; j < W; ++j)
        if (stays[j]) out.push_back(static_cast<u16>(k + j));
    }
    return t < kTrial || out.size() * kWorthwhile <= (t + std::size_t{1}) * n_;
  }

 private:
  // Rows are read from end to end, four at a time, since with many labels they come from memory.
  template <class Algebra>
  CRFKIT_KERNEL void send() {
    if constexpr (std::is_same_v<Algebra, LogSumPlus>) {
      log_rows_times(kept.data(), rows[0], kept.size(), stride_, message.data());
    } else {
      if (kept.empty()) std::fill_n(message.data(), stride_, T(0));
      for_tiles<4>(static_cast<int>(kept.size()), [&](auto R, int i) {
        for (i64 k = 0; k < stride_; k += W) {
          Vec total = i > 0 ? S::load(message.data() + k) : Algebra::zero();
          for (int r = 0; r < R; ++r) total = Algebra::add(total, kept[i + r], S::load(rows[i + r] + k));
          S::store(message.data() + k, total);
        }
      });
    }
  }

  CRFKIT_KERNEL void multiply(const T* u, const T* forward) {
    Vec high = S::splat(-kInf);
    for (i64 k = 0; k < stride_; k += W) high = S::max(high, S::load(u + k));
    top = S::highest(high);
    for (i64 k = 0; k < stride_; k += W) {
      const Vec e = S::exp(S::load(u + k) - top);
      S::store(weights.data() + k, e);
      S::store(belief.data() + k, (forward ? S::load(forward + k) : e) * S::load(message.data() + k));
    }
  }

  void add(const T* u) {
    Vec high = S::splat(-kInf);
    for (i64 k = 0; k < stride_; k += W) {
      const Vec x = S::load(u + k) + S::load(message.data() + k);
      S::store(belief.data() + k, x);
      high = S::max(high, x);
    }
    top = S::highest(high);
    for (i64 k = 0; k < stride_ && top > -kInf; k += W) S::store(belief.data() + k, S::load(belief.data() + k) - top);
  }

  // Whether a label got zero, or next to it, although it is possible.
  bool lost(const T* u) const {
    typename S::Mask gone = {};
    for (i64 k = 0; k < stride_; k += W) {
      const Vec e = S::load(weights.data() + k), m = S::load(message.data() + k);
      gone |= (S::load(u + k) > -kInf) & (e == T(0));
      gone |= (m > T(0)) & (e > T(0)) & (S::load(belief.data() + k) < kTiny);
    }
    if (S::any(gone)) return true;
    for (i64 j = 0; j < n_; ++j)
      if (message[j] < kTiny)
        for (const T* row : rows)
          if (row[j] > 0) return true;
    return false;
  }

  // False if there is nothing to send on.
  bool normalise() {
    scale = 0;
    for (T x : kept) scale = forward_ ? std::max(scale, x) : scale + x;
    const bool enough = scale >= kTiny;
    for (T& x : kept) x = enough ? x / scale : T(1);
    return enough || underflow_ == Underflow::restarts;
  }

  i64 n_ = 0, stride_ = 0;
  Buffer<T> table_;
  Underflow underflow_ = Underflow::fails;
  const T* forward_ = nullptr;
};

}  // namespace crfkit::CRFKIT_ISA
