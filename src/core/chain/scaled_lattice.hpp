// scaled_lattice.hpp: sum-product over a pack of sequences, in scaled probability space.
//
// With u[t][j] the score of label j at step t and a[i][j] the score of i followed by j,
//
//   e[t][j]     = exp(u[t][j] - max_j u[t][j])              m[i][j] = exp(a[i][j] - max a)
//   alpha[t][j] = e[t][j] sum_i alpha[t-1][i] m[i][j] / c[t]     c[t] makes the row sum to one
//   q[t][j]     = e[t][j] beta[t][j] / c[t]
//   beta[t][i]  = sum_j m[i][j] q[t+1][j],  beta[last] = 1
//   gamma[t][j] = alpha[t][j] beta[t][j]                    P(label j at t)
//   xi[t][i][j] = alpha[t][i] m[i][j] q[t+1][j]             P(i at t, j at t+1)
//   log Z       = sum_t (log c[t] + max_j u[t][j]) + (T-1) max a
//
// The pass is trusted (`good`) as long as no alpha of a reachable label fell below the smallest normal
// number: then nothing was lost that could come back, and beta cannot overflow where it matters.
// Otherwise the sequence is repeated in log space (scaled_or_log.hpp).
//
// Who needs sums over labels, but not every small probability, may ask for less. Let all transitions be allowed and
// their scores differ by at most R. What leads to a label leads to each other one with at least exp(-R) of the mass,
// and so it is with what follows. So labels that fall below the smallest normal number, `tiny`, at any step cannot hold
// more than
//
//   steps labels^2 tiny exp(2 R)
//
// of the mass; where that is less than a rounding error, nothing has to be repeated.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rows.hpp"
#include "chain/pair_sums.hpp"
#include "chain/transitions.hpp"

namespace crfkit::CRFKIT_ISA {

// The transitions of a pack: one matrix for all steps, or one for every step, in packs of one sequence. Then fill(t, a)
// writes the scores of step t, [labels][stride] with pads -inf; the exponentials are made where they are needed and not
// kept.
template <class T, int W>
class Steps {
  using S = Simd<T, W>;

 public:
  using Fill = FunctionRef<void(int t, T* a)>;
  // exact: the scores in double precision, where they are known   [labels][labels]
  explicit Steps(const Transitions<T>& transitions, const double* exact = nullptr)
      : shared_(&transitions), exact_(exact), n_labels_(transitions.n_labels), stride_(transitions.stride) {}
  Steps(i64 n_labels, i64 stride, int n_steps, Fill fill)
      : n_labels_(n_labels), stride_(stride), fill_(fill), shift_(std::max(0, n_steps - 1)) {
    m_.reserve(n_labels * stride);
  }
  bool shared() const { return shared_ != nullptr; }
  bool has_zeros() const { return shared_ == nullptr || shared_->has_zeros; }  // own ones are not known beforehand
  bool lossy() const { return shared_ ? shared_->lossy : lossy_; }
  double range() const { return shared_ ? shared_->range : std::numeric_limits<double>::infinity(); }
  // out = x m[t], for n rows
  void push(int t, const T* x, int n, T* out) { rows_times<T, W>(x, n, matrix(t), n_labels_, stride_, out); }
  // out[i] = sum_j m[t][i][j] x[j]
  void pull(int t, const T* x, int n, T* out) {
    if (shared_) return rows_times<T, W>(x, n, shared_->m_t.data(), n_labels_, stride_, out);
    const T* m = matrix(t);
    for (int i = 0; i < n_labels_; ++i) {
      typename S::Vec total = {};
      for (int v = 0; v < stride_; v += W) total += S::load(m + i * stride_ + v) * S::load(x + v);
      out[i] = S::sum(total);
    }
    std::fill(out + n_labels_, out + stride_, T(0));
  }
  // Whether j at t+1 may follow one of the labels of t, given as bits.
  bool can_follow(int t, const u64* last, i64 j) {
    if (shared_) {
      const u64* before = shared_->before.data() + j * shared_->words();
      for (int w = 0; w < shared_->words(); ++w)
        if (last[w] & before[w]) return true;
      return false;
    }
    const T* m = matrix(t);
    for (int i = 0; i < n_labels_; ++i)
      if ((last[i / 64] >> (i % 64) & 1) && m[i * stride_ + j] > 0) return true;
    return false;
  }
  const T* matrix(int t) {
    if (shared_) return shared_->m.data();
    if (t != loaded_) load_own(t);
    return m_.data();
  }
  // The scores of step t in double precision, rows of `stride`; the pads are left as they are.
  void scores(int t, i64 stride, double* out) {
    if (!shared_) {
      fill_(t, m_.data());
      loaded_ = -1;
    }
    const T* a = shared_ ? shared_->score.data() : m_.data();
    for (i64 i = 0; i < n_labels_; ++i)
      for (i64 j = 0; j < n_labels_; ++j) out[i * stride + j] = exact_ ? exact_[i * n_labels_ + j] : a[i * stride_ + j];
  }
  // What log Z of a sequence must be given back.
  double total_shift(int steps) const {
    if (shared_) return std::max(0, steps - 1) * shared_->shift;
    double total = 0;
    for (int t = 0; t + 1 < steps; ++t) total += shift_[t];
    return total;
  }

