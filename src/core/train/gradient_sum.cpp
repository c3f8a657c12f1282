#include "train/gradient_sum.hpp"

#include "model/tables.hpp"

namespace crfkit {

template <class T>
void GradientSum<T>::start(int threads, bool ends_only, LossJob<T>& job) {
  const i64 n = layout_.n_labels;
  start_.assign(n, 0.0);
  end_.assign(n, 0.0);
  pairs_.assign(ends_only ? 0 : n * n, 0.0);
  if (!ends_only) {
    state_table_.assign(state_.dense_attr.size() * state_.width, T(0));
    edge_table_.assign(edge_.dense_attr.size() * edge_.width, T(0));
  }
  turns_ = std::make_unique<Turns>(threads == 1 ? 1 : 2 * threads);
  job.state_gradient = state_table_.data();
  job.edge_gradient = edge_table_.data();
  job.pair_gradient = pairs_.data();
  job.start_gradient = start_.data();
  job.end_gradient = end_.data();
  job.turns = turns_.get();
}

template <class T>
void GradientSum<T>::run(i64 n_tasks, const Threads& threads, FunctionRef<void(i64, int)> body) {
  parallel_for(n_tasks, threads.count, threads.poll, [&](i64 task, int thread) {
    try {
      body(task, thread);
    } catch (...) {
      turns_->break_all();
      throw;
    }
  });
}

template <class T>
void GradientSum<T>::collect(const Threads& threads, double* g) const {
  const i64 n = layout_.n_labels;
  if (!pairs_.empty()) {
    collect_table(state_, state_table_.data(), threads, g);
    collect_table(edge_, edge_table_.data(), threads, g);
    for (i64 k = 0; k < n * n; ++k)
      if (layout_.transition[k] >= 0) g[layout_.transition[k]] += pairs_[k];
  }
  for (i64 j = 0; j < n; ++j) {
    if (layout_.start >= 0) g[layout_.start + j] += start_[j];
    if (layout_.end >= 0) g[layout_.end + j] += end_[j];
  }
}

template class GradientSum<float>;
template class GradientSum<double>;

}  // namespace crfkit
