#include "train/objective.hpp"

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstring>

#include "train/lbfgs_memory.hpp"

namespace crfkit {
namespace {

// Encoding and block building leave much freed memory behind, and training is long.
void return_free_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

// Has the system begin to read mapped bytes, as far as it does not hold them.
void read_ahead([[maybe_unused]] const u8* begin, [[maybe_unused]] const u8* end) {
#if defined(__linux__)
  constexpr std::uintptr_t kPage = 4096;
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) / kPage * kPage;
  const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(end);
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_WILLNEED);  // a hint: it may fail
#endif
}

}  // namespace

template <class T>
Objective<T>::Objective(std::shared_ptr<const Layout> layout, const Tokens& data, const i32* gold,
                        const double* seq_weight, const double* constraints, const Threads& threads)
    : Base(std::move(layout), data.edge_ptr != nullptr, data.offsets, data.n_seq, seq_weight, constraints) {
  const auto cuts = cut_blocks(data.offsets, data.n_seq, tokens_per_block(layout_->n_labels));
  n_blocks_ = std::ssize(cuts);
  gold_.resize(cuts.size());
  const auto keep = [&](i64 b) {
    gold_[b].reserve(blocks_[b].token.size());
    for (i64 token : blocks_[b].token) gold_[b].push_back(static_cast<u16>(gold[token]));
  };
  Base::make_blocks(data, cuts, threads, [](i64) { return kPackWidth; }, keep);
  return_free_memory();
}

template <class T>
Objective<T>::Objective(std::shared_ptr<const Layout> layout, const StoredTokens& data, const i32* gold,
                        const double* seq_weight, const double* constraints)
    : Base(std::move(layout), data.edge.count != nullptr, data.offsets, data.n_seq, seq_weight, constraints, true),
      n_blocks_(data.n_blocks),
      stored_(data),
      stored_gold_(gold) {
  return_free_memory();
}

namespace {

// Calls f(vector) for all that a block has besides its packs.
template <class T, class F>
void each_array(Block<T>& block, std::vector<u16>& gold, F& f) {
  for (Group<T>* group : {&block.state, &block.edge}) {
    f(group->dense);
    f(group->run_ptr);
    f(group->weight);
    f(group->ptr);
    f(group->n_dense);
    f(group->id);
    f(group->wide_id);
    f(group->value);
  }
  f(gold);
}

// Vectors as their sizes and bytes, each from a multiple of eight on.
struct Packer {
  std::vector<u8> bytes;
  template <class V>
  void operator()(const std::vector<V>& v) {
    const u64 size = v.size();
    const auto* head = reinterpret_cast<const u8*>(&size);
    bytes.insert(bytes.end(), head, head + sizeof size);
    const auto* data = reinterpret_cast<const u8*>(v.data());
    bytes.insert(bytes.end(), data, data + size * sizeof(V));
    bytes.resize((bytes.size() + 7) / 8 * 8);
  }
};
struct Unpacker {
  const u8 *at, *end;
  template <class V>
  void operator()(std::vector<V>& v) {
    u64 size = 0;
    if (end - at < static_cast<i64>(sizeof size)) throw Error("the packed blocks are damaged");
    std::memcpy(&size, at, sizeof size);
    at += sizeof size;
    if (size > static_cast<u64>(end - at) / sizeof(V)) throw Error("the packed blocks are damaged");
    const auto* data = reinterpret_cast<const V*>(at);
    v.assign(data, data + size);
    at += (size * sizeof(V) + 7) / 8 * 8;
  }
};

}  // namespace

template <class T>
std::vector<u8> Objective<T>::packed_block(i64 block) {
  if (stored_gold_ == nullptr || packed_ != nullptr) throw Error("only blocks of a file are packed, and once");
  Labelled made;
  load_block(state_, Base::edge_, stored_, block, layout_->has_edges() ? 1 : kPackWidth, made.block);
  set_gold(made);
  Packer writer;
  each_array(made.block, made.gold, writer);
  return std::move(writer.bytes);
}

template <class T>
void Objective<T>::use_packed(const u8* bytes, std::vector<i64> offsets) {
  const std::lock_guard<std::mutex> guard(lock_);
  packed_ = bytes;
  packed_at_ = std::move(offsets);
  for (Family* family : {&state_, &(Base::edge_)}) std::vector<Family::Place>().swap(family->place);
  return_free_memory();
}

template <class T>
void Objective<T>::set_gold(Labelled& made) const {
  made.gold.clear();
  for (i64 token : made.block.token) {
    const i32 label = stored_gold_[token];
    if (label < 0 || label >= layout_->n_labels) throw Error("a label of the file is not one of its labels");
    made.gold.push_back(static_cast<u16>(label));
  }
}

template <class T>
typename Objective<T>::LabelledView Objective<T>::labelled(i64 b, int thread) {
  if (stored_gold_ == nullptr) return {blocks_[b], gold_[b].data()};
  auto& loaded = loaded_[thread];
  if (!loaded) loaded = std::make_unique<Labelled>();
  if (packed_ != nullptr) {
    constexpr i64 kAhead = 16;  // blocks: a few megabytes
    const auto at = [&](i64 block) { return packed_ + packed_at_[std::min(block, n_blocks_)]; };
    read_ahead(at(b == 0 ? 0 : b + kAhead), at(b + kAhead + 1));
    Block<T>& block = loaded->block;
    block.packs = make_packs(stored_.offsets, stored_.first_seq[b], stored_.first_seq[b + 1],
                             layout_->has_edges() ? 1 : kPackWidth);
    block.base.assign(1, 0);
    for (const Pack& pack : block.packs) block.base.push_back(block.base.back() + pack.rows());
    Unpacker reader{packed_ + packed_at_[b], packed_ + packed_at_[b + 1]};
    each_array(block, loaded->gold, reader);
    return {block, loaded->gold.data()};
  }
  load_block(state_, Base::edge_, stored_, b, layout_->has_edges() ? 1 : kPackWidth, loaded->block);
  set_gold(*loaded);
  return {loaded->block, loaded->gold.data()};
}

