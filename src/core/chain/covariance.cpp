#include "chain/chain.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

namespace crfkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr i64 kChunks = 32;  // at most so many partial sums of pairs, added in a fixed order

// The sums of chunks, one after another.
void add_up(const std::vector<double>& parts, i64 n_parts, i64 size, double* out) {
  std::fill_n(out, size, 0.0);
  for (i64 k = 0; k < n_parts; ++k)
    for (i64 x = 0; x < size; ++x) out[x] += parts[k * size + x];
}

// One sequence in double precision. With f[t][j] = E[R up to t | j at t] and g[t][i] = E[R after t | i at t],
//
//   f[t][j] = r[t][j] + sum_i P(i at t-1 | j at t) (f[t-1][i] + ra[t-1][i][j])
//   g[t][i] = sum_j P(j at t+1 | i at t) (ra[t][i][j] + r[t+1][j] + g[t+1][j])
//   Cov(1{j at t}, R) = P(j at t) (f[t][j] + g[t][j] - E[R]), and of pairs likewise.
//
// The conditional probabilities come from forward and backward messages in scaled space, or in log space where the
// scores span more than double precision does. r is centred step by step: E[R] of a long sequence is large.
template <class T>
class Moments {
 public:
  void run(const ChainInput<T>& in, const T* r, const T* ra, double weight, i64 s, i64 first_edge, double* mean,
           T* nodes, double* pairs, T* edges) {
    n_ = in.n_labels;
    steps_ = in.offsets[s + 1] - in.offsets[s];
    *mean = 0;
    if (steps_ == 0) return;
    u_ = in.unary + in.offsets[s] * n_;
    r_ = r + in.offsets[s] * n_;
    const i64 size = static_cast<i64>(n_) * n_;
    a_ = in.pairwise + (in.per_step ? first_edge * size : 0);
    ra_ = ra + (in.per_step ? first_edge * size : 0);
    jump_ = in.per_step ? size : 0;
    for (auto* x : {&alpha_, &beta_, &q_, &gamma_, &f_, &g_}) x->resize(static_cast<std::size_t>(steps_) * n_);
    m_.resize(size);
    loaded_ = scaled_at_ = -1;
    logs_ = false;
    if (!scaled()) {
      logs_ = true;
      if (!in_logs()) {
        *mean = std::numeric_limits<double>::quiet_NaN();
        return;
      }
    }
    centre();
    forward();
    backward();
    double total = 0;
    for (int j = 0; j < n_; ++j) total += gamma_[j] * g_[j];
    for (int j = 0; j < n_; ++j) total += gamma_[j] * f_[j];
    *mean = total;  // of the centred R: what the covariances are taken against
    for (i64 t = 0; t < steps_; ++t) *mean += shift_[t];
    if (nodes)
      for (i64 k = 0; k < steps_ * n_; ++k)
        nodes[in.offsets[s] * n_ + k] = static_cast<T>(weight * gamma_[k] * (f_[k] + g_[k] - total));
    if (!pairs && !edges) return;
    for (i64 t = 0; t + 1 < steps_; ++t) {
      load(t);
      for (int i = 0; i < n_; ++i) {
        for (int j = 0; j < n_; ++j) {
          const i64 b = (t + 1) * n_ + j;
          const double xi = pair(t, i, j);
          const double x =
              xi > 0 ? weight * xi * (f_[t * n_ + i] + extra(t, i, j) + r_at(t + 1, j) + g_[b] - total) : 0;
          if (pairs) pairs[i * n_ + j] += x;
          if (edges) edges[(first_edge + t) * size + i * n_ + j] = static_cast<T>(x);
        }
      }
    }
  }

 private:
  double u(i64 t, int j) const { return static_cast<double>(u_[t * n_ + j]); }
  double a(i64 t, int i, int j) const { return static_cast<double>(a_[t * jump_ + static_cast<i64>(i) * n_ + j]); }
  double extra(i64 t, int i, int j) const { return static_cast<double>(ra_[t * jump_ + static_cast<i64>(i) * n_ + j]); }
  double r_at(i64 t, int j) const { return static_cast<double>(r_[t * n_ + j]) - shift_[t]; }

  // m[i][j] = exp(a[i][j] - max a); false if something allowed is lost.
  bool load(i64 t) {
    if (jump_ == 0 ? loaded_ >= 0 : loaded_ == t) return kept_;
    loaded_ = t;
    kept_ = true;
    double top = -kInf;
    for (i64 k = 0; k < static_cast<i64>(n_) * n_; ++k) top = std::max(top, static_cast<double>(a_[t * jump_ + k]));
    if (!(top > -kInf)) top = 0;
    for (i64 k = 0; k < static_cast<i64>(n_) * n_; ++k) {
      const double x = static_cast<double>(a_[t * jump_ + k]);
      m_[k] = std::exp(x - top);
      if (x > -kInf && m_[k] < kSmall) kept_ = false;
    }
    return kept_;
  }

