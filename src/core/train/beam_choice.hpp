// beam_choice.hpp: picks the beams of one block.
#pragma once
#include "train/other_workspace.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
class BeamChoice : LossKernel<T, W> {
  using Base = LossKernel<T, W>;
  using Base::base_, Base::block_, Base::gold_, Base::job_, Base::n_, Base::stride_;
  static constexpr int kByMarginals = 256;  // labels up to which exact marginals choose beams

 public:
  BeamChoice(const LossJob<T>& job, const Block<T>& block, Workspace& workspace)
      : Base(job, block, workspace), ws_(static_cast<OtherLossWorkspace<T, W>&>(workspace)) {}

  // Picks beams that hold the gold labels, joins them with those before, and lays out what they need.
  void choose(const u16* gold, const Criterion& criterion, const Beams& before, BeamBlock<T>& out) {
    BeamBuilder<T> builder(*job_.state, job_.layout->n_labels, block_.state, before, out);
    gold_ = gold;
    // Exact marginals of few labels, many sequences at a time, cost less than messages from beam to beam.
    if (n_ <= kByMarginals && criterion.amount > 0) choose_by_marginals(criterion, builder);
    else choose_by_messages(criterion, builder);
    builder.finish();
  }

 private:
  void choose_by_messages(const Criterion& criterion, BeamBuilder<T>& builder) {
    BeamResult beams;
    std::vector<i32> keep;
    for (std::size_t p = 0; p < block_.packs.size(); ++p) {
      const Pack& pack = block_.packs[p];
      base_ = block_.base[p];
      T* u = ws_.sum.start(pack, n_, stride_);
      Base::score_pack(pack, u);
      for (int s = 0; s < pack.n_seq(); ++s) {
        const int steps = pack.length(s);
        ws_.unary.reserve(steps * n_);
        keep.clear();
        for (int t = 0; t < steps; ++t) {
          const i64 r = pack.row(t, s);
          std::copy_n(u + r * stride_, n_, ws_.unary.data() + t * n_);
          keep.push_back(gold_[base_ + r]);
        }
        const i64 offsets[2] = {0, steps};
        ChainJob<T> job;
        job.n_labels = job_.layout->n_labels;
        job.stride = job_.stride;
        job.offsets = offsets;
        job.unary = ws_.unary.data();
        job.shared = job_.transitions;
        job.n_seq = 1;
        const BeamRule rule{criterion, keep.data(), BeamRule::Form::smoothed, criterion.amount > 0};
        BeamKernel<T>(job, rule, 0, ws_.beam).choose(beams);
        builder.add(beams, keep.data(), Base::weight(pack, s), [&](int t) { return base_ + pack.row(t, s); });
      }
    }
  }

  void choose_by_marginals(const Criterion& criterion, BeamBuilder<T>& builder) {
    const FlushDenormals flush;
    BeamResult beams;
    std::vector<i32> keep;
    Base::clear();
    for (std::size_t p = 0; p < block_.packs.size(); ++p) {
      const Pack& pack = Base::run_nodes(p, false);
      for (int s = 0; s < pack.n_seq(); ++s) {
        const int steps = pack.length(s);
        beams.start(steps);
        keep.clear();
        for (int t = 0; t < steps; ++t) {
          const i64 r = pack.row(t, s);
          keep.push_back(gold_[base_ + r]);
          ws_.beam.walk.selector.select(ws_.sum.lattice.e.data() + r * stride_, job_.layout->n_labels, job_.stride,
                                        criterion, keep.back(), beams.labels);
          beams.ptr.push_back(beams.labels.size());
        }
        builder.add(beams, keep.data(), Base::weight(pack, s), [&](int t) { return base_ + pack.row(t, s); });
      }
    }
  }

  OtherLossWorkspace<T, W>& ws_;
};

}  // namespace crfkit::CRFKIT_ISA
