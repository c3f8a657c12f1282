// best.hpp: the best segmentations of one sequence, and segmentations drawn from their distribution.
#pragma once
#include "segment/log_lattice.hpp"

namespace crfkit {

// Scores of the best segmentations of the tokens up to t whose last segment has label j; and g, of those before t, with
// what a segment j that begins at t adds   [steps][labels]
struct BestScores {
  std::vector<double> v, g;
};
void best_forward(const SegmentTables& tables, const SegmentScores& x, BestScores& out);

// Calls f(k, score) for all lengths k that a segment of label j that ends with t may have; g: what leads to where it
// begins  [steps][labels]
template <class F>
void each_length(const SegmentTables& tables, const SegmentScores& x, const std::vector<double>& g, i64 t, i64 j, F f) {
  const i64 n = tables.n_labels;
  double run = x.end[t * n + j];
  for (i64 k = 1; k <= tables.longest(t + 1); ++k) {
    const i64 first = t - k + 1;
    run += x.u[first * n + j];
    const double* item = x.item(t, k, n);
    f(k, g[first * n + j] + run + tables.length(k, j) + (item ? item[j] : 0.0));
    if (!x.may_cross(first)) break;
  }
}

std::vector<Segmentation> best_of(const SegmentTables& tables, const SegmentScores& x, i64 k);

}  // namespace crfkit
