#include "train/gradient_sum.hpp"

#include "model/tables.hpp"

namespace crfkit {
namespace {

template <class T>
void clear_table(const Family& family, const Threads& threads, Buffer<T>& table) {
  const i64 size = std::ssize(family.dense_attr) * family.width;
  table.reserve(size + 1);
  parallel_blocks(size, i64{1} << 16, threads, [&](i64 a, i64 b, int) { std::fill(&table[a], &table[b], T(0)); });
}

}  // namespace

template <class T>
GradientSum<T>::GradientSum(const Layout& layout, const Family& state, const Family& edge)
    : layout_(layout),
      state_(state),
      edge_(edge),
      state_full_(full_columns(state)),
      edge_full_(full_columns(edge)),
      own_states_(all_dense(state)) {}

template <class T>
void GradientSum<T>::start(const Threads& threads, bool ends_only, LossJob<T>& job) {
  const i64 n = layout_.n_labels;
  start_.assign(n, 0.0);
  end_.assign(n, 0.0);
  pairs_.assign(ends_only ? 0 : n * n, 0.0);
  if (!ends_only) {
    clear_table(state_, threads, state_table_);
    clear_table(edge_, threads, edge_table_);
  }
  turns_ = std::make_unique<Turns>(threads.count == 1 ? 1 : 2 * threads.count);
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
void GradientSum<T>::collect(const Threads& threads, const Penalty& penalty, double* g) const {
  const i64 n = layout_.n_labels;
  if (!pairs_.empty()) {
    collect_table(state_, state_full_, state_table_.data(), own_states() ? penalty.w : nullptr, 2 * penalty.c2, threads,
                  g);
    collect_table(edge_, edge_full_, edge_table_.data(), nullptr, 0.0, threads, g);
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
