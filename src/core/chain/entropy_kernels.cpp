// entropy_kernels.cpp: compiled once per instruction set but AVX-512; CRFKIT_ISA names it.
#include "chain/entropy_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
const EntropyKernels<T>& entropy_kernels(int n_labels) {
  return with_width<T>(n_labels, [](auto width) -> const EntropyKernels<T>& {
    constexpr int W = width;
    using Kernel = EntropyKernel<T, W>;
    static const EntropyKernels<T> kernels = {
        .workspace = [] { return std::unique_ptr<Workspace>(new EntropyWorkspace<T, W>); },
        .entropies = [](const ChainJob<T>& job, const Pack& pack, Workspace& ws) { Kernel(job, pack, ws).entropies(); },
        .covariance = [](const ChainJob<T>& job, const Pack& pack,
                         Workspace& ws) { Kernel(job, pack, ws).covariance(); },
        .backward_messages = [](const ChainJob<T>& job, const Pack& pack,
                                Workspace& ws) { Kernel(job, pack, ws).backward_messages(); },
    };
    return kernels;
  });
}
#define CRFKIT_DEFINE(T) template const EntropyKernels<T>& entropy_kernels<T>(int);
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
