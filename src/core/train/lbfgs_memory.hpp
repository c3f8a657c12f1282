// lbfgs_memory.hpp: the memory of L-BFGS.
//
// The inverse Hessian is known through the last m steps s and gradient changes y. The direction -H v is a combination
// of v, the s and the y, whose coefficients the two-loop recursion finds from their inner products alone; so one
// pass over the memory takes the products that are new and one makes the combination, instead of 4m passes.
#pragma once
#include <vector>

#include "base/base.hpp"
#include "base/parallel.hpp"

namespace crfkit {

// Inner product, in chunks whose order is fixed.
double dot(const double* a, const double* b, i64 n);

class Memory {
 public:
  Memory(i64 size, int capacity);
  // Remembers s = x - x_old and y = g - g_old, in place of the oldest pair if full. Refuses (false) a pair without
  // positive curvature s.y, which would make H indefinite.
  bool push(const double* x, const double* x_old, const double* g, const double* g_old, const Threads& threads);
  // d = -H v; without memory d = -v.
  void direction(const double* v, double* d, const Threads& threads);
  void clear() {
    order_.clear();
    fresh_ = -1;
  }
  // The steps and changes, pair by pair, oldest first: [2 count][size]. Pushed again they make the same memory.
  std::vector<float> pairs() const;
  int count() const { return static_cast<int>(order_.size()); }
  i64 size() const { return size_; }

 private:
  std::vector<int> rows() const;
  std::vector<double> take_products(const double* v, const Threads& threads);
  float* step(int slot) { return pairs_.data() + 2 * slot * size_; }
  float* change(int slot) { return pairs_.data() + (2 * slot + 1) * size_; }
  double& product(int a, int b) { return products_[a * (2 * slots_) + b]; }

  i64 size_;
  int capacity_, slots_;
  std::vector<int> order_;        // slots in use, oldest first
  int fresh_ = -1;                // slot whose products with the others are not yet known, or -1
  Buffer<float> pairs_;           // slot k: step 2k, change 2k + 1     [2 slots][size]
  std::vector<double> products_;  // inner products of the rows of pairs_
};

}  // namespace crfkit
