// ordered.hpp: the lattice of a higher order over given beams of labels: its mass, and the derivatives of that.
//
// A slot of step t is a label of its beam and those of up to order - 1 beams before, the latest first:
//
//   slot = (k[t] B[t-1] + k[t-1]) B[t-2] + k[t-2]
//
// Level n of step t holds the weights of n labels in a row and the one that follows. Its contexts are the slots without
// their oldest labels, slot / (slots / contexts); a score is the sum of the weights of all levels. Where whole beams
// follow each other that hold the same labels, steps share their tables, unless transitions look at the input.
#pragma once
#include <algorithm>

#include "beam/frozen_lattice.hpp"
#include "online/delta.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
class OrderedLattice {
  static constexpr int kWidth = kLogWidth, kLevels = 3;
  using S = Simd<double, kWidth>;
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  static constexpr double kFar = -69;  // below it, exponentials are lost beside those of the best

 public:
  explicit OrderedLattice(const OnlineData<T>& data)
      : d_(data), order_(data.tuples.order), attributed_(data.tuples.with_attributes()) {}

  // The labels of all steps, those of step t at first[t]; pair(t, i, k): score of the transition from the i-th label of
  // step t to the k-th of the next; v: the weights over scale.
  void load(const Delta<T>& x, const u32* first, const u16* labels, FunctionRef<T(int, u32, u32)> pair, const T* v,
            T scale) {
    steps_ = x.steps;
    token_ = d_.offsets[x.seq];
    first_ = first;
    labels_ = labels;
    arrange();
    for (int t = 0; t + 1 < steps_; ++t)
      if (!shared(t)) fill(t, pair, v, scale);
    const std::size_t end = (n_scores_ + kWidth - 1) / kWidth * kWidth;
    for (std::size_t k = n_scores_; k < end; ++k) factor_[k] = 0;
    for (std::size_t k = 0; k < end; k += kWidth) S::store(factor_.data() + k, S::exp(S::load(factor_.data() + k)));
    nodes_.assign(first_[steps_], 0.0);
    slope_.assign(place_.size(), 0.0);
  }

  // The logarithm of the mass of all paths, for scores u [steps][stride].
  double solve(const T* u) {
    frozen_.start(steps_, slot_.data(), groups_.data());
    double shift = 0;
    bool lossy = false;
    for (int t = 0; t < steps_; ++t) {
      const u32 each = slots(t) / size(t);
      double* out = frozen_.u() + slot_[t];
      for (u32 k = 0; k < size(t); ++k, out += each) std::fill_n(out, each, double(u[t * d_.stride + label(t, k)]));
      if (t + 1 == steps_) break;
      std::copy_n(factor_.data() + steps_of_[t].score_at, slots(t) * size(t + 1), frozen_.m() + frozen_.edge_ptr()[t]);
      shift += steps_of_[t].high;
      lossy |= steps_of_[t].lossy;
    }
    return frozen_.run(lossy, shift, [&](int t, std::size_t i, std::size_t k) {
      return score_[steps_of_[t].score_at + i * size(t + 1) + k];
    });
  }

  // Adds the derivatives of the mass last solved, times a sign.
  void add(double sign) {
    const double *p = frozen_.nodes(), *xi = frozen_.edges();
    for (int t = 0; t < steps_; ++t) {
      const u32 each = slots(t) / size(t);
      for (u32 k = 0; k < size(t); ++k)
        for (u32 r = 0; r < each; ++r) nodes_[first_[t] + k] += sign * *p++;
      if (t + 1 == steps_) break;
      const u32 next = size(t + 1);
      for (int n = 1; n <= levels(t); ++n) {
        const u32 many = contexts(t, n), per = slots(t) / many;
        const double* from = xi + frozen_.edge_ptr()[t];
        double* out = slope_.data() + steps_of_[t].level_at[n - 1];
        for (u32 c = 0; c < many; ++c, out += next)
          for (u32 r = 0; r < per; ++r, from += next)
            for (u32 k = 0; k < next; ++k) out[k] += sign * from[k];
      }
    }
  }

  // Takes the derivatives of the score of a path of labels, and gives it.
  double take(const T* u, const u16* path) {
    double total = 0;
    u32 slot = 0;
    for (int t = 0; t < steps_; ++t) {
      const u16 *begin = labels_ + first_[t], *end = labels_ + first_[t + 1];
      const u32 k = static_cast<u32>(std::find(begin, end, path[t]) - begin);
      if (t > 0) {
        const Step& s = steps_of_[t - 1];
        total += score_[s.score_at + slot * size(t) + k];
        for (int n = 1; n <= levels(t - 1); ++n)
          slope_[s.level_at[n - 1] + slot / (slots(t - 1) / contexts(t - 1, n)) * size(t) + k] -= 1;
        slot = k * groups_[t - 1] + slot / (slots(t - 1) / groups_[t - 1]);
      } else {
        slot = k;
      }
      nodes_[first_[t] + k] -= 1;
      total += u[t * d_.stride + path[t]];
    }
    return total;
  }

