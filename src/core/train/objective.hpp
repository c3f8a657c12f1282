// objective.hpp: the negative log-likelihood of a data set and its gradient; scores of a data set.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "chain/chain.hpp"
#include "model/features.hpp"
#include "train/kernels.hpp"

namespace crfkit {

// The dense rows of a model for one weight vector, and its transitions.
template <class T>
class Weights {
 public:
  Weights(const Layout& layout, const Family& state, const Family& edge, const double* constraints);
  void set(const double* w, const Threads& threads);
  // only what inference inside of beams reads
  void set_ends(const double* w);
  // fills in what the kernels read
  void point(LossJob<T>& job) const;

  Transitions<T> transitions;
  std::vector<double> pairwise;  // [labels][labels]

 private:
  const Layout& layout_;
  const Family &state_, &edge_;
  std::vector<double> forbidden_;  // 0 or minus infinity: transitions, start, end
  Transitions<double> log_transitions_;
  Buffer<T> state_table_, edge_table_, start_, end_;
};

// What blocks add their gradients to, and in which order.
template <class T>
class GradientSum {
 public:
  GradientSum(const Layout& layout, const Family& state, const Family& edge)
      : layout_(layout), state_(state), edge_(edge) {}
  // Zero, and written into the job. ends_only: inside of beams, whose blocks add to the gradient themselves otherwise.
  void start(int threads, bool ends_only, LossJob<T>& job);
  // body(task, thread) for all tasks
  void run(i64 n_tasks, const Threads& threads, FunctionRef<void(i64, int)> body);
  // Adds it all to g.
  void collect(const Threads& threads, double* g) const;

 private:
  const Layout& layout_;
  const Family &state_, &edge_;
  Buffer<T> state_table_, edge_table_;
  std::vector<double> pairs_, start_, end_;
  std::unique_ptr<Turns> turns_;
};

// sum over sequences of weight * (log Z - score of the gold path), plus c2 |w|^2.
template <class T>
class Objective {
 public:
  // gold [tokens]; seq_weight [n_seq] or null. constraints: [labels][labels] transitions, then start and end, 0 where
  // allowed and minus infinity where not; or null.
  Objective(std::shared_ptr<const Layout> layout, const Tokens& data, const i32* gold, const double* seq_weight,
            const double* constraints, const Threads& threads);
  // Inside of the beams, once some are chosen.
  double value_and_grad(const double* w, double c2, double* g, const Threads& threads);
  // out: the Hessian at w times v, with all labels
  void hessian_product(const double* w, const double* v, double c2, double* out, const Threads& threads);
  i64 size() const { return layout_->size; }

  // Beams of labels for each token, the gold label among them; they stay until they are chosen again or dropped.
  struct BeamSizes {
    i64 tokens = 0, labels = 0, largest = 0;
    i64 fresh = 0;       // labels that the criterion alone would give
    double squares = 0;  // sum of the beams' squared sizes
  };
  // grow: labels that were in the beams before stay in them
  BeamSizes choose_beams(const double* w, const Criterion& criterion, bool grow, const Threads& threads);
  // Those that one block would get.
  BeamSizes beam_sizes(const double* w, i64 block, const Criterion& criterion, const Threads& threads);
  void drop_beams();
  std::pair<i64, i64> block_size(i64 block) const;  // tokens, sequences
  bool has_beams() const { return !beams_.empty(); }
  i64 n_blocks() const { return static_cast<i64>(blocks_.size()); }
  // Unpenalised value and gradient of one block: with all labels, or inside of the beams.
  double block_value_and_grad(const double* w, i64 block, bool beams, double* g, const Threads& threads);

 private:
  // Callers on several threads take turns: the buffers are shared.
  std::mutex lock_;
  static BeamSizes sizes(const std::vector<BeamBlock<T>>& blocks);
  std::vector<BeamBlock<T>> chosen(const double* w, i64 first, i64 last, const Criterion& criterion,
                                   const std::vector<Beams>& before, const Threads& threads);
  double run(const double* w, i64 first, i64 last, bool beams, double* g, const Threads& threads);
  void point(const double* w, LossJob<T>& job) const;

  const std::shared_ptr<const Layout> layout_;
  const Kernels<T>& kernels_;
  Family state_, edge_;
  Weights<T> weights_;
  GradientSum<T> sum_;
  std::vector<i64> offsets_;
  std::vector<double> seq_weight_;
  std::vector<Block<T>> blocks_;
  std::vector<std::vector<u16>> gold_;                                      // per block, [token rows]
  std::vector<BeamBlock<T>> beams_;                                         // per block, or none
  std::vector<std::unique_ptr<Workspace>> workspaces_, second_workspaces_;  // the latter of Hessian products
};

// Potentials of data under a fixed weight vector.
template <class T>
class Scorer {
 public:
  Scorer(std::shared_ptr<const Layout> layout, const double* w, const double* constraints, const Threads& threads);
  // unary [tokens][labels], start and end weights included; pairwise [edges][labels][labels], needed only if
  // per_step()
  void score(const Tokens& data, const Threads& threads, T* unary, T* pairwise) const;
  bool per_step() const { return layout_->has_edges(); }
  int n_labels() const { return layout_->n_labels; }
  // [labels][labels], where the transitions do not look at the input
  const std::vector<double>& pairwise() const { return weights_.pairwise; }

 private:
  const std::shared_ptr<const Layout> layout_;
  const Kernels<T>& kernels_;
  Family state_, edge_;
  std::vector<RunWeight<T>> state_runs_, edge_runs_;
  Weights<T> weights_;
};

}  // namespace crfkit
