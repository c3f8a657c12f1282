// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "graph/kernels.hpp"

#include "graph/flooding.hpp"
#include "graph/matrix.hpp"
#include "graph/pair_tables.hpp"

namespace crfkit::CRFKIT_ISA {

const GraphKernels& graph_kernels() {
  static const GraphKernels table = {multiply,     up_rows,     up_columns,   down_rows,
                                     down_columns, scale_rows,  divide,       divide_by_largest,
                                     exponentials, flood_edges, flood_blocks, multiply_blocks};
  return table;
}

}  // namespace crfkit::CRFKIT_ISA
