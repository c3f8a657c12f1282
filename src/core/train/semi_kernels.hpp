// semi_kernels.hpp: the loss of sequences whose labels are known in part or not at all, and products with the Hessian.
#pragma once
#include "train/other_workspace.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
class SemiLossKernel : LossKernel<T, W> {
  using Base = LossKernel<T, W>;
  using Base::base_, Base::block_, Base::job_, Base::n_, Base::own_steps_, Base::stride_, Base::value_;

 public:
  SemiLossKernel(const LossJob<T>& job, const Block<T>& block, Workspace& workspace, bool rows = true)
      : Base(job, block, workspace, rows), ws_(static_cast<OtherLossWorkspace<T, W>&>(workspace)) {}

  void partial(const KnownRows<T>& known, i64 task) {
    difference(task, [&](const Pack& pack, T* u) { restrict_to(known, pack, u); });
  }

  void divergence(const GroupedRows<T>& rows, i64 task) {
    rows_ = &rows;
    difference(task, [&](const Pack& pack, T* u) { add_groups(pack, u); });
  }

  void covariance(const GroupedRows<T>& rows, i64 task) {
    rows_ = &rows;
    ws_.zeros.assign(n_ * stride_, T(0));
    run(task, ws_.scores, [&](const Pack& pack, T* u) {
      ws_.packed.u.assign(pack.rows() * stride_, T(0));
      add_groups(pack, ws_.packed.u.data());
      entropy_pass(pack, u, ws_.packed.u.data());
    });
  }

  void expected(const GroupedRows<T>& rows, std::vector<double>& counts, i64 task) {
    rows_ = &rows;
    value_ = 0;
    ws_.counts.assign(counts.size(), 0.0);
    {
      const FlushDenormals flush;
      for (std::size_t p = 0; p < block_.packs.size(); ++p) count_pack(p);
    }
    job_.turns->wait(0, task);
    *job_.value += value_;
    for (std::size_t k = 0; k < counts.size(); ++k) counts[k] += ws_.counts[k];
    job_.turns->pass(0, task);
  }

  void entropy(i64 task) {
    run(task, ws_.packed.u, [&](const Pack& pack, T* u) { entropy_pass(pack, u, u); });
  }

  // As the entropy's gradient, with the direction's scores in place of the model's. With known labels, less that of
  // the paths that fit.
  void curvature(const KnownRows<T>* known, i64 task) {
    const ModelView<T>& v = *job_.tangent;
    ws_.tangent_state.load(block_.state, *v.state, v.state_table, v.w);
    if (own_steps_) ws_.tangent_edge.load(block_.edge, *v.edge, v.edge_table, v.w);
    run(task, ws_.scores, [&](const Pack& pack, T* u) {
      const i64 size = pack.rows() * stride_;
      const auto covary = [&] {
        ws_.packed.u.reserve(size);
        T* r = ws_.packed.u.data();
        ws_.tangent_state.score(base_, pack.rows(), ws_.init.data(), r);
        Base::add_ends(pack, v.start, v.end, r);
        entropy_pass(pack, u, r);
      };
      covary();
      if (!known) return;
      ws_.nodes.reserve(size);
      std::copy_n(nodes_, size, ws_.nodes.data());
      restrict_to(*known, pack, u);
      sign_ = -1;
      covary();
      sign_ = 1;
      for (i64 k = 0; k < size; ++k) ws_.nodes[k] += nodes_[k];
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
        scores.reserve(pack.rows() * stride_);
        scores_of(pack, scores.data());
        body(pack, scores.data());
        for (int s = 0; s < pack.n_seq(); ++s)
          Base::add_to_ends(node_row(pack, 0, s), node_row(pack, pack.length(s) - 1, s));
        ws_.state.scatter(base_, pack.rows(), nodes_);
      }
    }
    Base::merge(task);
  }

  // The loss of log Z less that with the scores that change(pack, scores) makes.
  template <class Change>
  void difference(i64 task, Change change) {
    run(task, ws_.scores, [&](const Pack& pack, T* u) {
      const i64 size = pack.rows() * stride_;
      ws_.nodes.reserve(size);
      nodes_ = ws_.nodes.data();
      std::fill_n(nodes_, size, T(0));
      pass(pack, u);
      change(pack, u);
      sign_ = -1;
      pass(pack, u);
      sign_ = 1;
    });
  }

