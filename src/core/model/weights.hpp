// weights.hpp: the dense rows of a model for one weight vector, and its transitions.
#pragma once
#include "base/parallel.hpp"
#include "model/kernels.hpp"

namespace crfkit {

template <class T>
class Weights {
 public:
  // constraints: [labels][labels] transitions, then start and end, 0 where allowed and minus infinity where not; or
  // null
  Weights(const Layout& layout, const Family& state, const Family& edge, const double* constraints);
  void set(const double* w, const Threads& threads);
  // only what inference within beams reads
  void set_ends(const double* w);
  // What the kernels read; w and the runs are left out.
  ModelView<T> view() const;

  Transitions<T> transitions;
  std::vector<double> pairwise;  // [labels][labels]

 private:
  const Layout& layout_;
  const Family &state_, &edge_;
  const u32 state_full_, edge_full_;  // as in tables.hpp
  std::vector<double> forbidden_;     // 0 or minus infinity: transitions, start, end
  Buffer<T> state_table_, edge_table_, start_, end_;
};

}  // namespace crfkit
