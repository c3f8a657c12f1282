// kernels.hpp: the inner loops of inference on graphs, compiled once per instruction set.
#pragma once
#include "base/base.hpp"
#include "base/instruction_set.hpp"

namespace crfkit {

// A dense matrix in any layout.
struct Matrix {
  const double* data;
  i64 row, column;  // steps from an entry to the one below and to the one on its right
  Matrix turned() const { return {data, column, row}; }
};

constexpr double kFaint = 1e-30;  // times a few neighbours, far from underflow

// Flooding in probability space, for graphs of pairwise factors: messages sum to one, belief_v = exp(u_v) prod_f
// m_{f->v}. It is exact as long as no message has an entry near zero.
struct Flood {
  const i32* scope;  // [F][2]
  const i64* node_ptr;
  const i32* card;
  const i64* at;  // place in scope -> first entry of the message
  const double* psi;
  const i64* psi_ptr;
  const i32* table_of;
  const double* belief;
  double* message;  // an edge's new messages take the place of its old ones, which no other edge looks at
};

// The same where all variables have the same few labels: eight edges side by side, so that few labels are no waste of
// wide registers.
constexpr int kLanes = 8;
constexpr int kFewLabels = 6;
struct Lanes {
  const i64* psi_at;     // [blocks] place of a block's tables in psi
  const double* psi;     // [L][L][lanes]
  const i32* ends;       // [blocks][2][lanes] variables
  const double* belief;  // [V][L]
  double* message;       // [blocks][2][L][lanes]
};

struct GraphKernels {
  // out[i][j] = sum_k a(i, k) b(k, j) for i < n, j < m, k < depth
  void (*multiply)(const Matrix& a, const Matrix& b, i64 n, i64 m, i64 depth, double* out, Buffer<double>& room);
  // Cliques and edges of two variables: x with n values, y with m; rows: theta[x][y], columns: theta[y][x].
  // out[y] = sum_x theta(x, y) v(x)
  using Up = void (*)(const double* theta, const double* v, i64 n, i64 m, double* out);
  Up up_rows, up_columns;
  // out = theta(x, y) v(x) w(y), and its sums over y
  using Down = void (*)(const double* theta, const double* v, const double* w, i64 n, i64 m, double* out, double* node);
  Down down_rows, down_columns;
  // table[x][y] *= w[step x + y], and its sums over y
  void (*scale_rows)(double* table, const double* w, i64 step, i64 n, i64 m, double* node);
  // out = scale * a / b, zero where b is
  void (*divide)(const double* a, const double* b, double scale, i64 n, double* out);
  // Divides x, which is not negative, by its largest entry, and gives that; zero, and nothing changed, if all are zero.
  // `least` becomes the smallest entry above zero.
  double (*divide_by_largest)(double* x, i64 n, double& least);
  // exp((x - top) * scale), where no x is above top
  void (*exponentials)(const double* x, i64 n, double top, double scale, double* out);
  // New messages of the edges [begin, end); raises `change` to their largest relative one, lowers `least` to their
  // smallest entry. Or of blocks of edges.
  void (*flood_edges)(const Flood& g, i64 begin, i64 end, double& change, double& least);
  void (*flood_blocks)(const Lanes& g, int labels, i64 begin, i64 end, double& change, double& least);
  // belief_v = weight_v times the messages that begin at at[ptr[v]], ...
  void (*multiply_blocks)(int labels, const i64* ptr, const i64* at, const double* weight, const double* messages,
                          i64 begin, i64 end, double* belief);
};

CRFKIT_IN_EACH_SET(const GraphKernels& graph_kernels();)

inline const GraphKernels& graph_kernels() { return CRFKIT_PICK_WIDE(graph_kernels)(); }

}  // namespace crfkit
