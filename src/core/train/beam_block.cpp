#include "train/beam_block.hpp"

#include <iterator>

namespace crfkit {

template <class T>
BeamBuilder<T>::BeamBuilder(const Family& family, int n_labels, const Group<T>& group, const Beams& before,
                            BeamBlock<T>& out)
    : family_(family),
      group_(group),
      before_(before),
      out_(out),
      flat_runs_(group.dense.size() * family.width),
      row_weight_(flat_runs_, kNone),
      used_(flat_runs_ + group.weight.size(), 0),
      local_(n_labels, kNone),
      slot_of_(n_labels, -1) {
  out_ = BeamBlock<T>();
  out_.first.push_back(0);
  out_.ptr.push_back(0);
  for (std::size_t r = 0; r < group.dense.size(); ++r) {
    const u32 a = family.dense_attr[group.dense[r]];
    for (u32 k = family.ptr[a]; k < family.ptr[a + 1]; ++k) row_weight_[r * family.width + family.column(k)] = k;
  }
}

template <class T>
void BeamBuilder<T>::add(const BeamResult& chosen, const i32* gold, double weight, FunctionRef<i64(int)> row) {
  const int steps = static_cast<int>(chosen.ptr.size()) - 1;
  Beams& beams = out_.beams;
  const i64 first = beams.tokens();
  out_.n_fresh += static_cast<i64>(chosen.labels.size());
  for (int t = 0; t < steps; ++t) {
    const u16* labels = chosen.labels.data() + chosen.ptr[t];
    if (before_.tokens() == 0) {
      beams.add(labels, chosen.size(t));
      continue;
    }
    const u16* old = before_.labels.data();
    joined_.clear();
    std::set_union(labels, labels + chosen.size(t), old + before_.ptr[first + t], old + before_.ptr[first + t + 1],
                   std::back_inserter(joined_));
    beams.add(joined_.data(), joined_.size());
  }
  const u32* ptr = beams.ptr.data() + first;
  const auto size = [&](int t) { return ptr[t + 1] - ptr[t]; };
  for (int t = 0; t < steps;) {
    if (size(t) == 1) {
      ++t;
      continue;
    }
    const int begin = std::max(0, t - 1);
    while (t < steps && size(t) > 1) ++t;
    const int end = std::min(steps, t + 1);
    out_.chains.push_back(
        {static_cast<u32>(out_.gold.size()), static_cast<u32>(end - begin), begin == 0, end == steps, weight});
    for (int k = begin; k < end; ++k) add_token(row(k), beams.labels.data() + ptr[k], size(k), gold[k]);
  }
}

// Appends a token's beam and the weights that its labels have there, if there is a choice.
template <class T>
void BeamBuilder<T>::add_token(i64 row, const u16* labels, std::size_t n, int gold) {
  for (std::size_t k = 0; k < n; ++k) {
    u32& local = local_[labels[k]];
    if (local == kNone) {
      local = static_cast<u32>(out_.labels.size());
      out_.labels.push_back(labels[k]);
    }
    if (labels[k] == gold) out_.gold.push_back(static_cast<u16>(k));
  }
  const u32 begin = group_.ptr[row], middle = begin + (n > 1 ? group_.n_dense[row] : 0),
            end = n > 1 ? group_.ptr[row + 1] : begin;
  const auto id = [&](u32 e) { return group_.wide_id.empty() ? u32{group_.id[e]} : group_.wide_id[e]; };
  for (std::size_t k = 0; k < n; ++k) slot_of_[labels[k]] = static_cast<i32>(k);
  entries_.clear();
  counts_.assign(n + 1, 0);
  const auto add = [&](std::size_t slot, std::size_t flat, u32 e) {
    entries_.push_back({static_cast<u32>(slot), static_cast<u32>(flat), e});
    ++counts_[slot + 1];
  };
  for (u32 e = begin; e < middle; ++e) {
    const std::size_t row_at = id(e) * static_cast<std::size_t>(family_.width);
    for (std::size_t k = 0; k < n; ++k)
      if (row_weight_[row_at + labels[k]] != kNone) add(k, row_at + labels[k], e);
  }
  for (u32 e = middle; e < end; ++e) {
    const u32 first = group_.run_ptr.empty() ? id(e) : group_.run_ptr[id(e)];
    const u32 last = group_.run_ptr.empty() ? first + 1 : group_.run_ptr[id(e) + 1];
    for (u32 q = first; q < last; ++q) {
      const i32 slot = slot_of_[family_.column(group_.weight[q])];
      if (slot >= 0) add(slot, flat_runs_ + q, e);
    }
  }
  // slot by slot
  const std::size_t size = out_.id.size();
  out_.id.resize(size + entries_.size());
  if (!group_.value.empty()) out_.value.resize(out_.id.size());
  for (std::size_t k = 0; k < n; ++k) {
    slot_of_[labels[k]] = -1;
    counts_[k + 1] += counts_[k];
    out_.label.push_back(static_cast<u16>(local_[labels[k]]));
    out_.ptr.push_back(static_cast<u32>(size + counts_[k + 1]));
  }
  for (const Entry& x : entries_) {
    const std::size_t at = size + counts_[x.slot]++;
    out_.id[at] = x.flat;
    used_[x.flat] = 1;
    if (!group_.value.empty()) out_.value[at] = group_.value[x.entry];
  }
  out_.first.push_back(static_cast<u32>(out_.label.size()));
}

template <class T>
void BeamBuilder<T>::finish() {
  std::vector<std::pair<u32, u32>> order;  // weight, flat: dense rows ascend, and so do runs
  for (std::size_t f = 0; f < flat_runs_; ++f)
    if (used_[f]) order.emplace_back(row_weight_[f], static_cast<u32>(f));
  const i64 middle = static_cast<i64>(order.size());
  for (std::size_t f = flat_runs_; f < used_.size(); ++f)
    if (used_[f]) order.emplace_back(group_.weight[f - flat_runs_], static_cast<u32>(f));
  std::inplace_merge(order.begin(), order.begin() + middle, order.end());
  std::vector<u32> number(used_.size());
  for (const auto& [weight, flat] : order) {
    number[flat] = static_cast<u32>(out_.weight.size());
    out_.weight.push_back(weight);
  }
  for (u32& id : out_.id) id = number[id];
  out_.id.shrink_to_fit();
}

template class BeamBuilder<float>;
template class BeamBuilder<double>;

}  // namespace crfkit