  // Scores of the pack at hand, kept from one pass to the next where there is room for them.
  void scores_of(const Pack& pack, T* u) {
    const i64 size = pack.rows() * stride_;
    T* kept = rows_ && rows_->scores ? rows_->scores + base_ * stride_ : nullptr;
    if (kept && rows_->scored) {
      std::copy_n(kept, size, u);
      return;
    }
    Base::score_pack(pack, u);
    if (kept) std::copy_n(u, size, kept);
  }

  // Calls body(row of the pack, group) for all of them.
  template <class Body>
  void each_group(const Pack& pack, Body body) const {
    const i64 *ptr = rows_->ptr + base_, rows = pack.rows();
    const i32* group = rows_->group;
    for (i64 r = 0; r < rows; ++r)
      for (i64 k = ptr[r]; k < ptr[r + 1]; ++k) body(r, i64{group[k]});
  }
  void add_groups(const Pack& pack, T* u) const {
    each_group(
        pack, [&](i64 r, i64 group) { add_row<T, W>(rows_->table + group * stride_, T(1), stride_, u + r * stride_); });
  }

  void count_pack(std::size_t p) {
    const Pack& pack = block_.packs[p];
    base_ = block_.base[p];
    ws_.scores.reserve(pack.rows() * stride_);
    T* u = ws_.scores.data();
    scores_of(pack, u);
    if (rows_->table) add_groups(pack, u);
    forward(pack, u);
    for (int s = 0; s < pack.n_seq(); ++s) value_ += weight(pack, s) * ws_.sum.log_z(s);
    ws_.sum.backward();
    const T* e = ws_.sum.lattice.e.data();
    each_group(pack, [&](i64 r, i64 group) {
      for (i64 j = 0; j < n_; ++j) ws_.counts[group * n_ + j] += e[r * stride_ + j];
    });
  }

  // u: scores of the pack
  void restrict_to(const KnownRows<T>& known, const Pack& pack, T* u) const {
    for (i64 r = 0; r < pack.rows(); ++r) restrict_row(known.label[base_ + r], known.hints, n_, u + r * stride_);
  }

  double weight(const Pack& pack, int s) const { return sign_ * job_.scale * Base::weight(pack, s); }
  T* node_row(const Pack& pack, int t, int s) { return nodes_ + pack.row(t, s) * stride_; }

  void forward(const Pack& pack, const T* u) {
    ws_.sum.start(pack, n_, stride_);
    ws_.sum.forward(u, Base::steps_of(pack));
    for (int s = 0; s < pack.n_seq(); ++s)
      if (!ws_.sum.alive(s)) throw Error("no labelling of a sequence fits both its known labels and the constraints");
  }

  // Adds weight * log Z to the value, and its gradient.
  void pass(const Pack& pack, const T* u) {
    auto& sum = ws_.sum;
    forward(pack, u);
    for (int s = 0; s < pack.n_seq(); ++s) value_ += weight(pack, s) * sum.log_z(s);
    sum.backward();
    for (int s = 0; s < pack.n_seq(); ++s) {
      const T scale = T(weight(pack, s));
      const int steps = pack.length(s);
      for (int t = 0; t < steps; ++t) {
        const i64 at = pack.row(t, s) * stride_;
        add_row<T, W>(sum.lattice.e.data() + at, scale, stride_, nodes_ + at);
      }
      sum.weigh(s, weight(pack, s));
    }
    if (!own_steps_) return sum.add_pairs(ws_.pair_gradient.data());
    Buffer<double>& xi = ws_.single.xi;
    xi.reserve(n_ * n_);
    for (int t = 0; t + 1 < pack.steps(); ++t) {
      sum.edge(t, 0, xi.data(), n_);
      add_edge(t, xi.data(), n_, 1.0);
    }
  }

