// sequence.hpp: one sequence at a time: scores -> loss -> its derivatives by the scores; second derivatives; best
// paths.
//
// What an algorithm of update_rules.hpp sees of a sequence is a Delta.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "chain/covariance.hpp"
#include "chain/scaled_or_log.hpp"
#include "chain/viterbi.hpp"
#include "online/beam_sequence.hpp"
#include "online/flat_rows.hpp"

namespace crfkit::CRFKIT_ISA {

struct Mistake {
  int errors = 0;   // labels that differ
  double cost = 0;  // score of the best path minus that of the gold path
};

template <class T, int W>
class OnlineSequence {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  using Mask = typename S::Mask;
  static constexpr const char* kNothingFits =
      "no labelling of a sequence fits both its known labels and the constraints";

 public:
  explicit OnlineSequence(const OnlineData<T>& data) : d_(data), n_(data.n_labels), stride_(data.stride) {
    for (Buffer<T>* b : {&start_, &end_}) b->reserve(stride_);
    for (Buffer<T>* b : {&step_, &xi_}) b->reserve(n_ * stride_);
    init_.assign(stride_, -std::numeric_limits<T>::infinity());
    std::fill_n(init_.data(), n_, T(0));
    zero_.assign(n_ * stride_, T(0));
    constrained_ = std::any_of(d_.forbidden.begin(), d_.forbidden.end(), [](double x) { return x != 0; });
    set_beam(nullptr);
  }

  // From here on the weights are scale * v; v is read until the next call.
  void prepare(const T* v, double weight_scale) {
    v_ = v;
    scale_ = weight_scale;
    const T *start = v_ + d_.start_at, *end = v_ + d_.end_at;
    const double* forbidden = d_.forbidden.data() + n_ * n_;
    for (int j = 0; j < n_; ++j) {
      start_[j] = start[j] * T(scale_) + T(forbidden[j]);
      end_[j] = end[j] * T(scale_) + T(forbidden[n_ + j]);
    }
    if (beam_) beam_->prepare(v, weight_scale);
    scores_ready_ = sums_ready_ = finite_ready_ = bounds_ready_ = false;
  }
  // The weights have changed, but only those that x, the last mistake, names.
  void changed(const Delta<T>& x) {
    const bool known = x.sparse && bounds_ready_;
    prepare(v_, scale_);
    if (!known) return;
    for (const auto& link : x.links) set_bounds(link.at / stride_);
    bounds_->measure();
    bounds_ready_ = true;
  }

  // From here on, fully labelled sequences are looked at within beams; null: no longer.
  void set_beam(const Criterion* criterion) {
    beam_.reset();
    if (!criterion && d_.tuples.order == 1) return;
    beam_.emplace(d_);
    beam_->all = !criterion;
    if (criterion) beam_->criterion = *criterion;
    if (v_) beam_->prepare(v_, scale_);
  }
  bool sparse() const { return beam_.has_value(); }
  BeamTally tally() const { return beam_ ? beam_->tally : BeamTally(); }

  double weight(i64 s) const { return d_.seq_weight.empty() ? 1.0 : d_.seq_weight[s]; }

  // What a pass over a sequence leaves: its loss; also the derivatives; also what covariance() needs.
  enum class Want { loss, gradient, curvature };

