// features.hpp: sparse features, laid out for scoring and for its adjoint.
//
// A model has weights for (attribute, label) pairs, and for (attribute, label, next label) where
// transitions look at the input. Either way an attribute owns a row: its weights, spread over the
// labels (or label pairs). The score of a token is the sum of the rows of its attributes; the adjoint
// adds the token's marginals to those rows. Rows that are mostly full are dense vectors, the others
// short runs of (column, weight).
//
// Data is cut into blocks of some thousand tokens. A block numbers its own rows from zero, copies their
// weights into tables that fit the processor's cache, and adds its gradient back at the end.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/base.hpp"
#include "base/parallel.hpp"
#include "chain/pack.hpp"
#include "model/known_labels.hpp"

namespace crfkit {

// The weights of one kind and the rows they form, of a layout that outlives it. Weight numbers ascend with the
// attribute.
struct Family {
  u32 first_weight = 0;
  int width = 0;                  // numbers in a dense row
  std::span<const u32> ptr;       // attribute -> its first weight, relative  [attributes + 1]
  std::span<const u16> label;     // weight -> place in the row, of states    [weights]
  std::vector<u32> pair_columns;  // the same of label pairs
  struct Place {
    u32 first;  // its dense row, or its first weight
    u32 count;  // its weights; kNone for a dense row
    bool dense() const { return count == kNone; }
  };
  std::vector<Place> place;     // where an attribute's weights are         [attributes]
  std::vector<u32> dense_attr;  // dense row -> attribute

  // Runs are so short that a token lists their weights one by one.
  bool lists_weights = false;

  u32 n_attributes() const { return ptr.empty() ? 0 : static_cast<u32>(ptr.size() - 1); }
  u32 n_weights() const { return static_cast<u32>(label.size() + pair_columns.size()); }
  u32 column(u32 weight) const { return label.empty() ? pair_columns[weight] : label[weight]; }
  // A dense row costs one operation per vector of `lanes` numbers, a run about one per weight.
  void choose_dense(int lanes);
};

// What the encoders make of text: ragged sequences of tokens, each token a few attributes.
struct Tokens {
  i64 n_seq = 0;
  const i64* offsets = nullptr;   // first token of each sequence     [n_seq + 1]
  const i64* ptr = nullptr;       // first attribute of each token    [tokens + 1]
  const u32* attr = nullptr;      // [ptr[tokens]]; ids beyond the model's are unknown and skipped
  const double* value = nullptr;  // [ptr[tokens]] or null: all one
  const i64* edge_ptr = nullptr;  // the same for the transition into each token, or null
  const u32* edge_attr = nullptr;

  i64 n_tokens() const { return offsets[n_seq]; }
};

// The same as files hold it: in blocks of whole sequences, each of which numbers its attributes from zero.
struct StoredGroup {
  const i64* first_attr = nullptr;   // of each block                         [blocks + 1]
  const i64* first_entry = nullptr;  // of each block, in 16-bit words        [blocks + 1]
  const i64* first_value = nullptr;  // of each block, in entries             [blocks + 1]
  const u32* attr = nullptr;         // attributes of the blocks, ascending
  const u16* entry = nullptr;        // places among them, a word each; two, the lower first, where a block has many
  const u16* count = nullptr;        // entries of each token
  const double* value = nullptr;     // of the entries, or null: all one

  static constexpr i64 kNarrow = 65536;  // attributes that a word can tell apart
  i64 n_attr(i64 block) const { return first_attr[block + 1] - first_attr[block]; }
  bool wide(i64 block) const { return n_attr(block) > kNarrow; }
};
struct StoredTokens {
  i64 n_seq = 0, n_blocks = 0;
  const i64* offsets = nullptr;    // first token of each sequence     [n_seq + 1]
  const i64* first_seq = nullptr;  // first sequence of each block     [n_blocks + 1]
  StoredGroup state, edge;         // edge.count is null: no attributes of transitions

  i64 n_tokens() const { return offsets[n_seq]; }
  i64 first_token(i64 block) const { return offsets[first_seq[block]]; }
};

// Which weights a model has, in the order of its weight vector: state weights by attribute and label,
// transitions by label pair, start, end, and edge weights by attribute and label pair.
struct Layout {
  int n_labels = 0;
  std::span<const u32> state_ptr;       // [attributes + 1]
  std::span<const u16> state_label;     // [state weights]
  std::vector<i32> transition;          // [labels * labels] weight number, or -1: no weight, score 0
  i64 start = -1, end = -1;             // first of n_labels weights, or -1
  std::span<const u32> edge_ptr;        // [edge attributes + 1], empty: transitions never look at the input
  std::span<const u32> edge_pair;       // [edge weights] from * n_labels + to
  u32 edge_first = 0;                   // first edge weight
  u32 size = 0;                         // all weights
  std::shared_ptr<const void> owner{};  // of the arrays

  bool has_edges() const { return edge_ptr.size() > 1; }
  void check() const;
  void check(bool data_has_edges) const;  // whether it goes with the model
  // rows padded to a multiple of `lanes`
  Family state_family(int lanes) const;
  Family edge_family(int lanes) const;
};

// Which columns each attribute is seen with: column[token] is the token's label (or label pair), kNone to skip it.
// Pairs seen fewer than min_count times are left out.
struct Observed {
  std::vector<u32> ptr, column;
};
Observed observed_pairs(const i64* ptr, const u32* attr, i64 n_tokens, u32 n_attributes, const u32* column,
                        u32 n_columns, double min_count);
// The same of stored tokens, whose labels may be -1: unknown. edge: attributes of transitions, with label pairs.
Observed stored_pairs(const StoredTokens& data, bool edge, u32 n_attributes, const i32* labels, u32 n_labels,
                      double min_count, const Poll& poll);

// One family's share of a block. Local rows ascend with the model's rows.
template <class T>
struct Group {
  std::vector<u32> dense;    // local dense row -> dense row
  std::vector<u32> run_ptr;  // local run -> its first local weight    [runs + 1]; empty: entries name weights
  std::vector<u32> weight;   // local weight -> weight, relative
  std::vector<u32> ptr;      // token -> its first entry               [tokens + 1]
  std::vector<u16> n_dense;  // how many of a token's entries are dense rows; they come first
  std::vector<u16> id;       // entries: local dense row; local run, or local weight
  std::vector<u32> wide_id;  // instead of id, where a block has more rows than 16 bits count
  std::vector<T> value;      // of the entries; empty: all one
};

template <class T>
struct Block {
  std::vector<Pack> packs;
  std::vector<i64> base;   // first token row of each pack  [packs + 1]
  std::vector<i64> token;  // token row -> token of the data
  Group<T> state, edge;
};

// A weight of a run and its place in the row.
template <class T>
struct RunWeight {
  T weight;
  u32 column;
};

// A block should be little work beside all of the data: beams are judged by single ones.
i64 tokens_per_block(int n_labels);
// Sequences [first, second) of each block.
std::vector<std::pair<i64, i64>> cut_blocks(const i64* offsets, i64 n_seq, i64 tokens_per_block);

template <class T>
Block<T> make_block(const Family& state, const Family& edge, const Tokens& data, std::pair<i64, i64> seqs,
                    int pack_width);
// The same block out of a file, in memory that one before has left.
template <class T>
void load_block(const Family& state, const Family& edge, const StoredTokens& data, i64 b, int pack_width,
                Block<T>& block);

}  // namespace crfkit
