// k_means.hpp: groups of points, and a tree of groups.
#pragma once
#include <utility>
#include <vector>

#include "base/parallel.hpp"

namespace crfkit {

struct Groups {
  std::vector<u32> group;      // of each point
  std::vector<float> centres;  // [k][dimensions]
};

// k-means from k-means++: rows of x, [n][dimensions], to the nearest of k centres. No group is empty if there are as
// many different points.
Groups k_means(const float* x, i64 n, int dimensions, int k, int iterations, u64 seed, const Threads& threads);

// Ward's tree of weighted points: pairs whose joining raises the sum of squares least, one after another; points, then
// pairs, numbered from zero.
std::vector<std::pair<u32, u32>> ward_tree(const float* x, const double* weight, i64 n, int dimensions);

}  // namespace crfkit
