#include "text/segment_trie.hpp"

#include <cmath>

namespace crfkit {

SegmentTrie::SegmentTrie(const u32* tokens, const i64* ptr, i64 n_entries) : n_entries_(n_entries), entry_(1, -1) {
  for (i64 k = 0; k < n_entries; ++k) {
    u32 node = 0;
    for (i64 i = ptr[k]; i < ptr[k + 1]; ++i) {
      if (tokens[i] >= holders_.size()) holders_.resize(std::size_t{tokens[i]} + 1);
      holders_[tokens[i]].push_back(static_cast<u32>(k));
      const auto [at, fresh] = child_.try_emplace(key(node, tokens[i]), static_cast<u32>(entry_.size()));
      if (fresh) entry_.push_back(-1);
      node = at->second;
    }
    if (ptr[k] == ptr[k + 1] || entry_[node] >= 0) throw Error("an entry of a dictionary is empty or occurs twice");
    entry_[node] = static_cast<i32>(k);
  }
  norm_.assign(n_entries, 0.0);
  for (const auto& holders : holders_) {
    weight_.push_back(std::log(1.0 + double(n_entries) / (1.0 + double(holders.size()))));
    for (std::size_t i = 0, j = 0; i < holders.size(); i = j) {
      while (j < holders.size() && holders[j] == holders[i]) ++j;
      const double x = double(j - i) * weight_.back();
      norm_[holders[i]] += x * x;
    }
  }
  for (double& x : norm_) x = std::sqrt(x);
}

template <class Search>
FoundSegments SegmentTrie::run(const i64* offsets, i64 n_seq, const Threads& threads, Search search) const {
  constexpr i64 kSequences = 256;
  std::vector<FoundSegments> parts((n_seq + kSequences - 1) / kSequences);
  parallel_blocks(n_seq, kSequences, threads, [&](i64 begin, i64 end, int) {
    FoundSegments& out = parts[begin / kSequences];
    for (i64 s = begin; s < end; ++s)
      for (i64 t = offsets[s]; t < offsets[s + 1]; ++t) search(t, offsets[s + 1], out);
  });
  FoundSegments all;
  for (const FoundSegments& part : parts) {
    all.start.insert(all.start.end(), part.start.begin(), part.start.end());
    all.length.insert(all.length.end(), part.length.begin(), part.length.end());
    all.entry.insert(all.entry.end(), part.entry.begin(), part.entry.end());
    all.value.insert(all.value.end(), part.value.begin(), part.value.end());
  }
  return all;
}

FoundSegments SegmentTrie::find(const u32* tokens, const i64* offsets, i64 n_seq, i64 max_length,
                                const Threads& threads) const {
  return run(offsets, n_seq, threads, [&](i64 start, i64 end, FoundSegments& out) {
    u32 node = 0;
    for (i64 t = start; t < std::min(end, start + max_length); ++t) {
      if (tokens[t] == kNone) return;
      const auto at = child_.find(key(node, tokens[t]));
      if (at == child_.end()) return;
      node = at->second;
      if (entry_[node] < 0) continue;
      out.start.push_back(start);
      out.length.push_back(static_cast<i32>(t - start + 1));
      out.entry.push_back(entry_[node]);
      out.value.push_back(1.0f);
    }
  });
}

FoundSegments SegmentTrie::similar(const u32* tokens, const i64* offsets, i64 n_seq, i64 max_length, double least,
                                   const Threads& threads) const {
  const double unknown = std::log(1.0 + double(n_entries_));  // the weight of a token that no entry has
  return run(offsets, n_seq, threads, [&](i64 start, i64 end, FoundSegments& out) {
    std::unordered_map<u32, double> shared;  // entries and the product of their weights with the segment's
    std::unordered_map<u32, double> seen;    // tokens of the segment and how often they occur
    double square = 0;
    for (i64 t = start; t < std::min(end, start + max_length); ++t) {
      const u32 token = tokens[t];
      const bool known = token < holders_.size();
      const double w = known ? weight_[token] : unknown;
      double& count = seen[known ? token : kNone];
      square += known ? (2 * count + 1) * w * w : w * w;
      count += 1;
      if (known && holders_[token].size() <= kCommon)
        for (u32 entry : holders_[token]) shared[entry] += w * w;
      double best = 0;
      u32 found = kNone;
      for (const auto& [entry, product] : shared) {
        const double x = product / (norm_[entry] * std::sqrt(square));
        if (x > best || (x == best && entry < found)) {
          best = x;
          found = entry;
        }
      }
      if (found == kNone || best < least) continue;
      out.start.push_back(start);
      out.length.push_back(static_cast<i32>(t - start + 1));
      out.entry.push_back(static_cast<i32>(found));
      out.value.push_back(static_cast<float>(std::min(best, 1.0)));
    }
  });
}

}  // namespace crfkit
