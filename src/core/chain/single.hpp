// single.hpp: inference on one sequence after another, with transitions and scratch memory that are made ready once.
//
// For callers that have one short sequence at a time: preparing the transitions takes longer than the lattice of ten
// tokens does.
#pragma once
#include <memory>

#include "chain/kernels.hpp"

namespace crfkit {

template <class T>
class SingleChain {
 public:
  // pairwise [labels][labels], the same at every step
  SingleChain(const double* pairwise, int n_labels);

  // Scratch memory: several threads may use a chain, each with its own.
  std::unique_ptr<Workspace> workspace() const { return kernels_.workspace(); }

  // log Z, minus infinity where no path is allowed; nodes [steps][labels]: probabilities of the labels.
  double sum_product(i64 steps, const T* unary, T* nodes, Workspace& workspace) const;
  // Whether a path is allowed; path [steps]: the best.
  bool decode(i64 steps, const T* unary, i32* path, Workspace& workspace) const;
  // Score of a path.
  double score(i64 steps, const T* unary, const i32* path) const;

 private:
  void run(i64 steps, const T* unary, ChainJob<T> job, typename ChainKernels<T>::Kernel kernel,
           Workspace& workspace) const;

  const ChainKernels<T>& kernels_;
  const int n_labels_;
  Transitions<T> transitions_;
};

}  // namespace crfkit
