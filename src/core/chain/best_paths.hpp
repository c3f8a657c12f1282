// best_paths.hpp: the k best paths through a lattice.
#pragma once
#include <limits>
#include <queue>

#include "chain/chain.hpp"

namespace crfkit {

// The k best paths through a lattice of count(t) nodes at step t, with scores unary(t, j) and pairwise(t, i, j) of i at
// t before j at t + 1. out.path holds numbers of nodes.
//
// The k best ways to each node of a step are kept, each the score, the node before and its rank there. The ways into j
// are merged from the sorted lists of all nodes i, whose heads wait in a heap.
template <class Count, class Unary, class Pairwise>
void best_paths(i64 steps, i64 k, Count count, Unary unary, Pairwise pairwise, Paths& out) {
  struct Way {
    double score;
    i32 node, rank;
  };
  struct Step {
    std::vector<Way> ways;
    std::vector<std::size_t> first = {0};  // of each node's, and the end
    i32 size() const { return static_cast<i32>(first.size()) - 1; }
    std::size_t ways_to(i32 i) const { return first[i + 1] - first[i]; }
    const Way& way(i32 i, i32 rank) const { return ways[first[i] + rank]; }
  };
  const auto worse = [](const Way& a, const Way& b) {
    return a.score < b.score || (a.score == b.score && (a.node > b.node || (a.node == b.node && a.rank > b.rank)));
  };
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (steps == 0) return out.score.push_back(0.0);
  // Appends the k best of the lists in `from`, adding extra(i) to list i.
  const auto merge = [&](const Step& from, auto extra, std::vector<Way>& to) {
    std::priority_queue<Way, std::vector<Way>, decltype(worse)> heap(worse);
    Way best = {-inf, -1, 0};
    for (i32 i = 0; i < from.size(); ++i) {
      if (from.ways_to(i) == 0) continue;
      const Way way = {from.way(i, 0).score + extra(i), i, 0};
      if (way.score > best.score) best = way;
      if (k > 1 && way.score > -inf) heap.push(way);
    }
    if (k == 1 && best.node >= 0) to.push_back(best);
    for (i64 found = 0; found < k && !heap.empty(); ++found) {
      const Way way = heap.top();
      heap.pop();
      to.push_back(way);
      if (way.rank + 1u < from.ways_to(way.node))
        heap.push({from.way(way.node, way.rank + 1).score + extra(way.node), way.node, way.rank + 1});
    }
  };
  std::vector<Step> best(steps);
  for (i64 t = 0; t < steps; ++t) {  // recursion: viterbi
    for (i64 j = 0; j < count(t); ++j) {
      const double u = unary(t, j);
      if (t == 0 && u > -inf) best[t].ways.push_back({u, -1, 0});
      if (t > 0 && u > -inf) merge(best[t - 1], [&](i32 i) { return pairwise(t - 1, i, j) + u; }, best[t].ways);
      best[t].first.push_back(best[t].ways.size());
    }
  }
  std::vector<Way> ends;
  merge(best[steps - 1], [](i32) { return 0.0; }, ends);
  out.path.resize(ends.size() * steps);
  i32* path = out.path.data();
  for (Way at : ends) {
    out.score.push_back(at.score);
    for (i64 t = steps - 1; t >= 0; --t) {
      path[t] = at.node;
      at = best[t].way(at.node, at.rank);
    }
    path += steps;
  }
}

}  // namespace crfkit
