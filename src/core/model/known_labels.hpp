// known_labels.hpp: what is known of the labels of tokens, from nothing to all.
//
// A hint is a weight q of every label: the likelihood of what is known sums p(y | x) times the product of the tokens'
// q(y_t). A set of possible labels has weights 0 and 1, a soft label those of a distribution.
#pragma once
#include <algorithm>
#include <limits>

#include "base/base.hpp"

namespace crfkit {

constexpr i32 kNothingKnown = -1;

struct KnownLabels {
  const i32* label = nullptr;     // a label, kNothingKnown, or kNothingKnown - 1 - k for hint k   [tokens]
  const double* hints = nullptr;  // log q                                                         [hints][labels]
  i64 n_hints = 0;
};

// Adds what is known of a token, coded as above, to the scores of its labels.
template <class T>
void restrict_row(i32 label, const T* hints, i64 n_labels, T* scores) {
  if (label >= 0) {
    const T score = scores[label];
    std::fill_n(scores, n_labels, -std::numeric_limits<T>::infinity());
    scores[label] = score;
  } else if (label != kNothingKnown) {
    const T* hint = hints + (i64{kNothingKnown} - 1 - label) * n_labels;
    for (i64 j = 0; j < n_labels; ++j) scores[j] += hint[j];
  }
}

}  // namespace crfkit
