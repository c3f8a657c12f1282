// simd.hpp: short vectors, their reductions and their exponential.
//
// Everything here lives in a namespace named after the instruction set that the including file is
// compiled for, so that the linker never mixes code of two instruction sets. The vectors are the
// compiler's own; where the machine's registers are narrower, the compiler splits them.
#pragma once
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/base.hpp"

#if defined(__OPTIMIZE_SIZE__)  // the baseline of x86-64: see CMakeLists.txt
#define CRFKIT_INLINE inline
#else
#define CRFKIT_INLINE inline __attribute__((always_inline))
#endif
#define CRFKIT_KERNEL __attribute__((noinline))  // stands out in a profile
#if defined(__clang__)
#define CRFKIT_UNROLL _Pragma("unroll")
#else
#define CRFKIT_UNROLL _Pragma("GCC unroll 16")  // loops with constant ends, whose variables are then in registers
#endif

namespace crfkit::CRFKIT_ISA {

template <class T>
struct int_like;
template <>
struct int_like<float> {
  using type = i32;
};
template <>
struct int_like<double> {
  using type = i64;
};

template <class T, int W>
struct Simd {
  using Int = typename int_like<T>::type;
  typedef T Vec __attribute__((vector_size(W * sizeof(T))));
  typedef Int Mask __attribute__((vector_size(W * sizeof(T))));
  typedef std::make_unsigned_t<Int> Bits __attribute__((vector_size(W * sizeof(T))));  // sums may wrap around

  static CRFKIT_INLINE Vec load(const T* p) {
    Vec v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static CRFKIT_INLINE void store(T* p, Vec v) { std::memcpy(p, &v, sizeof v); }
  static CRFKIT_INLINE Vec splat(T x) { return Vec{} + x; }
  static CRFKIT_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
  static CRFKIT_INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }

  template <class V, class Op>
  static CRFKIT_INLINE auto reduce(V v, Op op) {
    if constexpr (W == 16) {
      v = op(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
      v = op(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
      v = op(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    } else if constexpr (W == 8) {
      v = op(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
      v = op(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
    } else {
      v = op(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
    }
    const V w = op(v, V{} + v[1]);
    return w[0];
  }
  static CRFKIT_INLINE T sum(Vec v) {
    return reduce(v, [](Vec a, Vec b) { return a + b; });
  }
  static CRFKIT_INLINE T highest(Vec v) {
    return reduce(v, [](Vec a, Vec b) { return max(a, b); });
  }
  static CRFKIT_INLINE T lowest(Vec v) {
    return reduce(v, [](Vec a, Vec b) { return min(a, b); });
  }
  static CRFKIT_INLINE bool any(Mask m) {
    return reduce(m, [](Mask a, Mask b) { return a | b; }) != 0;
  }

  // exp(x) for x <= 0, relative error about one unit in the last place; exactly 0 where the result
  // would not be a normal number, so also for minus infinity.
  static CRFKIT_INLINE Vec exp(Vec x) {
    constexpr bool single = sizeof(T) == 4;
    constexpr T low = single ? T(-87.0) : T(-708.0);
    const Mask normal = x > low;
    x = normal ? x : Vec{};
    // x = n ln 2 + f, |f| <= ln 2 / 2; adding 1.5 * 2^mantissa rounds n into the low bits.
    constexpr T round = single ? T(12582912.0) : T(6755399441055744.0);
    Vec n = x * T(1.4426950408889634) + round;
    const Bits bits = std::bit_cast<Bits>(n);
    n = n - round;
    Vec p;
    if constexpr (single) {
      const Vec f = (x - n * T(0.693359375)) - n * T(-2.12194440e-4);
      p = f * T(1.9875691500e-4) + T(1.3981999507e-3);
      p = p * f + T(8.3334519073e-3);
      p = p * f + T(4.1665795894e-2);
      p = p * f + T(1.6666665459e-1);
      p = p * f + T(5.0000001201e-1);
      p = p * (f * f) + f + T(1);
    } else {
      const Vec f = (x - n * T(0.693147180369123816490)) - n * T(1.90821492927058770002e-10);
      p = f * T(1.0 / 6227020800.0) + T(1.0 / 479001600.0);
      p = p * f + T(1.0 / 39916800.0);
      p = p * f + T(1.0 / 3628800.0);
      p = p * f + T(1.0 / 362880.0);
      p = p * f + T(1.0 / 40320.0);
      p = p * f + T(1.0 / 5040.0);
      p = p * f + T(1.0 / 720.0);
      p = p * f + T(1.0 / 120.0);
      p = p * f + T(1.0 / 24.0);
      p = p * f + T(1.0 / 6.0);
      p = p * f + T(0.5);
      p = p * (f * f) + f + T(1);
    }
    const Bits scaled = std::bit_cast<Bits>(p) + (bits << (single ? 23 : 52));
    return std::bit_cast<Vec>(scaled & std::bit_cast<Bits>(normal));
  }
};

// The widths that kernels are made for: what a register holds, and eight, so that few labels are not mostly padding.
// Every width costs code and compile time.
#if defined(__AVX512F__)
#define CRFKIT_EACH_TYPE(X) X(float)  // see instruction_set.hpp
#define CRFKIT_EACH_WIDTH(X) X(float, 16) X(float, 8)
template <class T>
constexpr int kWidest = 64 / sizeof(T);
template <class T>
constexpr int kNarrowest = 8;
#else
#define CRFKIT_EACH_TYPE(X) X(float) X(double)
#if defined(__AVX2__)
#define CRFKIT_EACH_WIDTH(X) X(float, 8) X(double, 4)
template <class T>
constexpr int kWidest = 32 / sizeof(T);
#else
#define CRFKIT_EACH_WIDTH(X) X(float, 4) X(double, 4)
template <class T>
constexpr int kWidest = 4;
#endif
template <class T>
constexpr int kNarrowest = kWidest<T>;
#endif

// Calls f with the vector width for n labels as a constant: the one, at most a register's, that pads them least; the
// widest among equals. Many labels always take the widest: there the padding is small beside the rest.
template <class T, int W = kWidest<T>, class F>
decltype(auto) with_width(int n, F f) {
  if constexpr (W > kNarrowest<T>)
    if (n <= 4 * W / 2 && round_up(n, W / 2) < round_up(n, W)) return with_width<T, W / 2>(n, f);
  return f(std::integral_constant<int, W>{});
}

// Calls f with n as a constant, if it is one of First, ..., Last.
template <int First, int Last, class F>
CRFKIT_INLINE void with_constant(i64 n, F f) {
  if (n == First) return f(std::integral_constant<int, First>{});
  if constexpr (First < Last) with_constant<First + 1, Last>(n, f);
}

}  // namespace crfkit::CRFKIT_ISA
