// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "beam/kernels.hpp"

#include "beam/beam_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
const BeamKernels<T>& beam_kernels() {
  static const BeamKernels<T> kernels = {
      .workspace = [] { return std::unique_ptr<Workspace>(new BeamWorkspace<T>); },
      .sum_product = [](const ChainJob<T>& job, const BeamRule& rule, i64 seq, BeamResult& out,
                        Workspace& ws) { BeamKernel<T>(job, rule, seq, ws).sum_product(out); },
      .choose = [](const ChainJob<T>& job, const BeamRule& rule, i64 seq, BeamResult& out,
                   Workspace& ws) { BeamKernel<T>(job, rule, seq, ws).choose_for_maximum(out); },
      .undominated = [](const ChainJob<T>& job, const Dominance<T>& dominance, i64 seq, BeamResult& out,
                        Workspace& ws) { return BeamKernel<T>(job, BeamRule(), seq, ws).undominated(dominance, out); },
  };
  return kernels;
}
#define CRFKIT_DEFINE(T) template const BeamKernels<T>& beam_kernels<T>();
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
