// plain_covariance.hpp: what covariance.hpp computes for packs, in its plain form: for one sequence in double
// precision, where transitions differ from step to step and where scaling lost something.
//
//   f[t][j] = u[t][j] + sum_i P(i at t-1 | j at t) (f[t-1][i] + a[t-1][i][j])         E[score up to t | j at t]
//   b[t][i] = sum_j P(j at t+1 | i at t) (a[t][i][j] + u[t+1][j] + b[t+1][j])          E[score behind t | i at t]
#pragma once
#include <vector>

#include "base/base.hpp"

namespace crfkit {

class PlainStatistics {
 public:
  // Entropies of what comes before and behind a label: H(y_<t | y_t = j), H(y_>t | y_t = i)   [steps][labels]
  std::vector<double> before, behind;
  std::vector<double> node_entropy, step_entropy;  // H(y_t) [steps], H(y_t+1 | y_t) [steps - 1]
  double entropy = 0;

  // What the caller fills in: marginals and scores
  std::vector<double> gamma, u;  // [steps][labels]
  void start(int steps, int n_labels) {
    steps_ = steps;
    n_ = n_labels;
    const std::size_t size = static_cast<std::size_t>(steps) * n_labels;
    gamma.resize(size);
    u.resize(size);
    xi_.resize(static_cast<std::size_t>(n_) * n_);
    a_.resize(xi_.size());
  }

  // Writes marginals and scores of the label pairs of t and t+1 to xi and a, [labels][labels].
  using Edges = FunctionRef<void(int t, double* xi, double* a)>;

  // Gives the gradient of H: node(t, d [labels]), edge(t, d [labels][labels]), from the last step to the first.
  void gradient(Edges edges, FunctionRef<void(int, const double*)> node, FunctionRef<void(int, const double*)> edge);

  // Fills the entropies, with logarithms; the lattices before and behind only if asked.
  void entropies(Edges edges, bool lattices);

 private:
  int steps_ = 0, n_ = 0;
  std::vector<double> xi_, a_, f_, b_, d_;
};

}  // namespace crfkit
