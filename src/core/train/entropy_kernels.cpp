// entropy_kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "chain/chain_kernels.hpp"
#include "chain/covariance.hpp"
#include "chain/plain_covariance.hpp"
#include "train/entropy.hpp"
#include "train/loss_kernels.hpp"

namespace crfkit::CRFKIT_ISA {
namespace {

template <class T, int W>
struct EntropyWorkspace : LossWorkspace<T, W> {
  LocalRows<T, W> tangent_state, tangent_edge;
  PackStatistics<T, W> statistics;
  PlainStatistics plain;
  Buffer<T> scores, nodes, pairs_of_scores;  // scores and gradients of a pack; sum h x q + alpha x qq [labels][stride]
};

template <class T, int W>
class EntropyChainKernel : ChainKernel<T, W> {
  using Base = ChainKernel<T, W>;
  using Base::length, Base::n_, Base::pack_, Base::stride_, Base::token;

 public:
  EntropyChainKernel(const EntropyJob<T>& job, const Pack& pack, double* pairs, Workspace& workspace)
      : Base(job, pack, workspace),
        job_(job),
        out_(job.out),
        pairs_(pairs),
        ws_(static_cast<EntropyWorkspace<T, W>&>(workspace)) {}

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
        pairs_[static_cast<i64>(i) * n_ + j] -= static_cast<double>(job_.shared->m[ij]) * static_cast<double>(x1[ij]) +
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
            if (job_.shared) pairs_[k] += d[k];
            else out_.pairwise[(edge + t) * n * n + k] = static_cast<T>(d[k]);
          }
        });
  }

  const EntropyJob<T>& job_;
  const EntropyOut<T>& out_;
  double* pairs_;
  EntropyWorkspace<T, W>& ws_;
};

template <class T, int W>
class SemiLossKernel : LossKernel<T, W> {
  using Base = LossKernel<T, W>;
  using Base::base_, Base::block_, Base::length, Base::n_, Base::own_steps_, Base::step_scores, Base::stride_,
      Base::value_;

 public:
  SemiLossKernel(const SemiJob<T>& job, const Block<T>& block, Workspace& workspace)
      : Base(job, block, workspace), job_(job), ws_(static_cast<EntropyWorkspace<T, W>&>(workspace)) {}

  void partial(const u64* masks, i64 task) {
    run(task, ws_.scores, [&](const Pack& pack, T* u) {
      const std::size_t size = static_cast<std::size_t>(pack.rows()) * stride_;
      ws_.nodes.reserve(size);
      nodes_ = ws_.nodes.data();
      std::fill_n(nodes_, size, T(0));
      pass(pack, u);
      forbid(pack, masks, u);
      sign_ = -1;
      pass(pack, u);
      sign_ = 1;
    });
  }

  void entropy(i64 task) {
    run(task, ws_.statistics.u, [&](const Pack& pack, T* u) { entropy_pass(pack, u, u); });
  }

  // As the entropy's gradient, with the direction's scores in place of the model's. With masks, less that of the paths
  // that fit.
  void curvature(const u64* masks, i64 task) {
    const LossJob<T>& v = *job_.tangent;
    ws_.tangent_state.load(block_.state, *v.state, v.state_table, v.w);
    if (own_steps_) ws_.tangent_edge.load(block_.edge, *v.edge, v.edge_table, v.w);
    run(task, ws_.scores, [&](const Pack& pack, T* u) {
      const std::size_t size = static_cast<std::size_t>(pack.rows()) * stride_;
      const auto covary = [&] {
        ws_.statistics.u.reserve(size);
        T* r = ws_.statistics.u.data();
        ws_.tangent_state.score(base_, pack.rows(), ws_.init.data(), r);
        Base::add_ends(pack, v.start, v.end, r);
        entropy_pass(pack, u, r);
      };
      covary();
      if (!masks) return;
      ws_.nodes.reserve(size);
      std::copy_n(nodes_, size, ws_.nodes.data());
      forbid(pack, masks, u);
      sign_ = -1;
      covary();
      sign_ = 1;
      for (std::size_t k = 0; k < size; ++k) ws_.nodes[k] += nodes_[k];
      nodes_ = ws_.nodes.data();
    });
  }

