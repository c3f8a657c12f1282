// scorer.hpp: potentials of data under a fixed weight vector.
#pragma once
#include "model/weights.hpp"

namespace crfkit {

template <class T>
class Scorer {
 public:
  Scorer(std::shared_ptr<const Layout> layout, const double* w, const double* constraints, const Threads& threads);
  // Other weights.
  void set(const double* w, const Threads& threads);
  // unary [tokens][labels], start and end weights included; pairwise [edges][labels][labels], needed only if
  // per_step()
  void score(const Tokens& data, const Threads& threads, T* unary, T* pairwise) const;
  // The same of a short sequence, one after another with the same scratch memory; its transitions do not look at the
  // input.
  std::unique_ptr<Workspace> workspace() const { return score_kernels_for<T>(layout_->n_labels).workspace(); }
  void score_one(const Tokens& data, T* unary, Workspace& workspace) const;
  // The same of stored tokens, where the transitions do not look at the input.
  void score(const StoredTokens& data, const Threads& threads, T* unary) const;
  bool per_step() const { return layout_->has_edges(); }
  int n_labels() const { return layout_->n_labels; }
  u32 size() const { return layout_->size; }
  // [labels][labels], where the transitions do not look at the input
  const std::vector<double>& pairwise() const { return weights_.pairwise; }

 private:
  ModelView<T> view() const {
    ModelView<T> model = weights_.view();
    model.state_runs = state_runs_.data();
    model.edge_runs = edge_runs_.data();
    return model;
  }

  const std::shared_ptr<const Layout> layout_;
  Family state_, edge_;
  std::vector<RunWeight<T>> state_runs_, edge_runs_;
  Weights<T> weights_;
};

}  // namespace crfkit
