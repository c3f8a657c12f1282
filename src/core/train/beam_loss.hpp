// beam_loss.hpp: negative log-likelihood and gradient of one block within the beams it was given.
//
// Work and memory are those of the beams: the weights that their labels have at the block's tokens, and the transitions
// between neighbouring beams.
#pragma once
#include "beam/frozen_lattice.hpp"
#include "train/kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
struct BeamLossWorkspace {
  FrozenLattice frozen;
  Buffer<T> weights, gradient;                  // of the local weights
  Buffer<double> log_scores, m, pair_gradient;  // local transitions      [labels][labels]
  std::vector<double> start, end, start_gradient, end_gradient, p;
};

template <class T>
class BeamLossKernel {
  using Logs = LogSimd;
  static constexpr double kInf = std::numeric_limits<double>::infinity();

 public:
  BeamLossKernel(const LossJob<T>& job, const BeamBlock<T>& beams, BeamLossWorkspace<T>& workspace)
      : job_(job), beams_(beams), ws_(workspace), n_(beams.labels.size()) {}

  void loss(i64 task) {
    {
      const FlushDenormals flush;
      load();
      for (const auto& chain : beams_.chains) run(chain);
    }
    for (int part = 0; part < job_.turns->parts(); ++part) {
      job_.turns->wait(part, task);
      merge(part);
      job_.turns->pass(part, task);
    }
  }

 private:
  CRFKIT_KERNEL void load() {
    const Layout& layout = *job_.layout;
    const double* w = job_.w + job_.state->first_weight;
    ws_.weights.reserve(beams_.weight.size() + 1);
    ws_.gradient.reserve(beams_.weight.size() + 1);
    for (std::size_t k = 0; k < beams_.weight.size(); ++k) ws_.weights[k] = T(w[beams_.weight[k]]);
    std::fill_n(ws_.gradient.data(), beams_.weight.size(), T(0));
    const std::size_t pairs = (n_ * n_ + kLogWidth - 1) / kLogWidth * kLogWidth;
    for (Buffer<double>* b : {&ws_.log_scores, &ws_.m, &ws_.pair_gradient}) b->reserve(pairs + 1);
    const i64 labels = layout.n_labels;
    double high = -kInf;
    for (std::size_t i = 0; i < n_; ++i) {
      const i64 row = beams_.labels[i] * labels;
      double* out = ws_.log_scores.data() + i * n_;
      for (std::size_t j = 0; j < n_; ++j) {
        const i32 k = layout.transition[row + beams_.labels[j]];
        out[j] = job_.forbidden[row + beams_.labels[j]] + (k >= 0 ? job_.w[k] : 0.0);
        high = std::max(high, out[j]);
      }
    }
    shift_ = high > -kInf ? high : 0.0;
    for (std::size_t k = n_ * n_; k < pairs; ++k) ws_.log_scores[k] = -kInf;
    typename Logs::Mask lost = {};
    for (std::size_t k = 0; k < pairs; k += kLogWidth) {
      const typename Logs::Vec x = Logs::load(ws_.log_scores.data() + k);
      Logs::store(ws_.m.data() + k, Logs::exp(x - shift_));
      lost |= (x > -kInf) & (x < shift_ - 230);
    }
    lossy_ = Logs::any(lost);
    std::fill_n(ws_.pair_gradient.data(), pairs, 0.0);
    ws_.start.resize(n_);
    ws_.end.resize(n_);
    for (std::size_t j = 0; j < n_; ++j) {
      ws_.start[j] = job_.start[beams_.labels[j]];
      ws_.end[j] = job_.end[beams_.labels[j]];
    }
    ws_.start_gradient.assign(n_, 0);
    ws_.end_gradient.assign(n_, 0);
    value_ = 0;
  }

