// pair_tables.cpp: compiled for several instruction sets; sums run in lanes, which become vectors.
#define CRFKIT_ISA graph_base
#include "graph/pair_tables.hpp"

#include <algorithm>
#include <limits>

#include "base/clones.hpp"
#include "base/simd.hpp"

namespace crfkit {

CRFKIT_CLONES void up_rows(const double* theta, const double* v, i64 n, i64 m, double* out) {
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

CRFKIT_CLONES void up_columns(const double* theta, const double* v, i64 n, i64 m, double* out) {
  for (i64 r = 0; r < m; ++r) {
    const double* row = theta + r * n;
    double lanes[4] = {};
    i64 i = 0;
    for (; i + 4 <= n; i += 4)
      for (int k = 0; k < 4; ++k) lanes[k] += row[i + k] * v[i + k];
    for (; i < n; ++i) lanes[0] += row[i] * v[i];
    out[r] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }
}

CRFKIT_CLONES void down_rows(const double* theta, const double* v, const double* w, i64 n, i64 m, double* out,
                             double* node) {
  for (i64 i = 0; i < n; ++i) {
    const double* row = theta + i * m;
    double* o = out + i * m;
    const double scale = v[i];
    double lanes[8] = {};
    i64 r = 0;
    for (; r + 8 <= m; r += 8)
      for (int k = 0; k < 8; ++k) {
        o[r + k] = row[r + k] * w[r + k] * scale;
        lanes[k] += o[r + k];
      }
    for (; r < m; ++r) {
      o[r] = row[r] * w[r] * scale;
      lanes[0] += o[r];
    }
    node[i] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

CRFKIT_CLONES void down_columns(const double* theta, const double* v, const double* w, i64 n, i64 m, double* out,
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

CRFKIT_CLONES void scale_rows(double* table, const double* w, i64 step, i64 n, i64 m, double* node) {
  for (i64 i = 0; i < n; ++i, table += m, w += step) {
    double lanes[8] = {};
    i64 r = 0;
    for (; r + 8 <= m; r += 8)
      for (int k = 0; k < 8; ++k) {
        table[r + k] *= w[r + k];
        lanes[k] += table[r + k];
      }
    for (; r < m; ++r) {
      table[r] *= w[r];
      lanes[0] += table[r];
    }
    node[i] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

CRFKIT_CLONES void divide(const double* a, const double* b, double scale, i64 n, double* out) {
  for (i64 r = 0; r < n; ++r) {
    const double divisor = b[r] > 0 ? b[r] : 1.0, x = a[r] / divisor * scale;
    out[r] = b[r] > 0 ? x : 0.0;
  }
}

CRFKIT_CLONES double divide_by_largest(double* x, i64 n, double& least) {
  using Vec8 = graph_base::Simd<double, 8>;
  constexpr double none = std::numeric_limits<double>::infinity();
  Vec8::Vec high = {}, low = Vec8::splat(none);
  i64 i = 0;
  for (; i + 8 <= n; i += 8) {
    const Vec8::Vec v = Vec8::load(x + i);
    high = Vec8::max(high, v);
    low = Vec8::min(low, v > 0.0 ? v : Vec8::splat(none));
  }
  double top = Vec8::highest(high), small = Vec8::lowest(low);
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

}  // namespace crfkit
