#include "chain/single.hpp"

namespace crfkit {

template <class T>
SingleChain<T>::SingleChain(const double* pairwise, int n_labels)
    : kernels_(chain_kernels_for<T>(n_labels)), n_labels_(n_labels) {
  transitions_.prepare(pairwise, n_labels, kernels_.stride(n_labels));
}

template <class T>
void SingleChain<T>::run(i64 steps, const T* unary, ChainJob<T> job, typename ChainKernels<T>::Kernel kernel,
                         Workspace& workspace) const {
  if (steps == 0) return;
  const i64 offsets[] = {0, steps}, edge_first[] = {0, steps - 1};
  job.n_labels = n_labels_;
  job.n_seq = 1;
  job.offsets = offsets;
  job.unary = unary;
  job.stride = static_cast<int>(transitions_.stride);
  job.edge_first = edge_first;
  job.shared = &transitions_;
  kernel(job, make_pack(offsets, {0}), workspace);
}

template <class T>
double SingleChain<T>::sum_product(i64 steps, const T* unary, T* nodes, Workspace& workspace) const {
  double log_z = 0;  // an empty sequence has one labelling, with score 0
  ChainJob<T> job;
  job.log_z = &log_z;
  job.nodes = nodes;
  run(steps, unary, job, kernels_.sum_product, workspace);
  return log_z;
}

template <class T>
bool SingleChain<T>::decode(i64 steps, const T* unary, i32* path, Workspace& workspace) const {
  u8 dead = 0;
  ChainJob<T> job;
  job.path = path;
  job.dead = &dead;
  run(steps, unary, job, kernels_.decode, workspace);
  return dead == 0;
}

template <class T>
double SingleChain<T>::score(i64 steps, const T* unary, const i32* path) const {
  double sum = 0;
  for (i64 t = 0; t < steps; ++t) {
    sum += unary[t * n_labels_ + path[t]];
    if (t > 0) sum += transitions_.score[path[t - 1] * transitions_.stride + path[t]];
  }
  return sum;
}

template class SingleChain<double>;

}  // namespace crfkit
