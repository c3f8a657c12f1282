// unicode.hpp: UTF-8, character classes, lower case, and the word forms built on them.
#pragma once
#include <string>
#include <string_view>

#include "base/base.hpp"

namespace crfkit {

enum class CharClass : u8 { other, upper, lower, letter, digit, punctuation, symbol, mark, space };

CharClass class_of(u32 code);
u32 lower_of(u32 code);

// Place of the first byte that is not valid UTF-8, or npos.
std::size_t invalid_utf8(std::string_view s);

// Decodes the character at s[i] and moves i past it. s must be valid.
u32 next_code(std::string_view s, std::size_t& i);
void append_code(std::string& out, u32 code);
// Whether a byte goes on with a character that began before it.
inline bool continues(char c) { return (static_cast<u8>(c) & 0xc0) == 0x80; }

// What a word gives to features. An empty result means: no feature.
enum class WordForm : u8 {
  same,         // the word
  lower,        // in lower case
  prefix,       // its first n characters, if it has as many
  suffix,       // its last n
  shape,        // X for upper case, x for lower, d for digits; runs longer than two are cut to two
  letter_case,  // upper, title, lower, mixed; empty without letters
  digits,       // all, some; empty without
  punctuation,  // all, some; empty without
  start,        // its first n characters, or all
};

std::string word_form(std::string_view word, WordForm form, int n);

}  // namespace crfkit
