// brown.hpp: Brown's classes of words: a tree of merges, each losing least of what neighbours tell about each other.
#pragma once
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "words/bigrams.hpp"

namespace crfkit {

struct BrownTree {
  std::vector<u32> leaf;                     // class of each word, below the number of leaves
  std::vector<std::pair<u32, u32>> merges;   // of leaves, then of earlier merges, numbered after the leaves
  std::vector<double> losses;                // mutual information that each merge lost, in nats, times the tokens
  std::vector<std::pair<u32, u32>> choices;  // while words came in: the two of n_classes + 1 that were merged, as their
                                             // first words
};

// Liang's window: the n_classes first words are classes; every further word becomes one, and the two are merged whose
// merging loses least; in the end all are, one pair after another. Words not yet in do not count.
BrownTree brown_tree(const Bigrams& bigrams, int n_classes, const Threads& threads);

}  // namespace crfkit
