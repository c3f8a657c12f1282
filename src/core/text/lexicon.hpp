// lexicon.hpp: what is known of words besides the data: classes, lists of phrases, vectors.
//
// A lexicon looks up the words of the data, each distinct one once, and derives columns from them: the class of each
// word, the place of each token in the phrases of a list; and the row of each word's vector.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.hpp"
#include "text/columns.hpp"
#include "text/strings.hpp"

namespace crfkit {

// How a word is looked up: as it is, in lower case, or as it is and, where it is not known so, in lower case.
enum class Folding : u8 { exact, lower, either };

struct WordTable {
  StringTable words;
  Folding folding = Folding::exact;

  u32 find(std::string_view word) const;
  // The same for strings[k], for k in some: found[k]. Look-ups wait for the memory together.
  void find(const StringTable& strings, std::span<const u32> some, u32* found) const;
};

// Words, each with the string of its class.
struct ClassTable {
  ClassTable(WordTable words, StringTable codes, std::vector<u32> code_of);

  WordTable words;
  StringTable codes;
  std::vector<u32> code_of;  // [words]
};

// Phrases of one or more words, as a trie. States are numbered level by level, so that those that follow one are
// neighbours: state s goes on to the states from first[s] to first[s + 1], by the words label[...], in their order.
class Gazetteer {
 public:
  static constexpr u32 kLongest = 64;  // words of a phrase
  struct Trie {
    std::vector<u32> first;  // [states + 1]
    std::vector<u32> label;  // [states]: the word that leads into a state; zero for the first one, where all begin
    std::vector<u8> last;    // [states]: whether a phrase ends here
  };
  Gazetteer(WordTable words, Trie trie);  // throws unless it is a trie of these words

  // Marks the tokens of a sequence by where they are in the longest phrases, from left to right: B, I, L, or U for a
  // phrase of one word. ids: the words' numbers or kNone, which are replaced by places in marks(), or kNone; places:
  // where they lead to, which are changed.
  void match(u32* ids, u32* places, i64 n) const;
  u32 start(u32 word) const { return word == kNone ? kNone : start_[word]; }
  static const StringTable& marks();

  const WordTable& words() const { return words_; }
  const Trie& trie() const { return trie_; }
  u64 size() const { return size_; }  // phrases

 private:
  // A state, times four, plus one if a phrase ends in it, plus two if it goes on.
  u32 place(u32 state) const {
    return 4 * state + trie_.last[state] + 2 * (trie_.first[state] < trie_.first[state + 1]);
  }
  static u64 hash(u32 state, u32 word) { return mix(u64{state} << 32 | word); }
  u64 slot(u64 hash) const { return hash & (steps_.size() - 1); }
  u64 bit(u64 hash) const { return (hash >> 32) & (4 * steps_.size() - 1); }
  void index();

  WordTable words_;
  Trie trie_;
  std::vector<u32> start_;  // [words]: the place that each leads to from the first state, or kNone
  struct Step {
    u32 place = kNone, state = 0, word = 0;  // where a word leads to from a state
  };
  std::vector<Step> steps_;  // from all other states: open addressing, at most half full
  std::vector<u8> bits_;  // those of their hashes are set, four per slot: these fit the cache, and most others end here
  u64 size_ = 0;
};

class GazetteerBuilder {
 public:
  explicit GazetteerBuilder(Folding folding) { words_.folding = folding; }
  // A phrase a line, its words separated by blanks.
  void parse(std::string_view text, i64 first_line);
  void add(const std::vector<std::string_view>& phrase);
  Gazetteer build();

 private:
  WordTable words_;
  std::vector<u32> flat_;    // the phrases' words one after another
  std::vector<u64> ends_{};  // of each phrase
};

// Words, each with as many numbers.
struct VectorTable {
  VectorTable(WordTable words, std::vector<float> values, u32 n);

  WordTable words;
  std::vector<float> values;  // [words][n]
  u32 n;
};

// Reads files of vectors. The first of several equal words counts; words that are no UTF-8, which no text has, are left
// out and counted.
class VectorReader {
 public:
  static constexpr u32 kMostNumbers = 4096;
  // n: numbers of each word, 0 if the first line tells.
  explicit VectorReader(u32 n);
  // A word and its numbers a line.
  void parse(std::string_view text, i64 first_line);
  // Words and numbers one after another, those of word2vec's binary files; gives how many bytes were read: a word that
  // is cut off is left.
  std::size_t parse_binary(std::string_view bytes);
  u64 seen() const { return seen_; }                    // words, also those that are left out
  u64 invalid() const { return invalid_; }              // words that are no UTF-8
  u64 first_invalid() const { return first_invalid_; }  // the first of them, from 1
  u32 n() const { return n_; }
  const StringTable& words() const { return words_; }
  const std::vector<float>& values() const { return values_; }  // [words][n]

 private:
  void add(std::string_view word);

  StringTable words_;
  std::vector<float> values_, row_;
  u32 n_;
  u64 seen_ = 0, invalid_ = 0, first_invalid_ = 0;
};

class Lexicon {
 public:
  template <class T>
  using Shared = std::shared_ptr<const T>;
  Lexicon(std::vector<Shared<ClassTable>> classes, std::vector<Shared<Gazetteer>> gazetteers,
          Shared<VectorTable> vectors);

  // Columns of the classes, then of the gazetteers; rows of vectors. Words are those of the first column.
  Derived derive(const ColumnView& data, const Threads& threads) const;
  int n_columns() const { return static_cast<int>(classes_.size() + gazetteers_.size()); }
  u32 n_numbers() const { return vectors_ ? vectors_->n : 0; }

 private:
  std::vector<Shared<ClassTable>> classes_;
  std::vector<Shared<Gazetteer>> gazetteers_;
  Shared<VectorTable> vectors_;
};

}  // namespace crfkit
