#include "train/entropy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/tables.hpp"

namespace crfkit {
namespace {

constexpr i64 kTokensPerBlock = 8192;
constexpr i64 kWindow = 512;  // sequences sorted by length together
// Eight arrays of a pack are in use at once: with more sequences they would drive the block's rows out of the cache.
constexpr int kEntropyWidth = 4;

}  // namespace

template <class T>
void weigh_pairs(const Transitions<T>& a, const std::vector<double>& x, double shift, Buffer<T>& n, Buffer<T>& n_t) {
  const std::size_t size = static_cast<std::size_t>(a.n_labels) * a.stride;
  for (Buffer<T>* b : {&n, &n_t}) {
    b->reserve(size);
    std::fill_n(b->data(), size, T(0));
  }
  for (int i = 0; i < a.n_labels; ++i)
    for (int j = 0; j < a.n_labels; ++j) {
      const T m = a.m[static_cast<std::size_t>(i) * a.stride + j];
      if (!(m > 0)) continue;
      const double score = x[static_cast<std::size_t>(i) * a.n_labels + j] - shift;
      n[static_cast<std::size_t>(i) * a.stride + j] = n_t[static_cast<std::size_t>(j) * a.stride + i] =
          static_cast<T>(static_cast<double>(m) * score);
    }
}

template <class T>
void entropies(const ChainInput<T>& in, const Threads& threads, const EntropyOut<T>& out) {
  std::fill_n(out.log_z, in.n_seq, 0.0);
  std::fill_n(out.entropy, in.n_seq, 0.0);
  const Kernels<T>& kernels = kernels_for<T>(in.n_labels);
  const EntropyKernels<T>& own = entropy_kernels_for<T>(kernels.lanes);
  const i64 n = in.n_labels;
  const std::vector<i64> edge_first = edge_offsets(in.offsets, in.n_seq);
  Transitions<T> shared;
  Transitions<double> shared_log;
  Buffer<T> scored, scored_t;
  EntropyJob<T> job;
  job.n_labels = in.n_labels;
  job.stride = kernels.stride(in.n_labels);
  job.n_seq = in.n_seq;
  job.offsets = in.offsets;
  job.edge_first = edge_first.data();
  job.unary = in.unary;
  job.out = out;
  if (in.per_step) {
    job.pairwise = in.pairwise;
  } else {
    shared.prepare(in.pairwise, in.n_labels, job.stride);
    shared_log.prepare_scores(in.pairwise, in.n_labels, round_up(in.n_labels, 4));
    weigh_pairs(shared, shared.exact, shared.shift, scored, scored_t);
    job.shared = &shared;
    job.shared_log = &shared_log;
    job.scored = scored.data();
    job.scored_t = scored_t.data();
  }
  std::vector<Pack> packs;
  for (i64 s = 0; s < in.n_seq; s += kWindow)
    for (Pack& pack : make_packs(in.offsets, s, std::min(in.n_seq, s + kWindow), in.per_step ? 1 : kPackWidth))
      packs.push_back(std::move(pack));
  // the packs' sums of pairs are added up in their order
  const bool sums = out.unary && !in.per_step;
  std::vector<std::vector<double>> pairs(sums ? packs.size() : 0);
  std::vector<std::unique_ptr<Workspace>> workspaces(threads.count);
  parallel_for(static_cast<i64>(packs.size()), threads.count, threads.poll, [&](i64 task, int thread) {
    if (!workspaces[thread]) workspaces[thread] = own.workspace();
    if (sums) pairs[task].assign(n * n, 0.0);
    own.chain(job, packs[task], sums ? pairs[task].data() : nullptr, *workspaces[thread]);
  });
  if (!sums) return;
  std::vector<double> total(n * n, 0.0);
  for (const auto& one : pairs)
    for (i64 k = 0; k < n * n; ++k) total[k] += one[k];
  for (i64 k = 0; k < n * n; ++k) out.pairwise[k] = static_cast<T>(total[k]);
}

template <class T>
SemiObjective<T>::SemiObjective(std::shared_ptr<const Layout> layout, const Tokens& data, i64 n_partial,
                                const u8* allowed, const double* seq_weight, const double* constraints,
                                const Threads& threads)
    : layout_(std::move(layout)),
      kernels_(kernels_for<T>(layout_->n_labels)),
      entropy_kernels_(entropy_kernels_for<T>(kernels_.lanes)),
      state_(layout_->state_family(round_up(layout_->n_labels, kernels_.lanes), kernels_.lanes)),
      edge_(layout_->edge_family(state_.width, kernels_.lanes)),
      weights_(*layout_, state_, edge_, constraints),
      sum_(*layout_, state_, edge_),
      offsets_(data.offsets, data.offsets + data.n_seq + 1) {
  if (layout_->has_edges() && !data.edge_ptr)
    throw Error("the model's transitions look at the input, the data has no transition attributes");
  if (seq_weight) seq_weight_.assign(seq_weight, seq_weight + data.n_seq);
  const int n = layout_->n_labels, words = (n + 63) / 64;
  auto cuts = cut_blocks(data.offsets, n_partial, kTokensPerBlock);
  partial_blocks_ = static_cast<i64>(cuts.size());
  for (const auto& [first, last] : cut_blocks(data.offsets + n_partial, data.n_seq - n_partial, kTokensPerBlock))
    cuts.emplace_back(first + n_partial, last + n_partial);
  blocks_.resize(cuts.size());
  masks_.resize(partial_blocks_);
  parallel_for(static_cast<i64>(cuts.size()), threads.count, threads.poll, [&](i64 b, int) {
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
Direction<T>::Direction(const Layout& layout, const Family& state, const Family& edge, const Weights<T>& weights,
                        const double* v, const Threads& threads)
    : tables_(layout, state, edge, nullptr) {
  tables_.set(v, threads);
  weigh_pairs(weights.transitions, tables_.pairwise, 0.0, scored_, scored_t_);
  tables_.point(job_);
  job_.w = v;
}

template <class T>
void Direction<T>::point(SemiJob<T>& job) const {
  job.scored = scored_.data();
  job.scored_t = scored_t_.data();
  job.tangent = &job_;
  job.scale = -1;  // the gradient of the entropy is minus a covariance
}

template <class T>
void SemiObjective<T>::point(const double* w, double* value, double* g, int threads, SemiJob<T>& job) {
  weights_.point(job);
  job.offsets = offsets_.data();
  job.w = w;
  job.seq_weight = seq_weight_.empty() ? nullptr : seq_weight_.data();
  job.value = value;
  job.g = g;
  sum_.start(threads, false, job);
  if (static_cast<int>(workspaces_.size()) < threads) workspaces_.resize(threads);
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
  const i64 last = entropy_weight == 0 ? partial_blocks_ : static_cast<i64>(blocks_.size());
  Value value;
  if (last <= first) return value;
  weights_.set(w, threads);
  weigh_pairs(weights_.transitions, weights_.transitions.exact, weights_.transitions.shift, scored_, scored_t_);
  double weighted = 0;
  SemiJob<T> known;
  point(w, &value.partial, g, threads.count, known);
  known.scored = scored_.data();
  known.scored_t = scored_t_.data();
  SemiJob<T> unknown = known;
  unknown.value = &weighted;
  unknown.scale = entropy_weight;
  sum_.run(last - first, threads, [&](i64 task, int thread) {
    if (!workspaces_[thread]) workspaces_[thread] = entropy_kernels_.workspace();
    const i64 b = first + task;
    if (b < partial_blocks_) entropy_kernels_.partial(known, blocks_[b], masks_[b].data(), task, *workspaces_[thread]);
    else entropy_kernels_.entropy(unknown, blocks_[b], task, *workspaces_[thread]);
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
    SemiJob<T> job;
    point(w, &value, out, threads.count, job);
    direction.point(job);
    sum_.run(partial_blocks_, threads, [&](i64 b, int thread) {
      if (!workspaces_[thread]) workspaces_[thread] = entropy_kernels_.workspace();
      entropy_kernels_.curvature(job, blocks_[b], masks_[b].data(), b, *workspaces_[thread]);
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
  const double step = std::cbrt(static_cast<double>(std::numeric_limits<T>::epsilon())) * std::max(1.0, size) / way;
  std::vector<double> there(layout_->size);
  for (const double sign : {1.0, -1.0}) {
    for (u32 k = 0; k < layout_->size; ++k) there[k] = w[k] + sign * step * v[k];
    run(there.data(), partial_blocks_, sign * entropy_weight / (2 * step), out, threads);
  }
}

template class Direction<float>;
template class Direction<double>;
template void weigh_pairs(const Transitions<float>&, const std::vector<double>&, double, Buffer<float>&,
                          Buffer<float>&);
template void weigh_pairs(const Transitions<double>&, const std::vector<double>&, double, Buffer<double>&,
                          Buffer<double>&);
template void entropies(const ChainInput<float>&, const Threads&, const EntropyOut<float>&);
template void entropies(const ChainInput<double>&, const Threads&, const EntropyOut<double>&);
template class SemiObjective<float>;
template class SemiObjective<double>;

}  // namespace crfkit