  bool scaled() {
    std::vector<double> e(n_), inverse(steps_);
    reach_.assign(n_, 1);
    std::vector<u8> now(n_);
    for (i64 t = 0; t < steps_; ++t) {
      double top = -kInf, c = 0;
      for (int j = 0; j < n_; ++j) top = std::max(top, u(t, j));
      if (!(top > -kInf)) return false;
      double* row = alpha_.data() + t * n_;
      std::fill_n(row, n_, t == 0 ? 1.0 : 0.0);
      std::fill(now.begin(), now.end(), u8{t == 0});
      if (t > 0) {
        if (!load(t - 1)) return false;
        for (int i = 0; i < n_; ++i) {
          const double x = alpha_[(t - 1) * n_ + i];
          if (!reach_[i]) continue;
          for (int j = 0; j < n_; ++j) row[j] += x * m_[static_cast<i64>(i) * n_ + j];
          for (int j = 0; j < n_; ++j) now[j] |= m_[static_cast<i64>(i) * n_ + j] > 0;
        }
      }
      for (int j = 0; j < n_; ++j) {
        e[j] = std::exp(u(t, j) - top);
        if (u(t, j) > -kInf && e[j] < kSmall) return false;
        row[j] *= e[j];
        c += row[j];
        now[j] = now[j] && u(t, j) > -kInf;
      }
      if (!(c > kSmall)) return false;
      inverse[t] = 1 / c;
      for (int j = 0; j < n_; ++j) {
        row[j] *= inverse[t];
        q_[t * n_ + j] = e[j] * inverse[t];
        if (now[j] && row[j] < kSmall) return false;
      }
      std::swap(now, reach_);
    }
    std::fill_n(beta_.data() + (steps_ - 1) * n_, n_, 1.0);
    for (i64 t = steps_ - 1; t >= 0; --t) {
      if (t + 1 < steps_) {
        load(t);
        for (int i = 0; i < n_; ++i) {
          double total = 0;
          for (int j = 0; j < n_; ++j) total += m_[static_cast<i64>(i) * n_ + j] * q_[(t + 1) * n_ + j];
          beta_[t * n_ + i] = alpha_[t * n_ + i] > 0 ? total : 0;
        }
      }
      for (int j = 0; j < n_; ++j) {
        q_[t * n_ + j] *= beta_[t * n_ + j];
        gamma_[t * n_ + j] = alpha_[t * n_ + j] * beta_[t * n_ + j];
      }
    }
    return true;
  }

  template <class X>
  double log_sum(X x) const {
    double top = -kInf, total = 0;
    for (int j = 0; j < n_; ++j) top = std::max(top, x(j));
    if (!(top > -kInf)) return top;
    for (int j = 0; j < n_; ++j) total += std::exp(x(j) - top);
    return top + std::log(total);
  }

  // alpha, beta and q hold logarithms; each step's are lowered so that sum exp(alpha) = 1, sum exp(alpha + beta) = 1.
  bool in_logs() {
    edge_scale_.assign(steps_, 0);
    for (i64 t = 0; t < steps_; ++t) {
      double* row = alpha_.data() + t * n_;
      for (int j = 0; j < n_; ++j)
        row[j] = u(t, j) + (t == 0 ? 0.0 : log_sum([&](int i) { return alpha_[(t - 1) * n_ + i] + a(t - 1, i, j); }));
      const double total = log_sum([&](int j) { return row[j]; });
      if (!(total > -kInf)) return false;
      for (int j = 0; j < n_; ++j) row[j] -= total;
    }
    for (i64 t = steps_ - 1; t >= 0; --t) {
      double* b = beta_.data() + t * n_;
      const double* al = alpha_.data() + t * n_;
      for (int i = 0; i < n_; ++i)
        b[i] = t + 1 == steps_ ? 0.0 : log_sum([&](int j) { return a(t, i, j) + q_[(t + 1) * n_ + j]; });
      const double total = log_sum([&](int i) { return al[i] + b[i]; });
      edge_scale_[t] = total;
      for (int j = 0; j < n_; ++j) {
        b[j] -= total;
        q_[t * n_ + j] = u(t, j) + b[j];
        gamma_[t * n_ + j] = al[j] > -kInf ? std::exp(al[j] + b[j]) : 0;
      }
    }
    return true;
  }

  double pair(i64 t, int i, int j) const {
    const double x = alpha_[t * n_ + i], y = q_[(t + 1) * n_ + j];
    if (!logs_) return x * m_[static_cast<i64>(i) * n_ + j] * y;
    const double z = x + a(t, i, j) + y;
    return z > -kInf ? std::exp(z - edge_scale_[t]) : 0;
  }

  void centre() {
    shift_.assign(steps_, 0);
    for (i64 t = 0; t < steps_; ++t)
      for (int j = 0; j < n_; ++j)
        if (gamma_[t * n_ + j] > 0) shift_[t] += gamma_[t * n_ + j] * static_cast<double>(r_[t * n_ + j]);
  }

