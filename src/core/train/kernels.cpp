// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "train/kernels.hpp"

#include "train/semi_kernels.hpp"

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
        .beam_loss =
            [](const LossJob<T>& job, const BeamBlock<T>& beams, i64 task, Workspace& ws) {
              BeamLossKernel<T>(job, beams, static_cast<LossWorkspace<T, W>&>(ws).beam_loss).loss(task);
            },
        .loss_beams = [](const LossJob<T>& job, const Block<T>& block, const u16* gold, const Criterion& criterion,
                         const Beams& before, BeamBlock<T>& out,
                         Workspace& ws) { LossKernel<T, W>(job, block, ws).choose(gold, criterion, before, out); },
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
#define CRFKIT_DEFINE(T) template const LossKernels<T>& loss_kernels<T>(int);
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
