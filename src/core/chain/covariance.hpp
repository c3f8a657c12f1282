// covariance.hpp: the covariance of labels and pairs with the score of a path: of a pack, and of one sequence.
//
// With s(y) the score of a path, H = log Z - E[s] and
//
//   d H / d u[t][j]    = -Cov([y_t = j], s)                  d H / d a[t][i][j] = -Cov([y_t = i, y_t+1 = j], s)
//
// No logarithm per edge: with m as in the lattice, n[i][j] = m[i][j] a[i][j] and w[t] = e[t] / c[t],
//
//   h[t]  = alpha[t] u[t] + w[t] (h[t-1] m + alpha[t-1] n)       alpha times the expected score up to t
//   k[t]  = n q[t+1] + m qq[t+1],  qq[t] = q[t] u[t] + w[t] k[t]  beta times the expected score after t
//   d H / d u[t] = -(h[t] beta[t] + alpha[t] k[t] - R gamma[t]),  R = E[s]
//   d H / d a    = -(m * sum_t (h[t] x q[t+1] + alpha[t] x (qq[t+1] - R q[t+1])) + n * sum_t alpha[t] x q[t+1])
//
// A constant taken from the scores of a step changes no covariance. The mean of the step's scores is taken, so that
// h and k do not grow along the sequence: in single precision they would drown what is looked for.
#pragma once
#include <cmath>

#include "chain/scaled_lattice.hpp"

namespace crfkit::CRFKIT_ISA {

// out[r] = x[r] m + y[r] n
template <class T, int W>
void two_rows_times(const T* x, const T* m, const T* y, const T* n, i64 rows, i64 depth, i64 stride, T* out) {
  for_row_tiles<T, W>(rows, stride, [&](auto R, auto N, i64 r, int column) __attribute__((always_inline)) {
    Tile<T, W, R, N> tile;
    tile.fill(SumTimes<T, W>::zero());
    tile.add(x + r * stride, m + column, depth, stride);
    tile.add(y + r * stride, n + column, depth, stride);
    tile.store(out + r * stride + column, stride);
  });
}

// out[r] += x[r] m
template <class T, int W>
void add_rows_times(const T* x, i64 rows, const T* m, i64 depth, i64 stride, T* out) {
  for_row_tiles<T, W>(rows, stride, [&](auto R, auto N, i64 r, int column) __attribute__((always_inline)) {
    Tile<T, W, R, N> tile;
    tile.load(out + r * stride + column, stride);
    tile.add(x + r * stride, m + column, depth, stride);
    tile.store(out + r * stride + column, stride);
  });
}

// The packed form, for transitions that all steps share. The lattice has gone forward; what it dropped stays zero. It
// goes backward here: beta and w are needed, over which Lattice::backward writes gamma and q.
template <class T, int W>
class PackCovariance {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;

 public:
  Buffer<T> u;                  // in: scores [rows][stride], pads -inf; used up
  std::vector<double> entropy;  // out [sequences]

  // n: m (a - shift) [labels][stride], pads 0; n_t: transposed. Null where the score has no part of transitions: then
  // entropy is without meaning.
  // Leaves d H / d u in the lattice's e, and q, qq, h for add_pairs; scale(s) multiplies the gradient of sequence s.
  CRFKIT_KERNEL void run(const Pack& pack, Lattice<T, W>& lattice, const Transitions<T>& a, const T* n, const T* n_t,
                         FunctionRef<double(int)> scale) {
    stride_ = a.stride;
    n_labels_ = a.n_labels;
    vectors_ = static_cast<int>(stride_ / W);
    const i64 size = pack.rows() * stride_;
    for (Buffer<T>* b : {&beta_, &k_, &qq_, &h_}) b->reserve(size);
    entropy.assign(pack.n_seq(), 0);
    for (int s = 0; s < pack.n_seq(); ++s) {
      double top = 0;
      if (!lattice.good(s)) continue;
      for (int t = 0; t < pack.steps() && s < pack.active(t); ++t) top += lattice.top(pack.row(t, s));
      entropy[s] = lattice.log_z(pack, s) - top;
    }
    backward(pack, lattice, a, n, n_t);
    forward(pack, lattice, a, scale);
  }

