// run_keys.hpp: which attributes several vocabularies have in common, found by their keys, some at a time.
#pragma once
#include <span>
#include <vector>

#include "base/base.hpp"
#include "base/parallel.hpp"

namespace crfkit {

// The attributes of a vocabulary, three words each: both halves of the key, and how often it occurs with its number.
// They lie in buckets by the first bits of their keys, so that equal keys of several vocabularies are in the same.
struct SortedKeys {
  static constexpr int kBits = 12;
  std::vector<u64> records;
  std::vector<i64> first;  // attribute of each bucket, and their number [buckets + 1]
};
SortedKeys sort_keys(const u64* keys, std::span<const u32> count);  // keys: both halves of each

// A vocabulary that grew with the pieces of data it has seen.
struct RunKeys {
  struct Piece {
    i64 number, known;  // of all pieces; attributes of the vocabulary after it
  };
  std::span<const u64> records;  // as in SortedKeys
  std::span<const i64> first;
  std::vector<Piece> pieces;
  std::span<u32> number;  // of each attribute in the vocabulary of all; kNone: left out
  std::span<u8> own;      // whether it was seen here first
};

// Numbers all attributes that occur often enough by where they were first seen, and gives how many there are.
u32 merge_keys(std::vector<RunKeys>& runs, double min_freq, const Threads& threads);

}  // namespace crfkit
