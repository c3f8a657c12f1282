// chain_kernels.hpp: inference on given potentials, a pack at a time.
#pragma once
#include "chain/covariance.hpp"
#include "chain/kernels.hpp"
#include "chain/log_lattice.hpp"
#include "chain/plain_covariance.hpp"
#include "chain/viterbi.hpp"

namespace crfkit::CRFKIT_ISA {

// Copies the [rows][labels] matrix x into [rows][stride] with the pads set to minus infinity.
template <class T, class U>
void pad_rows(const T* x, int rows, int n_labels, int stride, U* out) {
  for (int r = 0; r < rows; ++r, x += n_labels, out += stride) {
    for (int j = 0; j < n_labels; ++j) out[j] = static_cast<U>(x[j]);
    std::fill(out + n_labels, out + stride, -std::numeric_limits<U>::infinity());
  }
}

template <class T, int W>
struct ChainWorkspace : Workspace {
  Lattice<T, W> lattice;
  Viterbi<T, W> viterbi;
  LogLattice log_lattice;
  PackStatistics<T, W> statistics;
  PlainStatistics plain;
  Buffer<T> row;
  Buffer<T> pairs, pairs_of_scores;  // sums alpha x q of a pack, and sums h x q + alpha x qq   [labels][stride]
  Buffer<double> matrix;
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
    forward([&](Steps<T, W>& steps) {
      auto& lattice = ws_.lattice;
      if (job_.nodes || job_.edges || job_.pairs) lattice.backward(pack_, steps);
      for (int s = 0; s < pack_.n_seq(); ++s) {
        if (!lattice.good(s)) continue;
        if (weight(s) != 1.0) scale(s);
        if (job_.nodes)
          for (int t = 0; t < length(s); ++t)
            std::copy_n(lattice.e.data() + static_cast<i64>(pack_.row(t, s)) * stride_, n_,
                        job_.nodes + (token(s) + t) * n_);
        if (job_.edges)
          for (int t = 0; t + 1 < length(s); ++t) write_edge(steps, s, t);
      }
      if (job_.pairs) add_pairs();
    });
  }

  void sample() {
    forward([&](Steps<T, W>& steps) {
      for (int s = 0; s < pack_.n_seq(); ++s)
        if (ws_.lattice.good(s)) sample_paths(s, steps);
    });
  }

  void decode() {
    auto& viterbi = ws_.viterbi;
    viterbi.start(pack_, n_, stride_);
    for (int t = 0; t < pack_.steps(); ++t)
      for (int s = 0; s < pack_.active(t); ++s)
        pad_rows(job_.unary + (token(s) + t) * n_, 1, n_, stride_,
                 viterbi.v.data() + static_cast<i64>(pack_.row(t, s)) * stride_);
    MaxSteps<T, W> steps = job_.shared ? MaxSteps<T, W>(*job_.shared) : MaxSteps<T, W>(n_, stride_, fill_);
    viterbi.forward(pack_, steps);
    for (int s = 0; s < pack_.n_seq(); ++s)
      job_.dead[pack_.seq[s]] = !viterbi.trace(pack_, s, steps, job_.path + token(s));
  }

 protected:
  i64 token(int s) const { return job_.offsets[pack_.seq[s]]; }
  int length(int s) const { return static_cast<int>(job_.offsets[pack_.seq[s] + 1] - token(s)); }
  double weight(int s) const { return job_.weight ? job_.weight[pack_.seq[s]] : 1.0; }

  // Multiplies gamma and q, and so every node and edge, with the sequence's weight.
  void scale(int s) {
    const T w = static_cast<T>(weight(s));
    for (int t = 0; t < length(s); ++t)
      for (Buffer<T>* x : {&ws_.lattice.e, &ws_.lattice.q}) {
        T* row = x->data() + static_cast<i64>(pack_.row(t, s)) * stride_;
        for (int j = 0; j < n_; ++j) row[j] *= w;
      }
  }

