// online_sequence.hpp: one sequence at a time: scores -> loss -> its derivatives by the scores; second derivatives; best paths.
//
// What an algorithm of online_kernels.hpp sees of a sequence is a Delta.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>

#include "lattice.hpp"
#include "logspace.hpp"
#include "online.hpp"
#include "online_rows.hpp"
#include "viterbi.hpp"

namespace crfkit::CRFKIT_ISA {

// A sequence's share of a gradient, before it is spread over the weights.
template <class T>
struct Delta {
  i64 seq = 0;
  int steps = 0;
  Buffer<T> nodes;         // [steps][stride]
  Buffer<T> pairs;         // [labels][stride], zero where there is no weight
  Buffer<T> edges;         // [steps - 1][labels][stride], where transitions look at the input
  std::vector<u8> active;  // tokens that change anything
};

struct Mistake {
  int errors = 0;   // labels that differ
  double cost = 0;  // score of the best path minus that of the gold path
};

template <class T, int W>
class OnlineSequence {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  using Mask = typename S::Mask;

 public:
  explicit OnlineSequence(const OnlineData<T>& data) : d_(data), n_(data.n_labels), stride_(data.stride) {
    init_.reserve(stride_);
    zero_.reserve(static_cast<std::size_t>(n_) * stride_);
    start_.reserve(stride_);
    end_.reserve(stride_);
    step_.reserve(static_cast<std::size_t>(n_) * stride_);
    xi_.reserve(static_cast<std::size_t>(n_) * stride_);
    std::fill_n(init_.data(), stride_, -std::numeric_limits<T>::infinity());
    std::fill_n(init_.data(), n_, T(0));
    std::fill_n(zero_.data(), static_cast<std::size_t>(n_) * stride_, T(0));
    constrained_ = std::any_of(d_.forbidden.begin(), d_.forbidden.end(), [](double x) { return x != 0; });
  }

  // Transitions, start and end scores at the weights scale * v; v is read until the next call.
  CRFKIT_KERNEL void prepare(const T* v, double weight_scale) {
    v_ = v;
    scale_ = weight_scale;
    constexpr T inf = std::numeric_limits<T>::infinity();
    const T *raw = v_ + d_.transition_at, *start = v_ + d_.start_at, *end = v_ + d_.end_at;
    const T scale = static_cast<T>(scale_);
    for (int j = 0; j < stride_; ++j) {
      start_[j] = start[j] * scale;
      end_[j] = end[j] * scale;
    }
    log_ready_ = false;
    if (constrained_ || transitions_.n_labels == 0) {
      const i64 n = n_;
      pairwise_.resize(n * n);
      for (i64 i = 0; i < n; ++i)
        for (i64 j = 0; j < n; ++j) pairwise_[i * n + j] = d_.forbidden[i * n + j] + scale_ * static_cast<double>(raw[i * stride_ + j]);
      transitions_.prepare(pairwise_.data(), n_, stride_);
      for (i64 j = 0; j < n; ++j) {
        start_[j] += static_cast<T>(d_.forbidden[n * n + j]);
        end_[j] += static_cast<T>(d_.forbidden[n * n + n + j]);
      }
      if (constrained_) return;
    }
    Vec top = S::splat(-inf);
    for (int i = 0; i < n_; ++i)
      for (int k = 0; k < stride_; k += W) {
        const Vec x = S::load(raw + static_cast<i64>(i) * stride_ + k) * scale + S::load(init_.data() + k);
        S::store(transitions_.score.data() + static_cast<i64>(i) * stride_ + k, x);
        top = S::max(top, x);
      }
    const T high = S::highest(top);
    transitions_.shift = static_cast<double>(high);
    Mask lost = {};
    for (int i = 0; i < n_; ++i)
      for (int k = 0; k < stride_; k += W) {
        const i64 at = static_cast<i64>(i) * stride_ + k;
        const Vec x = S::load(transitions_.score.data() + at), y = S::exp(x - high);
        lost |= (x > -inf) & (y == T(0));
        S::store(transitions_.m.data() + at, y);
      }
    transitions_.lossy = S::any(lost);
    transitions_.transpose(transitions_.score, transitions_.score_t);
    transitions_.transpose(transitions_.m, transitions_.m_t);
  }

  double weight(i64 s) const { return d_.seq_weight.empty() ? 1.0 : d_.seq_weight[s]; }

