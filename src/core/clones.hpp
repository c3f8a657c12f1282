// clones.hpp: functions compiled for several instruction sets, chosen by the loader.
#pragma once
#include "base.hpp"

#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define CRFKIT_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CRFKIT_CLONES
#endif

namespace crfkit {

// Cliques and edges of two variables: x with n values, y with m; rows: theta[x][y], columns: theta[y][x].
// out[y] = sum_x theta(x, y) v(x)
void up_rows(const double* theta, const double* v, i64 n, i64 m, double* out);
void up_columns(const double* theta, const double* v, i64 n, i64 m, double* out);
// out = theta(x, y) v(x) w(y), and its sums over y
void down_rows(const double* theta, const double* v, const double* w, i64 n, i64 m, double* out, double* node);
void down_columns(const double* theta, const double* v, const double* w, i64 n, i64 m, double* out, double* node);
// table[x][y] *= w[y], and its sums over y
void scale_rows(double* table, const double* w, i64 n, i64 m, double* node);

}  // namespace crfkit
