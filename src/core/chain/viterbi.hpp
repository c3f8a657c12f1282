// viterbi.hpp: the best path of every sequence in a pack.
//
//   v[t][j] = u[t][j] + max_i (v[t-1][i] + a[i][j])
//
// Only v is kept; the way back finds again, for the one label it stands on, which i gave the maximum
// (the smallest such i). Each row is shifted so that its maximum is zero: a million steps lose no digits.
#pragma once
#include "chain/scaled_lattice.hpp"

namespace crfkit::CRFKIT_ISA {

// The transitions of a pack for max-product: shared by all steps, or given by fill(t, a) as in Steps.
template <class T, int W>
class MaxSteps {
 public:
  using Fill = typename Steps<T, W>::Fill;
  explicit MaxSteps(const Transitions<T>& transitions)
      : n_labels_(transitions.n_labels),
        stride_(transitions.stride),
        score_(transitions.score.data()),
        score_t_(transitions.score_t.data()) {}
  // Shared, but not transposed: for one way back, a column here and there is less than all of them.
  MaxSteps(i64 n_labels, i64 stride, const T* score)
      : n_labels_(n_labels), stride_(stride), score_(score), column_(n_labels) {}
  MaxSteps(i64 n_labels, i64 stride, Fill fill)
      : n_labels_(n_labels), stride_(stride), fill_(fill), a_(n_labels * stride), column_(n_labels) {}
  // out[j] = max_i (x[i] + a[t][i][j]), for n rows
  void push(int t, const T* x, int n, T* out) {
    rows_times<T, W, MaxPlus<T, W>>(x, n, matrix(t), n_labels_, stride_, out);
  }
  // The scores a[t][.][j] of all labels before j
  const T* score_into(int t, int j) {
    if (score_t_) return score_t_ + j * stride_;
    const T* a = matrix(t);
    for (int i = 0; i < n_labels_; ++i) column_[i] = a[i * stride_ + j];
    return column_.data();
  }

 private:
  const T* matrix(int t) {
    if (score_) return score_;
    fill_(t, a_.data());
    return a_.data();
  }

  i64 n_labels_, stride_;
  const T *score_ = nullptr, *score_t_ = nullptr;
  Fill fill_;
  Buffer<T> a_, column_;
};

template <class T, int W>
class Viterbi {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;

 public:
  Buffer<T> v;  // in: scores u, out: v   [rows][stride], pads -inf

  void start(const Pack& pack, i64 n_labels, i64 stride) {
    n_labels_ = n_labels;
    stride_ = stride;
    v.reserve(pack.rows() * stride);
    best_.reserve(kPackWidth * stride);
  }

  CRFKIT_KERNEL void forward(const Pack& pack, MaxSteps<T, W>& steps) {
    for (int t = 0; t < pack.steps(); ++t) {  // recursion: viterbi
      const int n = pack.active(t);
      T* row = v.data() + pack.first[t] * stride_;
      if (t > 0) steps.push(t - 1, v.data() + pack.first[t - 1] * stride_, n, best_.data());
      for (int s = 0; s < n; ++s) {
        T* x = row + s * stride_;
        const T* best = best_.data() + s * stride_;
        Vec top = S::splat(-std::numeric_limits<T>::infinity());
        for (int k = 0; k < stride_; k += W) {
          Vec y = S::load(x + k);
          if (t > 0) y += S::load(best + k);
          S::store(x + k, y);
          top = S::max(top, y);
        }
        const T high = S::highest(top);
        if (!(high > -std::numeric_limits<T>::infinity())) continue;  // dead: stays minus infinity
        for (int k = 0; k < stride_; k += W) S::store(x + k, S::load(x + k) - high);
      }
    }
  }

  // Writes the best labels of sequence s; false when no path is allowed.
  bool trace(const Pack& pack, int s, MaxSteps<T, W>& steps, i32* path) const {
    int last = pack.steps() - 1;
    while (s >= pack.active(last)) --last;
    int j = highest(v.data() + pack.row(last, s) * stride_, nullptr);
    if (j < 0) return false;
    for (int t = last;; --t) {
      path[t] = j;
      if (t == 0) return true;
      j = highest(v.data() + pack.row(t - 1, s) * stride_, steps.score_into(t - 1, j));
    }
  }

 private:
  int highest(const T* x, const T* y) const {
    T top = -std::numeric_limits<T>::infinity();
    int best = -1;
    for (int i = 0; i < n_labels_; ++i) {
      const T z = y ? x[i] + y[i] : x[i];
      if (z > top) {
        top = z;
        best = i;
      }
    }
    return best;
  }

  i64 n_labels_ = 0, stride_ = 0;
  Buffer<T> best_;
};

// in kernels.cpp
#define CRFKIT_EXTERN(T, W)             \
  extern template class MaxSteps<T, W>; \
  extern template class Viterbi<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_EXTERN)
#undef CRFKIT_EXTERN

}  // namespace crfkit::CRFKIT_ISA
