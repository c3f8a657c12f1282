// gradient_sum.hpp: what blocks of data add their gradients to, and in which order.
#pragma once
#include "train/kernels.hpp"

namespace crfkit {

template <class T>
class GradientSum {
 public:
  GradientSum(const Layout& layout, const Family& state, const Family& edge);
  // Zero, and written into the job. ends_only: within beams, whose blocks add to the gradient themselves otherwise.
  void start(const Threads& threads, bool ends_only, LossJob<T>& job);
  // body(task, thread) for all tasks
  void run(i64 n_tasks, const Threads& threads, FunctionRef<void(i64, int)> body);
  // Adds it all to g. With a penalty, g has not been written where own_states() says so: there it starts from 2 c2 w.
  struct Penalty {
    const double* w = nullptr;
    double c2 = 0;
  };
  void collect(const Threads& threads, const Penalty& penalty, double* g) const;
  // Whether the weights of tokens' attributes, the first of g, are all in dense rows.
  bool own_states() const { return own_states_; }

 private:
  const Layout& layout_;
  const Family &state_, &edge_;
  const u32 state_full_, edge_full_;  // as in tables.hpp
  const bool own_states_;
  Buffer<T> state_table_, edge_table_;
  std::vector<double> pairs_, start_, end_;
  std::unique_ptr<Turns> turns_;
};

}  // namespace crfkit
