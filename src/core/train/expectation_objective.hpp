// expectation_objective.hpp: expected labels of groups of tokens, and the gradients of what is asked of them.
#pragma once
#include "train/block_objective.hpp"

namespace crfkit {

// Sequences without labels whose tokens belong to groups, any number of them. A table [groups][labels] adds to the
// scores of the labels of the groups' tokens: R(y) is the sum of what a labelling gets.
template <class T>
class ExpectationObjective : public BlockObjective<T> {
  using Base = BlockObjective<T>;
  using Base::blocks_, Base::layout_, Base::lock_, Base::other_, Base::weights_;

 public:
  // ptr [tokens + 1], group: the groups of each token
  ExpectationObjective(std::shared_ptr<const Layout> layout, const Tokens& data, const i64* ptr, const i32* group,
                       i64 n_groups, const double* constraints, const Threads& threads);
  i64 n_groups() const { return n_groups_; }
  // The weights that all else is about.
  void set(const double* w, const Threads& threads);
  // counts [groups][labels]: expected labels, where p(y) is proportional to exp(s(y) + R(y)); gives the sum of log Z.
  double expected(const double* table, double* counts, const Threads& threads);
  // Adds Cov(F, R) to g, without R in p.
  void add_covariance(const double* table, double* g, const Threads& threads);
  // Adds scale times the gradient of the sum of log Z less that with R; gives the sum, times scale.
  double add_divergence(const double* table, double scale, double* g, const Threads& threads);

 private:
  GroupedRows<T> rows(i64 block);
  void set_table(const double* table);

  struct Rows {
    std::vector<i64> ptr;
    std::vector<i32> group;
    Buffer<T> scores;
    bool scored = false;
  };
  const i64 n_groups_;
  std::vector<Rows> rows_;  // of each block
  std::vector<double> w_;
  Buffer<T> table_;
  const T* table_at_ = nullptr;
};

}  // namespace crfkit
