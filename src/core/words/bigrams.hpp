// bigrams.hpp: words of a text by frequency, and how often one follows another.
#pragma once
#include <vector>

#include "base/base.hpp"
#include "base/parallel.hpp"
#include "text/columns.hpp"
#include "text/strings.hpp"

namespace crfkit {

// Counts of pairs of words that follow each other, row by row.
struct Bigrams {
  std::vector<i64> ptr{0};  // [words + 1]
  std::vector<u32> next;    // the second words of a row, rising
  std::vector<u32> count;   // how often each follows, at least once

  i64 size() const { return std::ssize(ptr) - 1; }
};

// The same by the second word: rows of the words before.
Bigrams turned(const Bigrams& x);

// What stands in place of a word, in WordCounter::Ranking.
constexpr u32 kBoundary = kNone;      // between two sequences
constexpr u32 kRareWord = kNone - 1;  // a word that occurs less often than asked for

class WordCounter {
 public:
  // Adds the sequences of a column; lower: in lower case.
  void add(const ColumnView& rows, int column, bool lower);
  i64 n_tokens() const { return n_tokens_; }
  const StringTable& words() const { return words_; }

  // The words that occur at least min_freq times, by falling frequency, the one seen first before others; the boundary
  // and rare words are among them, as one word each.
  struct Ranking {
    std::vector<u32> word;   // number in words(), or one of the above
    std::vector<i64> count;  // tokens
  };
  Ranking rank(i64 min_freq) const;
  // Of ranks. The boundary before the first and after the last sequence counts too.
  Bigrams bigrams(const Ranking& ranking, const Threads& threads) const;

 private:
  StringTable words_;
  std::vector<u32> tokens_;  // with a boundary after every sequence
  i64 n_tokens_ = 0;
};

}  // namespace crfkit
