// factor_graph.hpp: factor graphs over discrete variables: exact inference on junction trees, and message passing.
//
// A graph has variables with their own numbers of values, scores of single values (unary, flat, variable after
// variable) and factors over two or more variables. Many factors may share one table. A table runs over its factor's
// variables in their order, the last one fastest. Scores are logarithms; minus infinity forbids.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "base/parallel.hpp"
#include "beam/criteria.hpp"

namespace crfkit {

struct Structure {
  std::vector<i32> card;       // values of each variable                                  [V]
  std::vector<i64> node_ptr;   // first unary score of each variable                       [V + 1]
  std::vector<i64> scope_ptr;  // first variable of each factor's scope                    [F + 1]
  std::vector<i32> scope;
  std::vector<i64> out_ptr;    // first entry of each factor's marginals                   [F + 1]
  std::vector<i32> component;  // of each variable, numbered by their lowest variable      [V]
  i64 n_components = 0;

  Structure(std::vector<i32> cards, std::vector<i64> ptr, std::vector<i32> vars);
  i64 n_variables() const { return std::ssize(card); }
  i64 n_factors() const { return std::ssize(scope_ptr) - 1; }
  std::span<const i32> scope_of(i64 f) const {
    return {scope.begin() + scope_ptr[f], scope.begin() + scope_ptr[f + 1]};
  }
  i64 table_size(i64 f) const { return out_ptr[f + 1] - out_ptr[f]; }
};

struct Scores {
  const double* unary;   // [sum of card]
  const double* tables;  // distinct tables one after another
  const i64* table_ptr;  // [K + 1]
  i64 n_tables;
  const i32* table_of;  // table of each factor  [F]

  const double* table(i64 f) const { return tables + table_ptr[table_of[f]]; }
};

// Where factors' probabilities go: each into its own place, or added up by table, every factor times its component's
// weight.
struct FactorOutput {
  double* each = nullptr;          // [out_ptr[F]], or null
  double* sums = nullptr;          // [table_ptr[K]], or null
  const double* weight = nullptr;  // for the sums  [components]
};

class TableSums;
struct GraphKernels;

enum class Heuristic : u8 { min_fill, min_degree };

// An order to eliminate the variables in. Ends early, with fewer than all variables, as soon as a table would have more
// than `limit` entries; `beyond` is then the variable whose table it is, else -1.
std::vector<i32> elimination_order(const Structure& graph, Heuristic heuristic, double limit, i32& beyond);

// How to walk over a clique's table beside a smaller table: extents from the outermost to the innermost, and the steps
// of the smaller table. Neighbouring axes that can be walked as one are one.
struct Walk {
  std::vector<i64> extent, step;
  bool is_identity() const { return extent.size() == 1 && step[0] == 1; }
};

// The tree of cliques that an elimination order leaves: clique k is the k-th eliminated variable and the neighbours it
// had then, sorted by elimination; it sends its message, a table over these neighbours, to the clique of the first of
// them.
class JunctionTree {
 public:
  JunctionTree(const Structure& graph, std::vector<i32> order);

  const Structure& graph() const { return graph_; }
  i64 treewidth() const { return treewidth_; }
  double entries() const { return entries_; }  // of all cliques
  double largest() const { return largest_; }  // of the largest clique
  double largest_component() const { return largest_component_; }
  i64 costliest() const { return costliest_; }  // number of that component

  // log Z of each component; probabilities of values [sum of card], or null; of factors' entries.
  void sum_product(const Scores& scores, const Threads& threads, double* log_z, double* nodes,
                   const FactorOutput& factors) const;
  // A best assignment and each component's score (minus infinity where nothing is allowed).
  void max_product(const Scores& scores, const Threads& threads, double* score, i32* assignment) const;
  // Draws: uniform [n][V] in, values [n][V] out.
  void sample(const Scores& scores, const Threads& threads, i64 n, const double* uniform, double* log_z,
              i32* values) const;

