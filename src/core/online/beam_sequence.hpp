// beam_sequence.hpp: the loss of one sequence within beams that are chosen on the way.
//
// Labels are scored in full. A walk picks the beams (walk.hpp), and the gold label is always in them. Then the lattice
// that has only the beams' labels is solved exactly (frozen_lattice.hpp; or ordered.hpp, where transitions look at the
// input, and for a higher order, whose beams the first-order weights choose). Of the transitions only the rows of the
// beams' labels are looked at.
#pragma once
#include <span>

#include "beam/frozen_lattice.hpp"
#include "beam/walk.hpp"
#include "online/ordered.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
class OnlineBeam {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  static constexpr T kInf = std::numeric_limits<T>::infinity();

 public:
  explicit OnlineBeam(const OnlineData<T>& data)
      : d_(data),
        n_(data.n_labels),
        stride_(data.stride),
        rows_(n_ * stride_),
        top_(n_, T(0)),
        when_(n_, 0),
        ordered_(data) {
    forbidden_.reserve(n_ * stride_);
    for (int i = 0; i < n_; ++i)
      for (i64 j = 0; j < stride_; ++j) forbidden_[i * stride_ + j] = j < n_ ? T(d_.forbidden[i * i64{n_} + j]) : -kInf;
    if (d_.own_steps) step_.reserve(n_ * stride_);
  }

  Criterion criterion;
  bool all = false;  // beams hold all labels, whatever the criterion

  // The weights are scale * v from here on.
  void prepare(const T* v, double scale) {
    v_ = v + d_.transition_at;
    scale_ = T(scale);
    ++now_;
  }

  // log mass of the beams minus the score of the gold path; u: scores of the labels [steps][stride], padded with minus
  // infinity. x: the derivatives, times `weight`, of the beams' labels and pairs.
  double loss(const T* u, const u16* gold, double weight, Delta<T>& x) {
    if (all) choose_all(x);
    else choose(u, x, gold);
    if (d_.tuples.order > 1 || d_.own_steps) {
      load_ordered(x);
      const double log_mass = ordered_.solve(u);
      ordered_.add(1);
      const double gold_score = ordered_.take(u, gold);
      ordered_.give(T(weight), x);
      return log_mass - gold_score;
    }
    frozen_.start(x.steps, first_.data());
    double shift = 0, gold_score = 0;
    bool lossy = false;
    for (int t = 0; t < x.steps; ++t) {
      const T* row = u + t * stride_;
      for (u32 k = first_[t]; k < first_[t + 1]; ++k) frozen_.u()[k] = row[labels_[k]];
      gold_score += row[gold[t]];
      if (t + 1 == x.steps) break;
      gold_score += score(gold[t], gold[t + 1]);
      const T high = highest(t);
      shift += high;
      double* m = frozen_.m() + frozen_.edge_ptr()[t];
      for (u32 i = first_[t]; i < first_[t + 1]; ++i) {
        const T* from = rows_.data() + labels_[i] * stride_;
        const double factor = factor_of(labels_[i], high);
        for (u32 k = first_[t + 1]; k < first_[t + 2]; ++k) {
          const double y = factor * from[labels_[k]];
          lossy |= y < 1e-30 && score(labels_[i], labels_[k]) > -kInf;
          *m++ = y;
        }
      }
    }
    const double log_mass = frozen_.run(lossy, shift, [&](int t, std::size_t i, std::size_t k) {
      return score(labels_[first_[t] + i], labels_[first_[t + 1] + k]);
    });
    differentiate(gold, T(weight), x);
    return log_mass - gold_score;
  }

  // log mass of all labels minus that of those that fit, whose scores are in `known`; for higher orders
  double loss_of_known(const T* u, const T* known, double weight, Delta<T>& x) {
    choose_all(x);
    load_ordered(x);
    const double inside = ordered_.solve(known);
    if (!(inside > -kInf)) return kInf;
    ordered_.add(-1);
    const double log_mass = ordered_.solve(u);
    ordered_.add(1);
    ordered_.give(T(weight), x);
    return log_mass - inside;
  }

  BeamTally tally;

 private:
  void clear() {
    labels_.clear();
    first_.assign(1, 0);
    pairs_.clear();
    first_pair_.assign(1, 0);
  }
  std::span<const u16> beam(int t) const { return {labels_.data() + first_[t], labels_.data() + first_[t + 1]}; }

  void choose_all(const Delta<T>& x) {
    clear();
    for (int t = 0; t < x.steps; ++t) {
      for (int j = 0; j < n_; ++j) labels_.push_back(static_cast<u16>(j));
      first_.push_back(static_cast<u32>(labels_.size()));
      if (t == 0 || !d_.own_steps) continue;
      look(d_.offsets[x.seq] + t, beam(t - 1));
      keep_pairs(t);
    }
  }
  void load_ordered(const Delta<T>& x) {
    const auto pair = [this](int t, u32 i, u32 k) {
      if (d_.own_steps) return pairs_[first_pair_[t] + i * (first_[t + 2] - first_[t + 1]) + k];
      return score(labels_[first_[t] + i], labels_[first_[t + 1] + k]);
    };
    ordered_.load(x, first_.data(), labels_.data(), pair, v_ - d_.transition_at, scale_);
  }

