#include "text/pattern.hpp"

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
}

struct Regex::Run {
  const Regex& regex;
  std::vector<u32> codes;
  std::vector<u8> failed;  // [items + 1][codes + 1]
  std::size_t end = 0;

  bool match(std::size_t item, std::size_t at) {
    if (item == regex.items_.size()) {
      if (regex.to_end_ && at != codes.size()) return false;
      end = at;
      return true;
    }
    u8& tried = failed[item * (codes.size() + 1) + at];
    if (tried) return false;
    const Item& x = regex.items_[item];
    const auto fits = [&](std::size_t place) { return place < codes.size() && x.fits(codes[place]); };
    bool found = false;
    if (x.repeat == Repeat::star) {
      for (std::size_t place = at; !found; ++place) {
        found = match(item + 1, place);
        if (found || !fits(place)) break;
      }
    } else if (x.repeat == Repeat::optional) {
      found = (fits(at) && match(item + 1, at + 1)) || match(item + 1, at);
    } else {
      found = fits(at) && match(item + 1, at + 1);
    }
    if (!found) tried = 1;
    return found;
  }
};

Regex::Match Regex::search(std::string_view s) const {
  Run run{*this, {}, {}, 0};
  std::vector<std::size_t> place;
  for (std::size_t i = 0; i < s.size();) {
    place.push_back(i);
    run.codes.push_back(next_code(s, i));
  }
  place.push_back(s.size());
  run.failed.assign((items_.size() + 1) * (run.codes.size() + 1), 0);
  for (std::size_t at = 0; at <= run.codes.size(); ++at) {
    if (run.match(0, at)) return {true, place[at], place[run.end] - place[at]};
    if (from_start_) break;
  }
  return {};
}

}  // namespace crfkit