  // What was added and taken, times `weight`.
  void give(T weight, Delta<T>& x) const {
    x.sparse = true;
    x.first.assign(first_, first_ + steps_ + 1);
    x.slots.clear();
    x.links.clear();
    x.active.assign(x.steps, 0);
    for (int t = 0; t < steps_; ++t)
      for (u32 k = first_[t]; k < first_[t + 1]; ++k) {
        x.active[t] |= std::abs(nodes_[k]) > double{kLeastSlope<T>};
        x.slots.push_back({labels_[k], weight * T(nodes_[k])});
      }
    for (std::size_t k = 0; k < place_.size(); ++k)
      if (place_[k] != kNone && std::abs(slope_[k]) > double{kLeastSlope<T>}) {
        const bool tuple = place_[k] >= d_.tuples_at - d_.transition_at;
        x.links.push_back({place_[k], weight * T(tuple ? slope_[k] * d_.tuples.value : slope_[k])});
      }
    if (d_.own_steps) give_edges(weight, x);
    if (attributed_) give_tuples(weight, x);
  }

 private:
  struct Step {
    std::size_t score_at, level_at[kLevels];
    double high;
    bool lossy;
  };

  u32 size(int t) const { return first_[t + 1] - first_[t]; }
  u32 slots(int t) const { return slot_[t + 1] - slot_[t]; }
  u16 label(int t, u32 k) const { return labels_[first_[t] + k]; }
  int levels(int t) const { return std::min(order_, t + 1); }
  u32 contexts(int t, int n) const {
    u64 many = 1;
    for (int k = 0; k < n; ++k) many *= size(t - k);
    if (many > (u64{1} << 30)) throw Error("the beams are too large for a model of this order");
    return static_cast<u32>(many);
  }
  // Whether step t has the labels of the step before, which has as long a past, and the same weights.
  bool shared(int t) const {
    if (t < order_ || d_.own_steps) return false;
    for (int k = 0; k <= order_; ++k) {
      if (size(t + 1 - k) != size(t - k)) return false;
      if (!std::equal(labels_ + first_[t - k], labels_ + first_[t - k + 1], labels_ + first_[t - k + 1])) return false;
    }
    return true;
  }

  // Finds room for the tables of all steps.
  void arrange() {
    slot_.assign(1, 0);
    groups_.clear();
    steps_of_.clear();
    std::size_t places = 0;
    n_scores_ = 0;
    for (int t = 0; t < steps_; ++t) {
      slot_.push_back(slot_.back() + contexts(t, levels(t)));
      groups_.push_back(contexts(t, std::min(order_ - 1, t + 1)));
      if (t + 1 == steps_) break;
      if (shared(t)) {
        steps_of_.push_back(steps_of_.back());
        continue;
      }
      Step s{n_scores_, {}, 0, false};
      for (int n = 1; n <= levels(t); ++n) {
        s.level_at[n - 1] = places;
        places += std::size_t{contexts(t, n)} * size(t + 1);
      }
      n_scores_ += std::size_t{slots(t)} * size(t + 1);
      steps_of_.push_back(s);
    }
    place_.resize(places);
    if (attributed_) tuple_.resize(places);
    score_.resize(n_scores_);
    factor_.reserve(n_scores_ + kWidth);
  }

  // The derivatives by the scores of label pairs, step after step.
  void give_edges(T weight, Delta<T>& x) const {
    x.edge_slopes.clear();
    x.first_edge.assign(1, 0);
    for (int t = 0; t + 1 < steps_; ++t) {
      const double* slope = slope_.data() + steps_of_[t].level_at[0];
      for (u32 i = 0; i < size(t); ++i)
        for (u32 k = 0; k < size(t + 1); ++k, ++slope)
          if (std::abs(*slope) > double{kLeastSlope<T>})
            x.edge_slopes.push_back({static_cast<u32>(label(t, i) * d_.stride) + label(t + 1, k), weight * T(*slope)});
      x.first_edge.push_back(static_cast<u32>(x.edge_slopes.size()));
    }
  }

