#include "chain/chain.hpp"

#include <limits>

#include "chain/best_paths.hpp"
#include "chain/workspaces.hpp"

namespace crfkit {

std::vector<i64> edge_offsets(const i64* offsets, i64 n_seq) {
  std::vector<i64> first(n_seq + 1, 0);
  for (i64 s = 0; s < n_seq; ++s) first[s + 1] = first[s] + std::max<i64>(0, offsets[s + 1] - offsets[s] - 1);
  return first;
}

namespace {

// Cuts the sequences into packs and runs `kernel` of a table on them.
template <class T, class Kernels>
void run(const Prepared<T>& prepared, const Kernels& kernels, typename ChainKernels<T>::Kernel kernel,
         const Threads& threads) {
  const std::vector<Pack> packs = all_packs(prepared.job);
  with_workspaces(kernels.workspace, packs.size(), threads,
                  [&](i64 task, Workspace& workspace) { kernel(prepared.job, packs[task], workspace); });
}

// The same with a partial sum of pairs for every pack; they are added up in the order of the packs, kWindow sequences
// at a time, so that there are never many of them.
template <class T, class Kernels>
void run_for_pairs(const Prepared<T>& prepared, const Kernels& kernels, typename ChainKernels<T>::Kernel kernel,
                   const Threads& threads, double* pairs) {
  const ChainJob<T>& job = prepared.job;
  const i64 size = i64{job.n_labels} * job.n_labels;
  std::fill_n(pairs, size, 0.0);
  for (i64 s = 0; s < job.n_seq; s += kWindow) {
    const std::vector<Pack> packs = make_packs(job.offsets, s, std::min(job.n_seq, s + kWindow), kPackWidth);
    std::vector<double> parts(packs.size() * size, 0.0);
    with_workspaces(kernels.workspace, packs.size(), threads, [&](i64 task, Workspace& workspace) {
      ChainJob<T> mine = job;
      mine.pairs = parts.data() + task * size;
      kernel(mine, packs[task], workspace);
    });
    for (std::size_t p = 0; p < packs.size(); ++p)
      for (i64 k = 0; k < size; ++k) pairs[k] += parts[p * size + k];
  }
}

}  // namespace

template <class T>
void expectations(const ChainInput<T>& in, const double* weight, const Threads& threads, double* log_z, T* nodes,
                  double* pairs, T* edges) {
  std::fill_n(log_z, in.n_seq, 0.0);  // an empty sequence has one labelling, with score 0
  ChainJob<T> job;
  job.log_z = log_z;
  job.nodes = nodes;
  job.edges = edges;
  job.weight = weight;
  const Prepared<T> prepared(in, job);
  if (!pairs || in.per_step) return run(prepared, prepared.kernels, prepared.kernels.sum_product, threads);
  run_for_pairs(prepared, prepared.kernels, prepared.kernels.sum_product, threads, pairs);
}

template <class T>
void covariance(const ChainInput<T>& in, const T* r, const T* ra, const double* weight, const Threads& threads,
                double* mean, T* nodes, double* pairs, T* edges) {
  std::fill_n(mean, in.n_seq, 0.0);
  ChainJob<T> job;
  job.r = r;
  job.ra = ra;
  job.weight = weight;
  job.mean = mean;
  job.nodes = nodes;
  job.edges = edges;
  Transitions<double> wide;
  if (!in.per_step) {
    wide.prepare(in.pairwise, in.n_labels, round_up(in.n_labels, 4));
    job.wide = &wide;
  }
  const Prepared<T> prepared(in, job, true);
  const EntropyKernels<T>& kernels = entropy_kernels_for<T>(in.n_labels);
  if (!pairs) return run(prepared, kernels, kernels.covariance, threads);
  run_for_pairs(prepared, kernels, kernels.covariance, threads, pairs);
}

template <class T>
void entropies(const ChainInput<T>& in, const Threads& threads, const EntropyOut<T>& out) {
  std::fill_n(out.log_z, in.n_seq, 0.0);
  std::fill_n(out.entropy, in.n_seq, 0.0);
  ChainJob<T> job;
  job.log_z = out.log_z;
  job.entropy = out;
  Prepared<T> prepared(in, job);
  const Transitions<T>& shared = prepared.shared;
  Buffer<T> scored, scored_t;
  if (!in.per_step) {
    shared.weigh(shared.exact, shared.shift, scored, scored_t);
    prepared.job.scored = scored.data();
    prepared.job.scored_t = scored_t.data();
  }
  const EntropyKernels<T>& kernels = entropy_kernels_for<T>(in.n_labels);
  if (!out.unary || in.per_step) return run(prepared, kernels, kernels.entropies, threads);
  std::vector<double> pairs(i64{in.n_labels} * in.n_labels);
  run_for_pairs(prepared, kernels, kernels.entropies, threads, pairs.data());
  for (std::size_t k = 0; k < pairs.size(); ++k) out.pairwise[k] = T(pairs[k]);
}

template <class T>
void decode(const ChainInput<T>& in, const Threads& threads, i32* path, u8* dead) {
  std::fill_n(dead, in.n_seq, u8{0});
  ChainJob<T> job;
  job.path = path;
  job.dead = dead;
  const Prepared<T> prepared(in, job, true);
  run(prepared, prepared.kernels, prepared.kernels.decode, threads);
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
  const Prepared<T> prepared(in, job);
  run(prepared, prepared.kernels, prepared.kernels.sample, threads);
}

template <class T>
void backward_messages(const ChainInput<T>& in, double* beta) {
  ChainJob<T> job;
  job.beta = beta;
  const Prepared<T> prepared(in, job, true);
  const EntropyKernels<T>& kernels = entropy_kernels_for<T>(in.n_labels);
  const std::unique_ptr<Workspace> workspace = kernels.workspace();
  for (const Pack& pack : make_packs(in.offsets, 0, in.n_seq, 1))
    kernels.backward_messages(prepared.job, pack, *workspace);
}

std::vector<Paths> nbest(const ChainInput<double>& in, i64 k, const Threads& threads) {
  std::vector<double> v(in.offsets[in.n_seq] * in.n_labels);
  std::vector<i32> path(in.offsets[in.n_seq]);
  std::vector<u8> dead(in.n_seq);
  ChainJob<double> job;
  job.path = path.data();
  job.dead = dead.data();
  job.best = v.data();
  const Prepared<double> prepared(in, job, true);
  run(prepared, prepared.kernels, prepared.kernels.decode, threads);
  std::vector<Paths> out(in.n_seq);
  parallel_for(in.n_seq, threads.count, threads.poll,
               [&](i64 s, int) { best_paths(in, s, prepared.edge_first[s], k, v.data(), out[s]); });
  return out;
}

#define CRFKIT_INSTANTIATE(T)                                                                                    \
  template void expectations(const ChainInput<T>&, const double*, const Threads&, double*, T*, double*, T*);     \
  template void covariance(const ChainInput<T>&, const T*, const T*, const double*, const Threads&, double*, T*, \
                           double*, T*);                                                                         \
  template void entropies(const ChainInput<T>&, const Threads&, const EntropyOut<T>&);                           \
  template void backward_messages(const ChainInput<T>&, double*);                                                \
  template void decode(const ChainInput<T>&, const Threads&, i32*, u8*);                                         \
  template void sample(const ChainInput<T>&, const Threads&, i64, const double*, double*, i32*);
CRFKIT_INSTANTIATE(float)
CRFKIT_INSTANTIATE(double)
#undef CRFKIT_INSTANTIATE

}  // namespace crfkit
