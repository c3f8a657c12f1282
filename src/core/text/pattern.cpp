#include "text/pattern.hpp"

#include <algorithm>
#include <cctype>

#include "text/unicode.hpp"

namespace crfkit {
namespace {

constexpr std::string_view kClasses = "adlpsuw";

bool in_class(char name, u32 code) {
  constexpr int (*tests[])(int) = {std::isalpha, std::isdigit, std::islower, std::ispunct,
                                   std::isspace, std::isupper, std::isalnum};  // of kClasses
  return code < 128 && tests[kClasses.find(name)](static_cast<int>(code)) != 0;
}

char lower(u32 code) { return static_cast<char>(std::tolower(static_cast<int>(code))); }

void add(u64* set, std::size_t bit) { set[bit / 64] |= u64{1} << bit % 64; }

}  // namespace

bool Regex::Item::fits(u32 c) const {
  if (any) return true;
  if (!is_class) return c == code;
  return in_class(lower(code), c) == (std::islower(static_cast<int>(code)) != 0);
}

Regex::Regex(std::string_view text) {
  if (invalid_utf8(text) != std::string_view::npos) throw Error("a regular expression is not valid UTF-8");
  if (text.size() > 1000) throw Error("a regular expression is longer than 1000 bytes");
  std::size_t i = 0;
  if (text.starts_with('^')) {
    from_start_ = true;
    i = 1;
  }
  while (i < text.size()) {
    if (text[i] == '$' && i + 1 == text.size()) {
      to_end_ = true;
      break;
    }
    if (text[i] == '*' || text[i] == '?')
      throw Error("a regular expression has an unescaped * or ? without a character before it: '" + std::string(text) +
                  "'");
    Item item;
    if (text[i] == '\\') {
      if (++i == text.size())
        throw Error("a regular expression ends with a lone backslash: '" + std::string(text) + "'");
      item.code = next_code(text, i);
      item.is_class = item.code < 128 && kClasses.find(lower(item.code)) != std::string_view::npos;
    } else {
      item.any = text[i] == '.';
      item.code = next_code(text, i);
    }
    if (i < text.size() && (text[i] == '*' || text[i] == '?'))
      item.repeat = text[i++] == '*' ? Repeat::star : Repeat::optional;
    items_.push_back(item);
  }
  words_ = items_.size() / 64 + 1;
  for (Set* x : {&stays_, &moves_, &skips_}) x->assign(words_, 0);
  ascii_.assign((kAscii + 1) * words_, 0);
  for (std::size_t k = 0; k < items_.size(); ++k) {
    const Item& x = items_[k];
    add(x.repeat == Repeat::star ? stays_.data() : moves_.data(), bit(k));
    if (x.repeat != Repeat::once) add(skips_.data(), bit(k));
    for (u32 code = 0; code <= kAscii; ++code)
      if (x.fits(code < kAscii ? code : kNone)) add(ascii_.data() + code * words_, bit(k));
    if (x.code >= kAscii) beyond_.emplace_back(x.code, bit(k));
  }
  std::sort(beyond_.begin(), beyond_.end());
}

// The sets of a stretch of the text, which ends at places[0] and goes on to the left of it.
struct Regex::Run {
  static constexpr std::size_t kStretch = 4096;  // characters, at most
  const Regex& regex;
  std::string_view text;
  std::vector<std::size_t> places{};  // where characters begin, from right to left
  std::vector<u64> sets{};            // [places][words]: the items that the rest of the expression may begin with there
  Set fit = Set(regex.words_);        // of a character beyond ASCII

  bool has(std::size_t place, std::size_t item) const {
    const std::size_t at = regex.bit(item);
    return (sets[place * regex.words_ + at / 64] >> at % 64 & 1) != 0;
  }
  u32 code(std::size_t place) const {
    std::size_t at = places[place];
    return next_code(text, at);
  }
  // The items that a character fits.
  const u64* fits(u32 c) {
    const std::size_t words = regex.words_;
    if (c < kAscii) return regex.ascii_.data() + c * words;
    fit.assign(regex.ascii_.end() - std::ssize(fit), regex.ascii_.end());
    auto known = std::lower_bound(regex.beyond_.begin(), regex.beyond_.end(), std::pair<u32, std::size_t>(c, 0));
    for (; known != regex.beyond_.end() && known->first == c; ++known) add(fit.data(), known->second);
    return fit.data();
  }
  // Adds the items that may match nothing, before an item of the set or another such: a run of ones in skips_ is
  // flooded from its lowest member on, by the carry of an addition.
  void close(u64* set) const {
    u64 below = 0;
    for (std::size_t k = 0; k < regex.words_; ++k) {
      const u64 skip = regex.skips_[k], begin = (set[k] << 1 | below) & skip;
      set[k] |= begin | (skip & ~(skip + begin));
      below = set[k] >> 63;
    }
  }
  // The set at the end of the text.
  Set last() const {
    Set out(regex.words_, 0);
    out[0] = 1;
    close(out.data());
    return out;
  }
  // Begins anew at a place whose set is known.
  void fill(std::size_t end, const Set& at_end) {
    places.assign(1, end);
    sets = at_end;
    const std::size_t words = regex.words_;
    while (places.back() > 0 && places.size() <= kStretch) {
      std::size_t at = places.back() - 1;
      while (continues(text[at])) --at;
      places.push_back(at);
      sets.resize(sets.size() + words);
      u64* set = sets.data() + sets.size() - words;
      const u64 *after = set - words, *fitting = fits(code(places.size() - 1));
      u64 below = 0;
      for (std::size_t k = 0; k < words; ++k) {
        set[k] = fitting[k] & ((after[k] & regex.stays_[k]) | ((after[k] << 1 | below) & regex.moves_[k]));
        below = after[k] >> 63;
      }
      if (!regex.to_end_) set[0] |= 1;
      close(set);
    }
  }
};

Regex::Match Regex::search(std::string_view s) const {
  constexpr std::size_t kNowhere = std::string_view::npos;
  Run run{*this, s};
  std::vector<std::size_t> ends;  // of the stretches, from right to left, with the sets there
  std::vector<Set> at_ends;
  std::size_t begin = kNowhere, stretch = 0, place = 0;  // where the match begins: stretch and place in it
  for (std::size_t end = s.size();; end = run.places.back()) {
    at_ends.push_back(ends.empty() ? run.last() : Set(run.sets.end() - std::ssize(stays_), run.sets.end()));
    ends.push_back(end);
    run.fill(end, at_ends.back());
    for (std::size_t k = ends.size() > 1; k < run.places.size(); ++k) {
      if (!run.has(k, 0) || (from_start_ && run.places[k] > 0)) continue;
      begin = run.places[k];
      stretch = ends.size() - 1;
      place = k;
    }
    if (run.places.back() == 0) break;
  }
  if (begin == kNowhere) return {};
  if (stretch + 1 != ends.size()) run.fill(ends[stretch], at_ends[stretch]);
  const auto step = [&] {
    if (--place > 0 || stretch == 0) return;
    --stretch;
    run.fill(ends[stretch], at_ends[stretch]);
    place = run.places.size() - 1;
  };
  for (std::size_t k = 0; k < items_.size();) {
    const Item& x = items_[k];
    if (x.repeat == Repeat::star) {
      if (run.has(place, k + 1)) ++k;
      else step();
    } else {
      ++k;
      if (x.repeat == Repeat::once || (place > 0 && x.fits(run.code(place)) && run.has(place - 1, k))) step();
    }
  }
  return {true, begin, run.places[place] - begin};
}

}  // namespace crfkit
