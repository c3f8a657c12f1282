// factor_graph.cpp: structures, elimination orders, scores of assignments.
#include "graph/factor_graph.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <tuple>

#include "base/parallel.hpp"

namespace crfkit {

Structure::Structure(std::vector<i32> cards, std::vector<i64> ptr, std::vector<i32> vars)
    : card(std::move(cards)), scope_ptr(std::move(ptr)), scope(std::move(vars)) {
  node_ptr.assign(1, 0);
  for (const i32 c : card) {
    if (c < 1) throw Error("a variable needs at least one value");
    node_ptr.push_back(node_ptr.back() + c);
  }
  const i64 n = n_variables();
  std::vector<i32> root(n);
  for (i64 v = 0; v < n; ++v) root[v] = static_cast<i32>(v);
  const auto find = [&](i32 v) {
    while (root[v] != v) v = root[v] = root[root[v]];
    return v;
  };
  out_ptr.assign(1, 0);
  for (i64 f = 0; f < n_factors(); ++f) {
    const auto s = scope_of(f);
    i64 size = 1;
    for (std::size_t k = 0; k < s.size(); ++k) {
      if (s[k] < 0 || s[k] >= n) throw Error("factor " + std::to_string(f) + " names a variable that does not exist");
      for (std::size_t l = 0; l < k; ++l)
        if (s[l] == s[k])
          throw Error("factor " + std::to_string(f) + " names variable " + std::to_string(s[k]) + " twice");
      size *= card[s[k]];
      const i32 a = find(s[0]), b = find(s[k]);
      root[std::max(a, b)] = std::min(a, b);
    }
    out_ptr.push_back(out_ptr.back() + size);
  }
  component.assign(n, -1);
  for (i64 v = 0; v < n; ++v) {
    const i32 r = find(static_cast<i32>(v));
    component[v] = r == v ? static_cast<i32>(n_components++) : component[r];
  }
}

namespace {

// The graph of variables while it is being eliminated: sorted neighbour lists.
class Eliminator {
 public:
  Eliminator(const Structure& graph, Heuristic heuristic)
      : graph_(graph),
        fill_(heuristic == Heuristic::min_fill),
        near_(graph.n_variables()),
        log_card_(near_.size()),
        cost_(near_.size()),
        log_size_(near_.size()),
        version_(near_.size(), 0),
        in_clique_(near_.size(), 0),
        marked_(near_.size(), 0),
        touched_(near_.size(), 0) {
    std::transform(graph.card.begin(), graph.card.end(), log_card_.begin(), [](i32 card) { return std::log(card); });
    for (i64 f = 0; f < graph.n_factors(); ++f)
      for (const i32 a : graph.scope_of(f))
        for (const i32 b : graph.scope_of(f))
          if (a != b) near_[a].push_back(b);
    for (auto& list : near_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  std::vector<i32> run(double limit, i32& beyond) {
    const i64 n = graph_.n_variables();
    for (i32 v = 0; v < n; ++v) weigh(v);
    std::vector<i32> order;
    std::vector<u8> gone(n, 0);
    const double log_limit = std::log(limit) + 1e-9;
    while (!queue_.empty()) {
      const auto [c, size, v, seen] = queue_.top();
      queue_.pop();
      if (gone[v] || seen != version_[v]) continue;
      if (size > log_limit) {
        beyond = v;
        return order;
      }
      gone[v] = 1;
      order.push_back(v);
      eliminate(v);
    }
    return order;
  }

 private:
  // The neighbours of v become a clique, and v goes.
  void eliminate(i32 v) {
    const std::vector<i32> clique = std::move(near_[v]);
    for (const i32 a : clique) in_clique_[a] = 1;
    changed_.clear();
    for (const i32 a : clique) {
      auto& list = near_[a];
      if (fill_) close_pairs(a, clique);
      merged_.clear();
      std::set_union(list.begin(), list.end(), clique.begin(), clique.end(), std::back_inserter(merged_));
      std::erase_if(merged_, [&](i32 b) { return b == a || b == v; });
      list = merged_;
    }
    for (const i32 b : changed_) {
      touched_[b] = 0;
      push(b);
    }
    for (const i32 a : clique) weigh(a);
    for (const i32 a : clique) in_clique_[a] = 0;
  }

  // Those around the clique that see a and one of its new neighbours miss one pair less. Each pair is looked at once,
  // from its end that comes first, when both ends' neighbours outside the clique are still all there.
  void close_pairs(i32 a, const std::vector<i32>& clique) {
    const auto& list = near_[a];
    for (const i32 b : list) marked_[b] = 1;
    for (const i32 y : clique) {
      if (y <= a || marked_[y]) continue;
      for (const i32 b : near_[y]) {
        if (!marked_[b] || in_clique_[b]) continue;
        --cost_[b];
        if (!touched_[b]) changed_.push_back(b);
        touched_[b] = 1;
      }
    }
    for (const i32 b : list) marked_[b] = 0;
  }

  void weigh(i32 v) {
    double size = log_card_[v];
    for (const i32 a : near_[v]) size += log_card_[a];
    log_size_[v] = size;
    cost_[v] = fill_ ? missing_pairs(v) : static_cast<i64>(near_[v].size());
    push(v);
  }

  void push(i32 v) { queue_.emplace(cost_[v], log_size_[v], v, ++version_[v]); }

  // Pairs of neighbours that are no neighbours yet; two that are both in the clique are.
  i64 missing_pairs(i32 v) {
    const auto& list = near_[v];
    i64 inside = 0;
    for (const i32 a : list) {
      marked_[a] = 1;
      inside += in_clique_[a];
    }
    const i64 outside = static_cast<i64>(list.size()) - inside;
    i64 twice = 0;
    for (const i32 a : list) {
      if (in_clique_[a]) continue;
      i64 common_inside = 0, common = 0;
      for (const i32 b : near_[a]) {
        common += marked_[b];
        common_inside += marked_[b] & in_clique_[b];
      }
      twice += 2 * (inside - common_inside) + (outside - 1 - (common - common_inside));
    }
    for (const i32 a : list) marked_[a] = 0;
    return twice / 2;
  }

  // cost, log of the table's size, variable; stale entries are told by their version
  using Entry = std::tuple<i64, double, i32, u32>;
  const Structure& graph_;
  bool fill_;
  std::vector<std::vector<i32>> near_;
  std::vector<double> log_card_;
  std::vector<i64> cost_;
  std::vector<double> log_size_;
  std::vector<u32> version_;
  std::vector<u8> in_clique_, marked_, touched_;
  std::vector<i32> merged_, changed_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

std::vector<i32> elimination_order(const Structure& graph, Heuristic heuristic, double limit, i32& beyond) {
  beyond = -1;
  return Eliminator(graph, heuristic).run(limit, beyond);
}

void score_assignments(const Structure& graph, const Scores& scores, const Threads& threads, i64 n,
                       const i32* assignment, double* score) {
  const i64 n_variables = graph.n_variables();
  parallel_for(n, threads.count, threads.poll, [&](i64 s, int) {
    const i32* y = assignment + s * n_variables;
    double* out = score + s * graph.n_components;
    std::fill(out, out + graph.n_components, 0.0);
    for (i64 v = 0; v < n_variables; ++v) out[graph.component[v]] += scores.unary[graph.node_ptr[v] + y[v]];
    for (i64 f = 0; f < graph.n_factors(); ++f) {
      i64 at = 0;
      for (const i32 v : graph.scope_of(f)) at = at * graph.card[v] + y[v];
      out[graph.component[graph.scope_of(f)[0]]] += scores.table(f)[at];
    }
  });
}

}  // namespace crfkit
