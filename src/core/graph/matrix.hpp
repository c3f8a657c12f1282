// matrix.hpp: products of small dense matrices in any layout.
#pragma once
#include "base/base.hpp"

namespace crfkit {

struct Matrix {
  const double* data;
  i64 row, column;  // steps from an entry to the one below and to the one on its right
  Matrix turned() const { return {data, column, row}; }
};

// out[i][j] = sum_k a(i, k) b(k, j) for i < n, j < m, k < depth
void multiply(const Matrix& a, const Matrix& b, i64 n, i64 m, i64 depth, double* out, Buffer<double>& room);

}  // namespace crfkit