  // pairs [labels][labels] += d H / d a, summed over the pack; n as above
  void add_pairs(const Pack& pack, const Lattice<T, W>& lattice, const Transitions<T>& a, const T* n, double* pairs) {
    for (Buffer<T>* x : {&scored_, &plain_}) x->assign(n_labels_ * stride_, T(0));
    const auto add = [&](const Buffer<T>& before, const Buffer<T>& after, Buffer<T>& to) {
      pair_sums<T, W>(pack, before.data(), after.data(), n_labels_, stride_, to.data());
    };
    add(h_, lattice.q, scored_);
    add(lattice.alpha, qq_, scored_);
    if (n) add(lattice.alpha, lattice.q, plain_);
    for (i64 i = 0; i < n_labels_; ++i)
      for (i64 j = 0; j < n_labels_; ++j) {
        const i64 ij = i * stride_ + j;
        pairs[i * n_labels_ + j] -= double{a.m[ij]} * scored_[ij] + (n ? double{n[ij]} * plain_[ij] : 0.0);
      }
  }

 private:
  CRFKIT_KERNEL void backward(const Pack& pack, Lattice<T, W>& lattice, const Transitions<T>& a, const T* n,
                              const T* n_t) {
    constexpr T inf = std::numeric_limits<T>::infinity();
    const bool closed = lattice.closed();
    for (int t = pack.steps() - 1; t >= 0; --t) {  // recursion: covariance
      const int active = pack.active(t), next = pack.active(t + 1);
      const i64 row = pack.first[t], at = row * stride_;
      T *beta = beta_.data() + at, *k = k_.data() + at, *an = h_.data() + at;
      if (next > 0) {
        const i64 after = pack.first[t + 1] * stride_;
        const T *q = lattice.q.data() + after, *qq = qq_.data() + after;
        rows_times<T, W>(q, next, a.m_t.data(), n_labels_, stride_, beta);
        if (n) two_rows_times<T, W>(q, n_t, qq, a.m_t.data(), next, n_labels_, stride_, k);
        else rows_times<T, W>(qq, next, a.m_t.data(), n_labels_, stride_, k);
      }
      std::fill(beta + next * stride_, beta + active * stride_, T(1));
      std::fill(k + next * stride_, k + active * stride_, T(0));
      if (t > 0 && n) {
        const T* before = lattice.alpha.data() + pack.first[t - 1] * stride_;
        rows_times<T, W>(before, active, n, n_labels_, stride_, an);
      } else {
        std::fill_n(an, active * stride_, T(0));
      }
      for (int s = 0; s < active; ++s) {
        const i64 x = (row + s) * stride_;
        const T inverse = lattice.scale(row + s), top = n ? lattice.top(row + s) : T(0);
        Vec total = {};
        for_tiles<4>(vectors_, [&](auto N, int v0) {
          for (i64 v = x + v0 * W; v < x + (v0 + N) * W; v += W) {
            const Vec al = S::load(lattice.alpha.data() + v);
            Vec b = S::load(beta_.data() + v);
            if (closed) {  // what cannot be reached may not overflow
              b = al > T(0) ? b : Vec{};
              S::store(beta_.data() + v, b);
            }
            const Vec w = S::load(lattice.e.data() + v) * inverse, q = w * b;
            Vec uv = S::load(u.data() + v);
            uv = uv > -inf ? uv - top : Vec{};
            S::store(u.data() + v, uv);
            S::store(lattice.e.data() + v, w);
            S::store(lattice.q.data() + v, q);
            total += al * b * uv + q * S::load(h_.data() + v);
          }
        });
        const T mean = S::sum(total);
        entropy[s] -= mean;
        for_tiles<4>(vectors_, [&](auto N, int v0) {
          for (i64 v = x + v0 * W; v < x + (v0 + N) * W; v += W) {
            const Vec uv = S::load(u.data() + v) - mean;
            S::store(u.data() + v, uv);
            S::store(qq_.data() + v,
                     S::load(lattice.q.data() + v) * uv + S::load(lattice.e.data() + v) * S::load(k_.data() + v));
          }
        });
      }
    }
  }

