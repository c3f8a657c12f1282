// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "train/kernels.hpp"

#include "train/loss_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

#define CRFKIT_DEFINE(T, W) template class LossKernel<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

template <class T>
const LossKernels<T>& loss_kernels(int n_labels) {
  return with_width<T>(n_labels, [](auto width) -> const LossKernels<T>& {
    constexpr int W = width;
    static const LossKernels<T> kernels = {
        .workspace = [] { return std::unique_ptr<Workspace>(new LossWorkspace<T, W>); },
        .loss = [](const LossJob<T>& job, const Block<T>& block, const u16* gold, i64 task,
                   Workspace& ws) { LossKernel<T, W>(job, block, ws).loss(gold, task); },
    };
    return kernels;
  });
}
#define CRFKIT_DEFINE(T) template const LossKernels<T>& loss_kernels<T>(int);
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
