// update_rules.hpp: the algorithms that step after every sequence, or after a few.
//
// With w = scale * v the decay of the squared penalty is one multiplication of `scale`; a step touches only the weights
// of the sequence's attributes. A mean of all w so far is kept the same way: with c the sum of the scales so far and d
// a step of v,
//
//   sum of w = c v - A,   A += c d at every step
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "online/sequence.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
class Trainer final : public OnlineTrainer<T> {
  static constexpr int W = kNarrowest<T>;
  using S = Simd<T, W>;
  using Sgd = typename OnlineTrainer<T>::Sgd;
  using Smd = typename OnlineTrainer<T>::Smd;
  using Want = typename OnlineSequence<T, W>::Want;

  struct Touched {
    i64 at, count;
  };

 public:
  explicit Trainer(std::shared_ptr<OnlineData<T>> data)
      : data_(std::move(data)), d_(*data_), n_(d_.n_labels), stride_(d_.stride), sequence_(d_) {
    fresh(v_);
    few_.assign(d_.own_steps ? n_ * stride_ : stride_, T(0));
  }

  i64 size() const override { return d_.place.size(); }
  OnlineData<T>& data() override { return *data_; }

  void set_weights(const double* w) override {
    fresh(v_);
    for (std::size_t k = 0; k < d_.place.size(); ++k)
      if (d_.place[k] != kNone) v_[d_.place[k]] = T(w[k]);
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
      const double x = at == kNone ? T(0) : v_[at];
      w[k] = mean && at != kNone ? (scales_ * x - average_[at]) / averaged_ : scale_ * x;
    }
  }

  void set_entropy_weight(double x) override { sequence_.entropy_weight = x; }
  void set_beam(const Criterion* criterion) override { sequence_.set_beam(criterion); }
  BeamTally tally() const override { return sequence_.tally(); }
  double entropy() const override { return entropy_; }

  double loss(Order order) override {
    const FlushDenormals flush;
    entropy_ = 0;
    prepare();
    double total = 0;
    for (i64 k = 0; k < order.n; ++k) total += loss_of(order.seq[k], delta(0), Want::loss);
    return total;
  }

  double gradient(Order order, double* g) override {
    const FlushDenormals flush;
    entropy_ = 0;
    prepare();
    Buffer<T> flat;
    fresh(flat);
    double total = 0;
    for (i64 k = 0; k < order.n; ++k) {
      total += loss_of(order.seq[k], delta(0), Want::gradient);
      scatter<false>(deltas_[0], T(1), flat.data());
    }
    for (std::size_t k = 0; k < d_.place.size(); ++k) g[k] = d_.place[k] == kNone ? T(0) : flat[d_.place[k]];
    return total;
  }

  double sgd(Order order, const Sgd& how, const Poll& poll) override {
    const FlushDenormals flush;
    entropy_ = 0;
    double total = 0;
    if (how.average) begin_average();
    for (i64 b = 0; b < order.n; b += how.batch) {
      const int m = static_cast<int>(std::min<i64>(how.batch, order.n - b));
      prepare();
      for (int i = 0; i < m; ++i) total += loss_of(order.seq[b + i], delta(i), Want::gradient);
      const double eta =
          how.eta0 / std::pow(1 + how.eta0 * how.rate * (how.t0 + static_cast<double>(steps_)), how.power);
      steps_ += m;
      scale_ /= 1 + eta * how.decay * m;
      const double step = -eta / scale_;
      for (int i = 0; i < m; ++i) scatter<false>(deltas_[i], T(step), v_.data());
      if (how.average) {
        for (int i = 0; i < m; ++i) scatter<false>(deltas_[i], T(step * scales_), average_.data());
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
    entropy_ = 0;
    if (square_.data() == nullptr || last_step_.empty()) {
      square_.assign(d_.size, T(floor) + kLeast);
      last_step_.assign(d_.size, static_cast<u32>(steps_));
    }
    double total = 0;
    for (i64 b = 0; b < order.n; b += batch) {
      const int m = static_cast<int>(std::min<i64>(batch, order.n - b));
      for (int i = 0; i < m; ++i)
        each_row(order.seq[b + i], [&](i64 at, i64 count) { decay_row(at, count, eta * decay); });
      decay_row(d_.transition_at, d_.size - d_.transition_at, eta * decay);
      prepare();
      begin_touching();
      for (int i = 0; i < m; ++i) {
        total += loss_of(order.seq[b + i], delta(i), Want::gradient);
        scatter<true>(deltas_[i], T(1), gradient());
      }
      steps_ += m;
      each_touched([&](i64 at, i64 count) {
        T *w = v_.data() + at, *h = square_.data() + at, *g = gradient_.data() + at;
        const T rate = T(eta);
        for (i64 k = 0; k < count; ++k) {
          const T s = h[k] + g[k] * g[k];
          h[k] = s;
          w[k] -= rate * g[k] / std::sqrt(s);
          g[k] = 0;
        }
      });
      if (poll && b % 512 < batch) poll();
    }
    all_rows([&](i64 at, i64 count) { decay_row(at, count, eta * decay); });
    decay_row(d_.transition_at, d_.size - d_.transition_at, eta * decay);
    return total;
  }

  double mistakes() const override { return mistakes_; }
  double perceptron(Order order, const Poll& poll) override {
    begin_average();
    return each_mistake(order, poll, [&](const Mistake& found, double weight, const Delta<T>& x) {
      const T step = T(weight);
      scatter<false>(x, step, v_.data());
      scatter<false>(x, T(step * scales_), average_.data());
      return found.cost;
    });
  }

  double passive_aggressive(Order order, int type, double c, bool error_sensitive, const Poll& poll) override {
    begin_average();
    return each_mistake(order, poll, [&](const Mistake& found, double weight, const Delta<T>& x) {
      const double cost = found.cost + (error_sensitive ? std::sqrt(double(found.errors)) : 1.0);
      const double norm = gather(x), limit = c * weight;
      double tau = norm > 0 ? cost / norm : 0;
      if (type == 1) tau = std::min(limit, tau);
      if (type == 2) tau = limit > 0 ? cost / (norm + 1 / (2 * limit)) : 0;
      each_weight([&](i64 i) {
        v_[i] += T(tau) * gradient_[i];
        average_[i] += T(tau * scales_) * gradient_[i];
        gradient_[i] = 0;
      });
      return cost;
    });
  }

  double arow(Order order, double variance, double r, const Poll& poll) override {
    if (square_.data() == nullptr) square_.assign(d_.size, T(variance));
    return each_mistake(order, poll, [&](const Mistake& found, double weight, const Delta<T>& x) {
      if (!(weight > 0)) return 0.0;
      const double cost = found.cost + found.errors;
      gather(x);
      double confidence = 0;
      each_weight([&](i64 i) { confidence += double{gradient_[i]} * gradient_[i] * square_[i]; });
      const double slack = r / weight, alpha = cost / (confidence + slack);
      each_weight([&](i64 i) {
        const double g = gradient_[i], s = square_[i];
        v_[i] += T(alpha * s * g);
        square_[i] = T(s / (1 + s * g * g / slack));
        gradient_[i] = 0;
      });
      return cost;
    });
  }

  // w <- (1 - alpha decay) w - alpha / seen * (sum of the gradients last seen of all sequences). Weights that no
  // sequence touches move along an unchanging sum, and are brought up to date when they are needed: w = scale v, v -=
  // (moved - last) sum.
  double sag(Order order, double decay, int search, const Poll& poll) override {
    const FlushDenormals flush;
    entropy_ = 0;
    if (d_.own_steps) throw Error("'sag' cannot be used where transitions look at the input");
    refuse_sparse("sag");
    const i64 n_seq = d_.n_seq(), pairs = n_ * stride_;
    if (stored_nodes_.data() == nullptr) {
      stored_nodes_.assign(d_.gold.size() * stride_ + 1, T(0));
      stored_pairs_.assign(n_seq * pairs + 1, T(0));
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
      each_row(s, [&](i64 at, i64 count) { catch_up(at, count); });
      prepare();
      Delta<T>& x = delta(0);
      const double value = loss_of(s, x, Want::gradient);
      total += value;
      const bool first = lipschitz_[s] == 0;
      if (first || steps_ % search == 0) find_lipschitz(s, x, value);
      if (first) ++seen_;
      replace(stored_nodes_.data() + d_.offsets[s] * stride_, x.steps * stride_, x.nodes.data());
      replace(stored_pairs_.data() + s * pairs, pairs, x.pairs.data());
      sequence_.find_active(x);
      scatter<false>(x, T(1), sum_.data());
      if (steps_ % 64 == 0) measure_lipschitz();
      ++steps_;
      const double alpha = 0.5 * (1 / (lipschitz_top_ + decay) + 1 / (lipschitz_mean_ + decay));
      scale_ /= 1 + alpha * decay;
      const double move = alpha / (static_cast<double>(seen_) * scale_);
      moved_ += move;
      for (i64 i = d_.transition_at; i < d_.size; ++i) v_[i] -= T(move) * sum_[i];
      if (scale_ < 1e-6) {
        all_rows([&](i64 at, i64 count) { catch_up(at, count); });
        renormalise();
      }
      if (poll && k % 512 == 0) poll();
    }
    all_rows([&](i64 at, i64 count) { catch_up(at, count); });
    return total;
  }

  using State = typename OnlineTrainer<T>::State;

  State state() override {
    State out;
    each_part([&](const char* name, auto& part, i64 count) {
      const auto* begin = begin_of(part);
      const u8* bytes = reinterpret_cast<const u8*>(begin);
      out[name].assign(bytes, bytes + (begin ? count * sizeof(*begin) : 0));
    });
    return out;
  }

  void restore(const State& state) override {
    each_part([&](const char* name, auto& part, i64 count) {
      const auto found = state.find(name);
      part = std::remove_reference_t<decltype(part)>();
      const std::size_t size = found == state.end() ? 0 : found->second.size();
      if (size != 0 && size != count * sizeof(*begin_of(part)))
        throw Error("this state of training is of other data, or of another instruction set");
      if (size != 0) std::memcpy(room_in(part, count), found->second.data(), size);
    });
    // what a pass reads together must be there together
    const bool sag = stored_nodes_.data() != nullptr;
    const bool whole = v_.data() != nullptr && (averaged_ <= 0 || average_.data() != nullptr) &&
                       (!sag || (sum_.data() != nullptr && stored_pairs_.data() != nullptr && !last_moved_.empty() &&
                                 !lipschitz_.empty())) &&
                       (rate_.data() == nullptr) == (trail_.data() == nullptr);
    if (!whole) throw Error("this state of training is not whole");
  }

  const std::vector<double>& lipschitz() override { return lipschitz_; }

  double smd(Order order, const Smd& how, const Poll& poll) override {
    const FlushDenormals flush;
    entropy_ = 0;
    refuse_sparse("smd");
    if (rate_.data() == nullptr) {
      fresh(trail_);
      first_rates(how.eta0);
    }
    fresh(product_);
    gradient();
    double total = 0;
    const T half = T(0.5), mu = T(how.mu), lambda = T(how.lambda), damp = T(how.damp);
    for (i64 b = 0; b < order.n; b += how.batch) {
      const int m = static_cast<int>(std::min<i64>(how.batch, order.n - b));
      prepare();
      for (int i = 0; i < m; ++i) {
        Delta<T>& x = delta(0);
        total += loss_of(order.seq[b + i], x, Want::curvature);
        scatter<false>(x, T(1), gradient_.data());
        sequence_.covariance(order.seq[b + i], trail_.data(), x);
        scatter<false>(x, T(1), product_.data());
      }
      // the steps first adapt to how the last ones went, then are taken
      const T penalty = T(how.decay * m);
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
  // Where a method needs derivatives of all labels.
  void refuse_sparse(const char* method) {
    if (sequence_.sparse())
      throw Error("'" + std::string(method) + "' cannot be used within beams, nor for models of a higher order");
  }
  // f(name, part, how many numbers it has if there are any) of all that a pass leaves to the next
  template <class F>
  void each_part(F f) {
    f("weights", v_, d_.size);
    f("average", average_, d_.size);
    f("square", square_, d_.size);
    f("last_step", last_step_, d_.size);
    f("sum", sum_, d_.size);
    f("nodes", stored_nodes_, std::ssize(d_.gold) * stride_);
    f("pairs", stored_pairs_, d_.n_seq() * n_ * stride_);
    f("last_moved", last_moved_, d_.size);
    f("lipschitz", lipschitz_, d_.n_seq());
    f("rate", rate_, d_.size);
    f("trail", trail_, d_.size);
    f("steps", steps_, 1);
    f("seen", seen_, 1);
    f("scale", scale_, 1);
    f("scales", scales_, 1);
    f("averaged", averaged_, 1);
    f("moved", moved_, 1);
    f("lipschitz_top", lipschitz_top_, 1);
    f("lipschitz_mean", lipschitz_mean_, 1);
    f("guess", guess_, 1);
  }
  static T* begin_of(Buffer<T>& x) { return x.data(); }
  template <class U>
  static U* begin_of(std::vector<U>& x) {
    return x.empty() ? nullptr : x.data();
  }
  static double* begin_of(double& x) { return &x; }
  static i64* begin_of(i64& x) { return &x; }
  static T* room_in(Buffer<T>& x, i64 count) {
    x.reserve(count + 1);
    return x.data();
  }
  template <class U>
  static U* room_in(std::vector<U>& x, i64 count) {
    x.resize(count);
    return x.data();
  }
  static auto* room_in(auto& x, i64) { return &x; }

  void fresh(Buffer<T>& b) { b.assign(d_.size, T(0)); }
  T* gradient() {
    if (gradient_.data() == nullptr) {
      fresh(gradient_);
      mark_.assign(d_.size, 0);
      stamp_ = 1;
    }
    return gradient_.data();
  }
  Delta<T>& delta(int i) {
    if (std::ssize(deltas_) <= i) deltas_.resize(i + 1);
    return deltas_[i];
  }
  void prepare() { sequence_.prepare(v_.data(), scale_); }
  double loss_of(i64 s, Delta<T>& x, Want want) {
    const double value = sequence_.loss(s, x, want);
    entropy_ += sequence_.entropy();
    return value;
  }

  // smd: a weight's first step is eta0 / (tokens that have its attribute, or all for transitions)^(1/4)
  void first_rates(double eta0) {
    fresh(rate_);
    for (i64 s = 0; s < d_.n_seq(); ++s)
      each_row(s, [&](i64 at, i64 count) {
        for (i64 k = at; k < at + count; ++k) rate_[k] += T(1);
      });
    const T tokens = T(d_.gold.size());
    for (i64 k = 0; k < d_.size; ++k) {
      const T count = k < d_.transition_at ? rate_[k] : tokens;
      rate_[k] = T(eta0) / std::sqrt(std::sqrt(std::max(T(1), count)));
    }
  }

  void begin_average() {
    if (average_.data() != nullptr) return;
    fresh(average_);
    scales_ = averaged_ = 0;
  }

  // Looks for the best path of each sequence; where it is wrong, update(mistake, weight of the sequence, difference)
  // changes the weights and gives the cost. Gives the sum of the costs.
  template <class Update>
  double each_mistake(Order order, const Poll& poll, Update update) {
    const FlushDenormals flush;
    double total = 0;
    mistakes_ = 0;
    prepare();
    for (i64 k = 0; k < order.n; ++k) {
      Delta<T>& x = delta(0);
      const Mistake found = sequence_.mistake(order.seq[k], x);
      if (found.errors > 0) {
        const i64 s = order.seq[k];
        mistakes_ += double(found.errors) / double(d_.offsets[s + 1] - d_.offsets[s]);
        total += update(found, sequence_.weight(order.seq[k]), x);
        sequence_.changed(x);
      }
      if (average_.data() != nullptr) {
        scales_ += 1;
        averaged_ += 1;
      }
      if (poll && k % 512 == 0) poll();
    }
    return total;
  }

  // scale is 1 again
  void renormalise() {
    if (average_.data() != nullptr)
      for (i64 k = 0; k < d_.size; ++k) average_[k] -= T(scales_) * v_[k];
    for (i64 k = 0; k < d_.size; ++k) v_[k] *= T(scale_);
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
        for (i64 k = rows->ptr[t]; k < rows->ptr[t + 1]; ++k) f(rows->at[k], k < middle ? rows->width : 1);
      }
    }
  }
  template <class F>
  void all_rows(F f) {
    i64 at = 0;
    const i64 state_end = d_.edge.ptr.empty() ? d_.state.bits.size() * W : d_.edge.first;
    for (; at < state_end; at += d_.state.width) f(at, d_.state.width);
    if (!d_.edge.ptr.empty()) {
      const i64 edge_end = at + d_.edge.bits.size() * W;
      for (; at < edge_end; at += d_.edge.width) f(at, d_.edge.width);
    }
    for (; at < d_.transition_at; ++at) f(at, 1);
  }

  template <class F>
  void each_touched(F f) {
    for (const Touched& x : touched_) f(x.at, x.count);
    if (all_pairs_) f(d_.transition_at, d_.size - d_.transition_at);
  }

  template <class F>
  void each_weight(F f) {
    each_touched([&](i64 at, i64 count) {
      for (i64 i = at; i < at + count; ++i) f(i);
    });
  }

  void begin_touching() {
    ++stamp_;
    touched_.clear();
    all_pairs_ = false;
  }

  // Writes x to the gradient, which was zero; gives its squared norm.
  double gather(const Delta<T>& x) {
    begin_touching();
    scatter<true>(x, T(1), gradient());
    double norm = 0;
    each_weight([&](i64 i) { norm += double{gradient_[i]} * gradient_[i]; });
    return norm;
  }

  void touch(i64 at, i64 count) {
    if (mark_[at] == stamp_) return;
    mark_[at] = stamp_;
    touched_.push_back({at, count});
  }

  // The decay of the steps since a row was last looked at: exp(-k rate / sqrt h)
  void decay_row(i64 at, i64 count, double rate) {
    const u32 missed = static_cast<u32>(steps_) - last_step_[at];
    if (missed == 0) return;
    last_step_[at] = static_cast<u32>(steps_);
    if (rate == 0) return;
    const T amount = T(-rate * missed);
    const T* h = square_.data() + at;
    T* w = v_.data() + at;
    i64 k = 0;
    for (; k + W <= count; k += W) {
      T root[W];
      for (int i = 0; i < W; ++i) root[i] = std::sqrt(h[k + i]);
      S::store(w + k, S::load(w + k) * S::exp(amount / S::load(root)));
    }
    for (; k < count; ++k) w[k] *= std::exp(amount / std::sqrt(h[k]));
  }

  // Stores x in place of `old`; leaves their difference in x.
  static void replace(T* old, i64 n, T* x) {
    for (i64 i = 0; i < n; ++i) x[i] -= std::exchange(old[i], x[i]);
  }

  void catch_up(i64 at, i64 count) {
    const double missed = moved_ - last_moved_[at];
    if (missed == 0) return;
    last_moved_[at] = moved_;
    const T amount = T(missed);
    for (i64 k = at; k < at + count; ++k) v_[k] -= amount * sum_[k];
  }

  // Doubles the constant until a step of its inverse along the sequence's gradient gains what it should. Where that is
  // less than the rounding errors of the values, as it is of a sequence that is nearly right, nothing can be seen and
  // the constant stays.
  void find_lipschitz(i64 s, const Delta<T>& x, double value) {
    const double noise = sequence_.noise(), known = lipschitz_[s] > 0 ? lipschitz_[s] : guess_;
    const double norm = gather(x);
    double constant = lipschitz_[s] > 0 ? known / 2 : known, at = 0;
    const auto move_to = [&](double to) {
      const T by = T((to - at) / scale_);
      each_weight([&](i64 i) { v_[i] -= by * gradient_[i]; });
      at = to;
    };
    for (double gain = norm / (2 * constant);; gain /= 2, constant *= 2) {
      if (!(gain > noise && std::isfinite(gain))) {
        constant = std::max(constant, known);
        break;
      }
      move_to(1 / constant);
      prepare();
      if (sequence_.loss(s, delta(1), Want::loss) <= value - gain + noise) break;
    }
    if (at != 0) {
      move_to(0);
      prepare();
    }
    each_weight([&](i64 i) { gradient_[i] = 0; });
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

  void touch_rows(const FlatRows<T>& rows, i64 token) {
    const i64 middle = rows.ptr[token] + rows.n_dense[token];
    for (i64 k = rows.ptr[token]; k < rows.ptr[token + 1]; ++k) touch(rows.at[k], k < middle ? rows.width : 1);
  }

  template <bool Touch>
  CRFKIT_INLINE void spread(const FlatRows<T>& rows, i64 token, const T* p, T alpha, T* table) {
    if constexpr (Touch) touch_rows(rows, token);
    scatter_row<T, W>(rows, token, p, alpha, table);
  }

  // The same of labels in beams.
  template <bool Touch>
  CRFKIT_KERNEL void scatter_few(const Delta<T>& x, T alpha, T* table) {
    const FlatRows<T>& rows = d_.state;
    for (int t = 0; t < x.steps; ++t) {
      if (!x.active[t]) continue;
      const std::span of_token(x.slots.data() + x.first[t], x.slots.data() + x.first[t + 1]);
      if constexpr (Touch) touch_rows(rows, d_.offsets[x.seq] + t);
      scatter_entries<T, W>(rows, d_.offsets[x.seq] + t, of_token, alpha, few_.data(), table);
    }
    for (int t = 0; d_.own_steps && t + 1 < x.steps; ++t) {
      const auto begin = x.edge_slopes.data();
      const std::span of_step(begin + x.first_edge[t], begin + x.first_edge[t + 1]);
      if (of_step.empty()) continue;
      const i64 token = d_.offsets[x.seq] + t + 1;
      if constexpr (Touch) touch_rows(d_.edge, token);
      scatter_entries<T, W>(d_.edge, token, of_step, alpha, few_.data(), table);
    }
    const auto add = [&](i64 at, T slope) {
      if constexpr (Touch) touch(at, 1);
      table[at] += alpha * slope;
    };
    for (const auto& link : x.links) add(d_.transition_at + link.at, link.slope);
    const auto ends = [&](bool has, i64 first, int t) {
      for (u32 k = x.first[t]; has && x.active[t] && k < x.first[t + 1]; ++k)
        add(first + x.slots[k].at, x.slots[k].slope);
    };
    if (x.steps > 0) ends(d_.has_start, d_.start_at, 0);
    if (x.steps > 0) ends(d_.has_end, d_.end_at, x.steps - 1);
  }

  template <bool Touch>
  CRFKIT_KERNEL void scatter(const Delta<T>& x, T alpha, T* table) {
    if (x.sparse) return scatter_few<Touch>(x, alpha, table);
    all_pairs_ |= Touch;
    const i64 first = d_.offsets[x.seq];
    for (int t = 0; t < x.steps; ++t)
      if (x.active[t]) spread<Touch>(d_.state, first + t, x.nodes.data() + t * stride_, alpha, table);
    if (d_.own_steps)
      for (int t = 0; t + 1 < x.steps; ++t)
        spread<Touch>(d_.edge, first + t + 1, x.edges.data() + t * n_ * stride_, alpha, table);
    if (x.steps == 0) return;
    T* pairs = table + d_.transition_at;
    for (i64 k = 0; k < n_ * stride_; ++k) pairs[k] += alpha * x.pairs[k];
    const T *head = x.nodes.data(), *tail = head + (x.steps - 1) * stride_;
    if (d_.has_start)
      for (int j = 0; j < n_; ++j) table[d_.start_at + j] += alpha * head[j];
    if (d_.has_end)
      for (int j = 0; j < n_; ++j) table[d_.end_at + j] += alpha * tail[j];
  }

  static constexpr T kLeast = T(1e-12);  // of a sum of squares

  const std::shared_ptr<OnlineData<T>> data_;
  const OnlineData<T>& d_;
  const i64 n_, stride_;

  Buffer<T> v_;  // w / scale
  double scale_ = 1;
  i64 steps_ = 0;        // sequences seen since the weights were set
  Buffer<T> average_;    // A
  double scales_ = 0;    // c
  double averaged_ = 0;  // how many weight vectors the mean is of
  Buffer<T> square_;     // adagrad: sum of squared gradients; arow: variances
  std::vector<u32> last_step_;
  Buffer<T> sum_;  // sag: sum of the gradients last seen
  Buffer<T> stored_nodes_, stored_pairs_;
  std::vector<double> last_moved_, lipschitz_;
  double moved_ = 0, lipschitz_top_ = 0, lipschitz_mean_ = 0, guess_ = 1;
  i64 seen_ = 0;
  Buffer<T> rate_, trail_;  // smd: steps, and how the weights depend on them
  Buffer<T> gradient_;      // zero between steps
  std::vector<u32> mark_;
  u32 stamp_ = 1;
  std::vector<Touched> touched_;
  bool all_pairs_ = false;  // transitions, start and end are touched as a whole
  Buffer<T> product_;

  Buffer<T> few_;  // zeros [stride], or [labels][stride] where transitions look at the input
  OnlineSequence<T, W> sequence_;
  double entropy_ = 0;           // of the last pass
  double mistakes_ = 0;          // of the last pass
  std::deque<Delta<T>> deltas_;  // growing moves none of them
};

}  // namespace crfkit::CRFKIT_ISA
