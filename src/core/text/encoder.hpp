// encoder.hpp: from columns to attributes, by templates, without a string per feature.
//
// A template names pieces of the text around a token, "the word before, this part of speech". Its value at a token is
// computed through nodes: a leaf is a form of one column's string (the word, its suffix, its shape), a join is a pair
// of nodes some steps apart. Each node numbers its values; an attribute is (template, value number), found by an array
// look-up. Leaves are computed once per distinct string, joins once per token and shared by all templates that shift
// them: nineteen chunking templates cost five look-ups a token.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.hpp"
#include "text/columns.hpp"
#include "text/lexicon.hpp"
#include "text/pattern.hpp"
#include "text/strings.hpp"
#include "text/unicode.hpp"

namespace crfkit {

struct Node {
  enum class Kind : u8 { leaf, join, always, first, last, number };
  Kind kind = Kind::always;
  int column = 0;                  // leaf; number: which of those of a word's vector
  bool derived = false;            // leaf: the column is one of those that a lexicon derives
  WordForm form = WordForm::same;  // leaf
  int n = 0;                       // leaf: characters of an affix
  // leaf of a Wapiti pattern: the string, whether the regex matches it, or what the regex matches
  enum class Command : u8 { none, copy, test, match };
  Command command = Command::none;
  bool lower = false;     // in lower case, ASCII letters only
  bool absolute = false;  // at this place of the sequence: 1 is the first token, -1 the last
  int place = 0;
  std::string regex{};
  std::shared_ptr<const Regex> matcher{};  // made by the encoder
  int a = 0, b = 0, distance = 0;          // join: a at t, b at t + distance
  std::string between{};                   // join: text between the two in a name
};

struct Template {
  int node = 0;
  int offset = 0;              // the node is looked at this many steps away
  std::string prefix, suffix;  // text around the value in a name
  bool edge = false;           // an attribute of the transition into the token, not of the token
};

// Attributes of ragged tokens, [tokens + 1] pointers and the attributes' numbers; their values, unless all are one.
struct Attributes {
  std::vector<i64> ptr{0};
  std::vector<u32> attr;
  std::vector<double> value;
};

// What a piece outside the sequence reads: nothing, so that its template gives nothing; _B-1, _B+1, _B+2 ... as in
// CRF++; or _x-1, _x+1 ... _x+4, _x+# as in Wapiti.
enum class Padding : u8 { none, crfpp, wapiti };

class TemplateEncoder {
 public:
  TemplateEncoder(std::vector<Node> nodes, std::vector<Template> templates, Padding pad);

  // grow: number what is new; otherwise skip what is unknown, and several threads may call at once. lexicon: where the
  // templates look at one, or null.
  void encode(const ColumnView& data, const Lexicon* lexicon, bool grow, const Threads& threads, Attributes& state,
              Attributes& edge);

  u32 n_attributes(bool edge) const { return n_attributes_[edge]; }
  std::vector<std::string> names(bool edge) const;
  bool has_edges() const;
  bool has_values() const { return n_numbers_ > 0; }

  // An encoder that knows only the attributes marked in keep, renumbered in order.
  TemplateEncoder pruned(const std::vector<u8>& keep_state, const std::vector<u8>& keep_edge) const;

  // Learns attributes from their names instead of from data: attribute k is whatever the templates write as names[k]. A
  // name that can be read in several ways ("a/b/c" of two values joined by "/") is learned in all of them. Gives for
  // both kinds a mark for each name: whether some template can write it.
  struct Marks {
    std::vector<u8> state, edge;
  };
  Marks learn(const StringTable& state, const StringTable& edge, const Poll& poll);

  // What encode learned, as flat tables: for every leaf its strings, for every join its pairs, for every class
  // its attributes by value.
  struct Vocabulary {
    std::vector<StringTable> strings;         // [leaves]
    std::vector<PairTable> pairs;             // [joins]
    std::vector<std::vector<u32>> attribute;  // [classes][values], kNone: no attribute
  };
  const Vocabulary& vocabulary() const { return vocabulary_; }
  u64 memory() const;  // bytes of all tables, about

