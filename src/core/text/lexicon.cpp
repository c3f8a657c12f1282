#include "text/lexicon.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "text/items.hpp"
#include "text/unicode.hpp"

namespace crfkit {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

constexpr u32 kMostStates = kNone / 4;  // of a gazetteer: two bits of a place say more

void require(bool good, const std::string& what) {
  if (!good) throw Error(what);
}

}  // namespace

u32 WordTable::find(std::string_view word) const {
  if (folding == Folding::lower) return words.find(word_form(word, WordForm::lower, 0));
  const u32 found = words.find(word);
  return found != kNone || folding == Folding::exact ? found : words.find(word_form(word, WordForm::lower, 0));
}

void WordTable::find(const StringTable& strings, std::span<const u32> some, u32* found) const {
  constexpr std::size_t kBatch = 32;
  u64 hash[kBatch];
  while (!some.empty()) {
    const std::span<const u32> batch = some.first(std::min(kBatch, some.size()));
    if (folding != Folding::lower) {  // whose hashes are those of other forms
      for (std::size_t i = 0; i < batch.size(); ++i) words.prefetch(hash[i] = hash_bytes(strings[batch[i]]));
      for (std::size_t i = 0; i < batch.size(); ++i) words.prefetch_end(hash[i]);
      for (std::size_t i = 0; i < batch.size(); ++i) words.prefetch_bytes(hash[i]);
    }
    for (u32 k : batch) found[k] = find(strings[k]);
    some = some.subspan(batch.size());
  }
}

ClassTable::ClassTable(WordTable table, StringTable strings, std::vector<u32> numbers)
    : words(std::move(table)), codes(std::move(strings)), code_of(std::move(numbers)) {
  require(code_of.size() == words.words.size(), "there must be a class for every word");
  for (u32 k : code_of) require(k < codes.size(), "a word has a class that does not exist");
}

Gazetteer::Gazetteer(WordTable words, Trie trie) : words_(std::move(words)), trie_(std::move(trie)) {
  const auto& [first, label, last] = trie_;
  const u64 n = label.size();
  const auto check = [](bool good) { require(good, "the phrases of a gazetteer are damaged"); };
  check(n > 0 && n < kMostStates && last.size() == n && first.size() == n + 1 && first[0] == 1 && first[n] == n);
  for (u64 s = 0; s < n; ++s) {
    check(first[s] > s && first[s] <= first[s + 1] && last[s] <= 1 && (s == 0 || label[s] < words_.words.size()));
    size_ += last[s];
  }
  for (u64 s = 0; s < n; ++s)
    for (u32 k = first[s]; k + 1 < first[s + 1]; ++k) check(label[k] < label[k + 1]);
  check(last[0] == 0);
  for (u64 end = 1, depth = 0; end < n; ++depth) {  // level by level
    check(first[end] > end && depth < kLongest);
    end = first[end];
  }
  index();
}

void Gazetteer::index() {
  const std::vector<u32>&first = trie_.first, &label = trie_.label;
  start_.assign(words_.words.size(), kNone);
  for (u32 s = first[0]; s < first[1]; ++s) start_[label[s]] = place(s);
  steps_.resize(std::bit_ceil(2 * (label.size() - first[1]) + 2));
  bits_.assign(steps_.size() / 2, 0);
  for (u32 s = 1; s < label.size(); ++s)
    for (u32 child = first[s]; child < first[s + 1]; ++child) {
      const u64 h = hash(s, label[child]);
      bits_[bit(h) / 8] |= static_cast<u8>(1 << bit(h) % 8);
      u64 at = slot(h);
      while (steps_[at].place != kNone) at = slot(at + 1);
      steps_[at] = {place(child), s, label[child]};
    }
}

const StringTable& Gazetteer::marks() {
  static const StringTable table = [] {
    StringTable made;
    for (const char* mark : {"B", "I", "L", "U"}) made.add(mark);
    return made;
  }();
  return table;
}

