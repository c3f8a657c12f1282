#include "train/semi_objective.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/direction.hpp"

namespace crfkit {
namespace {

constexpr i64 kTokensPerBlock = 8192;
// Eight arrays of a pack are in use at once: with more sequences they would drive the block's rows out of the cache.
constexpr int kEntropyWidth = 4;

}  // namespace

template <class T>
SemiObjective<T>::SemiObjective(std::shared_ptr<const Layout> layout, const Tokens& data, i64 n_partial,
                                const u8* allowed, const double* seq_weight, const double* constraints,
                                const Threads& threads)
    : layout_(std::move(layout)),
      kernels_(loss_kernels_for<T>(layout_->n_labels)),
      state_(layout_->state_family(chain_kernels_for<T>(layout_->n_labels).lanes)),
      edge_(layout_->edge_family(chain_kernels_for<T>(layout_->n_labels).lanes)),
      weights_(*layout_, state_, edge_, constraints),
      sum_(*layout_, state_, edge_),
      offsets_(data.offsets, data.offsets + data.n_seq + 1) {
  layout_->check(data);
  if (seq_weight) seq_weight_.assign(seq_weight, seq_weight + data.n_seq);
  const int n = layout_->n_labels, words = (n + 63) / 64;
  auto cuts = cut_blocks(data.offsets, n_partial, kTokensPerBlock);
  partial_blocks_ = cuts.size();
  for (const auto& [first, last] : cut_blocks(data.offsets + n_partial, data.n_seq - n_partial, kTokensPerBlock))
    cuts.emplace_back(first + n_partial, last + n_partial);
  blocks_.resize(cuts.size());
  masks_.resize(partial_blocks_);
  parallel_for(cuts.size(), threads.count, threads.poll, [&](i64 b, int) {
    blocks_[b] = make_block<T>(state_, edge_, data, cuts[b],
                               layout_->has_edges()  ? 1
                               : b < partial_blocks_ ? kPackWidth
                                                     : kEntropyWidth);
    if (b < partial_blocks_) {
      masks_[b].assign(blocks_[b].token.size() * words, 0);
      for (std::size_t r = 0; r < blocks_[b].token.size(); ++r)
        for (int j = 0; j < n; ++j)
          if (allowed[blocks_[b].token[r] * n + j]) masks_[b][r * words + j / 64] |= u64{1} << (j % 64);
    }
    std::vector<i64>().swap(blocks_[b].token);
  });
  for (Family* family : {&state_, &edge_}) std::vector<Family::Place>().swap(family->place);  // only blocks need it
}

template <class T>
LossJob<T> SemiObjective<T>::job_at(const double* w, double* value, double* g, int threads) {
  LossJob<T> job{weights_.view()};
  job.w = w;
  job.offsets = offsets_.data();
  job.seq_weight = seq_weight_.empty() ? nullptr : seq_weight_.data();
  job.value = value;
  job.g = g;
  sum_.start(threads, false, job);
  if (std::ssize(workspaces_) < threads) workspaces_.resize(threads);
  return job;
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
  LossJob<T> known = job_at(w, &value.partial, g, threads.count);
  known.scored = scored_.data();
  known.scored_t = scored_t_.data();
  LossJob<T> unknown = known;
  unknown.value = &weighted;
  unknown.scale = entropy_weight;
  sum_.run(last - first, threads, [&](i64 task, int thread) {
    if (!workspaces_[thread]) workspaces_[thread] = kernels_.workspace();
    const i64 b = first + task;
    if (b < partial_blocks_) kernels_.partial(known, blocks_[b], masks_[b].data(), task, *workspaces_[thread]);
    else kernels_.entropy(unknown, blocks_[b], task, *workspaces_[thread]);
  });
  sum_.collect(threads, g);
  if (entropy_weight != 0) value.entropy = weighted / entropy_weight;
  return value;
}

template <class T>
void SemiObjective<T>::add_hessian_product(const double* w, const double* v, double entropy_weight, double* out,
                                           const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  if (partial_blocks_ > 0) {
    weights_.set(w, threads);
    const Direction<T> direction(*layout_, state_, edge_, weights_, v, threads);
    double value = 0;
    LossJob<T> job = job_at(w, &value, out, threads.count);
    direction.point(job);
    sum_.run(partial_blocks_, threads, [&](i64 b, int thread) {
      if (!workspaces_[thread]) workspaces_[thread] = kernels_.workspace();
      kernels_.curvature(job, blocks_[b], masks_[b].data(), b, *workspaces_[thread]);
    });
    sum_.collect(threads, out);
  }
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