 private:
  CRFKIT_KERNEL void load_own(int t) {
    loaded_ = t;
    fill_(t, m_.data());
    constexpr T inf = std::numeric_limits<T>::infinity();
    const i64 size = n_labels_ * stride_;
    typename S::Vec top = S::splat(-inf);
    for (i64 k = 0; k < size; k += W) top = S::max(top, S::load(m_.data() + k));
    T high = S::highest(top);
    if (!(high > -inf)) high = 0;
    shift_[t] = high;
    typename S::Mask lost = {};
    for (i64 k = 0; k < size; k += W) {
      const typename S::Vec x = S::load(m_.data() + k), y = S::exp(x - high);
      lost |= (x > -inf) & (y == T(0));
      S::store(m_.data() + k, y);
    }
    if (S::any(lost)) lossy_ = true;
  }

  const Transitions<T>* shared_ = nullptr;
  const double* exact_ = nullptr;
  i64 n_labels_, stride_;
  Fill fill_;
  Buffer<T> m_;
  std::vector<double> shift_;
  int loaded_ = -1;
  bool lossy_ = false;
};

template <class T, int W>
class Lattice {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  static constexpr T kTiny = std::numeric_limits<T>::min();
  // Backward, e beta may underflow before it is divided by c. Above this, that costs less than a rounding error.
  static constexpr T kLeastScale = kTiny / std::numeric_limits<T>::epsilon();

 public:
  // [rows][stride] each, rows as in the pack. After backward(), e holds gamma.
  Buffer<T> e, alpha, q;

  void start(const Pack& pack, i64 n_labels, i64 stride) {
    n_labels_ = n_labels;
    stride_ = stride;
    vectors_ = static_cast<int>(stride / W);
    const i64 rows = pack.rows();
    for (Buffer<T>* b : {&e, &alpha, &q}) b->reserve(rows * stride);
    for (Buffer<T>* b : {&inverse_c_, &top_}) b->reserve(rows);
    pad_.assign(stride, T(1));
    std::fill_n(pad_.data(), n_labels, T(0));
    low_.assign(pack.n_seq() * stride, T(1));
    good_.assign(pack.n_seq(), 1);
    faint_.assign(pack.n_seq(), 0);
    closed_ = false;
  }

  // Enters the scores of one row, padded with minus infinity. Sets e and remembers the row's top.
  CRFKIT_INLINE void set_row(i64 r, int s, const T* u) {
    constexpr T inf = std::numeric_limits<T>::infinity();
    Vec top = S::splat(-inf);
    for_tiles<4>(vectors_, [&](auto N, int v0) {
      for (int v = v0; v < v0 + N; ++v) top = S::max(top, S::load(u + v * W));
    });
    T high = S::highest(top);
    if (!(high > -inf)) {  // no label is allowed here
      high = 0;
      good_[s] = 0;
    }
    top_[r] = high;
    T* out = e.data() + r * stride_;
    typename S::Mask zero = {};
    for_tiles<4>(vectors_, [&](auto N, int v0) {
      for (int v = v0; v < v0 + N; ++v) {
        const Vec y = S::exp(S::load(u + v * W) - high);
        zero |= y + S::load(pad_.data() + v * W) == T(0);
        S::store(out + v * W, y);
      }
    });
    if (S::any(zero)) {  // forbidden, or too small beside the top?
      closed_ = true;
      for (int j = 0; j < n_labels_; ++j)
        if (out[j] == T(0) && u[j] > -inf) faint_[s] = 1;
    }
  }

