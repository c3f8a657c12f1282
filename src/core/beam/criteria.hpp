// criteria.hpp: beams of labels, what they are chosen by and what inference over them gives.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/base.hpp"

namespace crfkit {

// A rule that picks labels by their belief, unnormalised. The chosen ones are always the largest.
struct Criterion {
  enum class Kind : u8 {
    min_divergence,  // the fewest whose share of the belief is at least exp(-amount), at least `size` of them
    fixed_size,      // `size` of them
    threshold,       // those within exp(-amount) of the largest
  };
  Kind kind = Kind::fixed_size;
  double amount = 0;
  int size = 1;
  int most = 1 << 30;  // and never more than so many of them; what must be kept comes on top
};

struct BeamRule {
  Criterion criterion;
  const i32* keep = nullptr;  // a label that each token keeps, -1 for none  [tokens], or null
  enum class Form : u8 {
    frozen,    // beams by a walk forward, then exact within them
    smoothed,  // a walk back picks afresh, then exact within them
    paper,     // for study: the walk back gives the marginals, too (study.hpp)
  };
  Form form = Form::frozen;
  bool lenient = false;  // labels whose belief underflows need not be found
};

// Beams of one sequence, and what is known within them.
struct BeamResult {
  std::vector<u16> labels;       // of all steps, ascending within a step
  std::vector<std::size_t> ptr;  // first label of each step                   [steps + 1]
  std::vector<double> nodes;     // probabilities of the labels
  std::vector<std::size_t> edge_ptr;
  std::vector<double> edges;       // probabilities of label pairs, beam by beam, step after step
  std::vector<double> divergence;  // -log of the share of belief kept         [steps]
  double log_mass = 0;             // of all paths within the beams

  void start(int steps) {
    labels.clear();
    nodes.clear();
    edge_ptr.clear();
    edges.clear();
    divergence.clear();
    divergence.reserve(steps);
    ptr.assign(1, 0);
    log_mass = 0;
  }
  void end_step(double share) {
    ptr.push_back(labels.size());
    divergence.push_back(share > 0 ? -std::log(share) : 0.0);
  }
  // For results whose last step came first.
  void reverse() {
    reverse_runs(ptr, labels);
    reverse_runs(ptr, nodes);
    reverse_runs(edge_ptr, edges);
    std::reverse(divergence.begin(), divergence.end());
    for (std::vector<std::size_t>* first : {&ptr, &edge_ptr}) {
      std::reverse(first->begin(), first->end());
      for (std::size_t k = first->size(); k-- > 0;) (*first)[k] = first->front() - (*first)[k];
    }
  }
  std::size_t size(int t) const { return ptr[t + 1] - ptr[t]; }
  u16 label(int t, std::size_t k) const { return labels[ptr[t] + k]; }
  std::span<const u16> beam(int t) const { return {labels.data() + ptr[t], size(t)}; }
  std::span<const u16> last() const { return beam(static_cast<int>(ptr.size()) - 2); }

 private:
  // Runs of x, each in its order, from the last to the first.
  template <class X>
  static void reverse_runs(const std::vector<std::size_t>& first, std::vector<X>& x) {
    std::reverse(x.begin(), x.end());
    for (std::size_t k = 1; k < first.size() && !x.empty(); ++k)
      std::reverse(x.end() - first[k], x.end() - first[k - 1]);
  }
};

}  // namespace crfkit
