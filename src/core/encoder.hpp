// encoder.hpp: from columns to attributes, by templates, without a string per feature.
//
// A template names pieces of the text around a token, "the word before, this part of speech". Its value at a token is
// computed through nodes: a leaf is a form of one column's string (the word, its suffix, its shape), a join is a pair
// of nodes some steps apart. Each node numbers its values; an attribute is (template, value number), found by an array
// look-up. Leaves are computed once per distinct string, joins once per token and shared by all templates that shift
// them: nineteen chunking templates cost five look-ups a token.
#pragma once
#include <string>
#include <vector>

#include "chain.hpp"
#include "columns.hpp"
#include "strings.hpp"
#include "unicode.hpp"

namespace crfkit {

struct Node {
  enum class Kind : u8 { leaf, join, always, first, last };
  Kind kind = Kind::always;
  int column = 0;                    // leaf
  WordForm form = WordForm::same;    // leaf
  int n = 0;                         // leaf: characters of an affix
  int a = 0, b = 0, distance = 0;    // join: a at t, b at t + distance
  std::string between;               // join: text between the two in a name

  static Node leaf(int column, WordForm form, int n);
  static Node join(int a, int b, int distance, std::string between);
  static Node mark(Kind kind);
};

struct Template {
  int node = 0;
  int offset = 0;            // the node is looked at this many steps away
  std::string prefix, suffix;  // text around the value in a name
  bool edge = false;         // an attribute of the transition into the token, not of the token
};

// Attributes of ragged tokens, [tokens + 1] pointers and the attributes' numbers.
struct Attributes {
  std::vector<i64> ptr{0};
  std::vector<u32> attr;
};

class TemplateEncoder {
 public:
  // pad: out-of-range pieces read _B-1, _B+1 and so on; otherwise a template that leaves the sequence gives nothing.
  TemplateEncoder(std::vector<Node> nodes, std::vector<Template> templates, bool pad);

  // grow: number what is new; otherwise skip what is unknown, and several threads may call at once.
  void encode(const ColumnView& data, bool grow, const Threads& threads, Attributes& state, Attributes& edge);

  u32 n_attributes(bool edge) const { return n_attributes_[edge]; }
  std::string name(u32 attribute, bool edge) const;
  std::vector<std::string> names(bool edge) const;
  int n_columns() const { return n_columns_; }
  bool has_edges() const;

  // An encoder that knows only the attributes marked in keep, renumbered in order.
  TemplateEncoder pruned(const std::vector<u8>& keep_state, const std::vector<u8>& keep_edge) const;

  // What encode learned, as flat tables: for every leaf its strings, for every join its pairs, for every class
  // its attributes by value.
  struct Vocabulary {
    std::vector<StringTable> strings;      // [leaves]
    std::vector<PairTable> pairs;          // [joins]
    std::vector<std::vector<u32>> attribute;  // [classes][values], kNone: no attribute
  };
  const Vocabulary& vocabulary() const { return vocabulary_; }
  void restore(Vocabulary vocabulary, u32 n_state, u32 n_edge);
  int n_classes() const { return static_cast<int>(classes_.size()); }

 private:
  // Templates that differ only in where they look, and write the same name, share their attributes.
  struct Class {
    int node;
    std::string prefix, suffix;
    bool edge;
    int same_text = -1;  // number of the group of classes with the same text but other nodes, or -1
  };
  struct Scratch;
  using LeafMaps = std::vector<std::vector<u32>>;  // [leaves][strings of the data] -> value

  void share_tables();
  u32 n_values(int node) const;
  void append_value(std::string& out, int node, u32 value) const;
  u32 add_attribute(int cls, u32 value);
  u32 leaf_value(int node, std::string_view s, bool grow);
  LeafMaps map_leaves(const ColumnView& data, bool grow, const Threads& threads);
  void run_nodes(const ColumnView& data, const LeafMaps& leaves, i64 seq, bool grow, Scratch& scratch);
  void encode_range(const ColumnView& data, const LeafMaps& leaves, i64 begin, i64 end, bool grow, Attributes& state,
                    Attributes& edge);

  std::vector<Node> nodes_;
  std::vector<Template> templates_;
  bool pad_;
  int n_columns_ = 0;
  std::vector<int> same_;            // node -> the first node that numbers its values together with it
  std::vector<int> table_of_;        // node -> its table among the leaves' or the joins'
  std::vector<int> low_, high_;      // node -> steps before the first and behind the last token it is needed at
  std::vector<Class> classes_;
  std::vector<int> class_of_;        // template -> class
  std::vector<StringTable> by_name_;  // per group of same text: names seen, and their attributes
  std::vector<std::vector<u32>> named_;
  Vocabulary vocabulary_;
  u32 n_attributes_[2] = {0, 0};
};

}  // namespace crfkit