 private:
  struct Part {
    i64 factor;
    Walk walk;
    Walk base_walk;  // beside the base of a product
  };
  struct Clique {
    i32 variable;
    std::vector<i32> rest;                                   // neighbours, by elimination
    i64 size = 0, message = 0;                               // entries of the table, of the message
    i64 number = 0;                                          // in its component
    i64 parent = -1;                                         // place in the order, or -1
    i64 at = 0, lean_at = 0, message_at = 0, vector_at = 0;  // places in the component's memory
    // rows, columns: one factor of two variables and a vector say all, no table is needed; product: the table is
    // base(v, others) psi(v, u), where u is the first or the last of the rest, and psi the last of the parts
    enum class Kind : u8 { table, rows, columns, product };
    Kind kind = Kind::table;
    bool u_last = false;
    i64 others = 0;  // entries of base for each v
    Walk in_parent;  // the message beside the parent's table
    Walk in_base;    // and beside its base
    std::vector<i64> children;
    std::vector<Part> parts;   // factors that live here
    std::vector<i64> strides;  // of rest in the table
  };
  struct Work;
  struct Tables;
  template <class Algebra, bool Lean>
  class Collector;
  void distribute(i64 component, const Scores& scores, const Tables& tables, Work& work, double* nodes,
                  TableSums& factors, int thread) const;
  void distribute_log(i64 component, Work& work, double* nodes, TableSums& factors, int thread) const;
  void find_product(Clique& c) const;
  Tables prepare(const Scores& scores, const Threads& threads) const;

  const Structure& graph_;
  const GraphKernels& kernels_;
  std::vector<i32> order_;
  std::vector<Clique> cliques_;            // in elimination order
  std::vector<std::vector<i64>> members_;  // cliques of each component
  std::vector<i64> memory_, lean_memory_, message_memory_, vector_memory_;
  i64 treewidth_ = 0, costliest_ = 0;
  double entries_ = 0, largest_ = 0, largest_component_ = 0;
};

// Message passing.
struct PassingRule {
  enum class Schedule : u8 { flooding, sequential, residual };
  Schedule schedule = Schedule::sequential;
  bool max = false;                    // max-product instead of sum-product
  double damping = 0;                  // fraction of the old message (its logarithm) that stays
  double tol = 1e-6;                   // largest change of a log-message that counts as none
  i64 max_iter = 100;                  // sweeps
  const double* appearance = nullptr;  // of each factor, for tree-reweighted messages; null: all one
  std::optional<Criterion> beam;       // messages only from the values that it picks
};

struct PassingReport {
  bool converged = true;
  i64 iterations = 0;
  double residual = 0;
  i64 messages = 0;

  // Repeats a sweep, which gives its largest change, until that is small.
  template <class Sweep>
  void repeat(double tol, i64 max_iter, Sweep sweep) {
    converged = false;
    while (iterations < max_iter && !converged) {
      residual = sweep();
      ++iterations;
      converged = residual <= tol;
    }
  }
  void add(const PassingReport& component) {
    converged &= component.converged;
    iterations = std::max(iterations, component.iterations);
    residual = std::max(residual, component.residual);
    messages += component.messages;
  }
};

// Where approximate inference writes.
struct Beliefs {
  double* nodes;  // of the variables' values  [sum of card]
  FactorOutput factors;
  double *node_terms, *factor_terms;  // what each variable and each factor adds to log Z  [V], [F]
};

// The terms add up to the (reweighted) Bethe approximation of log Z.
PassingReport pass_messages(const Structure& graph, const Scores& scores, const PassingRule& rule,
                            const Threads& threads, const Beliefs& out);

// Naive mean field by coordinate ascent, from the nodes as given; the terms add up to a lower bound of log Z.
PassingReport mean_field(const Structure& graph, const Scores& scores, double tol, i64 max_iter, const Threads& threads,
                         const Beliefs& out);

// Improves an assignment, one variable at a time, until no change of one variable helps.
void ascend(const Structure& graph, const Scores& scores, const Threads& threads, i32* assignment);

// Score of assignments [n][V], by component: [n][components].
void score_assignments(const Structure& graph, const Scores& scores, const Threads& threads, i64 n,
                       const i32* assignment, double* score);

}  // namespace crfkit
