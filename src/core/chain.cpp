#include "chain.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <queue>

#include "kernels.hpp"

namespace crfkit {

std::vector<i64> edge_offsets(const i64* offsets, i64 n_seq) {
  std::vector<i64> first(n_seq + 1, 0);
  for (i64 s = 0; s < n_seq; ++s) first[s + 1] = first[s] + std::max<i64>(0, offsets[s + 1] - offsets[s] - 1);
  return first;
}

namespace {

constexpr i64 kWindow = 512;  // sequences sorted by length together

// Cuts the sequences into packs and runs `kernel` on them; job is complete but for the input.
template <class T, class Kernel>
void run(const ChainInput<T>& in, const Threads& threads, ChainJob<T> job, Kernel kernel) {
  const Kernels<T>& kernels = kernels_for<T>(in.n_labels);
  const std::vector<i64> edge_first = edge_offsets(in.offsets, in.n_seq);
  Transitions<T> shared;
  Transitions<double> shared_log;
  job.n_labels = in.n_labels;
  job.stride = kernels.stride(in.n_labels);
  job.n_seq = in.n_seq;
  job.offsets = in.offsets;
  job.edge_first = edge_first.data();
  job.unary = in.unary;
  if (in.per_step) {
    job.pairwise = in.pairwise;
  } else {
    shared.prepare(in.pairwise, in.n_labels, job.stride);
    shared_log.prepare(in.pairwise, in.n_labels, round_up(in.n_labels, 4));
    job.shared = &shared;
    job.shared_log = &shared_log;
  }
  std::vector<Pack> packs;
  for (i64 s = 0; s < in.n_seq; s += kWindow)
    for (Pack& pack : make_packs(in.offsets, s, std::min(in.n_seq, s + kWindow), in.per_step ? 1 : kPackWidth))
      packs.push_back(std::move(pack));
  std::vector<std::unique_ptr<Workspace>> workspaces(threads.count);
  parallel_for(static_cast<i64>(packs.size()), threads.count, threads.poll, [&](i64 task, int thread) {
    if (!workspaces[thread]) workspaces[thread] = kernels.workspace();
    (kernels.*kernel)(job, packs[task], *workspaces[thread]);
  });
}

}  // namespace

template <class T>
void sum_product(const ChainInput<T>& in, const Threads& threads, double* log_z, T* nodes, T* edges) {
  std::fill_n(log_z, in.n_seq, 0.0);  // an empty sequence has one labelling, with score 0
  ChainJob<T> job;
  job.log_z = log_z;
  job.nodes = nodes;
  job.edges = edges;
  run(in, threads, job, &Kernels<T>::sum_product);
}

template <class T>
void decode(const ChainInput<T>& in, const Threads& threads, i32* path, u8* dead) {
  std::fill_n(dead, in.n_seq, u8{0});
  ChainJob<T> job;
  job.path = path;
  job.dead = dead;
  run(in, threads, job, &Kernels<T>::decode);
}

template <class T>
void sample(const ChainInput<T>& in, const Threads& threads, i64 n_samples, const double* uniform, double* log_z,
            i32* path) {
  std::fill_n(log_z, in.n_seq, 0.0);
  ChainJob<T> job;
  job.log_z = log_z;
  job.path = path;
  job.n_samples = n_samples;
  job.uniform = uniform;
  run(in, threads, job, &Kernels<T>::sample);
}

// best[t][j]: the k best ways to reach label j at step t, each the score, the label before and its rank there.
// The ways into j are merged from the sorted lists of all labels i, whose heads wait in a heap.
template <class T>
i64 nbest(const ChainInput<T>& in, i64 seq, i64 k, i32* path, double* score) {
  struct Way {
    double score;
    i32 label, rank;
  };
  const auto worse = [](const Way& a, const Way& b) {
    return a.score < b.score || (a.score == b.score && (a.label > b.label || (a.label == b.label && a.rank > b.rank)));
  };
  using Heap = std::priority_queue<Way, std::vector<Way>, decltype(worse)>;
  constexpr double inf = std::numeric_limits<double>::infinity();
  const i64 begin = in.offsets[seq], steps = in.offsets[seq + 1] - begin, n = in.n_labels;
  if (steps == 0) {
    if (k > 0) score[0] = 0;
    return std::min<i64>(k, 1);
  }
  const i64 edge = in.per_step ? edge_offsets(in.offsets, in.n_seq)[seq] : 0;
  std::vector<std::vector<Way>> best(steps * n);
  // Pops the k best of the lists in `from`, adding extra(i) to list i.
  const auto merge = [&](const std::vector<Way>* from, auto extra, std::vector<Way>& out) {
    Heap heap(worse);
    for (i32 i = 0; i < n; ++i)
      if (!from[i].empty() && extra(i) > -inf) heap.push({from[i][0].score + extra(i), i, 0});
    while (!heap.empty() && static_cast<i64>(out.size()) < k) {
      const Way way = heap.top();
      heap.pop();
      out.push_back(way);
      const auto& list = from[way.label];
      if (way.rank + 1 < static_cast<i32>(list.size()))
        heap.push({list[way.rank + 1].score + extra(way.label), way.label, way.rank + 1});
    }
  };
  for (i64 t = 0; t < steps; ++t) {
    const T* a = in.pairwise + (in.per_step ? (edge + t - 1) * n * n : 0);
    for (i64 j = 0; j < n; ++j) {
      const double u = static_cast<double>(in.unary[(begin + t) * n + j]);
      if (!(u > -inf)) continue;
      auto& ways = best[t * n + j];
      if (t == 0) {
        ways.push_back({u, -1, 0});
      } else {
        merge(&best[(t - 1) * n], [&](i32 i) { return static_cast<double>(a[i * n + j]) + u; }, ways);
      }
    }
  }
  std::vector<Way> ends;
  merge(&best[(steps - 1) * n], [](i32) { return 0.0; }, ends);
  for (std::size_t r = 0; r < ends.size(); ++r) {
    score[r] = ends[r].score;
    Way at = ends[r];
    for (i64 t = steps - 1; t >= 0; --t) {
      path[static_cast<i64>(r) * steps + t] = at.label;
      at = best[t * n + at.label][at.rank];
    }
  }
  return static_cast<i64>(ends.size());
}

#define CRFKIT_INSTANTIATE(T)                                                                              \
  template void sum_product(const ChainInput<T>&, const Threads&, double*, T*, T*);                        \
  template void decode(const ChainInput<T>&, const Threads&, i32*, u8*);                                   \
  template void sample(const ChainInput<T>&, const Threads&, i64, const double*, double*, i32*);           \
  template i64 nbest(const ChainInput<T>&, i64, i64, i32*, double*);
CRFKIT_INSTANTIATE(float)
CRFKIT_INSTANTIATE(double)
#undef CRFKIT_INSTANTIATE

}  // namespace crfkit
