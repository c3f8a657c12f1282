#include "train/objective.hpp"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>

#include "model/tables.hpp"
#include "train/entropy.hpp"
#include "train/lbfgs_memory.hpp"

namespace crfkit {
namespace {

// A block should be little work beside all of the data: beams are judged by single ones.
i64 tokens_per_block(int n_labels) { return std::clamp<i64>(8192 * 256 / std::max(n_labels, 1), 2048, 8192); }

Family state_family(const Layout& layout, int lanes) {
  layout.check();
  return layout.state_family(round_up(layout.n_labels, lanes), lanes);
}

// Encoding and block building leave much freed memory behind, and training is long.
void return_free_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

void check_tokens(const Layout& layout, const Tokens& data) {
  if (layout.has_edges() && !data.edge_ptr)
    throw Error("the model's transitions look at the input, the data has no transition attributes");
}

int pack_width(const Layout& layout) { return layout.has_edges() ? 1 : kPackWidth; }

}  // namespace

template <class T>
Weights<T>::Weights(const Layout& layout, const Family& state, const Family& edge, const double* constraints)
    : layout_(layout), state_(state), edge_(edge) {
  const std::size_t n = layout.n_labels;
  forbidden_.assign(n * n + 2 * n, 0.0);
  if (constraints) std::copy_n(constraints, n * n + 2 * n, forbidden_.begin());
}

template <class T>
void Weights<T>::set(const double* w, const Threads& threads) {
  const int n = layout_.n_labels, stride = state_.width;
  state_table_.reserve(state_.dense_attr.size() * state_.width + 1);
  fill_table(state_, w, threads, state_table_.data());
  if (layout_.has_edges()) {
    edge_table_.reserve(edge_.dense_attr.size() * edge_.width + 1);
    fill_table(edge_, w, threads, edge_table_.data());
  }
  pairwise.assign(forbidden_.begin(), forbidden_.begin() + static_cast<i64>(n) * n);
  for (i64 k = 0; k < static_cast<i64>(n) * n; ++k)
    if (layout_.transition[k] >= 0) pairwise[k] += w[layout_.transition[k]];
  transitions.prepare(pairwise.data(), n, stride);
  log_transitions_.prepare_scores(pairwise.data(), n, round_up(n, 4));
  set_ends(w);
}

template <class T>
void Weights<T>::set_ends(const double* w) {
  const int n = layout_.n_labels, stride = state_.width;
  for (Buffer<T>* b : {&start_, &end_}) {
    b->reserve(stride);
    std::fill_n(b->data(), stride, T(0));
  }
  for (int j = 0; j < n; ++j) {
    const double* edge_of = forbidden_.data() + static_cast<i64>(n) * n;
    start_[j] = static_cast<T>(edge_of[j] + (layout_.start >= 0 ? w[layout_.start + j] : 0.0));
    end_[j] = static_cast<T>(edge_of[n + j] + (layout_.end >= 0 ? w[layout_.end + j] : 0.0));
  }
}

template <class T>
void Weights<T>::point(LossJob<T>& job) const {
  job.layout = &layout_;
  job.state = &state_;
  job.edge = &edge_;
  job.stride = state_.width;
  job.state_table = state_table_.data();
  job.edge_table = edge_table_.data();
  job.transitions = &transitions;
  job.log_transitions = &log_transitions_;
  job.start = start_.data();
  job.end = end_.data();
  job.forbidden = forbidden_.data();
}

template <class T>
void GradientSum<T>::start(int threads, bool ends_only, LossJob<T>& job) {
  const i64 n = layout_.n_labels;
  start_.assign(n, 0.0);
  end_.assign(n, 0.0);
  pairs_.assign(ends_only ? 0 : n * n, 0.0);
  if (!ends_only) {
    const std::size_t state = state_.dense_attr.size() * state_.width, edge = edge_.dense_attr.size() * edge_.width;
    state_table_.reserve(state + 1);
    edge_table_.reserve(edge + 1);
    std::fill_n(state_table_.data(), state, T(0));
    std::fill_n(edge_table_.data(), edge, T(0));
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

template <class T>
Objective<T>::Objective(std::shared_ptr<const Layout> layout, const Tokens& data, const i32* gold,
                        const double* seq_weight, const double* constraints, const Threads& threads)
    : layout_(std::move(layout)),
      kernels_(kernels_for<T>(layout_->n_labels)),
      state_(state_family(*layout_, kernels_.lanes)),
      edge_(layout_->edge_family(state_.width, kernels_.lanes)),
      weights_(*layout_, state_, edge_, constraints),
      sum_(*layout_, state_, edge_),
      offsets_(data.offsets, data.offsets + data.n_seq + 1) {
  check_tokens(*layout_, data);
  if (seq_weight) seq_weight_.assign(seq_weight, seq_weight + data.n_seq);
  const auto cuts = cut_blocks(data.offsets, data.n_seq, tokens_per_block(layout_->n_labels));
  blocks_.resize(cuts.size());
  gold_.resize(cuts.size());
  parallel_for(static_cast<i64>(cuts.size()), threads.count, threads.poll, [&](i64 b, int) {
    blocks_[b] = make_block<T>(state_, edge_, data, cuts[b], pack_width(*layout_));
    gold_[b].reserve(blocks_[b].token.size());
    for (i64 token : blocks_[b].token) gold_[b].push_back(static_cast<u16>(gold[token]));
    std::vector<i64>().swap(blocks_[b].token);
  });
  for (Family* family : {&state_, &edge_}) std::vector<Family::Place>().swap(family->place);  // only blocks need it
  return_free_memory();
}

template <class T>
double Objective<T>::value_and_grad(const double* w, double c2, double* g, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  for (u32 k = 0; k < layout_->size; ++k) g[k] = 2 * c2 * w[k];
  const double value = run(w, 0, n_blocks(), has_beams(), g, threads);
  return c2 == 0 ? value : value + c2 * dot(w, w, layout_->size);
}

template <class T>
double Objective<T>::block_value_and_grad(const double* w, i64 block, bool beams, double* g, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  if (beams && !has_beams()) throw Error("no beams are chosen");
  std::fill_n(g, layout_->size, 0.0);
  return run(w, block, block + 1, beams, g, threads);
}

template <class T>
void Objective<T>::point(const double* w, LossJob<T>& job) const {
  weights_.point(job);
  job.offsets = offsets_.data();
  job.w = w;
  job.seq_weight = seq_weight_.empty() ? nullptr : seq_weight_.data();
}

// Adds the gradient of the blocks [first, last) to g.
template <class T>
double Objective<T>::run(const double* w, i64 first, i64 last, bool beams, double* g, const Threads& threads) {
  if (beams) weights_.set_ends(w);
  else weights_.set(w, threads);
  double value = 0;
  LossJob<T> job;
  point(w, job);
  job.value = &value;
  job.g = g;
  sum_.start(threads.count, beams, job);
  if (static_cast<int>(workspaces_.size()) < threads.count) workspaces_.resize(threads.count);
  sum_.run(last - first, threads, [&](i64 task, int thread) {
    if (!workspaces_[thread]) workspaces_[thread] = kernels_.workspace();
    const i64 b = first + task;
    if (beams) kernels_.beam_loss(job, beams_[b], task, *workspaces_[thread]);
    else kernels_.loss(job, blocks_[b], gold_[b].data(), task, *workspaces_[thread]);
  });
  sum_.collect(threads, g);
  return value;
}

template <class T>
void Objective<T>::hessian_product(const double* w, const double* v, double c2, double* out, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  const EntropyKernels<T>& kernels = entropy_kernels_for<T>(kernels_.lanes);
  weights_.set(w, threads);
  const Direction<T> direction(*layout_, state_, edge_, weights_, v, threads);
  for (u32 k = 0; k < layout_->size; ++k) out[k] = 2 * c2 * v[k];
  double value = 0;
  SemiJob<T> job;
  point(w, job);
  job.value = &value;
  job.g = out;
  direction.point(job);
  sum_.start(threads.count, false, job);
  if (static_cast<int>(second_workspaces_.size()) < threads.count) second_workspaces_.resize(threads.count);
  sum_.run(n_blocks(), threads, [&](i64 task, int thread) {
    if (!second_workspaces_[thread]) second_workspaces_[thread] = kernels.workspace();
    kernels.curvature(job, blocks_[task], nullptr, task, *second_workspaces_[thread]);
  });
  sum_.collect(threads, out);
}

// Beams of the blocks [first, last), with the labels that each of them had before.
template <class T>
std::vector<BeamBlock<T>> Objective<T>::chosen(const double* w, i64 first, i64 last, const Criterion& criterion,
                                               const std::vector<Beams>& before, const Threads& threads) {
  if (layout_->has_edges()) throw Error("beams cannot be used in training where transitions look at the input");
  weights_.set(w, threads);
  LossJob<T> job;
  point(w, job);
  if (static_cast<int>(workspaces_.size()) < threads.count) workspaces_.resize(threads.count);
  std::vector<BeamBlock<T>> out(last - first);
  parallel_for(last - first, threads.count, threads.poll, [&](i64 task, int thread) {
    if (!workspaces_[thread]) workspaces_[thread] = kernels_.workspace();
    kernels_.loss_beams(job, blocks_[first + task], gold_[first + task].data(), criterion, before[task], out[task],
                        *workspaces_[thread]);
  });
  return out;
}

template <class T>
typename Objective<T>::BeamSizes Objective<T>::sizes(const std::vector<BeamBlock<T>>& blocks) {
  BeamSizes sizes;
  for (const BeamBlock<T>& block : blocks) {
    sizes.tokens += block.beams.tokens();
    sizes.labels += static_cast<i64>(block.beams.labels.size());
    sizes.largest = std::max(sizes.largest, block.beams.largest);
    sizes.fresh += block.n_fresh;
    for (i64 t = 0; t < block.beams.tokens(); ++t) {
      const double size = block.beams.ptr[t + 1] - block.beams.ptr[t];
      sizes.squares += size * size;
    }
  }
  return sizes;
}

template <class T>
typename Objective<T>::BeamSizes Objective<T>::choose_beams(const double* w, const Criterion& criterion, bool grow,
                                                            const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  std::vector<Beams> before(n_blocks());
  if (grow)
    for (std::size_t b = 0; b < beams_.size(); ++b) before[b] = std::move(beams_[b].beams);
  beams_.clear();  // the memory may not hold both
  beams_ = chosen(w, 0, n_blocks(), criterion, before, threads);
  return sizes(beams_);
}

template <class T>
typename Objective<T>::BeamSizes Objective<T>::beam_sizes(const double* w, i64 block, const Criterion& criterion,
                                                          const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  return sizes(chosen(w, block, block + 1, criterion, std::vector<Beams>(1), threads));
}

template <class T>
std::pair<i64, i64> Objective<T>::block_size(i64 block) const {
  i64 sequences = 0;
  for (const Pack& pack : blocks_[block].packs) sequences += pack.n_seq();
  return {static_cast<i64>(gold_[block].size()), sequences};
}

template <class T>
void Objective<T>::drop_beams() {
  const std::lock_guard<std::mutex> guard(lock_);
  beams_.clear();
}

template <class T>
Scorer<T>::Scorer(std::shared_ptr<const Layout> layout, const double* w, const double* constraints,
                  const Threads& threads)
    : layout_(std::move(layout)),
      kernels_(kernels_for<T>(layout_->n_labels)),
      state_(state_family(*layout_, kernels_.lanes)),
      edge_(layout_->edge_family(state_.width, kernels_.lanes)),
      weights_(*layout_, state_, edge_, constraints) {
  weights_.set(w, threads);
  const auto fill = [&](const Family& family, std::vector<RunWeight<T>>& runs) {
    runs.reserve(family.n_weights());
    for (u32 k = 0; k < family.n_weights(); ++k)
      runs.push_back({static_cast<T>(w[family.first_weight + k]), family.column[k]});
  };
  fill(state_, state_runs_);
  fill(edge_, edge_runs_);
}

template <class T>
void Scorer<T>::score(const Tokens& data, const Threads& threads, T* unary, T* pairwise) const {
  check_tokens(*layout_, data);
  const std::vector<i64> edge_first = edge_offsets(data.offsets, data.n_seq);
  LossJob<T> job;
  weights_.point(job);
  job.offsets = data.offsets;
  job.state_runs = state_runs_.data();
  job.edge_runs = edge_runs_.data();
  const auto cuts = cut_blocks(data.offsets, data.n_seq, tokens_per_block(layout_->n_labels));
  std::vector<std::unique_ptr<Workspace>> workspaces(threads.count);
  parallel_for(static_cast<i64>(cuts.size()), threads.count, threads.poll, [&](i64 b, int thread) {
    if (!workspaces[thread]) workspaces[thread] = kernels_.workspace();
    kernels_.score(job, data, cuts[b], edge_first.data(), unary, pairwise, *workspaces[thread]);
  });
}

template class Weights<float>;
template class Weights<double>;
template class GradientSum<float>;
template class GradientSum<double>;
template class Objective<float>;
template class Objective<double>;
template class Scorer<float>;
template class Scorer<double>;

}  // namespace crfkit