  // Enters all rows of the pack; u: [rows][stride].
  CRFKIT_KERNEL void set_rows(const Pack& pack, const T* u) {
    for (int t = 0; t < pack.steps(); ++t)
      for (int s = 0; s < pack.active(t); ++s) {
        const i64 r = pack.row(t, s);
        set_row(r, s, u + r * stride_);
      }
  }

  // lenient: labels may be lost whose mass is beyond the precision of sums
  CRFKIT_KERNEL void forward(const Pack& pack, Steps<T, W>& steps, bool lenient = false) {
    closed_ |= steps.has_zeros();
    for (int t = 0; t < pack.steps(); ++t) {  // recursion: forward
      const int n = pack.active(t);
      const i64 row = pack.first[t];
      T* out = alpha.data() + row * stride_;
      if (t > 0) steps.push(t - 1, alpha.data() + pack.first[t - 1] * stride_, n, out);
      for (int s = 0; s < n; ++s) normalise(row + s, s, t == 0);
    }
    if (steps.lossy())
      for (int s = 0; s < pack.active(1); ++s) good_[s] = 0;
    if (lenient && cannot_come_back(pack.steps(), steps.range())) return;
    for (int s = 0; s < pack.n_seq(); ++s)
      if (good_[s]) good_[s] = !faint_[s] && (closed_ ? reaches_all(pack, s, steps) : never_tiny(s));
  }

  bool good(int s) const { return good_[s] != 0; }
  bool closed() const { return closed_; }         // whether something is forbidden
  T scale(i64 r) const { return inverse_c_[r]; }  // 1 / c
  T top(i64 r) const { return top_[r]; }          // max_j u[r][j]

  double log_z(const Pack& pack, int s) const {
    double log_scale = 0, product = 1, top = 0;
    for (int t = 0; t < pack.steps() && s < pack.active(t); ++t) {
      const i64 r = pack.row(t, s);
      const double c = inverse_c_[r];
      top += top_[r];
      if (c > 1e100 || c < 1e-100) {
        log_scale -= std::log(c);
        continue;
      }
      product *= c;
      if (product > 1e150 || product < 1e-150) {
        log_scale -= std::log(product);
        product = 1;
      }
    }
    return log_scale - std::log(product) + top;
  }

  // Takes a sequence out of what follows: its gamma, alpha and q are zero.
  void drop(const Pack& pack, int s) {
    for (int t = 0; t < pack.steps() && s < pack.active(t); ++t) {
      const i64 r = pack.row(t, s);
      std::fill_n(e.data() + r * stride_, stride_, T(0));
      std::fill_n(alpha.data() + r * stride_, stride_, T(0));
      inverse_c_[r] = 0;
    }
  }

  CRFKIT_KERNEL void backward(const Pack& pack, Steps<T, W>& steps) {
    for (int t = pack.steps() - 1; t >= 0; --t) {  // recursion: backward
      const int n = pack.active(t), next = pack.active(t + 1);
      const i64 row = pack.first[t];
      T* beta = q.data() + row * stride_;
      if (next > 0) steps.pull(t, q.data() + pack.first[t + 1] * stride_, next, beta);
      std::fill(beta + next * stride_, beta + n * stride_, T(1));
      for (int s = 0; s < n; ++s) {
        const i64 at = (row + s) * stride_;
        const T inverse = inverse_c_[row + s];
        for_tiles<4>(vectors_, [&](auto N, int v0) {
          for (int v = v0; v < v0 + N; ++v) {
            Vec b = S::load(q.data() + at + v * W);
            const Vec a = S::load(alpha.data() + at + v * W);
            if (closed_) b = a > T(0) ? b : Vec{};  // what cannot be reached may not overflow
            S::store(q.data() + at + v * W, b * S::load(e.data() + at + v * W) * inverse);
            S::store(e.data() + at + v * W, a * b);
          }
        });
      }
    }
  }

