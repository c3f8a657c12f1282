// vector_kernels.hpp: the inner loops of L-BFGS's memory, in double precision over rows kept in single.
#pragma once
#include "base/simd.hpp"
#include "train/kernels.hpp"

namespace crfkit::CRFKIT_ISA {

constexpr int kWide = 8;
using WideDouble = Simd<double, kWide>;
using WideFloat = Simd<float, kWide>;

CRFKIT_INLINE WideDouble::Vec load_wide(const double* p) { return WideDouble::load(p); }
CRFKIT_INLINE WideDouble::Vec load_wide(const float* p) {
  return __builtin_convertvector(WideFloat::load(p), WideDouble::Vec);
}

template <class A, class B>
double dot_of(const A* a, const B* b, i64 n) {
  WideDouble::Vec total[2] = {};
  i64 k = 0;
  for (; k + 2 * kWide <= n; k += 2 * kWide) {
    total[0] += load_wide(a + k) * load_wide(b + k);
    total[1] += load_wide(a + k + kWide) * load_wide(b + k + kWide);
  }
  double rest = 0;
  for (; k < n; ++k) rest += double{a[k]} * b[k];
  return WideDouble::sum(total[0] + total[1]) + rest;
}

// d += sum of c[r] row[r], for n_rows rows
inline void add_rows_to(const double* c, const float* const* row, int n_rows, double* d, i64 n) {
  for (int r = 0; r < n_rows; r += 4) {
    const int m = std::min(4, n_rows - r);
    i64 k = 0;
    if (m == 4)
      for (; k + kWide <= n; k += kWide) {
        WideDouble::Vec x = WideDouble::load(d + k);
        for (int q = 0; q < 4; ++q) x += c[r + q] * load_wide(row[r + q] + k);
        WideDouble::store(d + k, x);
      }
    for (; k < n; ++k)
      for (int q = 0; q < m; ++q) d[k] += c[r + q] * row[r + q][k];
  }
}

}  // namespace crfkit::CRFKIT_ISA
