// transitions.hpp: transition scores that all steps share, made ready for the kernels.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/base.hpp"

namespace crfkit {

template <class T>
struct Transitions {
  i64 n_labels = 0;
  i64 stride = 0;             // n_labels, padded to whole vectors
  Buffer<T> score;            // log-scores                       [n_labels][stride], pads -inf
  Buffer<T> score_t;          // transposed                       [n_labels][stride], pads -inf
  Buffer<T> m;                // exp(score - shift)               [n_labels][stride], pads 0
  Buffer<T> m_t;              // transposed                       [n_labels][stride], pads 0
  std::vector<double> exact;  // log-scores as m has them after rounding; what m lost keeps its own [n_labels][n_labels]
  double shift = 0;           // largest finite score
  double range = std::numeric_limits<double>::infinity();  // at least the largest less the smallest score; infinite if
                                                           // some transition is forbidden
  bool has_zeros = false;                                  // some transition is forbidden
  bool lossy = false;       // some allowed transition is too small for T beside the largest
  std::vector<u64> before;  // labels that may come before j, as bits  [n_labels][words]

  i64 words() const { return (n_labels + 63) / 64; }

  template <class S>
  void prepare(const S* pairwise, i64 labels, i64 padded) {
    prepare_scores(pairwise, labels, padded);
    for (Buffer<T>* b : {&m, &m_t}) b->assign(labels * padded, T(0));
    double top = -std::numeric_limits<double>::infinity(), bottom = -top;
    for (i64 k = 0; k < labels * labels; ++k) {
      top = std::max(top, double{pairwise[k]});
      bottom = std::min(bottom, double{pairwise[k]});
    }
    shift = std::isfinite(top) ? top : 0;
    range = shift - bottom;
    has_zeros = lossy = false;
    exact.resize(labels * labels);
    before.assign(labels * words(), 0);
    for (i64 i = 0; i < labels; ++i) {
      for (i64 j = 0; j < labels; ++j) {
        const double a = pairwise[i * labels + j];
        T e = T(std::exp(a - shift));
        if (e < std::numeric_limits<T>::min()) e = 0;
        m[i * padded + j] = e;
        exact[i * labels + j] = e > 0 ? shift + std::log(double{e}) : a;
        if (std::isfinite(a)) {
          before[j * words() + i / 64] |= u64{1} << (i % 64);
          lossy |= e == 0;
        } else {
          has_zeros = true;
        }
      }
    }
    transpose(m, m_t);
  }

  // All that max-product needs.
  template <class S>
  void prepare_scores(const S* pairwise, i64 labels, i64 padded) {
    n_labels = labels;
    stride = padded;
    for (Buffer<T>* b : {&score, &score_t}) b->assign(labels * padded, -std::numeric_limits<T>::infinity());
    for (i64 i = 0; i < labels; ++i)
      for (i64 j = 0; j < labels; ++j) score[i * padded + j] = T(pairwise[i * labels + j]);
    transpose(score, score_t);
  }

  // n = m (x - by) for pairs of labels, and its transpose   [labels][stride], pads 0; x: [labels][labels]
  void weigh(const std::vector<double>& x, double by, Buffer<T>& n, Buffer<T>& n_t) const {
    for (Buffer<T>* b : {&n, &n_t}) b->assign(n_labels * stride, T(0));
    for (i64 i = 0; i < n_labels; ++i)
      for (i64 j = 0; j < n_labels; ++j) {
        const T e = m[i * stride + j];
        if (!(e > 0)) continue;
        n[i * stride + j] = n_t[j * stride + i] = T(e * (x[i * n_labels + j] - by));
      }
  }

  // Square by square: whole columns of many labels would miss the cache at every step.
  void transpose(const Buffer<T>& x, Buffer<T>& out) const {
    constexpr i64 kSquare = 16;
    for (i64 i0 = 0; i0 < n_labels; i0 += kSquare)
      for (i64 j0 = 0; j0 < n_labels; j0 += kSquare)
        for (i64 i = i0; i < std::min(n_labels, i0 + kSquare); ++i)
          for (i64 j = j0; j < std::min(n_labels, j0 + kSquare); ++j) out[j * stride + i] = x[i * stride + j];
  }
};

}  // namespace crfkit
