#include "train/search_kernels.hpp"

#include "train/vector_kernels.hpp"

namespace crfkit::CRFKIT_ISA {
namespace {

using Wide = WideDouble::Vec;

// Calls body(k) for whole vectors of [0, n) and rest(k) for what remains.
template <class Body, class Rest>
CRFKIT_INLINE void each(i64 n, Body body, Rest rest) {
  i64 k = 0;
  for (; k + kWide <= n; k += kWide) body(k);
  for (; k < n; ++k) rest(k);
}

void change(const double* now, const double* old, float* out, i64 n) {
  each(
      n,
      [&](i64 k) {
        const Wide x = load_wide(now + k) - load_wide(old + k);
        WideFloat::store(out + k, __builtin_convertvector(x, WideFloat::Vec));
      },
      [&](i64 k) { out[k] = float(now[k] - old[k]); });
}

// Each sum is that of dot_of, in its order.
void products(const float* row, const double* v, const float* s, const float* y, i64 n, double* out) {
  Wide total[3][2] = {};
  i64 k = 0;
  for (; k + 2 * kWide <= n; k += 2 * kWide)
    for (int h = 0; h < 2; ++h) {
      const Wide x = load_wide(row + k + h * kWide);
      total[0][h] += x * load_wide(v + k + h * kWide);
      total[1][h] += x * load_wide(s + k + h * kWide);
      total[2][h] += x * load_wide(y + k + h * kWide);
    }
  double rest[3] = {};
  for (; k < n; ++k) {
    rest[0] += double{row[k]} * v[k];
    rest[1] += double{row[k]} * s[k];
    rest[2] += double{row[k]} * y[k];
  }
  for (int p = 0; p < 3; ++p) out[p] = WideDouble::sum(total[p][0] + total[p][1]) + rest[p];
}

// d += sum of c[r] row[r], for M rows: few enough streams for the processor to follow
template <int M>
void add_rows(const double* c, const float* const* row, double* d, i64 n) {
  const float* at[M];
  Wide factor[M];
  for (int r = 0; r < M; ++r) at[r] = row[r], factor[r] = Wide{} + c[r];
  each(
      n,
      [&](i64 k) {
        Wide x = load_wide(d + k);
        for (int r = 0; r < M; ++r) x += factor[r] * load_wide(at[r] + k);
        WideDouble::store(d + k, x);
      },
      [&](i64 k) {
        for (int r = 0; r < M; ++r) d[k] += c[r] * at[r][k];
      });
}

void combine(double c_v, const double* v, const double* c, const float* const* row, int n_rows, double* d, i64 n) {
  each(n, [&](i64 k) { WideDouble::store(d + k, c_v * load_wide(v + k)); }, [&](i64 k) { d[k] = c_v * v[k]; });
  int r = 0;
  for (; r + 4 <= n_rows; r += 4) add_rows<4>(c + r, row + r, d, n);
  if (r + 2 <= n_rows) add_rows<2>(c + r, row + r, d, n), r += 2;
  if (r < n_rows) add_rows<1>(c + r, row + r, d, n);
}

void steepest(const double* x, const double* g, double c1, double* v, i64 n) {
  each(
      n,
      [&](i64 k) {
        const Wide at = load_wide(x + k), slope = load_wide(g + k), up = slope + c1, down = slope - c1;
        const Wide at_zero = slope > c1 ? down : slope < -c1 ? up : Wide{};
        WideDouble::store(v + k, at > 0.0 ? up : at < 0.0 ? down : at_zero);
      },
      [&](i64 k) {
        const double up = g[k] + c1, down = g[k] - c1;
        v[k] = x[k] > 0 ? up : x[k] < 0 ? down : g[k] > c1 ? down : g[k] < -c1 ? up : 0.0;
      });
}

void descend(const double* v, double* d, i64 n) {
  each(
      n,
      [&](i64 k) {
        const Wide x = load_wide(d + k);
        WideDouble::store(d + k, x * load_wide(v + k) < 0.0 ? x : Wide{});
      },
      [&](i64 k) { d[k] = d[k] * v[k] < 0 ? d[k] : 0.0; });
}

void move(const double* x, const double* d, double step, double* out, i64 n) {
  each(
      n, [&](i64 k) { WideDouble::store(out + k, load_wide(x + k) + step * load_wide(d + k)); },
      [&](i64 k) { out[k] = x[k] + step * d[k]; });
}

double keep_orthant(const double* x, const double* v, double* out, double* change, i64 n) {
  Wide total{};
  double rest = 0;
  each(
      n,
      [&](i64 k) {
        const Wide at = load_wide(x + k), to = load_wide(out + k), zero{};
        const Wide side = at != zero ? at : -load_wide(v + k);
        const Wide kept = side > zero ? (to > zero ? to : zero) : side < zero ? (to < zero ? to : zero) : zero;
        WideDouble::store(out + k, kept);
        WideDouble::store(change + k, kept - at);
        total += kept < zero ? -kept : kept;
      },
      [&](i64 k) {
        const double side = x[k] != 0 ? x[k] : -v[k];
        if (!((side > 0 && out[k] > 0) || (side < 0 && out[k] < 0))) out[k] = 0;
        change[k] = out[k] - x[k];
        rest += out[k] < 0 ? -out[k] : out[k];
      });
  return WideDouble::sum(total) + rest;
}

i64 count_active(const double* x, i64 n) {
  WideDouble::Mask total{};
  i64 rest = 0;
  each(n, [&](i64 k) { total -= load_wide(x + k) != Wide{}; }, [&](i64 k) { rest += x[k] != 0; });
  for (int h = 0; h < kWide; ++h) rest += total[h];
  return rest;
}

}  // namespace

const SearchKernels& search_kernels() {
  static const SearchKernels table = {change, products, combine, steepest, descend, move, keep_orthant, count_active};
  return table;
}

}  // namespace crfkit::CRFKIT_ISA
