// frozen_lattice.hpp: exact sum-product within given beams, on the lattice that has only the beams' labels.
//
//   alpha[t][k] = e[t][k] sum_i alpha[t-1][i] m[t-1][i][k] / c[t]        over the beams
//   log mass    = sum_t log c[t] + what was taken out of the scores
//
// In double precision whatever the model's, since the label that is always kept may have next to no belief; what is
// lost even so is done again in log space (log_lattice.hpp). Steps differ in their number of labels, unlike
// scaled_lattice.hpp's.
#pragma once
#include "chain/scaled_or_log.hpp"

namespace crfkit::CRFKIT_ISA {

class FrozenLattice {
  static constexpr int kWidth = kLogWidth;
  using S = Simd<double, kWidth>;
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  static constexpr double kLeast = 1e-100;  // products of three such numbers are still normal

 public:
  // What the caller fills in after start(): the scores of the beams' labels, and exp(transition score - shift)
  // between neighbouring beams, step after step.
  double* u() { return u_.data(); }
  double* m() { return m_.data(); }
  // What run() leaves: probabilities of the beams' labels, and, instead of m, of label pairs.
  const double* nodes() const { return alpha_.data(); }
  const double* edges() const { return m_.data(); }
  const std::vector<std::size_t>& edge_ptr() const { return edge_; }  // first pair of each step, and how many

  // first: the first slot of each step, and the end of the last one  [steps + 1]
  template <class Index>
  void start(int steps, const Index* first) {
    steps_ = steps;
    ptr_.resize(steps + 1);
    edge_.resize(std::max(1, steps));
    edge_[0] = 0;
    for (int t = 0; t <= steps; ++t) ptr_[t] = first[t] - first[0];
    for (int t = 1; t < steps; ++t) edge_[t] = edge_[t - 1] + size(t - 1) * size(t);
    const std::size_t slots = (ptr_[steps] + kWidth - 1) / kWidth * kWidth;
    for (Buffer<double>* b : {&u_, &e_, &alpha_, &beta_}) b->reserve(slots + kWidth);
    m_.reserve(edge_[std::max(1, steps) - 1] + 1);
    for (std::size_t k = ptr_[steps]; k < slots; ++k) u_[k] = -kInf;
  }

  // log_score(t, i, k): transition score between slots i of step t and k of step t+1. lossy: m lost some of them.
  // shift: total of what the m of all steps were divided by. Gives the log mass.
  double run(bool lossy, double shift, FunctionRef<double(int, std::size_t, std::size_t)> log_score) {
    if (steps_ == 0) return 0;
    const double log_mass = lossy ? std::numeric_limits<double>::quiet_NaN() : forward();
    if (!(log_mass == log_mass)) return in_log_space(log_score);
    backward();
    return log_mass + shift;
  }

 private:
  std::size_t size(int t) const { return ptr_[t + 1] - ptr_[t]; }

  // NaN if something was lost
  double forward() {
    const double lost = std::numeric_limits<double>::quiet_NaN();
    double log_mass = 0, product = 1;
    for (int t = 0; t < steps_; ++t) {
      double high = -kInf;
      for (std::size_t k = ptr_[t]; k < ptr_[t + 1]; ++k) high = std::max(high, u_[k]);
      if (!(high > -kInf)) return lost;
      for (std::size_t k = ptr_[t]; k < ptr_[t + 1]; ++k) e_[k] = u_[k] - high;
      log_mass += high;
    }
    typename S::Mask small = {};
    for (std::size_t k = ptr_[steps_]; k % kWidth; ++k) e_[k] = -kInf;
    for (std::size_t k = 0; k < ptr_[steps_]; k += kWidth) {
      const typename S::Vec x = S::load(e_.data() + k), y = S::exp(x);
      small |= (x > -kInf) & (y < kLeast);
      S::store(e_.data() + k, y);
    }
    if (S::any(small)) return lost;
    for (int t = 0; t < steps_; ++t) {  // recursion: forward
      const std::size_t n = size(t), before = t > 0 ? size(t - 1) : 0;
      double* a = alpha_.data() + ptr_[t];
      double* e = e_.data() + ptr_[t];
      if (t == 0) {
        std::copy_n(e, n, a);
      } else {
        const double* last = alpha_.data() + ptr_[t - 1];
        const double* m = m_.data() + edge_[t - 1];
        std::fill_n(a, n, 0.0);
        for (std::size_t i = 0; i < before; ++i)
          for (std::size_t k = 0; k < n; ++k) a[k] += last[i] * m[i * n + k];
        for (std::size_t k = 0; k < n; ++k) a[k] *= e[k];
      }
      double c = 0;
      for (std::size_t k = 0; k < n; ++k) c += a[k];
      if (!(c >= kLeast)) return lost;
      const double scale = 1 / c;
      for (std::size_t k = 0; k < n; ++k) {
        a[k] *= scale;
        e[k] *= scale;
        if (a[k] < kLeast && a[k] != 0) return lost;
      }
      product *= c;
      if (product < 1e-100 || product > 1e100) {
        log_mass += std::log(product);
        product = 1;
      }
    }
    return log_mass + std::log(product);
  }

