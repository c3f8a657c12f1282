#include "train/semi_objective.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace crfkit {
namespace {

constexpr i64 kTokensPerBlock = 8192;
// Eight arrays of a pack are in use at once: with more sequences they would drive the block's rows out of the cache.
constexpr int kEntropyWidth = 4;

}  // namespace

template <class T>
SemiObjective<T>::SemiObjective(std::shared_ptr<const Layout> layout, const Tokens& data, i64 n_partial,
                                const KnownLabels& known, const double* seq_weight, const double* constraints,
                                const Threads& threads)
    : Base(std::move(layout), data.edge_ptr != nullptr, data.offsets, data.n_seq, seq_weight, constraints),
      hints_(known.hints, known.hints + known.n_hints * layout_->n_labels) {
  auto cuts = cut_blocks(data.offsets, n_partial, kTokensPerBlock);
  partial_blocks_ = cuts.size();
  for (const auto& [first, last] : cut_blocks(data.offsets + n_partial, data.n_seq - n_partial, kTokensPerBlock))
    cuts.emplace_back(first + n_partial, last + n_partial);
  known_.resize(partial_blocks_);
  const auto keep = [&](i64 b) {
    if (b >= partial_blocks_) return;
    for (const i64 t : blocks_[b].token) known_[b].push_back(known.label[t]);
  };
  const auto width = [&](i64 b) { return b < partial_blocks_ ? kPackWidth : kEntropyWidth; };
  Base::make_blocks(data, cuts, threads, width, keep);
}

template <class T>
typename SemiObjective<T>::Value SemiObjective<T>::add(const double* w, double entropy_weight, double* g,
                                                       const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  return run(w, 0, entropy_weight, g, threads);
}

// Of the blocks from the first one on.
template <class T>
typename SemiObjective<T>::Value SemiObjective<T>::run(const double* w, i64 first, double entropy_weight, double* g,
                                                       const Threads& threads) {
  const i64 last = entropy_weight == 0 ? partial_blocks_ : std::ssize(blocks_);
  Value value;
  if (last <= first) return value;
  weights_.set(w, threads);
  weights_.transitions.weigh(weights_.transitions.exact, weights_.transitions.shift, scored_, scored_t_);
  double weighted = 0;
  LossJob<T> partial = Base::start(w, &value.partial, g, false, threads);
  partial.scored = scored_.data();
  partial.scored_t = scored_t_.data();
  LossJob<T> unknown = partial;
  unknown.value = &weighted;
  unknown.scale = entropy_weight;
  Base::add_up(last - first, threads, g, [&](i64 task, int thread) {
    const i64 b = first + task;
    Workspace& workspace = Base::other_workspace(thread);
    if (b < partial_blocks_) other_.partial(partial, blocks_[b], known(b), task, workspace);
    else other_.entropy(unknown, blocks_[b], task, workspace);
  });
  if (entropy_weight != 0) value.entropy = weighted / entropy_weight;
  return value;
}

template <class T>
void SemiObjective<T>::add_hessian_product(const double* w, const double* v, double entropy_weight, double* out,
                                           const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  if (partial_blocks_ > 0)
    Base::add_hessian_product(
        w, v, partial_blocks_, [&](i64 b, int) -> const Block<T>& { return blocks_[b]; },
        [&](i64 b) { return known(b); }, out, threads);
  double size = 0, way = 0;
  for (u32 k = 0; k < layout_->size; ++k) {
    size = std::max(size, std::abs(w[k]));
    way = std::max(way, std::abs(v[k]));
  }
  if (entropy_weight == 0 || !(way > 0)) return;
  // truncation and rounding errors are about as large
  const double step = std::cbrt(double{std::numeric_limits<T>::epsilon()}) * std::max(1.0, size) / way;
  std::vector<double> there(layout_->size);
  for (const double sign : {1.0, -1.0}) {
    for (u32 k = 0; k < layout_->size; ++k) there[k] = w[k] + sign * step * v[k];
    run(there.data(), partial_blocks_, sign * entropy_weight / (2 * step), out, threads);
  }
}

template class SemiObjective<float>;
template class SemiObjective<double>;

}  // namespace crfkit
