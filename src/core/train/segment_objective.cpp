#include "train/segment_objective.hpp"

#include <cmath>

#include "train/lbfgs_memory.hpp"

namespace crfkit {
namespace {

// Scores by the numbers of their weights.
template <class Scores>
void look_up(const std::vector<i32>& numbers, const double* w, Scores& out) {
  using T = std::remove_reference_t<decltype(out[0])>;
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    if (numbers[k] >= 0) out[k] = T(w[numbers[k]]);
    else out[k] = numbers[k] == SegmentLayout::kForbidden ? -std::numeric_limits<T>::infinity() : T(0);
  }
}

}  // namespace

void SegmentLayout::check(const Layout& columns) const {
  const i64 n = n_labels, k = max_length;
  const auto sized = [](const std::vector<i32>& x, i64 n_numbers) { return std::ssize(x) == n_numbers; };
  if (n < 1 || k < 1 || !sized(pairs, n * n) || !sized(lengths, n * k) || !sized(start, n) || !sized(end, n) ||
      !sized(tail, tail_order ? n : 0) || columns.n_labels != n * (1 + has_begin + has_end) || columns.has_edges() ||
      columns.size > size)
    throw Error("the layout of segments does not fit its labels");
  for (const auto* numbers : {&pairs, &lengths, &tail, &start, &end})
    for (i32 x : *numbers)
      if (x < kForbidden || x >= size) throw Error("the layout of segments names a weight that does not exist");
}

SegmentTables SegmentLayout::tables(const double* w) const {
  SegmentTables out;
  out.n_labels = n_labels;
  out.max_length = max_length;
  out.tail_order = tail_order;
  out.pairwise.resize(pairs.size());
  out.lengths.resize(lengths.size());
  out.tail.resize(tail.size());
  look_up(pairs, w, out.pairwise);
  look_up(lengths, w, out.lengths);
  look_up(tail, w, out.tail);
  return out;
}

template <class T>
SegmentObjective<T>::SegmentObjective(std::shared_ptr<const Layout> columns, SegmentLayout layout, const Tokens& data,
                                      const SegmentItems<T>& items, const KnownSegments& known,
                                      const double* seq_weight, const Threads& threads)
    : columns_(std::move(columns)),
      layout_(std::move(layout)),
      kernels_(segment_loss_kernels_for<T>(layout_.n_labels)),
      state_(columns_->state_family(segment_kernels_for<T>(layout_.n_labels).lanes)),
      edge_(columns_->edge_family(segment_kernels_for<T>(layout_.n_labels).lanes)),
      weights_(*columns_, state_, edge_, nullptr),
      sum_(*columns_, state_, edge_) {
  layout_.check(*columns_);
  columns_->check(false);
  const i64 n_seq = data.n_seq - (items.ptr != nullptr);
  if (seq_weight) seq_weight_.assign(seq_weight, seq_weight + n_seq);
  hints_.reserve(known.labels.n_hints * layout_.n_labels + 1);
  for (i64 k = 0; k < known.labels.n_hints * layout_.n_labels; ++k) hints_[k] = T(known.labels.hints[k]);
  const i64 tokens = tokens_per_block(columns_->n_labels);
  std::vector<std::pair<i64, i64>> cuts;
  const auto cut = [&](i64 first, i64 last) {
    if (first == last) return;
    std::vector<i64> offsets(data.offsets + first, data.offsets + last + 1);
    for (i64& x : offsets) x -= data.offsets[first];
    for (auto [a, b] : cut_blocks(offsets.data(), last - first, tokens)) cuts.emplace_back(first + a, first + b);
  };
  cut(0, known.n_full);
  cut(known.n_full, n_seq);
  blocks_.resize(cuts.size());
  parallel_for(cuts.size(), threads.count, threads.poll, [&](i64 b, int) {
    make_block(data, items, known, cuts[b], blocks_[b]);
    blocks_[b].full = cuts[b].second <= known.n_full;
  });
  std::vector<Family::Place>().swap(state_.place);  // only blocks need it
}