  void backward() {
    double* beta = beta_.data();
    std::fill_n(beta, size(steps_ - 1), 1.0);
    for (int t = steps_ - 1; t > 0; --t) {  // recursion: backward
      const std::size_t n = size(t), m = size(t - 1);
      double* a = alpha_.data() + ptr_[t];
      const double* last = alpha_.data() + ptr_[t - 1];
      double* q = e_.data() + ptr_[t];
      double* step = m_.data() + edge_[t - 1];
      for (std::size_t k = 0; k < n; ++k) {
        q[k] = a[k] > 0 ? q[k] * beta[k] : 0;  // what cannot be reached has no bound on its beta
        a[k] = a[k] > 0 ? a[k] * beta[k] : 0;
      }
      for (std::size_t i = 0; i < m; ++i) {
        double total = 0;
        for (std::size_t k = 0; k < n; ++k) {
          const double x = step[i * n + k] * q[k];
          total += x;
          step[i * n + k] = last[i] * x;
        }
        beta[i] = total;
      }
    }
    double* a = alpha_.data();
    for (std::size_t k = 0; k < size(0); ++k) a[k] = a[k] > 0 ? a[k] * beta[k] : 0;
  }

  double in_log_space(FunctionRef<double(int, std::size_t, std::size_t)> log_score) {
    std::size_t n = 0;  // largest beam; smaller ones are padded
    for (int t = 0; t < steps_; ++t) n = std::max(n, size(t));
    const std::size_t stride = log_stride(n);
    pairs_.reserve(n * stride);
    const auto matrix = [&](int t, std::size_t down, std::size_t right) -> const double* {
      std::fill_n(pairs_.data(), n * stride, -kInf);
      for (std::size_t i = 0; i < size(t); ++i)
        for (std::size_t k = 0; k < size(t + 1); ++k) pairs_[i * down + k * right] = log_score(t, i, k);
      return pairs_.data();
    };
    logs_.start(steps_, n);
    for (int t = 0; t < steps_; ++t) pad_row(u_.data() + ptr_[t], size(t), stride, logs_.row(t));
    logs_.run([&](int t) { return matrix(t, stride, 1); }, [&](int t) { return matrix(t, 1, stride); });
    for (int t = 0; t < steps_ && logs_.log_z > -kInf; ++t)
      for (std::size_t i = 0; i < size(t); ++i) {
        alpha_[ptr_[t] + i] = logs_.node(t, i);
        for (std::size_t k = 0; t + 1 < steps_ && k < size(t + 1); ++k)
          m_[edge_[t] + i * size(t + 1) + k] = logs_.edge(t, i, k, log_score(t, i, k));
      }
    return logs_.log_z;
  }

  int steps_ = 0;
  std::vector<std::size_t> ptr_, edge_;
  Buffer<double> u_, e_, alpha_, beta_, m_, pairs_;
  LogLattice logs_;
};

}  // namespace crfkit::CRFKIT_ISA
