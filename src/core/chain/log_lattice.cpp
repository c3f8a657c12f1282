// log_lattice.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "chain/log_lattice.hpp"

#include <algorithm>

#include "base/log_sum.hpp"

namespace crfkit::CRFKIT_ISA {
namespace {

// out[j] = log sum_i exp(x[i] + m[i][j])
void log_rows_times(const double* x, const double* m, int n_labels, int stride, double* out) {
  using S = LogSimd;
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (int v = 0; v < stride; v += kLogWidth) {
    S::Vec top = S::splat(-inf);
    for (int i = 0; i < n_labels; ++i) top = S::max(top, S::load(m + static_cast<i64>(i) * stride + v) + x[i]);
    const S::Vec safe = top > -inf ? top : S::Vec{};
    S::Vec total = {};
    for (int i = 0; i < n_labels; ++i) total += S::exp(S::load(m + static_cast<i64>(i) * stride + v) + x[i] - safe);
    for (int k = 0; k < kLogWidth; ++k) out[v + k] = top[k] > -inf ? safe[k] + std::log(total[k]) : -inf;
  }
}

}  // namespace

// Takes the logarithm of its sum out of a row; gives it.
double LogLattice::lower(double* x) const {
  const double total = log_sum(n_labels_, [x](int j) { return x[j]; });
  if (total > -std::numeric_limits<double>::infinity())
    for (int j = 0; j < n_labels_; ++j) x[j] -= total;
  return total;
}

void LogLattice::run(int n_steps, int n_labels, FunctionRef<void(int, double*)> row,
                     FunctionRef<const double*(int)> matrix, FunctionRef<const double*(int)> transposed) {
  n_labels_ = n_labels;
  stride_ = log_stride(n_labels);
  const std::size_t size = static_cast<std::size_t>(n_steps) * stride_;
  for (Buffer<double>* x : {&u, &a, &b}) x->reserve(size);
  Buffer<double> out(stride_);
  node_scale_.resize(n_steps);
  edge_scale_.resize(n_steps);
  for (int t = 0; t < n_steps; ++t) row(t, u.data() + at(t));
  std::copy_n(u.data(), stride_, a.data());
  log_z = lower(a.data());
  for (int t = 1; t < n_steps; ++t) {
    log_rows_times(a.data() + at(t - 1), matrix(t - 1), n_labels, stride_, out.data());
    for (int j = 0; j < stride_; ++j) a[at(t) + j] = u[at(t) + j] + out[j];
    log_z += lower(a.data() + at(t));
  }
  if (!(log_z > -std::numeric_limits<double>::infinity())) return;
  std::fill_n(b.data() + at(n_steps - 1), stride_, 0.0);
  node_scale_[n_steps - 1] = 0;
  for (int t = n_steps - 2; t >= 0; --t) {
    for (int j = 0; j < stride_; ++j) out[j] = u[at(t + 1) + j] + b[at(t + 1) + j];
    log_rows_times(out.data(), transposed(t), n_labels, stride_, b.data() + at(t));
    // sum_j a b = sum_ij a m u b, so both are normalised by it
    const auto together = [&](int j) { return a[at(t) + j] + b[at(t) + j]; };
    edge_scale_[t] = log_sum(n_labels, together);
    lower(b.data() + at(t));
    node_scale_[t] = log_sum(n_labels, together);
  }
}

}  // namespace crfkit::CRFKIT_ISA