  CRFKIT_KERNEL void forward(const Pack& pack, Lattice<T, W>& lattice, const Transitions<T>& a,
                             FunctionRef<double(int)> scale) {
    for (int t = 0; t < pack.steps(); ++t) {
      const int active = pack.active(t);
      const i64 row = pack.first[t];
      T* h = h_.data() + row * stride_;
      // h holds alpha[t-1] n already
      if (t > 0)
        add_rows_times<T, W>(h_.data() + pack.first[t - 1] * stride_, active, a.m.data(), n_labels_, stride_, h);
      for (int s = 0; s < active; ++s) {
        const i64 x = (row + s) * stride_;
        const T factor = T(scale(s));
        Vec total = {};
        for_tiles<4>(vectors_, [&](auto N, int v0) {
          for (i64 v = x + v0 * W; v < x + (v0 + N) * W; v += W) {
            const Vec al = S::load(lattice.alpha.data() + v);
            const Vec hv = al * S::load(u.data() + v) + S::load(lattice.e.data() + v) * S::load(h_.data() + v);
            S::store(h_.data() + v, hv);
            const Vec both = hv * S::load(beta_.data() + v) + al * S::load(k_.data() + v);
            total += both;
            S::store(k_.data() + v, both);
          }
        });
        const T mean = S::sum(total);  // R, but for rounding
        for_tiles<4>(vectors_, [&](auto N, int v0) {
          for (i64 v = x + v0 * W; v < x + (v0 + N) * W; v += W) {
            const Vec gamma = S::load(lattice.alpha.data() + v) * S::load(beta_.data() + v),
                      q = S::load(lattice.q.data() + v);
            S::store(lattice.e.data() + v, (mean * gamma - S::load(k_.data() + v)) * factor);
            S::store(qq_.data() + v, (S::load(qq_.data() + v) - mean * q) * factor);
            S::store(lattice.q.data() + v, q * factor);
          }
        });
      }
    }
  }

  i64 n_labels_ = 0, stride_ = 0;
  int vectors_ = 0;
  Buffer<T> beta_, k_, qq_, h_;  // [rows][stride]
  Buffer<T> scored_, plain_;     // sums h x q + alpha x qq, and alpha x q   [labels][stride]
};

// The covariance of the labels and pairs of one sequence with any R(y) = sum_t r[t](y_t) + a[t](y_t, y_t+1), by its
// marginals.
//
//   f[t][j]   = E[R up to t | y_t = j]     f[t+1][j] = r[t+1][j] + sum_i xi[i][j] (f[t][i] + a[i][j]) / gamma[t+1][j]
//   b[t][i]   = E[R after t | y_t = i]     b[t][i]   = sum_j xi[i][j] (a[i][j] + r[t+1][j] + b[t+1][j]) / gamma[t][i]
//   nodes[t]  = gamma (f + b)              edges[t]  = xi (f[i] + a[i][j] + r[t+1][j] + b[t+1][j])
//
// The scores of the likeliest labels are taken out of r and a, then the mean of every f out of it and out of r, so that
// E[R] = 0 in these lines: sums do not grow along the sequence, and where the labels are nearly certain all terms are
// small.
//
// In double precision the marginals may come from a lattice in single: then gamma is not quite what xi adds up to, and
// the sums of xi are divided by instead.
template <class T, int W>
class SequenceCovariance {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  static constexpr bool kBySums = sizeof(T) == 8;

 public:
  // in: marginals, zero in the pads, and the labels' part of R, which may be minus infinity where gamma is zero; r is
  // used up
  Buffer<T> gamma, r;  // [steps][stride]
  double mean = 0;     // out: E[R]

  // Marginals of the pairs of t and t+1, and a[t], finite   [labels][stride]
  struct Pairs {
    const T *xi, *a;
  };

  void start(int steps, i64 n_labels, i64 stride) {
    steps_ = steps;
    n_ = n_labels;
    stride_ = stride;
    for (Buffer<T>* b : {&gamma, &r, &f_, &b_}) b->reserve(steps * stride);
    best_.resize(steps);
  }

