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

}  // namespace crfkit::CRFKIT_ISA
