// semi_objective.hpp: the loss of sequences whose labels are not all known.
#pragma once
#include "train/block_objective.hpp"

namespace crfkit {

// Loss of sequences without gold paths: for the first n_partial of them, of which labels are known in part,
//
//   weight * (log Z - log Z of the paths that fit, or of all with what is known as further scores)
//
// and for the others weight * entropy.
template <class T>
class SemiObjective : public BlockObjective<T> {
  using Base = BlockObjective<T>;
  using Base::blocks_, Base::layout_, Base::lock_, Base::other_, Base::weights_;

 public:
  SemiObjective(std::shared_ptr<const Layout> layout, const Tokens& data, i64 n_partial, const KnownLabels& known,
                const double* seq_weight, const double* constraints, const Threads& threads);
  struct Value {
    double partial = 0, entropy = 0;  // the entropy without entropy_weight
  };
  // Adds the gradient of partial + entropy_weight * entropy to g.
  Value add(const double* w, double entropy_weight, double* g, const Threads& threads);
  // Adds its Hessian at w times v to out; the entropy's part is a central difference of gradients.
  void add_hessian_product(const double* w, const double* v, double entropy_weight, double* out,
                           const Threads& threads);

 private:
  KnownRows<T> known(i64 block) const { return {known_[block].data(), hints_.data()}; }
  Value run(const double* w, i64 first, double entropy_weight, double* g, const Threads& threads);

  i64 partial_blocks_ = 0;
  std::vector<std::vector<i32>> known_;  // per partial block: labels or hints of the token rows
  std::vector<T> hints_;
  Buffer<T> scored_, scored_t_;
};

}  // namespace crfkit
