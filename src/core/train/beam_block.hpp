// beam_block.hpp: a block of data cut down to the beams of its tokens.
#pragma once
#include <algorithm>
#include <vector>

#include "beam/criteria.hpp"
#include "model/features.hpp"

namespace crfkit {

// Labels of many tokens.
struct Beams {
  std::vector<u16> labels;
  std::vector<u32> ptr = {0};
  i64 largest = 0;

  i64 tokens() const { return static_cast<i64>(ptr.size()) - 1; }
  void add(const u16* begin, std::size_t n) {
    labels.insert(labels.end(), begin, begin + n);
    ptr.push_back(static_cast<u32>(labels.size()));
    largest = std::max(largest, static_cast<i64>(n));
  }
};

// A block of data with the beams it was given: only these labels' weights and transitions, numbered from zero. A slot
// is a label of a token's beam.
//
// Where the beam is the gold label alone nothing is left to learn: whatever the token adds to the mass it adds to the
// gold path. Such tokens cut a sequence into chains that know nothing of each other; a chain is the tokens between two
// of them, and those two without their weights.
template <class T>
struct BeamBlock {
  struct Chain {
    u32 token, steps;  // first token, and how many
    bool start, end;   // whether the sequence begins, and ends, with it
    double weight;     // of the sequence
  };
  std::vector<Chain> chains;
  std::vector<u16> labels;  // local label -> label
  std::vector<u32> weight;  // local weight -> state weight, relative, ascending
  std::vector<u32> first;   // token -> its first slot           [tokens of the chains + 1]
  std::vector<u16> gold;    // token -> its gold label's slot, relative
  std::vector<u16> label;   // slot -> local label
  std::vector<u32> ptr;     // slot -> its first entry           [slots + 1]
  std::vector<u32> id;      // entries: local weight
  std::vector<T> value;     // of the entries; empty: all one
  Beams beams;              // of all tokens, sequence after sequence
  i64 n_fresh = 0;          // labels in the beams that the criterion alone would give
};

// Lays out a block's beams, one sequence after another.
template <class T>
class BeamBuilder {
 public:
  // group: the block's state attributes; before: beams whose labels stay, or none
  BeamBuilder(const Family& family, int n_labels, const Group<T>& group, const Beams& before, BeamBlock<T>& out);
  // row(t): where the block has token t of the sequence; gold [steps]
  void add(const BeamResult& chosen, const i32* gold, double weight, FunctionRef<i64(int)> row);
  // Numbers the weights in use by their order in the model.
  void finish();

 private:
  void add_token(i64 row, const u16* labels, std::size_t n, int gold);

  struct Entry {
    u32 slot, flat, entry;
  };
  const Family& family_;
  const Group<T>& group_;
  const Beams& before_;
  BeamBlock<T>& out_;
  // The block's weights are numbered: dense rows in full, then runs.
  std::size_t flat_runs_;
  std::vector<u32> row_weight_;  // of dense rows    [rows][width]
  std::vector<u8> used_;
  std::vector<u32> local_;    // label -> local label
  std::vector<i32> slot_of_;  // label -> slot of the token at hand
  std::vector<Entry> entries_;
  std::vector<u32> counts_;  // entries before each slot
  std::vector<u16> joined_;
};

}  // namespace crfkit