 private:
  // Calls body(pack, scores) for all packs; it adds to value and to the gradients of transitions, and points nodes_ to
  // the gradient of the scores. The scores lie in `scores`.
  template <class Body>
  void run(i64 task, Buffer<T>& scores, Body body) {
    {
      const FlushDenormals flush;
      Base::clear();
      for (std::size_t p = 0; p < block_.packs.size(); ++p) {
        const Pack& pack = block_.packs[p];
        base_ = block_.base[p];
        scores.reserve(static_cast<std::size_t>(pack.rows()) * stride_);
        Base::score_pack(pack, scores.data());
        body(pack, scores.data());
        for (int s = 0; s < pack.n_seq(); ++s) {
          const T* first = node_row(pack, 0, s);
          const T* last = node_row(pack, length(pack, s) - 1, s);
          for (int j = 0; j < n_; ++j) ws_.start_gradient[j] += static_cast<double>(first[j]);
          for (int j = 0; j < n_; ++j) ws_.end_gradient[j] += static_cast<double>(last[j]);
        }
        ws_.state.scatter(base_, pack.rows(), nodes_);
      }
    }
    for (int part = 0; part < job_.turns->parts(); ++part) {
      job_.turns->wait(part, task);
      Base::merge(part);
      job_.turns->pass(part, task);
    }
  }

  // Forbids what does not fit; u: scores of the pack
  void forbid(const Pack& pack, const u64* masks, T* u) const {
    const int words = (n_ + 63) / 64;
    for (int r = 0; r < pack.rows(); ++r) {
      const u64* mask = masks + (base_ + r) * words;
      for (int j = 0; j < n_; ++j)
        if (!(mask[j / 64] >> (j % 64) & 1)) u[static_cast<i64>(r) * stride_ + j] = -std::numeric_limits<T>::infinity();
    }
  }

  double weight(const Pack& pack, int s) const { return sign_ * job_.scale * Base::weight(pack, s); }
  T* node_row(const Pack& pack, int t, int s) { return nodes_ + static_cast<i64>(pack.row(t, s)) * stride_; }

  // Adds weight * log Z to the value, and its gradient.
  void pass(const Pack& pack, const T* u) {
    auto& lattice = ws_.lattice;
    lattice.start(pack, n_, stride_);
    lattice.set_rows(pack, u);
    Steps<T, W> steps = Base::steps_of(pack);
    lattice.forward(pack, steps);
    for (int s = 0; s < pack.n_seq(); ++s) {
      double log_z;
      if (lattice.good(s)) {
        log_z = lattice.log_z(pack, s) + steps.total_shift(length(pack, s));
      } else {
        log_z = in_log_space(pack, s, u);
        add_redone(pack, s);
        lattice.drop(pack, s);
      }
      value_ += weight(pack, s) * log_z;
    }
    lattice.backward(pack, steps);
    for (int s = 0; s < pack.n_seq(); ++s) {
      const T scale = static_cast<T>(weight(pack, s));
      for (int t = 0; t < length(pack, s); ++t) {
        const i64 at = static_cast<i64>(pack.row(t, s)) * stride_;
        for (int j = 0; j < n_; ++j) nodes_[at + j] += scale * lattice.e[at + j];
        if (t > 0)
          for (int j = 0; j < n_; ++j) lattice.q[at + j] *= scale;
      }
    }
    if (!own_steps_) Base::add_shared_edges(pack);
    else if (lattice.good(0)) add_own_edges(pack, steps);
  }

  void add_own_edges(const Pack& pack, Steps<T, W>& steps) {
    auto& lattice = ws_.lattice;
    for (int t = 0; t + 1 < pack.steps(); ++t) {
      const T* m = steps.matrix(t);
      const T* a = lattice.alpha.data() + static_cast<i64>(t) * stride_;
      const T* q = lattice.q.data() + static_cast<i64>(t + 1) * stride_;
      add_edge(t, [&](int i, int j) {
        return static_cast<double>(a[i]) * static_cast<double>(m[static_cast<i64>(i) * stride_ + j]) *
               static_cast<double>(q[j]);
      });
    }
  }

