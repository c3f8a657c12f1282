// flat_rows.hpp: rows of a flat array of weights, added up for a token and changed by it.
#pragma once
#include <span>

#include "base/rows.hpp"
#include "online/delta.hpp"

namespace crfkit::CRFKIT_ISA {

// out = init + scale * (sum of the rows of a token's entries)
template <class T, int W>
CRFKIT_INLINE void score_row(const FlatRows<T>& rows, i64 token, const T* table, T scale, const T* init, T* out) {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  const i64 begin = rows.ptr[token], middle = begin + rows.n_dense[token], end = rows.ptr[token + 1];
  const u32* at = rows.at.data();
  const T* value = rows.value.empty() ? nullptr : rows.value.data();
  for_tiles<4>(rows.width / W, [&](auto N, int v0) {
    Vec acc[N] = {};
    for (i64 k = begin; k < middle; ++k) {
      const T* row = table + at[k] + v0 * W;
      for (int v = 0; v < N; ++v) acc[v] += value ? value[k] * S::load(row + v * W) : S::load(row + v * W);
    }
    for (int v = 0; v < N; ++v) S::store(out + (v0 + v) * W, acc[v] * scale + S::load(init + (v0 + v) * W));
  });
  for (i64 k = middle; k < end; ++k) out[rows.column[k]] += scale * (value ? value[k] * table[at[k]] : table[at[k]]);
}

template <class T>
CRFKIT_INLINE void prefetch_row(const FlatRows<T>& rows, i64 token, const T* table) {
  for (i64 k = rows.ptr[token]; k < rows.ptr[token + 1]; ++k) {
    __builtin_prefetch(table + rows.at[k]);
    if (rows.width * sizeof(T) > 64) __builtin_prefetch(table + rows.at[k] + 64 / sizeof(T));
  }
}

// The lanes whose bits are set.
template <class T, int W>
CRFKIT_INLINE typename Simd<T, W>::Mask chosen(u16 bits) {
  using Mask = typename Simd<T, W>::Mask;
  using Int = typename Simd<T, W>::Int;
  Mask lanes;
  for (int k = 0; k < W; ++k) lanes[k] = Int(1) << k;
  return ((Mask{} + static_cast<Int>(bits)) & lanes) != Mask{};
}

// table += alpha * p, spread over the rows of a token
template <class T, int W>
CRFKIT_INLINE void scatter_row(const FlatRows<T>& rows, i64 token, const T* p, T alpha, T* table) {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  const i64 begin = rows.ptr[token], middle = begin + rows.n_dense[token], end = rows.ptr[token + 1];
  const u32* at = rows.at.data();
  const T* value = rows.value.empty() ? nullptr : rows.value.data();
  for_tiles<4>(rows.width / W, [&](auto N, int v0) __attribute__((always_inline)) {
    Vec x[N];
    for (int v = 0; v < N; ++v) x[v] = S::load(p + (v0 + v) * W) * alpha;
    for (i64 k = begin; k < middle; ++k) {
      T* row = table + at[k] + v0 * W;
      const u16* bits = rows.bits.data() + (at[k] - rows.first) / W + v0;
      for (int v = 0; v < N; ++v) {
        const Vec y = chosen<T, W>(bits[v]) ? (value ? x[v] * value[k] : x[v]) : Vec{};
        S::store(row + v * W, S::load(row + v * W) + y);
      }
    }
  });
  for (i64 k = middle; k < end; ++k) table[at[k]] += alpha * (value ? value[k] * p[rows.column[k]] : p[rows.column[k]]);
}

// The same of a few labels or label pairs; row: zeros, [width]
template <class T, int W>
CRFKIT_INLINE void scatter_entries(const FlatRows<T>& rows, i64 token,
                                   std::span<const typename Delta<T>::Entry> entries, T alpha, T* row, T* table) {
  const i64 first = rows.ptr[token], middle = first + rows.n_dense[token], last = rows.ptr[token + 1];
  const T* value = rows.value.empty() ? nullptr : rows.value.data();
  for (const auto& x : entries) row[x.at] = alpha * x.slope;
  for (i64 k = first; k < middle; ++k) {
    T* out = table + rows.at[k];
    const u16* bits = rows.bits.data() + (rows.at[k] - rows.first) / W;
    for (const auto& x : entries)
      if (bits[x.at / W] >> (x.at % W) & 1) out[x.at] += value ? value[k] * row[x.at] : row[x.at];
  }
  for (i64 k = middle; k < last; ++k) table[rows.at[k]] += value ? value[k] * row[rows.column[k]] : row[rows.column[k]];
  for (const auto& x : entries) row[x.at] = T(0);
}

}  // namespace crfkit::CRFKIT_ISA