  void add_pairs() {
    ws_.pairs.reserve(static_cast<std::size_t>(n_) * stride_);
    std::fill_n(ws_.pairs.data(), static_cast<std::size_t>(n_) * stride_, T(0));
    ws_.lattice.add_edges(pack_, ws_.pairs.data());
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) {
        const i64 ij = static_cast<i64>(i) * stride_ + j;
        job_.pairs[static_cast<i64>(i) * n_ + j] +=
            static_cast<double>(ws_.pairs[ij]) * static_cast<double>(job_.shared->m[ij]);
      }
  }
  const T* own_matrix(int s, int t) const {
    return job_.pairwise + (job_.edge_first[pack_.seq[s]] + t) * static_cast<i64>(n_) * n_;
  }
  Steps<T, W> all_steps() const {
    return job_.shared ? Steps<T, W>(*job_.shared) : Steps<T, W>(n_, stride_, pack_.steps(), fill_);
  }

  // Runs the forward pass, puts the sequences that scaling cannot serve through log space, sets log_z,
  // and calls then(steps) for the others.
  void forward(FunctionRef<void(Steps<T, W>&)> then) {
    const FlushDenormals flush;
    auto& lattice = ws_.lattice;
    lattice.start(pack_, n_, stride_);
    ws_.row.reserve(stride_);
    for (int t = 0; t < pack_.steps(); ++t)
      for (int s = 0; s < pack_.active(t); ++s) {
        pad_rows(job_.unary + (token(s) + t) * n_, 1, n_, stride_, ws_.row.data());
        lattice.set_row(pack_.row(t, s), s, ws_.row.data());
      }
    Steps<T, W> steps = all_steps();
    lattice.forward(pack_, steps);
    for (int s = 0; s < pack_.n_seq(); ++s) {
      if (lattice.good(s)) {
        job_.log_z[pack_.seq[s]] = lattice.log_z(pack_, s) + steps.total_shift(length(s));
      } else {
        in_log_space(s);
        lattice.drop(pack_, s);
      }
    }
    then(steps);
  }

  // The scores of the transition t -> t+1 of sequence s, or their transpose, for log space.
  const double* log_matrix(int s, int t, bool transposed) {
    if (job_.shared_log) return transposed ? job_.shared_log->score_t.data() : job_.shared_log->score.data();
    const int wide = log_stride(n_);
    ws_.matrix.reserve(static_cast<std::size_t>(n_) * wide);
    if (!transposed) {
      pad_rows(own_matrix(s, t), n_, n_, wide, ws_.matrix.data());
    } else {
      std::fill_n(ws_.matrix.data(), static_cast<i64>(n_) * wide, -std::numeric_limits<double>::infinity());
      for (int i = 0; i < n_; ++i)
        for (int j = 0; j < n_; ++j) ws_.matrix[j * wide + i] = static_cast<double>(own_matrix(s, t)[i * n_ + j]);
    }
    return ws_.matrix.data();
  }

  void run_log_lattice(int s) {
    ws_.log_lattice.run(
        length(s), n_,
        [&](int t, double* out) { pad_rows(job_.unary + (token(s) + t) * n_, 1, n_, log_stride(n_), out); },
        [&](int t) { return log_matrix(s, t, false); }, [&](int t) { return log_matrix(s, t, true); });
  }

  void in_log_space(int s) {
    auto& log_lattice = ws_.log_lattice;
    const int steps = length(s), wide = log_stride(n_);
    run_log_lattice(s);
    job_.log_z[pack_.seq[s]] = log_lattice.log_z;
    if (!(log_lattice.log_z > -std::numeric_limits<double>::infinity())) return;
    if (job_.nodes)
      for (int t = 0; t < steps; ++t)
        for (int j = 0; j < n_; ++j)
          job_.nodes[(token(s) + t) * n_ + j] = static_cast<T>(weight(s) * log_lattice.node(t, j));
    if (job_.pairs)
      for (int t = 0; t + 1 < steps; ++t)
        for (int i = 0; i < n_; ++i)
          for (int j = 0; j < n_; ++j)
            job_.pairs[static_cast<i64>(i) * n_ + j] +=
                weight(s) * log_lattice.edge(t, i, j, log_matrix(s, t, false)[i * wide + j]);
    if (job_.edges)
      for (int t = 0; t + 1 < steps; ++t) {
        const double* a = log_matrix(s, t, false);
        T* out = job_.edges + (job_.edge_first[pack_.seq[s]] + t) * static_cast<i64>(n_) * n_;
        for (int i = 0; i < n_; ++i)
          for (int j = 0; j < n_; ++j)
            out[i * n_ + j] = static_cast<T>(weight(s) * log_lattice.edge(t, i, j, a[i * wide + j]));
      }
    if (job_.n_samples > 0) sample_in_log_space(s);
  }

  void write_edge(Steps<T, W>& steps, int s, int t) {
    const T* m = steps.matrix(t);
    const T* a = ws_.lattice.alpha.data() + static_cast<i64>(pack_.row(t, s)) * stride_;
    const T* q = ws_.lattice.q.data() + static_cast<i64>(pack_.row(t + 1, s)) * stride_;
    T* out = job_.edges + (job_.edge_first[pack_.seq[s]] + t) * static_cast<i64>(n_) * n_;
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) out[i * n_ + j] = a[i] * m[static_cast<i64>(i) * stride_ + j] * q[j];
  }

  // Draws an index with probability proportional to weight(i); u is uniform in [0, 1).
  template <class Weight>
  int draw(double u, Weight weight) const {
    double total = 0;
    for (int i = 0; i < n_; ++i) total += weight(i);
    u *= total;
    int last = 0;
    for (int i = 0; i < n_; ++i) {
      const double x = weight(i);
      if (!(x > 0)) continue;
      last = i;
      if ((u -= x) < 0) break;
    }
    return last;
  }

  // Backward through the forward pass: P(y[t] = i | y[t+1] = j, x) is proportional to alpha[t][i] m[i][j].
  void sample_paths(int s, Steps<T, W>& steps) {
    const i64 all = job_.offsets[job_.n_seq];
    for (int t = length(s) - 1; t >= 0; --t) {
      const T* a = ws_.lattice.alpha.data() + static_cast<i64>(pack_.row(t, s)) * stride_;
      const T* m = t + 1 < length(s) ? steps.matrix(t) : nullptr;
      for (i64 k = 0; k < job_.n_samples; ++k) {
        const i64 at = k * all + token(s) + t;
        job_.path[at] = draw(job_.uniform[at], [&](int i) {
          return static_cast<double>(m ? a[i] * m[static_cast<i64>(i) * stride_ + job_.path[at + 1]] : a[i]);
        });
      }
    }
  }

  void sample_in_log_space(int s) {
    const LogLattice& log_lattice = ws_.log_lattice;
    const i64 all = job_.offsets[job_.n_seq];
    const int steps = length(s), wide = log_stride(n_);
    for (int t = steps - 1; t >= 0; --t) {
      const double* a = t + 1 < steps ? log_matrix(s, t, false) : nullptr;
      for (i64 k = 0; k < job_.n_samples; ++k) {
        const i64 at = k * all + token(s) + t;
        job_.path[at] = draw(job_.uniform[at], [&](int i) {
          if (!a) return log_lattice.node(t, i);
          return log_lattice.edge(t, i, job_.path[at + 1], a[i * wide + job_.path[at + 1]]);
        });
      }
    }
  }

  const ChainJob<T>& job_;
  const Pack& pack_;
  ChainWorkspace<T, W>& ws_;
  const int n_, stride_;
  struct Fill {
    const ChainKernel* kernel;
    void operator()(int t, T* a) const {
      pad_rows(kernel->own_matrix(0, t), kernel->n_, kernel->n_, kernel->stride_, a);
    }
  };
  const Fill fill_{this};
};

}  // namespace crfkit::CRFKIT_ISA