  // Adds d(i, j), the gradient of the scores of transition t of a sequence; where steps have scores of their own it is
  // the pack's only one.
  template <class D>
  void add_edge(int t, D d) {
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) {
        const double x = d(i, j);
        ws_.pair_gradient[static_cast<i64>(i) * n_ + j] += x;
        if (own_steps_) ws_.edge_row[static_cast<i64>(i) * stride_ + j] = static_cast<T>(x);
      }
    if (!own_steps_) return;
    for (int i = 0; i < n_; ++i)
      std::fill_n(ws_.edge_row.data() + static_cast<i64>(i) * stride_ + n_, stride_ - n_, T(0));
    ws_.edge.scatter(base_ + t + 1, 1, ws_.edge_row.data());
  }

  double in_log_space(const Pack& pack, int s, const T* u) {
    Base::run_log_lattice(pack, s, u);
    if (!(ws_.log_lattice.log_z > -std::numeric_limits<double>::infinity()))
      throw Error("no labelling of a sequence fits both its known labels and the constraints");
    return ws_.log_lattice.log_z;
  }

  void add_redone(const Pack& pack, int s) {
    const double scale = weight(pack, s);
    const int wide = log_stride(n_);
    for (int t = 0; t < length(pack, s); ++t) {
      T* out = node_row(pack, t, s);
      for (int j = 0; j < n_; ++j) out[j] += static_cast<T>(scale * ws_.log_lattice.node(t, j));
      if (t + 1 == length(pack, s)) break;
      const double* a = Base::log_matrix(t, false);
      add_edge(t, [&](int i, int j) { return scale * ws_.log_lattice.edge(t, i, j, a[i * wide + j]); });
    }
  }

  // Adds weight * H to the value, and its gradient: minus the covariance with the score of a path, of which r
  // [rows][stride] holds the labels' part, and copy_pair_part gives the transitions'.
  void entropy_pass(const Pack& pack, const T* u, const T* r) {
    auto& lattice = ws_.lattice;
    lattice.start(pack, n_, stride_);
    nodes_ = lattice.e.data();
    lattice.set_rows(pack, u);
    Steps<T, W> steps = Base::steps_of(pack);
    lattice.forward(pack, steps);
    in_logs_.clear();
    for (int s = 0; s < pack.n_seq(); ++s) {
      if (lattice.good(s)) continue;
      in_log_space(pack, s, u);
      plain(
          pack, s, r, [&](int t, int j) { return ws_.log_lattice.node(t, j); },
          [&](int t, double* xi, double* scores) {
            copy_pair_part(t, scores);
            const double* a = Base::log_matrix(t, false);
            for (int i = 0; i < n_; ++i)
              for (int j = 0; j < n_; ++j)
                xi[static_cast<i64>(i) * n_ + j] = ws_.log_lattice.edge(t, i, j, a[i * log_stride(n_) + j]);
          });
      for (int t = 0; t < length(pack, s); ++t)
        in_logs_.insert(in_logs_.end(), node_row(pack, t, s), node_row(pack, t, s) + n_);
      lattice.drop(pack, s);
    }
    if (!own_steps_) packed(pack);
    else if (lattice.good(0)) entropy_of_own(pack, r, steps);
    auto row = in_logs_.begin();
    for (int s = 0; s < pack.n_seq(); ++s)
      for (int t = 0; !lattice.good(s) && t < length(pack, s); ++t, row += n_)
        std::copy_n(row, n_, node_row(pack, t, s));
  }

  void entropy_of_own(const Pack& pack, const T* r, Steps<T, W>& steps) {
    auto& lattice = ws_.lattice;
    lattice.backward(pack, steps);
    plain(
        pack, 0, r, [&](int t, int j) { return static_cast<double>(lattice.e[static_cast<i64>(t) * stride_ + j]); },
        [&](int t, double* xi, double* scores) {
          const T* m = steps.matrix(t);
          const T* a = lattice.alpha.data() + static_cast<i64>(t) * stride_;
          const T* q = lattice.q.data() + static_cast<i64>(t + 1) * stride_;
          copy_pair_part(t, scores);
          for (int i = 0; i < n_; ++i)
            for (int j = 0; j < n_; ++j)
              xi[static_cast<i64>(i) * n_ + j] = static_cast<double>(a[i]) *
                                                 static_cast<double>(m[static_cast<i64>(i) * stride_ + j]) *
                                                 static_cast<double>(q[j]);
        });
  }

  // What the transition t adds to the score that covariances are taken with   [labels][labels]
  void copy_pair_part(int t, double* out) {
    const LossJob<T>& job = job_.tangent ? *job_.tangent : job_;
    const T* a = job.transitions->score.data();
    if (own_steps_) {
      (job_.tangent ? ws_.tangent_edge : ws_.edge).score(base_ + t + 1, 1, a, ws_.step_scores.data());
      a = ws_.step_scores.data();
    }
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j)
        out[static_cast<i64>(i) * n_ + j] = static_cast<double>(a[static_cast<i64>(i) * stride_ + j]);
  }

  // The scores lie in ws_.statistics.u.
  void packed(const Pack& pack) {
    auto& lattice = ws_.lattice;
    auto& statistics = ws_.statistics;
    statistics.run(pack, lattice, *job_.transitions, job_.scored, job_.scored_t,
                   [&](int s) { return weight(pack, s); });
    for (int s = 0; s < pack.n_seq(); ++s)
      if (lattice.good(s)) value_ += weight(pack, s) * statistics.entropy[s];
    const std::size_t pairs = static_cast<std::size_t>(n_) * stride_;
    ws_.pairs_of_scores.reserve(pairs);
    std::fill_n(ws_.pairs_of_scores.data(), pairs, T(0));
    std::fill_n(ws_.pairs.data(), pairs, T(0));
    statistics.add_edges(pack, lattice, ws_.pairs_of_scores.data(), ws_.pairs.data());
    const T* m = job_.transitions->m.data();
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) {
        const i64 ij = static_cast<i64>(i) * stride_ + j;
        ws_.pair_gradient[static_cast<i64>(i) * n_ + j] -=
            static_cast<double>(m[ij]) * static_cast<double>(ws_.pairs_of_scores[ij]) +
            static_cast<double>(job_.scored[ij]) * static_cast<double>(ws_.pairs[ij]);
      }
  }

  void plain(const Pack& pack, int s, const T* r, FunctionRef<double(int, int)> node, PlainStatistics::Edges edges) {
    auto& statistics = ws_.plain;
    const int steps = length(pack, s);
    const double scale = weight(pack, s);
    statistics.start(steps, n_);
    for (int t = 0; t < steps; ++t)
      for (int j = 0; j < n_; ++j) {
        statistics.gamma[static_cast<i64>(t) * n_ + j] = node(t, j);
        statistics.u[static_cast<i64>(t) * n_ + j] =
            static_cast<double>(r[static_cast<i64>(pack.row(t, s)) * stride_ + j]);
      }
    if (!job_.tangent) {
      statistics.entropies(edges, false);
      value_ += scale * statistics.entropy;
    }
    statistics.gradient(
        edges,
        [&](int t, const double* d) {
          for (int j = 0; j < n_; ++j) node_row(pack, t, s)[j] = static_cast<T>(scale * d[j]);
        },
        [&](int t, const double* d) {
          add_edge(t, [&](int i, int j) { return scale * d[static_cast<i64>(i) * n_ + j]; });
        });
  }

  const SemiJob<T>& job_;
  EntropyWorkspace<T, W>& ws_;
  double sign_ = 1;         // of what is added
  T* nodes_ = nullptr;      // gradient of the scores of the pack at hand   [rows][stride]
  std::vector<T> in_logs_;  // of the sequences that were done in log space, one after another
};

