// kernels.hpp: what the drivers of inference on segmentations ask of the kernels.
#pragma once
#include "base/instruction_set.hpp"
#include "chain/kernels.hpp"
#include "segment/ready_tables.hpp"

namespace crfkit {

template <class T>
struct SegmentJob : SegmentInput<T> {
  const ReadyTables<T>* tables = nullptr;
  SegmentSums<T> out;  // pairs, lengths and tail are added to
};

template <class T>
struct SegmentKernels {
  int lanes;  // numbers in a vector; rows are padded to a multiple
  std::unique_ptr<Workspace> (*workspace)();
  void (*sums)(const SegmentJob<T>&, const Pack&, Workspace&);

  int stride(int n_labels) const { return round_up(n_labels, lanes); }
};

CRFKIT_IN_EACH_SET(template <class T> const SegmentKernels<T>& segment_kernels(int n_labels);)

template <class T>
const SegmentKernels<T>& segment_kernels_for(int n_labels) {
  return CRFKIT_PICK_NARROW(segment_kernels<T>)(n_labels);
}

}  // namespace crfkit
