// kernels.hpp: what the drivers of inference within beams ask of the kernels.
#pragma once
#include "beam/criteria.hpp"
#include "beam/dominance.hpp"
#include "chain/kernels.hpp"

namespace crfkit {

// One sequence each.
template <class T>
struct BeamKernels {
  std::unique_ptr<Workspace> (*workspace)();
  void (*sum_product)(const ChainJob<T>&, const BeamRule&, i64 seq, BeamResult&, Workspace&);
  // Beams by the scores of best paths, and these.
  void (*choose)(const ChainJob<T>&, const BeamRule&, i64 seq, BeamResult&, Workspace&);
  bool (*undominated)(const ChainJob<T>&, const Dominance<T>&, i64 seq, BeamResult&, Workspace&);
};

CRFKIT_IN_EACH_SET(template <class T> const BeamKernels<T>& beam_kernels();)

template <class T>
const BeamKernels<T>& beam_kernels_for() {
  return CRFKIT_PICK_NARROW(beam_kernels<T>)();
}

}  // namespace crfkit
