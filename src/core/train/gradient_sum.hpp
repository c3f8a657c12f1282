// gradient_sum.hpp: what blocks of data add their gradients to, and in which order.
#pragma once
#include "train/kernels.hpp"

namespace crfkit {

template <class T>
class GradientSum {
 public:
  GradientSum(const Layout& layout, const Family& state, const Family& edge)
      : layout_(layout), state_(state), edge_(edge) {}
  // Zero, and written into the job. ends_only: within beams, whose blocks add to the gradient themselves otherwise.
  void start(int threads, bool ends_only, LossJob<T>& job);
  // body(task, thread) for all tasks
  void run(i64 n_tasks, const Threads& threads, FunctionRef<void(i64, int)> body);
  // Adds it all to g.
  void collect(const Threads& threads, double* g) const;

 private:
  const Layout& layout_;
  const Family &state_, &edge_;
  Buffer<T> state_table_, edge_table_;
  std::vector<double> pairs_, start_, end_;
  std::unique_ptr<Turns> turns_;
};

}  // namespace crfkit
