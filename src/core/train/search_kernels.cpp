#include "train/search_kernels.hpp"

#include <bit>
#include <type_traits>

#include "base/simd.hpp"

namespace crfkit::CRFKIT_ISA {
namespace {

constexpr int kLanes = 8;  // of a sum, on every set
// Vectors are no wider than a register: compilers keep wider ones in memory, and compare them number by number.
constexpr int kPart = kWidest<double>;
using Double = Simd<double, kPart>;
using Float = Simd<float, kPart>;
using Part = Double::Vec;
CRFKIT_INLINE Part load(const double* p) { return Double::load(p); }
CRFKIT_INLINE Part load(const float* p) { return __builtin_convertvector(Float::load(p), Part); }
constexpr auto store = Double::store;

struct Sum {
  Part lanes[kLanes / kPart] = {};
  double rest = 0;
  double total() const {
    using All = Simd<double, kLanes>;
    return All::sum(std::bit_cast<All::Vec>(lanes)) + rest;
  }
};

// Calls body(k, h) for the parts h of whole groups of lanes of [0, n), and rest(k) for what remains.
template <class Body, class Rest>
CRFKIT_INLINE void each(i64 n, Body body, Rest rest) {
  i64 k = 0;
  for (; k + kLanes <= n; k += kLanes)
    for (int h = 0; h < kLanes / kPart; ++h) body(k + h * kPart, h);
  for (; k < n; ++k) rest(k);
}

void change(const double* now, const double* old, float* out, i64 n) {
  each(
      n, [&](i64 k, int) { Float::store(out + k, __builtin_convertvector(load(now + k) - load(old + k), Float::Vec)); },
      [&](i64 k) { out[k] = float(now[k] - old[k]); });
}

double dot(const double* a, const double* b, i64 n) {
  Sum sum;
  each(n, [&](i64 k, int h) { sum.lanes[h] += load(a + k) * load(b + k); }, [&](i64 k) { sum.rest += a[k] * b[k]; });
  return sum.total();
}

void products(const float* pair, i64 stride, const float* next, const double* v, const float* s, const float* y, i64 n,
              double* out) {
  Sum sums[2][3];
  each(
      n,
      [&](i64 k, int h) {
        if (h == 0) {
          __builtin_prefetch(next + k);
          __builtin_prefetch(next + stride + k);
        }
        const Part with[3] = {load(v + k), load(s + k), load(y + k)};
        for (int r = 0; r < 2; ++r) {
          const Part row = load(pair + r * stride + k);
          for (int p = 0; p < 3; ++p) sums[r][p].lanes[h] += row * with[p];
        }
      },
      [&](i64 k) {
        const double with[3] = {v[k], s[k], y[k]};
        for (int r = 0; r < 2; ++r)
          for (int p = 0; p < 3; ++p) sums[r][p].rest += pair[r * stride + k] * with[p];
      });
  for (int r = 0; r < 2; ++r)
    for (int p = 0; p < 3; ++p) out[3 * r + p] = sums[r][p].total();
}

// d += sum of c[r] row[r], for M rows: few enough streams for the processor to follow
template <int M>
void add_rows(const double* c, const float* const* row, double* d, i64 n) {
  each(
      n,
      [&](i64 k, int) {
        Part x = load(d + k);
        for (int r = 0; r < M; ++r) x += c[r] * load(row[r] + k);
        store(d + k, x);
      },
      [&](i64 k) {
        for (int r = 0; r < M; ++r) d[k] += c[r] * row[r][k];
      });
}

void combine(double c_v, const double* v, const double* c, const float* const* row, int n_rows, double* d, i64 n) {
  each(n, [&](i64 k, int) { store(d + k, c_v * load(v + k)); }, [&](i64 k) { d[k] = c_v * v[k]; });
  int r = 0;
  for (; r + 4 <= n_rows; r += 4) add_rows<4>(c + r, row + r, d, n);
  if (r < n_rows) add_rows<2>(c + r, row + r, d, n);  // rows come in pairs
}

void look(const double* x, const double* g, double c1, double* v, i64 n, double* out) {
  Sum v2, x2;
  Double::Mask active{};
  i64 more = 0;
  const auto run = [&](auto penalised) {
    each(
        n,
        [&](i64 k, int h) {
          const Part at = load(x + k), up = load(g + k) + c1, down = load(g + k) - c1, zero{};
          Part slope = up;
          if constexpr (penalised) {
            slope = at > zero ? up : at < zero ? down : down > zero ? down : up < zero ? up : zero;
            store(v + k, slope);
          }
          v2.lanes[h] += slope * slope;
          x2.lanes[h] += at * at;
          active -= at != zero;
        },
        [&](i64 k) {
          const double up = g[k] + c1, down = g[k] - c1;
          double slope = up;
          if constexpr (penalised) v[k] = slope = x[k] > 0 ? up : x[k] < 0 ? down : down > 0 ? down : up < 0 ? up : 0.0;
          v2.rest += slope * slope;
          x2.rest += x[k] * x[k];
          more += x[k] != 0;
        });
  };
  v ? run(std::true_type{}) : run(std::false_type{});
  for (int h = 0; h < kPart; ++h) more += active[h];
  out[0] = v2.total(), out[1] = x2.total(), out[2] = static_cast<double>(more);
}

template <bool Orthant>
void move(const double* x, const double* v, double* d, double step, double* to, i64 n, double* sums) {
  Sum slope, ascent, l1;
  each(
      n,
      [&](i64 k, int h) {
        const Part at = load(x + k), up = load(v + k), zero{};
        Part way = load(d + k);
        if constexpr (Orthant) store(d + k, way = way * up < zero ? way : zero);
        Part end = at + step * way;
        slope.lanes[h] += up * way;
        if constexpr (Orthant) {
          const Part side = at != zero ? at : -up;
          end = ((side > zero) & (end > zero)) | ((side < zero) & (end < zero)) ? end : zero;
          ascent.lanes[h] += up * (end - at);
          l1.lanes[h] += end < zero ? -end : end;
        }
        store(to + k, end);
      },
      [&](i64 k) {
        if (Orthant && !(d[k] * v[k] < 0)) d[k] = 0;
        double end = x[k] + step * d[k];
        slope.rest += v[k] * d[k];
        if constexpr (Orthant) {
          const double side = x[k] != 0 ? x[k] : -v[k];
          if (!((side > 0 && end > 0) || (side < 0 && end < 0))) end = 0;
          ascent.rest += v[k] * (end - x[k]);
          l1.rest += end < 0 ? -end : end;
        }
        to[k] = end;
      });
  sums[0] = slope.total(), sums[1] = ascent.total(), sums[2] = l1.total();
}

}  // namespace

const SearchKernels& search_kernels() {
  static const SearchKernels table = {dot, change, look, products, combine, move<false>, move<true>};
  return table;
}

}  // namespace crfkit::CRFKIT_ISA
