// chain.hpp: inference on the potentials of many sequences, on threads.
#pragma once
#include <vector>

#include "base/base.hpp"
#include "base/parallel.hpp"
#include "beam/criteria.hpp"

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

struct Threads {
  int count = 1;
  Poll poll;
};

// First edge of each sequence, and the number of edges  [n_seq + 1]
std::vector<i64> edge_offsets(const i64* offsets, i64 n_seq);

// log_z [n_seq]: minus infinity where no path is allowed. nodes [tokens][labels] and edges
// [edges][labels][labels] may be null; they are left as they are where no path is allowed.
template <class T>
void sum_product(const ChainInput<T>& in, const Threads& threads, double* log_z, T* nodes, T* edges);

// path [tokens], dead [n_seq]: 1 where no path is allowed. With a rule, inside of beams that it picks by the scores of
// best paths. Without, labels that cannot be on the best path are left out where that is faster (dominance.hpp), but
// not if `plainly`.
template <class T>
void decode(const ChainInput<T>& in, const BeamRule* rule, const Threads& threads, i32* path, u8* dead,
            bool plainly = false);

// path [n_samples][tokens]; uniform: numbers in [0, 1) of the same shape
template <class T>
void sample(const ChainInput<T>& in, const Threads& threads, i64 n_samples, const double* uniform, double* log_z,
            i32* path);

// Sum-product over beams; one result per sequence. A dead sequence has log_mass minus infinity.
template <class T>
std::vector<BeamResult> beam_sum_product(const ChainInput<T>& in, const BeamRule& rule, const Threads& threads);

// The k best paths of each sequence, best first, one after another, and their scores. With a rule, those inside of
// beams that it picks by the scores of best paths.
struct Paths {
  std::vector<i32> path;      // [paths][steps]
  std::vector<double> score;  // [paths]; empty where no path is allowed
};
template <class T>
std::vector<Paths> nbest(const ChainInput<T>& in, const BeamRule* rule, i64 k, const Threads& threads);

}  // namespace crfkit
