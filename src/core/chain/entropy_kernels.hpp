// entropy_kernels.hpp: entropies of chains, their gradients and covariances, a pack at a time.
#pragma once
#include "base/simd_log.hpp"
#include "chain/chain_kernels.hpp"
#include "chain/covariance.hpp"
#include "chain/entropies.hpp"

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
struct EntropyWorkspace : ChainWorkspace<T, W> {
  SumProduct<double, kLogWidth> wide;
  PackCovariance<T, W> packed;
  SequenceWorkspace single;
  Buffer<T> row;  // [stride]
};

template <class T, int W>
class EntropyKernel : ChainKernel<T, W> {
  using Base = ChainKernel<T, W>;
  using Base::job_, Base::n_, Base::pack_, Base::stride_, Base::token;

 public:
  EntropyKernel(const ChainJob<T>& job, const Pack& pack, Workspace& workspace)
      : Base(job, pack, workspace), ws_(static_cast<EntropyWorkspace<T, W>&>(workspace)), out_(job.entropy) {}

  void entropies() {
    const FlushDenormals flush;
    auto& sum = ws_.sum;
    sum.start(pack_, n_, stride_);
    ws_.packed.u.reserve(pack_.rows() * stride_);
    Base::forward(ws_.packed.u.data());
    const bool nodes = job_.shared && out_.node_entropy && !out_.step_entropy;
    const bool packed = job_.shared && (out_.unary || nodes);
    if (packed && !nodes) packed_gradient();
    else sum.backward();
    if (nodes) node_entropies();
    for (int s = 0; s < pack_.n_seq(); ++s) {
      if (!sum.alive(s) || (packed && sum.scaled(s))) continue;
      if (job_.shared && !out_.before && sum.scaled(s)) span_entropies(s);
      else one_sequence(s);
    }
  }

