// other_workspace.hpp: scratch memory of the losses that labels known in part, beams and second derivatives have.
#pragma once
#include "beam/beam_kernels.hpp"
#include "chain/entropy_kernels.hpp"
#include "train/beam_loss.hpp"
#include "train/loss_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
struct OtherLossWorkspace : LossWorkspace<T, W> {
  LocalRows<T, W> tangent_state, tangent_edge;
  PackCovariance<T, W> packed;
  SequenceWorkspace single;
  Buffer<T> scores, nodes;  // and gradients of a pack                 [rows][stride]
  Buffer<T> zeros;          // transitions that add nothing            [labels][stride]
  Buffer<double> counts;    // expected labels of groups               [groups][labels]
  BeamWorkspace<T> beam;
  BeamLossWorkspace<T> beam_loss;
  Buffer<T> unary;  // of one sequence                         [steps][labels]
};

}  // namespace crfkit::CRFKIT_ISA