template <class T>
void SegmentObjective<T>::make_block(const Tokens& data, const SegmentItems<T>& items, const KnownSegments& known,
                                     std::pair<i64, i64> seqs, SegmentBlock<T>& out) const {
  out.packs = make_packs(data.offsets, seqs.first, seqs.second, kPackWidth);
  out.items.resize(out.packs.size());
  std::vector<i64> rows, item_rows;
  for (std::size_t p = 0; p < out.packs.size(); ++p) {
    const Pack& pack = out.packs[p];
    out.base.push_back(std::ssize(rows));
    out.item_base.push_back(std::ssize(item_rows));
    for (int t = 0; t < pack.steps(); ++t)
      for (int s = 0; s < pack.active(t); ++s) {
        const i64 token = data.offsets[pack.seq[s]] + t;
        rows.push_back(token);
        out.label.push_back(known.labels.label[token]);
        out.border.push_back(known.border[token]);
      }
    if (items.ptr)
      out.items[p].lay_out(pack, data.offsets, items.ptr, items.length, [&](i64 i) { item_rows.push_back(i); });
  }
  for (i64& first : out.item_base) first += std::ssize(rows);
  // all rows as the tokens of one sequence
  const i64 n_tokens = items.ptr ? data.offsets[data.n_seq - 1] : data.n_tokens();
  for (i64 i : item_rows) rows.push_back(n_tokens + i);
  std::vector<i64> ptr{0};
  std::vector<u32> attr;
  std::vector<double> value;
  for (i64 r : rows) {
    attr.insert(attr.end(), data.attr + data.ptr[r], data.attr + data.ptr[r + 1]);
    if (data.value) value.insert(value.end(), data.value + data.ptr[r], data.value + data.ptr[r + 1]);
    ptr.push_back(std::ssize(attr));
  }
  const i64 offsets[2] = {0, std::ssize(rows)};
  const Tokens one{1, offsets, ptr.data(), attr.data(), data.value ? value.data() : nullptr, nullptr, nullptr};
  out.state = crfkit::make_block<T>(state_, edge_, one, {0, 1}, 1).state;
}

template <class T>
double SegmentObjective<T>::value_and_grad(const double* w, double c2, double* g, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  const i64 n = layout_.n_labels, first = sum_.own_states() ? state_.n_weights() : 0;
  for (i64 k = first; k < layout_.size; ++k) g[k] = 2 * c2 * w[k];
  const SegmentTables tables = layout_.tables(w);
  ReadyTables<T> ready;
  ready.prepare(tables, segment_kernels_for<T>(layout_.n_labels).stride(layout_.n_labels));
  Buffer<T> start(n), end(n);
  look_up(layout_.start, w, start);
  look_up(layout_.end, w, end);
  weights_.set(w, threads);
  SegmentGradient sums;
  sums.clear(n, layout_.max_length);
  double value = 0;
  redone_ = 0;
  SegmentLossJob<T> job;
  static_cast<LossJob<T>&>(job) = LossJob<T>{weights_.view()};
  job.w = w;
  job.seq_weight = seq_weight_.empty() ? nullptr : seq_weight_.data();
  job.value = &value;
  job.g = g;
  job.tables = &ready;
  job.first = start.data();
  job.last = end.data();
  job.has_begin = layout_.has_begin;
  job.has_end = layout_.has_end;
  job.hints = hints_.data();
  job.sums = &sums;
  job.redone = &redone_;
  sum_.start(threads, false, job);
  if (std::ssize(workspaces_) < threads.count) workspaces_.resize(threads.count);
  sum_.run(std::ssize(blocks_), threads, [&](i64 task, int thread) {
    if (!workspaces_[thread]) workspaces_[thread] = kernels_.workspace();
    kernels_.loss(job, blocks_[task], task, *workspaces_[thread]);
  });
  sum_.collect(threads, {first > 0 ? w : nullptr, c2}, g);
  const auto add = [&](const std::vector<double>& from, const std::vector<i32>& numbers) {
    for (std::size_t k = 0; k < numbers.size(); ++k)
      if (numbers[k] >= 0) g[numbers[k]] += from[k];
  };
  add(sums.pairs, layout_.pairs);
  add(sums.lengths, layout_.lengths);
  add(sums.tail, layout_.tail);
  add(sums.start, layout_.start);
  add(sums.end, layout_.end);
  return c2 == 0 ? value : value + c2 * dot(w, w, layout_.size, threads);
}

template class SegmentObjective<float>;
template class SegmentObjective<double>;

}  // namespace crfkit