  // A key of each attribute, the same for the same attribute of any encoder with these templates.
  std::vector<Key> keys(bool edge, u64 seed) const;
  // The attributes here of another encoder's, which has the same templates; kNone: unknown here.
  struct Numbers {
    std::vector<u32> state, edge;
  };
  Numbers translate(const TemplateEncoder& other) const;
  // The same; what is unknown is added, as if the data of the other came after the data seen here.
  Numbers absorb(const TemplateEncoder& other);
  // Takes attributes over from flat tables of another encoder: attribute k gets the number numbers[k], unless that is
  // kNone. The numbers given in all calls together must be those from zero on.
  struct Flat {
    struct Strings {
      std::string_view bytes;
      std::span<const u64> ends;
    };
    std::vector<Strings> strings;                        // as in Vocabulary
    std::vector<std::span<const u32>> pairs, attribute;  // pairs one after another
  };
  // Whether an attribute may have several values, of templates that differ only in where the parts of a text come from;
  // adopt must then be given the number of an attribute by every encoder that has it.
  bool shares_names() const { return !by_name_.empty(); }
  void adopt(const Flat& other, std::span<const u32> state, std::span<const u32> edge);
  void restore(Vocabulary vocabulary, u32 n_state, u32 n_edge);

 private:
  // Templates that differ only in where they look, and write the same name, share their attributes.
  struct Class {
    int node;
    std::string prefix, suffix;
    bool edge;
    int same_text = -1;  // number of the group of classes with the same text but other nodes, or -1
  };
  struct Scratch;
  struct Stretch {
    i64 seq, from, to;  // tokens of a sequence
  };
  struct LeafMaps {
    std::vector<std::vector<u32>> of_table;  // [leaves][strings of the data] -> value
    std::vector<std::vector<u32>> of_node;   // [nodes][strings of a derived column] -> value
  };

  int n_nodes() const { return static_cast<int>(nodes_.size()); }
  int n_classes() const { return static_cast<int>(classes_.size()); }
  void share_tables();
  // Calls f(class, value, attribute) for all of them.
  template <class F>
  void each_attribute(F f) const {
    for (int c = 0; c < n_classes(); ++c)
      for (u32 v = 0; v < vocabulary_.attribute[c].size(); ++v)
        if (vocabulary_.attribute[c][v] != kNone) f(c, v, vocabulary_.attribute[c][v]);
  }
  std::string text(const Class& c, u32 value) const;
  u32& attribute_of(int cls, u32 value);
  u32 n_values(int node) const;
  void append_value(std::string& out, int node, u32 value) const;
  void append_leaves(std::string& out, int node, u32 value) const;  // so that other values have other texts
  void check_text() const;
  void know_names();
  void collect_names(std::vector<StringTable>& by_name, std::vector<std::vector<u32>>& named) const;
  u32 add_attribute(int cls, u32 value);
  u32 value_of(int node, const std::vector<std::string_view>& pieces, std::size_t& next);
  u32 leaf_value(int node, std::string_view s, bool grow);
  LeafMaps map_leaves(const ColumnView& data, bool grow, const Threads& threads);
  void check_columns(const ColumnView& data, const Lexicon* lexicon) const;
  u32 pad_value(int node, i64 far, bool before, bool grow);
  void run_nodes(const ColumnView& data, const LeafMaps& leaves, const Stretch& at, bool grow, Scratch& scratch);
  void encode_range(const ColumnView& data, const LeafMaps& leaves, i64 begin, i64 end, bool grow, const Poll* poll,
                    Attributes& state, Attributes& edge);

  std::vector<Node> nodes_;
  std::vector<Template> templates_;
  Padding pad_;
  int n_columns_ = 0, n_derived_ = 0, n_numbers_ = 0;  // what the nodes look at
  std::vector<int> same_;        // node -> the first node that numbers its values together with it
  std::vector<int> table_of_;    // node -> its table among the leaves' or the joins'
  std::vector<int> low_, high_;  // node -> steps before the first and after the last token it is needed at
  std::vector<Class> classes_;
  std::vector<int> class_of_;         // template -> class
  std::vector<StringTable> by_name_;  // per group of same text: names seen, and their attributes
  std::vector<std::vector<u32>> named_;
  bool names_known_ = true;  // whether these two have all attributes
  Vocabulary vocabulary_;
  u32 n_attributes_[2] = {0, 0};
};

}  // namespace crfkit
