// mean_field.cpp: naive mean field, and assignments improved one variable at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log_sum.hpp"
#include "base/parallel.hpp"
#include "graph/incidence.hpp"
#include "graph/table_sums.hpp"

namespace crfkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Of one component.
class MeanField {
 public:
  MeanField(const Structure& g, const Scores& scores, const Incidence& at, double* nodes)
      : g_(g), scores_(scores), at_(at), nodes_(nodes) {}

  PassingReport run(const std::vector<i32>& members, double tol, i64 max_iter, double* terms) {
    PassingReport report;
    report.repeat(tol, max_iter, [&] {
      double change = 0;
      for (const i32 v : members) {
        const double moved = update(v);
        report.messages += moved >= 0;
        change = std::max(change, moved);
      }
      return change;
    });
    for (const i32 v : members) {
      const double* q = nodes_ + g_.node_ptr[v];
      terms[v] = *std::max_element(q, q + g_.card[v]) > 0 ? 0.0 : -kInf;
      for (i64 i = 0; i < g_.card[v]; ++i)
        if (q[i] > 0) terms[v] += q[i] * (scores_.unary[g_.node_ptr[v] + i] - std::log(q[i]));
    }
    return report;
  }

 private:
  // The distribution of v, given its neighbours'; how far it moved, or -1 if nothing is left of it.
  double update(i32 v) {
    const i64 n = g_.card[v];
    double* q = nodes_ + g_.node_ptr[v];
    score_.assign(scores_.unary + g_.node_ptr[v], scores_.unary + g_.node_ptr[v] + n);
    conflict_.assign(n, 0.0);
    for (i64 e = at_.ptr[v]; e < at_.ptr[v + 1]; ++e) expect(at_.factor[e], at_.place[e] - g_.scope_ptr[at_.factor[e]]);
    // least conflict first: without any, all values that have none
    double least = kInf;
    for (i64 i = 0; i < n; ++i)
      if (score_[i] > -kInf) least = std::min(least, conflict_[i]);
    if (least == kInf) return -1;  // as the unary scores say: all of q is zero
    for (i64 i = 0; i < n; ++i)
      if (conflict_[i] > least) score_[i] = -kInf;
    softmax(score_.data(), n);
    double change = 0;
    for (i64 i = 0; i < n; ++i) change = std::max(change, std::abs(score_[i] - q[i]));
    std::copy(score_.begin(), score_.end(), q);
    return change;
  }

  // Adds E[theta | value at slot], and what falls on forbidden entries.
  void expect(i64 f, i64 slot) {
    const auto scope = g_.scope_of(f);
    const double* x = scores_.table(f);
    const auto add = [&](i64 i, double p, double value) {
      if (p > 0) (value > -kInf ? score_ : conflict_)[i] += value > -kInf ? p * value : p;
    };
    if (scope.size() == 2) {
      const i64 n = g_.card[scope[slot]], m = g_.card[scope[1 - slot]];
      const double* q = nodes_ + g_.node_ptr[scope[1 - slot]];
      for (i64 i = 0; i < n; ++i)
        for (i64 j = 0; j < m; ++j) add(i, q[j], x[slot == 0 ? i * m + j : j * n + i]);
      return;
    }
    each_entry(g_, f, [&](i64 k, const i32* y) {
      double p = 1;
      for (i64 d = 0; d < std::ssize(scope); ++d)
        if (d != slot) p *= nodes_[g_.node_ptr[scope[d]] + y[d]];
      add(y[slot], p, x[k]);
    });
  }

  const Structure& g_;
  const Scores& scores_;
  const Incidence& at_;
  double* nodes_;
  std::vector<double> score_, conflict_;
};

}  // namespace

PassingReport mean_field(const Structure& g, const Scores& scores, double tol, i64 max_iter, const Threads& threads,
                         const Beliefs& out) {
  const Incidence at(g);
  std::vector<PassingReport> reports(g.n_components);
  parallel_for(g.n_components, threads.count, threads.poll, [&](i64 c, int) {
    reports[c] = MeanField(g, scores, at, out.nodes).run(at.members[c], tol, max_iter, out.node_terms);
  });
  TableSums sums(g, scores, out.factors, threads.count);
  sums.each_factor(threads, [&](i64 f, double* belief, int) {
    const auto scope = g.scope_of(f);
    const double* x = scores.table(f);
    double term = 0;
    each_entry(g, f, [&](i64 k, const i32* y) {
      double p = 1;
      for (std::size_t d = 0; d < scope.size(); ++d) p *= out.nodes[g.node_ptr[scope[d]] + y[d]];
      belief[k] = p;
      if (p > 0) term += p * x[k];
    });
    out.factor_terms[f] = term;
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
          const double* x = scores.table(f) + place;
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
