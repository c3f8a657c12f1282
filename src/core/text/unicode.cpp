#include "text/unicode.hpp"

#include <algorithm>
#include <cstring>

#include "text/unicode_tables.hpp"

namespace crfkit {

CharClass class_of(u32 c) {
  if (c < 0x80) {
    if (c >= 'a' && c <= 'z') return CharClass::lower;
    if (c >= 'A' && c <= 'Z') return CharClass::upper;
    if (c >= '0' && c <= '9') return CharClass::digit;
    if (c == ' ') return CharClass::space;
    if (c < ' ' || c == 0x7f) return CharClass::other;
    return std::strchr("$+<=>^`|~", static_cast<int>(c)) ? CharClass::symbol : CharClass::punctuation;
  }
  const u32 start = *(std::upper_bound(std::begin(kClassStarts), std::end(kClassStarts), 16 * c + 15) - 1);
  if (start % 16 == 9) return (c - start / 16) % 2 == 0 ? CharClass::upper : CharClass::lower;
  return static_cast<CharClass>(start % 16);
}

u32 lower_of(u32 c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  const auto after = [](u32 x, const LowerRange& y) { return x < y.first; };
  const auto* r = std::upper_bound(std::begin(kLowerRanges), std::end(kLowerRanges), c, after);
  if (r-- == kLowerRanges || c > r->last || (c - r->first) % r->step != 0) return c;
  return c + r->distance;
}

std::size_t invalid_utf8(std::string_view s) {
  const auto* p = reinterpret_cast<const u8*>(s.data());
  const std::size_t n = s.size();
  std::size_t i = 0;
  while (i < n) {
    if (i + 8 <= n) {
      u64 x;
      std::memcpy(&x, p + i, 8);
      if ((x & 0x8080808080808080ull) == 0) {
        i += 8;
        continue;
      }
    }
    const u8 c = p[i];
    if (c < 0x80) {
      ++i;
      continue;
    }
    const int extra = c >= 0xc2 && c <= 0xdf ? 1 : (c & 0xf0) == 0xe0 ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : 0;
    if (extra == 0 || i + extra >= n) return i;
    for (int k = 1; k <= extra; ++k)
      if ((p[i + k] & 0xc0) != 0x80) return i;
    // overlong forms, surrogates, beyond the last code
    const u8 d = p[i + 1];
    if ((c == 0xe0 && d < 0xa0) || (c == 0xed && d > 0x9f) || (c == 0xf0 && d < 0x90) || (c == 0xf4 && d > 0x8f))
      return i;
    i += 1 + extra;
  }
  return std::string_view::npos;
}

u32 next_code(std::string_view s, std::size_t& i) {
  const u8 c = static_cast<u8>(s[i++]);
  if (c < 0x80) return c;
  const int extra = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
  u32 code = c & (0x3f >> extra);
  for (int k = 0; k < extra && i < s.size(); ++k) code = code << 6 | (static_cast<u8>(s[i++]) & 0x3f);
  return code;
}

void append_code(std::string& out, u32 c) {
  const auto put = [&](u32 byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  const int extra = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  put((0xff & ~(0x7f >> extra)) | c >> 6 * extra);
  for (int k = extra; k-- > 0;) put(0x80 | (c >> 6 * k & 0x3f));
}

namespace {

std::string in_lower_case(std::string_view word) {
  std::string out;
  out.reserve(word.size());
  for (std::size_t i = 0; i < word.size();) append_code(out, lower_of(next_code(word, i)));
  return out;
}

std::string shape(std::string_view word) {
  std::string out;
  u32 last = 0;
  int run = 0;
  for (std::size_t i = 0; i < word.size();) {
    const u32 code = next_code(word, i);
    const CharClass kind = class_of(code);
    if (kind == CharClass::mark) continue;
    const u32 c = kind == CharClass::upper                                ? 'X'
                  : kind == CharClass::lower || kind == CharClass::letter ? 'x'
                  : kind == CharClass::digit                              ? 'd'
                                                                          : code;
    run = c == last ? run + 1 : 1;
    last = c;
    if (run <= 2) append_code(out, c);
  }
  return out;
}

std::string letter_case(std::string_view word) {
  int upper = 0, lower = 0;
  bool first_upper = false;
  for (std::size_t i = 0; i < word.size();) {
    const CharClass kind = class_of(next_code(word, i));
    if (kind == CharClass::upper) {
      first_upper |= upper + lower == 0;
      ++upper;
    } else if (kind == CharClass::lower) {
      ++lower;
    }
  }
  if (upper + lower == 0) return "";
  if (upper == 0) return "lower";
  if (lower == 0) return "upper";
  return upper == 1 && first_upper ? "title" : "mixed";
}

std::string how_many(std::string_view word, bool digits) {
  int yes = 0, all = 0;
  for (std::size_t i = 0; i < word.size(); ++all) {
    const CharClass kind = class_of(next_code(word, i));
    yes += digits ? kind == CharClass::digit : kind == CharClass::punctuation || kind == CharClass::symbol;
  }
  return yes == 0 ? "" : yes == all ? "all" : "some";
}

}  // namespace

std::string word_form(std::string_view word, WordForm form, int n) {
  switch (form) {
    case WordForm::same:
      return std::string(word);
    case WordForm::lower:
      return in_lower_case(word);
    case WordForm::prefix: {
      std::size_t i = 0;
      for (int k = 0; k < n; ++k) {
        if (i >= word.size()) return "";
        next_code(word, i);
      }
      return std::string(word.substr(0, i));
    }
    case WordForm::suffix: {
      std::size_t i = word.size();
      for (int k = 0; k < n; ++k) {
        if (i == 0) return "";
        do --i;
        while (i > 0 && continues(word[i]));
      }
      return std::string(word.substr(i));
    }
    case WordForm::shape:
      return shape(word);
    case WordForm::letter_case:
      return letter_case(word);
    case WordForm::digits:
      return how_many(word, true);
    case WordForm::punctuation:
      return how_many(word, false);
    case WordForm::start: {
      std::size_t i = 0;
      for (int k = 0; k < n && i < word.size(); ++k) next_code(word, i);
      return std::string(word.substr(0, i));
    }
  }
  return "";
}

}  // namespace crfkit
