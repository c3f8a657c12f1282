#include "train/expectation_objective.hpp"

#include <algorithm>

namespace crfkit {
namespace {

constexpr i64 kTokensPerBlock = 8192;
constexpr int kWidth = 8;            // covariances have more arrays in use at once than gradients do
constexpr i64 kKept = i64{1} << 30;  // bytes of scores that are kept from one pass to the next

}  // namespace

template <class T>
ExpectationObjective<T>::ExpectationObjective(std::shared_ptr<const Layout> layout, const Tokens& data, const i64* ptr,
                                              const i32* group, i64 n_groups, const double* constraints,
                                              const Threads& threads)
    : Base(std::move(layout), data.edge_ptr != nullptr, data.offsets, data.n_seq, nullptr, constraints),
      n_groups_(n_groups) {
  const auto cuts = cut_blocks(data.offsets, data.n_seq, kTokensPerBlock);
  rows_.resize(cuts.size());
  const auto keep = [&](i64 b) {
    Rows& mine = rows_[b];
    mine.ptr.push_back(0);
    for (const i64 t : blocks_[b].token) {
      mine.group.insert(mine.group.end(), group + ptr[t], group + ptr[t + 1]);
      mine.ptr.push_back(std::ssize(mine.group));
    }
  };
  Base::make_blocks(data, cuts, threads, [](i64) { return kWidth; }, keep);
  i64 room = kKept;
  for (Rows& mine : rows_) {
    const i64 size = (std::ssize(mine.ptr) - 1) * weights_.view().stride;
    room -= size * static_cast<i64>(sizeof(T));
    if (room >= 0) mine.scores.reserve(size);
  }
}

template <class T>
GroupedRows<T> ExpectationObjective<T>::rows(i64 block) {
  Rows& mine = rows_[block];
  T* scores = mine.scores.data();
  return {mine.ptr.data(), mine.group.data(), table_at_, scores, scores && mine.scored};
}

template <class T>
void ExpectationObjective<T>::set_table(const double* table) {
  table_at_ = nullptr;
  if (!table) return;
  const i64 n = layout_->n_labels, stride = weights_.view().stride;
  table_.assign(n_groups_ * stride, T(0));
  for (i64 k = 0; k < n_groups_; ++k) std::copy_n(table + k * n, n, table_.data() + k * stride);
  table_at_ = table_.data();
}

template <class T>
void ExpectationObjective<T>::set(const double* w, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  w_.assign(w, w + layout_->size);
  weights_.set(w_.data(), threads);
  for (Rows& mine : rows_) mine.scored = false;
}

template <class T>
double ExpectationObjective<T>::expected(const double* table, double* counts, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  set_table(table);
  double value = 0;
  std::vector<double> sums(n_groups_ * layout_->n_labels);
  const LossJob<T> job = Base::start(w_.data(), &value, nullptr, true, threads);
  Base::sum_.run(std::ssize(blocks_), threads, [&](i64 b, int thread) {
    other_.expected(job, blocks_[b], rows(b), sums, b, Base::other_workspace(thread));
    rows_[b].scored = true;
  });
  std::copy(sums.begin(), sums.end(), counts);
  return value;
}

template <class T>
void ExpectationObjective<T>::add_covariance(const double* table, double* g, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  set_table(table);
  double value = 0;
  LossJob<T> job = Base::start(w_.data(), &value, g, false, threads);
  job.scale = -1;  // the kernel's is minus a covariance
  Base::add_up(std::ssize(blocks_), threads, g, [&](i64 b, int thread) {
    other_.covariance(job, blocks_[b], rows(b), b, Base::other_workspace(thread));
  });
}

template <class T>
double ExpectationObjective<T>::add_divergence(const double* table, double scale, double* g, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  set_table(table);
  double value = 0;
  LossJob<T> job = Base::start(w_.data(), &value, g, false, threads);
  job.scale = scale;
  Base::add_up(std::ssize(blocks_), threads, g, [&](i64 b, int thread) {
    other_.divergence(job, blocks_[b], rows(b), b, Base::other_workspace(thread));
  });
  return value;
}

template class ExpectationObjective<float>;
template class ExpectationObjective<double>;

}  // namespace crfkit
