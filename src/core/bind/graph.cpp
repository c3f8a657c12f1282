// graph.cpp: the Python face of factor graphs.
#include "bind/arrays.hpp"
#include "graph/factor_graph.hpp"

namespace crfkit {
namespace {

using Report = std::tuple<bool, i64, double, i64>;

Scores make_scores(const Structure& g, const In<double, 1>& unary, const In<double, 1>& tables, const In<i64, 1>& ptr,
                   const In<i32, 1>& of) {
  const i64 n = static_cast<i64>(ptr.size()) - 1;
  require(static_cast<i64>(unary.size()) == g.node_ptr.back(),
          "unary scores must be one for every value of every variable");
  require(n >= 0 && ptr(0) == 0 && ptr(n) == static_cast<i64>(tables.size()), "tables have the wrong size");
  require(static_cast<i64>(of.size()) == g.n_factors(), "there must be a table for every factor");
  for (i64 f = 0; f < g.n_factors(); ++f)
    require(of(f) >= 0 && of(f) < n && ptr(of(f) + 1) - ptr(of(f)) == g.table_size(f),
            "a factor's table has the wrong size");
  return {unary.data(), tables.data(), ptr.data(), n, of.data()};
}

double* optional_data(const std::optional<Out<double, 1>>& x, i64 size) {
  if (!x) return nullptr;
  require(static_cast<i64>(x->size()) == size, "an output has the wrong size");
  return x->data();
}

void check(const Out<double, 1>& x, i64 size) {
  require(static_cast<i64>(x.size()) == size, "an output has the wrong size");
}

// Factors' probabilities one by one, or their sums by table: with weights of the components.
FactorOutput factor_output(const Structure& g, const Scores& s, const std::optional<Out<double, 1>>& x,
                           const std::optional<In<double, 1>>& weight) {
  if (!weight) return {optional_data(x, g.out_ptr.back()), nullptr, nullptr};
  require(static_cast<i64>(weight->size()) == g.n_components, "there must be a weight for every component");
  return {nullptr, optional_data(x, s.table_ptr[s.n_tables]), weight->data()};
}

// A junction tree and the structure that it refers to.
struct OwnedTree {
  std::shared_ptr<Structure> graph;
  std::unique_ptr<JunctionTree> tree;
};

// The structure as Python holds it.
struct OwnedGraph {
  std::shared_ptr<Structure> graph;
};

}  // namespace

void bind_graph(nb::module_& m) {
  nb::class_<OwnedTree>(m, "JunctionTree")
      .def(
          "__init__",
          [](OwnedTree* self, const OwnedGraph& g, In<i32, 1> order) {
            std::vector<i32> o = to_vector<i32>(order);
            const nb::gil_scoped_release release;
            new (self) OwnedTree{g.graph, std::make_unique<JunctionTree>(*g.graph, std::move(o))};
          },
          "graph"_a, "order"_a)
      .def("cost",
           [](const OwnedTree& s) {
             return std::make_tuple(s.tree->treewidth(), s.tree->largest(), s.tree->entries(),
                                    s.tree->largest_component(), s.tree->costliest());
           })
      .def(
          "sum_product",
          [](const OwnedTree& s, In<double, 1> unary, In<double, 1> tables, In<i64, 1> ptr, In<i32, 1> of, int threads,
             Out<double, 1> log_z, std::optional<Out<double, 1>> nodes, std::optional<Out<double, 1>> factors,
             std::optional<In<double, 1>> weights) {
            const Scores scores = make_scores(*s.graph, unary, tables, ptr, of);
            check(log_z, s.graph->n_components);
            double* n = optional_data(nodes, s.graph->node_ptr.back());
            const FactorOutput f = factor_output(*s.graph, scores, factors, weights);
            const nb::gil_scoped_release release;
            s.tree->sum_product(scores, make_threads(threads), log_z.data(), n, f);
          },
          "unary"_a, "tables"_a, "table_ptr"_a, "table_of"_a, "threads"_a, "log_z"_a.noconvert(), "nodes"_a.none(),
          "factors"_a.none(), "weights"_a.none())
      .def(
          "max_product",
          [](const OwnedTree& s, In<double, 1> unary, In<double, 1> tables, In<i64, 1> ptr, In<i32, 1> of, int threads,
             Out<double, 1> score, Out<i32, 1> assignment) {
            const Scores scores = make_scores(*s.graph, unary, tables, ptr, of);
            check(score, s.graph->n_components);
            require(static_cast<i64>(assignment.size()) == s.graph->n_variables(), "an output has the wrong size");
            const nb::gil_scoped_release release;
            s.tree->max_product(scores, make_threads(threads), score.data(), assignment.data());
          },
          "unary"_a, "tables"_a, "table_ptr"_a, "table_of"_a, "threads"_a, "score"_a.noconvert(),
          "assignment"_a.noconvert())
      .def(
          "sample",
          [](const OwnedTree& s, In<double, 1> unary, In<double, 1> tables, In<i64, 1> ptr, In<i32, 1> of, int threads,
             In<double, 2> uniform, Out<double, 1> log_z, Out<i32, 2> values) {
            const Scores scores = make_scores(*s.graph, unary, tables, ptr, of);
            check(log_z, s.graph->n_components);
            require(static_cast<i64>(uniform.shape(1)) == s.graph->n_variables() &&
                        values.shape(0) == uniform.shape(0) && values.shape(1) == uniform.shape(1),
                    "an output has the wrong size");
            const nb::gil_scoped_release release;
            s.tree->sample(scores, make_threads(threads), static_cast<i64>(uniform.shape(0)), uniform.data(),
                           log_z.data(), values.data());
          },
          "unary"_a, "tables"_a, "table_ptr"_a, "table_of"_a, "threads"_a, "uniform"_a, "log_z"_a.noconvert(),
          "values"_a.noconvert());
  nb::class_<OwnedGraph>(m, "GraphStructure")
      .def(
          "__init__",
          [](OwnedGraph* self, In<i32, 1> card, In<i64, 1> ptr, In<i32, 1> scope) {
            require(ptr.size() >= 1 && ptr(0) == 0 && ptr(ptr.size() - 1) == static_cast<i64>(scope.size()),
                    "scopes have the wrong size");
            for (std::size_t f = 1; f < ptr.size(); ++f) require(ptr(f) > ptr(f - 1), "a factor needs a variable");
            new (self) OwnedGraph{
                std::make_shared<Structure>(to_vector<i32>(card), to_vector<i64>(ptr), to_vector<i32>(scope))};
          },
          "card"_a, "scope_ptr"_a, "scope"_a)
      .def(
          "components",
          [](const OwnedGraph& s, Out<i32, 1> out) {
            require(static_cast<i64>(out.size()) == s.graph->n_variables(), "an output has the wrong size");
            std::copy(s.graph->component.begin(), s.graph->component.end(), out.data());
            return s.graph->n_components;
          },
          "out"_a.noconvert())
      .def(
          "order",
          [](const OwnedGraph& s, const std::string& heuristic, double limit, Out<i32, 1> out) {
            require(static_cast<i64>(out.size()) == s.graph->n_variables(), "an output has the wrong size");
            const nb::gil_scoped_release release;
            i32 beyond;
            const auto order = elimination_order(
                *s.graph, heuristic == "min_degree" ? Heuristic::min_degree : Heuristic::min_fill, limit, beyond);
            std::copy(order.begin(), order.end(), out.data());
            return beyond;
          },
          "heuristic"_a, "limit"_a, "out"_a.noconvert())
      .def(
          "pass_messages",
          [](const OwnedGraph& s, In<double, 1> unary, In<double, 1> tables, In<i64, 1> ptr, In<i32, 1> of, int threads,
             const std::string& schedule, bool max, double damping, double tol, i64 max_iter,
             std::optional<In<double, 1>> appearance, const std::string& kind, double amount, int size,
             Out<double, 1> nodes, std::optional<Out<double, 1>> factors, std::optional<In<double, 1>> weights,
             Out<double, 1> node_terms, Out<double, 1> factor_terms) -> Report {
            const Structure& g = *s.graph;
            const Scores scores = make_scores(g, unary, tables, ptr, of);
            PassingRule rule;
            rule.schedule = schedule == "flooding"   ? PassingRule::Schedule::flooding
                            : schedule == "residual" ? PassingRule::Schedule::residual
                                                     : PassingRule::Schedule::sequential;
            rule.max = max;
            rule.damping = damping;
            rule.tol = tol;
            rule.max_iter = max_iter;
            if (appearance) {
              require(static_cast<i64>(appearance->size()) == g.n_factors(),
                      "there must be an appearance for every factor");
              rule.appearance = appearance->data();
            }
            rule.beam = !kind.empty();
            rule.criterion = {kind == "min_divergence" ? Criterion::Kind::min_divergence
                              : kind == "threshold"    ? Criterion::Kind::threshold
                                                       : Criterion::Kind::fixed_size,
                              amount, size};
            check(nodes, g.node_ptr.back());
            check(node_terms, g.n_variables());
            check(factor_terms, g.n_factors());
            const FactorOutput f = factor_output(g, scores, factors, weights);
            const nb::gil_scoped_release release;
            const PassingReport r = pass_messages(g, scores, rule, make_threads(threads), nodes.data(), f,
                                                  node_terms.data(), factor_terms.data());
            return {r.converged, r.iterations, r.residual, r.messages};
          },
          "unary"_a, "tables"_a, "table_ptr"_a, "table_of"_a, "threads"_a, "schedule"_a, "max"_a, "damping"_a, "tol"_a,
          "max_iter"_a, "appearance"_a.none(), "kind"_a, "amount"_a, "size"_a, "nodes"_a.noconvert(),
          "factors"_a.none(), "weights"_a.none(), "node_terms"_a.noconvert(), "factor_terms"_a.noconvert())
      .def(
          "mean_field",
          [](const OwnedGraph& s, In<double, 1> unary, In<double, 1> tables, In<i64, 1> ptr, In<i32, 1> of, int threads,
             double tol, i64 max_iter, Out<double, 1> nodes, std::optional<Out<double, 1>> factors,
             std::optional<In<double, 1>> weights, Out<double, 1> node_terms, Out<double, 1> factor_terms) -> Report {
            const Structure& g = *s.graph;
            const Scores scores = make_scores(g, unary, tables, ptr, of);
            check(nodes, g.node_ptr.back());
            check(node_terms, g.n_variables());
            check(factor_terms, g.n_factors());
            const FactorOutput f = factor_output(g, scores, factors, weights);
            const nb::gil_scoped_release release;
            const PassingReport r = mean_field(g, scores, tol, max_iter, make_threads(threads), nodes.data(), f,
                                               node_terms.data(), factor_terms.data());
            return {r.converged, r.iterations, r.residual, r.messages};
          },
          "unary"_a, "tables"_a, "table_ptr"_a, "table_of"_a, "threads"_a, "tol"_a, "max_iter"_a, "nodes"_a.noconvert(),
          "factors"_a.none(), "weights"_a.none(), "node_terms"_a.noconvert(), "factor_terms"_a.noconvert())
      .def(
          "ascend",
          [](const OwnedGraph& s, In<double, 1> unary, In<double, 1> tables, In<i64, 1> ptr, In<i32, 1> of, int threads,
             Out<i32, 1> assignment) {
            const Scores scores = make_scores(*s.graph, unary, tables, ptr, of);
            require(static_cast<i64>(assignment.size()) == s.graph->n_variables(), "an output has the wrong size");
            const nb::gil_scoped_release release;
            ascend(*s.graph, scores, make_threads(threads), assignment.data());
          },
          "unary"_a, "tables"_a, "table_ptr"_a, "table_of"_a, "threads"_a, "assignment"_a.noconvert())
      .def(
          "score",
          [](const OwnedGraph& s, In<double, 1> unary, In<double, 1> tables, In<i64, 1> ptr, In<i32, 1> of, int threads,
             In<i32, 2> assignment, Out<double, 2> out) {
            const Scores scores = make_scores(*s.graph, unary, tables, ptr, of);
            const i64 n = s.graph->n_variables();
            require(static_cast<i64>(assignment.shape(1)) == n, "an assignment must have a value for every variable");
            require(out.shape(0) == assignment.shape(0) && static_cast<i64>(out.shape(1)) == s.graph->n_components,
                    "an output has the wrong size");
            for (std::size_t k = 0; k < assignment.shape(0); ++k)
              for (i64 v = 0; v < n; ++v)
                require(assignment(k, v) >= 0 && assignment(k, v) < s.graph->card[v],
                        "an assignment has a value that does not exist");
            const nb::gil_scoped_release release;
            score_assignments(*s.graph, scores, make_threads(threads), static_cast<i64>(assignment.shape(0)),
                              assignment.data(), out.data());
          },
          "unary"_a, "tables"_a, "table_ptr"_a, "table_of"_a, "threads"_a, "assignment"_a, "out"_a.noconvert());
}

}  // namespace crfkit
