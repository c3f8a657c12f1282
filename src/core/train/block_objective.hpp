// block_objective.hpp: what the objectives of a data set share: its blocks, the weights, and how gradients are added
// up.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "model/weights.hpp"
#include "train/gradient_sum.hpp"

namespace crfkit {

template <class T>
class BlockObjective {
 public:
  i64 size() const { return layout_->size; }
  int n_labels() const { return layout_->n_labels; }

 protected:
  BlockObjective(std::shared_ptr<const Layout> layout, bool data_has_edges, const i64* offsets, i64 n_seq,
                 const double* seq_weight, const double* constraints, bool offsets_stay = false)
      : layout_(std::move(layout)),
        kernels_(loss_kernels_for<T>(layout_->n_labels)),
        other_(other_loss_kernels_for<T>(layout_->n_labels)),
        state_(layout_->state_family(chain_kernels_for<T>(layout_->n_labels).lanes)),
        edge_(layout_->edge_family(chain_kernels_for<T>(layout_->n_labels).lanes)),
        weights_(*layout_, state_, edge_, constraints),
        sum_(*layout_, state_, edge_),
        own_offsets_(offsets, offsets_stay ? offsets : offsets + n_seq + 1),
        offsets_(offsets_stay ? offsets : own_offsets_.data()) {
    layout_->check(data_has_edges);
    if (seq_weight) seq_weight_.assign(seq_weight, seq_weight + n_seq);
  }

  // Makes the blocks, of packs of width(b) sequences where steps share their transitions; keep(b) takes what it needs
  // of the numbers of a block's tokens.
  void make_blocks(const Tokens& data, const std::vector<std::pair<i64, i64>>& cuts, const Threads& threads,
                   FunctionRef<int(i64)> width, FunctionRef<void(i64)> keep) {
    blocks_.resize(cuts.size());
    parallel_for(cuts.size(), threads.count, threads.poll, [&](i64 b, int) {
      blocks_[b] = make_block<T>(state_, edge_, data, cuts[b], layout_->has_edges() ? 1 : width(b));
      keep(b);
      std::vector<i64>().swap(blocks_[b].token);
    });
    for (Family* family : {&state_, &edge_}) std::vector<Family::Place>().swap(family->place);  // only blocks need it
  }

  // A job at w that adds to value and g; ends_only: as in GradientSum.
  LossJob<T> start(const double* w, double* value, double* g, bool ends_only, const Threads& threads) {
    LossJob<T> job{weights_.view()};
    job.w = w;
    job.offsets = offsets_;
    job.seq_weight = seq_weight_.empty() ? nullptr : seq_weight_.data();
    job.value = value;
    job.g = g;
    sum_.start(threads, ends_only, job);
    for (auto* rooms : {&workspaces_, &other_workspaces_})
      if (std::ssize(*rooms) < threads.count) rooms->resize(threads.count);
    return job;
  }
  Workspace& workspace(int thread) {
    if (!workspaces_[thread]) workspaces_[thread] = kernels_.workspace();
    return *workspaces_[thread];
  }
  Workspace& other_workspace(int thread) {
    if (!other_workspaces_[thread]) other_workspaces_[thread] = other_.workspace();
    return *other_workspaces_[thread];
  }
  // Runs body(task, thread) for all tasks and adds their gradients to g; penalty: as in GradientSum.
  using Penalty = typename GradientSum<T>::Penalty;
  void add_up(i64 n_tasks, const Threads& threads, double* g, FunctionRef<void(i64, int)> body,
              const Penalty& penalty = {}) {
    sum_.run(n_tasks, threads, body);
    sum_.collect(threads, penalty, g);
  }
  // Adds the Hessian of the first n blocks at w, times v, to out; block(b, thread): the blocks; known(b): what is
  // known of its labels, if not all.
  void add_hessian_product(const double* w, const double* v, i64 n, FunctionRef<const Block<T>&(i64, int)> block,
                           FunctionRef<std::optional<KnownRows<T>>(i64)> known, double* out, const Threads& threads) {
    weights_.set(w, threads);
    Weights<T> tangent(*layout_, state_, edge_, nullptr);
    tangent.set(v, threads);
    ModelView<T> view = tangent.view();
    view.w = v;
    Buffer<T> scored, scored_t;
    weights_.transitions.weigh(tangent.pairwise, 0.0, scored, scored_t);
    double value = 0;
    LossJob<T> job = start(w, &value, out, false, threads);
    job.scored = scored.data();
    job.scored_t = scored_t.data();
    job.tangent = &view;
    job.scale = -1;  // the gradient of the entropy is minus a covariance
    add_up(n, threads, out, [&](i64 b, int thread) {
      const auto rows = known(b);
      other_.curvature(job, block(b, thread), rows ? &*rows : nullptr, b, other_workspace(thread));
    });
  }

  std::mutex lock_;  // callers on several threads take turns: the buffers are shared
  const std::shared_ptr<const Layout> layout_;
  const LossKernels<T>& kernels_;
  const OtherLossKernels<T>& other_;
  Family state_, edge_;
  Weights<T> weights_;
  GradientSum<T> sum_;
  const std::vector<i64> own_offsets_;  // unless those given stay in use
  const i64* const offsets_;            // first token of each sequence
  std::vector<double> seq_weight_;
  std::vector<Block<T>> blocks_;
  std::vector<std::unique_ptr<Workspace>> workspaces_, other_workspaces_;
};

}  // namespace crfkit
