// parsing.hpp: text into whatever is built of it.
#pragma once
#include "bind/arrays.hpp"
#include "text/columns.hpp"

namespace crfkit {

// None, or (line, what is wrong with it)
template <class Builder>
nb::object parse_into(Builder& self, nb::bytes text, i64 first_line) {
  const std::string_view s(text.c_str(), text.size());
  try {
    unlocked([&] { self.parse(s, first_line); });
  } catch (const LineError& e) {
    return nb::make_tuple(e.line, std::string(e.what()));
  }
  return nb::none();
}

}  // namespace crfkit
