#include "chain/plain_covariance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clones.hpp"

namespace crfkit {

CRFKIT_CLONES void PlainStatistics::gradient(Edges edges, FunctionRef<void(int, const double*)> node,
                                             FunctionRef<void(int, const double*)> edge) {
  const std::size_t n = n_;
  f_.assign(gamma.size(), 0.0);
  b_.assign(gamma.size(), 0.0);
  for (int t = 0; t < steps_; ++t) {
    double* f = f_.data() + t * n;
    double mean = 0;
    for (std::size_t j = 0; j < n; ++j) mean += gamma[t * n + j] > 0 ? gamma[t * n + j] * u[t * n + j] : 0.0;
    if (t > 0) {
      edges(t - 1, xi_.data(), a_.data());
      for (std::size_t k = 0; k < n * n; ++k) mean += xi_[k] > 0 ? xi_[k] * a_[k] : 0.0;
      for (std::size_t j = 0; j < n; ++j) {
        double total = 0, sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
          const double x = xi_[i * n + j];
          if (!(x > 0)) continue;
          total += x;
          sum += x * (f_[(t - 1) * n + i] + a_[i * n + j]);
        }
        f[j] = total > 0 ? sum / total : 0.0;
      }
    }
    for (std::size_t j = 0; j < n; ++j) {
      u[t * n + j] = u[t * n + j] > -std::numeric_limits<double>::infinity() ? u[t * n + j] - mean : 0.0;
      f[j] += u[t * n + j];
    }
  }
  double r = 0;
  for (std::size_t j = 0; j < n; ++j) r += gamma[(steps_ - 1) * n + j] * f_[(steps_ - 1) * n + j];
  for (int t = steps_ - 1; t >= 0; --t) {
    if (t + 1 < steps_) {
      edges(t, xi_.data(), a_.data());
      d_.assign(n * n, 0.0);
      for (std::size_t i = 0; i < n; ++i) {
        double total = 0, sum = 0;
        for (std::size_t j = 0; j < n; ++j) {
          const double x = xi_[i * n + j];
          if (!(x > 0)) continue;
          const double behind_it = a_[i * n + j] + u[(t + 1) * n + j] + b_[(t + 1) * n + j];
          total += x;
          sum += x * behind_it;
          d_[i * n + j] = -x * (f_[t * n + i] + behind_it - r);
        }
        b_[t * n + i] = total > 0 ? sum / total : 0.0;
      }
      edge(t, d_.data());
    }
    d_.resize(n * n);
    for (std::size_t j = 0; j < n; ++j) d_[j] = -gamma[t * n + j] * (f_[t * n + j] + b_[t * n + j] - r);
    node(t, d_.data());
  }
}

void PlainStatistics::entropies(Edges edges, bool lattices) {
  const std::size_t n = n_;
  const auto plogp = [](double x) { return x > 0 ? x * std::log(x) : 0.0; };
  node_entropy.assign(steps_, 0.0);
  step_entropy.assign(std::max(0, steps_ - 1), 0.0);
  before.assign(lattices ? gamma.size() : 0, 0.0);
  behind.assign(lattices ? gamma.size() : 0, 0.0);
  for (int t = 0; t < steps_; ++t)
    for (std::size_t j = 0; j < n; ++j) node_entropy[t] -= plogp(gamma[t * n + j]);
  entropy = steps_ > 0 ? node_entropy[0] : 0.0;
  // H(other | this) of one label, out of its row (or column) of pair probabilities; past: what lies beyond the other
  const auto given = [&](std::size_t first, std::size_t step, const double* past) {
    double total = 0, sum = 0;
    for (std::size_t k = 0; k < n; ++k) total += xi_[first + k * step];
    if (!(total > 0)) return 0.0;
    for (std::size_t k = 0; k < n; ++k) {
      const double x = xi_[first + k * step] / total;
      sum += x > 0 ? x * (past[k] - std::log(x)) : 0.0;
    }
    return sum;
  };
  const std::vector<double> none(n, 0.0);
  for (int t = 0; t + 1 < steps_; ++t) {
    edges(t, xi_.data(), a_.data());
    for (std::size_t i = 0; i < n; ++i) step_entropy[t] += gamma[t * n + i] * given(i * n, 1, none.data());
    entropy += step_entropy[t];
    if (!lattices) continue;
    for (std::size_t j = 0; j < n; ++j) before[(t + 1) * n + j] = given(j, n, before.data() + t * n);
  }
  if (!lattices) return;
  for (int t = steps_ - 2; t >= 0; --t) {
    edges(t, xi_.data(), a_.data());
    for (std::size_t i = 0; i < n; ++i) behind[t * n + i] = given(i * n, 1, behind.data() + (t + 1) * n);
  }
}

}  // namespace crfkit
