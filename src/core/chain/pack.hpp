// pack.hpp: several sequences side by side, so that one step of all of them is one matrix product.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/base.hpp"

namespace crfkit {

// Sequences in the order of falling length, their steps stored time by time. Step t holds the sequences that
// are longer than t, always the first active(t) of them, so no row is padding:
//
//   first[0] .. rows of step 0 (all sequences), first[1] .. rows of step 1, ...
struct Pack {
  std::vector<i64> seq;    // the sequences' numbers, longest first
  std::vector<int> first;  // first row of each step  [steps + 1]

  int steps() const { return static_cast<int>(first.size()) - 1; }
  i64 rows() const { return first.back(); }
  int n_seq() const { return static_cast<int>(seq.size()); }
  int active(int t) const { return t < steps() ? first[t + 1] - first[t] : 0; }
  i64 row(int t, int s) const { return first[t] + s; }
  int length(int s) const {  // of sequence s
    int t = steps();
    while (s >= active(t - 1)) --t;
    return t;
  }
};

constexpr int kPackWidth = 16;

// A pack of these sequences, none empty, longest first.
inline Pack make_pack(const i64* offsets, std::vector<i64> seq) {
  Pack pack;
  pack.seq = std::move(seq);
  const int steps = static_cast<int>(offsets[pack.seq[0] + 1] - offsets[pack.seq[0]]);
  pack.first.resize(steps + 1);
  int active = pack.n_seq(), row = 0;
  for (int t = 0; t < steps; ++t) {
    while (offsets[pack.seq[active - 1] + 1] - offsets[pack.seq[active - 1]] <= t) --active;
    pack.first[t] = row;
    row += active;
  }
  pack.first[steps] = row;
  return pack;
}

// Packs of up to `width` sequences out of [begin, end), near-equal lengths together; empty
// sequences are left out. offsets: first token of each sequence [n + 1].
inline std::vector<Pack> make_packs(const i64* offsets, i64 begin, i64 end, int width) {
  std::vector<i64> order;
  for (i64 s = begin; s < end; ++s)
    if (offsets[s + 1] > offsets[s]) order.push_back(s);
  std::stable_sort(order.begin(), order.end(),
                   [&](i64 a, i64 b) { return offsets[a + 1] - offsets[a] > offsets[b + 1] - offsets[b]; });
  std::vector<Pack> packs;
  for (std::size_t i = 0; i < order.size(); i += width) {
    packs.push_back(make_pack(offsets, {order.begin() + i, order.begin() + std::min(order.size(), i + width)}));
  }
  return packs;
}

}  // namespace crfkit
