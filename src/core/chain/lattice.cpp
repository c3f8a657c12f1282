// lattice.cpp: what all kernels share, compiled once per instruction set; CRFKIT_ISA names it.
#include "chain/lattice.hpp"

#include "chain/viterbi.hpp"
#include "model/scoring.hpp"

namespace crfkit::CRFKIT_ISA {

#define CRFKIT_DEFINE(T, W)       \
  template class Steps<T, W>;     \
  template class Lattice<T, W>;   \
  template class MaxSteps<T, W>;  \
  template class Viterbi<T, W>;   \
  template class LocalRows<T, W>; \
  template class ModelRows<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
