// entropies.hpp: the entropies of one sequence, by the probabilities of its labels and pairs.
#pragma once
#include <vector>

#include "base/base.hpp"

namespace crfkit {

struct Entropies {
  double total = 0;
  std::vector<double> node, step;     // H(y_t) [steps], H(y_t+1 | y_t) [steps - 1]
  std::vector<double> before, after;  // H(y_<t | y_t = j), H(y_>t | y_t = i)   [steps][labels]
};

// gamma: [steps][stride]; pairs(t): those of t and t+1 [labels][stride]. The lattices before and after only if asked.
Entropies entropies_of(int steps, i64 n_labels, i64 stride, const double* gamma, FunctionRef<const double*(int)> pairs,
                       bool lattices);

}  // namespace crfkit