  // The derivatives by the weights of tuples with attributes.
  void give_tuples(T weight, Delta<T>& x) const {
    for (int t = 1; t + 1 < steps_; ++t) {
      const std::size_t begin = steps_of_[t].level_at[1];
      const std::size_t end = steps_of_[t].level_at[levels(t) - 1] + contexts(t, levels(t)) * size(t + 1);
      for (std::size_t k = begin; k < end; ++k)
        if (std::abs(slope_[k]) > double{kLeastSlope<T>})
          each_attributed(t, tuple_[k], [&](u32 found) {
            const u32 at = static_cast<u32>(d_.tuples_at - d_.transition_at) + found;
            x.links.push_back({at, weight * T(slope_[k] * d_.tuples.value)});
          });
    }
  }
  // f(number) of a tuple with each attribute of the transition out of step t, if there is a weight
  template <class F>
  void each_attributed(int t, u64 tuple, F f) const {
    const i64 token = token_ + t + 1;
    for (i64 k = d_.edge_ptr[token]; k < d_.edge_ptr[token + 1]; ++k) {
      const u32 found = d_.tuples.find(d_.tuples.with_attribute(tuple, d_.edge_attr[k]));
      if (found != kNone) f(found);
    }
  }

  void fill(int t, FunctionRef<T(int, u32, u32)> pair, const T* v, T scale) {
    Step& s = steps_of_[t];
    const u32 next = size(t + 1);
    const std::vector<u16>& classes = d_.tuples.classes;
    const u64 many_classes = d_.tuples.n_classes, longest = many_classes * many_classes * many_classes;
    digits_.clear();
    for (u32 k = 0; order_ > 1 && k < size(t); ++k) digits_.push_back(classes[label(t, k)]);
    below_.resize(std::size_t{size(t)} * next);
    u32* place = place_.data() + s.level_at[0];
    for (u32 i = 0; i < size(t); ++i)
      for (u32 k = 0; k < next; ++k) {
        const u32 at = static_cast<u32>(label(t, i) * d_.stride) + label(t + 1, k);
        *place++ = d_.pair_mask[at] != T(0) ? at : kNone;
        below_[i * next + k] = pair(t, i, k);
      }
    const double value = d_.tuples.value * scale;
    u64 top = many_classes;
    for (int n = 2; n <= levels(t); ++n, top *= many_classes) {
      const u32 before = size(t - n + 1), many = contexts(t, n);
      above_.resize(std::size_t{many} * next);
      longer_.resize(many);
      place = place_.data() + s.level_at[n - 1];
      for (u32 c = 0; c < many; ++c) {
        longer_[c] = classes[label(t - n + 1, c % before)] * top + digits_[c / before];
        const double* lower = below_.data() + std::size_t{c / before} * next;
        for (u32 k = 0; k < next; ++k) {
          const u64 tuple = longer_[c] * many_classes + classes[label(t + 1, k)] + (n > 2 ? longest : 0);
          const u32 found = d_.tuples.find(tuple);
          const bool known = found != kNone;
          *place++ = known ? static_cast<u32>(d_.tuples_at - d_.transition_at) + found : kNone;
          double& score = above_[std::size_t{c} * next + k];
          score = lower[k] + (known ? value * v[d_.tuples_at + found] : 0.0);
          if (!attributed_) continue;
          tuple_[place - place_.data() - 1] = tuple;
          each_attributed(t, tuple, [&](u32 x) { score += value * v[d_.tuples_at + x]; });
        }
      }
      below_.swap(above_);
      digits_.swap(longer_);
    }
    s.high = std::max(*std::max_element(below_.begin(), below_.end()), -1e300);
    std::copy(below_.begin(), below_.end(), score_.begin() + s.score_at);
    for (std::size_t k = 0; k < below_.size(); ++k) {
      const double x = below_[k] - s.high;
      s.lossy |= x < kFar && x > -kInf;
      factor_[s.score_at + k] = x;
    }
    for (int later = t + 1; later + 1 < steps_ && shared(later); ++later) steps_of_[later] = s;
  }

  const OnlineData<T>& d_;
  const int order_;
  const bool attributed_;  // whether attributes have weights with tuples
  int steps_ = 0;
  i64 token_ = 0;  // the first
  const u32* first_ = nullptr;
  const u16* labels_ = nullptr;
  std::vector<u32> slot_, groups_;  // first slot of each step; groups of its slots
  std::vector<Step> steps_of_;
  std::size_t n_scores_ = 0;
  std::vector<u32> place_;     // of each weight, counted from the first transition, or kNone
  std::vector<u64> tuple_;     // that the weight is of, if attributed_
  std::vector<double> score_;  // of the last level, all lower ones in it
  Buffer<double> factor_;      // exp(score - the step's highest)
  std::vector<double> nodes_, slope_;
  std::vector<double> below_, above_;
  std::vector<u64> digits_, longer_;
  FrozenLattice frozen_;
};

}  // namespace crfkit::CRFKIT_ISA
