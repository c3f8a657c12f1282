// criteria.hpp: beams of labels, what they are chosen by and what inference over them gives.
#pragma once
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
    frozen,    // beams by the forward pass, then exact inside of them
    smoothed,  // a backward pass picks afresh, then exact inside of them
    paper,     // the backward pass picks afresh and gives the marginals of each step
  };
  Form form = Form::frozen;
  bool lenient = false;  // labels whose belief underflows need not be found
};

// Beams of one sequence, and what is known inside of them.
struct BeamResult {
  std::vector<u16> labels;       // of all steps, ascending within a step
  std::vector<std::size_t> ptr;  // first label of each step                   [steps + 1]
  std::vector<double> nodes;     // probabilities of the labels
  std::vector<std::size_t> edge_ptr;
  std::vector<double> edges;       // probabilities of label pairs, beam by beam, step after step
  std::vector<double> divergence;  // -log of the share of belief kept         [steps]
  double log_mass = 0;             // of all paths inside of the beams

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
  void start_edges() {
    edge_ptr.assign(1, 0);
    for (std::size_t t = 0; t + 2 < ptr.size(); ++t)
      edge_ptr.push_back(edge_ptr.back() + size(static_cast<int>(t)) * size(static_cast<int>(t) + 1));
    edges.assign(edge_ptr.back(), 0.0);
  }
  // The steps of another one, whose last step comes first; the mass stays.
  void take_reversed(const BeamResult& back) {
    const double mass = log_mass;
    const int steps = static_cast<int>(back.divergence.size());
    start(steps);
    log_mass = mass;
    for (int t = steps - 1; t >= 0; --t) {
      labels.insert(labels.end(), back.labels.begin() + back.ptr[t], back.labels.begin() + back.ptr[t + 1]);
      if (!back.nodes.empty())
        nodes.insert(nodes.end(), back.nodes.begin() + back.ptr[t], back.nodes.begin() + back.ptr[t + 1]);
      ptr.push_back(labels.size());
      divergence.push_back(back.divergence[t]);
    }
    if (back.edges.empty()) return;
    start_edges();
    for (int t = 0; t + 1 < steps; ++t)  // from the end of the others, which are not in need of pointers
      std::copy(back.edges.end() - edge_ptr[t + 1], back.edges.end() - edge_ptr[t], edges.begin() + edge_ptr[t]);
  }
  std::size_t size(int t) const { return ptr[t + 1] - ptr[t]; }
  u16 label(int t, std::size_t k) const { return labels[ptr[t] + k]; }
  std::span<const u16> beam(int t) const { return {labels.data() + ptr[t], size(t)}; }
  std::span<const u16> last() const { return beam(static_cast<int>(ptr.size()) - 2); }
};

}  // namespace crfkit
