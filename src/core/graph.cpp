// graph.cpp: structures, elimination orders, scores of assignments.
#include "graph.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <tuple>

#include "parallel.hpp"

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
        if (s[l] == s[k]) throw Error("factor " + std::to_string(f) + " names variable " + std::to_string(s[k]) + " twice");
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
  Eliminator(const Structure& graph, Heuristic heuristic) : graph_(graph), heuristic_(heuristic), near_(graph.n_variables()) {
    for (i64 f = 0; f < graph.n_factors(); ++f)
      for (const i32 a : graph.scope_of(f))
        for (const i32 b : graph.scope_of(f))
          if (a != b) near_[a].push_back(b);
    for (auto& list : near_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  std::vector<i32> run(double limit) {
    const i64 n = graph_.n_variables();
    // cost, log of the table's size, variable; stale entries are told by their version
    using Entry = std::tuple<i64, double, i32, u32>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    std::vector<u32> version(n, 0);
    const auto push = [&](i32 v) { queue.emplace(cost(v), log_size(v), v, version[v]); };
    for (i64 v = 0; v < n; ++v) push(static_cast<i32>(v));
    std::vector<i32> order;
    std::vector<u8> gone(n, 0), touched(n, 0);
    const double log_limit = std::log(limit) + 1e-9;
    while (!queue.empty()) {
      const auto [c, size, v, seen] = queue.top();
      queue.pop();
      if (gone[v] || seen != version[v]) continue;
      if (size > log_limit) return order;
      gone[v] = 1;
      order.push_back(v);
      const std::vector<i32> rest = std::move(near_[v]);
      bool filled = false;
      for (const i32 a : rest) {
        auto& list = near_[a];
        merged_.clear();
        std::set_union(list.begin(), list.end(), rest.begin(), rest.end(), std::back_inserter(merged_));
        std::erase_if(merged_, [&](i32 b) { return b == a || b == v; });
        filled |= merged_.size() + 1 != list.size();
        list = merged_;
      }
      // costs change for the neighbours, and where edges were filled in, for their neighbours
      std::vector<i32> changed;
      const auto touch = [&](i32 a) {
        if (!touched[a]) changed.push_back(a);
        touched[a] = 1;
      };
      for (const i32 a : rest) {
        touch(a);
        if (filled && heuristic_ == Heuristic::min_fill)
          for (const i32 b : near_[a]) touch(b);
      }
      for (const i32 a : changed) {
        touched[a] = 0;
        ++version[a];
        push(a);
      }
    }
    return order;
  }

 private:
  double log_size(i32 v) const {
    double size = std::log(graph_.card[v]);
    for (const i32 a : near_[v]) size += std::log(graph_.card[a]);
    return size;
  }
  i64 cost(i32 v) const {
    const auto& list = near_[v];
    const i64 d = static_cast<i64>(list.size());
    if (heuristic_ == Heuristic::min_degree || d < 2) return heuristic_ == Heuristic::min_degree ? d : 0;
    i64 missing = 0;  // pairs of neighbours that are no neighbours yet
    for (i64 k = 0; k < d; ++k) {
      const auto& other = near_[list[k]];
      i64 common = 0;
      auto at = other.begin();
      for (i64 l = k + 1; l < d; ++l) {
        at = std::lower_bound(at, other.end(), list[l]);
        if (at == other.end()) break;
        common += *at == list[l];
      }
      missing += d - 1 - k - common;
    }
    return missing;
  }

  const Structure& graph_;
  Heuristic heuristic_;
  std::vector<std::vector<i32>> near_;
  std::vector<i32> merged_;
};

}  // namespace

std::vector<i32> elimination_order(const Structure& graph, Heuristic heuristic, double limit) {
  return Eliminator(graph, heuristic).run(limit);
}

void score_assignments(const Structure& graph, const Scores& scores, const Threads& threads, i64 n, const i32* assignment, double* score) {
  const i64 n_variables = graph.n_variables();
  parallel_for(n, threads.count, threads.poll, [&](i64 s, int) {
    const i32* y = assignment + s * n_variables;
    double* out = score + s * graph.n_components;
    std::fill(out, out + graph.n_components, 0.0);
    for (i64 v = 0; v < n_variables; ++v) out[graph.component[v]] += scores.unary[graph.node_ptr[v] + y[v]];
    for (i64 f = 0; f < graph.n_factors(); ++f) {
      i64 at = 0;
      for (const i32 v : graph.scope_of(f)) at = at * graph.card[v] + y[v];
      out[graph.component[graph.scope_of(f)[0]]] += scores.tables[scores.table_ptr[scores.table_of[f]] + at];
    }
  });
}

}  // namespace crfkit
