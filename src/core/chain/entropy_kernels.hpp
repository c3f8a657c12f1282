// entropy_kernels.hpp: entropies of chains and their gradients, a pack at a time.
#pragma once
#include "chain/chain_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
class EntropyKernel : ChainKernel<T, W> {
  using Base = ChainKernel<T, W>;
  using Base::job_, Base::length, Base::n_, Base::pack_, Base::stride_, Base::token, Base::ws_;

 public:
  EntropyKernel(const ChainJob<T>& job, const Pack& pack, Workspace& workspace)
      : Base(job, pack, workspace), out_(job.entropy) {}

  void run() {
    const FlushDenormals flush;
    auto& lattice = ws_.lattice;
    lattice.start(pack_, n_, stride_);
    T* u = reserve(ws_.statistics.u, pack_.rows());
    for (int t = 0; t < pack_.steps(); ++t)
      for (int s = 0; s < pack_.active(t); ++s)
        pad_rows(job_.unary + (token(s) + t) * n_, 1, n_, stride_, u + static_cast<i64>(pack_.row(t, s)) * stride_);
    lattice.set_rows(pack_, u);
    Steps<T, W> steps = Base::all_steps();
    with(steps);
  }

 private:
  T* reserve(Buffer<T>& buffer, int rows) {
    buffer.reserve(static_cast<std::size_t>(rows) * stride_);
    return buffer.data();
  }

  void with(Steps<T, W>& steps) {
    auto& lattice = ws_.lattice;
    lattice.forward(pack_, steps);
    for (int s = 0; s < pack_.n_seq(); ++s) {
      if (lattice.good(s)) {
        out_.log_z[pack_.seq[s]] = lattice.log_z(pack_, s) + steps.total_shift(length(s));
      } else {
        in_log_space(s);
        lattice.drop(pack_, s);
      }
    }
    if (job_.shared && out_.unary) return packed_gradient();
    lattice.backward(pack_, steps);
    for (int s = 0; s < pack_.n_seq(); ++s) {
      if (!lattice.good(s)) continue;
      if (job_.shared && !out_.before) span_entropies(s);
      else plain_from_lattice(s, steps);
    }
  }

