// pair_tables.hpp: tables of two variables beside vectors of each, for kernels.cpp; sums run in lanes, which become
// vectors.
#pragma once
#include <algorithm>
#include <limits>

#include "base/simd.hpp"
#include "graph/kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <int N>
CRFKIT_INLINE double pairwise_sum(const double* x) {
  if constexpr (N == 1) return *x;
  else return pairwise_sum<N / 2>(x) + pairwise_sum<N / 2>(x + N / 2);
}

// The sum of x(i) for i < n.
template <int N, class X>
CRFKIT_INLINE double lane_sum(i64 n, X x) {
  double lanes[N] = {};
  i64 i = 0;
  for (; i + N <= n; i += N)
    for (int k = 0; k < N; ++k) lanes[k] += x(i + k);
  for (; i < n; ++i) lanes[0] += x(i);
  return pairwise_sum<N>(lanes);
}

inline void up_rows(const double* theta, const double* v, i64 n, i64 m, double* out) {
  for (i64 r = 0; r < m; ++r) out[r] = 0;
  i64 i = 0;
  for (; i + 4 <= n; i += 4) {
    const double a = v[i], b = v[i + 1], c = v[i + 2], d = v[i + 3];
    const double* row = theta + i * m;
    for (i64 r = 0; r < m; ++r) out[r] += (row[r] * a + row[m + r] * b) + (row[2 * m + r] * c + row[3 * m + r] * d);
  }
  for (; i < n; ++i)
    for (i64 r = 0; r < m; ++r) out[r] += theta[i * m + r] * v[i];
}

inline void up_columns(const double* theta, const double* v, i64 n, i64 m, double* out) {
  for (i64 r = 0; r < m; ++r) {
    const double* row = theta + r * n;
    out[r] = lane_sum<4>(n, [&](i64 i) { return row[i] * v[i]; });
  }
}

inline void down_rows(const double* theta, const double* v, const double* w, i64 n, i64 m, double* out, double* node) {
  for (i64 i = 0; i < n; ++i) {
    const double* row = theta + i * m;
    double* o = out + i * m;
    const double scale = v[i];
    node[i] = lane_sum<8>(m, [&](i64 r) { return o[r] = row[r] * w[r] * scale; });
  }
}

inline void down_columns(const double* theta, const double* v, const double* w, i64 n, i64 m, double* out,
                         double* node) {
  for (i64 i = 0; i < n; ++i) node[i] = 0;
  for (i64 r = 0; r < m; ++r) {
    const double* row = theta + r * n;
    double* o = out + r * n;
    const double scale = w[r];
    for (i64 i = 0; i < n; ++i) {
      o[i] = row[i] * v[i] * scale;
      node[i] += o[i];
    }
  }
}

inline void scale_rows(double* table, const double* w, i64 step, i64 n, i64 m, double* node) {
  for (i64 i = 0; i < n; ++i, table += m, w += step) node[i] = lane_sum<8>(m, [&](i64 r) { return table[r] *= w[r]; });
}

inline void divide(const double* a, const double* b, double scale, i64 n, double* out) {
  for (i64 r = 0; r < n; ++r) {
    const double divisor = b[r] > 0 ? b[r] : 1.0, x = a[r] / divisor * scale;
    out[r] = b[r] > 0 ? x : 0.0;
  }
}

inline double divide_by_largest(double* x, i64 n, double& least) {
  using V = Simd<double, 8>;
  constexpr double none = std::numeric_limits<double>::infinity();
  V::Vec high = {}, low = V::splat(none);
  i64 i = 0;
  for (; i + 8 <= n; i += 8) {
    const V::Vec v = V::load(x + i);
    high = V::max(high, v);
    low = V::min(low, v > 0.0 ? v : V::splat(none));
  }
  double top = V::highest(high), small = V::lowest(low);
  for (; i < n; ++i) {
    top = std::max(top, x[i]);
    small = x[i] > 0 ? std::min(small, x[i]) : small;
  }
  if (!(top > 0)) return 0;
  const double factor = 1 / top;
  for (i = 0; i < n; ++i) x[i] *= factor;
  least = small * factor;
  return top;
}

}  // namespace crfkit::CRFKIT_ISA
