#include "text/items.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <version>

#if !defined(__cpp_lib_to_chars)
#include <xlocale.h>
#endif

#include "text/unicode.hpp"

namespace crfkit {
namespace {

// Whether the whole text is a number.
bool parse(std::string_view s, double& x) {
#if defined(__cpp_lib_to_chars)
  const auto [rest, error] = std::from_chars(s.data(), s.data() + s.size(), x);
  return error == std::errc() && rest == s.data() + s.size();
#else  // Apple's library has from_chars for integers only
  if (s.empty() || s[0] == '+' || s.find_first_not_of("0123456789.eE+-") != s.npos) return false;
  const std::string text(s);
  char* rest = nullptr;
  x = strtod_l(text.c_str(), &rest, nullptr);
  return rest == text.c_str() + text.size();
#endif
}

// what, name: whose number it is, for messages
double number(std::string_view s, double least, i64 line, const char* what, const std::string& name) {
  double x = 0;
  if (parse(s.substr(s.starts_with('+')), x) && x >= least && x <= kLargestValue) return x;
  const std::string whose = name.empty() ? what : std::string(what) + " '" + name + "'";
  throw LineError(
      line, whose + " must be a number from " + (least < 0 ? "-1e10" : "0") + " to 1e10, got '" + std::string(s) + "'");
}

// Splits "name:value" at the first colon that is not escaped; name loses its escapes. The value may be missing.
std::string_view split(std::string_view field, std::string& name) {
  name.clear();
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\' && i + 1 < field.size() && (field[i + 1] == ':' || field[i + 1] == '\\')) name += field[++i];
    else if (field[i] == ':') return field.substr(i + 1);
    else name += field[i];
  }
  return {};
}

}  // namespace

void ItemBuilder::parse(std::string_view text, i64 first_line) {
  check_utf8(text, first_line);
  std::string name;
  for_lines(text, first_line, [&](std::string_view s, i64 line) {
    if (s.empty()) return end_sequence();
    if (s.starts_with("@weight:")) {
      if (std::ssize(ptr) - 1 != offsets.back())
        throw LineError(line, "@weight must stand before the first item of a sequence");
      open_weight_ = number(s.substr(8), 0.0, line, "the weight", "");
      return;
    }
    bool first = true;
    for_fields(s, [&](std::string_view field) {
      if (first) {
        if (field.empty()) throw LineError(line, "the label is empty");
        label.push_back(labels.add(field));
        first = false;
      } else if (!field.empty()) {
        const std::string_view x = split(field, name);
        if (name.empty()) throw LineError(line, "an attribute has no name: '" + std::string(field) + "'");
        add_attribute(name,
                      x.data() == nullptr ? 1.0 : number(x, -kLargestValue, line, "the value of attribute", name));
      }
    });
    end_token();
  });
}

}  // namespace crfkit
