// mean_field.cpp: naive mean field, and assignments improved one variable at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.hpp"
#include "graph/incidence.hpp"
#include "graph/table_sums.hpp"

namespace crfkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

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

}  // namespace

PassingReport mean_field(const Structure& g, const Scores& scores, double tol, i64 max_iter, const Threads& threads,
                         const Beliefs& beliefs) {
  const auto& [nodes, factors, node_terms, factor_terms] = beliefs;
  const Incidence at(g);
  std::vector<PassingReport> reports(g.n_components);
  const auto theta = [&](i64 f) { return scores.tables + scores.table_ptr[scores.table_of[f]]; };
  parallel_for(g.n_components, threads.count, threads.poll, [&](i64 component, int) {
    PassingReport& report = reports[component];
    std::vector<double> score, conflict;
    const auto expect = [&](i64 f, i64 slot) {  // adds E[theta | value at slot], and what falls on forbidden entries
      const auto scope = g.scope_of(f);
      const double* x = theta(f);
      if (scope.size() == 2) {
        const i64 n = g.card[scope[slot]], m = g.card[scope[1 - slot]];
        const double* q = nodes + g.node_ptr[scope[1 - slot]];
        for (i64 i = 0; i < n; ++i)
          for (i64 j = 0; j < m; ++j) {
            if (q[j] <= 0) continue;
            const double value = x[slot == 0 ? i * m + j : j * n + i];
            (value > -kInf ? score : conflict)[i] += value > -kInf ? q[j] * value : q[j];
          }
        return;
      }
      each_entry(g, f, [&](i64 k, const i32* y) {
        double p = 1;
        for (std::size_t d = 0; d < scope.size(); ++d)
          if (static_cast<i64>(d) != slot) p *= nodes[g.node_ptr[scope[d]] + y[d]];
        if (p > 0) (x[k] > -kInf ? score : conflict)[y[slot]] += x[k] > -kInf ? p * x[k] : p;
      });
    };
    report.converged = false;
    while (report.iterations < max_iter && !report.converged) {
      report.residual = 0;
      for (const i32 v : at.members[component]) {
        const i64 n = g.card[v];
        double* q = nodes + g.node_ptr[v];
        score.assign(scores.unary + g.node_ptr[v], scores.unary + g.node_ptr[v] + n);
        conflict.assign(n, 0.0);
        for (i64 e = at.ptr[v]; e < at.ptr[v + 1]; ++e) expect(at.factor[e], at.place[e] - g.scope_ptr[at.factor[e]]);
        // least conflict first: without any, all values that have none
        double least = kInf, top = -kInf, sum = 0;
        for (i64 i = 0; i < n; ++i)
          if (score[i] > -kInf) least = std::min(least, conflict[i]);
        if (least == kInf) continue;  // nothing is left, as the unary scores say: all of q is zero
        for (i64 i = 0; i < n; ++i) {
          if (conflict[i] > least) score[i] = -kInf;
          top = std::max(top, score[i]);
        }
        for (i64 i = 0; i < n; ++i) sum += score[i] = std::exp(score[i] - top);
        for (i64 i = 0; i < n; ++i) {
          const double fresh = score[i] / sum;
          report.residual = std::max(report.residual, std::abs(fresh - q[i]));
          q[i] = fresh;
        }
        ++report.messages;
      }
      ++report.iterations;
      report.converged = report.residual <= tol;
    }
    for (const i32 v : at.members[component]) {
      const double* q = nodes + g.node_ptr[v];
      node_terms[v] = *std::max_element(q, q + g.card[v]) > 0 ? 0.0 : -kInf;
      for (i64 i = 0; i < g.card[v]; ++i)
        if (q[i] > 0) node_terms[v] += q[i] * (scores.unary[g.node_ptr[v] + i] - std::log(q[i]));
    }
  });
  constexpr i64 block = 256;
  TableSums sums(g, scores, factors, threads.count);
  sums.run((g.n_factors() + block - 1) / block, threads, [&](i64 b, int thread) {
    for (i64 f = b * block; f < std::min(g.n_factors(), (b + 1) * block); ++f) {
      const auto scope = g.scope_of(f);
      const double* x = theta(f);
      double* out = sums.open(f, thread);
      factor_terms[f] = 0;
      each_entry(g, f, [&](i64 k, const i32* y) {
        double p = 1;
        for (std::size_t d = 0; d < scope.size(); ++d) p *= nodes[g.node_ptr[scope[d]] + y[d]];
        out[k] = p;
        if (p > 0) factor_terms[f] += p * x[k];
      });
      sums.close(f, thread);
    }
  });
  PassingReport report;
  for (const PassingReport& r : reports) report.add(r);
  return report;
}

void ascend(const Structure& g, const Scores& scores, const Threads& threads, i32* assignment) {
  const Incidence at(g);
  parallel_for(g.n_components, threads.count, threads.poll, [&](i64 component, int) {
    std::vector<double> score;
    std::vector<i32> broken;  // hard constraints that a value breaks
    bool moved = true;
    for (int round = 0; moved && round < 1000; ++round) {
      moved = false;
      for (const i32 v : at.members[component]) {
        const i64 n = g.card[v];
        score.assign(n, 0.0);
        broken.assign(n, 0);
        const auto add = [&](i64 i, double x) {
          if (x > -kInf) score[i] += x;
          else ++broken[i];
        };
        for (i64 i = 0; i < n; ++i) add(i, scores.unary[g.node_ptr[v] + i]);
        for (i64 e = at.ptr[v]; e < at.ptr[v + 1]; ++e) {
          const i64 f = at.factor[e];
          i64 place = 0, stride = 1, step = 0;
          for (i64 s = g.scope_ptr[f + 1]; s-- > g.scope_ptr[f];) {
            if (s == at.place[e]) step = stride;
            else place += stride * assignment[g.scope[s]];
            stride *= g.card[g.scope[s]];
          }
          const double* x = scores.tables + scores.table_ptr[scores.table_of[f]] + place;
          for (i64 i = 0; i < n; ++i) add(i, x[i * step]);
        }
        i32 best = assignment[v];
        for (i32 i = 0; i < n; ++i)
          if (broken[i] < broken[best] || (broken[i] == broken[best] && score[i] > score[best] + 1e-12)) best = i;
        moved |= best != assignment[v];
        assignment[v] = best;
      }
    }
  });
}

}  // namespace crfkit