  // Gives weight * (log Z - score of the gold path); x: its derivatives by the scores, expected minus gold.
  double loss(i64 s, Delta<T>& x, bool gradients) {
    begin_sequence(s, x);
    noise_ = 0;
    if (x.steps == 0) return 0;
    lattice_.start(pack_, n_, stride_);
    T* u = lattice_.q.data();
    score(s, u);
    const double gold_value = gold_score(x, u);
    lattice_.set_rows(pack_, u);
    const double log_z = run(x, gradients);
    noise_ = weight(s) * std::numeric_limits<T>::epsilon() * (std::abs(log_z) + std::abs(gold_value) + x.steps);
    if (gradients) {
      const T factor = static_cast<T>(weight(s));
      T* rows = x.nodes.data();
      for (int t = 0; t < x.steps; ++t) {
        rows[static_cast<i64>(t) * stride_ + gold()[t]] -= T(1);
        if (t > 0) x.pairs[static_cast<i64>(gold()[t - 1]) * stride_ + gold()[t]] -= T(1);
        if (t > 0 && d_.own_steps)
          x.edges[(static_cast<i64>(t - 1) * n_ + gold()[t - 1]) * stride_ + gold()[t]] -= T(1);
      }
      finish(x, factor);
    }
    return weight(s) * (log_z - gold_value);
  }

  // Rounding errors of the last loss.
  double noise() const { return noise_; }

  // The covariance of the labels and pairs of a sequence with R(y) = sum_t r_t(y_t) + r(y_t, y_t+1), where r are the scores of
  // the weights `table`: the Hessian of log Z times these. To be called after loss() with gradients; x is overwritten.
  //
  //   G[t][j] = E[R up to t, y_t = j]      G[t+1][j] = gamma r + sum_i xi[i][j] (G[t][i] / gamma[t][i] + r[i][j])
  //   B[t][i] = E[R after t, y_t = i]      B[t][i]   = sum_j xi[i][j] (r[i][j] + r[t+1][j] + B[t+1][j] / gamma[t+1][j])
  //   nodes   = G + B - E[R] gamma         pairs     = xi (G/gamma + r + r + B/gamma - E[R])
  CRFKIT_KERNEL void covariance(i64 s, const T* table, Delta<T>& x) {
    if (x.steps == 0) return;
    const T factor = static_cast<T>(weight(s));
    const i64 pairs = static_cast<i64>(n_) * stride_, rows = static_cast<i64>(x.steps) * stride_;
    for (Buffer<T>* b : {&gamma_, &r_, &ahead_, &behind_}) b->reserve(rows);
    all_xi_.reserve(static_cast<std::size_t>(std::max(1, x.steps - 1)) * pairs);
    pair_r_.reserve(pairs);
    if (in_logs_) {
      for (int t = 0; t < x.steps; ++t)
        for (int j = 0; j < stride_; ++j) gamma_[static_cast<i64>(t) * stride_ + j] = j < n_ ? static_cast<T>(log_lattice_.node(t, j)) : T(0);
    } else {
      std::copy_n(lattice_.e.data(), rows, gamma_.data());
    }
    for (int t = 0; t < x.steps; ++t)
      score_row<T, W>(d_.state, first_token_ + t, table, T(1), zero_.data(), r_.data() + static_cast<i64>(t) * stride_);
    T *head = r_.data(), *tail = r_.data() + rows - stride_;
    for (int j = 0; j < n_; ++j) head[j] += table[d_.start_at + j];
    for (int j = 0; j < n_; ++j) tail[j] += table[d_.end_at + j];
    const auto ratio = [&](const T* a, const T* g, T* out) {
      for (int j = 0; j < stride_; ++j) out[j] = g[j] > T(0) ? a[j] / g[j] : T(0);
    };
    const auto pair_scores = [&](int t) -> const T* {
      if (!d_.own_steps) return table + d_.transition_at;
      score_row<T, W>(d_.edge, first_token_ + t + 1, table, T(1), table + d_.transition_at, pair_r_.data());
      return pair_r_.data();
    };
    // ahead: G / gamma
    Buffer<T>&ahead = ahead_, &behind = behind_;
    for (int j = 0; j < stride_; ++j) ahead[j] = r_[j];
    for (int t = 0; t + 1 < x.steps; ++t) {
      T* xi = all_xi_.data() + t * pairs;
      if (in_logs_) log_edge_marginals(t, xi);
      else if (d_.own_steps) std::copy_n(x.edges.data() + t * pairs, pairs, xi);
      else edge_marginals(t, transitions_.m.data(), xi);
      if (!in_logs_ && d_.own_steps) restore_gold(t, factor, xi);
      const T* r = pair_scores(t);
      const T* a = ahead.data() + static_cast<i64>(t) * stride_;
      const i64 next = static_cast<i64>(t + 1) * stride_;
      T* out = ahead.data() + next;
      for_tiles<4>(stride_ / W, [&](auto N, int v0) {
        Vec acc[N] = {};
        for (int i = 0; i < n_; ++i)
          for (int v = 0; v < N; ++v) {
            const i64 k = static_cast<i64>(i) * stride_ + (v0 + v) * W;
            acc[v] += S::load(xi + k) * (S::load(r + k) + a[i]);
          }
        for (int v = 0; v < N; ++v) {
          const i64 k = next + (v0 + v) * W;
          const Vec g = S::load(gamma_.data() + k);
          S::store(out + (v0 + v) * W, (g > T(0) ? acc[v] / (g > T(0) ? g : S::splat(T(1))) : Vec{}) + S::load(r_.data() + k));
        }
      });
    }
    T mean = 0;
    for (int j = 0; j < n_; ++j) mean += gamma_[rows - stride_ + j] * ahead[rows - stride_ + j];
    std::fill_n(x.pairs.data(), pairs, T(0));
    std::fill_n(behind.data() + rows - stride_, stride_, T(0));  // B / gamma
    for (int t = x.steps - 2; t >= 0; --t) {
      const T* xi = all_xi_.data() + t * pairs;
      const T* r = pair_scores(t);
      const i64 now = static_cast<i64>(t) * stride_, next = now + stride_;
      T* edge = d_.own_steps ? x.edges.data() + t * pairs : nullptr;
      for (int i = 0; i < n_; ++i) {
        const T a = ahead[now + i] - mean;
        Vec total = {};
        for (int k = 0; k < stride_; k += W) {
          const i64 ij = static_cast<i64>(i) * stride_ + k;
          const Vec z = S::load(r + ij) + S::load(r_.data() + next + k) + S::load(behind.data() + next + k);
          const Vec p = S::load(xi + ij);
          total += p * z;
          const Vec y = p * (z + a);
          S::store(x.pairs.data() + ij, S::load(x.pairs.data() + ij) + y);
          if (edge) S::store(edge + ij, y);
        }
        behind[now + i] = S::sum(total);
      }
      std::fill_n(behind.data() + now + n_, stride_ - n_, T(0));
      ratio(behind.data() + now, gamma_.data() + now, behind.data() + now);
    }
    for (i64 k = 0; k < rows; ++k) x.nodes[k] = gamma_[k] * (ahead[k] + behind[k] - mean);
    finish(x, factor);
  }

