// study.hpp: for study, not for use: the marginals of beams as the paper's backward pass gives them.
//
// For use there is the exact solution within the beams, frozen_lattice.hpp. Here each step, and each transition, is
// normalised on its own; they need not agree with each other.
#pragma once
#include "beam/walk.hpp"

namespace crfkit::CRFKIT_ISA {

// Divides what was added after `first` by its sum.
inline void normalise_from(std::size_t first, std::vector<double>& p) {
  double total = 0;
  for (std::size_t k = first; k < p.size(); ++k) total += p[k];
  for (std::size_t k = first; k < p.size(); ++k) p[k] /= total;
}

// Adds the marginals of a step that a backward walk has just picked a beam for, and those of the transition from it to
// the labels of `next`, whose messages are the walk's. alpha: forward messages; score(i, j): of the transition.
template <class T, int W, class Score>
void add_paper_marginals(const BeamWalk<T, W>& walk, std::span<const u16> beam, std::span<const u16> next,
                         const T* alpha, Score score, BeamResult& out) {
  const std::size_t first_node = out.nodes.size(), first_edge = out.edges.size();
  for (u16 i : beam) out.nodes.push_back(double{walk.belief[i]});
  normalise_from(first_node, out.nodes);
  double high = -std::numeric_limits<double>::infinity();
  for (u16 i : beam)
    for (u16 j : next) high = std::max(high, score(i, j));
  for (u16 i : beam)
    for (std::size_t k = 0; k < next.size(); ++k)
      out.edges.push_back(double{alpha[i]} * double{walk.kept[k]} * std::exp(score(i, next[k]) - high));
  normalise_from(first_edge, out.edges);
  out.edge_ptr.push_back(out.edges.size());
}

}  // namespace crfkit::CRFKIT_ISA
