// other_kernels.cpp: compiled once per instruction set but AVX-512; CRFKIT_ISA names it.
#include "train/beam_choice.hpp"
#include "train/semi_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
const OtherLossKernels<T>& other_loss_kernels(int n_labels) {
  return with_width<T>(n_labels, [](auto width) -> const OtherLossKernels<T>& {
    constexpr int W = width;
    static const OtherLossKernels<T> kernels = {
        .workspace = [] { return std::unique_ptr<Workspace>(new OtherLossWorkspace<T, W>); },
        .beam_loss =
            [](const LossJob<T>& job, const BeamBlock<T>& beams, i64 task, Workspace& ws) {
              BeamLossKernel<T>(job, beams, static_cast<OtherLossWorkspace<T, W>&>(ws).beam_loss).loss(task);
            },
        .loss_beams = [](const LossJob<T>& job, const Block<T>& block, const u16* gold, const Criterion& criterion,
                         const Beams& before, BeamBlock<T>& out,
                         Workspace& ws) { BeamChoice<T, W>(job, block, ws).choose(gold, criterion, before, out); },
        .partial = [](const LossJob<T>& job, const Block<T>& block, const KnownRows<T>& known, i64 task,
                      Workspace& ws) { SemiLossKernel<T, W>(job, block, ws).partial(known, task); },
        .entropy = [](const LossJob<T>& job, const Block<T>& block, i64 task,
                      Workspace& ws) { SemiLossKernel<T, W>(job, block, ws).entropy(task); },
        .curvature = [](const LossJob<T>& job, const Block<T>& block, const KnownRows<T>* known, i64 task,
                        Workspace& ws) { SemiLossKernel<T, W>(job, block, ws).curvature(known, task); },
        .expected =
            [](const LossJob<T>& job, const Block<T>& block, const GroupedRows<T>& rows, std::vector<double>& counts,
               i64 task,
               Workspace& ws) { SemiLossKernel<T, W>(job, block, ws, !rows.scored).expected(rows, counts, task); },
        .covariance = [](const LossJob<T>& job, const Block<T>& block, const GroupedRows<T>& rows, i64 task,
                         Workspace& ws) { SemiLossKernel<T, W>(job, block, ws).covariance(rows, task); },
        .divergence = [](const LossJob<T>& job, const Block<T>& block, const GroupedRows<T>& rows, i64 task,
                         Workspace& ws) { SemiLossKernel<T, W>(job, block, ws).divergence(rows, task); },
    };
    return kernels;
  });
}
#define CRFKIT_DEFINE(T) template const OtherLossKernels<T>& other_loss_kernels<T>(int);
CRFKIT_EACH_SINGLE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
