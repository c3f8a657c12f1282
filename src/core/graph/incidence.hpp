// incidence.hpp: the factors around each variable of a graph.
#pragma once
#include <numeric>

#include "graph/factor_graph.hpp"

namespace crfkit {

// Calls visit(place in the table, values of the variables) for every entry of a factor.
template <class Visit>
void each_entry(const Structure& g, i64 f, Visit visit) {
  const auto scope = g.scope_of(f);
  std::vector<i32> index(scope.size(), 0);
  for (i64 k = 0; k < g.table_size(f); ++k) {
    visit(k, index.data());
    for (std::size_t d = scope.size(); d-- > 0;) {
      if (++index[d] < g.card[scope[d]]) break;
      index[d] = 0;
    }
  }
}

// Which factors, and which places in their scopes, each variable is in; variables of each component.
struct Incidence {
  std::vector<i64> ptr;  // [V + 1]
  std::vector<i64> factor, place;
  std::vector<i64> number;  // place in `scope` -> its number among `place`
  std::vector<std::vector<i32>> members;
  std::vector<i64> message;  // place in `scope` -> first entry of the message to that variable
  i64 entries = 0;

  explicit Incidence(const Structure& g) : ptr(g.n_variables() + 1, 0), members(g.n_components) {
    for (const i32 v : g.scope) ++ptr[v + 1];
    std::partial_sum(ptr.begin(), ptr.end(), ptr.begin());
    factor.resize(g.scope.size());
    place.resize(g.scope.size());
    number.resize(g.scope.size());
    std::vector<i64> next(ptr.begin(), ptr.end() - 1);
    message.reserve(g.scope.size());
    for (i64 f = 0; f < g.n_factors(); ++f)
      for (i64 s = g.scope_ptr[f]; s < g.scope_ptr[f + 1]; ++s) {
        const i32 v = g.scope[s];
        factor[next[v]] = f;
        place[next[v]] = s;
        number[s] = next[v]++;
        message.push_back(entries);
        entries += g.card[v];
      }
    for (i64 v = 0; v < g.n_variables(); ++v) members[g.component[v]].push_back(static_cast<i32>(v));
  }
};

}  // namespace crfkit
