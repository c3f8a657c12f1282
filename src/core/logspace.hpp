// logspace.hpp: sum-product of one sequence in log space, slower and always right.
//
//   a[t][j] = u[t][j] + log sum_i exp(a[t-1][i] + s[i][j])      b[t][i] = log sum_j exp(s[i][j] + u[t+1][j] + b[t+1][j])
//
// Used for the few sequences whose scaled pass loses something.
#pragma once
#include <cmath>

#include "rows.hpp"

namespace crfkit::CRFKIT_ISA {

constexpr int kLogWidth = 4;
using LogSimd = Simd<double, kLogWidth>;

constexpr int log_stride(int n_labels) { return round_up(n_labels, kLogWidth); }

// out[j] = log sum_i exp(x[i] + m[i][j])
inline void log_rows_times(const double* x, const double* m, int n_labels, int stride, double* out) {
  using S = LogSimd;
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (int v = 0; v < stride; v += kLogWidth) {
    S::Vec top = S::splat(-inf);
    for (int i = 0; i < n_labels; ++i) top = S::max(top, S::load(m + static_cast<i64>(i) * stride + v) + x[i]);
    const S::Vec safe = top > -inf ? top : S::Vec{};
    S::Vec total = {};
    for (int i = 0; i < n_labels; ++i)
      total += S::exp(S::load(m + static_cast<i64>(i) * stride + v) + x[i] - safe);
    for (int k = 0; k < kLogWidth; ++k) out[v + k] = top[k] > -inf ? safe[k] + std::log(total[k]) : -inf;
  }
}

class LogLattice {
 public:
  Buffer<double> u, a, b;  // scores, forward, backward   [T][stride], pads -inf
  double log_z = 0;        // minus infinity when no path is allowed

  // Row(t, out) writes the scores of step t; Matrix(t, out) those of the transitions t -> t+1, or of their
  // transpose; both with pads -inf.
  template <class Row, class Matrix, class Transposed>
  void run(int n_steps, int n_labels, Row row, Matrix matrix, Transposed transposed) {
    n_labels_ = n_labels;
    stride_ = log_stride(n_labels);
    const std::size_t size = static_cast<std::size_t>(n_steps) * stride_;
    for (Buffer<double>* x : {&u, &a, &b}) x->reserve(size);
    Buffer<double> out(stride_);
    for (int t = 0; t < n_steps; ++t) row(t, u.data() + at(t));
    std::copy_n(u.data(), stride_, a.data());
    for (int t = 1; t < n_steps; ++t) {
      log_rows_times(a.data() + at(t - 1), matrix(t - 1), n_labels, stride_, out.data());
      for (int j = 0; j < stride_; ++j) a[at(t) + j] = u[at(t) + j] + out[j];
    }
    log_z = log_sum(a.data() + at(n_steps - 1));
    std::fill_n(b.data() + at(n_steps - 1), stride_, 0.0);
    for (int t = n_steps - 2; t >= 0; --t) {
      for (int j = 0; j < stride_; ++j) out[j] = u[at(t + 1) + j] + b[at(t + 1) + j];
      log_rows_times(out.data(), transposed(t), n_labels, stride_, b.data() + at(t));
    }
  }

  double node(int t, int j) const { return std::exp(a[at(t) + j] + b[at(t) + j] - log_z); }
  // score: that of i followed by j
  double edge(int t, int i, int j, double score) const {
    return std::exp(a[at(t) + i] + score + u[at(t + 1) + j] + b[at(t + 1) + j] - log_z);
  }

 private:
  std::size_t at(int t) const { return static_cast<std::size_t>(t) * stride_; }
  double log_sum(const double* x) const {
    double top = -std::numeric_limits<double>::infinity(), total = 0;
    for (int j = 0; j < n_labels_; ++j) top = std::max(top, x[j]);
    if (!(top > -std::numeric_limits<double>::infinity())) return top;
    for (int j = 0; j < n_labels_; ++j) total += std::exp(x[j] - top);
    return top + std::log(total);
  }

  int n_labels_ = 0, stride_ = 0;
};

}  // namespace crfkit::CRFKIT_ISA
