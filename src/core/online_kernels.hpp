// online_kernels.hpp: one sequence at a time: scores, marginals or best path, and steps of the weights.
//
// With w = scale * v the decay of the squared penalty is one multiplication of `scale`; a step touches only the weights of the
// sequence's attributes. A mean of all w so far is kept the same way: with c the sum of the scales so far and d a step of v,
//
//   sum of w = c v - A,   A += c d at every step
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "lattice.hpp"
#include "logspace.hpp"
#include "online.hpp"
#include "viterbi.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
class Trainer final : public OnlineTrainer<T> {
  static constexpr int W = kNarrowest<T>;
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  using Mask = typename S::Mask;
  using Sgd = typename OnlineTrainer<T>::Sgd;
  using Smd = typename OnlineTrainer<T>::Smd;

  // A sequence's share of a gradient, before it is spread over the weights.
  struct Delta {
    i64 seq = 0;
    int steps = 0;
    Buffer<T> nodes;         // [steps][stride]
    Buffer<T> pairs;         // [labels][stride], zero where there is no weight
    Buffer<T> edges;         // [steps - 1][labels][stride], where transitions look at the input
    std::vector<u8> active;  // tokens that change anything
  };
  struct Touched {
    u32 at, count;
  };

 public:
  explicit Trainer(std::shared_ptr<const OnlineData<T>> data)
      : data_(std::move(data)), d_(*data_), n_(d_.n_labels), stride_(d_.stride), v_(d_.size) {
    std::fill_n(v_.data(), d_.size, T(0));
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

  i64 size() const override { return static_cast<i64>(d_.place.size()); }

  void set_weights(const double* w) override {
    fresh(v_);
    for (std::size_t k = 0; k < d_.place.size(); ++k)
      if (d_.place[k] != kNone) v_[d_.place[k]] = static_cast<T>(w[k]);
    scale_ = 1;
    steps_ = 0;
    averaged_ = 0;
    scales_ = 0;
    for (Buffer<T>* b : {&average_, &square_, &sum_, &rate_, &trail_}) *b = Buffer<T>();
    deltas_.clear();
    stored_nodes_ = Buffer<T>();
    lipschitz_.clear();
  }

  void weights(bool averaged, double* w) override {
    const bool mean = averaged && averaged_ > 0;
    for (std::size_t k = 0; k < d_.place.size(); ++k) {
      const u32 at = d_.place[k];
      const double x = at == kNone ? 0.0 : static_cast<double>(v_[at]);
      w[k] = mean && at != kNone ? (scales_ * x - static_cast<double>(average_[at])) / averaged_ : scale_ * x;
    }
  }

  double loss(Order order) override {
    const FlushDenormals flush;
    prepare();
    double total = 0;
    for (i64 k = 0; k < order.n; ++k) total += marginals(order.seq[k], delta(0), false);
    return total;
  }

  double sgd(Order order, const Sgd& how, const Poll& poll) override {
    const FlushDenormals flush;
    double total = 0;
    if (how.average) begin_average();
    for (i64 b = 0; b < order.n; b += how.batch) {
      const int m = static_cast<int>(std::min<i64>(how.batch, order.n - b));
      prepare();
      for (int i = 0; i < m; ++i) total += marginals(order.seq[b + i], delta(i), true);
      const double eta = how.eta0 / std::pow(1 + how.eta0 * how.rate * (how.t0 + static_cast<double>(steps_)), how.power);
      steps_ += m;
      scale_ /= 1 + eta * how.decay * m;
      const double step = -eta / scale_;
      for (int i = 0; i < m; ++i) scatter<false>(deltas_[i], static_cast<T>(step), v_.data());
      if (how.average) {
        for (int i = 0; i < m; ++i) scatter<false>(deltas_[i], static_cast<T>(step * scales_), average_.data());
        scales_ += scale_;
        averaged_ += 1;
      }
      if (scale_ < 1e-6) renormalise();
      if (poll && b % 512 < how.batch) poll();
    }
    return total;
  }

  double adagrad(Order order, double eta, double decay, double floor, int batch, const Poll& poll) override {
    const FlushDenormals flush;
    if (square_.data() == nullptr) {
      square_.reserve(d_.size);
      std::fill_n(square_.data(), d_.size, static_cast<T>(floor) + kLeast);
      last_step_.assign(d_.size, static_cast<u32>(steps_));
    }
    double total = 0;
    for (i64 b = 0; b < order.n; b += batch) {
      const int m = static_cast<int>(std::min<i64>(batch, order.n - b));
      for (int i = 0; i < m; ++i) each_row(order.seq[b + i], [&](u32 at, u32 count) { decay_row(at, count, eta * decay); });
      decay_row(static_cast<u32>(d_.transition_at), static_cast<u32>(d_.size - d_.transition_at), eta * decay);
      prepare();
      begin_touching();
      for (int i = 0; i < m; ++i) {
        total += marginals(order.seq[b + i], delta(i), true);
        scatter<true>(deltas_[i], T(1), gradient());
      }
      steps_ += m;
      each_touched([&](u32 at, u32 count) {
        T *w = v_.data() + at, *h = square_.data() + at, *g = gradient_.data() + at;
        const T rate = static_cast<T>(eta);
        for (u32 k = 0; k < count; ++k) {
          const T s = h[k] + g[k] * g[k];
          h[k] = s;
          w[k] -= rate * g[k] / std::sqrt(s);
          g[k] = 0;
        }
      });
      if (poll && b % 512 < batch) poll();
    }
    all_rows([&](u32 at, u32 count) { decay_row(at, count, eta * decay); });
    decay_row(static_cast<u32>(d_.transition_at), static_cast<u32>(d_.size - d_.transition_at), eta * decay);
    return total;
  }

  double perceptron(Order order, const Poll& poll) override {
    const FlushDenormals flush;
    begin_average();
    double total = 0;
    for (i64 k = 0; k < order.n; ++k) {
      prepare();
      Delta& x = delta(0);
      const Mistake found = mistake(order.seq[k], x);
      total += found.cost;
      if (found.errors > 0) {
        const T step = static_cast<T>(weight(order.seq[k]));
        scatter<false>(x, step, v_.data());
        scatter<false>(x, static_cast<T>(static_cast<double>(step) * scales_), average_.data());
      }
      scales_ += 1;
      averaged_ += 1;
      if (poll && k % 512 == 0) poll();
    }
    return total;
  }

  double passive_aggressive(Order order, int type, double c, bool error_sensitive, const Poll& poll) override {
    const FlushDenormals flush;
    begin_average();
    double total = 0;
    for (i64 k = 0; k < order.n; ++k) {
      prepare();
      Delta& x = delta(0);
      const Mistake found = mistake(order.seq[k], x);
      if (found.errors > 0) {
        const double margin = error_sensitive ? std::sqrt(static_cast<double>(found.errors)) : 1.0;
        const double cost = found.cost + margin;
        total += cost;
        begin_touching();
        scatter<true>(x, T(1), gradient());
        double norm = 0;
        each_touched([&](u32 at, u32 count) {
          for (u32 i = at; i < at + count; ++i) norm += static_cast<double>(gradient_[i]) * static_cast<double>(gradient_[i]);
        });
        const double limit = c * weight(order.seq[k]);
        double tau = norm > 0 ? cost / norm : 0;
        if (type == 1) tau = std::min(limit, tau);
        if (type == 2) tau = limit > 0 ? cost / (norm + 1 / (2 * limit)) : 0;
        each_touched([&](u32 at, u32 count) {
          for (u32 i = at; i < at + count; ++i) {
            v_[i] += static_cast<T>(tau) * gradient_[i];
            average_[i] += static_cast<T>(tau * scales_) * gradient_[i];
            gradient_[i] = 0;
          }
        });
      }
      scales_ += 1;
      averaged_ += 1;
      if (poll && k % 512 == 0) poll();
    }
    return total;
  }

  double arow(Order order, double variance, double r, const Poll& poll) override {
    const FlushDenormals flush;
    if (square_.data() == nullptr) {
      square_.reserve(d_.size);
      std::fill_n(square_.data(), d_.size, static_cast<T>(variance));
    }
    double total = 0;
    for (i64 k = 0; k < order.n; ++k) {
      prepare();
      Delta& x = delta(0);
      const Mistake found = mistake(order.seq[k], x);
      if (found.errors > 0 && weight(order.seq[k]) > 0) {
        const double cost = found.cost + static_cast<double>(found.errors);
        total += cost;
        begin_touching();
        scatter<true>(x, T(1), gradient());
        double confidence = 0;
        each_touched([&](u32 at, u32 count) {
          for (u32 i = at; i < at + count; ++i) {
            const double g = static_cast<double>(gradient_[i]);
            confidence += g * g * static_cast<double>(square_[i]);
          }
        });
        const double slack = r / weight(order.seq[k]), alpha = cost / (confidence + slack);
        each_touched([&](u32 at, u32 count) {
          for (u32 i = at; i < at + count; ++i) {
            const double g = static_cast<double>(gradient_[i]), s = static_cast<double>(square_[i]);
            v_[i] += static_cast<T>(alpha * s * g);
            square_[i] = static_cast<T>(s / (1 + s * g * g / slack));
            gradient_[i] = 0;
          }
        });
      }
      if (poll && k % 512 == 0) poll();
    }
    return total;
  }

  // w <- (1 - alpha decay) w - alpha / seen * (sum of the gradients last seen of all sequences). Weights that no sequence touches
  // move along an unchanging sum, and are brought up to date when they are needed: w = scale v, v -= (moved - last) sum.
  double sag(Order order, double decay, int search, const Poll& poll) override {
    const FlushDenormals flush;
    if (d_.own_steps) throw Error("'sag' cannot be used where transitions look at the input");
    const i64 n_seq = d_.n_seq(), pairs = static_cast<i64>(n_) * stride_;
    if (stored_nodes_.data() == nullptr) {
      stored_nodes_.reserve(d_.gold.size() * static_cast<std::size_t>(stride_) + 1);
      stored_pairs_.reserve(n_seq * pairs + 1);
      std::fill_n(stored_nodes_.data(), d_.gold.size() * static_cast<std::size_t>(stride_), T(0));
      std::fill_n(stored_pairs_.data(), n_seq * pairs, T(0));
      fresh(sum_);
      moved_ = 0;
      last_moved_.assign(d_.size, 0.0);
      lipschitz_.assign(n_seq, 0.0);
      seen_ = 0;
      guess_ = 1;
    }
    double total = 0;
    for (i64 k = 0; k < order.n; ++k) {
      const i64 s = order.seq[k];
      each_row(s, [&](u32 at, u32 count) { catch_up(at, count); });
      prepare();
      Delta& x = delta(0);
      const double value = marginals(s, x, true);
      total += value;
      const bool first = lipschitz_[s] == 0;
      if (first || steps_ % search == 0) find_lipschitz(s, x, value);
      if (first) ++seen_;
      T* old = stored_nodes_.data() + d_.offsets[s] * stride_;
      for (i64 i = 0; i < static_cast<i64>(x.steps) * stride_; ++i) {
        const T fresh_value = x.nodes[i];
        x.nodes[i] -= old[i];
        old[i] = fresh_value;
      }
      T* old_pairs = stored_pairs_.data() + s * pairs;
      for (i64 i = 0; i < pairs; ++i) {
        const T fresh_value = x.pairs[i];
        x.pairs[i] -= old_pairs[i];
        old_pairs[i] = fresh_value;
      }
      find_active(x);
      scatter<false>(x, T(1), sum_.data());
      if (steps_ % 64 == 0) measure_lipschitz();
      ++steps_;
      const double alpha = 0.5 * (1 / (lipschitz_top_ + decay) + 1 / (lipschitz_mean_ + decay));
      scale_ /= 1 + alpha * decay;
      const double move = alpha / (static_cast<double>(seen_) * scale_);
      moved_ += move;
      for (i64 i = d_.transition_at; i < d_.size; ++i) v_[i] -= static_cast<T>(move) * sum_[i];
      if (scale_ < 1e-6) {
        all_rows([&](u32 at, u32 count) { catch_up(at, count); });
        renormalise();
      }
      if (poll && k % 512 == 0) poll();
    }
    all_rows([&](u32 at, u32 count) { catch_up(at, count); });
    return total;
  }

  const std::vector<double>& lipschitz() override { return lipschitz_; }

  double smd(Order order, const Smd& how, const Poll& poll) override {
    const FlushDenormals flush;
    if (rate_.data() == nullptr) {
      fresh(trail_);
      first_rates(how.eta0);
    }
    fresh(product_);
    gradient();
    double total = 0;
    const T half = T(0.5), mu = static_cast<T>(how.mu), lambda = static_cast<T>(how.lambda), damp = static_cast<T>(how.damp);
    for (i64 b = 0; b < order.n; b += how.batch) {
      const int m = static_cast<int>(std::min<i64>(how.batch, order.n - b));
      prepare();
      tangent_ = &trail_;
      for (int i = 0; i < m; ++i) {
        Delta& x = delta(0);
        total += marginals(order.seq[b + i], x, true);
        scatter<false>(x, T(1), gradient_.data());
        covariance(order.seq[b + i], x);
        scatter<false>(x, T(1), product_.data());
      }
      // the steps first adapt to how the last ones went, then are taken
      const T penalty = static_cast<T>(how.decay * m);
      T *w = v_.data(), *g = gradient_.data(), *e = rate_.data(), *v = trail_.data(), *h = product_.data();
      for (i64 k = 0; k < d_.size; ++k) {
        const T gk = g[k] + penalty * w[k], hk = h[k] + penalty * v[k];
        const T factor = T(1) - mu * gk * v[k];
        e[k] *= std::min(T(2), std::max(half, factor));
        const T ek = damp * e[k];
        w[k] -= ek * gk;
        v[k] = lambda * v[k] - ek * (gk + lambda * hk);
        g[k] = h[k] = T(0);
      }
      steps_ += m;
      if (poll && b % 512 < how.batch) poll();
    }
    return total;
  }

 private:
  void fresh(Buffer<T>& b) {
    b.reserve(d_.size);
    std::fill_n(b.data(), d_.size, T(0));
  }
  T* gradient() {
    if (gradient_.data() == nullptr) {
      fresh(gradient_);
      mark_.assign(d_.size, 0);
      stamp_ = 1;
    }
    return gradient_.data();
  }
  Delta& delta(int i) {
    if (static_cast<int>(deltas_.size()) <= i) deltas_.resize(i + 1);
    return deltas_[i];
  }
  double weight(i64 s) const { return d_.seq_weight.empty() ? 1.0 : d_.seq_weight[s]; }

  // smd: a weight's first step is eta0 / (tokens that have its attribute, or all for transitions)^(1/4)
  void first_rates(double eta0) {
    fresh(rate_);
    for (i64 s = 0; s < d_.n_seq(); ++s)
      each_row(s, [&](u32 at, u32 count) {
        for (u32 k = at; k < at + count; ++k) rate_[k] += T(1);
      });
    const T tokens = static_cast<T>(d_.gold.size());
    for (i64 k = 0; k < d_.size; ++k) {
      const T count = k < d_.transition_at ? rate_[k] : tokens;
      rate_[k] = static_cast<T>(eta0) / std::sqrt(std::sqrt(std::max(T(1), count)));
    }
  }

  void begin_average() {
    if (average_.data() == nullptr) {
      fresh(average_);
      scales_ = 0;
      averaged_ = 0;
    }
  }

  // scale is 1 again
  void renormalise() {
    if (average_.data() != nullptr)
      for (i64 k = 0; k < d_.size; ++k) average_[k] -= static_cast<T>(scales_) * v_[k];
    for (i64 k = 0; k < d_.size; ++k) v_[k] *= static_cast<T>(scale_);
    scales_ = 0;
    scale_ = 1;
  }

  // f(place, count) of every dense row and single weight of a sequence; some come more than once
  template <class F>
  void each_row(i64 s, F f) {
    for (const FlatRows<T>* rows : {&d_.state, &d_.edge}) {
      if (rows->ptr.empty()) continue;
      for (i64 t = d_.offsets[s]; t < d_.offsets[s + 1]; ++t) {
        const i64 middle = rows->ptr[t] + rows->n_dense[t];
        for (i64 k = rows->ptr[t]; k < rows->ptr[t + 1]; ++k)
          f(rows->at[k], k < middle ? static_cast<u32>(rows->width) : 1u);
      }
    }
  }
  template <class F>
  void all_rows(F f) {
    u32 at = 0;
    const u32 state_end = d_.edge.ptr.empty() ? at + static_cast<u32>(d_.state.bits.size()) * W : d_.edge.first;
    for (; at < state_end; at += static_cast<u32>(d_.state.width)) f(at, static_cast<u32>(d_.state.width));
    if (!d_.edge.ptr.empty()) {
      const u32 edge_end = at + static_cast<u32>(d_.edge.bits.size()) * W;
      for (; at < edge_end; at += static_cast<u32>(d_.edge.width)) f(at, static_cast<u32>(d_.edge.width));
    }
    for (; at < d_.transition_at; ++at) f(at, 1u);
  }

  template <class F>
  void each_touched(F f) {
    for (const Touched& x : touched_) f(x.at, x.count);
    f(static_cast<u32>(d_.transition_at), static_cast<u32>(d_.size - d_.transition_at));
  }

  void begin_touching() {
    ++stamp_;
    touched_.clear();
  }

  void touch(u32 at, u32 count) {
    if (mark_[at] == stamp_) return;
    mark_[at] = stamp_;
    touched_.push_back({at, count});
  }

  // The decay of the steps since a row was last looked at: exp(-k rate / sqrt h)
  void decay_row(u32 at, u32 count, double rate) {
    const u32 missed = static_cast<u32>(steps_) - last_step_[at];
    if (missed == 0) return;
    last_step_[at] = static_cast<u32>(steps_);
    if (rate == 0) return;
    const T amount = static_cast<T>(-rate * missed);
    const T* h = square_.data() + at;
    T* w = v_.data() + at;
    u32 k = 0;
    for (; k + W <= count; k += W) {
      T root[W];
      for (int i = 0; i < W; ++i) root[i] = std::sqrt(h[k + i]);
      S::store(w + k, S::load(w + k) * S::exp(amount / S::load(root)));
    }
    for (; k < count; ++k) w[k] *= std::exp(amount / std::sqrt(h[k]));
  }

  void catch_up(u32 at, u32 count) {
    const double missed = moved_ - last_moved_[at];
    if (missed == 0) return;
    last_moved_[at] = moved_;
    const T amount = static_cast<T>(missed);
    for (u32 k = at; k < at + count; ++k) v_[k] -= amount * sum_[k];
  }

  // Doubles the constant until a step of its inverse along the sequence's gradient gains what it should. Where that is less than
  // the rounding errors of the values, as it is of a sequence that is nearly right, nothing can be seen and the constant stays.
  void find_lipschitz(i64 s, const Delta& x, double value) {
    const double noise = noise_, known = lipschitz_[s] > 0 ? lipschitz_[s] : guess_;
    begin_touching();
    scatter<true>(x, T(1), gradient());
    double norm = 0;
    each_touched([&](u32 at, u32 count) {
      for (u32 i = at; i < at + count; ++i) norm += static_cast<double>(gradient_[i]) * static_cast<double>(gradient_[i]);
    });
    double constant = lipschitz_[s] > 0 ? known / 2 : known, at = 0;
    const auto move_to = [&](double to) {
      const T by = static_cast<T>((to - at) / scale_);
      each_touched([&](u32 place, u32 count) {
        for (u32 i = place; i < place + count; ++i) v_[i] -= by * gradient_[i];
      });
      at = to;
    };
    for (double gain = norm / (2 * constant);; gain /= 2, constant *= 2) {
      if (!(gain > noise && std::isfinite(gain))) {
        constant = std::max(constant, known);
        break;
      }
      move_to(1 / constant);
      prepare();
      if (marginals(s, delta(1), false) <= value - gain + noise) break;
    }
    if (at != 0) {
      move_to(0);
      prepare();
    }
    each_touched([&](u32 place, u32 count) {
      for (u32 i = place; i < place + count; ++i) gradient_[i] = 0;
    });
    lipschitz_[s] = constant;
    guess_ = constant;
  }

  void measure_lipschitz() {
    lipschitz_top_ = lipschitz_mean_ = 0;
    for (double x : lipschitz_) {
      lipschitz_top_ = std::max(lipschitz_top_, x);
      lipschitz_mean_ += x;
    }
    lipschitz_mean_ /= static_cast<double>(std::max<i64>(1, seen_));
  }

  // ---------------------------------------------------------------- scores

  // Transitions, start and end scores at the present weights.
  CRFKIT_KERNEL void prepare() {
    constexpr T inf = std::numeric_limits<T>::infinity();
    const T *raw = v_.data() + d_.transition_at, *start = v_.data() + d_.start_at, *end = v_.data() + d_.end_at;
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

  // out = init + scale * (sum of the rows of a token's entries)
  CRFKIT_INLINE void score_row(const FlatRows<T>& rows, i64 token, const T* table, T scale, const T* init, T* out) const {
    const i64 begin = rows.ptr[token], middle = begin + rows.n_dense[token], end = rows.ptr[token + 1];
    const u32* at = rows.at.data();
    const T* value = rows.value.empty() ? nullptr : rows.value.data();
    for_tiles<4>(rows.width / W, [&](auto N, int v0) {
      Vec acc[N] = {};
      for (i64 k = begin; k < middle; ++k) {
        const T* row = table + at[k] + v0 * W;
        for (int v = 0; v < N; ++v) acc[v] += value ? value[k] * S::load(row + v * W) : S::load(row + v * W);
      }
      for (int v = 0; v < N; ++v) S::store(out + (v0 + v) * W, acc[v] * scale + S::load(init + (v0 + v) * W));
    });
    for (i64 k = middle; k < end; ++k) out[rows.column[k]] += scale * (value ? value[k] * table[at[k]] : table[at[k]]);
  }

  CRFKIT_INLINE void prefetch(const FlatRows<T>& rows, i64 token) const {
    for (i64 k = rows.ptr[token]; k < rows.ptr[token + 1]; ++k) {
      __builtin_prefetch(v_.data() + rows.at[k]);
      if (rows.width * sizeof(T) > 64) __builtin_prefetch(v_.data() + rows.at[k] + 64 / sizeof(T));
    }
  }

  // Scores of all tokens of a sequence, [steps][stride]
  CRFKIT_KERNEL void score(i64 s, T* u) const {
    const i64 first = d_.offsets[s], last = d_.offsets[s + 1];
    const T scale = static_cast<T>(scale_);
    for (i64 t = first; t < last; ++t) {
      if (t + 4 < last) prefetch(d_.state, t + 4);
      score_row(d_.state, t, v_.data(), scale, init_.data(), u + (t - first) * stride_);
    }
    if (first == last) return;
    T *head = u, *tail = u + (last - first - 1) * stride_;
    for (int j = 0; j < n_; ++j) head[j] += start_[j];
    for (int j = 0; j < n_; ++j) tail[j] += end_[j];
  }

  // Scores of the transition t -> t + 1 of the sequence at hand.
  void step_scores(int t, T* out) const {
    score_row(d_.edge, first_token_ + t + 1, v_.data(), static_cast<T>(scale_), transitions_.score.data(), out);
  }

  // ---------------------------------------------------------------- gradients

  static CRFKIT_INLINE Mask chosen(u16 bits) {
    using Int = typename S::Int;
    Mask lanes;
    for (int k = 0; k < W; ++k) lanes[k] = Int(1) << k;
    return ((Mask{} + static_cast<Int>(bits)) & lanes) != Mask{};
  }

  // table += alpha * p, spread over the rows of a token
  template <bool Touch>
  CRFKIT_INLINE void scatter_row(const FlatRows<T>& rows, i64 token, const T* p, T alpha, T* table) {
    const i64 begin = rows.ptr[token], middle = begin + rows.n_dense[token], end = rows.ptr[token + 1];
    const u32* at = rows.at.data();
    const T* value = rows.value.empty() ? nullptr : rows.value.data();
    if constexpr (Touch)
      for (i64 k = begin; k < end; ++k) touch(at[k], k < middle ? static_cast<u32>(rows.width) : 1u);
    for_tiles<4>(rows.width / W, [&](auto N, int v0) {
      Vec x[N];
      for (int v = 0; v < N; ++v) x[v] = S::load(p + (v0 + v) * W) * alpha;
      for (i64 k = begin; k < middle; ++k) {
        T* row = table + at[k] + v0 * W;
        const u16* bits = rows.bits.data() + (at[k] - rows.first) / W + v0;
        for (int v = 0; v < N; ++v) {
          const Vec y = chosen(bits[v]) ? (value ? x[v] * value[k] : x[v]) : Vec{};
          S::store(row + v * W, S::load(row + v * W) + y);
        }
      }
    });
    for (i64 k = middle; k < end; ++k) table[at[k]] += alpha * (value ? value[k] * p[rows.column[k]] : p[rows.column[k]]);
  }

  template <bool Touch>
  CRFKIT_KERNEL void scatter(const Delta& x, T alpha, T* table) {
    const i64 first = d_.offsets[x.seq];
    for (int t = 0; t < x.steps; ++t)
      if (x.active[t]) scatter_row<Touch>(d_.state, first + t, x.nodes.data() + static_cast<i64>(t) * stride_, alpha, table);
    if (d_.own_steps)
      for (int t = 0; t + 1 < x.steps; ++t)
        scatter_row<Touch>(d_.edge, first + t + 1, x.edges.data() + static_cast<i64>(t) * n_ * stride_, alpha, table);
    if (x.steps == 0) return;
    T* pairs = table + d_.transition_at;
    for (i64 k = 0; k < static_cast<i64>(n_) * stride_; ++k) pairs[k] += alpha * x.pairs[k];
    const T *head = x.nodes.data(), *tail = head + static_cast<i64>(x.steps - 1) * stride_;
    if (d_.has_start)
      for (int j = 0; j < n_; ++j) table[d_.start_at + j] += alpha * head[j];
    if (d_.has_end)
      for (int j = 0; j < n_; ++j) table[d_.end_at + j] += alpha * tail[j];
  }

  // Tokens whose label is certain and right change nothing that single precision could see.
  void find_active(Delta& x) {
    constexpr T least = std::numeric_limits<T>::epsilon();
    x.active.resize(x.steps);
    for (int t = 0; t < x.steps; ++t) {
      const T* row = x.nodes.data() + static_cast<i64>(t) * stride_;
      T top = 0;
      for (int j = 0; j < n_; ++j) top = std::max(top, std::abs(row[j]));
      x.active[t] = top > least;
    }
  }

  void begin_sequence(i64 s, Delta& x) {
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

  double gold_score(const Delta& x, const T* u) {
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

  // Gives weight * (log Z - score of the gold path); x: its derivatives by the scores, expected minus gold.
  double marginals(i64 s, Delta& x, bool gradients) {
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

  void finish(Delta& x, T factor) {
    for (i64 k = 0; k < static_cast<i64>(n_) * stride_; ++k) x.pairs[k] *= factor * d_.pair_mask[k];
    if (factor != T(1)) {
      for (i64 k = 0; k < static_cast<i64>(x.steps) * stride_; ++k) x.nodes[k] *= factor;
      if (d_.own_steps)
        for (i64 k = 0; k < static_cast<i64>(x.steps - 1) * n_ * stride_; ++k) x.edges[k] *= factor;
    }
    find_active(x);
  }

  // Forward and, for gradients, backward; leaves the marginals of labels and pairs in x.
  double run(Delta& x, bool gradients) {
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

  // ---------------------------------------------------------------- second order

  // The covariance of the labels and pairs of a sequence with R(y) = sum_t r_t(y_t) + r(y_t, y_t+1), where r are the scores of
  // the direction `tangent_`: the Hessian of log Z times that direction. To be called after marginals(); x is overwritten.
  //
  //   G[t][j] = E[R up to t, y_t = j]      G[t+1][j] = gamma r + sum_i xi[i][j] (G[t][i] / gamma[t][i] + r[i][j])
  //   B[t][i] = E[R after t, y_t = i]      B[t][i]   = sum_j xi[i][j] (r[i][j] + r[t+1][j] + B[t+1][j] / gamma[t+1][j])
  //   nodes   = G + B - E[R] gamma         pairs     = xi (G/gamma + r + r + B/gamma - E[R])
  CRFKIT_KERNEL void covariance(i64 s, Delta& x) {
    if (x.steps == 0) return;
    const T factor = static_cast<T>(weight(s));
    const i64 pairs = static_cast<i64>(n_) * stride_, rows = static_cast<i64>(x.steps) * stride_;
    const T* table = tangent_->data();
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
      score_row(d_.state, first_token_ + t, table, T(1), zero_.data(), r_.data() + static_cast<i64>(t) * stride_);
    T *head = r_.data(), *tail = r_.data() + rows - stride_;
    for (int j = 0; j < n_; ++j) head[j] += table[d_.start_at + j];
    for (int j = 0; j < n_; ++j) tail[j] += table[d_.end_at + j];
    const auto ratio = [&](const T* a, const T* g, T* out) {
      for (int j = 0; j < stride_; ++j) out[j] = g[j] > T(0) ? a[j] / g[j] : T(0);
    };
    const auto pair_scores = [&](int t) -> const T* {
      if (!d_.own_steps) return table + d_.transition_at;
      score_row(d_.edge, first_token_ + t + 1, table, T(1), table + d_.transition_at, pair_r_.data());
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

  // Takes the gold pair and the weight out of the derivatives that marginals() left, so that marginals remain.
  void restore_gold(int t, T factor, T* xi) const {
    if (factor != T(1) && factor != T(0))
      for (i64 k = 0; k < static_cast<i64>(n_) * stride_; ++k) xi[k] /= factor;
    xi[static_cast<i64>(gold()[t]) * stride_ + gold()[t + 1]] += T(1);
  }

  // ---------------------------------------------------------------- best paths

  struct Mistake {
    int errors = 0;   // labels that differ
    double cost = 0;  // score of the best path minus that of the gold path
  };

  // x: features of the gold path minus those of the best path.
  Mistake mistake(i64 s, Delta& x) {
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

  static constexpr T kLeast = T(1e-12);  // of a sum of squares

  const std::shared_ptr<const OnlineData<T>> data_;
  const OnlineData<T>& d_;
  const int n_, stride_;
  bool constrained_ = false;

  Buffer<T> v_;          // w / scale
  double scale_ = 1;
  i64 steps_ = 0;        // sequences seen since the weights were set
  Buffer<T> average_;    // A
  double scales_ = 0;    // c
  double averaged_ = 0;  // how many weight vectors the mean is of
  Buffer<T> square_;     // adagrad: sum of squared gradients; arow: variances
  std::vector<u32> last_step_;
  Buffer<T> sum_;        // sag: sum of the gradients last seen
  Buffer<T> stored_nodes_, stored_pairs_;
  std::vector<double> last_moved_, lipschitz_;
  double moved_ = 0, lipschitz_top_ = 0, lipschitz_mean_ = 0, guess_ = 1;
  i64 seen_ = 0;
  Buffer<T> rate_, trail_;  // smd: steps, and how the weights depend on them
  Buffer<T> gradient_;      // zero between steps
  std::vector<u32> mark_;
  u32 stamp_ = 1;
  std::vector<Touched> touched_;
  const Buffer<T>* tangent_ = nullptr;
  Buffer<T> product_;

  // of the sequence at hand
  i64 first_token_ = 0;
  double noise_ = 0;  // rounding errors of its loss
  Pack pack_;
  std::deque<Delta> deltas_;  // growing moves none of them
  Transitions<T> transitions_;
  std::vector<double> pairwise_;
  Lattice<T, W> lattice_;
  LogLattice log_lattice_;
  Viterbi<T, W> viterbi_;
  bool in_logs_ = false, log_ready_ = false;
  Buffer<double> log_matrix_[2];
  Buffer<T> init_, zero_, start_, end_, step_, xi_, scores_;
  Buffer<T> gamma_, r_, ahead_, behind_, all_xi_, pair_r_;
  std::vector<i32> path_;
};

}  // namespace crfkit::CRFKIT_ISA
