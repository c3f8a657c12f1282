// tables.hpp: the weights of dense attributes as rows of a table, and the way back.
#pragma once
#include <algorithm>

#include "base/parallel.hpp"
#include "model/features.hpp"

namespace crfkit {

// Spreads the weights of a family's dense attributes over its dense rows.
template <class T>
void fill_table(const Family& family, const double* w, const Threads& threads, T* table) {
  parallel_blocks(std::ssize(family.dense_attr), 1024, threads, [&](i64 begin, i64 end, int) {
    for (i64 r = begin; r < end; ++r) {
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
  parallel_blocks(std::ssize(family.dense_attr), 1024, threads, [&](i64 begin, i64 end, int) {
    for (i64 r = begin; r < end; ++r) {
      const u32 a = family.dense_attr[r];
      for (u32 k = family.ptr[a]; k < family.ptr[a + 1]; ++k)
        g[family.first_weight + k] += table[r * family.width + family.column[k]];
    }
  });
}

}  // namespace crfkit
