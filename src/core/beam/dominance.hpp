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

  static constexpr int kManyLabels = 128;  // fewer are not worth asking which of them are dominated

  Dominance(i64 n_labels, i64 stride) : highest(stride), lowest(stride), n_labels_(n_labels) {
    std::fill_n(highest.data(), stride, T(0));
    std::fill_n(lowest.data(), stride, T(0));
  }
  explicit Dominance(const Transitions<T>& a) : Dominance(a.n_labels, a.stride) {
    for (int i = 0; i < a.n_labels; ++i) set(i, a.score.data() + static_cast<std::size_t>(i) * a.stride);
    measure();
  }
  // The transitions out of label i  [labels]
  void set(i64 i, const T* row) {
    const auto [low, high] = std::minmax_element(row, row + n_labels_);
    lowest[i] = *low;
    highest[i] = *high;
  }
  // To be called after set().
  void measure() {
    T largest = 0;
    for (i64 i = 0; i < n_labels_; ++i)
      for (T x : {lowest[i], highest[i]})
        if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    noise = 16 * std::numeric_limits<T>::epsilon() * largest;
  }

 private:
  i64 n_labels_;
};

}  // namespace crfkit
