// tables.hpp: the weights of dense attributes as rows of a table, and the way back.
#pragma once
#include <algorithm>

#include "base/parallel.hpp"
#include "model/features.hpp"

namespace crfkit {

// Whether all attributes have dense rows.
inline bool all_dense(const Family& family) { return family.dense_attr.size() == family.n_attributes(); }

// Where all dense rows hold the columns 0, 1, ..., full - 1, as in models with all labels for every attribute, this
// number; else 0.
inline u32 full_columns(const Family& family) {
  u32 full = 0;
  for (u32 a : family.dense_attr) {  // columns ascend
    const u32 first = family.ptr[a], count = family.ptr[a + 1] - first;
    if (full == 0) full = count;
    if (count != full || family.column(first) != 0 || family.column(first + count - 1) != full - 1) return 0;
  }
  return full;
}

// Spreads the weights of a family's dense attributes over its dense rows; full: as above.
template <class T>
void fill_table(const Family& family, u32 full, const double* w, const Threads& threads, T* table) {
  w += family.first_weight;
  parallel_blocks(std::ssize(family.dense_attr), 1024, threads, [&](i64 begin, i64 end, int) {
    for (i64 r = begin; r < end; ++r) {
      const u32 first = family.ptr[family.dense_attr[r]], last = family.ptr[family.dense_attr[r] + 1];
      T* row = table + r * family.width;
      std::fill_n(row + full, family.width - full, T(0));
      if (full)
        for (u32 k = 0; k < full; ++k) row[k] = T(w[first + k]);
      else
        for (u32 k = first; k < last; ++k) row[family.column(k)] = T(w[k]);
    }
  });
}

// The way back: the gradient of the dense rows into the gradient of their weights. It is added to what g holds, or to
// `scale` times w where that is given.
template <class T>
void collect_table(const Family& family, u32 full, const T* table, const double* w, double scale,
                   const Threads& threads, double* g) {
  g += family.first_weight;
  if (w) w += family.first_weight;
  parallel_blocks(std::ssize(family.dense_attr), 1024, threads, [&](i64 begin, i64 end, int) {
    for (i64 r = begin; r < end; ++r) {
      const u32 first = family.ptr[family.dense_attr[r]], last = family.ptr[family.dense_attr[r] + 1];
      const T* row = table + r * family.width;
      if (w)
        for (u32 k = first; k < last; ++k) g[k] = scale * w[k];
      if (full)
        for (u32 k = 0; k < full; ++k) g[first + k] += row[k];
      else
        for (u32 k = first; k < last; ++k) g[k] += row[family.column(k)];
    }
  });
}

}  // namespace crfkit
