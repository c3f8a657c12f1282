// score_kernels.hpp: the scores of sequences, for decoding and for inference outside of training.
#pragma once
#include "model/kernels.hpp"
#include "model/scoring.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
struct ScoreWorkspace : Workspace {
  ModelRows<T, W> model;
  Buffer<T> init, row, step_scores;
};

template <class T, int W>
class ScoreKernel {
  static constexpr i64 kRows = 64;  // scored before they are copied to their place

 public:
  ScoreKernel(const ModelView<T>& model, const Tokens& data, Workspace& workspace)
      : model_(model),
        data_(data),
        ws_(static_cast<ScoreWorkspace<T, W>&>(workspace)),
        n_(model.layout->n_labels),
        stride_(model.stride) {}

  // unary: [tokens][labels], start and end weights included
  void score(std::pair<i64, i64> seqs, const i64* edge_first, T* unary, T* pairwise) {
    const i64 begin = data_.offsets[seqs.first], end = data_.offsets[seqs.second];
    ws_.init.assign(stride_, T(0));
    ws_.row.reserve(kRows * stride_);
    for (i64 first = begin; first < end; first += kRows) {
      const i64 rows = std::min(kRows, end - first);
      ws_.model.score(*model_.state, model_.state_table, model_.state_runs, data_.ptr, data_.attr, data_.value, first,
                      rows, ws_.init.data(), ws_.row.data());
      for (i64 r = 0; r < rows; ++r) std::copy_n(ws_.row.data() + r * stride_, n_, unary + (first + r) * n_);
    }
    for (i64 s = seqs.first; s < seqs.second; ++s) {
      const i64 first = data_.offsets[s], last = data_.offsets[s + 1] - 1;
      if (last < first) continue;
      for (int j = 0; j < n_; ++j) unary[first * n_ + j] += model_.start[j];
      for (int j = 0; j < n_; ++j) unary[last * n_ + j] += model_.end[j];
      if (!model_.layout->has_edges()) continue;
      for (i64 t = first + 1; t <= last; ++t) step(t, pairwise + (edge_first[s] + t - first - 1) * n_ * n_);
    }
  }

 private:
  // Scores of the transition into token t: shared ones plus what the input adds.   [labels][labels]
  void step(i64 t, T* out) {
    ws_.step_scores.reserve(n_ * stride_);
    ws_.model.score(*model_.edge, model_.edge_table, model_.edge_runs, data_.edge_ptr, data_.edge_attr, nullptr, t, 1,
                    model_.transitions->score.data(), ws_.step_scores.data());
    for (i64 i = 0; i < n_; ++i) std::copy_n(ws_.step_scores.data() + i * stride_, n_, out + i * n_);
  }

  const ModelView<T>& model_;
  const Tokens& data_;
  ScoreWorkspace<T, W>& ws_;
  const i64 n_, stride_;
};

}  // namespace crfkit::CRFKIT_ISA
