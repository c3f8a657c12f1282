// log_lattice.hpp: sum-product of one sequence in log space, slower and always right.
//
//   a[t][j] = u[t][j] + log sum_i exp(a[t-1][i] + s[i][j])
//   b[t][i] = log sum_j exp(s[i][j] + u[t+1][j] + b[t+1][j])
//
// Used for the few sequences whose scaled pass loses something (scaled_or_log.hpp).
#pragma once
#include <cmath>
#include <limits>
#include <vector>

#include "base/rows.hpp"

namespace crfkit::CRFKIT_ISA {

constexpr int kLogWidth = 4;
using LogSimd = Simd<double, kLogWidth>;

constexpr int log_stride(i64 n_labels) { return round_up(static_cast<int>(n_labels), kLogWidth); }

// out[j] = log sum_i exp(x[i] + m[i][j]), over `depth` rows of m  [depth][stride]
void log_rows_times(const double* x, const double* m, i64 depth, i64 stride, double* out);

class LogLattice {
 public:
  double log_z = 0;  // minus infinity when no path is allowed

  // Makes room. The caller writes the scores of step t, pads -inf, to row(t).
  void start(int n_steps, i64 n_labels);
  double* row(int t) { return u_.data() + t * stride_; }

  // Gives the scores of the transitions t -> t+1, or their transpose, pads -inf   [labels][log_stride]
  using Matrix = FunctionRef<const double*(int t)>;
  void run(Matrix matrix, Matrix transposed);
  // Only what follows; out [steps][labels]: log sum over all that may follow label i at t, zero at the last step
  void backward_messages(Matrix transposed, double* out);

  // Of labels and pairs after run(), if some path is allowed; score: that of i followed by j
  double node(int t, i64 j) const { return std::exp(a_[t * stride_ + j] + b_[t * stride_ + j] - node_scale_[t]); }
  double edge(int t, i64 i, i64 j, double score) const {
    const i64 next = (t + 1) * stride_ + j;
    return std::exp(a_[t * stride_ + i] + score + u_[next] + b_[next] - edge_scale_[t]);
  }

 private:
  double lower(double* x) const;
  void backward(Matrix transposed, FunctionRef<double(int)> together);

  int steps_ = 0;
  i64 n_ = 0, stride_ = 0;
  // scores, forward, backward   [steps][stride], pads -inf; a and b are lowered step by step so that they add up to
  // one: what is taken out of long sequences would cost them their precision
  Buffer<double> u_, a_, b_, out_;
  std::vector<double> node_scale_, edge_scale_;  // logarithm of what a b, and a m u b, add up to at a step
  std::vector<double> lowered_;                  // what was taken out of b at a step
};

}  // namespace crfkit::CRFKIT_ISA
