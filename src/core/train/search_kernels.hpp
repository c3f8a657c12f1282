// search_kernels.hpp: what a search by L-BFGS does to a chunk of its vectors; rows of its memory are in single
// precision. Each does all it can in one pass.
#pragma once
#include "base/base.hpp"
#include "base/instruction_set.hpp"

namespace crfkit {

struct SearchKernels {
  double (*dot)(const double* a, const double* b, i64 n);
  // out = now - old
  void (*change)(const double* now, const double* old, float* out, i64 n);
  // v, unless it is null: the subgradient of least norm of f + c1 |x|, where f has the gradient g. out: the squared
  // norms of v (or of g) and of x, and how many of x are not zero.
  void (*look)(const double* x, const double* g, double c1, double* v, i64 n, double* out);
  // out: inner products of a pair of rows, which lie a stride apart, with v, s and y; the next pair is called for
  // meanwhile.
  void (*products)(const float* pair, i64 stride, const float* next, const double* v, const float* s, const float* y,
                   i64 n, double* out);
  // d = c_v v + sum of c[r] row[r]
  void (*combine)(double c_v, const double* v, const double* c, const float* const* row, int n_rows, double* d, i64 n);
  // to = x + step d; sums: v.d. With an orthant, that of x, or of -v where x is zero: d is zero where it does not go
  // down along v, and to where it would leave; sums: v.d, v.(to - x), |to|.
  void (*move)(const double* x, const double* v, double* d, double step, double* to, i64 n, double* sums);
  void (*move_in_orthant)(const double* x, const double* v, double* d, double step, double* to, i64 n, double* sums);
};

CRFKIT_IN_EACH_SET(const SearchKernels& search_kernels();)

inline const SearchKernels& search_kernels() { return CRFKIT_PICK_WIDE(search_kernels)(); }

}  // namespace crfkit
