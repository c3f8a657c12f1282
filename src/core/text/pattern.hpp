// pattern.hpp: the small regular expressions of Wapiti's patterns.
//
//   .  any character        \d \a \w \l \u \p \s  classes (ASCII; the upper-case letter is the complement)
//   ^  at the beginning     \x  any other x itself
//   $  at the end           *  any number, as few as do        ?  one or none, one if that does
//
// A character is a code point. Time is linear in the text, and memory hardly depends on it: going from the end of the
// text to its beginning, a set of bits says which rests of the expression match there; the match is then read off from
// its beginning, as these sets tell where each choice leads.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/base.hpp"

namespace crfkit {

class Regex {
 public:
  explicit Regex(std::string_view text);  // throws Error if it is malformed

  struct Match {
    bool found = false;
    std::size_t begin = 0, size = 0;  // bytes
  };
  // The first match in valid UTF-8.
  Match search(std::string_view s) const;

 private:
  enum class Repeat : u8 { once, star, optional };
  struct Item {
    u32 code = 0;
    bool any = false, is_class = false;
    Repeat repeat = Repeat::once;
    bool fits(u32 c) const;
  };
  // A set of items, as bits: the last item is bit 1, the one before it bit 2; bit 0 stands for the end of the
  // expression.
  using Set = std::vector<u64>;
  static constexpr u32 kAscii = 128;
  struct Run;

  std::size_t bit(std::size_t item) const { return items_.size() - item; }

  std::vector<Item> items_;
  bool from_start_ = false, to_end_ = false;
  std::size_t words_ = 1;  // of a set
  Set stays_, moves_;      // items that a character leads back to (*), or to the next one
  Set skips_;              // items that may match nothing
  Set ascii_;              // [kAscii + 1][words_]: the items that a character fits; the last are those of all others
  std::vector<std::pair<u32, std::size_t>>
      beyond_;  // characters beyond ASCII in the expression, in order, and their bits
};

}  // namespace crfkit