template <class T>
i64 Objective<T>::block_tokens(i64 b) const {
  return stored_gold_ == nullptr ? std::ssize(gold_[b]) : stored_.first_token(b + 1) - stored_.first_token(b);
}

template <class T>
double Objective<T>::value_and_grad(const double* w, double c2, double* g, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  // the weights that the sum starts from the penalty itself need not be written twice
  const i64 first = !has_beams() && sum_.own_states() ? state_.n_weights() : 0;
  const auto penalise = [&](i64 a, i64 b, int) {
    for (i64 k = first + a; k < first + b; ++k) g[k] = 2 * c2 * w[k];
  };
  parallel_blocks(layout_->size - first, i64{1} << 15, threads, penalise);
  const double value = run(w, 0, n_blocks(), has_beams(), g, threads, {first > 0 ? w : nullptr, c2});
  return c2 == 0 ? value : value + c2 * dot(w, w, layout_->size, threads);
}

template <class T>
double Objective<T>::block_value_and_grad(const double* w, i64 block, bool beams, double* g, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  if (beams && !has_beams()) throw Error("no beams are chosen");
  std::fill_n(g, layout_->size, 0.0);
  return run(w, block, block + 1, beams, g, threads);
}

// Adds the gradient of the blocks [first, last) to g.
template <class T>
double Objective<T>::run(const double* w, i64 first, i64 last, bool beams, double* g, const Threads& threads,
                         const Penalty& penalty) {
  if (beams) weights_.set_ends(w);
  else weights_.set(w, threads);
  double value = 0;
  const LossJob<T> job = Base::start(w, &value, g, beams, threads);
  loaded_.resize(std::max<std::size_t>(loaded_.size(), threads.count));
  const auto body = [&](i64 task, int thread) {
    const i64 b = first + task;
    if (beams) return other_.beam_loss(job, beams_[b], task, Base::other_workspace(thread));
    const LabelledView x = labelled(b, thread);
    kernels_.loss(job, x.block, x.gold, task, Base::workspace(thread));
  };
  Base::add_up(last - first, threads, g, body, penalty);
  return value;
}

template <class T>
void Objective<T>::hessian_product(const double* w, const double* v, double c2, double* out, const Threads& threads) {
  const std::lock_guard<std::mutex> guard(lock_);
  for (u32 k = 0; k < layout_->size; ++k) out[k] = 2 * c2 * v[k];
  loaded_.resize(std::max<std::size_t>(loaded_.size(), threads.count));
  const auto block = [&](i64 b, int thread) -> const Block<T>& { return labelled(b, thread).block; };
  Base::add_hessian_product(w, v, n_blocks(), block, [](i64) { return std::nullopt; }, out, threads);
}

// Beams of the blocks [first, last), with the labels that each of them had before.
template <class T>
std::vector<BeamBlock<T>> Objective<T>::chosen(const double* w, i64 first, i64 last, const Criterion& criterion,
                                               const std::vector<Beams>& before, const Threads& threads) {
  if (layout_->has_edges()) throw Error("beams cannot be used in training where transitions look at the input");
  weights_.set(w, threads);
  const LossJob<T> job = Base::start(w, nullptr, nullptr, true, threads);
  std::vector<BeamBlock<T>> out(last - first);
  loaded_.resize(std::max<std::size_t>(loaded_.size(), threads.count));
  parallel_for(last - first, threads.count, threads.poll, [&](i64 task, int thread) {
    const LabelledView x = labelled(first + task, thread);
    other_.loss_beams(job, x.block, x.gold, criterion, before[task], out[task], Base::other_workspace(thread));
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
  if (stored_gold_ != nullptr) {
    for (i64 s = stored_.first_seq[block]; s < stored_.first_seq[block + 1]; ++s)
      sequences += stored_.offsets[s + 1] > stored_.offsets[s];
  } else {
    for (const Pack& pack : blocks_[block].packs) sequences += pack.n_seq();
  }
  return {block_tokens(block), sequences};
}

template <class T>
void Objective<T>::drop_beams() {
  const std::lock_guard<std::mutex> guard(lock_);
  beams_.clear();
}

template <class T>
Beams Objective<T>::beams() {
  const std::lock_guard<std::mutex> guard(lock_);
  Beams out;
  for (const BeamBlock<T>& block : beams_)
    for (i64 t = 0; t < block.beams.tokens(); ++t)
      out.add(block.beams.labels.data() + block.beams.ptr[t], block.beams.ptr[t + 1] - block.beams.ptr[t]);
  return out;
}

template <class T>
void Objective<T>::set_beams(const Beams& all) {
  const std::lock_guard<std::mutex> guard(lock_);
  std::vector<BeamBlock<T>> blocks(n_blocks());
  i64 t = 0;
  for (i64 b = 0; b < n_blocks(); ++b)
    for (i64 k = 0; k < block_tokens(b) && t < all.tokens(); ++k, ++t)
      blocks[b].beams.add(all.labels.data() + all.ptr[t], all.ptr[t + 1] - all.ptr[t]);
  beams_ = std::move(blocks);
}

template class Objective<float>;
template class Objective<double>;

}  // namespace crfkit
