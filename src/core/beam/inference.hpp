// inference.hpp: inference on the potentials of many sequences within beams of labels, on threads.
#pragma once
#include "beam/criteria.hpp"
#include "chain/chain.hpp"

namespace crfkit {

// Sum-product over beams; one result per sequence. A dead sequence has log_mass minus infinity.
template <class T>
std::vector<BeamResult> beam_sum_product(const ChainInput<T>& in, const BeamRule& rule, const Threads& threads);

// As in chain.hpp. With a rule, within beams that it picks by the scores of best paths; null: all labels, where labels
// that cannot be on the best path are left out where that is faster (dominance.hpp).
template <class T>
void decode(const ChainInput<T>& in, const BeamRule* rule, const Threads& threads, i32* path, u8* dead);

// As in chain.hpp, within beams that a rule picks by the scores of best paths.
template <class T>
std::vector<Paths> nbest(const ChainInput<T>& in, const BeamRule& rule, i64 k, const Threads& threads);

}  // namespace crfkit
