// workspaces.hpp: what all drivers of inference on chains share: tables made ready, packs, a workspace per thread.
#pragma once
#include <algorithm>
#include <vector>

#include "chain/kernels.hpp"

namespace crfkit {

constexpr i64 kWindow = 512;  // sequences sorted by length together

// A job whose input is filled in, and the tables that it points to.
template <class T>
struct Prepared {
  // max_only: for max-product, which needs no more than the scores
  Prepared(const ChainInput<T>& in, ChainJob<T> given, bool max_only = false)
      : kernels(chain_kernels_for<T>(in.n_labels)), edge_first(edge_offsets(in.offsets, in.n_seq)), job(given) {
    static_cast<ChainInput<T>&>(job) = in;
    job.stride = kernels.stride(in.n_labels);
    job.edge_first = edge_first.data();
    if (in.per_step) return;
    job.shared = &shared;
    if (max_only) shared.prepare_scores(in.pairwise, in.n_labels, job.stride);
    else shared.prepare(in.pairwise, in.n_labels, job.stride);
  }
  Prepared(const Prepared&) = delete;

  const ChainKernels<T>& kernels;
  const std::vector<i64> edge_first;
  Transitions<T> shared;
  ChainJob<T> job;
};

// Runs body(task, workspace) for all tasks, with a workspace per thread, made by make().
template <class Make, class Body>
void with_workspaces(Make make, i64 n_tasks, const Threads& threads, Body body) {
  std::vector<decltype(make())> workspaces(threads.count);
  parallel_for(n_tasks, threads.count, threads.poll, [&](i64 task, int thread) {
    if (!workspaces[thread]) workspaces[thread] = make();
    body(task, *workspaces[thread]);
  });
}

template <class T>
std::vector<Pack> all_packs(const ChainInput<T>& in) {
  std::vector<Pack> packs;
  for (i64 s = 0; s < in.n_seq; s += kWindow)
    for (Pack& pack : make_packs(in.offsets, s, std::min(in.n_seq, s + kWindow), in.per_step ? 1 : kPackWidth))
      packs.push_back(std::move(pack));
  return packs;
}

}  // namespace crfkit