  // The covariance with job.r and job.ra.
  void covariance() {
    const FlushDenormals flush;
    auto& sum = ws_.wide;
    auto& single = ws_.single;
    const i64 wide = log_stride(n_);
    const auto fill = [this](int t, double* a) { pad_rows(Base::own_matrix(0, t), n_, n_, log_stride(n_), a); };
    double* u = sum.start(pack_, n_, wide);
    Base::fill_rows(u, wide);
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
            single.set_pairs(job_.ra + Base::pair(s, t), n_, n_);
            return {single.xi.data(), single.a.data()};
          },
          single.nodes.data(), single.pairs.data(),
          [&](int t, const double* d) {
            if (job_.edges) copy(d, n_, wide, Base::weight(s), job_.edges + Base::edge(s, t) * n_ * n_);
          });
      mean = single.mean;
      if (job_.nodes) copy(single.nodes.data(), steps, wide, Base::weight(s), job_.nodes + token(s) * n_);
      for (i64 i = 0; job_.pairs && i < n_; ++i)
        for (i64 j = 0; j < n_; ++j) job_.pairs[i * n_ + j] += Base::weight(s) * single.pairs[i * wide + j];
    }
  }

  void backward_messages() {
    const i64 wide = log_stride(n_);
    LogLattice log;
    Buffer<double> a;
    const auto transposed = [&](int t) -> const double* {
      a.assign(n_ * wide, -std::numeric_limits<double>::infinity());
      for (i64 i = 0; i < n_; ++i)
        for (i64 j = 0; j < n_; ++j) a[j * wide + i] = Base::own_matrix(0, t)[i * n_ + j];
      return a.data();
    };
    log.start(pack_.steps(), n_);
    for (int t = 0; t < pack_.steps(); ++t) pad_row(job_.unary + (token(0) + t) * n_, n_, wide, log.row(t));
    log.backward_messages(transposed, job_.beta + token(0) * n_);
  }

 private:
  using WideSteps = Steps<double, kLogWidth>;

  // w x, rows of `stride` to rows of n.
  void copy(const double* x, i64 rows, i64 stride, double w, T* out) const {
    for (i64 r = 0; r < rows; ++r)
      for (i64 j = 0; j < n_; ++j) out[r * n_ + j] = T(w * x[r * stride + j]);
  }

  void packed_gradient() {
    auto& lattice = ws_.sum.lattice;
    auto& packed = ws_.packed;
    packed.run(pack_, lattice, *job_.shared, job_.scored, job_.scored_t, [](int) { return 1.0; });
    for (int s = 0; s < pack_.n_seq(); ++s) {
      if (!lattice.good(s)) continue;
      out_.entropy[pack_.seq[s]] = std::max(0.0, packed.entropy[s]);
      for (int t = 0; t < pack_.length(s); ++t)
        std::copy_n(lattice.e.data() + pack_.row(t, s) * stride_, n_, out_.unary + (token(s) + t) * n_);
    }
    packed.add_pairs(pack_, lattice, *job_.shared, job_.scored, job_.pairs);
  }

  // H(y_t) of all rows, and H(y) = log Z - E[score]; both sides without the rows' tops and the transitions' shift.
  CRFKIT_KERNEL void node_entropies() {
    using S = Simd<T, W>;
    using Vec = typename S::Vec;
    const auto& lattice = ws_.sum.lattice;
    const T *g = lattice.e.data(), *q = lattice.q.data(), *u = ws_.packed.u.data();
    const Vec tiny = S::splat(std::numeric_limits<T>::min()), least = S::splat(std::numeric_limits<T>::lowest() / 2);
    std::vector<double> left(pack_.n_seq());
    ws_.row.reserve(pack_.n_seq() * stride_);
    for (int t = 0; t < pack_.steps(); ++t) {
      const int n = pack_.active(t);
      if (t > 0) {
        const T* before = lattice.alpha.data() + pack_.first[t - 1] * stride_;
        rows_times<T, W>(before, n, job_.scored, n_, stride_, ws_.row.data());
      }
      for (int s = 0; s < n; ++s) {
        const i64 r = pack_.row(t, s);
        const T top = lattice.top(r);
        Vec mass = {}, logs = {}, score = {};
        for (i64 k = 0; k < stride_; k += W) {
          const Vec x = S::load(g + r * stride_ + k);
          mass += x;
          logs += x * log_of<T, W>(S::max(x, tiny));
          score += x * S::max(S::load(u + r * stride_ + k) - top, least);
          if (t > 0) score += S::load(ws_.row.data() + s * stride_ + k) * S::load(q + r * stride_ + k);
        }
        const double total = S::sum(mass);
        if (!(total > 0)) continue;  // served by log space, or without a path
        out_.node_entropy[Base::token(s) + t] = std::max(0.0, std::log(total) - S::sum(logs) / total);
        left[s] -= S::sum(score) / total + std::log(double{lattice.scale(r)});
      }
    }
    for (int s = 0; s < pack_.n_seq(); ++s) out_.entropy[pack_.seq[s]] = std::max(0.0, left[s]);
  }

  // With log xi[i][j] = log alpha[i] + a[i][j] + log q[j], a logarithm per label does for a step.
  CRFKIT_KERNEL void span_entropies(int s) {
    const auto& lattice = ws_.sum.lattice;
    const i64 first = token(s);
    ws_.row.reserve(stride_);
    double total = 0, last = 0;
    for (int t = 0; t < pack_.length(s); ++t) {
      const i64 at = pack_.row(t, s) * stride_;
      const T *g = lattice.e.data() + at, *a = lattice.alpha.data() + at, *q = lattice.q.data() + at;
      double node = 0, into = 0, out_of = 0;
      for (i64 j = 0; j < n_; ++j) {
        const double x = g[j];
        if (!(x > 0)) continue;
        node -= x * std::log(x);
        out_of -= x * std::log(double{a[j]});
        if (t > 0 && q[j] > 0) into -= x * std::log(double{q[j]});  // where it underflows, x is next to nothing
      }
      if (t > 0) {
        const T* before = lattice.alpha.data() + pack_.row(t - 1, s) * stride_;
        rows_times<T, W>(before, 1, job_.scored, n_, stride_, ws_.row.data());
        for (i64 j = 0; j < n_; ++j) into -= double{ws_.row[j]} * q[j];
        const double step = std::max(0.0, last + into);
        total += step;
        if (out_.step_entropy) out_.step_entropy[Base::edge(s, t - 1)] = step;
      } else {
        total = node;
      }
      if (out_.node_entropy) out_.node_entropy[first + t] = node;
      last = out_of - node;  // H(pair) - H(y_t) = last + into
    }
    out_.entropy[pack_.seq[s]] = total;
  }

  // By the marginals, in double precision.
  void one_sequence(int s) {
    auto& sum = ws_.sum;
    auto& single = ws_.single;
    const int steps = pack_.length(s);
    const i64 first = token(s), edge = Base::edge(s, 0), wide = log_stride(n_);
    single.load(sum, s, steps, n_);
    const auto pairs = [&](int t) -> const double* {
      sum.edge(t, s, single.xi.data(), wide);
      return single.xi.data();
    };
    const Entropies found = entropies_of(steps, n_, wide, single.gamma.data(), pairs, out_.before != nullptr);
    out_.entropy[pack_.seq[s]] = found.total;
    if (out_.node_entropy) std::copy_n(found.node.data(), steps, out_.node_entropy + first);
    if (out_.step_entropy) std::copy_n(found.step.data(), steps - 1, out_.step_entropy + edge);
    if (out_.before) {
      std::copy_n(found.before.data(), steps * n_, out_.before + first * n_);
      std::copy_n(found.after.data(), steps * n_, out_.after + first * n_);
    }
    if (!out_.unary) return;
    for (int t = 0; t < steps; ++t) std::copy_n(job_.unary + (first + t) * n_, n_, single.r.data() + t * wide);
    single.run(
        [&](int t) -> SequenceWorkspace::Pairs {
          single.set_pairs(Base::own_matrix(s, t), n_, n_);
          return {pairs(t), single.a.data()};
        },
        single.nodes.data(), single.pairs.data(),
        [&](int t, const double* d) {
          if (!job_.shared) copy(d, n_, wide, -1.0, out_.pairwise + (edge + t) * n_ * n_);
        });
    copy(single.nodes.data(), steps, wide, -1.0, out_.unary + first * n_);
    for (i64 i = 0; job_.shared && i < n_; ++i)
      for (i64 j = 0; j < n_; ++j) job_.pairs[i * n_ + j] -= single.pairs[i * wide + j];
  }

  EntropyWorkspace<T, W>& ws_;
  const EntropyOut<T>& out_;
};

}  // namespace crfkit::CRFKIT_ISA
