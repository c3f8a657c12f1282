// chain_kernels.hpp: inference on given potentials, a pack at a time.
#pragma once
#include "chain/covariance.hpp"
#include "chain/kernels.hpp"
#include "chain/scaled_or_log.hpp"
#include "chain/viterbi.hpp"

namespace crfkit::CRFKIT_ISA {

// The one-sequence covariance, and what it is fed with: in double precision, whatever the model's.
struct SequenceWorkspace : SequenceCovariance<double, kLogWidth> {
  Buffer<double> xi, a, nodes, pairs;  // pairs of one step, twice; the covariances
  i64 stride = 0;

  // The marginals of sequence s; r is left to be filled in, up to the number of labels.
  template <class T, int W>
  void load(const SumProduct<T, W>& sum, int s, int steps, i64 n_labels) {
    stride = log_stride(n_labels);
    start(steps, n_labels, stride);
    nodes.reserve(steps * stride);
    for (Buffer<double>* x : {&xi, &pairs}) x->reserve(n_labels * stride);
    for (Buffer<double>* x : {&gamma, &r}) x->assign(steps * stride, 0.0);
    a.assign(n_labels * stride, 0.0);
    for (int t = 0; t < steps; ++t) sum.node(t, s, gamma.data() + t * stride);
  }
  // Copies finite scores of pairs, rows of `from`, to a.
  template <class T>
  void set_pairs(const T* scores, i64 n_labels, i64 from) {
    for (i64 i = 0; i < n_labels; ++i)
      for (i64 j = 0; j < n_labels; ++j) {
        const T x = scores[i * from + j];
        a[i * stride + j] = x > -std::numeric_limits<T>::infinity() ? x : T(0);
      }
  }
};

template <class T, int W>
struct ChainWorkspace : Workspace {
  SumProduct<T, W> sum;
  SumProduct<double, kLogWidth> wide;
  Viterbi<T, W> viterbi;
  PackCovariance<T, W> packed;
  SequenceWorkspace single;
  Buffer<T> row;  // [stride]
};

template <class T, int W>
class ChainKernel {
 public:
  ChainKernel(const ChainJob<T>& job, const Pack& pack, Workspace& workspace)
      : job_(job),
        pack_(pack),
        ws_(static_cast<ChainWorkspace<T, W>&>(workspace)),
        n_(job.n_labels),
        stride_(job.stride) {}

  void sum_product() {
    const FlushDenormals flush;
    forward(ws_.sum.start(pack_, n_, stride_));
    auto& sum = ws_.sum;
    if (!job_.nodes && !job_.edges && !job_.pairs) return;
    sum.backward();
    for (int s = 0; s < pack_.n_seq(); ++s) {
      if (!sum.alive(s)) continue;
      const double w = weight(s);
      if (sizeof(T) < sizeof(double)) sum.normalise(s);
      sum.weigh(s, w);
      for (int t = 0; job_.nodes && t < pack_.length(s); ++t) {
        T* out = job_.nodes + (token(s) + t) * n_;
        std::copy_n(sum.lattice.e.data() + pack_.row(t, s) * stride_, n_, out);
        for (i64 j = 0; w != 1.0 && j < n_; ++j) out[j] *= T(w);
      }
      for (int t = 0; job_.edges && t + 1 < pack_.length(s); ++t) sum.edge(t, s, job_.edges + edge(s, t) * n_ * n_, n_);
    }
    if (job_.pairs) sum.add_pairs(job_.pairs);
  }

  // Back through the forward pass.
  void sample() {
    const FlushDenormals flush;
    forward(ws_.sum.start(pack_, n_, stride_));
    std::vector<double> weight(n_);
    const i64 all = job_.offsets[job_.n_seq];
    for (int s = 0; s < pack_.n_seq(); ++s)
      for (int t = pack_.length(s) - 1; ws_.sum.alive(s) && t >= 0; --t)
        for (i64 k = 0; k < job_.n_samples; ++k) {
          const i64 at = k * all + token(s) + t;
          ws_.sum.before(t, s, t + 1 < pack_.length(s) ? job_.path[at + 1] : 0, weight.data());
          job_.path[at] = draw(job_.uniform[at], weight);
        }
  }

  void decode() {
    auto& viterbi = ws_.viterbi;
    viterbi.start(pack_, n_, stride_);
    fill_rows(viterbi.v.data());
    MaxSteps<T, W> steps = job_.shared ? MaxSteps<T, W>(*job_.shared) : MaxSteps<T, W>(n_, stride_, fill_);
    viterbi.forward(pack_, steps);
    for (int s = 0; s < pack_.n_seq(); ++s)
      job_.dead[pack_.seq[s]] = !viterbi.trace(pack_, s, steps, job_.path + token(s));
    for (int s = 0; job_.best && s < pack_.n_seq(); ++s)
      for (int t = 0; t < pack_.length(s); ++t)
        std::copy_n(viterbi.v.data() + pack_.row(t, s) * stride_, n_, job_.best + (token(s) + t) * n_);
  }

