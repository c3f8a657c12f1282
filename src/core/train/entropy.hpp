// entropy.hpp: entropies of chains, and the loss of sequences whose labels are not all known.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "chain/chain.hpp"
#include "train/kernels.hpp"
#include "train/objective.hpp"

namespace crfkit {

// What entropies are made of. Null where not wanted; left as it is where no path is allowed.
template <class T>
struct EntropyOut {
  double* log_z = nullptr;         // [n_seq]
  double* entropy = nullptr;       // [n_seq]
  double* node_entropy = nullptr;  // H(y_t)                    [tokens]
  double* step_entropy = nullptr;  // H(y_t+1 | y_t)            [edges]
  T* unary = nullptr;              // d H / d unary             [tokens][labels]
  T* pairwise = nullptr;           // d H / d pairwise          [edges][labels][labels], or their sum [labels][labels]
  double *before = nullptr, *behind = nullptr;  // H(y_<t | y_t), H(y_>t | y_t)   [tokens][labels]
};

// Either the gradient, or the entropies of nodes and steps, or the lattices.
template <class T>
void entropies(const ChainInput<T>& in, const Threads& threads, const EntropyOut<T>& out);

template <class T>
struct EntropyJob : ChainJob<T> {
  EntropyOut<T> out;
  const T *scored = nullptr, *scored_t = nullptr;  // m * (a - shift) of shared transitions   [labels][stride]
};

template <class T>
struct SemiJob : LossJob<T> {
  const T *scored = nullptr, *scored_t = nullptr;
  double scale = 1;                     // of all sequences, beside their weights
  const LossJob<T>* tangent = nullptr;  // curvature: the direction's tables; then scored is m * its transitions
};

template <class T>
struct EntropyKernels {
  std::unique_ptr<Workspace> (*workspace)();
  // pairs: sum of d H / d pairwise over the pack, where transitions are shared   [labels][labels]
  void (*chain)(const EntropyJob<T>&, const Pack&, double* pairs, Workspace&);
  // masks: allowed labels of every token row, as bits [rows][words]
  void (*partial)(const SemiJob<T>&, const Block<T>&, const u64* masks, i64 task, Workspace&);
  void (*entropy)(const SemiJob<T>&, const Block<T>&, i64 task, Workspace&);
  // Minus the covariance of the features with the direction's score: the Hessian of -log Z times the direction. With
  // masks, that less the same of the paths that fit.
  void (*curvature)(const SemiJob<T>&, const Block<T>&, const u64* masks, i64 task, Workspace&);
};

// The kernels for vectors as wide as those of kernels_for.
template <class T>
const EntropyKernels<T>& entropy_kernels_for(int lanes);

// n = m (x - shift) for pairs of labels, and its transpose   [labels][stride], pads 0; x: [labels][labels]
template <class T>
void weigh_pairs(const Transitions<T>& a, const std::vector<double>& x, double shift, Buffer<T>& n, Buffer<T>& n_t);

// A direction v for Hessian products, as kernels read it.
template <class T>
class Direction {
 public:
  // weights: those of the point where the product is taken
  Direction(const Layout& layout, const Family& state, const Family& edge, const Weights<T>& weights, const double* v,
            const Threads& threads);
  Direction(const Direction&) = delete;
  Direction& operator=(const Direction&) = delete;
  // Asks for the Hessian of log Z times v.
  void point(SemiJob<T>& job) const;

 private:
  Weights<T> tables_;
  Buffer<T> scored_, scored_t_;
  LossJob<T> job_;
};

// Loss of sequences without gold paths: for the first n_partial of them, of which labels are known in part,
//
//   weight * (log Z - log Z of the paths that fit)
//
// and for the others weight * entropy.
template <class T>
class SemiObjective {
 public:
  // allowed: [tokens of the partial sequences][labels]
  SemiObjective(std::shared_ptr<const Layout> layout, const Tokens& data, i64 n_partial, const u8* allowed,
                const double* seq_weight, const double* constraints, const Threads& threads);
  struct Value {
    double partial = 0, entropy = 0;  // the entropy without entropy_weight
  };
  // Adds the gradient of partial + entropy_weight * entropy to g.
  Value add(const double* w, double entropy_weight, double* g, const Threads& threads);
  // Adds its Hessian at w times v to out; the entropy's part is a central difference of gradients.
  void add_hessian_product(const double* w, const double* v, double entropy_weight, double* out,
                           const Threads& threads);
  i64 size() const { return layout_->size; }

 private:
  Value run(const double* w, i64 first, double entropy_weight, double* g, const Threads& threads);
  void point(const double* w, double* value, double* g, int threads, SemiJob<T>& job);

  std::mutex lock_;
  const std::shared_ptr<const Layout> layout_;
  const Kernels<T>& kernels_;
  const EntropyKernels<T>& entropy_kernels_;
  Family state_, edge_;
  Weights<T> weights_;
  GradientSum<T> sum_;
  std::vector<i64> offsets_;
  std::vector<double> seq_weight_;
  std::vector<Block<T>> blocks_;
  i64 partial_blocks_ = 0;
  std::vector<std::vector<u64>> masks_;  // per partial block  [token rows][words]
  Buffer<T> scored_, scored_t_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
};

}  // namespace crfkit
