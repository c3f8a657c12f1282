// best_paths.hpp: the k best paths of a sequence, read off the scores of the best paths to each label.
#pragma once
#include <algorithm>
#include <limits>
#include <queue>
#include <vector>

#include "chain/chain.hpp"

namespace crfkit {

// Goes back from the last step, best first. With v[t][i] the score of the best path to label i at t, a path that has
// label j at t + 1 loses, by having i at t,
//
//   max_l (v[t][l] + a[l][j]) - (v[t][i] + a[i][j])
//
// and is worse than the best path by the sum of what it loses. v: [tokens][labels], each row up to a constant. Among
// equals, paths come in the order of their last labels, then of those before.
inline void best_paths(const ChainInput<double>& in, i64 s, i64 first_edge, i64 k, const double* v, Paths& out) {
  struct Part {
    double loss;
    i64 t, next;  // next: the part that this one was put in front of
    i32 label;
  };
  const i64 n = in.n_labels, begin = in.offsets[s], steps = in.offsets[s + 1] - begin;
  if (steps == 0) return out.score.push_back(0.0);
  const auto pair = [&](i64 t, i64 i, i64 j) {
    return in.pairwise[((in.per_step ? first_edge + t : 0) * n + i) * n + j];
  };
  std::vector<Part> parts;
  const auto later = [&](i64 a, i64 b) {
    const Part &x = parts[a], &y = parts[b];
    return x.loss != y.loss ? x.loss > y.loss : x.t != y.t ? x.t > y.t : a > b;
  };
  std::priority_queue<i64, std::vector<i64>, decltype(later)> open(later);
  std::priority_queue<double> losses;  // of the k best paths that are known of
  std::vector<double> scores(n);
  const auto extend = [&](i64 t, i64 next) {  // by all labels of step t
    for (i64 i = 0; i < n; ++i) scores[i] = v[(begin + t) * n + i] + (next < 0 ? 0.0 : pair(t, i, parts[next].label));
    const i64 best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    for (i64 i = 0; i < n; ++i) {
      if (!(scores[i] > -std::numeric_limits<double>::infinity())) continue;
      const double loss = (next < 0 ? 0.0 : parts[next].loss) + (scores[best] - scores[i]);
      const bool full = static_cast<i64>(losses.size()) >= k;
      if (full && loss > losses.top()) continue;
      if (next < 0 || i != best) losses.push(loss);
      if (full && (next < 0 || i != best)) losses.pop();
      parts.push_back({loss, t, next, static_cast<i32>(i)});
      open.push(static_cast<i64>(parts.size()) - 1);
    }
  };
  for (extend(steps - 1, -1); !open.empty() && static_cast<i64>(out.score.size()) < k;) {
    const i64 at = open.top();
    open.pop();
    if (parts[at].t > 0) {
      extend(parts[at].t - 1, at);
      continue;
    }
    double score = 0;
    for (i64 p = at; p >= 0; p = parts[p].next) {
      const auto& [loss, t, next, label] = parts[p];
      out.path.push_back(label);
      score += in.unary[(begin + t) * n + label] + (next < 0 ? 0.0 : pair(t, label, parts[next].label));
    }
    out.score.push_back(score);
  }
}

}  // namespace crfkit