  // Gives, by what is known of the labels of sequence s,
  //
  //   all of them:   weight * (log Z - score of the gold path)
  //   some:          weight * (log Z - log Z of the paths that fit)
  //   none:          entropy_weight * weight * entropy
  //
  // x: its derivatives by the scores.
  double loss(i64 s, Delta<T>& x, Want want) {
    begin_sequence(s, x);
    noise_ = entropy_ = 0;
    const Known known = d_.known_of(s);
    x.sparse = x.steps > 0 && beam_ && (known == Known::all || d_.tuples.order > 1);
    if (!x.sparse) size(x);
    if (x.steps == 0) return 0;
    if (x.sparse) {
      scores_.reserve(x.steps * stride_);
      score(s, scores_.data());
      if (known == Known::all) return weight(s) * beam_->loss(scores_.data(), gold_, weight(s), x);
      if (known == Known::none) throw Error("the entropy is not looked at in models of a higher order");
      known_scores_.reserve(x.steps * stride_);
      std::copy_n(scores_.data(), x.steps * stride_, known_scores_.data());
      restrict_to_known(known_scores_.data());
      const double value = beam_->loss_of_known(scores_.data(), known_scores_.data(), weight(s), x);
      if (value == std::numeric_limits<double>::infinity()) throw Error(kNothingFits);
      return weight(s) * value;
    }
    prepare_sums();
    T* u = enter();
    score(s, u);
    double log_z, less, factor = weight(s);  // the loss is factor * (log_z - less)
    if (known == Known::all) {
      less = gold_score(x, u);
      log_z = run(x, want);
      if (want != Want::loss) take_gold(x);
    } else if (known == Known::some) {
      less = inside(u, want == Want::loss ? Want::loss : Want::gradient);
      std::copy_n(scores_.data(), x.steps * stride_, enter());
      log_z = run(x, want);
      if (want != Want::loss) subtract(x, inside_);
    } else {
      covariance_.start(x.steps, n_, stride_);
      std::copy_n(u, x.steps * stride_, covariance_.r.data());
      log_z = run(x, Want::curvature);
      covary([this](int t) { return finite_pairs(t); }, x);
      less = covariance_.mean;
      entropy_ = factor * (log_z - less);
      factor *= entropy_weight;
    }
    noise_ = factor * std::numeric_limits<T>::epsilon() * (std::abs(log_z) + std::abs(less) + x.steps);
    if (want != Want::loss) finish(x, T(known == Known::none ? -factor : factor));
    return factor * (log_z - less);
  }

  double entropy_weight = 0;
  // Rounding errors of the last loss; the entropy in it, times the sequence's weight.
  double noise() const { return noise_; }
  double entropy() const { return entropy_; }

  // The Hessian of the loss by the scores, times the scores of the weights `table`: the covariance of labels and pairs
  // with those, of all paths or, where labels are known in part, that less the one of the paths that fit. The entropy
  // has no part in it. To be called after loss() that wanted curvature; x is overwritten.
  void covariance(i64 s, const T* table, Delta<T>& x) {
    if (x.steps == 0) return;
    if (d_.known_of(s) == Known::none) {
      std::fill_n(x.nodes.data(), x.steps * stride_, T(0));
      std::fill_n(x.pairs.data(), n_ * stride_, T(0));
      if (d_.own_steps) std::fill_n(x.edges.data(), (x.steps - 1) * n_ * stride_, T(0));
    } else {
      covary(table, x);
      if (d_.known_of(s) == Known::some) {
        T* u = enter();
        std::copy_n(scores_.data(), x.steps * stride_, u);
        inside(u, Want::curvature);
        covary(table, inside_);
        subtract(x, inside_);
      }
    }
    finish(x, T(weight(s)));
  }

