// search_kernels.hpp: what a search by L-BFGS does to a chunk of its vectors; rows of its memory are in single
// precision.
#pragma once
#include "base/base.hpp"
#include "base/instruction_set.hpp"

namespace crfkit {

struct SearchKernels {
  // out = now - old
  void (*change)(const double* now, const double* old, float* out, i64 n);
  // out: inner products of a row with v, s and y
  void (*products)(const float* row, const double* v, const float* s, const float* y, i64 n, double* out);
  // d = c_v v + sum of c[r] row[r]
  void (*combine)(double c_v, const double* v, const double* c, const float* const* row, int n_rows, double* d, i64 n);
  // v: the subgradient of least norm of f + c1 |x|, where f has the gradient g
  void (*steepest)(const double* x, const double* g, double c1, double* v, i64 n);
  // d = 0 where it does not go down along v
  void (*descend)(const double* v, double* d, i64 n);
  // out = x + step d
  void (*move)(const double* x, const double* d, double step, double* out, i64 n);
  // Zero where out has left the orthant of x, or of -v where x is zero; change: out - x. Gives the sum of |out|.
  double (*keep_orthant)(const double* x, const double* v, double* out, double* change, i64 n);
  i64 (*count_active)(const double* x, i64 n);  // that are not zero
};

CRFKIT_IN_EACH_SET(const SearchKernels& search_kernels();)

inline const SearchKernels& search_kernels() { return CRFKIT_PICK_WIDE(search_kernels)(); }

}  // namespace crfkit
