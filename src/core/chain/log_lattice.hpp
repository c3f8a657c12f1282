// log_lattice.hpp: sum-product of one sequence in log space, slower and always right.
//
//   a[t][j] = u[t][j] + log sum_i exp(a[t-1][i] + s[i][j])      b[t][i] = log sum_j exp(s[i][j] + u[t+1][j] +
//   b[t+1][j])
//
// Used for the few sequences whose scaled pass loses something.
#pragma once
#include <cmath>
#include <limits>
#include <vector>

#include "base/rows.hpp"

namespace crfkit::CRFKIT_ISA {

constexpr int kLogWidth = 4;
using LogSimd = Simd<double, kLogWidth>;

constexpr int log_stride(int n_labels) { return round_up(n_labels, kLogWidth); }

class LogLattice {
 public:
  // scores, forward, backward   [T][stride], pads -inf; a and b are shifted step by step so that their largest entry is
  // near zero: what is taken out of long sequences would cost them their precision
  Buffer<double> u, a, b;
  double log_z = 0;  // minus infinity when no path is allowed

  // row(t, out) writes the scores of step t; matrix(t) gives those of the transitions t -> t+1, transposed(t) their
  // transpose; all with pads -inf.
  void run(int n_steps, int n_labels, FunctionRef<void(int, double*)> row, FunctionRef<const double*(int)> matrix,
           FunctionRef<const double*(int)> transposed);

  double node(int t, int j) const { return std::exp(a[at(t) + j] + b[at(t) + j] - node_scale_[t]); }
  // score: that of i followed by j
  double edge(int t, int i, int j, double score) const {
    return std::exp(a[at(t) + i] + score + u[at(t + 1) + j] + b[at(t + 1) + j] - edge_scale_[t]);
  }

 private:
  std::size_t at(int t) const { return static_cast<std::size_t>(t) * stride_; }
  double lower(double* x) const;

  int n_labels_ = 0, stride_ = 0;
  std::vector<double> node_scale_, edge_scale_;  // logarithm of what a b, and a m u b, add up to at a step
};

}  // namespace crfkit::CRFKIT_ISA