void Gazetteer::match(u32* ids, u32* places, i64 n) const {
  enum : u32 { kBegin, kInside, kLast, kUnit };
  struct Open {
    i64 token;
    u64 hash;
  };
  std::vector<i64> longest(n, 0);  // of the phrases that begin at each token
  std::vector<Open> open(n);       // where a phrase may go on
  for (i64 t = 0; t < n; ++t) open[t].token = t;
  // The tables are too large for the cache: all look-ups ask for what they need, then all take it.
  for (i64 length = 1; !open.empty(); ++length) {
    std::size_t kept = 0;
    for (const auto [t, _] : open) {
      const u32 place = places[t];
      if (place == kNone) continue;
      if (place & 1) longest[t] = length;
      if (!(place & 2) || t + length >= n || ids[t + length] == kNone) continue;
      const u64 h = hash(place / 4, ids[t + length]);
      __builtin_prefetch(bits_.data() + bit(h) / 8);
      open[kept++] = {t, h};
    }
    open.resize(std::exchange(kept, 0));
    for (const Open x : open) {
      if (!(bits_[bit(x.hash) / 8] >> bit(x.hash) % 8 & 1)) continue;
      __builtin_prefetch(steps_.data() + slot(x.hash));
      open[kept++] = x;
    }
    open.resize(kept);
    for (const auto [t, h] : open) {
      const u32 state = places[t] / 4, word = ids[t + length];
      u64 at = slot(h);
      const auto differs = [&](const Step& x) { return x.place != kNone && (x.word != word || x.state != state); };
      while (differs(steps_[at])) at = slot(at + 1);
      places[t] = steps_[at].place;
    }
  }
  for (i64 t = 0; t < n;) {
    if (longest[t] == 0) {
      ids[t++] = kNone;
      continue;
    }
    const i64 end = t + longest[t];
    ids[end - 1] = longest[t] == 1 ? kUnit : kLast;
    for (u32 mark = kBegin; t + 1 < end; mark = kInside) ids[t++] = mark;
    t = end;
  }
}

void GazetteerBuilder::add(const std::vector<std::string_view>& phrase) {
  require(!phrase.empty(), "a phrase has no words");
  require(phrase.size() <= Gazetteer::kLongest, "a phrase may have at most " + std::to_string(Gazetteer::kLongest) +
                                                    " words, got " + std::to_string(phrase.size()));
  const bool lower = words_.folding == Folding::lower;
  for (std::string_view word : phrase)
    flat_.push_back(words_.words.add(lower ? std::string_view(word_form(word, WordForm::lower, 0)) : word));
  ends_.push_back(flat_.size());
  require(ends_.size() < kMostStates, "a gazetteer has too many phrases");
}

void GazetteerBuilder::parse(std::string_view text, i64 first_line) {
  check_utf8(text, first_line);
  std::vector<std::string_view> phrase;
  for_lines(text, first_line, [&](std::string_view s, i64 line) {
    phrase.clear();
    for (std::size_t i = 0; i < s.size();) {
      while (i < s.size() && is_blank(s[i])) ++i;
      const std::size_t begin = i;
      while (i < s.size() && !is_blank(s[i])) ++i;
      if (i > begin) phrase.push_back(s.substr(begin, i - begin));
    }
    if (phrase.empty()) return;
    try {
      add(phrase);
    } catch (const Error& e) {
      throw LineError(line, e.what());
    }
  });
}

