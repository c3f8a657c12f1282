// columns.hpp: column text, read into numbered strings.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/base.hpp"
#include "text/strings.hpp"

namespace crfkit {

// What is wrong with a line of a file; the caller knows the file's name.
struct LineError : Error {
  LineError(i64 at, const std::string& what) : Error(what), line(at) {}
  i64 line;
};

// Throws where the text is not valid UTF-8.
void check_utf8(std::string_view text, i64 first_line);

// Calls f(line, its number) for every line, without its end.
template <class F>
void for_lines(std::string_view text, i64 first_line, F f) {
  i64 number = first_line;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t newline = text.find('\n', at);
    std::string_view line = text.substr(at, newline == std::string_view::npos ? newline : newline - at);
    at = newline == std::string_view::npos ? text.size() : newline + 1;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    f(line, number);
  }
}

// Calls f(field) for everything between tabs.
template <class F>
void for_fields(std::string_view line, F f) {
  for (std::size_t at = 0;;) {
    const std::size_t tab = line.find('\t', at);
    f(line.substr(at, tab - at));
    if (tab == std::string_view::npos) return;
    at = tab + 1;
  }
}

struct ColumnFormat {
  char separator = 0;    // tab, or 0: blanks; 'a': tabs if the first line has one, else blanks
  std::string comment;   // lines that begin so are skipped; empty: none
  std::string document;  // lines whose first column is this are skipped, and end a sequence; empty: none
  bool conllu = false;   // skip word ranges (3-4) and empty nodes (5.1)
};

// What a lexicon knows of the words of some tokens.
struct Derived {
  struct Column {
    const StringTable* strings;
    std::vector<u32> ids;  // [tokens]; kNone: nothing is known
  };
  std::vector<Column> columns;
  std::vector<u32> rows;           // [tokens] of numbers; kNone: there are none
  const float* numbers = nullptr;  // [rows][n_numbers]
  u32 n_numbers = 0;
};

// Ragged sequences of tokens, every token a row of n_columns strings.
struct ColumnView {
  const StringTable* strings = nullptr;
  int n_columns = 0;
  i64 n_seq = 0;
  const u32* ids = nullptr;      // [tokens][n_columns]
  const i64* offsets = nullptr;  // first token of each sequence [n_seq + 1]
  const Derived* derived = nullptr;

  i64 n_tokens() const { return offsets[n_seq]; }
};

// Column text with a label, and if given its probability, after every row; a blank line after every sequence.
std::string write_columns(const ColumnView& rows, const i32* path, const std::vector<std::string>& labels,
                          const double* probability);

// Builds such rows, from text or one by one.
class ColumnBuilder {
 public:
  explicit ColumnBuilder(ColumnFormat format = {}) : format_(std::move(format)) {}
  // Adds text; a sequence may go on in the next piece of text, a line may not.
  void parse(std::string_view text, i64 first_line);
  void add_token(const std::vector<std::string_view>& row);
  void end_sequence(bool keep_empty = false) {
    if (open_ == 0 && !keep_empty) return;
    offsets.push_back(offsets.back() + open_);
    open_ = 0;
  }

  // The sequences that have ended; the one that has not stays.
  ColumnBuilder take();

  StringTable strings;
  int n_columns = 0;
  std::vector<u32> ids;         // [tokens][n_columns], those of the open sequence last
  std::vector<i64> offsets{0};  // of the sequences that have ended

 private:
  ColumnFormat format_;
  i64 open_ = 0;  // tokens of the sequence that has not ended
};

}  // namespace crfkit