  // x: features of the gold path minus those of the best path. Where labels are known in part, the best path that fits
  // is gold.
  Mistake mistake(i64 s, Delta<T>& x) {
    if (beam_) throw Error("best paths are not looked for within beams");
    begin_sequence(s, x);
    Mistake found;
    if (x.steps == 0) return found;
    if (!plain()) prepare_scores();
    const i64 pairs = n_ * stride_;
    scores_.reserve(x.steps * stride_);
    path_.resize(x.steps);
    score(s, scores_.data());
    if (d_.known_of(s) != Known::all) {
      if (!best_path(true)) throw Error(kNothingFits);
      forced_.assign(path_.begin(), path_.end());
      gold_ = forced_.data();
    }
    if (!best_path(false)) return found;
    for (int t = 0; t < x.steps; ++t) found.errors += path_[t] != gold_[t];
    if (found.errors == 0) return found;
    if (!d_.own_steps) return few_mistakes(x, found);
    size(x);
    x.active.assign(x.steps, 0);
    std::fill_n(x.nodes.data(), x.steps * stride_, T(0));
    std::fill_n(x.pairs.data(), pairs, T(0));
    std::fill_n(x.edges.data(), (x.steps - 1) * pairs, T(0));
    double best = 0;
    for (int t = 0; t < x.steps; ++t) {
      const int y = gold_[t], z = path_[t];
      if (y != z) {
        T* row = x.nodes.data() + t * stride_;
        row[y] += T(1);
        row[z] -= T(1);
        x.active[t] = 1;
      }
      best += scores_[t * stride_ + z];
      if (t == 0) continue;
      const int y0 = gold_[t - 1], z0 = path_[t - 1];
      step_scores(t - 1, step_.data());
      best += step_[z0 * stride_ + z];
      const auto add = [&](int i, int j, T by) {
        x.pairs[i * stride_ + j] += by;
        x.edges[(t - 1) * pairs + i * stride_ + j] += by;
      };
      add(y0, y, T(1));
      add(z0, z, T(-1));
    }
    for (i64 k = 0; k < pairs; ++k) x.pairs[k] *= d_.pair_mask[k];
    found.cost = std::max(0.0, best - gold_score(x, scores_.data()));
    return found;
  }

  // Tokens whose label is certain and right change nothing that single precision could see.
  void find_active(Delta<T>& x) {
    x.active.resize(x.steps);
    for (int t = 0; t < x.steps; ++t) {
      const T* row = x.nodes.data() + t * stride_;
      T top = 0;
      for (int j = 0; j < n_; ++j) top = std::max(top, std::abs(row[j]));
      x.active[t] = top > kLeastSlope<T>;
    }
  }

 private:
  // Whether the transitions are scored by the weights as they are.
  bool plain() const { return !constrained_ && !d_.own_steps && scale_ == 1; }
  const T* pair_scores() const { return plain() ? v_ + d_.transition_at : transitions_.score.data(); }

  // The difference of two paths, named label by label, where transitions do not look at the input.
  Mistake few_mistakes(Delta<T>& x, Mistake found) {
    const T* a = pair_scores();
    double best = 0;
    x.sparse = true;
    x.active.assign(x.steps, 0);
    x.first.assign(1, 0);
    x.slots.clear();
    x.links.clear();
    const auto link = [&](int i, int j, T by) {
      const u32 at = static_cast<u32>(i * stride_ + j);
      if (d_.pair_mask[at] != T(0)) x.links.push_back({at, by});
    };
    for (int t = 0; t < x.steps; ++t) {
      const int y = gold_[t], z = path_[t];
      if (y != z) {
        x.slots.push_back({static_cast<u32>(std::min(y, z)), T(y < z ? 1 : -1)});
        x.slots.push_back({static_cast<u32>(std::max(y, z)), T(y < z ? -1 : 1)});
        x.active[t] = 1;
      }
      x.first.push_back(static_cast<u32>(x.slots.size()));
      best += scores_[t * stride_ + z];
      if (t == 0) continue;
      best += a[path_[t - 1] * stride_ + z];
      link(gold_[t - 1], y, T(1));
      link(path_[t - 1], z, T(-1));
    }
    std::sort(x.links.begin(), x.links.end(), [](const auto& p, const auto& q) { return p.at < q.at; });
    std::size_t n = 0;  // each transition once
    for (std::size_t k = 0; k < x.links.size(); ++k)
      if (n > 0 && x.links[n - 1].at == x.links[k].at) x.links[n - 1].slope += x.links[k].slope;
      else x.links[n++] = x.links[k];
    x.links.resize(n);
    std::erase_if(x.links, [](const auto& p) { return p.slope == T(0); });
    found.cost = std::max(0.0, best - gold_score(x, scores_.data()));
    return found;
  }

