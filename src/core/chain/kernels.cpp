// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "chain/kernels.hpp"

#include "chain/chain_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

#define CRFKIT_DEFINE(T, W)      \
  template class Steps<T, W>;    \
  template class Lattice<T, W>;  \
  template class MaxSteps<T, W>; \
  template class Viterbi<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

template <class T>
const ChainKernels<T>& chain_kernels(int n_labels) {
  return with_width<T>(n_labels, [](auto width) -> const ChainKernels<T>& {
    constexpr int W = width;
    static const ChainKernels<T> kernels = {
        .lanes = W,
        .workspace = [] { return std::unique_ptr<Workspace>(new ChainWorkspace<T, W>); },
        .sum_product = [](const ChainJob<T>& job, const Pack& pack,
                          Workspace& ws) { ChainKernel<T, W>(job, pack, ws).sum_product(); },
        .decode = [](const ChainJob<T>& job, const Pack& pack,
                     Workspace& ws) { ChainKernel<T, W>(job, pack, ws).decode(); },
        .sample = [](const ChainJob<T>& job, const Pack& pack,
                     Workspace& ws) { ChainKernel<T, W>(job, pack, ws).sample(); },
    };
    return kernels;
  });
}
#define CRFKIT_DEFINE(T) template const ChainKernels<T>& chain_kernels<T>(int);
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
