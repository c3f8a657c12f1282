// kernels.hpp: what the drivers ask of the kernels. The kernels are compiled once per instruction set;
// kernels_for picks the best one that this machine runs.
#pragma once
#include <memory>
#include <vector>

#include "base/parallel.hpp"
#include "beam/dominance.hpp"
#include "chain/pack.hpp"
#include "chain/transitions.hpp"
#include "model/features.hpp"
#include "train/beam_block.hpp"

namespace crfkit {

// Scratch memory of one thread.
struct Workspace {
  virtual ~Workspace() = default;
};

// Inference on given potentials. Transitions are shared by all steps (`shared`), or `pairwise` holds a
// matrix for every step; then packs are of one sequence each.
template <class T>
struct ChainJob {
  int n_labels = 0;
  int stride = 0;
  const i64* offsets = nullptr;     // first token of each sequence          [sequences + 1]
  const i64* edge_first = nullptr;  // first edge of each sequence           [sequences]
  const T* unary = nullptr;         // [tokens][labels]
  const T* pairwise = nullptr;      // [edges][labels][labels], or null
  const Transitions<T>* shared = nullptr;
  const Transitions<double>* shared_log = nullptr;
  double* log_z = nullptr;         // out [sequences]; minus infinity where no path is allowed
  T* nodes = nullptr;              // out [tokens][labels], or null
  T* edges = nullptr;              // out [edges][labels][labels], or null
  const double* weight = nullptr;  // factors of the sequences' nodes, edges and pairs, or null: all one
  double* pairs =
      nullptr;          // out, shared transitions: edges summed over the steps of the pack [labels][labels], or null
  i32* path = nullptr;  // out, decode: [tokens]; sample: [samples][tokens]
  u8* dead = nullptr;   // out, decode: 1 where no path is allowed        [sequences]
  i64 n_samples = 0;
  const double* uniform = nullptr;  // [samples][tokens]
  i64 n_seq = 0;
  i64 offsets_end() const { return offsets[n_seq]; }
};

// The negative log-likelihood of blocks of data and its gradient.
template <class T>
struct LossJob {
  const Layout* layout = nullptr;
  const Family *state = nullptr, *edge = nullptr;
  int stride = 0;
  const i64* offsets = nullptr;
  const double* w = nullptr;                                      // [layout.size]
  const T *state_table = nullptr, *edge_table = nullptr;          // dense rows
  const RunWeight<T>*state_runs = nullptr, *edge_runs = nullptr;  // all weights, to score without blocks
  const Transitions<T>* transitions = nullptr;
  const Transitions<double>* log_transitions = nullptr;
  const T *start = nullptr, *end = nullptr;  // [stride] each, zero where the model has none
  const double* forbidden = nullptr;         // 0 or minus infinity       [labels][labels]
  const double* seq_weight = nullptr;        // [sequences], or null: all one
  // out
  double* value = nullptr;
  double* g = nullptr;                                        // [layout.size]
  T *state_gradient = nullptr, *edge_gradient = nullptr;      // of the dense rows
  double* pair_gradient = nullptr;                            // expected minus gold transitions   [labels][labels]
  double *start_gradient = nullptr, *end_gradient = nullptr;  // [labels]
  Turns* turns = nullptr;
};

template <class T>
struct Kernels {
  int lanes;  // numbers in a vector; rows are padded to a multiple
  std::unique_ptr<Workspace> (*workspace)();
  void (*sum_product)(const ChainJob<T>&, const Pack&, Workspace&);
  void (*decode)(const ChainJob<T>&, const Pack&, Workspace&);
  void (*sample)(const ChainJob<T>&, const Pack&, Workspace&);
  void (*beam_sum_product)(const ChainJob<T>&, const BeamRule&, i64 seq, BeamResult&, Workspace&);
  void (*beam_choose)(const ChainJob<T>&, const BeamRule&, i64 seq, BeamResult&, Workspace&);
  bool (*undominated)(const ChainJob<T>&, const Dominance<T>&, i64 seq, BeamResult&, Workspace&);
  // gold: label of every token row of the block
  void (*loss)(const LossJob<T>&, const Block<T>&, const u16* gold, i64 task, Workspace&);
  // the same inside of beams, and how they are picked
  void (*beam_loss)(const LossJob<T>&, const BeamBlock<T>&, i64 task, Workspace&);
  void (*loss_beams)(const LossJob<T>&, const Block<T>&, const u16* gold, const Criterion&, const Beams& before,
                     BeamBlock<T>&, Workspace&);
  // Scores of sequences [first, second). unary: [tokens][labels]; pairwise: [edges][labels][labels] or null
  void (*score)(const LossJob<T>&, const Tokens&, std::pair<i64, i64> seqs, const i64* edge_first, T* unary,
                T* pairwise, Workspace&);

  int stride(int n_labels) const { return round_up(n_labels, lanes); }
};

// The name of the instruction set in use: the best one that this machine has, or what CRFKIT_ISA in the environment
// asks for.
const char* instruction_set();

template <class T>
const Kernels<T>& kernels_for(int n_labels);

struct VectorKernels {
  double (*dot)(const double* a, const double* b, i64 n);
  double (*dot_single)(const float* a, const float* b, i64 n);
  double (*dot_mixed)(const float* a, const double* b, i64 n);
  // d += sum of c[r] row[r]
  void (*add_rows)(const double* c, const float* const* row, int n_rows, double* d, i64 n);
};

const VectorKernels& vector_kernels();

}  // namespace crfkit