  // The covariance with job.r and job.ra.
  void covariance() {
    const FlushDenormals flush;
    auto& sum = ws_.wide;
    auto& single = ws_.single;
    const i64 wide = log_stride(n_);
    const auto fill = [this](int t, double* a) { pad_rows(own_matrix(0, t), n_, n_, log_stride(n_), a); };
    double* u = sum.start(pack_, n_, wide);
    fill_rows(u, wide);
    sum.forward(u, job_.wide ? WideSteps(*job_.wide) : WideSteps(n_, wide, pack_.steps(), fill));
    sum.backward();
    for (int s = 0; s < pack_.n_seq(); ++s) {
      const int steps = pack_.length(s);
      double& mean = job_.mean[pack_.seq[s]];
      mean = std::numeric_limits<double>::quiet_NaN();
      if (!sum.alive(s)) continue;
      single.load(sum, s, steps, n_);
      for (int t = 0; t < steps; ++t) std::copy_n(job_.r + (token(s) + t) * n_, n_, single.r.data() + t * wide);
      single.run(
          [&](int t) -> SequenceWorkspace::Pairs {
            sum.edge(t, s, single.xi.data(), wide);
            single.set_pairs(job_.ra + pair(s, t), n_, n_);
            return {single.xi.data(), single.a.data()};
          },
          single.nodes.data(), single.pairs.data(),
          [&](int t, const double* d) {
            if (job_.edges) copy(d, n_, wide, weight(s), job_.edges + edge(s, t) * n_ * n_);
          });
      mean = single.mean;
      if (job_.nodes) copy(single.nodes.data(), steps, wide, weight(s), job_.nodes + token(s) * n_);
      for (i64 i = 0; job_.pairs && i < n_; ++i)
        for (i64 j = 0; j < n_; ++j) job_.pairs[i * n_ + j] += weight(s) * single.pairs[i * wide + j];
    }
  }

  void backward_messages() {
    const i64 wide = log_stride(n_);
    LogLattice log;
    Buffer<double> a;
    const auto transposed = [&](int t) -> const double* {
      a.assign(n_ * wide, -std::numeric_limits<double>::infinity());
      for (i64 i = 0; i < n_; ++i)
        for (i64 j = 0; j < n_; ++j) a[j * wide + i] = own_matrix(0, t)[i * n_ + j];
      return a.data();
    };
    log.start(pack_.steps(), n_);
    for (int t = 0; t < pack_.steps(); ++t) pad_row(job_.unary + (token(0) + t) * n_, n_, wide, log.row(t));
    log.backward_messages(transposed, job_.beta + token(0) * n_);
  }

 protected:
  using WideSteps = Steps<double, kLogWidth>;

  i64 token(int s) const { return job_.offsets[pack_.seq[s]]; }
  i64 edge(int s, int t) const { return job_.edge_first[pack_.seq[s]] + t; }
  double weight(int s) const { return job_.weight ? job_.weight[pack_.seq[s]] : 1.0; }
  i64 pair(int s, int t) const { return job_.per_step ? edge(s, t) * n_ * n_ : 0; }  // the first, of scores
  const T* own_matrix(int s, int t) const { return job_.pairwise + pair(s, t); }

  // The scores of the pack's rows, padded.
  template <class U>
  void fill_rows(U* u, i64 stride) const {
    for (int t = 0; t < pack_.steps(); ++t)
      for (int s = 0; s < pack_.active(t); ++s)
        pad_row(job_.unary + (token(s) + t) * n_, n_, stride, u + pack_.row(t, s) * stride);
  }
  void fill_rows(T* u) const { fill_rows(u, stride_); }

  // Fills in the scores, goes forward and sets log_z.
  void forward(T* u) {
    fill_rows(u);
    ws_.sum.forward(u, job_.shared ? Steps<T, W>(*job_.shared) : Steps<T, W>(n_, stride_, pack_.steps(), fill_));
    for (int s = 0; s < pack_.n_seq(); ++s) job_.log_z[pack_.seq[s]] = ws_.sum.log_z(s);
  }

  // w x, rows of `stride` to rows of n.
  void copy(const double* x, i64 rows, i64 stride, double w, T* out) const {
    for (i64 r = 0; r < rows; ++r)
      for (i64 j = 0; j < n_; ++j) out[r * n_ + j] = T(w * x[r * stride + j]);
  }

  // Draws an index with probability proportional to its weight; u is uniform in [0, 1).
  int draw(double u, const std::vector<double>& weight) const {
    double total = 0;
    for (double x : weight) total += x;
    u *= total;
    int last = 0;
    for (int i = 0; i < n_; ++i) {
      if (!(weight[i] > 0)) continue;
      last = i;
      if ((u -= weight[i]) < 0) break;
    }
    return last;
  }

  const ChainJob<T>& job_;
  const Pack& pack_;
  ChainWorkspace<T, W>& ws_;
  const i64 n_, stride_;
  struct Fill {
    const ChainKernel* kernel;
    void operator()(int t, T* a) const {
      pad_rows(kernel->own_matrix(0, t), kernel->n_, kernel->n_, kernel->stride_, a);
    }
  };
  const Fill fill_{this};
};

}  // namespace crfkit::CRFKIT_ISA
