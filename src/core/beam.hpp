// beam.hpp: beams of labels, what they are chosen by and what inference over them gives.
#pragma once
#include <cmath>
#include <vector>

#include "base.hpp"

namespace crfkit {

// A rule that picks labels by their belief, unnormalised. The chosen ones are always the largest.
struct Criterion {
  enum class Kind : u8 {
    min_divergence,  // the fewest whose share of the belief is at least exp(-amount), at least `size` of them
    fixed_size,      // `size` of them
    threshold,       // those within exp(-amount) of the largest
  };
  Kind kind = Kind::fixed_size;
  double amount = 0;
  int size = 1;
};

struct BeamRule {
  Criterion criterion;
  const i32* keep = nullptr;  // a label that each token keeps, -1 for none  [tokens], or null
  enum class Form : u8 {
    frozen,    // beams by the forward pass, then exact inside of them
    smoothed,  // a backward pass picks afresh, then exact inside of them
    paper,     // the backward pass picks afresh and gives the marginals of each step
  };
  Form form = Form::frozen;
  bool lenient = false;       // labels whose belief underflows need not be found
};

// Beams of one sequence, and what is known inside of them.
struct BeamResult {
  std::vector<u16> labels;       // of all steps, ascending within a step
  std::vector<std::size_t> ptr;  // first label of each step                   [steps + 1]
  std::vector<double> nodes;     // probabilities of the labels
  std::vector<std::size_t> edge_ptr;
  std::vector<double> edges;     // probabilities of label pairs, beam by beam, step after step
  std::vector<double> divergence;  // -log of the share of belief kept         [steps]
  double log_mass = 0;           // of all paths inside of the beams

  void start(int steps) {
    labels.clear();
    nodes.clear();
    edge_ptr.clear();
    edges.clear();
    divergence.clear();
    divergence.reserve(steps);
    ptr.assign(1, 0);
    log_mass = 0;
  }
  void end_step(double share) {
    ptr.push_back(labels.size());
    divergence.push_back(share > 0 ? -std::log(share) : 0.0);
  }
  void start_edges() {
    edge_ptr.assign(1, 0);
    for (std::size_t t = 0; t + 2 < ptr.size(); ++t) edge_ptr.push_back(edge_ptr.back() + size(static_cast<int>(t)) * size(static_cast<int>(t) + 1));
    edges.assign(edge_ptr.back(), 0.0);
  }
  std::size_t size(int t) const { return ptr[t + 1] - ptr[t]; }
  u16 label(int t, std::size_t k) const { return labels[ptr[t] + k]; }
};

// A block of data with the beams it was given: only these labels' weights and transitions, numbered from zero. A slot is
// a label of a token's beam.
//
// Where the beam is the gold label alone nothing is left to learn: whatever the token adds to the mass it adds to the
// gold path. Such tokens cut a sequence into chains that know nothing of each other; a chain is the tokens between two
// of them, and those two without their weights.
template <class T>
struct BeamBlock {
  struct Chain {
    u32 token, steps;        // first token, and how many
    bool start, end;         // whether the sequence begins, and ends, with it
    double weight;           // of the sequence
  };
  std::vector<Chain> chains;
  std::vector<u16> labels;   // local label -> label
  std::vector<u32> weight;   // local weight -> state weight, relative, ascending
  std::vector<u32> first;    // token -> its first slot           [tokens of the chains + 1]
  std::vector<u16> gold;     // token -> its gold label's slot, relative
  std::vector<u16> label;    // slot -> local label
  std::vector<u32> ptr;      // slot -> its first entry           [slots + 1]
  std::vector<u32> id;       // entries: local weight
  std::vector<T> value;      // of the entries; empty: all one
  i64 n_tokens = 0, n_labels = 0, largest = 0;  // of all tokens, for reports
};

}  // namespace crfkit
