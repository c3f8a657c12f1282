// frozen_lattice.hpp: exact sum-product within given beams, on the lattice that has only the beams' labels.
//
//   alpha[t][k] = e[t][k] sum_i alpha[t-1][i] m[t-1][i][k] / c[t]        over the beams
//   log mass    = sum_t log c[t] + what was taken out of the scores
//
// Of a higher order, a slot is a label and the labels before it that the next one depends on. Then the slots of a step
// form groups, of those that differ only in the label that the next step forgets: g = slot / (slots of a group), and
// label k of the next step leads from group g to slot k * groups + g alone. For the first order all slots are one
// group.
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

  // first: the first slot of each step, and the end of the last one  [steps + 1]; groups: of the slots of each step
  // [steps], or null: one
  template <class Index>
  void start(int steps, const Index* first, const Index* groups = nullptr) {
    steps_ = steps;
    groups_.assign(steps, 1);
    if (groups) std::copy_n(groups, steps, groups_.begin());
    ptr_.resize(steps + 1);
    edge_.resize(std::max(1, steps));
    edge_[0] = 0;
    for (int t = 0; t <= steps; ++t) ptr_[t] = first[t] - first[0];
    for (int t = 1; t < steps; ++t) edge_[t] = edge_[t - 1] + size(t - 1) * next(t - 1);
    std::size_t most = 0;
    for (int t = 0; t + 1 < steps; ++t) most = std::max(most, next(t));
    row_.reserve(most + 1);
    const std::size_t slots = (ptr_[steps] + kWidth - 1) / kWidth * kWidth;
    for (Buffer<double>* b : {&u_, &e_, &alpha_, &beta_}) b->reserve(slots + kWidth);
    m_.reserve(edge_[std::max(1, steps) - 1] + kWidth);
    for (std::size_t k = ptr_[steps]; k < slots; ++k) u_[k] = -kInf;
  }

  // log_score(t, i, k): transition score between slot i of step t and label k of step t+1. lossy: m lost some of them.
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
  std::size_t next(int t) const { return size(t + 1) / groups_[t]; }  // labels that a slot leads to

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
      const std::size_t n = size(t);
      double* a = alpha_.data() + ptr_[t];
      double* e = e_.data() + ptr_[t];
      if (t == 0) {
        std::copy_n(e, n, a);
      } else {
        const double* last = alpha_.data() + ptr_[t - 1];
        const double* m = m_.data() + edge_[t - 1];
        const std::size_t groups = groups_[t - 1], many = size(t - 1) / groups, labels = next(t - 1);
        double* row = row_.data();
        for (std::size_t g = 0; g < groups; ++g) {
          std::fill_n(row, labels, 0.0);
          for (std::size_t i = 0; i < many; ++i, ++last, m += labels)
            for (std::size_t k = 0; k < labels; ++k) row[k] += *last * m[k];
          for (std::size_t k = 0; k < labels; ++k) a[k * groups + g] = row[k] * e[k * groups + g];
        }
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
      const std::size_t n = size(t), groups = groups_[t - 1], many = size(t - 1) / groups, labels = next(t - 1);
      double* a = alpha_.data() + ptr_[t];
      const double* last = alpha_.data() + ptr_[t - 1];
      double* q = e_.data() + ptr_[t];
      double* step = m_.data() + edge_[t - 1];
      for (std::size_t k = 0; k < n; ++k) {
        q[k] = a[k] > 0 ? q[k] * beta[k] : 0;  // what cannot be reached has no bound on its beta
        a[k] = a[k] > 0 ? a[k] * beta[k] : 0;
      }
      double* row = row_.data();
      for (std::size_t g = 0, i = 0; g < groups; ++g) {
        for (std::size_t k = 0; k < labels; ++k) row[k] = q[k * groups + g];
        for (const std::size_t end = i + many; i < end; ++i, step += labels) {
          double total = 0;
          for (std::size_t k = 0; k < labels; ++k) {
            const double x = step[k] * row[k];
            total += x;
            step[k] = last[i] * x;
          }
          beta[i] = total;
        }
      }
    }
    double* a = alpha_.data();
    for (std::size_t k = 0; k < size(0); ++k) a[k] = a[k] > 0 ? a[k] * beta[k] : 0;
  }

  // The slot of step t + 1 to which slot i of step t and label k lead.
  std::size_t target(int t, std::size_t i, std::size_t k) const { return k * groups_[t] + i / (size(t) / groups_[t]); }

  double in_log_space(FunctionRef<double(int, std::size_t, std::size_t)> log_score) {
    std::size_t n = 0;  // largest beam; smaller ones are padded
    for (int t = 0; t < steps_; ++t) n = std::max(n, size(t));
    const std::size_t stride = log_stride(n);
    pairs_.reserve(n * stride);
    const auto matrix = [&](int t, std::size_t down, std::size_t right) -> const double* {
      std::fill_n(pairs_.data(), n * stride, -kInf);
      for (std::size_t i = 0; i < size(t); ++i)
        for (std::size_t k = 0; k < next(t); ++k) pairs_[i * down + target(t, i, k) * right] = log_score(t, i, k);
      return pairs_.data();
    };
    logs_.start(steps_, n);
    for (int t = 0; t < steps_; ++t) pad_row(u_.data() + ptr_[t], size(t), stride, logs_.row(t));
    logs_.run([&](int t) { return matrix(t, stride, 1); }, [&](int t) { return matrix(t, 1, stride); });
    for (int t = 0; t < steps_ && logs_.log_z > -kInf; ++t)
      for (std::size_t i = 0; i < size(t); ++i) {
        alpha_[ptr_[t] + i] = logs_.node(t, i);
        for (std::size_t k = 0; t + 1 < steps_ && k < next(t); ++k)
          m_[edge_[t] + i * next(t) + k] = logs_.edge(t, i, target(t, i, k), log_score(t, i, k));
      }
    return logs_.log_z;
  }

  int steps_ = 0;
  std::vector<std::size_t> ptr_, edge_, groups_;
  Buffer<double> u_, e_, alpha_, beta_, m_, pairs_, row_;
  LogLattice logs_;
};

}  // namespace crfkit::CRFKIT_ISA
