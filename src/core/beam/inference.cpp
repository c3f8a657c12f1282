#include "beam/inference.hpp"

#include <atomic>
#include <limits>

#include "beam/kernels.hpp"
#include "chain/workspaces.hpp"

namespace crfkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The best path within beams, whose scores lie in their `nodes`.
template <class T>
void trace(const ChainJob<T>& job, i64 s, const BeamResult& beams) {
  const i64 begin = job.offsets[s], n = job.n_labels;
  i32* path = job.path + begin;
  if (!(beams.log_mass > -kInf)) {
    job.dead[s] = 1;
    return;
  }
  const int steps = static_cast<int>(job.offsets[s + 1] - begin);
  for (int t = steps - 1; t >= 0; --t) {  // back from label to label; among equals the smallest
    T top = -std::numeric_limits<T>::infinity();
    const T* a = job.pairwise + (job.per_step ? job.edge_first[s] + t : 0) * n * n;
    for (std::size_t k = 0; k < beams.size(t); ++k) {
      T x = T(beams.nodes[beams.ptr[t] + k]);
      if (t + 1 < steps) x += a[beams.label(t, k) * n + path[t + 1]];
      if (!(x > top)) continue;
      top = x;
      path[t] = beams.label(t, k);
    }
  }
}

// So many tokens are worth asking which labels could be on the best path.
constexpr int kManyTokens = 32;

struct BothWorkspaces {
  std::unique_ptr<Workspace> chain, beam;
};

// Runs body(task, workspaces) for all tasks.
template <class T, class Body>
void with_both(const Prepared<T>& prepared, i64 n_tasks, const Threads& threads, Body body) {
  const auto make = [&] {
    return std::make_unique<BothWorkspaces>(prepared.kernels.workspace(), beam_kernels_for<T>().workspace());
  };
  with_workspaces(make, n_tasks, threads, body);
}

}  // namespace

template <class T>
std::vector<BeamResult> beam_sum_product(const ChainInput<T>& in, const BeamRule& rule, const Threads& threads) {
  const Prepared<T> prepared(in, {});
  const BeamKernels<T>& kernels = beam_kernels_for<T>();
  std::vector<BeamResult> out(in.n_seq);
  with_workspaces(kernels.workspace, in.n_seq, threads,
                  [&](i64 s, Workspace& ws) { kernels.sum_product(prepared.job, rule, s, out[s], ws); });
  return out;
}

template <class T>
void decode(const ChainInput<T>& in, const BeamRule* rule, const Threads& threads, i32* path, u8* dead) {
  if (!rule && (in.per_step || in.n_labels < Dominance<T>::kManyLabels || in.offsets[in.n_seq] < kManyTokens))
    return decode(in, threads, path, dead);
  std::fill_n(dead, in.n_seq, u8{0});
  ChainJob<T> job;
  job.path = path;
  job.dead = dead;
  const Prepared<T> prepared(in, job, true);
  const BeamKernels<T>& kernels = beam_kernels_for<T>();
  if (rule) {
    with_both(prepared, in.n_seq, threads, [&](i64 s, BothWorkspaces& ws) {
      BeamResult beams;
      if (in.offsets[s + 1] == in.offsets[s]) return;
      kernels.choose(prepared.job, *rule, s, beams, *ws.beam);
      // a beam that ran into forbidden transitions says nothing: all labels, then
      if (beams.log_mass > -kInf) trace(prepared.job, s, beams);
      else prepared.kernels.decode(prepared.job, make_pack(in.offsets, {s}), *ws.chain);
    });
    return;
  }
  const Dominance<T> dominance(prepared.shared);
  std::atomic<int> balance = 0;  // of sequences decoded this way, less those that had too many labels left
  const std::vector<Pack> packs = all_packs(in);
  with_both(prepared, static_cast<i64>(packs.size()), threads, [&](i64 task, BothWorkspaces& ws) {
    BeamResult beams;
    std::vector<i64> rest;  // sequences with too many labels left
    for (i64 s : packs[task].seq) {
      const bool gave_up = balance < -1 || !kernels.undominated(prepared.job, dominance, s, beams, *ws.beam);
      if (gave_up) rest.push_back(s);
      else trace(prepared.job, s, beams);
      balance += gave_up ? -2 : 1;
    }
    if (!rest.empty()) prepared.kernels.decode(prepared.job, make_pack(in.offsets, std::move(rest)), *ws.chain);
  });
}

template <class T>
std::vector<Paths> nbest(const ChainInput<T>& in, const BeamRule& rule, i64 k, const Threads& threads) {
  const Prepared<T> prepared(in, {}, true);
  const BeamKernels<T>& kernels = beam_kernels_for<T>();
  WideInput wide(in);  // without the labels outside of the beams
  with_workspaces(kernels.workspace, in.n_seq, threads, [&](i64 s, Workspace& workspace) {
    BeamResult beams;
    const int steps = static_cast<int>(in.offsets[s + 1] - in.offsets[s]);
    if (steps > 0) kernels.choose(prepared.job, rule, s, beams, workspace);
    double* u = wide.scores.data() + in.offsets[s] * in.n_labels;
    std::fill_n(u, i64{steps} * in.n_labels, -kInf);
    for (int t = 0; t < steps && beams.log_mass > -kInf; ++t, u += in.n_labels)
      for (std::size_t j = 0; j < beams.size(t); ++j)
        u[beams.label(t, j)] = in.unary[(in.offsets[s] + t) * in.n_labels + beams.label(t, j)];
  });
  return nbest(wide, k, threads);
}

#define CRFKIT_INSTANTIATE(T)                                                                               \
  template std::vector<BeamResult> beam_sum_product(const ChainInput<T>&, const BeamRule&, const Threads&); \
  template void decode(const ChainInput<T>&, const BeamRule*, const Threads&, i32*, u8*);                   \
  template std::vector<Paths> nbest(const ChainInput<T>&, const BeamRule&, i64, const Threads&);
CRFKIT_INSTANTIATE(float)
CRFKIT_INSTANTIATE(double)
#undef CRFKIT_INSTANTIATE

}  // namespace crfkit
