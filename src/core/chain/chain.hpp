// chain.hpp: inference on the potentials of many sequences, on threads.
#pragma once
#include <vector>

#include "base/parallel.hpp"

namespace crfkit {

// u[t][j] and a[i][j]; start, end and forbidden labels are in the scores already. An edge is a step from one
// token to the next of its sequence; a sequence of T tokens has max(0, T - 1).
template <class T>
struct ChainInput {
  int n_labels = 0;
  i64 n_seq = 0;
  const i64* offsets = nullptr;  // first token of each sequence [n_seq + 1]
  const T* unary = nullptr;      // [tokens][labels]
  const T* pairwise = nullptr;   // [labels][labels], or [edges][labels][labels] if per_step
  bool per_step = false;
};

// First edge of each sequence, and the number of edges  [n_seq + 1]
std::vector<i64> edge_offsets(const i64* offsets, i64 n_seq);

// Sums over the paths, each sequence with a weight of its own, and how they move. With p(y) the distribution that the
// potentials give and R(y) = sum_t r[t][y_t] + sum_t ra[t][y_t][y_t+1]:
//
//   expectations:  sum of w[s] P(i at t) and w[s] P(i at t, j at t+1)       w[s] x gradient of log Z
//   covariance:    w[s] Cov(1{i at t}, R), w[s] Cov(1{i at t, j at t+1}, R)    Hessian of log Z times (r, ra)
//
// nodes [tokens][labels]; with transitions that all steps share, pairs [labels][labels] is the sum over all steps of
// all sequences, else edges is [edges][labels][labels]. weight may be null: all one. What is left out may be null, and
// is left as it is where no path is allowed; there log_z [n_seq] is minus infinity.
template <class T>
void expectations(const ChainInput<T>& in, const double* weight, const Threads& threads, double* log_z, T* nodes,
                  double* pairs, T* edges);
// mean [n_seq]: E[R]
template <class T>
void covariance(const ChainInput<T>& in, const T* r, const T* ra, const double* weight, const Threads& threads,
                double* mean, T* nodes, double* pairs, T* edges);

// What entropies are made of. Null where not wanted; left as it is where no path is allowed.
template <class T>
struct EntropyOut {
  double* log_z = nullptr;         // [n_seq]
  double* entropy = nullptr;       // [n_seq]
  double* node_entropy = nullptr;  // H(y_t)                    [tokens]
  double* step_entropy = nullptr;  // H(y_t+1 | y_t)            [edges]
  T* unary = nullptr;              // d H / d unary             [tokens][labels]
  T* pairwise = nullptr;           // d H / d pairwise          [edges][labels][labels], or their sum [labels][labels]
  double *before = nullptr, *after = nullptr;  // H(y_<t | y_t), H(y_>t | y_t)   [tokens][labels]
};
// Either the gradient, or the entropies of nodes and steps, or the lattices.
template <class T>
void entropies(const ChainInput<T>& in, const Threads& threads, const EntropyOut<T>& out);

// beta [tokens][labels]: the logarithm of the sum over all that may follow label i at t, zero at the last token of a
// sequence; minus infinity where nothing may.
template <class T>
void backward_messages(const ChainInput<T>& in, double* beta);

// path [tokens], dead [n_seq]: 1 where no path is allowed.
template <class T>
void decode(const ChainInput<T>& in, const Threads& threads, i32* path, u8* dead);

// path [n_samples][tokens]; uniform: numbers in [0, 1) of the same shape
template <class T>
void sample(const ChainInput<T>& in, const Threads& threads, i64 n_samples, const double* uniform, double* log_z,
            i32* path);

// The k best paths of each sequence, best first, one after another, and their scores.
struct Paths {
  std::vector<i32> path;      // [paths][steps]
  std::vector<double> score;  // [paths]; empty where no path is allowed
};
std::vector<Paths> nbest(const ChainInput<double>& in, i64 k, const Threads& threads);

// A copy of the input in double precision.
struct WideInput : ChainInput<double> {
  template <class T>
  explicit WideInput(const ChainInput<T>& in)
      : scores(in.unary, in.unary + in.offsets[in.n_seq] * in.n_labels),
        pairs(in.pairwise,
              in.pairwise + (in.per_step ? edge_offsets(in.offsets, in.n_seq).back() : 1) * in.n_labels * in.n_labels) {
    static_cast<ChainInput<double>&>(*this) = {in.n_labels,   in.n_seq,     in.offsets,
                                               scores.data(), pairs.data(), in.per_step};
  }
  std::vector<double> scores, pairs;
};

}  // namespace crfkit
