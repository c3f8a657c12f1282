// expectations.hpp: sums over the paths of chains, each sequence with a weight of its own, and how they move.
//
// With p(y) the distribution that the potentials give and R(y) = sum_t r[t][y_t] + sum_t ra[t][y_t][y_t+1]:
//
//   expectations:  sum of w[s] P(i at t) and w[s] P(i at t, j at t+1)       w[s] x gradient of log Z
//   covariance:    w[s] Cov(1{i at t}, R), w[s] Cov(1{i at t, j at t+1}, R)    Hessian of log Z times (r, ra)
//
// With transitions that all steps share, the pairs are summed over all steps of all sequences.
#pragma once
#include "chain/chain.hpp"

namespace crfkit {

// log_z [n_seq]; nodes [tokens][labels]; pairs [labels][labels] if transitions are shared, else
// [edges][labels][labels]. weight may be null: all one. What is left out may be null.
template <class T>
void expectations(const ChainInput<T>& in, const double* weight, const Threads& threads, double* log_z, T* nodes,
                  double* pairs, T* edges);

// mean [n_seq]: E[R]. nodes and pairs or edges as above.
template <class T>
void covariance(const ChainInput<T>& in, const T* r, const T* ra, const double* weight, const Threads& threads,
                double* mean, T* nodes, double* pairs, T* edges);

}  // namespace crfkit
