// log_lattice.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "chain/log_lattice.hpp"

#include <algorithm>

#include "base/log_sum.hpp"

namespace crfkit::CRFKIT_ISA {

void log_rows_times(const double* x, const double* m, i64 depth, i64 stride, double* out) {
  using S = LogSimd;
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (i64 v = 0; v < stride; v += kLogWidth) {  // recursion: log-sum-exp
    S::Vec top = S::splat(-inf);
    for (i64 i = 0; i < depth; ++i) top = S::max(top, S::load(m + i * stride + v) + x[i]);
    const S::Vec safe = top > -inf ? top : S::Vec{};
    S::Vec total = {};
    for (i64 i = 0; i < depth; ++i) total += S::exp(S::load(m + i * stride + v) + x[i] - safe);
    for (int k = 0; k < kLogWidth; ++k) out[v + k] = top[k] > -inf ? safe[k] + std::log(total[k]) : -inf;
  }
}

// Takes the logarithm of its sum out of a row; gives it.
double LogLattice::lower(double* x) const {
  const double total = log_sum(n_, [x](i64 j) { return x[j]; });
  if (total > -std::numeric_limits<double>::infinity())
    for (i64 j = 0; j < n_; ++j) x[j] -= total;
  return total;
}

void LogLattice::start(int n_steps, i64 n_labels) {
  steps_ = n_steps;
  n_ = n_labels;
  stride_ = log_stride(n_labels);
  for (Buffer<double>* x : {&u_, &a_, &b_}) x->reserve(n_steps * stride_);
  out_.reserve(stride_);
  node_scale_.resize(n_steps);
  edge_scale_.resize(n_steps);
  lowered_.resize(n_steps);
}

void LogLattice::run(Matrix matrix, Matrix transposed) {
  log_z = 0;
  for (int t = 0; t < steps_; ++t) {  // recursion: forward
    double* a = a_.data() + t * stride_;
    std::copy_n(row(t), stride_, a);
    if (t > 0) {
      log_rows_times(a - stride_, matrix(t - 1), n_, stride_, out_.data());
      for (i64 j = 0; j < stride_; ++j) a[j] += out_[j];
    }
    log_z += lower(a);
  }
  if (!(log_z > -std::numeric_limits<double>::infinity())) return;
  backward(transposed, [&](int t) {  // sum_j a b = sum_ij a m u b, so both are normalised by it
    return log_sum(n_, [&](i64 j) { return a_[t * stride_ + j] + b_[t * stride_ + j]; });
  });
}

// together(t): the logarithm of what a b adds up to; none: only what follows is asked for
void LogLattice::backward(Matrix transposed, FunctionRef<double(int)> together) {
  std::fill_n(b_.data() + (steps_ - 1) * stride_, stride_, 0.0);
  lowered_[steps_ - 1] = node_scale_[steps_ - 1] = 0;
  for (int t = steps_ - 2; t >= 0; --t) {  // recursion: backward
    double* b = b_.data() + t * stride_;
    for (i64 j = 0; j < stride_; ++j) out_[j] = row(t + 1)[j] + b[stride_ + j];
    log_rows_times(out_.data(), transposed(t), n_, stride_, b);
    if (together) edge_scale_[t] = together(t);
    lowered_[t] = lower(b);
    if (together) node_scale_[t] = together(t);
  }
}

void LogLattice::backward_messages(Matrix transposed, double* out) {
  backward(transposed, {});
  double lowered = 0;
  for (int t = steps_ - 1; t >= 0; --t) {
    if (lowered_[t] > -std::numeric_limits<double>::infinity()) lowered += lowered_[t];
    for (i64 j = 0; j < n_; ++j) out[t * n_ + j] = b_[t * stride_ + j] + lowered;
  }
}

}  // namespace crfkit::CRFKIT_ISA
