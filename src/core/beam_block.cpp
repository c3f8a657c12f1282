#include "beam_block.hpp"

#include <algorithm>

namespace crfkit {

template <class T>
BeamBuilder<T>::BeamBuilder(const Family& family, int n_labels, const Group<T>& group, BeamBlock<T>& out)
    : family_(family), group_(group), out_(out), flat_runs_(group.dense.size() * family.width),
      row_weight_(flat_runs_, kNone), used_(flat_runs_ + group.weight.size(), 0), local_(n_labels, kNone), slot_of_(n_labels, -1) {
  out_ = BeamBlock<T>();
  out_.first.push_back(0);
  out_.ptr.push_back(0);
  for (std::size_t r = 0; r < group.dense.size(); ++r) {
    const u32 a = family.dense_attr[group.dense[r]];
    for (u32 k = family.ptr[a]; k < family.ptr[a + 1]; ++k) row_weight_[r * family.width + family.column[k]] = k;
  }
}

template <class T>
void BeamBuilder<T>::add(const BeamResult& beams, const i32* gold, double weight, FunctionRef<i64(int)> row) {
  const int steps = static_cast<int>(beams.ptr.size()) - 1;
  for (int t = 0; t < steps; ++t) {
    const i64 size = static_cast<i64>(beams.size(t));
    ++out_.n_tokens;
    out_.n_labels += size;
    out_.largest = std::max(out_.largest, size);
  }
  for (int t = 0; t < steps;) {
    if (beams.size(t) == 1) {
      ++t;
      continue;
    }
    const int begin = std::max(0, t - 1);
    while (t < steps && beams.size(t) > 1) ++t;
    const int end = std::min(steps, t + 1);
    out_.chains.push_back({static_cast<u32>(out_.gold.size()), static_cast<u32>(end - begin), begin == 0, end == steps, weight});
    for (int k = begin; k < end; ++k) add_token(row(k), beams.labels.data() + beams.ptr[k], beams.size(k), gold[k]);
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
  const u32 begin = group_.ptr[row], middle = begin + (n > 1 ? group_.n_dense[row] : 0), end = n > 1 ? group_.ptr[row + 1] : begin;
  const auto id = [&](u32 e) { return group_.wide_id.empty() ? u32{group_.id[e]} : group_.wide_id[e]; };
  for (std::size_t k = 0; k < n; ++k) slot_of_[labels[k]] = static_cast<i32>(k);
  run_entries_.clear();
  for (u32 e = middle; e < end; ++e) {
    const u32 first = group_.run_ptr.empty() ? id(e) : group_.run_ptr[id(e)];
    const u32 last = group_.run_ptr.empty() ? first + 1 : group_.run_ptr[id(e) + 1];
    for (u32 q = first; q < last; ++q) {
      const i32 slot = slot_of_[family_.column[group_.weight[q]]];
      if (slot >= 0) run_entries_.push_back({slot, static_cast<u32>(flat_runs_ + q), e});
    }
  }
  for (std::size_t k = 0; k < n; ++k) slot_of_[labels[k]] = -1;
  const auto add = [&](u32 flat, u32 e) {
    out_.id.push_back(flat);
    used_[flat] = 1;
    if (!group_.value.empty()) out_.value.push_back(group_.value[e]);
  };
  for (std::size_t k = 0; k < n; ++k) {
    for (u32 e = begin; e < middle; ++e) {
      const u32 flat = id(e) * static_cast<u32>(family_.width) + labels[k];
      if (row_weight_[flat] != kNone) add(flat, e);
    }
    for (const RunEntry& x : run_entries_)
      if (x.slot == static_cast<i32>(k)) add(x.flat, x.entry);
    out_.label.push_back(static_cast<u16>(local_[labels[k]]));
    out_.ptr.push_back(static_cast<u32>(out_.id.size()));
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