  void set_bounds(i64 i) { bounds_->set(i, v_ + d_.transition_at + i * stride_); }

  // The best path by scores u, looked for among the labels that none dominates (dominance.hpp); false if that gains
  // nothing, or no path is allowed.
  bool best_undominated(const T* u) {
    constexpr int kPause = 8;  // sequences for which it is not tried again
    if (!plain() || n_ < Dominance<T>::kManyLabels || pause_ > 0) {
      pause_ = std::max(0, pause_ - 1);
      return false;
    }
    if (!bounds_ready_) {
      if (!bounds_) bounds_.emplace(n_, stride_);
      for (i64 i = 0; i < n_; ++i) set_bounds(i);
      bounds_->measure();
      bounds_ready_ = true;
    }
    const int steps = pack_.steps();
    const T* a = v_ + d_.transition_at;
    left_.clear();
    left_scores_.clear();
    left_first_.assign(1, 0);
    walk_.start(n_, stride_, Underflow::fails);
    const bool found = walk_.template run<MaxPlus<T, W>>(
        steps, [&](int t) { return u + t * stride_; },
        [&](int, std::span<const u16> beam) {
          for (u16 i : beam) walk_.rows.push_back(a + i * stride_);
          return true;
        },
        [&](int t) {
          if (!walk_.select_undominated(*bounds_, t, steps, left_)) return std::span<const u16>();
          left_first_.push_back(left_.size());
          return std::span<const u16>(left_.data() + left_first_[t], left_.data() + left_first_[t + 1]);
        },
        [&](int) { left_scores_.insert(left_scores_.end(), walk_.kept.begin(), walk_.kept.end()); });
    if (!found) {
      pause_ = kPause;
      return false;
    }
    for (int t = steps - 1; t >= 0; --t) {
      T top = -std::numeric_limits<T>::infinity();
      for (std::size_t k = left_first_[t]; k < left_first_[t + 1]; ++k) {
        const T x = t + 1 < steps ? left_scores_[k] + a[left_[k] * stride_ + path_[t + 1]] : left_scores_[k];
        if (!(x > top)) continue;  // among equals the smallest
        top = x;
        path_[t] = left_[k];
      }
    }
    return true;
  }

  // All transitions, when they are needed first: the scores, the largest, and how far they are apart.
  CRFKIT_KERNEL void prepare_scores() {
    if (scores_ready_) return;
    scores_ready_ = true;
    const T* raw = v_ + d_.transition_at;
    if (constrained_ || transitions_.n_labels == 0) {
      const i64 n = n_;
      pairwise_.resize(n * n);
      for (i64 i = 0; i < n; ++i)
        for (i64 j = 0; j < n; ++j) pairwise_[i * n + j] = d_.forbidden[i * n + j] + scale_ * raw[i * stride_ + j];
      transitions_.prepare(pairwise_.data(), n_, stride_);
      sums_ready_ = constrained_;
      if (constrained_) return;
    }
    const T scale = T(scale_);
    Vec top = S::splat(-std::numeric_limits<T>::infinity()), bottom = S::splat(T(0));  // the padding is zero
    for (int i = 0; i < n_; ++i)
      for (int k = 0; k < stride_; k += W) {
        const Vec x = S::load(raw + i * stride_ + k) * scale, y = x + S::load(init_.data() + k);
        S::store(transitions_.score.data() + i * stride_ + k, y);
        top = S::max(top, y);
        bottom = S::min(bottom, x);
      }
    transitions_.shift = S::highest(top);
    transitions_.range = transitions_.shift - S::lowest(bottom);
  }
  // And their exponentials, for sums over paths.
  CRFKIT_KERNEL void prepare_sums() {
    prepare_scores();
    if (sums_ready_) return;
    sums_ready_ = true;
    const T high = T(transitions_.shift);
    Mask lost = {};
    for (int i = 0; i < n_; ++i)
      for (int k = 0; k < stride_; k += W) {
        const i64 at = i * stride_ + k;
        const Vec x = S::load(transitions_.score.data() + at), y = S::exp(x - high);
        lost |= (x > -std::numeric_limits<T>::infinity()) & (y == T(0));
        S::store(transitions_.m.data() + at, y);
      }
    transitions_.lossy = S::any(lost);
    transitions_.transpose(transitions_.m, transitions_.m_t);
  }

