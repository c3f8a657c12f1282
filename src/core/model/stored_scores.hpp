// stored_scores.hpp: scores of stored tokens, which are scored again and again as the weights change.
#pragma once
#include "model/kernels.hpp"

namespace crfkit {

template <class T>
struct StoredScoreKernels {
  std::unique_ptr<Workspace> (*workspace)();
  // Scores of the tokens of a block, without start and end weights   [tokens of the block][labels]
  void (*score)(const ModelView<T>&, const StoredTokens&, i64 block, T* unary, Workspace&);
};

CRFKIT_IN_EACH_SET(template <class T> const StoredScoreKernels<T>& stored_score_kernels(int n_labels);)

template <class T>
const StoredScoreKernels<T>& stored_score_kernels_for(int n_labels) {
  return CRFKIT_PICK(T, stored_score_kernels<T>)(n_labels);
}

}  // namespace crfkit
