// matrix.hpp: products of small dense matrices, for kernels.cpp. b is packed into panels of eight columns, a is read as
// it lies; a tile of the result stays in registers.
#pragma once
#include <algorithm>

#include "base/simd.hpp"
#include "graph/kernels.hpp"

namespace crfkit::CRFKIT_ISA {

constexpr int kPanel = 8;     // columns of a panel
constexpr int kTileRows = 6;  // rows of a tile: twelve registers of four numbers, or six of eight
using PanelRow = Simd<double, kPanel>;

// Rows [0, R) of a panel's columns.
template <int R>
void tile(const Matrix& a, const double* panel, i64 depth, i64 columns, i64 m, double* out) {
  PanelRow::Vec sum[R] = {};
  const double* x = a.data;
  for (i64 k = 0; k < depth; ++k, x += a.column, panel += kPanel) {
    const PanelRow::Vec b = PanelRow::load(panel);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) sum[r] += x[r * a.row] * b;
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    double whole[kPanel];
    PanelRow::store(columns == kPanel ? out + r * m : whole, sum[r]);
    if (columns < kPanel) std::copy(whole, whole + columns, out + r * m);
  }
}

inline void multiply_panel(const Matrix& a, const double* panel, i64 n, i64 depth, i64 columns, i64 m, double* out) {
  i64 i = 0;
  const auto rest = [&] { return Matrix{a.data + i * a.row, a.row, a.column}; };
  for (; i + kTileRows <= n; i += kTileRows) tile<kTileRows>(rest(), panel, depth, columns, m, out + i * m);
  with_constant<1, kTileRows - 1>(n - i, [&](auto rows) { tile<rows>(rest(), panel, depth, columns, m, out + i * m); });
}

inline void multiply(const Matrix& a, const Matrix& b, i64 n, i64 m, i64 depth, double* out, Buffer<double>& room) {
  room.reserve(depth * kPanel);
  double* panel = room.data();
  for (i64 j = 0; j < m; j += kPanel) {
    const i64 columns = std::min<i64>(kPanel, m - j);
    const double* from = b.data + j * b.column;
    for (i64 k = 0; k < depth; ++k) {
      for (i64 c = 0; c < columns; ++c) panel[k * kPanel + c] = from[k * b.row + c * b.column];
      for (i64 c = columns; c < kPanel; ++c) panel[k * kPanel + c] = 0;
    }
    multiply_panel(a, panel, n, depth, columns, m, out + j);
  }
}

}  // namespace crfkit::CRFKIT_ISA
