// simd_log.hpp: the logarithm of short vectors.
#pragma once
#include "base/simd.hpp"

namespace crfkit::CRFKIT_ISA {

// log(x) for normal numbers x > 0, error about one unit in the last place of max(1, |log x|).
template <class T, int W>
CRFKIT_INLINE typename Simd<T, W>::Vec log_of(typename Simd<T, W>::Vec x) {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  constexpr bool single = sizeof(T) == 4;
  constexpr int mantissa = single ? 23 : 52;
  // x = 2^n m with m from sqrt(1/2) to sqrt(2)
  constexpr auto half = std::bit_cast<typename S::Int>(T(0.70710678118654752440));
  const auto bits = std::bit_cast<typename S::Mask>(x);
  const typename S::Mask n = (bits - half) >> mantissa;
  const Vec m = std::bit_cast<Vec>(bits - (n << mantissa));
  // log m = 2 atanh s, |s| < 0.1716
  const Vec s = (m - T(1)) / (m + T(1)), z = s * s;
  Vec p = z * T(2.0 / 11.0) + T(2.0 / 9.0);
  if constexpr (!single) {
    p = z * T(2.0 / 21.0) + T(2.0 / 19.0);
    p = p * z + T(2.0 / 17.0);
    p = p * z + T(2.0 / 15.0);
    p = p * z + T(2.0 / 13.0);
    p = p * z + T(2.0 / 11.0);
    p = p * z + T(2.0 / 9.0);
  }
  p = p * z + T(2.0 / 7.0);
  p = p * z + T(2.0 / 5.0);
  p = p * z + T(2.0 / 3.0);
  return __builtin_convertvector(n, Vec) * T(0.69314718055994530942) + (p * z * s + T(2) * s);
}

}  // namespace crfkit::CRFKIT_ISA
