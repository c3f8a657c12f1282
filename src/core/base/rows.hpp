// rows.hpp: rows of labels, padded to whole vectors, and the products of rows with a label matrix.
#pragma once
#include <algorithm>
#include <type_traits>

#include "base/simd.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace crfkit::CRFKIT_ISA {

#if defined(__OPTIMIZE_SIZE__)  // the baseline of x86-64: see CMakeLists.txt
constexpr int kLargestTile = 1;
#else
constexpr int kLargestTile = 4;
#endif

// Calls f(constant N, first vector) so that the tiles of N <= Max vectors cover `vectors` of them.
template <int Most, class F>
CRFKIT_INLINE void for_tiles(int vectors, F f) {
  constexpr int Max = std::min(Most, kLargestTile);
  int v = 0;
  for (; vectors - v >= Max; v += Max) f(std::integral_constant<int, Max>{}, v);
  if constexpr (Max > 3)
    if (vectors - v == 3) return f(std::integral_constant<int, 3>{}, v);
  if constexpr (Max > 2)
    if (vectors - v == 2) return f(std::integral_constant<int, 2>{}, v);
  if constexpr (Max > 1)
    if (vectors - v == 1) f(std::integral_constant<int, 1>{}, v);
}

// to += scale * row
template <class T, int W>
CRFKIT_INLINE void add_row(const T* row, T scale, i64 stride, T* to) {
  using S = Simd<T, W>;
  for (i64 j = 0; j < stride; j += W) S::store(to + j, S::load(to + j) + scale * S::load(row + j));
}
template <class T, int W>
CRFKIT_INLINE void scale_row(T scale, i64 stride, T* row) {
  using S = Simd<T, W>;
  for (i64 j = 0; j < stride; j += W) S::store(row + j, S::load(row + j) * scale);
}

// How many vectors a tile of accumulators is wide, so that four rows of it stay in registers.
#if defined(__AVX512F__)
template <class T, int W>
constexpr int kTile = W * sizeof(T) <= 64 ? 4 : 2;
#else
template <class T, int W>
constexpr int kTile = W * sizeof(T) <= 32 ? 3 : 1;
#endif

// The two algebras of the chain recursions: what "plus" and "times" mean, and what a sum starts from.
template <class T, int W>
struct SumTimes {
  using Vec = typename Simd<T, W>::Vec;
  static CRFKIT_INLINE Vec zero() { return Vec{}; }
  static CRFKIT_INLINE Vec add(Vec total, T a, Vec b) { return total + a * b; }
};
template <class T, int W>
struct MaxPlus {
  using Vec = typename Simd<T, W>::Vec;
  static CRFKIT_INLINE Vec zero() { return Simd<T, W>::splat(-std::numeric_limits<T>::infinity()); }
  static CRFKIT_INLINE Vec add(Vec total, T a, Vec b) { return Simd<T, W>::max(total, a + b); }
};

// Calls tile(constant R, constant N, first row, first column) so that tiles of R rows and N vectors cover n rows.
template <class T, int W, class Tile>
CRFKIT_INLINE void for_row_tiles(i64 n, i64 stride, Tile tile) {
  for_tiles<kTile<T, W>>(static_cast<int>(stride / W), [&](auto N, int v) {
    i64 r = 0;
    for (; n - r >= 4; r += 4) tile(std::integral_constant<int, 4>{}, N, r, v * W);
    if constexpr (kLargestTile > 1)
      for (; n - r >= 2; r += 2) tile(std::integral_constant<int, 2>{}, N, r, v * W);
    for (; r < n; ++r) tile(std::integral_constant<int, 1>{}, N, r, v * W);
  });
}

// A tile of sums, R rows of N vectors; rows lie `stride` apart in memory.
template <class T, int W, int R, int N>
struct Tile {
  using S = Simd<T, W>;
  typename S::Vec sum[R][N];

  CRFKIT_INLINE void fill(typename S::Vec x) {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < N; ++v) sum[r][v] = x;
  }
  CRFKIT_INLINE void load(const T* from, i64 stride) {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < N; ++v) sum[r][v] = S::load(from + r * stride + v * W);
  }
  // += sum_k x[r][k] m[k], in the algebra
  template <class Algebra = SumTimes<T, W>>
  CRFKIT_INLINE void add(const T* x, const T* m, i64 depth, i64 stride) {
    for (i64 k = 0; k < depth; ++k) {
      typename S::Vec row[N];
      CRFKIT_UNROLL for (int v = 0; v < N; ++v) row[v] = S::load(m + k * stride + v * W);
      CRFKIT_UNROLL for (int r = 0; r < R; ++r) {
        const T a = x[r * stride + k];
        CRFKIT_UNROLL for (int v = 0; v < N; ++v) sum[r][v] = Algebra::add(sum[r][v], a, row[v]);
      }
    }
  }
  CRFKIT_INLINE void store(T* to, i64 stride) const {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < N; ++v) S::store(to + r * stride + v * W, sum[r][v]);
  }
};

// out[r] = x[r] m in the algebra: n rows times a [depth][stride] matrix.
template <class T, int W, class Algebra = SumTimes<T, W>>
void rows_times(const T* x, i64 n, const T* m, i64 depth, i64 stride, T* out) {
  for_row_tiles<T, W>(n, stride, [&](auto R, auto N, i64 r, int column) __attribute__((always_inline)) {
    Tile<T, W, R, N> tile;
    tile.fill(Algebra::zero());
    tile.template add<Algebra>(x + r * stride, m + column, depth, stride);
    tile.store(out + r * stride + column, stride);
  });
}

// Numbers too small to be normal count as zero while this lives: they would slow every operation.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(saved_ | (u64{1} << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  u64 saved_ = 0;
#else
  FlushDenormals() {}
#endif
};

}  // namespace crfkit::CRFKIT_ISA