template <class T, int W>
const EntropyKernels<T>& entropy_table() {
  static const EntropyKernels<T> kernels = {
      .workspace = [] { return std::unique_ptr<Workspace>(new EntropyWorkspace<T, W>); },
      .chain = [](const EntropyJob<T>& job, const Pack& pack, double* pairs,
                  Workspace& ws) { EntropyChainKernel<T, W>(job, pack, pairs, ws).run(); },
      .partial = [](const SemiJob<T>& job, const Block<T>& block, const u64* masks, i64 task,
                    Workspace& ws) { SemiLossKernel<T, W>(job, block, ws).partial(masks, task); },
      .entropy = [](const SemiJob<T>& job, const Block<T>& block, i64 task,
                    Workspace& ws) { SemiLossKernel<T, W>(job, block, ws).entropy(task); },
      .curvature = [](const SemiJob<T>& job, const Block<T>& block, const u64* masks, i64 task,
                      Workspace& ws) { SemiLossKernel<T, W>(job, block, ws).curvature(masks, task); },
  };
  return kernels;
}

}  // namespace

template <class T>
const EntropyKernels<T>& entropy_kernels(int lanes) {
  return with_width<T>(lanes, [](auto W) -> const EntropyKernels<T>& { return entropy_table<T, W>(); });
}
#define CRFKIT_DEFINE(T) template const EntropyKernels<T>& entropy_kernels<T>(int);
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
