#include "segment/segment.hpp"

#include <cmath>
#include <limits>

#include "base/log_sum.hpp"
#include "chain/workspaces.hpp"
#include "segment/best.hpp"
#include "segment/kernels.hpp"

namespace crfkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Numbers in [0, 1), the same on every machine: splitmix64.
class Uniform {
 public:
  explicit Uniform(u64 seed) : state_(seed) {}
  double operator()() {
    u64 z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  u64 state_;
};

// The number of one of the logarithms of masses, drawn.
i64 draw(std::vector<double>& masses, Uniform& uniform) {
  softmax(masses.data(), masses.size());
  double left = uniform();
  i64 last = 0;
  for (i64 i = 0; i < std::ssize(masses); ++i) {
    if (masses[i] > 0) last = i;
    if ((left -= masses[i]) < 0) break;
  }
  return last;
}

// The same with a table that is long enough for a sequence, in place of the tail. A tail of a higher order counts the
// ways through its phases, which are no part of a segmentation.
SegmentTables without_tail(const SegmentTables& tables, i64 steps) {
  SegmentTables out = tables;
  out.max_length = static_cast<int>(std::max<i64>(tables.max_length, steps));
  out.tail_order = 0;
  out.tail.clear();
  for (i64 k = tables.max_length + 1; k <= out.max_length; ++k)
    for (i64 j = 0; j < tables.n_labels; ++j) out.lengths.push_back(tables.length(k, j));
  return out;
}
// Sums of that as sums of the one with a tail.
void with_tail(const SegmentTables& tables, SequenceSums& sums) {
  const i64 n = tables.n_labels, most = tables.max_length;
  sums.tail.assign(n, 0.0);
  for (i64 k = most * n; k < std::ssize(sums.lengths); ++k) {
    sums.lengths[(most - 1) * n + k % n] += sums.lengths[k];
    sums.tail[k % n] += sums.lengths[k] * static_cast<double>(k / n + 1 - most);
  }
  sums.lengths.resize(most * n);
}

Segmentation drawn(const SegmentTables& tables, const SegmentScores& x, const std::vector<double>& g,
                   const std::vector<double>& a, Uniform& uniform) {
  const i64 n = tables.n_labels;
  Segmentation out;
  std::vector<double> masses;
  for (i64 t = x.steps - 1; t >= 0;) {
    masses.clear();
    for (i64 i = 0; i < n; ++i)
      masses.push_back(a[t * n + i] + (out.label.empty() ? 0.0 : tables.pairwise[i * n + out.label.back()]));
    const i64 j = draw(masses, uniform);
    masses.clear();
    each_length(tables, x, g, t, j, [&](i64, double score) { masses.push_back(score); });
    out.label.push_back(static_cast<i32>(j));
    out.end.push_back(t + 1);
    t -= draw(masses, uniform) + 1;
  }
  std::reverse(out.label.begin(), out.label.end());
  std::reverse(out.end.begin(), out.end.end());
  return out;
}

}  // namespace

template <class T>
void segment_sums(const SegmentInput<T>& in, const Threads& threads, const SegmentSums<T>& out) {
  const SegmentKernels<T>& kernels = segment_kernels_for<T>(in.n_labels);
  const SegmentTables exact(in);
  ReadyTables<T> tables;
  tables.prepare(exact, kernels.stride(in.n_labels));
  std::fill_n(out.log_z, in.n_seq, 0.0);  // an empty sequence has one segmentation, with score 0
  SegmentJob<T> job;
  static_cast<SegmentInput<T>&>(job) = in;
  job.tables = &tables;
  job.out = out;
  // partial sums of packs are added up in the order of the packs
  const i64 n = in.n_labels, n_pairs = out.pairs ? n * n : 0, n_lengths = out.lengths ? in.max_length * n : 0;
  const i64 n_tail = out.tail ? n : 0, size = n_pairs + n_lengths + n_tail;
  for (double* x : {out.pairs, out.lengths, out.tail})
    if (x) std::fill_n(x, x == out.pairs ? n_pairs : x == out.lengths ? n_lengths : n_tail, 0.0);
  for (i64 s = 0; s < in.n_seq; s += kWindow) {
    const std::vector<Pack> packs = make_packs(in.offsets, s, std::min(in.n_seq, s + kWindow), kPackWidth);
    std::vector<double> parts(packs.size() * size, 0.0);
    with_workspaces(kernels.workspace, packs.size(), threads, [&](i64 task, Workspace& workspace) {
      SegmentJob<T> mine = job;
      double* part = parts.data() + task * size;
      if (out.pairs) mine.out.pairs = part;
      if (out.lengths) mine.out.lengths = part + n_pairs;
      if (out.tail) mine.out.tail = part + n_pairs + n_lengths;
      kernels.sums(mine, packs[task], workspace);
    });
    for (std::size_t p = 0; p < packs.size(); ++p) {
      const double* part = parts.data() + p * size;
      for (i64 k = 0; k < n_pairs; ++k) out.pairs[k] += part[k];
      for (i64 k = 0; k < n_lengths; ++k) out.lengths[k] += part[n_pairs + k];
      for (i64 k = 0; k < n_tail; ++k) out.tail[k] += part[n_pairs + n_lengths + k];
    }
  }
}