Gazetteer GazetteerBuilder::build() {
  const auto words_of = [&](u32 k) {
    const u64 begin = k == 0 ? 0 : ends_[k - 1];
    return std::span<const u32>(flat_).subspan(begin, ends_[k] - begin);
  };
  std::vector<std::pair<u64, u32>> keys(ends_.size());  // the first two words, and the phrase
  for (u32 k = 0; k < keys.size(); ++k) {
    const auto x = words_of(k);
    keys[k] = {u64{x[0]} << 32 | (x.size() > 1 ? x[1] + 1 : 0), k};
  }
  std::sort(keys.begin(), keys.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    const auto x = words_of(a.second), y = words_of(b.second);
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  });
  std::vector<u32> order;
  for (const auto& [key, k] : keys) order.push_back(k);
  struct Group {
    u32 begin, end, depth;  // the phrases of a state, which have so many words in common
  };
  std::vector<Group> groups{{0, static_cast<u32>(order.size()), 0}};
  Gazetteer::Trie trie{{}, {0}, {}};
  for (std::size_t s = 0; s < groups.size(); ++s) {
    auto [at, end, depth] = groups[s];
    trie.first.push_back(static_cast<u32>(groups.size()));
    trie.last.push_back(0);
    for (; at < end && words_of(order[at]).size() == depth; ++at) trie.last[s] = 1;
    while (at < end) {
      const u32 begin = at, word = words_of(order[at])[depth];
      while (at < end && words_of(order[at])[depth] == word) ++at;
      trie.label.push_back(word);
      groups.push_back({begin, at, depth + 1});
      require(groups.size() < kMostStates, "a gazetteer has too many phrases");
    }
  }
  trie.first.push_back(static_cast<u32>(groups.size()));
  return Gazetteer(std::move(words_), std::move(trie));
}

VectorTable::VectorTable(WordTable table, std::vector<float> numbers, u32 size)
    : words(std::move(table)), values(std::move(numbers)), n(size) {
  require(n > 0 && values.size() == u64{n} * words.words.size(), "there must be as many numbers for every word");
  for (float x : values)
    require(std::abs(x) <= kLargestValue, "the numbers of a vector must be finite, and at most 1e10");
}

VectorReader::VectorReader(u32 n) : n_(n) {
  require(n <= kMostNumbers,
          "a vector may have at most " + std::to_string(kMostNumbers) + " numbers, got " + std::to_string(n));
}

void VectorReader::add(std::string_view word) {
  ++seen_;
  for (float x : row_)
    require(std::abs(x) <= kLargestValue, "the numbers of a vector must be finite, and at most 1e10");
  if (invalid_utf8(word) != std::string_view::npos) {
    if (invalid_++ == 0) first_invalid_ = seen_;
    return;
  }
  if (word.empty()) return;
  const u32 before = words_.size();
  if (words_.add(word) == before) values_.insert(values_.end(), row_.begin(), row_.end());
}

void VectorReader::parse(std::string_view text, i64 first_line) {
  for_lines(text, first_line, [&](std::string_view s, i64 line) {
    const auto fail = [&](const std::string& what) { throw LineError(line, what); };
    while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
    if (s.empty()) return;
    if (n_ == 0) {  // a word and, as often as there are blanks, a number
      n_ = static_cast<u32>(std::count_if(s.begin(), s.end(), is_blank));
      if (n_ == 0 || n_ > kMostNumbers)
        fail("expected a word and 1 to " + std::to_string(kMostNumbers) + " numbers, got " + std::to_string(n_));
    }
    row_.resize(n_);
    std::string_view rest = s;  // a word may have blanks in it: numbers are read from the end
    for (u32 k = n_; k-- > 0;) {
      std::size_t begin = rest.size();
      while (begin > 0 && !is_blank(rest[begin - 1])) --begin;
      const char* end = rest.data() + rest.size();
      const auto [at, fault] = std::from_chars(rest.data() + begin, end, row_[k]);
      if (begin == 0 || fault != std::errc() || at != end)
        fail("expected a word and " + std::to_string(n_) + " numbers separated by blanks");
      rest = rest.substr(0, begin);
      while (!rest.empty() && is_blank(rest.back())) rest.remove_suffix(1);
    }
    try {
      add(rest);
    } catch (const Error& e) {
      fail(e.what());
    }
  });
}