  // Scores of all tokens of a sequence, [steps][stride]
  CRFKIT_KERNEL void score(i64 s, T* u) const {
    const i64 first = d_.offsets[s], last = d_.offsets[s + 1];
    const T scale = T(scale_);
    for (i64 t = first; t < last; ++t) {
      if (t + 4 < last) prefetch_row(d_.state, t + 4, v_);
      score_row<T, W>(d_.state, t, v_, scale, init_.data(), u + (t - first) * stride_);
    }
    if (first == last) return;
    T *head = u, *tail = u + (last - first - 1) * stride_;
    for (int j = 0; j < n_; ++j) head[j] += start_[j];
    for (int j = 0; j < n_; ++j) tail[j] += end_[j];
  }

  // Scores of the transition t -> t + 1 of the sequence at hand.
  void step_scores(int t, T* out) const {
    score_row<T, W>(d_.edge, first_token_ + t + 1, v_, T(scale_), transitions_.score.data(), out);
  }
  void begin_sequence(i64 s, Delta<T>& x) {
    first_token_ = d_.offsets[s];
    gold_ = d_.gold.data() + first_token_;
    x.seq = s;
    x.sparse = false;
    x.steps = static_cast<int>(d_.offsets[s + 1] - d_.offsets[s]);
    pack_.seq.assign(1, s);
    pack_.first.resize(x.steps + 1);
    std::iota(pack_.first.begin(), pack_.first.end(), 0);
  }

  // Room for the derivatives by the scores of all labels.
  void size(Delta<T>& x) const {
    x.nodes.reserve(x.steps * stride_);
    x.pairs.reserve(n_ * stride_);
    if (d_.own_steps) x.edges.reserve(std::max(0, x.steps - 1) * n_ * stride_);
  }

  double gold_score(const Delta<T>& x, const T* u) {
    double total = 0;
    for (int t = 0; t < x.steps; ++t) total += u[t * stride_ + gold_[t]];
    for (int t = 0; t + 1 < x.steps; ++t) {
      const T* a = pair_scores();
      if (d_.own_steps) {
        step_scores(t, step_.data());
        a = step_.data();
      }
      total += a[gold_[t] * stride_ + gold_[t + 1]];
    }
    return total;
  }

  void take_gold(Delta<T>& x) const {
    T* rows = x.nodes.data();
    for (int t = 0; t < x.steps; ++t) {
      rows[t * stride_ + gold_[t]] -= T(1);
      if (t > 0) x.pairs[gold_[t - 1] * stride_ + gold_[t]] -= T(1);
      if (t > 0 && d_.own_steps) x.edges[((t - 1) * n_ + gold_[t - 1]) * stride_ + gold_[t]] -= T(1);
    }
  }

  void subtract(Delta<T>& x, const Delta<T>& y) const {
    const auto take = [](const Buffer<T>& from, i64 size, Buffer<T>& out) {
      for (i64 k = 0; k < size; ++k) out[k] -= from[k];
    };
    take(y.nodes, x.steps * stride_, x.nodes);
    take(y.pairs, n_ * stride_, x.pairs);
    if (d_.own_steps) take(y.edges, (x.steps - 1) * n_ * stride_, x.edges);
  }

