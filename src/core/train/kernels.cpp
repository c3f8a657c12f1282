// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "train/kernels.hpp"

#include <algorithm>

#include "beam/beam_kernels.hpp"
#include "chain/chain_kernels.hpp"
#include "model/score_kernels.hpp"
#include "train/loss_kernels.hpp"
#include "train/vector_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

#define CRFKIT_DEFINE(T, W) template class LossKernel<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

namespace {

template <class T, int W>
BeamWorkspace<T>& beam(Workspace& ws) {
  return static_cast<LossWorkspace<T, W>&>(ws).beam;
}

template <class T, int W>
const Kernels<T>& table() {
  static const Kernels<T> kernels = {
      .lanes = W,
      .workspace = [] { return std::unique_ptr<Workspace>(new LossWorkspace<T, W>); },
      .sum_product = [](const ChainJob<T>& job, const Pack& pack,
                        Workspace& ws) { ChainKernel<T, W>(job, pack, ws).sum_product(); },
      .decode = [](const ChainJob<T>& job, const Pack& pack,
                   Workspace& ws) { ChainKernel<T, W>(job, pack, ws).decode(); },
      .sample = [](const ChainJob<T>& job, const Pack& pack,
                   Workspace& ws) { ChainKernel<T, W>(job, pack, ws).sample(); },
      .beam_sum_product = [](const ChainJob<T>& job, const BeamRule& rule, i64 seq, BeamResult& out,
                             Workspace& ws) { BeamKernel<T>(job, rule, seq, beam<T, W>(ws)).sum_product(out); },
      .beam_choose = [](const ChainJob<T>& job, const BeamRule& rule, i64 seq, BeamResult& out,
                        Workspace& ws) { BeamKernel<T>(job, rule, seq, beam<T, W>(ws)).choose_for_maximum(out); },
      .undominated =
          [](const ChainJob<T>& job, const Dominance<T>& dominance, i64 seq, BeamResult& out, Workspace& ws) {
            return BeamKernel<T>(job, BeamRule(), seq, beam<T, W>(ws)).undominated(dominance, out);
          },
      .loss = [](const LossJob<T>& job, const Block<T>& block, const u16* gold, i64 task,
                 Workspace& ws) { LossKernel<T, W>(job, block, ws).loss(gold, task); },
      .beam_loss =
          [](const LossJob<T>& job, const BeamBlock<T>& beams, i64 task, Workspace& ws) {
            BeamLossKernel<T>(job, beams, static_cast<LossWorkspace<T, W>&>(ws).beam_loss).loss(task);
          },
      .loss_beams = [](const LossJob<T>& job, const Block<T>& block, const u16* gold, const Criterion& criterion,
                       const Beams& before, BeamBlock<T>& out,
                       Workspace& ws) { LossKernel<T, W>(job, block, ws).choose(gold, criterion, before, out); },
      .score = [](const LossJob<T>& job, const Tokens& data, std::pair<i64, i64> seqs, const i64* edge_first, T* unary,
                  T* pairwise,
                  Workspace& ws) { ScoreKernel<T, W>(job, data, ws).score(seqs, edge_first, unary, pairwise); },
  };
  return kernels;
}

// The vector width, at most a register's, that pads n labels least; the widest among equals. Many labels
// always take the widest: there the padding is small beside the rest.
template <class T, int W = kWidest<T>>
const Kernels<T>& choose(int n) {
  if constexpr (W > kNarrowest<T>)
    if (n <= 4 * W / 2 && round_up(n, W / 2) < round_up(n, W)) return choose<T, W / 2>(n);
  return table<T, W>();
}

}  // namespace

template <class T>
const Kernels<T>& kernels(int n_labels) {
  return choose<T>(n_labels);
}
#define CRFKIT_DEFINE(T) template const Kernels<T>& kernels<T>(int);
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

const VectorKernels& vector_kernels() {
  static const VectorKernels table = {dot_of<double, double>, dot_of<float, float>, dot_of<float, double>, add_rows_to};
  return table;
}

}  // namespace crfkit::CRFKIT_ISA