  // The scores of the transitions into a token, which look at it, out of the labels of a beam.
  CRFKIT_KERNEL void look(i64 token, std::span<const u16> labels) {
    const FlatRows<T>& rows = d_.edge;
    const i64 begin = rows.ptr[token], middle = begin + rows.n_dense[token], end = rows.ptr[token + 1];
    const T* table = v_ - d_.transition_at;
    ++now_;
    for (u16 i : labels) {
      const i64 at = i * stride_;
      when_[i] = now_;
      for (i64 k = at; k < at + stride_; k += W) {
        Vec x = S::load(v_ + k);
        for (i64 e = begin; e < middle; ++e) x += S::load(table + rows.at[e] + k);
        S::store(step_.data() + k, x * scale_ + S::load(forbidden_.data() + k));
      }
    }
    for (i64 e = middle; e < end; ++e)
      if (when_[rows.column[e] / stride_] == now_) step_[rows.column[e]] += scale_ * table[rows.at[e]];
  }
  // Of these, those into the labels of the beam of step t, the last chosen.
  void keep_pairs(int t) {
    for (u16 i : beam(t - 1))
      for (u16 j : beam(t)) pairs_.push_back(step_[i * stride_ + j]);
    first_pair_.push_back(pairs_.size());
  }

  T score(int i, int j) const {
    const i64 at = i * stride_ + j;
    return v_[at] * scale_ + forbidden_[at];
  }

  // exp(transition scores out of label i - the highest of them); kept until the weights change, unless the transitions
  // look at the input: then of those that look() left
  CRFKIT_KERNEL const T* row(int i) {
    T* out = rows_.data() + i * stride_;
    if (when_[i] == now_ && !d_.own_steps) return out;
    when_[i] = now_;
    const i64 at = i * stride_;
    Vec high = S::splat(-kInf);
    for (i64 k = 0; k < stride_; k += W) {
      const Vec x = d_.own_steps ? S::load(step_.data() + at + k)
                                 : S::load(v_ + at + k) * scale_ + S::load(forbidden_.data() + at + k);
      S::store(out + k, x);
      high = S::max(high, x);
    }
    top_[i] = std::max(S::highest(high), std::numeric_limits<T>::lowest());  // finite where all is forbidden
    for (i64 k = 0; k < stride_; k += W) S::store(out + k, S::exp(S::load(out + k) - top_[i]));
    return out;
  }

  T highest(int t) const {
    T high = -kInf;
    for (u32 k = first_[t]; k < first_[t + 1]; ++k) high = std::max(high, top_[labels_[k]]);
    return high;
  }
  double factor_of(int i, T high) const { return top_[i] == high ? 1.0 : std::exp(double(top_[i] - high)); }

  // The beams of all steps.
  CRFKIT_KERNEL void choose(const T* u, const Delta<T>& x, const u16* gold) {
    using Sums = SumTimes<T, W>;
    clear();
    walk_.start(n_, stride_, Underflow::restarts);
    walk_.template run<Sums>(
        x.steps, [&](int t) { return u + t * stride_; },
        [&](int t, std::span<const u16> last) {
          if (d_.own_steps) look(d_.offsets[x.seq] + t, last);
          for (u16 i : last) walk_.rows.push_back(row(i));
          const T high = highest(t - 1);
          for (std::size_t k = 0; k < last.size(); ++k) walk_.kept[k] *= T(factor_of(last[k], high));
          return true;
        },
        [&](int t) {
          walk_.template select<Sums>(criterion, gold[t], labels_);
          first_.push_back(static_cast<u32>(labels_.size()));
          tally.largest = std::max<i64>(tally.largest, std::ssize(beam(t)));
          if (t > 0 && d_.own_steps) keep_pairs(t);
          return beam(t);
        },
        [](int) {});
    tally.tokens += x.steps;
    tally.labels += static_cast<i64>(labels_.size());
  }

  void differentiate(const u16* gold, T weight, Delta<T>& x) const {
    x.sparse = true;
    x.first.assign(first_.begin(), first_.end());
    x.slots.clear();
    x.links.clear();
    x.active.assign(x.steps, 0);
    const double *p = frozen_.nodes(), *xi = frozen_.edges();
    for (int t = 0; t < x.steps; ++t) {
      for (u32 k = first_[t]; k < first_[t + 1]; ++k) {
        const T slope = T(p[k] - (labels_[k] == gold[t] ? 1.0 : 0.0));
        x.active[t] |= std::abs(slope) > kLeastSlope<T>;
        x.slots.push_back({labels_[k], weight * slope});
      }
      if (t + 1 == x.steps) break;
      for (u32 i = first_[t]; i < first_[t + 1]; ++i)
        for (u32 k = first_[t + 1]; k < first_[t + 2]; ++k) {
          const bool right = labels_[i] == gold[t] && labels_[k] == gold[t + 1];
          const T slope = T(*xi++ - (right ? 1.0 : 0.0));
          const u32 at = static_cast<u32>(labels_[i] * stride_) + labels_[k];
          if (std::abs(slope) > kLeastSlope<T> && d_.pair_mask[at] != T(0)) x.links.push_back({at, weight * slope});
        }
    }
  }

  const OnlineData<T>& d_;
  const int n_;
  const i64 stride_;
  const T* v_ = nullptr;  // transitions
  T scale_ = 1;
  u64 now_ = 1;
  Buffer<T> forbidden_;  // 0 or minus infinity, as in the padding  [labels][stride]
  Buffer<T> rows_;
  std::vector<T> top_;
  std::vector<u64> when_;
  std::vector<u32> first_;
  std::vector<u16> labels_;
  // where transitions look at the input
  Buffer<T> step_;                       // scores of those into the token at hand, out of a beam  [labels][stride]
  std::vector<T> pairs_;                 // scores of those between neighbouring beams
  std::vector<std::size_t> first_pair_;  // of each step
  BeamWalk<T, W> walk_;
  FrozenLattice frozen_;
  OrderedLattice<T> ordered_;
};

}  // namespace crfkit::CRFKIT_ISA
