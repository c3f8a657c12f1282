// flooding.hpp: flooding in probability space, for kernels.cpp.
#pragma once
#include <cmath>

#include "base/simd.hpp"
#include "graph/kernels.hpp"

namespace crfkit::CRFKIT_ISA {

inline void exponentials(const double* x, i64 n, double top, double scale, double* out) {
  using V = Simd<double, 4>;
  i64 i = 0;
  for (; i + 4 <= n; i += 4) V::store(out + i, V::exp((V::load(x + i) - top) * scale));
  if (i == n) return;
  double rest[4] = {};
  for (i64 k = i; k < n; ++k) rest[k - i] = (x[k] - top) * scale;
  V::store(rest, V::exp(V::load(rest)));
  for (i64 k = i; k < n; ++k) out[k] = rest[k - i];
}

inline void flood_edge(const Flood& g, i64 f, double& change, double& least) {
  const i32 a = g.scope[2 * f], b = g.scope[2 * f + 1];
  const i64 n = g.card[a], m = g.card[b];
  const i64 to_a = g.at[2 * f], to_b = g.at[2 * f + 1];
  const double* p = g.psi + g.psi_ptr[g.table_of[f]];
  const double *ba = g.belief + g.node_ptr[a], *bb = g.belief + g.node_ptr[b];
  double *ma = g.message + to_a, *mb = g.message + to_b;
  constexpr int room = 64;
  double ia[room], ib[room], qa[room], qb[room], sa[room], sb[room];
  for (i64 i = 0; i < n; ++i) {
    ia[i] = 1 / ma[i];
    qa[i] = ba[i] * ia[i];
  }
  for (i64 j = 0; j < m; ++j) {
    ib[j] = 1 / mb[j];
    qb[j] = bb[j] * ib[j];
    sb[j] = 0;
  }
  for (i64 i = 0; i < n; ++i) {
    const double* row = p + i * m;
    const double q = qa[i];
    double x = 0;
    for (i64 j = 0; j < m; ++j) {
      x += row[j] * qb[j];
      sb[j] += row[j] * q;
    }
    sa[i] = x;
  }
  const auto settle = [&](const double* sums, const double* inverse, i64 size, double* message) {
    double total = 0;
    for (i64 i = 0; i < size; ++i) total += sums[i];
    if (!(total > 0)) least = 0;
    total = 1 / total;
    for (i64 i = 0; i < size; ++i) {
      const double x = sums[i] * total;
      const double d = std::abs(x * inverse[i] - 1);
      change = d > change ? d : change;
      least = x < least ? x : least;
      message[i] = x;
    }
  };
  settle(sa, ia, n, ma);
  settle(sb, ib, m, mb);
}

// The baseline of x86-64 is for size (CMakeLists.txt): a loop there, straight-line code elsewhere.
#if defined(__x86_64__) && !defined(__AVX2__)
constexpr int kUnrolled = 1;
#else
constexpr int kUnrolled = kFewLabels;
#endif

template <int L>
void flood_lanes(const Lanes& g, i64 begin, i64 end, double& change, double& least) {
  using S = Simd<double, kLanes>;
  using Vec = typename S::Vec;
  Vec most = S::splat(change), fewest = S::splat(least);
  for (i64 k = begin; k < end; ++k) {
    const double* p = g.psi + g.psi_at[k];
    double* message = g.message + k * 2 * L * kLanes;
    const i32* ends = g.ends + k * 2 * kLanes;
    Vec inverse[2][L], q[2][L], sums[2][L];
#pragma GCC unroll 2
    for (int side = 0; side < 2; ++side) {
      const i32* v = ends + side * kLanes;
      const auto belief = [&](int w) { return g.belief + i64{v[w]} * L; };
      const double *b0 = belief(0), *b1 = belief(1), *b2 = belief(2), *b3 = belief(3);
      const double *b4 = belief(4), *b5 = belief(5), *b6 = belief(6), *b7 = belief(7);
#pragma GCC unroll kUnrolled
      for (int i = 0; i < L; ++i) {
        inverse[side][i] = 1.0 / S::load(message + (side * L + i) * kLanes);
        q[side][i] = Vec{b0[i], b1[i], b2[i], b3[i], b4[i], b5[i], b6[i], b7[i]} * inverse[side][i];
        sums[side][i] = Vec{};
      }
    }
#pragma GCC unroll kUnrolled
    for (int i = 0; i < L; ++i)
#pragma GCC unroll kUnrolled
      for (int j = 0; j < L; ++j) {
        const Vec x = S::load(p + (i * L + j) * kLanes);
        sums[0][i] += x * q[1][j];
        sums[1][j] += x * q[0][i];
      }
#pragma GCC unroll 2
    for (int side = 0; side < 2; ++side) {
      Vec total = sums[side][0];
#pragma GCC unroll kUnrolled
      for (int i = 1; i < L; ++i) total += sums[side][i];
      fewest = total > 0.0 ? fewest : Vec{};
      total = 1.0 / total;
#pragma GCC unroll kUnrolled
      for (int i = 0; i < L; ++i) {
        const Vec x = sums[side][i] * total;
        const Vec d = x * inverse[side][i] - 1.0;
        most = S::max(most, S::max(d, -d));
        fewest = S::min(x, fewest);
        S::store(message + (side * L + i) * kLanes, x);
      }
    }
  }
  change = S::highest(most);
  least = S::lowest(fewest);
}

template <int L>
void multiply_lanes(const i64* ptr, const i64* at, const double* weight, const double* messages, i64 begin, i64 end,
                    double* belief) {
  for (i64 v = begin; v < end; ++v) {
    double b[L];
    for (int i = 0; i < L; ++i) b[i] = weight[v * L + i];
    for (i64 e = ptr[v]; e < ptr[v + 1]; ++e) {
      const double* m = messages + at[e];
      for (int i = 0; i < L; ++i) b[i] *= m[i * kLanes];
    }
    for (int i = 0; i < L; ++i) belief[v * L + i] = b[i];
  }
}

inline void flood_edges(const Flood& g, i64 begin, i64 end, double& change, double& least) {
  for (i64 f = begin; f < end; ++f) flood_edge(g, f, change, least);
}

inline void flood_blocks(const Lanes& g, int labels, i64 begin, i64 end, double& change, double& least) {
  with_constant<2, kFewLabels>(labels, [&](auto n) { flood_lanes<n>(g, begin, end, change, least); });
}

inline void multiply_blocks(int labels, const i64* ptr, const i64* at, const double* weight, const double* messages,
                            i64 begin, i64 end, double* belief) {
  with_constant<2, kFewLabels>(labels,
                               [&](auto n) { multiply_lanes<n>(ptr, at, weight, messages, begin, end, belief); });
}

}  // namespace crfkit::CRFKIT_ISA
