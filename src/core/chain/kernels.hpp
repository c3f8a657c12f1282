// kernels.hpp: what the drivers of inference on chains ask of the kernels.
#pragma once
#include <memory>

#include "base/instruction_set.hpp"
#include "chain/chain.hpp"
#include "chain/pack.hpp"
#include "chain/transitions.hpp"

namespace crfkit {

// Scratch memory of one thread.
struct Workspace {
  virtual ~Workspace() = default;
};

// Inference on given potentials. Where every step has transitions of its own, packs are of one sequence each.
template <class T>
struct ChainJob : ChainInput<T> {
  int stride = 0;
  const i64* edge_first = nullptr;         // first edge of each sequence           [sequences]
  const Transitions<T>* shared = nullptr;  // null where steps have their own
  double* log_z = nullptr;                 // out [sequences]; minus infinity where no path is allowed
  T* nodes = nullptr;                      // out [tokens][labels], or null
  T* edges = nullptr;                      // out [edges][labels][labels], or null
  const double* weight = nullptr;          // factors of the sequences' nodes, edges and pairs, or null: all one
  double* pairs = nullptr;  // out, shared transitions: edges summed over the pack [labels][labels], or null
  i32* path = nullptr;      // out, decode: [tokens]; sample: [samples][tokens]
  T* best =
      nullptr;  // out, decode: scores of best paths to the labels, a step's highest zero [tokens][labels], or null
  u8* dead = nullptr;                         // out, decode: 1 where no path is allowed        [sequences]
  i64 n_samples = 0;                          // sample
  const double* uniform = nullptr;            // [samples][tokens]
  const T *r = nullptr, *ra = nullptr;        // covariance: the scores it is taken with
  const Transitions<double>* wide = nullptr;  // covariance: shared transitions in double precision
  double* mean = nullptr;                     // out, covariance [sequences]
  double* beta = nullptr;                     // out, backward_messages [tokens][labels]
  EntropyOut<T> entropy;                      // out, entropies; d H / d pairwise of shared transitions goes to pairs
  const T *scored = nullptr, *scored_t = nullptr;  // entropies: m * (a - shift) of shared transitions [labels][stride]
};

template <class T>
struct ChainKernels {
  int lanes;  // numbers in a vector; rows are padded to a multiple
  std::unique_ptr<Workspace> (*workspace)();
  using Kernel = void (*)(const ChainJob<T>&, const Pack&, Workspace&);
  Kernel sum_product, decode, sample;

  int stride(int n_labels) const { return round_up(n_labels, lanes); }
};

// Rows are padded as for the kernels above; AVX-512 has none of these.
template <class T>
struct EntropyKernels {
  std::unique_ptr<Workspace> (*workspace)();
  typename ChainKernels<T>::Kernel entropies, covariance;
  typename ChainKernels<T>::Kernel backward_messages;  // of packs of one sequence
};

CRFKIT_IN_EACH_SET(template <class T> const ChainKernels<T>& chain_kernels(int n_labels);
                   template <class T> const EntropyKernels<T>& entropy_kernels(int n_labels);)

template <class T>
const ChainKernels<T>& chain_kernels_for(int n_labels) {
  return CRFKIT_PICK(T, chain_kernels<T>)(n_labels);
}
template <class T>
const EntropyKernels<T>& entropy_kernels_for(int n_labels) {
  return CRFKIT_PICK_NARROW(entropy_kernels<T>)(n_labels);
}

}  // namespace crfkit