  // x[i][j] += sum over all steps and sequences of alpha[t][i] q[t+1][j]; times m this is sum_t xi.
  void add_edges(const Pack& pack, T* x) const { pair_sums<T, W>(pack, alpha.data(), q.data(), n_labels_, stride_, x); }

 private:
  CRFKIT_INLINE void normalise(i64 r, int s, bool initial) {
    T* a = alpha.data() + r * stride_;
    const T* er = e.data() + r * stride_;
    Vec total = {};
    for_tiles<4>(vectors_, [&](auto N, int v0) {
      for (int v = v0; v < v0 + N; ++v) {
        Vec x = S::load(er + v * W);
        if (!initial) x *= S::load(a + v * W);
        total += x;
        S::store(a + v * W, x);
      }
    });
    const T c = S::sum(total);
    if (!(c >= kLeastScale)) good_[s] = 0;
    const T inverse = T(1) / c;
    inverse_c_[r] = inverse;
    T* low = low_.data() + s * stride_;
    for_tiles<4>(vectors_, [&](auto N, int v0) {
      for (int v = v0; v < v0 + N; ++v) {
        const Vec x = S::load(a + v * W) * inverse;
        S::store(a + v * W, x);
        S::store(low + v * W, S::min(S::load(low + v * W), x + S::load(pad_.data() + v * W)));
      }
    });
  }

  // Whether all that underflows holds less of the mass than a sixteenth of a rounding error (S::exp cuts off a little
  // above kTiny).
  bool cannot_come_back(int steps, double range) const {
    const double mass = std::log(double(steps)) + 2 * std::log(double(n_labels_)) + std::log(double{kTiny});
    return mass + 2 * range < std::log(double{std::numeric_limits<T>::epsilon()} / 16);
  }

  bool never_tiny(int s) const {
    Vec low = S::splat(T(1));
    for (int v = 0; v < vectors_; ++v) low = S::min(low, S::load(low_.data() + s * stride_ + v * W));
    return S::lowest(low) >= kTiny;
  }

  // With forbidden labels or transitions: is alpha a normal number wherever a path leads?
  bool reaches_all(const Pack& pack, int s, Steps<T, W>& steps) {
    const i64 words = (n_labels_ + 63) / 64;
    reach_.assign(2 * words, 0);
    u64 *now = reach_.data(), *last = now + words;
    for (int t = 0; t < pack.steps() && s < pack.active(t); ++t) {
      std::swap(now, last);
      std::fill_n(now, words, 0);
      const i64 at = pack.row(t, s) * stride_;
      for (int j = 0; j < n_labels_; ++j) {
        if (!(e[at + j] > 0)) continue;
        if (t > 0 && !steps.can_follow(t - 1, last, j)) continue;
        now[j / 64] |= u64{1} << (j % 64);
        if (!(alpha[at + j] >= kTiny)) return false;
      }
    }
    return true;
  }

  i64 n_labels_ = 0, stride_ = 0;
  int vectors_ = 0;
  Buffer<T> inverse_c_, top_;  // 1 / c[t] and max_j u[t][j]     [rows]
  Buffer<T> low_, pad_;        // smallest alpha seen [sequences][stride]; 1 in padding, 0 elsewhere [stride]
  std::vector<u8> good_;       // [sequences]
  std::vector<u8> faint_;      // whether a score is too small for e beside the top  [sequences]
  std::vector<u64> reach_;
  bool closed_ = false;  // something is forbidden
};

// in kernels.cpp
#define CRFKIT_EXTERN(T, W)          \
  extern template class Steps<T, W>; \
  extern template class Lattice<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_EXTERN)
#undef CRFKIT_EXTERN

}  // namespace crfkit::CRFKIT_ISA