std::size_t VectorReader::parse_binary(std::string_view bytes) {
  constexpr std::size_t kLongestWord = 1 << 16;
  static_assert(std::endian::native == std::endian::little);
  row_.resize(n_);
  std::size_t at = 0;
  for (;;) {
    std::size_t begin = at;
    while (begin < bytes.size() && bytes[begin] == '\n') ++begin;
    const std::size_t end = bytes.find(' ', begin);
    if ((end == std::string_view::npos ? bytes.size() : end) - begin > kLongestWord)
      throw Error("word " + std::to_string(seen_ + 1) + " is longer than " + std::to_string(kLongestWord) + " bytes");
    if (end == std::string_view::npos || bytes.size() - end - 1 < 4 * std::size_t{n_}) return at;
    std::memcpy(row_.data(), bytes.data() + end + 1, 4 * std::size_t{n_});
    at = end + 1 + 4 * std::size_t{n_};
    try {
      add(bytes.substr(begin, end - begin));
    } catch (const Error& e) {
      throw Error("word " + std::to_string(seen_) + ": " + e.what());
    }
  }
}

Lexicon::Lexicon(std::vector<Shared<ClassTable>> classes, std::vector<Shared<Gazetteer>> gazetteers,
                 Shared<VectorTable> vectors)
    : classes_(std::move(classes)), gazetteers_(std::move(gazetteers)), vectors_(std::move(vectors)) {}

Derived Lexicon::derive(const ColumnView& data, const Threads& threads) const {
  constexpr i64 kWords = 1 << 12, kTokens = 1 << 14;  // of a task
  const i64 n = data.n_tokens(), step = data.n_columns;
  std::vector<u8> seen(data.strings->size(), 0);
  std::vector<u32> words;  // the distinct ones
  for (i64 t = 0; t < n; ++t) {
    const u32 id = data.ids[t * step];
    if (!seen[id]) words.push_back(id);
    seen[id] = 1;
  }
  std::vector<u32> found(data.strings->size(), kNone);
  const auto look_up = [&](const WordTable& table) {
    parallel_blocks(std::ssize(words), kWords, threads, [&](i64 begin, i64 end, int) {
      table.find(*data.strings, std::span(words).subspan(begin, end - begin), found.data());
    });
  };
  const auto of_tokens = [&] {
    std::vector<u32> out(n);
    parallel_blocks(n, kTokens, threads, [&](i64 begin, i64 end, int) {
      for (i64 t = begin; t < end; ++t) out[t] = found[data.ids[t * step]];
    });
    return out;
  };
  Derived out;
  for (const auto& table : classes_) {
    look_up(table->words);
    for (const u32 word : words) found[word] = found[word] == kNone ? kNone : table->code_of[found[word]];
    out.columns.push_back({&table->codes, of_tokens()});
  }
  for (const auto& table : gazetteers_) {
    look_up(table->words());
    std::vector<u32> ids = of_tokens();
    for (const u32 word : words) found[word] = table->start(found[word]);
    std::vector<u32> places = of_tokens();
    const i64 n_tasks = std::min<i64>(data.n_seq, 4 * threads.count);
    parallel_for(n_tasks, threads.count, threads.poll, [&](i64 k, int) {
      for (i64 s = data.n_seq * k / n_tasks; s < data.n_seq * (k + 1) / n_tasks; ++s) {
        table->match(ids.data() + data.offsets[s], places.data() + data.offsets[s],
                     data.offsets[s + 1] - data.offsets[s]);
      }
    });
    out.columns.push_back({&Gazetteer::marks(), std::move(ids)});
  }
  if (vectors_) {
    look_up(vectors_->words);
    out.rows = of_tokens();
    out.numbers = vectors_->values.data();
    out.n_numbers = vectors_->n;
  }
  return out;
}

}  // namespace crfkit
