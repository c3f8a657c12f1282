// lbfgs_memory.hpp: the memory of L-BFGS, and what it does to whole vectors between two evaluations.
//
// The inverse Hessian is known through the last m steps s and gradient changes y. The direction -H v is a combination
// of v, the s and the y, whose coefficients the two-loop recursion finds from their inner products alone; so one
// pass over the memory takes the products that are new and one makes the combination, instead of 4m passes. Millions of
// weights do not fit a cache, and each pass does all it can with what it has read.
#pragma once
#include <vector>

#include "base/base.hpp"
#include "base/parallel.hpp"

namespace crfkit {

// Inner product, in chunks whose order is fixed.
double dot(const double* a, const double* b, i64 n, const Threads& threads = {});

// A point of the search: the objective is f + c1 |x|, g the gradient of f. With c1, v is where the subgradient of least
// norm is written (OWL-QN's pseudo-gradient); without, null: it is g.
struct SearchPoint {
  const double *x = nullptr, *g = nullptr;
  double c1 = 0;
  double* v = nullptr;
  const double* steepest() const { return v ? v : g; }
};

// What a look at a point tells.
struct Norms {
  double v2 = 0, x2 = 0;  // squared norms of the steepest ascent and of x
  i64 active = 0;         // entries of x that are not zero
};

// to = x + step d, where v is the steepest ascent at x. In an orthant (OWL-QN), that of x, or of -v where x is zero, d
// is zero where it would not go down, and to where it would leave.
struct Move {
  const double *x = nullptr, *v = nullptr;
  double* d = nullptr;
  double step = 1;
  double* to = nullptr;
  bool in_orthant = false;
};
struct Moved {
  double slope = 0;           // v.d
  double ascent = 0, l1 = 0;  // in an orthant: v.(to - x), and the sum of |to|
};
Moved make_move(const Move& move, i64 n, const Threads& threads);

class Memory {
 public:
  Memory(i64 size, int capacity);
  // Remembers s = x - x_old and y = g - g_old, in place of the oldest pair if full. Refuses (false) a pair without
  // positive curvature s.y, which would make H indefinite.
  bool push(const double* x, const double* x_old, const double* g, const double* g_old, const Threads& threads);
  // Looks at a point, whose direction can be asked for then.
  Norms look(const SearchPoint& point, const Threads& threads);
  // Both in one pass: remembers the way from the old point to the new one, and looks at it.
  Norms advance(const SearchPoint& point, const double* x_old, const double* g_old, const Threads& threads);
  // d = -H v of the point looked at last, without memory -v, and a move along it.
  Moved direction(const Move& move, const Threads& threads);
  void clear() {
    order_.clear();
    with_v_.clear();
  }
  // The steps and changes, pair by pair, oldest first: [2 count][size]. Pushed again they make the same memory.
  std::vector<float> pairs() const;
  int count() const { return static_cast<int>(order_.size()); }
  i64 size() const { return size_; }

 private:
  struct Pair;
  bool sweep(const Pair* fresh, const SearchPoint* point, Norms* norms, const Threads& threads);
  std::vector<int> rows() const;
  std::vector<double> coefficients(double& c_v);
  float* step(int slot) { return pairs_.data() + 2 * slot * size_; }
  float* change(int slot) { return pairs_.data() + (2 * slot + 1) * size_; }
  double& product(int a, int b) { return products_[a * (2 * slots_) + b]; }

  i64 size_;
  int capacity_, slots_;
  std::vector<int> order_;        // slots in use, oldest first
  Buffer<float> pairs_;           // slot k: step 2k, change 2k + 1     [2 slots][size]
  std::vector<double> products_;  // inner products of the rows of pairs_
  std::vector<double> with_v_;    // and of v, of the point looked at last, with the rows in use, in their order
};

}  // namespace crfkit
