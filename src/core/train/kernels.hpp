// kernels.hpp: what training asks of the kernels: losses of blocks of data.
#pragma once
#include "base/single_precision.hpp"
#include "model/kernels.hpp"
#include "train/beam_block.hpp"

namespace crfkit {

// The loss of blocks of data and its gradient.
template <class T>
struct LossJob : ModelView<T> {
  const i64* offsets = nullptr;
  const double* seq_weight = nullptr;              // [sequences], or null: all one
  double scale = 1;                                // of all sequences, beside their weights
  const T *scored = nullptr, *scored_t = nullptr;  // m * (a - shift), for entropies; or null        [labels][stride]
  const ModelView<T>* tangent = nullptr;           // curvature: the direction; then scored is m * its transitions
  // out
  double* value = nullptr;
  double* g = nullptr;                                        // [layout.size]
  T *state_gradient = nullptr, *edge_gradient = nullptr;      // of the dense rows
  double* pair_gradient = nullptr;                            // expected minus gold transitions   [labels][labels]
  double *start_gradient = nullptr, *end_gradient = nullptr;  // [labels]
  Turns* turns = nullptr;
};

// What is known of the labels of a block's token rows.
template <class T>
struct KnownRows {
  const i32* label = nullptr;  // as in KnownLabels       [rows]
  const T* hints = nullptr;    // [hints][labels]
};

// The groups of tokens that a block's token rows belong to, of which something is expected.
template <class T>
struct GroupedRows {
  const i64* ptr = nullptr;    // [rows + 1]
  const i32* group = nullptr;  // row by row
  const T* table = nullptr;    // what a group adds to the scores of its rows' labels, or null   [groups][stride]
  T* scores = nullptr;         // where the scores of the rows are kept, or null                 [rows][stride]
  bool scored = false;         // whether they lie there already
};

template <class T>
struct LossKernels {
  std::unique_ptr<Workspace> (*workspace)();
  // gold: label of every token row of the block
  void (*loss)(const LossJob<T>&, const Block<T>&, const u16* gold, i64 task, Workspace&);
};

// Within beams, of labels that are known in part, and second derivatives. Rows are padded as for the kernel above;
// AVX-512 has none of these.
template <class T>
struct OtherLossKernels {
  std::unique_ptr<Workspace> (*workspace)();
  // the loss within beams, and how they are picked
  void (*beam_loss)(const LossJob<T>&, const BeamBlock<T>&, i64 task, Workspace&);
  void (*loss_beams)(const LossJob<T>&, const Block<T>&, const u16* gold, const Criterion&, const Beams& before,
                     BeamBlock<T>&, Workspace&);
  void (*partial)(const LossJob<T>&, const Block<T>&, const KnownRows<T>&, i64 task, Workspace&);
  void (*entropy)(const LossJob<T>&, const Block<T>&, i64 task, Workspace&);
  // Minus the covariance of the features with the direction's score: the Hessian of -log Z times the direction. With
  // known rows, that less the same of the paths that fit.
  void (*curvature)(const LossJob<T>&, const Block<T>&, const KnownRows<T>* known, i64 task, Workspace&);
  // log Z with what groups add to the scores; adds the expected labels of each group to counts [groups][labels]
  void (*expected)(const LossJob<T>&, const Block<T>&, const GroupedRows<T>&, std::vector<double>& counts, i64 task,
                   Workspace&);
  // Minus the covariance of the features with the sum of what groups add; there is no value.
  void (*covariance)(const LossJob<T>&, const Block<T>&, const GroupedRows<T>&, i64 task, Workspace&);
  // log Z less that with what groups add
  void (*divergence)(const LossJob<T>&, const Block<T>&, const GroupedRows<T>&, i64 task, Workspace&);
};

CRFKIT_IN_EACH_SET(template <class T> const LossKernels<T>& loss_kernels(int n_labels);
                   template <class T> const OtherLossKernels<T>& other_loss_kernels(int n_labels);)

template <class T>
const LossKernels<T>& loss_kernels_for(int n_labels) {
  return CRFKIT_PICK(T, loss_kernels<T>)(n_labels);
}
template <class T>
const OtherLossKernels<T>& other_loss_kernels_for(int n_labels) {
  return CRFKIT_PICK_SINGLE(T, other_loss_kernels<T>)(n_labels);
}

}  // namespace crfkit
