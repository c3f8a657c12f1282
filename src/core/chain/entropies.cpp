#include "chain/entropies.hpp"

#include <algorithm>
#include <cmath>

namespace crfkit {

Entropies entropies_of(int steps, i64 n, i64 stride, const double* gamma, FunctionRef<const double*(int)> pairs,
                       bool lattices) {
  Entropies out;
  out.node.assign(steps, 0.0);
  out.step.assign(std::max(0, steps - 1), 0.0);
  out.before.assign(lattices ? steps * n : 0, 0.0);
  out.after.assign(lattices ? steps * n : 0, 0.0);
  for (int t = 0; t < steps; ++t)
    for (i64 j = 0; j < n; ++j) {
      const double x = gamma[t * stride + j];
      out.node[t] -= x > 0 ? x * std::log(x) : 0.0;
    }
  out.total = steps > 0 ? out.node[0] : 0.0;
  // H(other | this) of one label, out of its row (or column) of pair probabilities; past: what lies beyond the other
  const auto given = [&](const double* xi, i64 step, const double* past) {
    double total = 0, sum = 0;
    for (i64 k = 0; k < n; ++k) total += xi[k * step];
    if (!(total > 0)) return 0.0;
    for (i64 k = 0; k < n; ++k) {
      const double x = xi[k * step] / total;
      sum += x > 0 ? x * (past[k] - std::log(x)) : 0.0;
    }
    return sum;
  };
  const std::vector<double> none(n, 0.0);
  for (int t = 0; t + 1 < steps; ++t) {  // recursion: entropy
    const double* xi = pairs(t);
    for (i64 i = 0; i < n; ++i) out.step[t] += gamma[t * stride + i] * given(xi + i * stride, 1, none.data());
    out.total += out.step[t];
    for (i64 j = 0; lattices && j < n; ++j)
      out.before[(t + 1) * n + j] = given(xi + j, stride, out.before.data() + t * n);
  }
  for (int t = steps - 2; lattices && t >= 0; --t) {
    const double* xi = pairs(t);
    for (i64 i = 0; i < n; ++i) out.after[t * n + i] = given(xi + i * stride, 1, out.after.data() + (t + 1) * n);
  }
  return out;
}

}  // namespace crfkit