  void packed_gradient() {
    auto& lattice = ws_.lattice;
    auto& statistics = ws_.statistics;
    statistics.run(pack_, lattice, *job_.shared, job_.scored, job_.scored_t, [](int) { return 1.0; });
    for (int s = 0; s < pack_.n_seq(); ++s) {
      if (!lattice.good(s)) continue;
      out_.entropy[pack_.seq[s]] = std::max(0.0, statistics.entropy[s]);
      for (int t = 0; t < length(s); ++t)
        std::copy_n(lattice.e.data() + static_cast<i64>(pack_.row(t, s)) * stride_, n_,
                    out_.unary + (token(s) + t) * n_);
    }
    T *x1 = reserve(ws_.pairs_of_scores, n_), *x2 = reserve(ws_.pairs, n_);
    std::fill_n(x1, static_cast<i64>(n_) * stride_, T(0));
    std::fill_n(x2, static_cast<i64>(n_) * stride_, T(0));
    statistics.add_edges(pack_, lattice, x1, x2);
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) {
        const i64 ij = static_cast<i64>(i) * stride_ + j;
        job_.pairs[static_cast<i64>(i) * n_ + j] -=
            static_cast<double>(job_.shared->m[ij]) * static_cast<double>(x1[ij]) +
            static_cast<double>(job_.scored[ij]) * static_cast<double>(x2[ij]);
      }
  }

  // With log xi[i][j] = log alpha[i] + a[i][j] + log q[j], a logarithm per label does for a step.
  CRFKIT_KERNEL void span_entropies(int s) {
    auto& lattice = ws_.lattice;
    const int steps = length(s);
    const i64 first = token(s), edge = job_.edge_first[pack_.seq[s]];
    ws_.row.reserve(stride_);
    double total = 0, last = 0;
    for (int t = 0; t < steps; ++t) {
      const i64 at = static_cast<i64>(pack_.row(t, s)) * stride_;
      const T *g = lattice.e.data() + at, *a = lattice.alpha.data() + at, *q = lattice.q.data() + at;
      double node = 0, into = 0, out_of = 0;
      for (int j = 0; j < n_; ++j) {
        const double x = static_cast<double>(g[j]);
        if (!(x > 0)) continue;
        node -= x * std::log(x);
        out_of -= x * std::log(static_cast<double>(a[j]));
        if (t > 0) into -= x * std::log(static_cast<double>(q[j]));
      }
      if (t > 0) {
        const T* before = lattice.alpha.data() + static_cast<i64>(pack_.row(t - 1, s)) * stride_;
        rows_times<T, W>(before, 1, job_.scored, n_, stride_, ws_.row.data());
        for (int j = 0; j < n_; ++j) into -= static_cast<double>(ws_.row[j]) * static_cast<double>(q[j]);
        const double step = std::max(0.0, last + into);
        total += step;
        if (out_.step_entropy) out_.step_entropy[edge + t - 1] = step;
      } else {
        total = node;
      }
      if (out_.node_entropy) out_.node_entropy[first + t] = node;
      last = out_of - node;  // H(pair) - H(y_t) = last + into
    }
    out_.entropy[pack_.seq[s]] = total;
  }

  void plain_from_lattice(int s, Steps<T, W>& steps) {
    auto& lattice = ws_.lattice;
    auto& plain = ws_.plain;
    plain.start(length(s), n_);
    for (int t = 0; t < length(s); ++t)
      for (int j = 0; j < n_; ++j) {
        plain.gamma[static_cast<i64>(t) * n_ + j] =
            static_cast<double>(lattice.e[static_cast<i64>(pack_.row(t, s)) * stride_ + j]);
        plain.u[static_cast<i64>(t) * n_ + j] = static_cast<double>(job_.unary[(token(s) + t) * n_ + j]);
      }
    finish(s, [&](int t, double* xi, double* scores) {
      const T* m = steps.matrix(t);
      const T* a = lattice.alpha.data() + static_cast<i64>(pack_.row(t, s)) * stride_;
      const T* q = lattice.q.data() + static_cast<i64>(pack_.row(t + 1, s)) * stride_;
      for (int i = 0; i < n_; ++i)
        for (int j = 0; j < n_; ++j) {
          xi[static_cast<i64>(i) * n_ + j] = static_cast<double>(a[i]) *
                                             static_cast<double>(m[static_cast<i64>(i) * stride_ + j]) *
                                             static_cast<double>(q[j]);
          scores[static_cast<i64>(i) * n_ + j] = score(s, t, i, j);
        }
    });
  }

  double score(int s, int t, int i, int j) const {
    if (job_.shared) return static_cast<double>(job_.shared->score[static_cast<i64>(i) * stride_ + j]);
    return static_cast<double>(Base::own_matrix(s, t)[static_cast<i64>(i) * n_ + j]);
  }

  void in_log_space(int s) {
    auto& log_lattice = ws_.log_lattice;
    auto& plain = ws_.plain;
    const int steps = length(s), wide = log_stride(n_);
    Base::run_log_lattice(s);
    out_.log_z[pack_.seq[s]] = log_lattice.log_z;
    if (!(log_lattice.log_z > -std::numeric_limits<double>::infinity())) return;
    plain.start(steps, n_);
    for (int t = 0; t < steps; ++t)
      for (int j = 0; j < n_; ++j) {
        plain.gamma[static_cast<i64>(t) * n_ + j] = log_lattice.node(t, j);
        plain.u[static_cast<i64>(t) * n_ + j] = static_cast<double>(job_.unary[(token(s) + t) * n_ + j]);
      }
    finish(s, [&](int t, double* xi, double* scores) {
      const double* a = Base::log_matrix(s, t, false);
      for (int i = 0; i < n_; ++i)
        for (int j = 0; j < n_; ++j) {
          scores[static_cast<i64>(i) * n_ + j] = a[i * wide + j];
          xi[static_cast<i64>(i) * n_ + j] = log_lattice.edge(t, i, j, a[i * wide + j]);
        }
    });
  }

  void finish(int s, PlainStatistics::Edges edges) {
    auto& plain = ws_.plain;
    const int steps = length(s);
    const i64 first = token(s), edge = job_.edge_first[pack_.seq[s]], n = n_;
    plain.entropies(edges, out_.before != nullptr);
    out_.entropy[pack_.seq[s]] = plain.entropy;
    if (out_.node_entropy) std::copy_n(plain.node_entropy.data(), steps, out_.node_entropy + first);
    if (out_.step_entropy) std::copy_n(plain.step_entropy.data(), steps - 1, out_.step_entropy + edge);
    if (out_.before) {
      std::copy_n(plain.before.data(), steps * n, out_.before + first * n);
      std::copy_n(plain.behind.data(), steps * n, out_.behind + first * n);
    }
    if (!out_.unary) return;
    plain.gradient(
        edges,
        [&](int t, const double* d) {
          for (i64 j = 0; j < n; ++j) out_.unary[(first + t) * n + j] = static_cast<T>(d[j]);
        },
        [&](int t, const double* d) {
          for (i64 k = 0; k < n * n; ++k) {
            if (job_.shared) job_.pairs[k] += d[k];
            else out_.pairwise[(edge + t) * n * n + k] = static_cast<T>(d[k]);
          }
        });
  }

  const EntropyOut<T>& out_;
};

}  // namespace crfkit::CRFKIT_ISA
