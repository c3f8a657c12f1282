// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "model/kernels.hpp"

#include "model/score_kernels.hpp"
#include "model/stored_score_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

#define CRFKIT_DEFINE(T, W)       \
  template class LocalRows<T, W>; \
  template class ModelRows<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

template <class T>
const ScoreKernels<T>& score_kernels(int n_labels) {
  return with_width<T>(n_labels, [](auto width) -> const ScoreKernels<T>& {
    constexpr int W = width;
    static const ScoreKernels<T> kernels = {
        .workspace = [] { return std::unique_ptr<Workspace>(new ScoreWorkspace<T, W>); },
        .score = [](const ModelView<T>& model, const Tokens& data, std::pair<i64, i64> seqs, const i64* edge_first,
                    T* unary, T* pairwise,
                    Workspace& ws) { ScoreKernel<T, W>(model, data, ws).score(seqs, edge_first, unary, pairwise); },
    };
    return kernels;
  });
}

template <class T>
const StoredScoreKernels<T>& stored_score_kernels(int n_labels) {
  return with_width<T>(n_labels, [](auto width) -> const StoredScoreKernels<T>& {
    constexpr int W = width;
    static const StoredScoreKernels<T> kernels = {
        .workspace = [] { return std::unique_ptr<Workspace>(new StoredScores<T, W>); },
        .score = [](const ModelView<T>& model, const StoredTokens& data, i64 block, T* unary,
                    Workspace& ws) { static_cast<StoredScores<T, W>&>(ws).score(model, data, block, unary); },
    };
    return kernels;
  });
}

#define CRFKIT_DEFINE(T)                                 \
  template const ScoreKernels<T>& score_kernels<T>(int); \
  template const StoredScoreKernels<T>& stored_score_kernels<T>(int);
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
