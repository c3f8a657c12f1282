// matrix.cpp: b is packed into panels of eight columns, a is read as it lies; a tile of the result stays in registers.
#define CRFKIT_ISA graph_base
#include "graph/matrix.hpp"

#include <algorithm>

#include "base/clones.hpp"
#include "base/simd.hpp"

namespace crfkit {
namespace {

constexpr int kWide = 8;  // columns of a panel
constexpr int kTall = 6;  // rows of a tile: twelve registers of four numbers, or six of eight
using Vec8 = graph_base::Simd<double, kWide>;

// Rows [0, R) of a panel's columns.
template <int R>
CRFKIT_INLINE void tile(const Matrix& a, const double* panel, i64 depth, i64 columns, i64 m, double* out) {
  Vec8::Vec sum[R] = {};
  const double* x = a.data;
  for (i64 k = 0; k < depth; ++k, x += a.column, panel += kWide) {
    const Vec8::Vec b = Vec8::load(panel);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) sum[r] += x[r * a.row] * b;
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    double whole[kWide];
    Vec8::store(columns == kWide ? out + r * m : whole, sum[r]);
    if (columns < kWide) std::copy(whole, whole + columns, out + r * m);
  }
}

}  // namespace

CRFKIT_CLONES void multiply_panel(const Matrix& a, const double* panel, i64 n, i64 depth, i64 columns, i64 m,
                                  double* out) {
  i64 i = 0;
  const auto rest = [&] { return Matrix{a.data + i * a.row, a.row, a.column}; };
  for (; i + kTall <= n; i += kTall) tile<kTall>(rest(), panel, depth, columns, m, out + i * m);
  switch (n - i) {
    case 5:
      return tile<5>(rest(), panel, depth, columns, m, out + i * m);
    case 4:
      return tile<4>(rest(), panel, depth, columns, m, out + i * m);
    case 3:
      return tile<3>(rest(), panel, depth, columns, m, out + i * m);
    case 2:
      return tile<2>(rest(), panel, depth, columns, m, out + i * m);
    case 1:
      return tile<1>(rest(), panel, depth, columns, m, out + i * m);
    default:
      return;
  }
}

void multiply(const Matrix& a, const Matrix& b, i64 n, i64 m, i64 depth, double* out, Buffer<double>& room) {
  room.reserve(depth * kWide);
  double* panel = room.data();
  for (i64 j = 0; j < m; j += kWide) {
    const i64 columns = std::min<i64>(kWide, m - j);
    const double* from = b.data + j * b.column;
    for (i64 k = 0; k < depth; ++k) {
      for (i64 c = 0; c < columns; ++c) panel[k * kWide + c] = from[k * b.row + c * b.column];
      for (i64 c = columns; c < kWide; ++c) panel[k * kWide + c] = 0;
    }
    multiply_panel(a, panel, n, depth, columns, m, out + j);
  }
}

}  // namespace crfkit
