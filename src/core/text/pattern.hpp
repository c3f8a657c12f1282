// pattern.hpp: the small regular expressions of Wapiti's patterns.
//
//   .  any character        \d \a \w \l \u \p \s  classes (ASCII; the upper-case letter is the complement)
//   ^  at the beginning     \x  any other x itself
//   $  at the end           *  any number, as few as do        ?  one or none, one if that does
//
// A character is a code point. A failed (place in the expression, place in the text) is never tried again, so that a
// match costs at most their product.
#pragma once
#include <string>
#include <string_view>
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
  struct Run;
  std::vector<Item> items_;
  bool from_start_ = false, to_end_ = false;
};

}  // namespace crfkit
