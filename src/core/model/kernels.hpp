// kernels.hpp: a model's weights as kernels read them, and what the drivers ask of the kernels that score.
#pragma once
#include <memory>

#include "chain/kernels.hpp"
#include "model/features.hpp"

namespace crfkit {

template <class T>
struct ModelView {
  const Layout* layout = nullptr;
  const Family *state = nullptr, *edge = nullptr;
  int stride = 0;
  const T *state_table = nullptr, *edge_table = nullptr;  // dense rows
  const Transitions<T>* transitions = nullptr;
  const double* pairwise = nullptr;          // the transitions' scores in double precision   [labels][labels]
  const T *start = nullptr, *end = nullptr;  // [stride] each, zero where the model has none
  const double* forbidden = nullptr;         // 0 or minus infinity       [labels][labels]
  const double* w = nullptr;                 // [layout.size], to score blocks
  const RunWeight<T>*state_runs = nullptr, *edge_runs = nullptr;  // all weights, to score without blocks
};

template <class T>
struct ScoreKernels {
  std::unique_ptr<Workspace> (*workspace)();
  // Scores of sequences [first, second). unary: [tokens][labels]; pairwise: [edges][labels][labels] or null
  void (*score)(const ModelView<T>&, const Tokens&, std::pair<i64, i64> seqs, const i64* edge_first, T* unary,
                T* pairwise, Workspace&);
};

CRFKIT_IN_EACH_SET(template <class T> const ScoreKernels<T>& score_kernels(int n_labels);)

template <class T>
const ScoreKernels<T>& score_kernels_for(int n_labels) {
  return CRFKIT_PICK(T, score_kernels<T>)(n_labels);
}

}  // namespace crfkit
