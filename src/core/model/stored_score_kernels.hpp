// stored_score_kernels.hpp: the rows of a block's attributes, copied side by side, and their sums.
#pragma once
#include "base/rows.hpp"
#include "model/stored_scores.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
class StoredScores : public Workspace {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;

 public:
  void score(const ModelView<T>& model, const StoredTokens& data, i64 b, T* unary) {
    const StoredGroup& group = data.state;
    load(model, group.attr + group.first_attr[b], group.n_attr(b));
    const u16* entry = group.entry + group.first_entry[b];
    const i64 words = group.first_entry[b + 1] - group.first_entry[b];
    if (group.wide(b)) {
      ids_.reserve(words / 2 + 1);
      for (i64 k = 0; k < words / 2; ++k) ids_[k] = u32{entry[2 * k]} | u32{entry[2 * k + 1]} << 16;
      sum(ids_.data(), words / 2, data, b, model.layout->n_labels, unary);
    } else {
      sum(entry, words, data, b, model.layout->n_labels, unary);
    }
  }

 private:
  // Attributes without weights share a row of zeros, the first.
  CRFKIT_KERNEL void load(const ModelView<T>& model, const u32* attr, i64 n) {
    const Family& family = *model.state;
    width_ = family.width;
    const auto place = [&](i64 k) {
      return attr[k] < family.n_attributes() ? family.place[attr[k]] : Family::Place{0, 0};
    };
    row_.reserve(n + 1);
    u32 rows = 1;
    for (i64 k = 0; k < n; ++k) row_[k] = place(k).count == 0 ? 0 : rows++;
    table_.reserve(std::size_t{rows} * width_);
    std::fill_n(table_.data(), width_, T(0));
    for (i64 k = 0; k < n; ++k) {
      if (row_[k] == 0) continue;
      const Family::Place from = place(k);
      T* out = table_.data() + std::size_t{row_[k]} * width_;
      if (from.dense()) {
        for (i64 v = 0; v < width_; v += W) S::store(out + v, S::load(model.state_table + from.first * width_ + v));
      } else {
        std::fill_n(out, width_, T(0));
        for (u32 q = 0; q < from.count; ++q)
          out[model.state_runs[from.first + q].column] = model.state_runs[from.first + q].weight;
      }
    }
    attributes_ = n;
  }

  template <class Id>
  CRFKIT_KERNEL void sum(const Id* ids, i64 n_ids, const StoredTokens& data, i64 b, i64 n_labels, T* unary) {
    const StoredGroup& group = data.state;
    const double* value = group.value ? group.value + group.first_value[b] : nullptr;
    u64 most = 0;
    for (i64 k = 0; k < n_ids; ++k) most = std::max<u64>(most, ids[k]);
    const i64 first = data.first_token(b), last = data.first_token(b + 1);
    i64 entries = 0;
    for (i64 t = first; t < last; ++t) entries += group.count[t];
    if (entries != n_ids || (n_ids > 0 && static_cast<i64>(most) >= attributes_) ||
        (value && entries != group.first_value[b + 1] - group.first_value[b]))
      throw std::invalid_argument("the entries of a block do not match its tokens and attributes");
    out_.reserve(width_);
    const T* table = table_.data();
    const u32* row = row_.data();
    for (i64 t = first; t < last; ++t, unary += n_labels) {
      const i64 n = group.count[t];
      for_tiles<4>(static_cast<int>(width_ / W), [&](auto N, int v0) {
        Vec acc[N] = {};
        if (value) {
          for (i64 k = 0; k < n; ++k)
            for (int v = 0; v < N; ++v)
              acc[v] += T(value[k]) * S::load(table + std::size_t{row[ids[k]]} * width_ + (v0 + v) * W);
        } else {
          for (i64 k = 0; k < n; ++k)
            for (int v = 0; v < N; ++v) acc[v] += S::load(table + std::size_t{row[ids[k]]} * width_ + (v0 + v) * W);
        }
        for (int v = 0; v < N; ++v) S::store(out_.data() + (v0 + v) * W, acc[v]);
      });
      std::copy_n(out_.data(), n_labels, unary);
      ids += n;
      if (value) value += n;
    }
  }

  i64 width_ = 0, attributes_ = 0;
  Buffer<T> table_, out_;  // [rows][width], [width]
  Buffer<u32> row_, ids_;  // row of each of the block's attributes; wide entries
};

}  // namespace crfkit::CRFKIT_ISA
