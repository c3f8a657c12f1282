#include "model/scorer.hpp"

#include "chain/workspaces.hpp"
#include "model/stored_scores.hpp"
#include "model/tables.hpp"

namespace crfkit {

template <class T>
Scorer<T>::Scorer(std::shared_ptr<const Layout> layout, const double* w, const double* constraints,
                  const Threads& threads)
    : layout_(std::move(layout)),
      state_(layout_->state_family(chain_kernels_for<T>(layout_->n_labels).lanes)),
      edge_(layout_->edge_family(chain_kernels_for<T>(layout_->n_labels).lanes)),
      weights_(*layout_, state_, edge_, constraints) {
  set(w, threads);
}

template <class T>
void Scorer<T>::set(const double* w, const Threads& threads) {
  weights_.set(w, threads);
  const auto fill = [&](const Family& family, std::vector<RunWeight<T>>& runs) {
    runs.clear();
    if (all_dense(family)) return;
    runs.reserve(family.n_weights());
    for (u32 k = 0; k < family.n_weights(); ++k) runs.push_back({T(w[family.first_weight + k]), family.column(k)});
  };
  fill(state_, state_runs_);
  fill(edge_, edge_runs_);
}

template <class T>
void Scorer<T>::score(const Tokens& data, const Threads& threads, T* unary, T* pairwise) const {
  layout_->check(data.edge_ptr != nullptr);
  const std::vector<i64> edge_first = edge_offsets(data.offsets, data.n_seq);
  const ModelView<T> model = view();
  const auto cuts = cut_blocks(data.offsets, data.n_seq, tokens_per_block(layout_->n_labels));
  const ScoreKernels<T>& kernels = score_kernels_for<T>(layout_->n_labels);
  with_workspaces(kernels.workspace, cuts.size(), threads, [&](i64 b, Workspace& workspace) {
    kernels.score(model, data, cuts[b], edge_first.data(), unary, pairwise, workspace);
  });
}

template <class T>
void Scorer<T>::score_one(const Tokens& data, T* unary, Workspace& workspace) const {
  layout_->check(data.edge_ptr != nullptr);
  score_kernels_for<T>(layout_->n_labels).score(view(), data, {0, 1}, nullptr, unary, nullptr, workspace);
}

template <class T>
void Scorer<T>::score(const StoredTokens& data, const Threads& threads, T* unary) const {
  layout_->check(false);
  const i64 n = layout_->n_labels;
  const ModelView<T> model = view();
  const StoredScoreKernels<T>& kernels = stored_score_kernels_for<T>(layout_->n_labels);
  with_workspaces(kernels.workspace, data.n_blocks, threads, [&](i64 b, Workspace& workspace) {
    kernels.score(model, data, b, unary + data.first_token(b) * n, workspace);
    for (i64 s = data.first_seq[b]; s < data.first_seq[b + 1]; ++s) {
      const i64 first = data.offsets[s], last = data.offsets[s + 1] - 1;
      for (i64 j = 0; j < n && first <= last; ++j) {
        unary[first * n + j] += model.start[j];
        unary[last * n + j] += model.end[j];
      }
    }
  });
}

template class Scorer<float>;
template class Scorer<double>;

}  // namespace crfkit
