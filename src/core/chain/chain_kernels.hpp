// chain_kernels.hpp: inference on given potentials, a pack at a time.
#pragma once
#include "chain/kernels.hpp"
#include "chain/scaled_or_log.hpp"
#include "chain/viterbi.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
struct ChainWorkspace : Workspace {
  SumProduct<T, W> sum;
  Viterbi<T, W> viterbi;
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

 protected:
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
