// delta.hpp: a sequence's share of a gradient, before it is spread over the weights.
#pragma once
#include <limits>
#include <vector>

#include "online/online.hpp"

namespace crfkit::CRFKIT_ISA {

// A derivative in magnitude up to which single precision could not see what it changes: it is left out.
template <class T>
inline constexpr T kLeastSlope = std::numeric_limits<T>::epsilon();

template <class T>
struct Delta {
  i64 seq = 0;
  int steps = 0;
  std::vector<u8> active;  // tokens that change anything
  bool sparse = false;     // within beams
  // of all labels
  Buffer<T> nodes;  // [steps][stride]
  Buffer<T> pairs;  // [labels][stride], zero where there is no weight
  Buffer<T> edges;  // [steps - 1][labels][stride], where transitions look at the input
  // of the labels in beams
  struct Entry {
    u32 at;  // a label; or the place of a transition in [labels][stride]
    T slope;
  };
  std::vector<u32> first;  // slot of each step  [steps + 1]
  std::vector<Entry> slots;
  std::vector<Entry> links;
  std::vector<u32> first_edge;     // edge slope of each transition  [steps]
  std::vector<Entry> edge_slopes;  // where transitions look at the input
};

}  // namespace crfkit::CRFKIT_ISA
