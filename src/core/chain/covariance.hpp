// covariance.hpp: the covariance of label counts with the score of a path, and what entropies need.
//
// With s(y) the score of a path, H = log Z - E[s] and
//
//   d H / d u[t][j]    = -Cov([y_t = j], s)                  d H / d a[t][i][j] = -Cov([y_t = i, y_t+1 = j], s)
//
// No logarithm per edge: with m as in the lattice, n[i][j] = m[i][j] a[i][j] and w[t] = e[t] / c[t],
//
//   h[t]  = alpha[t] u[t] + w[t] (h[t-1] m + alpha[t-1] n)       alpha times the expected score up to t
//   k[t]  = n q[t+1] + m qq[t+1],  qq[t] = q[t] u[t] + w[t] k[t]  beta times the expected score behind t
//   d H / d u[t] = -(h[t] beta[t] + alpha[t] k[t] - R gamma[t]),  R = E[s]
//   d H / d a    = -(m * sum_t (h[t] x q[t+1] + alpha[t] x (qq[t+1] - R q[t+1])) + n * sum_t alpha[t] x q[t+1])
//
// A constant taken from the scores of a step changes no covariance. The mean of the step's scores is taken, so that
// h and k do not grow along the sequence: in single precision they would drown what is looked for.
#pragma once
#include <cmath>

#include "chain/lattice.hpp"

namespace crfkit::CRFKIT_ISA {

// out[r] = x[r] m + y[r] n, for R rows and N vectors' worth of columns
template <class T, int W, int R, int N>
CRFKIT_INLINE void tile_of_two(const T* x, const T* m, const T* y, const T* n, int depth, int stride, T* out) {
  using S = Simd<T, W>;
  typename S::Vec acc[R][N] = {};
  const auto add = [&](const T* a, const T* b) {
    for (int k = 0; k < depth; ++k) {
      typename S::Vec row[N];
      for (int v = 0; v < N; ++v) row[v] = S::load(b + static_cast<i64>(k) * stride + v * W);
      for (int r = 0; r < R; ++r) {
        const T weight = a[static_cast<i64>(r) * stride + k];
        for (int v = 0; v < N; ++v) acc[r][v] += weight * row[v];
      }
    }
  };
  add(x, m);
  add(y, n);
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < N; ++v) S::store(out + static_cast<i64>(r) * stride + v * W, acc[r][v]);
}

template <class T, int W>
void two_rows_times(const T* x, const T* m, const T* y, const T* n, int rows, int depth, int stride, T* out) {
  for_tiles<kTile<T, W>>(stride / W, [&](auto N, int v) {
    const T *mv = m + v * W, *nv = n + v * W;
    T* ov = out + v * W;
    i64 r = 0;
    for (; rows - r >= 4; r += 4)
      tile_of_two<T, W, 4, N>(x + r * stride, mv, y + r * stride, nv, depth, stride, ov + r * stride);
    for (; rows - r >= 2; r += 2)
      tile_of_two<T, W, 2, N>(x + r * stride, mv, y + r * stride, nv, depth, stride, ov + r * stride);
    for (; r < rows; ++r)
      tile_of_two<T, W, 1, N>(x + r * stride, mv, y + r * stride, nv, depth, stride, ov + r * stride);
  });
}

// out[r] += x[r] m
template <class T, int W, int R, int N>
CRFKIT_INLINE void tile_added(const T* x, const T* m, int depth, int stride, T* out) {
  using S = Simd<T, W>;
  typename S::Vec acc[R][N];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < N; ++v) acc[r][v] = S::load(out + static_cast<i64>(r) * stride + v * W);
  for (int k = 0; k < depth; ++k) {
    typename S::Vec row[N];
    for (int v = 0; v < N; ++v) row[v] = S::load(m + static_cast<i64>(k) * stride + v * W);
    for (int r = 0; r < R; ++r) {
      const T weight = x[static_cast<i64>(r) * stride + k];
      for (int v = 0; v < N; ++v) acc[r][v] += weight * row[v];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < N; ++v) S::store(out + static_cast<i64>(r) * stride + v * W, acc[r][v]);
}

