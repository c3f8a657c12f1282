// flooding.hpp: flooding in probability space, for graphs of pairwise factors.
//
// Messages sum to one, belief_v = exp(u_v) prod_f m_{f->v}. It is exact as long as no message has an entry near zero.
#pragma once
#include "base/base.hpp"

namespace crfkit {

constexpr double kFaint = 1e-30;  // times a few neighbours, far from underflow

// exp((x - top) * scale), where no x is above top
void exponentials(const double* x, i64 n, double top, double scale, double* out);

// Variables of any number of labels, edge by edge.
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
// New messages of the edges [begin, end); raises `change` to their largest relative one, lowers `least` to their
// smallest entry.
void flood_edges(const Flood& g, i64 begin, i64 end, double& change, double& least);

// All variables with the same few labels: eight edges side by side, so that few labels are no waste of wide registers.
constexpr int kLanes = 8;
constexpr int kFewLabels = 6;
struct Lanes {
  const i64* psi_at;     // [blocks] place of a block's tables in psi
  const double* psi;     // [L][L][lanes]
  const i32* ends;       // [blocks][2][lanes] variables
  const double* belief;  // [V][L]
  double* message;       // [blocks][2][L][lanes]
};
// The same of the blocks [begin, end)
void flood_blocks(const Lanes& g, int labels, i64 begin, i64 end, double& change, double& least);
// belief_v = weight_v times the messages that begin at at[ptr[v]], ...
void multiply_blocks(int labels, const i64* ptr, const i64* at, const double* weight, const double* messages, i64 begin,
                     i64 end, double* belief);

}  // namespace crfkit
