// dominance.hpp: labels that cannot be on a best path.
//
// With v[l] the score of the best path that ends in label l, l is of no use if whatever comes next would rather come
// from some i:
//
//   v[l] + a[l][m] < v[i] + a[i][m] for all m,   which is so where   v[l] + max_m a[l][m] < v[i] + min_m a[i][m]
//
// The largest right side tells of every label in one comparison. Labels are left out only where they are worse by more
// than rounding errors: the path found is the same, number by number.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "chain/transitions.hpp"

namespace crfkit {

template <class T>
struct Dominance {
  Buffer<T> highest, lowest;  // transition out of each label  [stride], zero in the padding
  T noise = 0;                // rounding errors of sums of transitions

  explicit Dominance(const Transitions<T>& a) : highest(a.stride), lowest(a.stride) {
    std::fill_n(highest.data(), a.stride, T(0));
    std::fill_n(lowest.data(), a.stride, T(0));
    T largest = 0;
    for (int i = 0; i < a.n_labels; ++i) {
      const T* row = a.score.data() + static_cast<std::size_t>(i) * a.stride;
      const auto [low, high] = std::minmax_element(row, row + a.n_labels);
      lowest[i] = *low;
      highest[i] = *high;
      for (T x : {*low, *high})
        if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    }
    noise = 16 * std::numeric_limits<T>::epsilon() * largest;
  }
};

}  // namespace crfkit
