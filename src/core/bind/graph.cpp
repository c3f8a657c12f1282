// graph.cpp: the Python face of factor graphs.
#include "bind/arrays.hpp"
#include "graph/factor_graph.hpp"

namespace crfkit {
namespace {

// Records that Python passes as tuples. Scores: unary, tables, first entry of each table, table of each factor.
using ScoreArrays = std::tuple<In<double, 1>, In<double, 1>, In<i64, 1>, In<i32, 1>>;
// How messages are passed: schedule, max, damping, tol, max_iter, appearance or None, beam or None.
using RuleTuple =
    std::tuple<std::string, bool, double, double, i64, std::optional<In<double, 1>>, std::optional<BeamTuple>>;
using Report = std::tuple<bool, i64, double, i64>;
using MaybeOut = std::optional<Out<double, 1>>;
using MaybeIn = std::optional<In<double, 1>>;

// Where approximate inference writes: nodes, factors or None, weights of the components or None, terms of the variables
// and of the factors.
using BeliefArrays = std::tuple<Out<double, 1>, MaybeOut, MaybeIn, Out<double, 1>, Out<double, 1>>;

constexpr const char* kWrongSize = "an output has the wrong size";

Scores make_scores(const Structure& g, const ScoreArrays& arrays) {
  const auto& [unary, tables, ptr, of] = arrays;
  const i64 n = std::ssize(ptr) - 1;
  require(shaped(unary, g.node_ptr.back()), "unary scores must be one for every value of every variable");
  require(n >= 0 && ptr(0) == 0 && shaped(tables, ptr(n)), "tables have the wrong size");
  require(shaped(of, g.n_factors()), "there must be a table for every factor");
  for (i64 f = 0; f < g.n_factors(); ++f)
    require(of(f) >= 0 && of(f) < n && ptr(of(f) + 1) - ptr(of(f)) == g.table_size(f),
            "a factor's table has the wrong size");
  return {unary.data(), tables.data(), ptr.data(), n, of.data()};
}

// Factors' probabilities one by one, or their sums by table: with weights of the components.
FactorOutput factor_output(const Structure& g, const Scores& s, const MaybeOut& x, const MaybeIn& weight) {
  require(shaped(x, weight ? s.table_ptr[s.n_tables] : g.out_ptr.back()), kWrongSize);
  if (!weight) return {data_of(x), nullptr, nullptr};
  require(shaped(weight, g.n_components), "there must be a weight for every component");
  return {nullptr, data_of(x), weight->data()};
}

PassingRule make_rule(const Structure& g, const RuleTuple& how) {
  const auto& [schedule, max, damping, tol, max_iter, appearance, beam] = how;
  require(shaped(appearance, g.n_factors()), "there must be an appearance for every factor");
  using Schedule = PassingRule::Schedule;
  const Schedule order = named<Schedule>(
      "schedule", schedule,
      {{"flooding", Schedule::flooding}, {"residual", Schedule::residual}, {"sequential", Schedule::sequential}});
  std::optional<Criterion> criterion;
  if (beam) criterion = criterion_of(*beam);
  return {order, max, damping, tol, max_iter, data_of(appearance), criterion};
}

// Runs message passing, or what else gives beliefs and the terms of log Z.
template <class F>
Report approximate(const Structure& g, const ScoreArrays& arrays, const BeliefArrays& beliefs, F run) {
  const Scores scores = make_scores(g, arrays);
  const auto& [nodes, factors, weights, node_terms, factor_terms] = beliefs;
  require(
      shaped(nodes, g.node_ptr.back()) && shaped(node_terms, g.n_variables()) && shaped(factor_terms, g.n_factors()),
      kWrongSize);
  const Beliefs out{nodes.data(), factor_output(g, scores, factors, weights), node_terms.data(), factor_terms.data()};
  const PassingReport r = unlocked([&] { return run(scores, out); });
  return {r.converged, r.iterations, r.residual, r.messages};
}

void bind_tree(nb::module_& m) {
  nb::class_<JunctionTree>(m, "JunctionTree")
      .def(
          "__init__",
          [](JunctionTree* self, const Structure& g, In<i32, 1> order) {
            std::vector<i32> o = to_vector<i32>(order);
            const nb::gil_scoped_release release;
            new (self) JunctionTree(g, std::move(o));
          },
          nb::keep_alive<1, 2>(), "graph"_a, "order"_a)
      .def("cost",
           [](const JunctionTree& self) {
             return std::make_tuple(self.treewidth(), self.largest(), self.entries(), self.largest_component(),
                                    self.costliest());
           })
      .def(
          "sum_product",
          [](const JunctionTree& self, const ScoreArrays& arrays, int threads, Out<double, 1> log_z, MaybeOut nodes,
             MaybeOut factors, MaybeIn weights) {
            const Structure& g = self.graph();
            const Scores scores = make_scores(g, arrays);
            require(shaped(log_z, g.n_components) && shaped(nodes, g.node_ptr.back()), kWrongSize);
            const FactorOutput f = factor_output(g, scores, factors, weights);
            const nb::gil_scoped_release release;
            self.sum_product(scores, make_threads(threads), log_z.data(), data_of(nodes), f);
          },
          "scores"_a, "threads"_a, "log_z"_a.noconvert(), "nodes"_a.none(), "factors"_a.none(), "weights"_a.none())
      .def(
          "max_product",
          [](const JunctionTree& self, const ScoreArrays& arrays, int threads, Out<double, 1> score,
             Out<i32, 1> assignment) {
            const Scores scores = make_scores(self.graph(), arrays);
            require(shaped(score, self.graph().n_components) && shaped(assignment, self.graph().n_variables()),
                    kWrongSize);
            const nb::gil_scoped_release release;
            self.max_product(scores, make_threads(threads), score.data(), assignment.data());
          },
          "scores"_a, "threads"_a, "score"_a.noconvert(), "assignment"_a.noconvert())
      .def(
          "sample",
          [](const JunctionTree& self, const ScoreArrays& arrays, int threads, In<double, 2> uniform,
             Out<double, 1> log_z, Out<i32, 2> values) {
            const Scores scores = make_scores(self.graph(), arrays);
            const i64 n = uniform.shape(0), n_variables = self.graph().n_variables();
            require(shaped(log_z, self.graph().n_components) && shaped(uniform, n, n_variables) &&
                        shaped(values, n, n_variables),
                    kWrongSize);
            const nb::gil_scoped_release release;
            self.sample(scores, make_threads(threads), n, uniform.data(), log_z.data(), values.data());
          },
          "scores"_a, "threads"_a, "uniform"_a, "log_z"_a.noconvert(), "values"_a.noconvert());
}

void bind_structure(nb::module_& m) {
  nb::class_<Structure>(m, "GraphStructure")
      .def(
          "__init__",
          [](Structure* self, In<i32, 1> card, In<i64, 1> ptr, In<i32, 1> scope) {
            check_offsets(ptr, scope.size(), "scopes have the wrong size");
            for (std::size_t f = 1; f < ptr.size(); ++f) require(ptr(f) > ptr(f - 1), "a factor needs a variable");
            new (self) Structure(to_vector<i32>(card), to_vector<i64>(ptr), to_vector<i32>(scope));
          },
          "card"_a, "scope_ptr"_a, "scope"_a)
      .def(
          "components",
          [](const Structure& self, Out<i32, 1> out) {
            require(shaped(out, self.n_variables()), kWrongSize);
            std::copy(self.component.begin(), self.component.end(), out.data());
            return self.n_components;
          },
          "out"_a.noconvert())
      .def(
          "order",
          [](const Structure& self, const std::string& heuristic, double limit, Out<i32, 1> out) {
            require(shaped(out, self.n_variables()), kWrongSize);
            const Heuristic rule = named<Heuristic>(
                "heuristic", heuristic, {{"min_degree", Heuristic::min_degree}, {"min_fill", Heuristic::min_fill}});
            const nb::gil_scoped_release release;
            i32 beyond;
            const auto order = elimination_order(self, rule, limit, beyond);
            std::copy(order.begin(), order.end(), out.data());
            return beyond;
          },
          "heuristic"_a, "limit"_a, "out"_a.noconvert())
      .def(
          "pass_messages",
          [](const Structure& self, const ScoreArrays& arrays, const RuleTuple& how, int threads,
             const BeliefArrays& beliefs) {
            const PassingRule rule = make_rule(self, how);
            return approximate(self, arrays, beliefs, [&](const Scores& scores, const Beliefs& out) {
              return pass_messages(self, scores, rule, make_threads(threads), out);
            });
          },
          "scores"_a, "rule"_a, "threads"_a, "beliefs"_a.noconvert())
      .def(
          "mean_field",
          [](const Structure& self, const ScoreArrays& arrays, double tol, i64 max_iter, int threads,
             const BeliefArrays& beliefs) {
            return approximate(self, arrays, beliefs, [&](const Scores& scores, const Beliefs& out) {
              return mean_field(self, scores, tol, max_iter, make_threads(threads), out);
            });
          },
          "scores"_a, "tol"_a, "max_iter"_a, "threads"_a, "beliefs"_a.noconvert())
      .def(
          "ascend",
          [](const Structure& self, const ScoreArrays& arrays, int threads, Out<i32, 1> assignment) {
            const Scores scores = make_scores(self, arrays);
            require(shaped(assignment, self.n_variables()), kWrongSize);
            const nb::gil_scoped_release release;
            ascend(self, scores, make_threads(threads), assignment.data());
          },
          "scores"_a, "threads"_a, "assignment"_a.noconvert())
      .def(
          "score",
          [](const Structure& self, const ScoreArrays& arrays, int threads, In<i32, 2> assignment, Out<double, 2> out) {
            const Scores scores = make_scores(self, arrays);
            const i64 n = assignment.shape(0), n_variables = self.n_variables();
            require(shaped(assignment, n, n_variables), "an assignment must have a value for every variable");
            require(shaped(out, n, self.n_components), kWrongSize);
            for (i64 k = 0; k < n; ++k)
              for (i64 v = 0; v < n_variables; ++v)
                require(assignment(k, v) >= 0 && assignment(k, v) < self.card[v],
                        "an assignment has a value that does not exist");
            const nb::gil_scoped_release release;
            score_assignments(self, scores, make_threads(threads), n, assignment.data(), out.data());
          },
          "scores"_a, "threads"_a, "assignment"_a, "out"_a.noconvert());
}

}  // namespace

void bind_graph(nb::module_& m) {
  bind_structure(m);
  bind_tree(m);
}

}  // namespace crfkit
