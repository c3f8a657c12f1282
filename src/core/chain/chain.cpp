#include "chain/chain.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <queue>

#include "chain/expectations.hpp"
#include "train/kernels.hpp"

namespace crfkit {

std::vector<i64> edge_offsets(const i64* offsets, i64 n_seq) {
  std::vector<i64> first(n_seq + 1, 0);
  for (i64 s = 0; s < n_seq; ++s) first[s + 1] = first[s] + std::max<i64>(0, offsets[s + 1] - offsets[s] - 1);
  return first;
}

namespace {

constexpr i64 kWindow = 512;  // sequences sorted by length together

// A job whose input is filled in, and the tables that it points to.
template <class T>
struct Prepared {
  // max_only: for max-product, which needs no more than the scores
  Prepared(const ChainInput<T>& in, ChainJob<T> given, bool max_only = false)
      : kernels(kernels_for<T>(in.n_labels)), edge_first(edge_offsets(in.offsets, in.n_seq)), job(given) {
    job.n_labels = in.n_labels;
    job.stride = kernels.stride(in.n_labels);
    job.n_seq = in.n_seq;
    job.offsets = in.offsets;
    job.edge_first = edge_first.data();
    job.unary = in.unary;
    if (in.per_step) {
      job.pairwise = in.pairwise;
    } else if (max_only) {
      shared.prepare_scores(in.pairwise, in.n_labels, job.stride);
      job.shared = &shared;
    } else {
      shared.prepare(in.pairwise, in.n_labels, job.stride);
      shared_log.prepare_scores(in.pairwise, in.n_labels, round_up(in.n_labels, 4));
      job.shared = &shared;
      job.shared_log = &shared_log;
    }
  }
  Prepared(const Prepared&) = delete;

