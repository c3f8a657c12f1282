// segment_trie.hpp: finds listed rows of tokens in sequences, and how near the others come to them.
#pragma once
#include <unordered_map>
#include <vector>

#include "base/parallel.hpp"

namespace crfkit {

// Where an entry, or one like it, stands: tokens start, ..., start + length - 1.
struct FoundSegments {
  std::vector<i64> start;
  std::vector<i32> length, entry;
  std::vector<float> value;  // similarity
};

class SegmentTrie {
 public:
  // Entry k is the tokens ptr[k], ..., ptr[k+1] - 1. Tokens are numbers; equal entries must not occur.
  SegmentTrie(const u32* tokens, const i64* ptr, i64 n_entries);
  i64 n_entries() const { return n_entries_; }

  // All places of entries of at most max_length tokens; kNone stands for a token that no entry has.
  FoundSegments find(const u32* tokens, const i64* offsets, i64 n_seq, i64 max_length, const Threads& threads) const;
  // For each segment of at most max_length tokens the entry that is most similar, by the cosine of the tokens' weights,
  // if it is at least `least`. Tokens that many entries share, more than kCommon, count but do not lead to entries.
  FoundSegments similar(const u32* tokens, const i64* offsets, i64 n_seq, i64 max_length, double least,
                        const Threads& threads) const;

 private:
  static constexpr std::size_t kCommon = 2000;
  static u64 key(u32 node, u32 token) { return u64{node} << 32 | token; }
  template <class Search>
  FoundSegments run(const i64* offsets, i64 n_seq, const Threads& threads, Search search) const;

  i64 n_entries_;
  std::unordered_map<u64, u32> child_;
  std::vector<i32> entry_;                 // of each node, or -1
  std::vector<std::vector<u32>> holders_;  // entries that have a token, each as often as it has it
  std::vector<double> weight_;             // of each token: its inverse document frequency
  std::vector<double> norm_;               // of each entry
};

}  // namespace crfkit
