// tokens.hpp: data sets of attributes as the encoders give them, and checks of what is given beside them.
#pragma once
#include "bind/arrays.hpp"
#include "model/features.hpp"

namespace crfkit {

// Offsets, ptr, attributes, values or None, and the same of the edges.
struct TokenArrays {
  In<i64, 1> offsets, ptr;
  In<u32, 1> attr;
  std::optional<In<double, 1>> value;
  std::optional<In<i64, 1>> edge_ptr;
  std::optional<In<u32, 1>> edge_attr;

  Tokens view() const {
    check_offsets(ptr, attr.size(), "attribute pointers must rise from 0 to the number of attributes");
    check_offsets(offsets, ptr.size() - 1, "offsets must rise from 0 to the number of tokens");
    require(shaped(value, attr.size()), "there must be a value for every attribute");
    require(edge_ptr.has_value() == edge_attr.has_value() && shaped(edge_ptr, ptr.size()),
            "there must be edge attributes for every token");
    if (edge_ptr)
      check_offsets(*edge_ptr, edge_attr->size(), "edge pointers must rise from 0 to the number of attributes");
    return {std::ssize(offsets) - 1, offsets.data(),    ptr.data(),        attr.data(),
            data_of(value),          data_of(edge_ptr), data_of(edge_attr)};
  }
};

using Numbers = std::optional<In<double, 1>>;

// The same in blocks that number their attributes themselves, as files hold them: attributes, entries, counts, values
// or None, and where those of each block begin: attributes, words of entries, entries.
struct StoredArrays {
  using Group = std::tuple<In<u32, 1>, In<u16, 1>, In<u16, 1>, Numbers, In<i64, 1>, In<i64, 1>, In<i64, 1>>;
  In<i64, 1> offsets, first_seq;
  Group state;
  std::optional<Group> edge;

  StoredTokens view() const {
    require(offsets.size() >= 1 && first_seq.size() >= 1, "offsets must not be empty");
    check_offsets(offsets, offsets(offsets.size() - 1), "offsets must rise from 0 to the number of tokens");
    check_offsets(first_seq, std::ssize(offsets) - 1, "blocks must rise from 0 to the number of sequences");
    StoredTokens out;
    out.n_seq = std::ssize(offsets) - 1;
    out.n_blocks = std::ssize(first_seq) - 1;
    out.offsets = offsets.data();
    out.first_seq = first_seq.data();
    out.state = group(state, out.n_blocks, out.n_tokens());
    if (edge) out.edge = group(*edge, out.n_blocks, out.n_tokens());
    return out;
  }

 private:
  static StoredGroup group(const Group& x, i64 n_blocks, i64 n_tokens) {
    const auto& [attr, entry, count, value, first_attr, first_entry, first_value] = x;
    require(shaped(first_attr, n_blocks + 1) && shaped(first_entry, n_blocks + 1) && shaped(first_value, n_blocks + 1),
            "every block must have a place");
    check_offsets(first_attr, attr.size(), "the attributes of blocks must follow each other");
    check_offsets(first_entry, entry.size(), "the entries of blocks must follow each other");
    const i64 n = first_value(n_blocks);
    check_offsets(first_value, n, "the entries of blocks must follow each other");
    require(shaped(count, n_tokens), "there must be a count of entries for every token");
    require(shaped(value, n), "there must be a value for every entry");
    return {first_attr.data(), first_entry.data(), first_value.data(), attr.data(),
            entry.data(),      count.data(),       data_of(value)};
  }
};

// Hard constraints: [labels][labels], start, end.
inline void check_constraints(const Layout& layout, const Numbers& constraints) {
  const i64 n = layout.n_labels;
  require(shaped(constraints, n * (n + 2)), "constraints have the wrong size");
}

// What labelled data brings besides the tokens: weights of the sequences and hard constraints.
inline void check_training(const Tokens& tokens, const Layout& layout, const Numbers& seq_weight,
                           const Numbers& constraints) {
  require(shaped(seq_weight, tokens.n_seq), "there must be a weight for every sequence");
  check_constraints(layout, constraints);
}

// least: -1 where labels may be unknown
inline void check_gold(const Tokens& tokens, int n_labels, const In<i32, 1>& gold, i32 least = 0) {
  require(shaped(gold, tokens.n_tokens()), "there must be a label for every token");
  for (std::size_t t = 0; t < gold.size(); ++t)
    require(gold(t) >= least && gold(t) < n_labels, "a label is not one of the model's");
}

}  // namespace crfkit
