// direction.hpp: a direction for products with the Hessian, as kernels read it.
#pragma once
#include "model/weights.hpp"
#include "train/kernels.hpp"

namespace crfkit {

template <class T>
class Direction {
 public:
  // weights: those of the point where the product is taken
  Direction(const Layout& layout, const Family& state, const Family& edge, const Weights<T>& weights, const double* v,
            const Threads& threads)
      : tables_(layout, state, edge, nullptr) {
    tables_.set(v, threads);
    weights.transitions.weigh(tables_.pairwise, 0.0, scored_, scored_t_);
    view_ = tables_.view();
    view_.w = v;
  }
  Direction(const Direction&) = delete;
  Direction& operator=(const Direction&) = delete;

  // Asks for the Hessian of log Z times v.
  void point(LossJob<T>& job) const {
    job.scored = scored_.data();
    job.scored_t = scored_t_.data();
    job.tangent = &view_;
    job.scale = -1;  // the gradient of the entropy is minus a covariance
  }

 private:
  Weights<T> tables_;
  Buffer<T> scored_, scored_t_;
  ModelView<T> view_;
};

}  // namespace crfkit
