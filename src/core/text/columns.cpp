#include "text/columns.hpp"

#include <algorithm>
#include <cstdio>

#include "text/unicode.hpp"

namespace crfkit {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string shown(std::string_view s) {
  std::size_t most = 60;
  if (s.size() <= most) return "'" + std::string(s) + "'";
  while (most > 0 && (static_cast<unsigned char>(s[most]) & 0xC0) == 0x80) --most;  // no character is cut in two
  return "'" + std::string(s.substr(0, most)) + "...'";
}

// Is this CoNLL-U id a word range (3-4) or an empty node (5.1)?
bool is_range_or_empty(std::string_view id) { return id.find_first_of("-.") != std::string_view::npos; }

}  // namespace

void check_utf8(std::string_view text, i64 first_line) {
  const std::size_t bad = invalid_utf8(text);
  if (bad == std::string_view::npos) return;
  char code[8];
  std::snprintf(code, sizeof code, "0x%02x", static_cast<unsigned char>(text[bad]));
  throw LineError(first_line + std::count(text.begin(), text.begin() + bad, '\n'),
                  std::string("not valid UTF-8: byte ") + code);
}

void ColumnBuilder::add_token(const std::vector<std::string_view>& row) {
  for (std::string_view field : row) ids.push_back(strings.add(field));
  ++open_;
}

ColumnBuilder ColumnBuilder::take() {
  ColumnBuilder taken(format_);
  std::swap(taken.strings, strings);
  std::swap(taken.ids, ids);
  std::swap(taken.offsets, offsets);
  taken.n_columns = n_columns;
  const i64 ended = taken.offsets.back() * n_columns;
  for (std::size_t k = ended; k < taken.ids.size(); ++k) ids.push_back(strings.add(taken.strings[taken.ids[k]]));
  taken.ids.resize(ended);
  return taken;
}

void ColumnBuilder::parse(std::string_view text, i64 first_line) {
  check_utf8(text, first_line);
  std::vector<std::string_view> fields;
  for_lines(text, first_line, [&](std::string_view s, i64 line) {
    if (std::all_of(s.begin(), s.end(), is_blank)) return end_sequence();
    if (!format_.comment.empty() && s.starts_with(format_.comment)) return;
    if (format_.separator == 'a') format_.separator = s.find('\t') != std::string_view::npos ? '\t' : 0;
    fields.clear();
    if (format_.separator == '\t') {
      for_fields(s, [&](std::string_view field) { fields.push_back(field); });
    } else {
      for (std::size_t i = 0; i < s.size();) {
        while (i < s.size() && is_blank(s[i])) ++i;
        const std::size_t begin = i;
        while (i < s.size() && !is_blank(s[i])) ++i;
        if (i > begin) fields.push_back(s.substr(begin, i - begin));
      }
    }
    if (!format_.document.empty() && fields[0] == format_.document) return end_sequence();
    if (n_columns == 0) n_columns = static_cast<int>(fields.size());
    if (std::ssize(fields) != n_columns)
      throw LineError(line, "expected " + std::to_string(n_columns) + (n_columns == 1 ? " column" : " columns") +
                                " as in the lines before, got " + std::to_string(fields.size()) + ": " + shown(s));
    if (format_.conllu && is_range_or_empty(fields[0])) return;
    add_token(fields);
  });
}

std::string write_columns(const ColumnView& rows, const i32* path, const std::vector<std::string>& labels,
                          const double* probability) {
  std::string out;
  out.reserve(rows.n_tokens() * 16);
  char digits[32];
  for (i64 s = 0; s < rows.n_seq; ++s) {
    for (i64 t = rows.offsets[s]; t < rows.offsets[s + 1]; ++t) {
      for (i64 c = 0; c < rows.n_columns; ++c) {
        out += (*rows.strings)[rows.ids[t * rows.n_columns + c]];
        out += '\t';
      }
      if (path[t] < 0 || path[t] >= std::ssize(labels)) throw Error("there is no such label");
      out += labels[path[t]];
      if (probability != nullptr) {
        std::snprintf(digits, sizeof digits, "\t%.6f", probability[t]);
        out += digits;
      }
      out += '\n';
    }
    out += '\n';
  }
  return out;
}

}  // namespace crfkit