  // x: features of the gold path minus those of the best path.
  Mistake mistake(i64 s, Delta<T>& x) {
    begin_sequence(s, x);
    Mistake found;
    if (x.steps == 0) return found;
    const i64 pairs = static_cast<i64>(n_) * stride_;
    viterbi_.start(pack_, n_, stride_);
    scores_.reserve(static_cast<std::size_t>(x.steps) * stride_);
    path_.resize(x.steps);
    score(s, scores_.data());
    std::copy_n(scores_.data(), static_cast<i64>(x.steps) * stride_, viterbi_.v.data());
    const auto fill = [this](int t, T* a) { step_scores(t, a); };
    MaxSteps<T, W> steps = d_.own_steps ? MaxSteps<T, W>(n_, stride_, fill) : MaxSteps<T, W>(transitions_);
    viterbi_.forward(pack_, steps);
    if (!viterbi_.trace(pack_, 0, steps, path_.data())) return found;
    for (int t = 0; t < x.steps; ++t) found.errors += path_[t] != gold()[t];
    if (found.errors == 0) return found;
    x.active.assign(x.steps, 0);
    std::fill_n(x.nodes.data(), static_cast<i64>(x.steps) * stride_, T(0));
    std::fill_n(x.pairs.data(), pairs, T(0));
    if (d_.own_steps) std::fill_n(x.edges.data(), (x.steps - 1) * pairs, T(0));
    double best = 0;
    for (int t = 0; t < x.steps; ++t) {
      const int y = gold()[t], z = path_[t];
      if (y != z) {
        T* row = x.nodes.data() + static_cast<i64>(t) * stride_;
        row[y] += T(1);
        row[z] -= T(1);
        x.active[t] = 1;
      }
      best += static_cast<double>(scores_[static_cast<i64>(t) * stride_ + z]);
      if (t == 0) continue;
      const int y0 = gold()[t - 1], z0 = path_[t - 1];
      const T* a = transitions_.score.data();
      if (d_.own_steps) {
        step_scores(t - 1, step_.data());
        a = step_.data();
      }
      best += static_cast<double>(a[static_cast<i64>(z0) * stride_ + z]);
      const auto add = [&](int i, int j, T by) {
        x.pairs[static_cast<i64>(i) * stride_ + j] += by;
        if (d_.own_steps) x.edges[(t - 1) * pairs + static_cast<i64>(i) * stride_ + j] += by;
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
    constexpr T least = std::numeric_limits<T>::epsilon();
    x.active.resize(x.steps);
    for (int t = 0; t < x.steps; ++t) {
      const T* row = x.nodes.data() + static_cast<i64>(t) * stride_;
      T top = 0;
      for (int j = 0; j < n_; ++j) top = std::max(top, std::abs(row[j]));
      x.active[t] = top > least;
    }
  }

 private:
  // Scores of all tokens of a sequence, [steps][stride]
  CRFKIT_KERNEL void score(i64 s, T* u) const {
    const i64 first = d_.offsets[s], last = d_.offsets[s + 1];
    const T scale = static_cast<T>(scale_);
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
    score_row<T, W>(d_.edge, first_token_ + t + 1, v_, static_cast<T>(scale_), transitions_.score.data(), out);
  }
  void begin_sequence(i64 s, Delta<T>& x) {
    first_token_ = d_.offsets[s];
    x.seq = s;
    x.steps = static_cast<int>(d_.offsets[s + 1] - d_.offsets[s]);
    x.nodes.reserve(static_cast<std::size_t>(x.steps) * stride_);
    x.pairs.reserve(static_cast<std::size_t>(n_) * stride_);
    if (d_.own_steps) x.edges.reserve(static_cast<std::size_t>(std::max(0, x.steps - 1)) * n_ * stride_);
    pack_.seq.assign(1, s);
    pack_.first.resize(x.steps + 1);
    std::iota(pack_.first.begin(), pack_.first.end(), 0);
  }

  const u16* gold() const { return d_.gold.data() + first_token_; }

  double gold_score(const Delta<T>& x, const T* u) {
    double total = 0;
    for (int t = 0; t < x.steps; ++t) total += static_cast<double>(u[static_cast<i64>(t) * stride_ + gold()[t]]);
    for (int t = 0; t + 1 < x.steps; ++t) {
      const T* a = transitions_.score.data();
      if (d_.own_steps) {
        step_scores(t, step_.data());
        a = step_.data();
      }
      total += static_cast<double>(a[static_cast<i64>(gold()[t]) * stride_ + gold()[t + 1]]);
    }
    return total;
  }

  void finish(Delta<T>& x, T factor) {
    for (i64 k = 0; k < static_cast<i64>(n_) * stride_; ++k) x.pairs[k] *= factor * d_.pair_mask[k];
    if (factor != T(1)) {
      for (i64 k = 0; k < static_cast<i64>(x.steps) * stride_; ++k) x.nodes[k] *= factor;
      if (d_.own_steps)
        for (i64 k = 0; k < static_cast<i64>(x.steps - 1) * n_ * stride_; ++k) x.edges[k] *= factor;
    }
    find_active(x);
  }

  // Forward and, for gradients, backward; leaves the marginals of labels and pairs in x.
  double run(Delta<T>& x, bool gradients) {
    const auto fill = [this](int t, T* a) { step_scores(t, a); };
    Steps<T, W> steps = d_.own_steps ? Steps<T, W>(n_, stride_, x.steps, fill) : Steps<T, W>(transitions_);
    const i64 pairs = static_cast<i64>(n_) * stride_;
    lattice_.forward(pack_, steps);
    const bool good = lattice_.good(0);
    double log_z;
    if (good) {
      log_z = lattice_.log_z(pack_, 0) + steps.total_shift(x.steps);
    } else {
      in_log_space(x.steps);
      log_z = log_lattice_.log_z;
    }
    if (!gradients) return log_z;
    in_logs_ = !good;
    std::fill_n(x.pairs.data(), pairs, T(0));
    if (good) {
      lattice_.backward(pack_, steps);
      std::copy_n(lattice_.e.data(), static_cast<i64>(x.steps) * stride_, x.nodes.data());
    } else {
      std::fill_n(x.nodes.data(), static_cast<i64>(x.steps) * stride_, T(0));
      for (int t = 0; t < x.steps; ++t)
        for (int j = 0; j < n_; ++j) x.nodes[static_cast<i64>(t) * stride_ + j] = static_cast<T>(log_lattice_.node(t, j));
    }
    if (good && !d_.own_steps) {
      lattice_.add_edges(pack_, x.pairs.data());
      for (i64 k = 0; k < pairs; ++k) x.pairs[k] *= transitions_.m[k];
      return log_z;
    }
    for (int t = 0; t + 1 < x.steps; ++t) {
      T* out = d_.own_steps ? x.edges.data() + t * pairs : xi_.data();
      if (good) edge_marginals(t, steps.matrix(t), out);
      else log_edge_marginals(t, out);
      for (i64 k = 0; k < pairs; ++k) x.pairs[k] += out[k];
    }
    return log_z;
  }

  // xi[t][i][j], [labels][stride]
  void edge_marginals(int t, const T* m, T* out) const {
    const T *a = lattice_.alpha.data() + static_cast<i64>(t) * stride_, *q = lattice_.q.data() + static_cast<i64>(t + 1) * stride_;
    for (int i = 0; i < n_; ++i)
      for (int k = 0; k < stride_; k += W)
        S::store(out + static_cast<i64>(i) * stride_ + k, S::load(m + static_cast<i64>(i) * stride_ + k) * S::load(q + k) * a[i]);
  }
  void log_edge_marginals(int t, T* out) {
    const T* a = transitions_.score.data();
    if (d_.own_steps) {
      step_scores(t, step_.data());
      a = step_.data();
    }
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < stride_; ++j) {
        const i64 k = static_cast<i64>(i) * stride_ + j;
        out[k] = j < n_ ? static_cast<T>(log_lattice_.edge(t, i, j, static_cast<double>(a[k]))) : T(0);
      }
  }

  // The scaled pass lost something: the same in log space. The scores still lie in q.
  void in_log_space(int steps) {
    const int wide = log_stride(n_);
    const auto matrix = [&](int t, bool transposed) -> const double* {
      if (!d_.own_steps && log_ready_) return log_matrix_[transposed].data();
      const T* a = transitions_.score.data();
      if (d_.own_steps) {
        step_scores(t, step_.data());
        a = step_.data();
      }
      for (int side = 0; side < 2; ++side) {
        log_matrix_[side].reserve(static_cast<std::size_t>(n_) * wide);
        std::fill_n(log_matrix_[side].data(), static_cast<i64>(n_) * wide, -std::numeric_limits<double>::infinity());
      }
      for (int i = 0; i < n_; ++i)
        for (int j = 0; j < n_; ++j) {
          const double x = static_cast<double>(a[static_cast<i64>(i) * stride_ + j]);
          log_matrix_[0][static_cast<i64>(i) * wide + j] = x;
          log_matrix_[1][static_cast<i64>(j) * wide + i] = x;
        }
      log_ready_ = true;
      return log_matrix_[transposed].data();
    };
    log_lattice_.run(
        steps, n_,
        [&](int t, double* out) {
          const T* u = lattice_.q.data() + static_cast<i64>(t) * stride_;
          for (int j = 0; j < wide; ++j)
            out[j] = j < n_ ? static_cast<double>(u[j]) : -std::numeric_limits<double>::infinity();
        },
        [&](int t) { return matrix(t, false); }, [&](int t) { return matrix(t, true); });
  }

  // Takes the gold pair and the weight out of the derivatives that loss() left, so that marginals remain.
  void restore_gold(int t, T factor, T* xi) const {
    if (factor != T(1) && factor != T(0))
      for (i64 k = 0; k < static_cast<i64>(n_) * stride_; ++k) xi[k] /= factor;
    xi[static_cast<i64>(gold()[t]) * stride_ + gold()[t + 1]] += T(1);
  }

  const OnlineData<T>& d_;
  const int n_, stride_;
  bool constrained_ = false;
  const T* v_ = nullptr;
  double scale_ = 1;
  Transitions<T> transitions_;
  std::vector<double> pairwise_;
  Buffer<T> init_, zero_, start_, end_, step_, xi_;

  // of the sequence at hand
  i64 first_token_ = 0;
  double noise_ = 0;
  Pack pack_;
  Lattice<T, W> lattice_;
  LogLattice log_lattice_;
  Viterbi<T, W> viterbi_;
  bool in_logs_ = false, log_ready_ = false;
  Buffer<double> log_matrix_[2];
  Buffer<T> scores_, gamma_, r_, ahead_, behind_, all_xi_, pair_r_;
  std::vector<i32> path_;
};

}  // namespace crfkit::CRFKIT_ISA
