// spectral.hpp: vectors of words out of the singular vectors of their neighbours' counts.
#pragma once
#include <vector>

#include "base/parallel.hpp"
#include "words/bigrams.hpp"

namespace crfkit {

struct WordVectors {
  int rank = 0;
  std::vector<float> x;          // left singular vectors [words][rank]
  std::vector<double> singular;  // values, falling [rank]
};

// Of the matrix of words by neighbours, those after and those before, x_wv = sqrt(c_wv) / (left_w right_v)^(1/4): the
// largest by subspace iteration on random vectors.
WordVectors word_vectors(const Bigrams& bigrams, int rank, u64 seed, const Threads& threads);

}  // namespace crfkit
