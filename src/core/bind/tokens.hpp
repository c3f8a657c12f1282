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

// least: that of labels and hints that may be given
inline void check_labels(const In<i32, 1>& labels, i64 n_tokens, int n_labels, i64 least = 0) {
  require(shaped(labels, n_tokens), "there must be a label for every token");
  for (std::size_t t = 0; t < labels.size(); ++t)
    require(labels(t) >= least && labels(t) < n_labels, "a label is not one of the model's");
}

inline KnownLabels known_labels(const In<i32, 1>& labels, i64 n_tokens, const In<double, 2>& hints, int n_labels) {
  const i64 n_hints = hints.shape(0);
  check_labels(labels, n_tokens, n_labels, kNothingKnown - n_hints);
  require(n_hints == 0 || shaped(hints, n_hints, n_labels), "a hint needs a number for every label");
  return {labels.data(), hints.data(), n_hints};
}

}  // namespace crfkit