  // out: nodes [steps][stride]; pairs, the edges summed up [labels][stride]; edge(t, those of t and t+1), if asked for,
  // from the last step to the first
  CRFKIT_KERNEL void run(FunctionRef<Pairs(int)> pairs_of, T* nodes, T* pairs, FunctionRef<void(int, const T*)> edge) {
    const i64 last = (steps_ - 1) * stride_;
    mean = 0;
    for (int t = 0; t < steps_; ++t) {  // recursion: covariance
      const i64 now = t * stride_;
      best_[t] = std::max_element(gamma.data() + now, gamma.data() + now + n_) - (gamma.data() + now);
      const T top = r[now + best_[t]];
      mean += top;
      for (i64 j = 0; j < stride_; ++j) r[now + j] = gamma[now + j] > T(0) ? r[now + j] - top : T(0);
      if (t == 0) std::copy_n(r.data(), stride_, f_.data());
      else forward(t - 1, pairs_of(t - 1));
      T middle = 0;
      for (i64 j = 0; j < n_; ++j) middle += gamma[now + j] * f_[now + j];
      for (i64 j = 0; j < stride_; ++j) {
        f_[now + j] -= middle;
        r[now + j] -= middle;
      }
      mean += middle;
    }
    rest_ = 0;
    if constexpr (kBySums)
      for (i64 j = 0; j < n_; ++j) rest_ += gamma[last + j] * f_[last + j];
    std::fill_n(pairs, n_ * stride_, T(0));
    std::fill_n(b_.data() + last, stride_, T(0));
    if (edge) edge_.reserve(n_ * stride_);
    for (int t = steps_ - 2; t >= 0; --t) {
      backward(t, pairs_of(t), pairs, edge ? edge_.data() : nullptr);
      if (edge) edge(t, edge_.data());
    }
    for (i64 k = 0; k < last + stride_; ++k) nodes[k] = gamma[k] * (f_[k] + b_[k] - rest_);
  }

 private:
  T top_pair(int t, const T* a) const { return a[best_[t] * stride_ + best_[t + 1]]; }

  CRFKIT_INLINE void forward(int t, const Pairs& of) {
    const i64 now = (t + 1) * stride_;
    const T *f = f_.data() + now - stride_, *p = of.xi, *a = of.a;
    const T top = top_pair(t, a);
    mean += top;
    for_tiles<4>(static_cast<int>(stride_ / W), [&](auto N, int v0) {
      Vec acc[N] = {}, sum[N] = {};
      for (i64 i = 0; i < n_; ++i)
        for (int v = 0; v < N; ++v) {
          const i64 k = i * stride_ + (v0 + v) * W;
          acc[v] += S::load(p + k) * (S::load(a + k) - top + f[i]);
          if constexpr (kBySums) sum[v] += S::load(p + k);
        }
      for (int v = 0; v < N; ++v) {
        const i64 k = now + (v0 + v) * W;
        const Vec g = kBySums ? sum[v] : S::load(gamma.data() + k);
        S::store(f_.data() + k, (g > T(0) ? acc[v] / (g > T(0) ? g : S::splat(T(1))) : Vec{}) + S::load(r.data() + k));
      }
    });
  }

  CRFKIT_INLINE void backward(int t, const Pairs& of, T* pairs, T* edge) {
    const i64 now = t * stride_, next = now + stride_;
    const T *p = of.xi, *a = of.a;
    const T top = top_pair(t, a);
    for (i64 i = 0; i < n_; ++i) {
      const T f = f_[now + i] - rest_;
      Vec total = {}, sum = {};
      for (i64 k = 0; k < stride_; k += W) {
        const i64 ij = i * stride_ + k;
        const Vec z = S::load(a + ij) - top + S::load(r.data() + next + k) + S::load(b_.data() + next + k);
        const Vec x = S::load(p + ij), y = x * (z + f);
        total += x * z;
        if constexpr (kBySums) sum += x;
        S::store(pairs + ij, S::load(pairs + ij) + y);
        if (edge) S::store(edge + ij, y);
      }
      const T g = kBySums ? S::sum(sum) : gamma[now + i];
      b_[now + i] = g > T(0) ? S::sum(total) / g : T(0);
    }
    if constexpr (!kBySums) {
      T middle = 0;  // zero, but for rounding errors that would add up
      for (i64 i = 0; i < n_; ++i) middle += gamma[now + i] * b_[now + i];
      for (i64 i = 0; i < n_; ++i) b_[now + i] -= middle;
    }
    std::fill_n(b_.data() + now + n_, stride_ - n_, T(0));
  }

  int steps_ = 0;
  i64 n_ = 0, stride_ = 0;
  T rest_ = 0;             // of E[R], where gamma does not quite add up to one
  std::vector<i64> best_;  // the likeliest labels
  Buffer<T> f_, b_;        // [steps][stride]
  Buffer<T> edge_;         // [labels][stride]
};

}  // namespace crfkit::CRFKIT_ISA
