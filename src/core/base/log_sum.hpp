// log_sum.hpp: the logarithm of a sum of exponentials.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

namespace crfkit {

// log sum_i exp(x(i)) for i < n; minus infinity if all are.
template <class N, class X>
double log_sum(N n, X x) {
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (N i = 0; i < n; ++i) top = std::max(top, x(i));
  if (!(top > -std::numeric_limits<double>::infinity())) return top;
  for (N i = 0; i < n; ++i) total += std::exp(x(i) - top);  // recursion: log-sum-exp
  return top + std::log(total);
}

// x becomes exp(x) / sum exp(x). False, and all zero, if all are minus infinity.
template <class N>
bool softmax(double* x, N n) {
  const double top = *std::max_element(x, x + n);
  const bool any = top > -std::numeric_limits<double>::infinity();
  double sum = 0;
  for (N i = 0; i < n; ++i) sum += x[i] = any ? std::exp(x[i] - top) : 0.0;
  for (N i = 0; any && i < n; ++i) x[i] /= sum;
  return any;
}

}  // namespace crfkit
