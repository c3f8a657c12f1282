// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "words/kernels.hpp"

#include <algorithm>
#include <cmath>

#include "base/rows.hpp"

namespace crfkit::CRFKIT_ISA {
namespace {

constexpr int kWordLanes = kWidest<float>;
using WordLanes = Simd<float, kWordLanes>;
constexpr int kPoints = 4;  // points at a time

void gather(const u32* at, const u32* count, i64 n, const float* scale, const float* x, int width, float* out) {
  for_tiles<4>(width / kWordLanes, [&](auto N, int v) {
    typename WordLanes::Vec sum[N] = {};
    for (i64 k = 0; k < n; ++k) {
      const float weight = std::sqrt(static_cast<float>(count[k])) * scale[at[k]];
      const float* row = x + i64{at[k]} * width + v * kWordLanes;
      for (int c = 0; c < N; ++c) sum[c] += weight * WordLanes::load(row + c * kWordLanes);
    }
    for (int c = 0; c < N; ++c) WordLanes::store(out + (v + c) * kWordLanes, sum[c]);
  });
}

void nearest(const float* x, i64 n, const float* m, int depth, int columns, int stride, float* room, u32* nearest,
             float* best) {
  float* product = room + kPoints * stride;
  for (i64 i = 0; i < n; i += kPoints) {
    const i64 rows = std::min<i64>(kPoints, n - i);
    for (i64 r = 0; r < rows; ++r) std::copy_n(x + (i + r) * depth, depth, room + r * stride);
    rows_times<float, kWordLanes>(room, rows, m, depth, stride, product);
    for (i64 r = 0; r < rows; ++r) {
      const float* found = std::max_element(product + r * stride, product + r * stride + columns);
      nearest[i + r] = static_cast<u32>(found - (product + r * stride));
      best[i + r] = *found;
    }
  }
}

void products(const float* x, i64 n, const float* y, int width, float* out) {
  for (i64 i = 0; i < n; ++i) {
    typename WordLanes::Vec sum{};
    for (int d = 0; d < width; d += kWordLanes) sum += WordLanes::load(x + i * width + d) * WordLanes::load(y + d);
    out[i] = WordLanes::sum(sum);
  }
}

void inner(const float* x, const float* y, i64 n, int width, double* sum) {
  for (i64 w = 0; w < n; ++w)
    for (int i = 0; i < width; ++i) {
      const double a = x[w * width + i];
      for (int j = 0; j < width; ++j) sum[i * width + j] += a * y[w * width + j];
    }
}

void times(float* x, i64 n, const double* m, int width) {
  Buffer<double> sum(width);
  double* row = sum.data();
  for (i64 w = 0; w < n; ++w) {
    std::fill_n(row, width, 0.0);
    for (int i = 0; i < width; ++i) {
      const double a = x[w * width + i];
      for (int j = 0; j < width; ++j) row[j] += a * m[i * width + j];
    }
    for (int j = 0; j < width; ++j) x[w * width + j] = static_cast<float>(row[j]);
  }
}

}  // namespace

const WordKernels& word_kernels() {
  static const WordKernels table = {gather, nearest, products, inner, times};
  return table;
}

}  // namespace crfkit::CRFKIT_ISA
