// semi_kernels.hpp: the loss of sequences whose labels are known in part or not at all, and products with the Hessian.
#pragma once
#include "train/loss_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
class SemiLossKernel : LossKernel<T, W> {
  using Base = LossKernel<T, W>;
  using Base::base_, Base::block_, Base::job_, Base::length, Base::n_, Base::own_steps_, Base::step_scores,
      Base::stride_, Base::value_, Base::ws_;

 public:
  SemiLossKernel(const LossJob<T>& job, const Block<T>& block, Workspace& workspace) : Base(job, block, workspace) {}

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
    const ModelView<T>& v = *job_.tangent;
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
    const T* a = (job_.tangent ? job_.tangent : &job_)->transitions->score.data();
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

  double sign_ = 1;         // of what is added
  T* nodes_ = nullptr;      // gradient of the scores of the pack at hand   [rows][stride]
  std::vector<T> in_logs_;  // of the sequences that were done in log space, one after another
};

}  // namespace crfkit::CRFKIT_ISA