  // u: scores of the sequence at hand
  void restrict_to_known(T* u) const {
    for (int t = 0; t < pack_.steps(); ++t)
      restrict_row(d_.label[first_token_ + t], d_.hints.data(), n_, u + t * stride_);
  }

  // The same as run(), into inside_, for the paths that fit. u: the scores, in the lattice's q; scores_ keeps them.
  double inside(T* u, Want want) {
    const i64 size_of_all = pack_.steps() * stride_;
    scores_.reserve(size_of_all);
    std::copy_n(u, size_of_all, scores_.data());
    restrict_to_known(u);
    inside_.steps = pack_.steps();
    size(inside_);
    const double log_z = run(inside_, want);
    if (log_z == -std::numeric_limits<double>::infinity()) throw Error(kNothingFits);
    return log_z;
  }

  // Into path_, by scores_; false if no path is allowed.
  bool best_path(bool that_fits) {
    viterbi_.start(pack_, n_, stride_);
    std::copy_n(scores_.data(), pack_.steps() * stride_, viterbi_.v.data());
    if (that_fits) restrict_to_known(viterbi_.v.data());
    if (best_undominated(viterbi_.v.data())) return true;
    const auto fill = [this](int t, T* a) { step_scores(t, a); };
    MaxSteps<T, W> steps =
        d_.own_steps ? MaxSteps<T, W>(n_, stride_, fill) : MaxSteps<T, W>(n_, stride_, pair_scores());
    viterbi_.forward(pack_, steps);
    return viterbi_.trace(pack_, 0, steps, path_.data());
  }

  // Scores of the transition t -> t + 1, zero where it is forbidden.
  const T* finite_pairs(int t) {
    if (!d_.own_steps && finite_ready_) return finite_.data();
    const i64 pairs = n_ * stride_;
    finite_.reserve(pairs);
    const T* a = transitions_.score.data();
    if (d_.own_steps) {
      step_scores(t, finite_.data());
      a = finite_.data();
    }
    for (i64 k = 0; k < pairs; ++k) finite_[k] = a[k] > -std::numeric_limits<T>::infinity() ? a[k] : T(0);
    finite_ready_ = true;
    return finite_.data();
  }

  // x: the covariance of labels and pairs with the scores of `table`, by the marginals that run() left.
  void covary(const T* table, Delta<T>& x) {
    T* r = covariance_.r.data();
    for (int t = 0; t < x.steps; ++t)
      score_row<T, W>(d_.state, first_token_ + t, table, T(1), zero_.data(), r + t * stride_);
    T* tail = r + (x.steps - 1) * stride_;
    for (i64 j = 0; j < n_; ++j) r[j] += table[d_.start_at + j];
    for (i64 j = 0; j < n_; ++j) tail[j] += table[d_.end_at + j];
    covary(
        [&](int t) -> const T* {
          if (!d_.own_steps) return table + d_.transition_at;
          score_row<T, W>(d_.edge, first_token_ + t + 1, table, T(1), table + d_.transition_at, step_.data());
          return step_.data();
        },
        x);
  }
  // pair_part(t): what the transition t -> t + 1 adds to the scores
  void covary(FunctionRef<const T*(int)> pair_part, Delta<T>& x) {
    const i64 pairs = n_ * stride_;
    const auto pairs_of = [&](int t) ->
        typename SequenceCovariance<T, W>::Pairs { return {kept_.data() + t * pairs, pair_part(t)}; };
    const auto edge = [&](int t, const T* d) { std::copy_n(d, pairs, x.edges.data() + t * pairs); };
    covariance_.run(pairs_of, x.nodes.data(), x.pairs.data(),
                    d_.own_steps ? FunctionRef<void(int, const T*)>(edge) : FunctionRef<void(int, const T*)>());
  }