template <class T, int W>
void add_rows_times(const T* x, int rows, const T* m, int depth, int stride, T* out) {
  for_tiles<kTile<T, W>>(stride / W, [&](auto N, int v) {
    const T* mv = m + v * W;
    T* ov = out + v * W;
    i64 r = 0;
    for (; rows - r >= 4; r += 4) tile_added<T, W, 4, N>(x + r * stride, mv, depth, stride, ov + r * stride);
    for (; rows - r >= 2; r += 2) tile_added<T, W, 2, N>(x + r * stride, mv, depth, stride, ov + r * stride);
    for (; r < rows; ++r) tile_added<T, W, 1, N>(x + r * stride, mv, depth, stride, ov + r * stride);
  });
}

// The packed form, for transitions that all steps share. The lattice has gone forward; what it dropped stays zero.
template <class T, int W>
class PackStatistics {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;

 public:
  Buffer<T> u;                  // in: scores [rows][stride], pads -inf; used up
  std::vector<double> entropy;  // out [sequences]

  // n: m (a - shift) [labels][stride], pads 0; n_t: transposed.
  // Leaves d H / d u in the lattice's e, and q, qq, h for add_edges; scale(s) multiplies the gradient of sequence s.
  CRFKIT_KERNEL void run(const Pack& pack, Lattice<T, W>& lattice, const Transitions<T>& a, const T* n, const T* n_t,
                         FunctionRef<double(int)> scale) {
    stride_ = a.stride;
    n_labels_ = a.n_labels;
    vectors_ = stride_ / W;
    const std::size_t size = static_cast<std::size_t>(pack.rows()) * stride_;
    for (Buffer<T>* b : {&beta_, &k_, &qq_, &h_}) b->reserve(size);
    entropy.assign(pack.n_seq(), 0);
    for (int s = 0; s < pack.n_seq(); ++s) {
      double top = 0;
      if (!lattice.good(s)) continue;
      for (int t = 0; t < pack.steps() && s < pack.active(t); ++t)
        top += static_cast<double>(lattice.top(pack.row(t, s)));
      entropy[s] = lattice.log_z(pack, s) - top;
    }
    backward(pack, lattice, a, n, n_t);
    forward(pack, lattice, a, scale);
  }

  // x1 += sum h x q + alpha x qq, x2 += sum alpha x q
  CRFKIT_KERNEL void add_edges(const Pack& pack, const Lattice<T, W>& lattice, T* x1, T* x2) const {
    for_tiles<kTile<T, W>>(vectors_, [&](auto N, int v) {
      int i = 0;
      for (; n_labels_ - i >= kRows; i += kRows) edge_tile<kRows, N>(pack, lattice, i, v * W, x1, x2);
      for (; i < n_labels_; ++i) edge_tile<1, N>(pack, lattice, i, v * W, x1, x2);
    });
  }

 private:
#if defined(__AVX512F__)
  static constexpr int kRows = 2;  // accumulators for two sums stay in registers
#else
  static constexpr int kRows = 1;
#endif