  void run(const typename BeamBlock<T>::Chain& chain) {
    const int steps = static_cast<int>(chain.steps);
    const double weight = chain.weight;
    const u32* first = beams_.first.data() + chain.token;
    const u16* gold = beams_.gold.data() + chain.token;
    const u16* label = beams_.label.data() + first[0];
    const auto at = [&](int t) { return first[t] - first[0]; };
    auto& frozen = ws_.frozen;
    frozen.start(steps, first);
    double* u = frozen.u();
    score(first[0], first[steps], u);
    if (chain.start)
      for (u32 k = 0; k < at(1); ++k) u[k] += ws_.start[label[k]];
    if (chain.end)
      for (u32 k = at(steps - 1); k < at(steps); ++k) u[k] += ws_.end[label[k]];
    double gold_score = 0, *m = frozen.m();
    for (int t = 0; t < steps; ++t) gold_score += u[at(t) + gold[t]];
    for (int t = 0; t + 1 < steps; ++t) {
      const u16 *from = label + at(t), *to = label + at(t + 1);
      const u32 n = at(t + 1) - at(t), next = at(t + 2) - at(t + 1);
      for (u32 i = 0; i < n; ++i) {
        const double* row = ws_.m.data() + from[i] * n_;
        for (u32 k = 0; k < next; ++k) *m++ = row[to[k]];
      }
      gold_score += ws_.log_scores[from[gold[t]] * n_ + to[gold[t + 1]]];
    }
    const double log_mass = frozen.run(lossy_, (steps - 1) * shift_, [&](int t, std::size_t i, std::size_t k) {
      return ws_.log_scores[label[at(t) + i] * n_ + label[at(t + 1) + k]];
    });
    value_ += weight * (log_mass - gold_score);

    ws_.p.assign(frozen.nodes(), frozen.nodes() + at(steps));
    double* p = ws_.p.data();
    for (int t = 0; t < steps; ++t) p[at(t) + gold[t]] -= 1;
    if (weight != 1.0)
      for (double& x : ws_.p) x *= weight;
    if (chain.start)
      for (u32 k = 0; k < at(1); ++k) ws_.start_gradient[label[k]] += p[k];
    if (chain.end)
      for (u32 k = at(steps - 1); k < at(steps); ++k) ws_.end_gradient[label[k]] += p[k];
    const double* edge = frozen.edges();
    for (int t = 0; t + 1 < steps; ++t) {
      const u16 *from = label + at(t), *to = label + at(t + 1);
      const u32 n = at(t + 1) - at(t), next = at(t + 2) - at(t + 1);
      for (u32 i = 0; i < n; ++i) {
        double* row = ws_.pair_gradient.data() + from[i] * n_;
        for (u32 k = 0; k < next; ++k) row[to[k]] += weight * *edge++;
      }
      ws_.pair_gradient[from[gold[t]] * n_ + to[gold[t + 1]]] -= weight;
    }
    scatter(first[0], first[steps], p);
  }

  CRFKIT_KERNEL void score(u32 begin, u32 end, double* u) const {
    const T* w = ws_.weights.data();
    const u32 *ptr = beams_.ptr.data(), *id = beams_.id.data();
    const T* value = beams_.value.empty() ? nullptr : beams_.value.data();
    for (u32 s = begin; s < end; ++s) {
      T total = 0;
      if (value)
        for (u32 k = ptr[s]; k < ptr[s + 1]; ++k) total += value[k] * w[id[k]];
      else
        for (u32 k = ptr[s]; k < ptr[s + 1]; ++k) total += w[id[k]];
      *u++ = total;
    }
  }

  CRFKIT_KERNEL void scatter(u32 begin, u32 end, const double* p) {
    T* g = ws_.gradient.data();
    const u32 *ptr = beams_.ptr.data(), *id = beams_.id.data();
    const T* value = beams_.value.empty() ? nullptr : beams_.value.data();
    for (u32 s = begin; s < end; ++s) {
      const T x = T(*p++);
      for (u32 k = ptr[s]; k < ptr[s + 1]; ++k) g[id[k]] += value ? value[k] * x : x;
    }
  }

  CRFKIT_KERNEL void merge(int part) const {
    const Layout& layout = *job_.layout;
    const u64 parts = static_cast<u64>(job_.turns->parts());
    const auto at = [&](u64 p) {
      const u32 bound = static_cast<u32>(job_.state->n_weights() * p / parts);
      return std::lower_bound(beams_.weight.begin(), beams_.weight.end(), bound) - beams_.weight.begin();
    };
    double* g = job_.g + job_.state->first_weight;
    const i64 last = static_cast<u64>(part) + 1 == parts ? static_cast<i64>(beams_.weight.size()) : at(part + 1);
    for (i64 k = at(part); k < last; ++k) g[beams_.weight[k]] += ws_.gradient[k];
    if (part > 0) return;
    *job_.value += value_;
    for (std::size_t i = 0; i < n_; ++i) {
      const i32* row = layout.transition.data() + static_cast<i64>(beams_.labels[i]) * layout.n_labels;
      for (std::size_t j = 0; j < n_; ++j) {
        const i32 k = row[beams_.labels[j]];
        if (k >= 0) job_.g[k] += ws_.pair_gradient[i * n_ + j];
      }
      job_.start_gradient[beams_.labels[i]] += ws_.start_gradient[i];
      job_.end_gradient[beams_.labels[i]] += ws_.end_gradient[i];
    }
  }

  const LossJob<T>& job_;
  const BeamBlock<T>& beams_;
  BeamLossWorkspace<T>& ws_;
  const std::size_t n_;  // local labels
  double shift_ = 0, value_ = 0;
  bool lossy_ = false;
};

}  // namespace crfkit::CRFKIT_ISA
