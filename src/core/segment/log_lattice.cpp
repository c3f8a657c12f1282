#include "segment/log_lattice.hpp"

#include <cmath>
#include <limits>

#include "base/log_sum.hpp"

namespace crfkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A logarithm and its derivative.
struct Dual {
  double v = -kInf, d = 0;
};
Dual operator+(Dual x, Dual y) { return {x.v + y.v, x.d + y.d}; }

double value(double x) { return x; }
double value(Dual x) { return x.v; }

// A score, and how it moves: by itself, where it is finite.
template <class N>
N of_score(double x) {
  if constexpr (std::is_same_v<N, Dual>) return {x, std::isfinite(x) ? x : 0};
  else return x;
}
template <class N>
constexpr N nothing() {
  return of_score<N>(-kInf);
}

// log sum exp of what is added.
template <class N>
class LogSum {
 public:
  explicit LogSum(std::vector<N>& scratch) : terms_(scratch) { terms_.clear(); }
  void add(N x) {
    if (value(x) > -kInf) terms_.push_back(x);
  }
  N total() const {
    const double sum = log_sum(terms_.size(), [&](std::size_t i) { return value(terms_[i]); });
    if constexpr (std::is_same_v<N, Dual>) {
      double d = 0;
      for (const Dual& x : terms_) d += std::exp(x.v - sum) * x.d;
      return {sum, d};
    } else {
      return sum;
    }
  }

 private:
  std::vector<N>& terms_;
};

template <class N>
class LogSegments {
 public:
  LogSegments(const SegmentTables& tables, const SegmentScores& x)
      : tables_(tables), x_(x), n_(tables.n_labels), most_(tables.max_length), order_(tables.tail_order) {
    for (double s : tables.pairwise) pair_.push_back(of_score<N>(s));
    for (double s : tables.lengths) length_.push_back(of_score<N>(s));
    for (double s : tables.tail) tail_.push_back(of_score<N>(s));
  }

  std::vector<N> g, a, h, b;  // [steps][labels]

  // recursion: forward
  void forward() {
    for (auto* m : {&g, &a}) m->assign(x_.steps * n_, nothing<N>());
    stay_.assign((x_.steps + 1) * order_ * n_, nothing<N>());
    for (i64 t = 0; t < x_.steps; ++t)
      for (i64 j = 0; j < n_; ++j) {
        if (t == 0) g[j] = begin(0, j);
        else if (x_.may_begin(t)) g[t * n_ + j] = enter(t, j) + begin(t, j);
        // needs g up to t of this label only
        a[t * n_ + j] = arrive(t, j) + of_score<N>(x_.end[t * n_ + j]);
      }
  }

  N log_z() {
    LogSum<N> sum(terms_);
    for (i64 j = 0; j < n_; ++j) sum.add(a[(x_.steps - 1) * n_ + j]);
    return sum.total();
  }

  // recursion: backward
  void backward() {
    for (auto* m : {&h, &b}) m->assign(x_.steps * n_, nothing<N>());
    leave_.assign((x_.steps + 1) * order_ * n_, nothing<N>());
    for (i64 t = x_.steps - 1; t >= 0; --t) {
      for (i64 i = 0; i < n_; ++i) {
        LogSum<N> sum(terms_);
        if (t == x_.steps - 1) sum.add(of_score<N>(0));
        else if (x_.may_begin(t + 1))
          for (i64 j = 0; j < n_; ++j) sum.add(pair_[i * n_ + j] + begin(t + 1, j) + h[(t + 1) * n_ + j]);
        b[t * n_ + i] = sum.total();
      }
      for (i64 j = 0; j < n_; ++j) {
        last_phases(t, j);
        h[t * n_ + j] = depart(t, j);
      }
    }
  }

  // Calls f(t, k, j, item, x) for every segment from t on that the table of lengths has; x: the logarithm of its mass.
  // item: its number among the listed ones, or -1. With a tail, K stands for K and all that is longer.
  template <class F>
  void each(F f) {
    for (i64 t = 0; t < x_.steps; ++t)
      for (i64 j = 0; j < n_; ++j) {
        if (!x_.may_begin(t)) continue;
        N run = g[t * n_ + j];
        for (i64 k = 1; k <= std::min<i64>(most_, x_.steps - t); ++k) {
          const i64 last = t + k - 1;
          if (k > 1 && !x_.may_cross(last)) break;
          run = run + of_score<N>(x_.u[last * n_ + j]);
          const i64 item = find(last, k);
          N mass = run + length_[(k - 1) * n_ + j];
          if (item >= 0) mass = mass + of_score<N>(x_.item_score[item * n_ + j]);
          f(t, k, j, item, mass + follow(last, k, j));
        }
      }
  }
  // Calls f(j, x) for every token that a tail adds to a segment.
  template <class F>
  void each_tail(F f) {
    for (i64 t = 1; t < x_.steps && order_; ++t)
      for (i64 j = 0; j < n_ && x_.may_cross(t); ++j)
        for (i64 p = 0; p < order_; ++p)
          f(j, stay(t - 1, p, j) + tail_[j] + of_score<N>(x_.u[t * n_ + j]) + leave(t, p, j));
  }
  N pair(i64 i, i64 j) const { return pair_[i * n_ + j]; }
  N begin(i64 t, i64 j) const { return of_score<N>(x_.begin[t * n_ + j]); }

