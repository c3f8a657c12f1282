// random.hpp: random numbers that are the same on every machine.
#pragma once
#include <cmath>

#include "base/base.hpp"

namespace crfkit {

class Random {
 public:
  explicit Random(u64 seed) : state_(seed) {}
  u64 next() {  // splitmix
    u64 x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  // From 0 up to, and without, 1.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double normal() {
    double sum = 0;  // of twelve uniform ones: near enough, and without logarithms of the system
    for (int k = 0; k < 12; ++k) sum += uniform();
    return sum - 6;
  }

 private:
  u64 state_;
};

}  // namespace crfkit
