// pair_tables.hpp: tables of two variables beside vectors of each, for junction trees and messages.
#pragma once
#include "base/base.hpp"

namespace crfkit {

// Cliques and edges of two variables: x with n values, y with m; rows: theta[x][y], columns: theta[y][x].
// out[y] = sum_x theta(x, y) v(x)
void up_rows(const double* theta, const double* v, i64 n, i64 m, double* out);
void up_columns(const double* theta, const double* v, i64 n, i64 m, double* out);
// out = theta(x, y) v(x) w(y), and its sums over y
void down_rows(const double* theta, const double* v, const double* w, i64 n, i64 m, double* out, double* node);
void down_columns(const double* theta, const double* v, const double* w, i64 n, i64 m, double* out, double* node);
// table[x][y] *= w[step x + y], and its sums over y
void scale_rows(double* table, const double* w, i64 step, i64 n, i64 m, double* node);
// out = scale * a / b, zero where b is
void divide(const double* a, const double* b, double scale, i64 n, double* out);
// Divides x, which is not negative, by its largest entry, and gives that; zero, and nothing changed, if all are zero.
// `least` becomes the smallest entry above zero.
double divide_by_largest(double* x, i64 n, double& least);

}  // namespace crfkit