 private:
  N enter(i64 t, i64 j) {
    LogSum<N> sum(terms_);
    for (i64 i = 0; i < n_; ++i) sum.add(a[(t - 1) * n_ + i] + pair_[i * n_ + j]);
    return sum.total();
  }
  i64 find(i64 last, i64 k) const {
    for (i64 i = x_.item_ptr[last]; i < x_.item_ptr[last + 1]; ++i)
      if (x_.item_length[i] == k) return i;
    return -1;
  }
  N arrive(i64 t, i64 j) {
    std::vector<N>& terms = arrivals_;
    LogSum<N> sum(terms);
    N run = of_score<N>(0), full = nothing<N>();
    for (i64 k = 1; k <= std::min<i64>(most_, t + 1); ++k) {
      const i64 first = t - k + 1;
      run = of_score<N>(x_.u[first * n_ + j]) + run;
      N x = g[first * n_ + j] + run + length_[(k - 1) * n_ + j];
      if (const i64 item = find(t, k); item >= 0) x = x + of_score<N>(x_.item_score[item * n_ + j]);
      if (order_ && k == most_) full = x;
      else sum.add(x);
      if (!x_.may_cross(first)) break;
    }
    for (i64 p = 0; p < order_; ++p) {
      LogSum<N> phase(terms_);
      phase.add(p == 0 ? full : stay(t, p - 1, j));
      if (t > 0 && x_.may_cross(t)) phase.add(stay(t - 1, p, j) + tail_[j] + of_score<N>(x_.u[t * n_ + j]));
      stay_[(t * order_ + p) * n_ + j] = phase.total();
    }
    if (order_) sum.add(stay(t, order_ - 1, j));
    return sum.total();
  }
  // What follows a segment that has k tokens and ends with `last`; if all of the table is used up, perhaps later.
  N follow(i64 last, i64 k, i64 j) const {
    if (order_ && k == most_) return leave(last, 0, j);
    return of_score<N>(x_.end[last * n_ + j]) + b[last * n_ + j];
  }
  N depart(i64 t, i64 j) {
    std::vector<N>& terms = arrivals_;
    LogSum<N> sum(terms);
    N run = of_score<N>(0);
    for (i64 k = 1; k <= std::min<i64>(most_, x_.steps - t); ++k) {
      const i64 last = t + k - 1;
      if (k > 1 && !x_.may_cross(last)) break;
      run = run + of_score<N>(x_.u[last * n_ + j]);
      N x = run + length_[(k - 1) * n_ + j];
      if (const i64 item = find(last, k); item >= 0) x = x + of_score<N>(x_.item_score[item * n_ + j]);
      sum.add(x + follow(last, k, j));
    }
    return sum.total();
  }
  // leave(t, p, j): what may come after token t for a segment that is in phase p there
  void last_phases(i64 t, i64 j) {
    for (i64 p = order_ - 1; p >= 0; --p) {
      LogSum<N> sum(terms_);
      if (p + 1 < order_) sum.add(leave(t, p + 1, j));
      else sum.add(of_score<N>(x_.end[t * n_ + j]) + b[t * n_ + j]);
      if (t + 1 < x_.steps && x_.may_cross(t + 1))
        sum.add(tail_[j] + of_score<N>(x_.u[(t + 1) * n_ + j]) + leave(t + 1, p, j));
      leave_[(t * order_ + p) * n_ + j] = sum.total();
    }
  }
  N stay(i64 t, i64 p, i64 j) const { return stay_[(t * order_ + p) * n_ + j]; }
  N leave(i64 t, i64 p, i64 j) const { return leave_[(t * order_ + p) * n_ + j]; }

  const SegmentTables& tables_;
  const SegmentScores& x_;
  const i64 n_, most_, order_;
  std::vector<N> pair_, length_, tail_, stay_, leave_, terms_, arrivals_;
};

// The probability of a mass, or the derivative of that.
double chance(double x, double log_z) { return std::exp(x - log_z); }
double chance(Dual x, Dual log_z) { return x.v > -kInf ? std::exp(x.v - log_z.v) * (x.d - log_z.d) : 0.0; }