void segment_entropies(const SegmentInput<double>& in, const Threads& threads, double* entropy,
                       const SegmentSums<double>& out) {
  const SegmentTables tables(in);
  const i64 n = in.n_labels;
  const bool shared = out.pairs != nullptr;
  std::vector<std::vector<double>> parts(shared ? in.n_seq : 0);
  parallel_for(in.n_seq, threads.count, threads.poll, [&](i64 s, int) {
    entropy[s] = 0;
    out.log_z[s] = 0;
    SegmentScores x;
    x.load(in, s);
    if (x.steps == 0) return;
    const bool longer = tables.tail_order > 1;
    SequenceSums sums = log_sums(longer ? without_tail(tables, x.steps) : tables, x, true);
    out.log_z[s] = sums.log_z;
    if (!(sums.log_z > -kInf)) return;
    entropy[s] = sums.log_z - sums.mean;
    if (longer) with_tail(tables, sums);
    // the gradient of the entropy is minus the derivative of the expectations in the direction of the scores
    const i64 first = in.offsets[s] * n;
    const auto write = [&](const std::vector<double>& from, double* to) {
      for (std::size_t k = 0; to && k < from.size(); ++k) to[k] = -from[k];
    };
    write(sums.nodes, out.nodes ? out.nodes + first : nullptr);
    write(sums.begins, out.begins ? out.begins + first : nullptr);
    write(sums.ends, out.ends ? out.ends + first : nullptr);
    if (out.items) write(sums.items, out.items + in.items.ptr[in.offsets[s]] * n);
    if (!shared) return;
    for (const auto* part : {&sums.pairs, &sums.lengths, &sums.tail})
      parts[s].insert(parts[s].end(), part->begin(), part->end());
  });
  if (!shared) return;
  const i64 n_lengths = in.max_length * n;
  std::fill_n(out.pairs, n * n, 0.0);
  std::fill_n(out.lengths, n_lengths, 0.0);
  if (out.tail) std::fill_n(out.tail, n, 0.0);
  for (const auto& part : parts)
    for (i64 k = 0; k < std::ssize(part); ++k)
      (k < n * n               ? out.pairs[k]
       : k < n * n + n_lengths ? out.lengths[k - n * n]
                               : out.tail[k - n * n - n_lengths]) -= part[k];
}

template <class T>
std::vector<std::vector<Segmentation>> best_segmentations(const SegmentInput<T>& in, i64 k, const Threads& threads) {
  const SegmentTables tables(in);
  std::vector<std::vector<Segmentation>> out(in.n_seq);
  constexpr i64 kSequences = 16;
  parallel_blocks(in.n_seq, kSequences, threads, [&](i64 begin, i64 end, int) {
    SegmentScores x;
    for (i64 s = begin; s < end; ++s) {
      x.load(in, s);
      out[s] = best_of(tables, x, k);
    }
  });
  return out;
}

std::vector<std::vector<Segmentation>> sample_segmentations(const SegmentInput<double>& in, i64 n, u64 seed,
                                                            const Threads& threads) {
  const SegmentTables tables(in);
  std::vector<std::vector<Segmentation>> out(in.n_seq);
  parallel_for(in.n_seq, threads.count, threads.poll, [&](i64 s, int) {
    SegmentScores x;
    x.load(in, s);
    std::vector<double> g, a;
    if (x.steps > 0) log_forward(tables, x, g, a);
    bool any = x.steps == 0;
    for (i64 j = 0; !any && j < in.n_labels; ++j) any = a[(x.steps - 1) * in.n_labels + j] > -kInf;
    Uniform uniform(seed + static_cast<u64>(s) * 0x2545f4914f6cdd1du);
    for (i64 i = 0; any && i < n; ++i) out[s].push_back(drawn(tables, x, g, a, uniform));
  });
  return out;
}

#define CRFKIT_INSTANTIATE(T)                                                                \
  template void segment_sums(const SegmentInput<T>&, const Threads&, const SegmentSums<T>&); \
  template std::vector<std::vector<Segmentation>> best_segmentations(const SegmentInput<T>&, i64, const Threads&);
CRFKIT_INSTANTIATE(float)
CRFKIT_INSTANTIATE(double)
#undef CRFKIT_INSTANTIATE

}  // namespace crfkit
