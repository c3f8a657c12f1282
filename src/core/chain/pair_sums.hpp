// pair_sums.hpp: what follows what, added up over a pack.
#pragma once
#include "base/rows.hpp"
#include "chain/pack.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W, int R, int N>
CRFKIT_INLINE void pair_tile(const Pack& pack, const T* alpha, const T* q, i64 stride, i64 i, int column, T* x) {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  Vec acc[R][N] = {};
  for (int t = 1; t < pack.steps(); ++t) {
    const int n = pack.active(t);
    const T* a = alpha + pack.first[t - 1] * stride + i;
    const T* b = q + pack.first[t] * stride + column;
    for (int s = 0; s < n; ++s) {
      Vec row[N];
      for (int v = 0; v < N; ++v) row[v] = S::load(b + s * stride + v * W);
      for (int r = 0; r < R; ++r) {
        const T weight = a[s * stride + r];
        for (int v = 0; v < N; ++v) acc[r][v] += weight * row[v];
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    T* out = x + (i + r) * stride + column;
    for (int v = 0; v < N; ++v) S::store(out + v * W, S::load(out + v * W) + acc[r][v]);
  }
}

// x[i][j] += sum over all steps t > 0 and sequences of alpha[t-1][i] q[t][j]; all are rows of `stride`.
template <class T, int W>
CRFKIT_KERNEL void pair_sums(const Pack& pack, const T* alpha, const T* q, i64 n_labels, i64 stride, T* x) {
  for_tiles<kTile<T, W>>(static_cast<int>(stride / W), [&](auto N, int v) {
    i64 i = 0;
    for (; n_labels - i >= 4; i += 4) pair_tile<T, W, 4, N>(pack, alpha, q, stride, i, v * W, x);
    for (; i < n_labels; ++i) pair_tile<T, W, 1, N>(pack, alpha, q, stride, i, v * W, x);
  });
}

}  // namespace crfkit::CRFKIT_ISA