template <class N>
SequenceSums sums(const SegmentTables& tables, const SegmentScores& x) {
  const i64 n = tables.n_labels, steps = x.steps;
  LogSegments<N> lattice(tables, x);
  lattice.forward();
  SequenceSums out;
  const N log_z = lattice.log_z();
  out.log_z = value(log_z);
  if (!(out.log_z > -kInf)) return out;
  if constexpr (std::is_same_v<N, Dual>) out.mean = log_z.d;
  lattice.backward();
  for (auto* rows : {&out.nodes, &out.begins, &out.ends}) rows->assign(steps * n, 0);
  out.pairs.assign(n * n, 0);
  out.lengths.assign(i64{tables.max_length} * n, 0);
  out.tail.assign(tables.tail.size(), 0);
  out.items.assign(x.item_score.size(), 0);
  lattice.each([&](i64 t, i64 k, i64 j, i64 item, N mass) {
    const double p = chance(mass, log_z);
    out.begins[t * n + j] += p;
    out.lengths[(k - 1) * n + j] += p;
    if (item >= 0) out.items[item * n + j] += p;
  });
  lattice.each_tail([&](i64 j, N mass) { out.tail[j] += chance(mass, log_z); });
  for (i64 t = 0; t < steps; ++t)
    for (i64 j = 0; j < n; ++j) {
      out.ends[t * n + j] = chance(lattice.a[t * n + j] + lattice.b[t * n + j], log_z);
      // what has begun and not ended
      const double before = t ? out.nodes[(t - 1) * n + j] - out.ends[(t - 1) * n + j] : 0;
      out.nodes[t * n + j] = before + out.begins[t * n + j];
      if (std::is_same_v<N, double>) out.nodes[t * n + j] = std::max(0.0, out.nodes[t * n + j]);
    }
  for (i64 t = 1; t < steps; ++t)
    for (i64 i = 0; i < n && x.may_begin(t); ++i)
      for (i64 j = 0; j < n; ++j) {
        const N mass = lattice.a[(t - 1) * n + i] + lattice.pair(i, j) + lattice.begin(t, j) + lattice.h[t * n + j];
        out.pairs[i * n + j] += chance(mass, log_z);
      }
  for (i64 k = 0; k < steps * n; ++k) {
    out.enter.push_back(value(lattice.g[k]));
    out.leave.push_back(value(lattice.b[k]) + x.end[k]);
  }
  return out;
}

}  // namespace

double SegmentTables::length(i64 k, i64 j) const {
  if (k <= max_length) return lengths[(k - 1) * n_labels + j];
  const double m = double(k - max_length), r = tail_order;
  const double ways = std::lgamma(m + r) - std::lgamma(r) - std::lgamma(m + 1);
  return lengths[(max_length - 1) * i64{n_labels} + j] + m * tail[j] + ways;
}

template <class T>
void SegmentScores::load(const SegmentInput<T>& in, i64 s) {
  const i64 first = in.offsets[s], last = in.offsets[s + 1], n = in.n_labels;
  steps = static_cast<int>(last - first);
  const auto copy = [&](const T* from, std::vector<double>& to) {
    if (from) to.assign(from + first * n, from + last * n);
    else to.assign(steps * n, 0.0);
  };
  copy(in.unary, u);
  copy(in.begin, begin);
  copy(in.end, end);
  if (in.border) border.assign(in.border + first, in.border + last);
  else border.assign(steps, kAnyBorder);
  item_ptr.assign(steps + 1, 0);
  item_length.clear();
  item_score.clear();
  if (!in.items.ptr) return;
  const i64 begin_item = in.items.ptr[first], end_item = in.items.ptr[last];
  for (int t = 0; t <= steps; ++t) item_ptr[t] = in.items.ptr[first + t] - begin_item;
  item_length.assign(in.items.length + begin_item, in.items.length + end_item);
  item_score.assign(in.items.score + begin_item * n, in.items.score + end_item * n);
}
template void SegmentScores::load(const SegmentInput<float>&, i64);
template void SegmentScores::load(const SegmentInput<double>&, i64);

SequenceSums log_sums(const SegmentTables& tables, const SegmentScores& x, bool dual) {
  return dual ? sums<Dual>(tables, x) : sums<double>(tables, x);
}

void log_forward(const SegmentTables& tables, const SegmentScores& x, std::vector<double>& g, std::vector<double>& a) {
  LogSegments<double> lattice(tables, x);
  lattice.forward();
  g = std::move(lattice.g);
  a = std::move(lattice.a);
}

}  // namespace crfkit
