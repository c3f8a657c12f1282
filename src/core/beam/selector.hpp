// selector.hpp: picks the labels of a beam.
#pragma once
#include <algorithm>

#include "base/simd.hpp"
#include "beam/criteria.hpp"

namespace crfkit::CRFKIT_ISA {

// Picks labels by a criterion; `keep` (a label, or -1) is always among them. Labels of belief zero are never picked
// otherwise. Sorts no more than it keeps: the largest are split off in growing portions until they suffice.
template <class T, int W>
class Selector {
  using S = Simd<T, W>;

 public:
  // belief: [n], zero in the padding up to `stride`. Adds the chosen labels, ascending, to `out`; gives the share of
  // the belief that they hold.
  template <class Label>
  double select(const T* belief, i64 n, i64 stride, const Criterion& rule, int keep, std::vector<Label>& out) {
    typename S::Vec sum = {}, high = {};
    for (i64 v = 0; v < stride; v += W) {
      const typename S::Vec x = S::load(belief + v);
      sum += x;
      high = S::max(high, x);
    }
    const double total = S::sum(sum);
    T floor = floor_of(rule, total, S::highest(high), n);
    collect(belief, stride, floor);
    // where the floor cut away what the size asks for it is lowered little by little: few labels are to be sorted
    while (rule.kind == Criterion::Kind::min_divergence && static_cast<int>(entries_.size()) < rule.size &&
           floor > T(0)) {
      floor *= T(1e-4);
      collect(belief, stride, floor);
    }
    const std::size_t count = largest(rule, total);
    const std::size_t begin = out.size();
    double mass = 0;
    bool kept = keep < 0;
    for (std::size_t k = 0; k < count; ++k) {
      out.push_back(static_cast<Label>(entries_[k].label));
      mass += entries_[k].belief;
      kept |= entries_[k].label == keep;
    }
    if (!kept) {
      out.push_back(static_cast<Label>(keep));
      mass += belief[keep];
    }
    std::sort(out.begin() + begin, out.end());
    return total > 0 ? std::min(1.0, mass / total) : 0.0;
  }

 private:
  struct Entry {
    T belief;
    i32 label;
    bool operator<(const Entry& other) const {
      return belief > other.belief || (belief == other.belief && label < other.label);
    }
  };

  void collect(const T* belief, i64 stride, T least) {
    entries_.clear();
    least = std::max(least, std::numeric_limits<T>::min());
    for (i64 v = 0; v < stride; v += W) {
      if (!S::any(S::load(belief + v) >= least)) continue;
      for (i64 j = v; j < v + W; ++j)
        if (belief[j] >= least) entries_.push_back({belief[j], static_cast<i32>(j)});
    }
  }

  // Labels below this cannot be chosen. For the divergence: n labels below (1 - exp(-amount)) total / n hold less than
  // what may be lost.
  static T floor_of(const Criterion& rule, double total, T top, i64 n) {
    if (rule.kind == Criterion::Kind::threshold) return T(double{top} * std::exp(-rule.amount));
    if (rule.kind == Criterion::Kind::min_divergence) return T(-std::expm1(-rule.amount) * total / double(n) * 0.999);
    return 0;
  }

  // Moves the chosen entries to the front, and counts them.
  std::size_t largest(const Criterion& rule, double total) {
    const std::size_t most = std::min<std::size_t>(rule.most, entries_.size());
    const std::size_t size = std::min<std::size_t>(std::max(rule.size, 1), most);
    const bool by_size = rule.kind == Criterion::Kind::fixed_size;
    if (by_size || rule.kind == Criterion::Kind::threshold ||
        rule.amount == 0) {  // no divergence: whatever is possible, however little
      const std::size_t count = by_size ? size : most;
      if (count < entries_.size()) std::nth_element(entries_.begin(), entries_.begin() + count, entries_.end());
      return count;
    }
    const double enough = std::exp(-rule.amount) * total;
    double mass = 0;
    std::size_t done = 0, portion = std::max<std::size_t>(size, 8);
    while (done < most) {
      const std::size_t end = std::min(most, done + portion);
      if (end < entries_.size()) std::nth_element(entries_.begin() + done, entries_.begin() + end, entries_.end());
      std::sort(entries_.begin() + done, entries_.begin() + end);
      for (; done < end; ++done) {
        if (mass >= enough && done >= size) return done;
        mass += entries_[done].belief;
      }
      portion = done;
    }
    return done;
  }

  std::vector<Entry> entries_;
};

}  // namespace crfkit::CRFKIT_ISA