  // The two passes weigh with P(i, j); dividing by their sum makes that P(i | j) and P(j | i), also where
  // P(j) itself is too small for a quotient of two probabilities.
  void forward() {
    std::vector<double> part(n_), sum(n_);
    for (i64 t = 0; t < steps_; ++t) {
      std::fill(part.begin(), part.end(), 0.0);
      std::fill(sum.begin(), sum.end(), 0.0);
      if (t > 0) {
        load(t - 1);
        for (int i = 0; i < n_; ++i) {
          const double fi = f_[(t - 1) * n_ + i];
          for (int j = 0; j < n_; ++j) {
            double w;
            if (logs_) {
              const double z = alpha_[(t - 1) * n_ + i] + a(t - 1, i, j) + u(t, j) - alpha_[t * n_ + j];
              w = z > -kInf && alpha_[t * n_ + j] > -kInf ? std::exp(z - forward_scale(t)) : 0;
            } else {
              w = alpha_[(t - 1) * n_ + i] * m_[static_cast<i64>(i) * n_ + j];
            }
            if (w > 0) part[j] += w * (fi + extra(t - 1, i, j));
            sum[j] += w;
          }
        }
      }
      for (int j = 0; j < n_; ++j)
        f_[t * n_ + j] = gamma_[t * n_ + j] > 0 ? r_at(t, j) + (sum[j] > 0 ? part[j] / sum[j] : 0) : 0;
    }
  }

  // In log space sum_i exp(alpha[t-1][i] + a + u - alpha[t][j]) is the same constant for all j; it cancels.
  double forward_scale(i64 t) {
    if (scaled_at_ == t) return scale_;
    int best = 0;
    for (int j = 0; j < n_; ++j)
      if (alpha_[t * n_ + j] > alpha_[t * n_ + best]) best = j;
    scale_ = u(t, best) - alpha_[t * n_ + best] +
             log_sum([&](int i) { return alpha_[(t - 1) * n_ + i] + a(t - 1, i, best); });
    scaled_at_ = t;
    return scale_;
  }

  void backward() {
    for (i64 t = steps_ - 1; t >= 0; --t) {
      if (t + 1 < steps_) load(t);
      for (int i = 0; i < n_; ++i) {
        double part = 0, sum = 0;
        if (t + 1 < steps_ && gamma_[t * n_ + i] > 0)
          for (int j = 0; j < n_; ++j) {
            const double y = q_[(t + 1) * n_ + j];
            double w;
            if (logs_) {
              const double z = a(t, i, j) + y - beta_[t * n_ + i] - edge_scale_[t];
              w = z > -kInf ? std::exp(z) : 0;
            } else {
              w = m_[static_cast<i64>(i) * n_ + j] * y;
            }
            if (w > 0) part += w * (extra(t, i, j) + r_at(t + 1, j) + g_[(t + 1) * n_ + j]);
            sum += w;
          }
        g_[t * n_ + i] = sum > 0 ? part / sum : 0;
      }
    }
  }

  static constexpr double kSmall = 1e-290;
  int n_ = 0;
  i64 steps_ = 0, jump_ = 0, loaded_ = -1, scaled_at_ = -1;
  double scale_ = 0;
  bool logs_ = false, kept_ = true;
  const T *u_ = nullptr, *a_ = nullptr, *r_ = nullptr, *ra_ = nullptr;
  std::vector<double> alpha_, beta_, q_, gamma_, f_, g_, m_, shift_, edge_scale_;
  std::vector<u8> reach_;
};

}  // namespace

template <class T>
void covariance(const ChainInput<T>& in, const T* r, const T* ra, const double* weight, const Threads& threads,
                double* mean, T* nodes, double* pairs, T* edges) {
  const std::vector<i64> first = edge_offsets(in.offsets, in.n_seq);
  const i64 size = static_cast<i64>(in.n_labels) * in.n_labels;
  const i64 n_chunks = std::min(kChunks, std::max<i64>(1, in.n_seq));
  std::vector<double> parts(pairs ? n_chunks * size : 0, 0.0);
  std::vector<std::unique_ptr<Moments<T>>> workers(threads.count);
  parallel_for(n_chunks, threads.count, threads.poll, [&](i64 chunk, int thread) {
    if (!workers[thread]) workers[thread] = std::make_unique<Moments<T>>();
    for (i64 s = in.n_seq * chunk / n_chunks; s < in.n_seq * (chunk + 1) / n_chunks; ++s)
      workers[thread]->run(in, r, ra, weight ? weight[s] : 1.0, s, first[s], mean + s, nodes,
                           pairs ? parts.data() + chunk * size : nullptr, edges);
  });
  if (pairs) add_up(parts, n_chunks, size, pairs);
}

template void covariance(const ChainInput<float>&, const float*, const float*, const double*, const Threads&, double*,
                         float*, double*, float*);
template void covariance(const ChainInput<double>&, const double*, const double*, const double*, const Threads&,
                         double*, double*, double*, double*);

}  // namespace crfkit
