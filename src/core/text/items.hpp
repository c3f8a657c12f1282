// items.hpp: tokens as bags of named attributes with values, from CRFsuite's text format or one by one.
#pragma once
#include <string_view>
#include <vector>

#include "base/base.hpp"
#include "text/columns.hpp"
#include "text/strings.hpp"

namespace crfkit {

// No value may be larger, or its square in the gradient of 1e8 tokens would not fit single precision.
constexpr double kLargestValue = 1e10;

class ItemBuilder {
 public:
  // keep_zeros: whether attributes of value zero are kept; they score nothing, but may be seen with a label.
  // known: take the numbers of this table, and leave out attributes that it does not have.
  explicit ItemBuilder(bool keep_zeros = false, const StringTable* known = nullptr)
      : keep_zeros_(keep_zeros), known_(known) {}

  // CRFsuite text: "label TAB attribute[:value] TAB ...", a blank line ends a sequence, "\:" and "\\" are a colon and
  // a backslash, a line "@weight:w" before the first token weighs the sequence.
  void parse(std::string_view text, i64 first_line);

  void add_attribute(std::string_view name, double x) {
    if (x != 0.0 || keep_zeros_) add_number(number_of(name), x);
  }
  // The number of an attribute, kNone if it has none.
  u32 number_of(std::string_view name) { return known_ != nullptr ? known_->find(name) : names.add(name); }
  void add_number(u32 id, double x) {
    if (id == kNone) return;
    if (x != 1.0 && value.empty()) value.assign(attr.size(), 1.0);
    attr.push_back(id);
    if (!value.empty() || x != 1.0) value.push_back(x);
  }
  bool keeps_zeros() const { return keep_zeros_; }
  void end_token() { ptr.push_back(std::ssize(attr)); }
  void end_sequence(bool keep_empty = false) {
    const i64 tokens = std::ssize(ptr) - 1;
    if (tokens == offsets.back() && !keep_empty) return;
    offsets.push_back(tokens);
    weight.push_back(open_weight_);
    open_weight_ = 1.0;
  }

  // An empty one of the same kind.
  ItemBuilder fresh() const { return ItemBuilder(keep_zeros_, known_); }
  // Forgets the tokens of a sequence that was not ended.
  void drop_open() {
    ptr.resize(offsets.back() + 1);
    attr.resize(ptr.back());
    if (!value.empty()) value.resize(ptr.back());
  }

  StringTable names, labels;
  std::vector<i64> offsets{0};  // first token of each sequence
  std::vector<i64> ptr{0};      // first attribute of each token
  std::vector<u32> attr;        // numbers in names, or in those known
  std::vector<double> value;    // empty: all one
  std::vector<u32> label;       // numbers in labels, of tokens read from text
  std::vector<double> weight;   // of each sequence

 private:
  double open_weight_ = 1.0;
  bool keep_zeros_;
  const StringTable* known_;
};

}  // namespace crfkit