  const Kernels<T>& kernels;
  const std::vector<i64> edge_first;
  Transitions<T> shared;
  Transitions<double> shared_log;
  ChainJob<T> job;
};

// Runs body(task, workspace) for all tasks, with a workspace per thread.
template <class T, class Body>
void with_workspaces(const Kernels<T>& kernels, i64 n_tasks, const Threads& threads, Body body) {
  std::vector<std::unique_ptr<Workspace>> workspaces(threads.count);
  parallel_for(n_tasks, threads.count, threads.poll, [&](i64 task, int thread) {
    if (!workspaces[thread]) workspaces[thread] = kernels.workspace();
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

// Cuts the sequences into packs and runs `kernel` on them.
template <class T, class Kernel>
void run(const ChainInput<T>& in, const Threads& threads, ChainJob<T> job, Kernel kernel, bool max_only = false) {
  const Prepared<T> prepared(in, job, max_only);
  const std::vector<Pack> packs = all_packs(in);
  with_workspaces(prepared.kernels, static_cast<i64>(packs.size()), threads, [&](i64 task, Workspace& workspace) {
    (prepared.kernels.*kernel)(prepared.job, packs[task], workspace);
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

// As sum_product, a partial sum of pairs for every pack; they are added in the order of the packs.
template <class T>
void expectations(const ChainInput<T>& in, const double* weight, const Threads& threads, double* log_z, T* nodes,
                  double* pairs, T* edges) {
  std::fill_n(log_z, in.n_seq, 0.0);
  ChainJob<T> job;
  job.log_z = log_z;
  job.nodes = nodes;
  job.edges = edges;
  job.weight = weight;
  if (!pairs || in.per_step) return run(in, threads, job, &Kernels<T>::sum_product);
  const Prepared<T> prepared(in, job);
  const i64 size = static_cast<i64>(in.n_labels) * in.n_labels;
  std::fill_n(pairs, size, 0.0);
  // kWindow sequences at a time, so that there are never many partial sums
  for (i64 s = 0; s < in.n_seq; s += kWindow) {
    const std::vector<Pack> packs = make_packs(in.offsets, s, std::min(in.n_seq, s + kWindow), kPackWidth);
    std::vector<double> parts(packs.size() * size, 0.0);
    with_workspaces(prepared.kernels, static_cast<i64>(packs.size()), threads, [&](i64 task, Workspace& workspace) {
      ChainJob<T> mine = prepared.job;
      mine.pairs = parts.data() + task * size;
      prepared.kernels.sum_product(mine, packs[task], workspace);
    });
    for (std::size_t p = 0; p < packs.size(); ++p)
      for (i64 k = 0; k < size; ++k) pairs[k] += parts[p * size + k];
  }
}

namespace {

// The best path inside of beams, whose scores lie in their `nodes`.
template <class T>
void trace(const ChainInput<T>& in, const Prepared<T>& prepared, i64 s, const BeamResult& beams) {
  const i64 begin = in.offsets[s], n = in.n_labels;
  i32* path = prepared.job.path + begin;
  if (!(beams.log_mass > -std::numeric_limits<double>::infinity())) {
    prepared.job.dead[s] = 1;
    return;
  }
  const int steps = static_cast<int>(in.offsets[s + 1] - begin);
  for (int t = steps - 1; t >= 0; --t) {  // back from label to label; among equals the smallest
    T top = -std::numeric_limits<T>::infinity();
    const T* a = in.pairwise + (in.per_step ? prepared.edge_first[s] + t : 0) * n * n;
    for (std::size_t k = 0; k < beams.size(t); ++k) {
      T x = static_cast<T>(beams.nodes[beams.ptr[t] + k]);
      if (t + 1 < steps) x += a[beams.label(t, k) * n + path[t + 1]];
      if (!(x > top)) continue;
      top = x;
      path[t] = beams.label(t, k);
    }
  }
}

// So many labels, and tokens, are worth asking which of them could be on the best path.
constexpr int kManyLabels = 128, kManyTokens = 32;

}  // namespace

template <class T>
void decode(const ChainInput<T>& in, const BeamRule* rule, const Threads& threads, i32* path, u8* dead, bool plainly) {
  std::fill_n(dead, in.n_seq, u8{0});
  ChainJob<T> job;
  job.path = path;
  job.dead = dead;
  const bool ask = !plainly && !in.per_step && in.n_labels >= kManyLabels && in.offsets[in.n_seq] >= kManyTokens;
  if (!rule && !ask) return run(in, threads, job, &Kernels<T>::decode, true);
  const Prepared<T> prepared(in, job, true);
  if (rule) {
    with_workspaces(prepared.kernels, in.n_seq, threads, [&](i64 s, Workspace& workspace) {
      BeamResult beams;
      if (in.offsets[s + 1] == in.offsets[s]) return;
      prepared.kernels.beam_choose(prepared.job, *rule, s, beams, workspace);
      // a beam that ran into forbidden transitions says nothing: all labels, then
      if (beams.log_mass > -std::numeric_limits<double>::infinity()) trace(in, prepared, s, beams);
      else prepared.kernels.decode(prepared.job, make_pack(in.offsets, {s}), workspace);
    });
    return;
  }
  const Dominance<T> dominance(prepared.shared);
  std::atomic<int> balance = 0;  // of sequences decoded this way, less those that had too many labels left
  const std::vector<Pack> packs = all_packs(in);
  with_workspaces(prepared.kernels, static_cast<i64>(packs.size()), threads, [&](i64 task, Workspace& workspace) {
    BeamResult beams;
    std::vector<i64> rest;  // sequences with too many labels left
    for (i64 s : packs[task].seq) {
      const bool gave_up = balance < -1 || !prepared.kernels.undominated(prepared.job, dominance, s, beams, workspace);
      if (gave_up) rest.push_back(s);
      else trace(in, prepared, s, beams);
      balance += gave_up ? -2 : 1;
    }
    if (!rest.empty()) prepared.kernels.decode(prepared.job, make_pack(in.offsets, std::move(rest)), workspace);
  });
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

namespace {

// best_paths for k = 1.
template <class Count, class Unary, class Pairwise, class Emit, class Put>
void best_path(i64 steps, Count count, Unary unary, Pairwise pairwise, Emit emit, Put put) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  std::vector<std::vector<i32>> before(steps);
  std::vector<double> value, next;
  for (i64 t = 0; t < steps; ++t) {
    next.assign(count(t), -inf);
    before[t].assign(count(t), 0);
    for (i64 j = 0; j < count(t); ++j) {
      double best = t == 0 ? 0.0 : -inf;
      if (t > 0)
        for (i64 i = 0; i < count(t - 1); ++i) {
          const double x = value[i] + pairwise(t - 1, i, j);
          if (x > best) {
            best = x;
            before[t][j] = static_cast<i32>(i);
          }
        }
      next[j] = best + unary(t, j);
    }
    std::swap(value, next);
  }
  i32 at = static_cast<i32>(std::max_element(value.begin(), value.end()) - value.begin());
  if (!(value[at] > -inf)) return;
  emit(0, value[at]);
  for (i64 t = steps - 1; t >= 0; --t) {
    put(0, t, at);
    at = before[t][at];
  }
}

// The k best paths through a lattice of count(t) nodes at step t, with scores unary(t, j) and pairwise(t, i, j) of i at
// t before j at t + 1. Calls emit(rank, score) and then place(rank, t, node) from the last step to the first.
//
// best[t][j]: the k best ways to node j at step t, each the score, the node before and its rank there. The ways into j
// are merged from the sorted lists of all nodes i, whose heads wait in a heap.
template <class Count, class Unary, class Pairwise, class Emit, class Put>
void best_paths(i64 steps, i64 k, Count count, Unary unary, Pairwise pairwise, Emit emit, Put put) {
  if (k == 1) return best_path(steps, count, unary, pairwise, emit, put);
  struct Way {
    double score;
    i32 node, rank;
  };
  const auto worse = [](const Way& a, const Way& b) {
    return a.score < b.score || (a.score == b.score && (a.node > b.node || (a.node == b.node && a.rank > b.rank)));
  };
  using Heap = std::priority_queue<Way, std::vector<Way>, decltype(worse)>;
  constexpr double inf = std::numeric_limits<double>::infinity();
  std::vector<std::vector<std::vector<Way>>> best(steps);
  // Pops the k best of the lists in `from`, adding extra(i) to list i.
  const auto merge = [&](const std::vector<std::vector<Way>>& from, auto extra, std::vector<Way>& out) {
    Heap heap(worse);
    for (i32 i = 0; i < static_cast<i32>(from.size()); ++i)
      if (!from[i].empty() && extra(i) > -inf) heap.push({from[i][0].score + extra(i), i, 0});
    while (!heap.empty() && static_cast<i64>(out.size()) < k) {
      const Way way = heap.top();
      heap.pop();
      out.push_back(way);
      const auto& list = from[way.node];
      if (way.rank + 1 < static_cast<i32>(list.size()))
        heap.push({list[way.rank + 1].score + extra(way.node), way.node, way.rank + 1});
    }
  };
  for (i64 t = 0; t < steps; ++t) {
    best[t].resize(count(t));
    for (i64 j = 0; j < count(t); ++j) {
      const double u = unary(t, j);
      if (!(u > -inf)) continue;
      if (t == 0) best[t][j].push_back({u, -1, 0});
      else merge(best[t - 1], [&](i32 i) { return pairwise(t - 1, i, j) + u; }, best[t][j]);
    }
  }
  std::vector<Way> ends;
  merge(best[steps - 1], [](i32) { return 0.0; }, ends);
  for (std::size_t r = 0; r < ends.size(); ++r) {
    emit(static_cast<i64>(r), ends[r].score);
    Way at = ends[r];
    for (i64 t = steps - 1; t >= 0; --t) {
      put(static_cast<i64>(r), t, at.node);
      at = best[t][at.node][at.rank];
    }
  }
}

}  // namespace

template <class T>
std::vector<BeamResult> beam_sum_product(const ChainInput<T>& in, const BeamRule& rule, const Threads& threads) {
  const Prepared<T> prepared(in, {});
  std::vector<BeamResult> out(in.n_seq);
  with_workspaces(prepared.kernels, in.n_seq, threads, [&](i64 s, Workspace& workspace) {
    prepared.kernels.beam_sum_product(prepared.job, rule, s, out[s], workspace);
  });
  return out;
}

template <class T>
std::vector<Paths> nbest(const ChainInput<T>& in, const BeamRule* rule, i64 k, const Threads& threads) {
  const Prepared<T> prepared(in, {}, true);
  const i64 n = in.n_labels;
  std::vector<Paths> out(in.n_seq);
  with_workspaces(prepared.kernels, in.n_seq, threads, [&](i64 s, Workspace& workspace) {
    const i64 begin = in.offsets[s], steps = in.offsets[s + 1] - begin, edge = prepared.edge_first[s];
    Paths& found = out[s];
    if (steps == 0) {
      found.score.push_back(0.0);
      return;
    }
    BeamResult beams;
    if (rule) prepared.kernels.beam_choose(prepared.job, *rule, s, beams, workspace);
    if (!(beams.log_mass > -std::numeric_limits<double>::infinity())) return;
    const auto label = [&](i64 t, i64 j) { return rule ? i64{beams.label(static_cast<int>(t), j)} : j; };
    best_paths(
        steps, k, [&](i64 t) { return rule ? static_cast<i64>(beams.size(static_cast<int>(t))) : n; },
        [&](i64 t, i64 j) { return static_cast<double>(in.unary[(begin + t) * n + label(t, j)]); },
        [&](i64 t, i64 i, i64 j) {
          return static_cast<double>(
              in.pairwise[((in.per_step ? edge + t : 0) * n + label(t, i)) * n + label(t + 1, j)]);
        },
        [&](i64, double x) {
          found.score.push_back(x);
          found.path.resize(found.score.size() * steps);
        },
        [&](i64 rank, i64 t, i32 node) { found.path[rank * steps + t] = static_cast<i32>(label(t, node)); });
  });
  return out;
}

#define CRFKIT_INSTANTIATE(T)                                                                                \
  template void sum_product(const ChainInput<T>&, const Threads&, double*, T*, T*);                          \
  template void expectations(const ChainInput<T>&, const double*, const Threads&, double*, T*, double*, T*); \
  template void decode(const ChainInput<T>&, const BeamRule*, const Threads&, i32*, u8*, bool);              \
  template void sample(const ChainInput<T>&, const Threads&, i64, const double*, double*, i32*);             \
  template std::vector<BeamResult> beam_sum_product(const ChainInput<T>&, const BeamRule&, const Threads&);  \
  template std::vector<Paths> nbest(const ChainInput<T>&, const BeamRule*, i64, const Threads&);
CRFKIT_INSTANTIATE(float)
CRFKIT_INSTANTIATE(double)
#undef CRFKIT_INSTANTIATE

}  // namespace crfkit
