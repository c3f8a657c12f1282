// tables.hpp: the weights of dense attributes as rows of a table, and the way back.
#pragma once
#include <algorithm>

#include "base/parallel.hpp"
#include "model/features.hpp"

namespace crfkit {

// Spreads the weights of a family's dense attributes over its dense rows.
template <class T>
void fill_table(const Family& family, const double* w, const Threads& threads, T* table) {
  constexpr i64 kRows = 1024;
  const i64 n = family.dense_attr.size();
  parallel_for((n + kRows - 1) / kRows, threads.count, {}, [&](i64 task, int) {
    for (i64 r = task * kRows; r < std::min(n, (task + 1) * kRows); ++r) {
      const u32 a = family.dense_attr[r];
      T* row = table + r * family.width;
      std::fill_n(row, family.width, T(0));
      for (u32 k = family.ptr[a]; k < family.ptr[a + 1]; ++k) row[family.column[k]] = T(w[family.first_weight + k]);
    }
  });
}

// The way back: the gradient of the dense rows into the gradient of their weights.
template <class T>
void collect_table(const Family& family, const T* table, const Threads& threads, double* g) {
  constexpr i64 kRows = 1024;
  const i64 n = family.dense_attr.size();
  parallel_for((n + kRows - 1) / kRows, threads.count, {}, [&](i64 task, int) {
    for (i64 r = task * kRows; r < std::min(n, (task + 1) * kRows); ++r) {
      const u32 a = family.dense_attr[r];
      for (u32 k = family.ptr[a]; k < family.ptr[a + 1]; ++k)
        g[family.first_weight + k] += table[r * family.width + family.column[k]];
    }
  });
}

}  // namespace crfkit