  // Adds scale d, d the gradient of the scores of transition t of a sequence, rows of `stride`; where steps have scores
  // of their own it is the pack's only one.
  void add_edge(int t, const double* d, i64 stride, double scale) {
    for (i64 i = 0; i < n_; ++i)
      for (i64 j = 0; j < n_; ++j) {
        const double x = scale * d[i * stride + j];
        ws_.pair_gradient[i * n_ + j] += x;
        if (own_steps_) ws_.edge_row[i * stride_ + j] = T(x);
      }
    if (!own_steps_) return;
    for (i64 i = 0; i < n_; ++i) std::fill_n(ws_.edge_row.data() + i * stride_ + n_, stride_ - n_, T(0));
    ws_.edge.scatter(base_ + t + 1, 1, ws_.edge_row.data());
  }

  // Adds weight * H to the value, and its gradient: minus the covariance with the score of a path, of which r
  // [rows][stride] holds the labels' part, and pair_part gives the transitions'.
  void entropy_pass(const Pack& pack, const T* u, const T* r) {
    auto& sum = ws_.sum;
    forward(pack, u);
    nodes_ = sum.lattice.e.data();
    if (own_steps_) {
      sum.backward();
      return one_sequence(pack, 0, r);
    }
    apart_.clear();
    for (int s = 0; s < pack.n_seq(); ++s) {
      if (sum.scaled(s)) continue;
      one_sequence(pack, s, r);  // before the packed form, which uses r up and writes over all rows
      for (int t = 0; t < pack.length(s); ++t)
        apart_.insert(apart_.end(), node_row(pack, t, s), node_row(pack, t, s) + n_);
    }
    packed(pack);
    auto row = apart_.begin();
    for (int s = 0; s < pack.n_seq(); ++s)
      for (int t = 0; !sum.scaled(s) && t < pack.length(s); ++t, row += n_) std::copy_n(row, n_, node_row(pack, t, s));
  }

  // What the transition t adds to the score that covariances are taken with   [labels][stride]
  const T* pair_part(int t) {
    if (!job_.scored) return ws_.zeros.data();
    const T* a = (job_.tangent ? job_.tangent : &job_)->transitions->score.data();
    if (!own_steps_) return a;
    (job_.tangent ? ws_.tangent_edge : ws_.edge).score(base_ + t + 1, 1, a, ws_.step_scores.data());
    return ws_.step_scores.data();
  }

  // The scores lie in ws_.packed.u.
  void packed(const Pack& pack) {
    auto& lattice = ws_.sum.lattice;
    // what was done apart stays zero here
    ws_.packed.run(pack, lattice, *job_.transitions, job_.scored, job_.scored_t,
                   [&](int s) { return weight(pack, s); });
    for (int s = 0; s < pack.n_seq(); ++s)
      if (lattice.good(s)) value_ += weight(pack, s) * ws_.packed.entropy[s];
    ws_.packed.add_pairs(pack, lattice, *job_.transitions, job_.scored, ws_.pair_gradient.data());
  }

  // By the marginals of sequence s, in double precision.
  void one_sequence(const Pack& pack, int s, const T* r) {
    auto& single = ws_.single;
    const int steps = pack.length(s);
    const double scale = weight(pack, s);
    single.load(ws_.sum, s, steps, n_);
    const i64 wide = single.stride;
    for (int t = 0; t < steps; ++t) std::copy_n(r + pack.row(t, s) * stride_, n_, single.r.data() + t * wide);
    const auto pairs = [&](int t) -> const double* {
      ws_.sum.edge(t, s, single.xi.data(), wide);
      return single.xi.data();
    };
    if (!job_.tangent && job_.scored)
      value_ += scale * entropies_of(steps, n_, wide, single.gamma.data(), pairs, false).total;
    single.run(
        [&](int t) -> SequenceWorkspace::Pairs {
          single.set_pairs(pair_part(t), n_, stride_);
          return {pairs(t), single.a.data()};
        },
        single.nodes.data(), single.pairs.data(), [&](int t, const double* d) { add_edge(t, d, wide, -scale); });
    for (int t = 0; t < steps; ++t)
      for (i64 j = 0; j < n_; ++j) node_row(pack, t, s)[j] = T(-scale * single.nodes[t * wide + j]);
  }

  OtherLossWorkspace<T, W>& ws_;
  const GroupedRows<T>* rows_ = nullptr;
  double sign_ = 1;       // of what is added
  T* nodes_ = nullptr;    // gradient of the scores of the pack at hand   [rows][stride]
  std::vector<T> apart_;  // of the sequences that were done one by one, one after another
};

}  // namespace crfkit::CRFKIT_ISA