  CRFKIT_KERNEL void backward(const Pack& pack, Lattice<T, W>& lattice, const Transitions<T>& a, const T* n,
                              const T* n_t) {
    constexpr T inf = std::numeric_limits<T>::infinity();
    const bool closed = lattice.closed();
    for (int t = pack.steps() - 1; t >= 0; --t) {
      const int active = pack.active(t), next = pack.active(t + 1);
      const i64 row = pack.first[t], at = row * stride_;
      T *beta = beta_.data() + at, *k = k_.data() + at, *an = h_.data() + at;
      if (next > 0) {
        const i64 behind = static_cast<i64>(pack.first[t + 1]) * stride_;
        const T *q = lattice.q.data() + behind, *qq = qq_.data() + behind;
        rows_times<T, W>(q, next, a.m_t.data(), n_labels_, stride_, beta);
        two_rows_times<T, W>(q, n_t, qq, a.m_t.data(), next, n_labels_, stride_, k);
      }
      std::fill(beta + static_cast<i64>(next) * stride_, beta + static_cast<i64>(active) * stride_, T(1));
      std::fill(k + static_cast<i64>(next) * stride_, k + static_cast<i64>(active) * stride_, T(0));
      if (t > 0) {
        const T* before = lattice.alpha.data() + static_cast<i64>(pack.first[t - 1]) * stride_;
        rows_times<T, W>(before, active, n, n_labels_, stride_, an);
      } else {
        std::fill_n(an, static_cast<i64>(active) * stride_, T(0));
      }
      for (int s = 0; s < active; ++s) {
        const i64 x = (row + s) * stride_;
        const T inverse = lattice.scale(row + s), top = lattice.top(row + s);
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
        entropy[s] -= static_cast<double>(mean);
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
        add_rows_times<T, W>(h_.data() + static_cast<i64>(pack.first[t - 1]) * stride_, active, a.m.data(), n_labels_,
                             stride_, h);
      for (int s = 0; s < active; ++s) {
        const i64 x = (row + s) * stride_;
        const T factor = static_cast<T>(scale(s));
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

  template <int R, int N>
  CRFKIT_INLINE void edge_tile(const Pack& pack, const Lattice<T, W>& lattice, int i, int column, T* x1, T* x2) const {
    Vec acc[R][N] = {}, plain[R][N] = {};
    for (int t = 1; t < pack.steps(); ++t) {
      const int n = pack.active(t);
      const i64 from = static_cast<i64>(pack.first[t - 1]) * stride_ + i,
                to = static_cast<i64>(pack.first[t]) * stride_ + column;
      for (int s = 0; s < n; ++s) {
        Vec q[N], qq[N];
        for (int v = 0; v < N; ++v) {
          q[v] = S::load(lattice.q.data() + to + static_cast<i64>(s) * stride_ + v * W);
          qq[v] = S::load(qq_.data() + to + static_cast<i64>(s) * stride_ + v * W);
        }
        for (int r = 0; r < R; ++r) {
          const T h = h_[from + static_cast<i64>(s) * stride_ + r],
                  al = lattice.alpha[from + static_cast<i64>(s) * stride_ + r];
          for (int v = 0; v < N; ++v) {
            acc[r][v] += h * q[v];
            acc[r][v] += al * qq[v];
            plain[r][v] += al * q[v];
          }
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      const i64 at = static_cast<i64>(i + r) * stride_ + column;
      for (int v = 0; v < N; ++v) {
        S::store(x1 + at + v * W, S::load(x1 + at + v * W) + acc[r][v]);
        S::store(x2 + at + v * W, S::load(x2 + at + v * W) + plain[r][v]);
      }
    }
  }

  int n_labels_ = 0, stride_ = 0, vectors_ = 0;
  Buffer<T> beta_, k_, qq_, h_;  // [rows][stride]
};

// The covariance of the labels and pairs of one sequence with any R(y) = sum_t r[t](y_t) + a[t](y_t, y_t+1), by its
// marginals.
//
//   f[t][j]   = E[R up to t | y_t = j]     f[t+1][j] = r[t+1][j] + sum_i xi[i][j] (f[t][i] + a[i][j]) / gamma[t+1][j]
//   b[t][i]   = E[R behind t | y_t = i]    b[t][i]   = sum_j xi[i][j] (a[i][j] + r[t+1][j] + b[t+1][j]) / gamma[t][i]
//   nodes[t]  = gamma (f + b)              edges[t]  = xi (f[i] + a[i][j] + r[t+1][j] + b[t+1][j])
//
// The scores of the likeliest labels are taken out of r and a, then the mean of every f out of it and out of r, so that
// E[R] = 0 in these lines: sums do not grow along the sequence, and where the labels are nearly certain all terms are
// small.
template <class T, int W>
class SequenceStatistics {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;

 public:
  // in: marginals, and the labels' part of R, which may be minus infinity where gamma is zero; r is used up
  Buffer<T> gamma, r;  // [steps][stride]
  Buffer<T> xi;        // [steps - 1][labels][stride]
  double mean = 0;     // out: E[R]

  void start(int steps, int n_labels, int stride) {
    steps_ = steps;
    n_ = n_labels;
    stride_ = stride;
    for (Buffer<T>* b : {&gamma, &r, &f_, &b_}) b->reserve(static_cast<std::size_t>(steps) * stride);
    xi.reserve(static_cast<std::size_t>(std::max(1, steps - 1)) * n_labels * stride);
    best_.resize(steps);
  }

  // pair_part(t): a[t], finite   [labels][stride]. out: nodes [steps][stride], pairs, the edges summed up
  // [labels][stride], and, if not null, edges [steps - 1][labels][stride]
  CRFKIT_KERNEL void run(FunctionRef<const T*(int)> pair_part, T* nodes, T* pairs, T* edges) {
    const i64 size = static_cast<i64>(n_) * stride_, last = static_cast<i64>(steps_ - 1) * stride_;
    mean = 0;
    for (int t = 0; t < steps_; ++t) {
      const i64 now = static_cast<i64>(t) * stride_;
      best_[t] = static_cast<int>(std::max_element(gamma.data() + now, gamma.data() + now + n_) - (gamma.data() + now));
      const T top = r[now + best_[t]];
      mean += static_cast<double>(top);
      for (int j = 0; j < stride_; ++j) r[now + j] = gamma[now + j] > T(0) ? r[now + j] - top : T(0);
      if (t == 0) std::copy_n(r.data(), stride_, f_.data());
      else forward(t - 1, pair_part(t - 1));
      T middle = 0;
      for (int j = 0; j < n_; ++j) middle += gamma[now + j] * f_[now + j];
      for (int j = 0; j < stride_; ++j) {
        f_[now + j] -= middle;
        r[now + j] -= middle;
      }
      mean += static_cast<double>(middle);
    }
    std::fill_n(pairs, size, T(0));
    std::fill_n(b_.data() + last, stride_, T(0));
    for (int t = steps_ - 2; t >= 0; --t) backward(t, pair_part(t), pairs, edges ? edges + t * size : nullptr);
    for (i64 k = 0; k < last + stride_; ++k) nodes[k] = gamma[k] * (f_[k] + b_[k]);
  }

 private:
  T top_pair(int t, const T* a) const { return a[static_cast<i64>(best_[t]) * stride_ + best_[t + 1]]; }

  CRFKIT_INLINE void forward(int t, const T* a) {
    const i64 now = static_cast<i64>(t + 1) * stride_;
    const T *f = f_.data() + now - stride_, *p = xi.data() + static_cast<i64>(t) * n_ * stride_;
    const T top = top_pair(t, a);
    mean += static_cast<double>(top);
    for_tiles<4>(stride_ / W, [&](auto N, int v0) {
      Vec acc[N] = {};
      for (int i = 0; i < n_; ++i)
        for (int v = 0; v < N; ++v) {
          const i64 k = static_cast<i64>(i) * stride_ + (v0 + v) * W;
          acc[v] += S::load(p + k) * (S::load(a + k) - top + f[i]);
        }
      for (int v = 0; v < N; ++v) {
        const i64 k = now + (v0 + v) * W;
        const Vec g = S::load(gamma.data() + k);
        S::store(f_.data() + k, (g > T(0) ? acc[v] / (g > T(0) ? g : S::splat(T(1))) : Vec{}) + S::load(r.data() + k));
      }
    });
  }

  CRFKIT_INLINE void backward(int t, const T* a, T* pairs, T* edge) {
    const i64 now = static_cast<i64>(t) * stride_, next = now + stride_;
    const T* p = xi.data() + static_cast<i64>(t) * n_ * stride_;
    const T top = top_pair(t, a);
    for (int i = 0; i < n_; ++i) {
      const T f = f_[now + i];
      Vec total = {};
      for (int k = 0; k < stride_; k += W) {
        const i64 ij = static_cast<i64>(i) * stride_ + k;
        const Vec z = S::load(a + ij) - top + S::load(r.data() + next + k) + S::load(b_.data() + next + k);
        const Vec x = S::load(p + ij), y = x * (z + f);
        total += x * z;
        S::store(pairs + ij, S::load(pairs + ij) + y);
        if (edge) S::store(edge + ij, y);
      }
      b_[now + i] = gamma[now + i] > T(0) ? S::sum(total) / gamma[now + i] : T(0);
    }
    T middle = 0;  // zero, but for rounding errors that would add up
    for (int i = 0; i < n_; ++i) middle += gamma[now + i] * b_[now + i];
    for (int i = 0; i < n_; ++i) b_[now + i] -= middle;
    std::fill_n(b_.data() + now + n_, stride_ - n_, T(0));
  }

  int steps_ = 0, n_ = 0, stride_ = 0;
  std::vector<int> best_;  // the likeliest labels
  Buffer<T> f_, b_;        // [steps][stride]
};

}  // namespace crfkit::CRFKIT_ISA
