// bigrams.cpp: counting sort by the first word, then every row by the second.
#include "words/bigrams.hpp"

#include <algorithm>
#include <numeric>

#include "text/unicode.hpp"

namespace crfkit {
namespace {

constexpr i64 kRows = 512;  // words of a task

// Begins of rows, of their sizes.
std::vector<i64> sums(std::vector<i64> sizes) {
  sizes.insert(sizes.begin(), 0);
  std::partial_sum(sizes.begin(), sizes.end(), sizes.begin());
  return sizes;
}

}  // namespace

Bigrams turned(const Bigrams& x) {
  const i64 n = x.size();
  std::vector<i64> sizes(n, 0);
  for (const u32 b : x.next) ++sizes[b];
  Bigrams out;
  out.ptr = sums(std::move(sizes));
  out.next.resize(x.next.size());
  out.count.resize(x.next.size());
  std::vector<i64> at(out.ptr.begin(), out.ptr.end() - 1);
  for (i64 a = 0; a < n; ++a)
    for (i64 k = x.ptr[a]; k < x.ptr[a + 1]; ++k) {
      const i64 place = at[x.next[k]]++;
      out.next[place] = static_cast<u32>(a);
      out.count[place] = x.count[k];
    }
  return out;
}

void WordCounter::add(const ColumnView& rows, int column, bool lower) {
  std::vector<u32> number(rows.strings->size(), kNone);
  tokens_.reserve(tokens_.size() + rows.n_tokens() + rows.n_seq);
  for (i64 s = 0; s < rows.n_seq; ++s) {
    if (rows.offsets[s] == rows.offsets[s + 1]) continue;
    for (i64 t = rows.offsets[s]; t < rows.offsets[s + 1]; ++t) {
      u32& id = number[rows.ids[t * rows.n_columns + column]];
      if (id == kNone) {
        const std::string_view word = (*rows.strings)[rows.ids[t * rows.n_columns + column]];
        id = words_.add(lower ? std::string_view(word_form(word, WordForm::lower, 0)) : word);
      }
      tokens_.push_back(id);
    }
    tokens_.push_back(kBoundary);
  }
  n_tokens_ += rows.n_tokens();
}

WordCounter::Ranking WordCounter::rank(i64 min_freq) const {
  std::vector<i64> count(words_.size(), 0);
  i64 boundaries = 0;
  for (const u32 token : tokens_) token == kBoundary ? ++boundaries : ++count[token];
  Ranking out;
  i64 rare = 0;
  for (u32 k = 0; k < words_.size(); ++k) count[k] >= min_freq ? out.word.push_back(k) : void(rare += count[k]);
  if (out.word.empty()) return out;
  if (boundaries > 0) out.word.push_back(kBoundary);
  if (rare > 0) out.word.push_back(kRareWord);
  const auto of = [&](u32 word) { return word == kBoundary ? boundaries : word == kRareWord ? rare : count[word]; };
  std::stable_sort(out.word.begin(), out.word.end(), [&](u32 a, u32 b) { return of(a) > of(b); });
  for (const u32 word : out.word) out.count.push_back(of(word));
  return out;
}

Bigrams WordCounter::bigrams(const Ranking& ranking, const Threads& threads) const {
  const i64 n = std::ssize(ranking.word);
  if (n == 0) return {};
  std::vector<u32> rank(words_.size(), kRareWord);
  u32 boundary = kNone, rare = kNone;
  for (u32 r = 0; r < n; ++r) {
    const u32 word = ranking.word[r];
    (word == kBoundary ? boundary : word == kRareWord ? rare : rank[word]) = r;
  }
  const auto of = [&](u32 token) {
    if (token == kBoundary) return boundary;
    return rank[token] == kRareWord ? rare : rank[token];
  };
  std::vector<i64> sizes(n, 0);
  for (i64 r = 0; r < n; ++r) sizes[r] = ranking.count[r];
  const std::vector<i64> begin = sums(std::move(sizes));
  std::vector<u32> second(tokens_.size());  // all that follows, by the first word
  std::vector<i64> at(begin.begin(), begin.end() - 1);
  u32 before = boundary;
  for (const u32 token : tokens_) {
    const u32 r = of(token);
    second[at[before]++] = r;
    before = r;
  }
  std::vector<i64> distinct(n, 0);
  parallel_blocks(n, kRows, threads, [&](i64 first, i64 last, int) {
    for (i64 r = first; r < last; ++r) {
      std::sort(second.begin() + begin[r], second.begin() + begin[r + 1]);
      for (i64 k = begin[r]; k < begin[r + 1]; ++k) distinct[r] += k == begin[r] || second[k] != second[k - 1];
    }
  });
  Bigrams out;
  out.ptr = sums(std::move(distinct));
  out.next.resize(out.ptr.back());
  out.count.assign(out.ptr.back(), 0);
  parallel_blocks(n, kRows, threads, [&](i64 first, i64 last, int) {
    for (i64 r = first; r < last; ++r) {
      i64 place = out.ptr[r] - 1;
      for (i64 k = begin[r]; k < begin[r + 1]; ++k) {
        if (k == begin[r] || second[k] != second[k - 1]) out.next[++place] = second[k];
        ++out.count[place];
      }
    }
  });
  return out;
}

}  // namespace crfkit