  void finish(Delta<T>& x, T factor) {
    find_active(x);
    for (i64 k = 0; k < n_ * stride_; ++k) x.pairs[k] *= factor * d_.pair_mask[k];
    if (factor != T(1)) {
      for (i64 k = 0; k < x.steps * stride_; ++k) x.nodes[k] *= factor;
      if (d_.own_steps)
        for (i64 k = 0; k < (x.steps - 1) * n_ * stride_; ++k) x.edges[k] *= factor;
    }
  }

  // Where the scores of the sequence at hand are to be written before run().
  T* enter() { return sum_.start(pack_, n_, stride_); }

  // Forward and, for more than the loss, backward; leaves the marginals of labels and pairs in x, for curvature in
  // covariance_ and kept_ too.
  double run(Delta<T>& x, Want want) {
    const auto fill = [this](int t, T* a) { step_scores(t, a); };
    const i64 pairs = n_ * stride_, rows = x.steps * stride_;
    const bool keep = want == Want::curvature;
    sum_.forward(sum_.lattice.q.data(),
                 d_.own_steps ? Steps<T, W>(n_, stride_, x.steps, fill) : Steps<T, W>(transitions_), !keep);
    const double log_z = sum_.log_z(0);
    if (want == Want::loss) return log_z;
    sum_.backward();
    std::copy_n(sum_.lattice.e.data(), rows, x.nodes.data());
    if (keep) {
      covariance_.start(x.steps, n_, stride_);
      std::copy_n(x.nodes.data(), rows, covariance_.gamma.data());
      kept_.reserve(std::max(1, x.steps - 1) * pairs);
    }
    std::fill_n(x.pairs.data(), pairs, T(0));
    const bool at_once = !d_.own_steps && sum_.scaled(0);
    if (at_once) {
      sum_.lattice.add_edges(pack_, x.pairs.data());
      for (i64 k = 0; k < pairs; ++k) x.pairs[k] *= transitions_.m[k];
      if (!keep) return log_z;
    }
    for (int t = 0; t + 1 < x.steps; ++t) {
      T* out = keep ? kept_.data() + t * pairs : d_.own_steps ? x.edges.data() + t * pairs : xi_.data();
      sum_.template edge<true>(t, 0, out, stride_);
      if (at_once) continue;
      for (i64 k = 0; k < pairs; ++k) x.pairs[k] += out[k];
      if (keep && d_.own_steps) std::copy_n(out, pairs, x.edges.data() + t * pairs);
    }
    return log_z;
  }

  const OnlineData<T>& d_;
  const i64 n_, stride_;
  bool constrained_ = false;
  const T* v_ = nullptr;
  double scale_ = 1;
  std::optional<OnlineBeam<T, W>> beam_;
  // by the weights at hand: what is ready of the transitions
  bool scores_ready_ = false, sums_ready_ = false, finite_ready_ = false;
  Transitions<T> transitions_;
  std::vector<double> pairwise_;
  Buffer<T> init_, zero_, start_, end_, step_, xi_;

  // of the sequence at hand
  i64 first_token_ = 0;
  const u16* gold_ = nullptr;
  double noise_ = 0, entropy_ = 0;
  Pack pack_;
  SumProduct<T, W> sum_;
  Viterbi<T, W> viterbi_;
  // best paths without dominated labels
  std::optional<Dominance<T>> bounds_;
  bool bounds_ready_ = false;
  int pause_ = 0;
  BeamWalk<T, W> walk_;
  std::vector<u16> left_;                // labels of all steps
  std::vector<T> left_scores_;           // of the best paths to them
  std::vector<std::size_t> left_first_;  // first label of each step
  SequenceCovariance<T, W> covariance_;
  Buffer<T> kept_;  // pairs of all steps, for it   [steps - 1][labels][stride]
  Buffer<T> scores_, known_scores_, finite_;
  Delta<T> inside_;  // of the paths that fit
  std::vector<i32> path_;
  std::vector<u16> forced_;
};

}  // namespace crfkit::CRFKIT_ISA
