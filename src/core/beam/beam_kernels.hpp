// beam_kernels.hpp: sum-product and max-product over a beam of labels at each step.
//
// The forward pass computes the message to all labels from the few that were kept before, picks the beam by a criterion
// on the belief (here the message itself), and goes on with the picked ones:
//
//   m[t][j] = e[t][j] sum over i in beam[t-1] of alpha[t-1][i] m[i][j]        for all j
//   alpha[t][j] = m[t][j] / c[t] for j in beam[t], c[t] their sum
//
// A backward pass may pick afresh by alpha beta, from the forward messages to all labels (smoothed). Then the lattice
// that has only the beams' labels is solved exactly (frozen_lattice.hpp). In the paper's form the backward pass gives
// the marginals itself, each step normalised on its own.
#pragma once
#include "beam/frozen_lattice.hpp"
#include "beam/kernels.hpp"
#include "beam/selector.hpp"
#include "chain/chain_kernels.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
struct BeamWorkspace : Workspace {
  Selector<T, kNarrowest<T>> selector;
  Selector<double, kLogWidth> log_selector;
  FrozenLattice frozen;
  Buffer<T> row, message;   // of one step: weights of all labels, messages to them
  Buffer<T> rows, forward;  // transition rows of one step; messages of all steps
  std::vector<T> alpha;     // of the last beam
  std::vector<std::vector<u16>> beams;
  std::vector<std::vector<double>> nodes, edges;
};

template <class T>
class BeamKernel {
  static constexpr int W = kNarrowest<T>;  // beams gain little by wider ones
  using S = Simd<T, W>;
  using Form = BeamRule::Form;
  static constexpr T kTiny = std::numeric_limits<T>::min();
  static constexpr double kInf = std::numeric_limits<double>::infinity();

 public:
  BeamKernel(const ChainJob<T>& job, const BeamRule& rule, i64 seq, Workspace& workspace)
      : job_(job),
        rule_(rule),
        seq_(seq),
        ws_(static_cast<BeamWorkspace<T>&>(workspace)),
        n_(job.n_labels),
        stride_(job.stride),
        begin_(job.offsets[seq]),
        length_(static_cast<int>(job.offsets[seq + 1] - job.offsets[seq])) {}

  void sum_product(BeamResult& out) {
    if (choose(out) && rule_.form == Form::paper) return;
    if (out.log_mass == -kInf) return;
    auto& frozen = ws_.frozen;
    frozen.start(length_, [&](int t) { return out.ptr[t]; });
    double shift = 0;
    bool lossy = false;
    for (int t = 0; t < length_; ++t) {
      for (std::size_t k = 0; k < out.size(t); ++k)
        frozen.u()[out.ptr[t] + k] = static_cast<double>(unary(t)[out.label(t, k)]);
      if (t + 1 < length_) lossy |= !load_block(t, out, frozen.m() + frozen.edge(t), shift);
    }
    out.log_mass = frozen.run(lossy, shift, [&](int t, std::size_t i, std::size_t k) {
      return static_cast<double>(scores_from(t, out.label(t, i))[out.label(t + 1, k)]);
    });
    if (!(out.log_mass > -kInf)) return;
    out.nodes.assign(frozen.nodes(), frozen.nodes() + out.labels.size());
    out.start_edges();
    std::copy_n(frozen.edges(), out.edges.size(), out.edges.begin());
  }

  // Picks the beams. log_mass of the result is minus infinity if no path is allowed. False if this was done in log
  // space, forward only.
  bool choose(BeamResult& out) {
    const FlushDenormals flush;
    out.start(length_);
    if (forward(out)) {
      if (rule_.form != Form::frozen) revise(out);
      return true;
    }
    out.start(length_);
    forward_in_logs(out);
    return false;
  }

  // Beams by max-product: the message is the score of the best path so far, its belief the exponential. Leaves the
  // scores, the best of a step at zero, in `nodes`.
  void choose_for_maximum(BeamResult& out) {
    forward_best(out, [&](int t) {
      constexpr T inf = std::numeric_limits<T>::infinity();
      for (int k = 0; k < stride_; k += W) {  // what is possible keeps some belief
        const typename S::Vec x = S::load(ws_.row.data() + k), y = S::exp(x);
        S::store(ws_.message.data() + k, x > -inf ? S::max(y, S::splat(kTiny)) : y);
      }
      out.end_step(ws_.selector.select(ws_.message.data(), n_, stride_, rule_.criterion, kept(t), out.labels));
      return true;
    });
  }

  // The same with all labels that could be on the best path. False if that are too many to gain anything by it.
  bool undominated(const Dominance<T>& dominance, BeamResult& out) {
    constexpr int kTrial = 8, kWorthwhile = 6;  // steps after which, and part of the labels up to which, it goes on
    return forward_best(out, [&](int t) {
      leave_out_dominated(dominance, t + 1 == length_, out.labels);
      out.end_step(1);
      return t < kTrial || static_cast<i64>(out.labels.size()) * kWorthwhile <= static_cast<i64>(t + 1) * n_;
    });
  }

 private:
  const T* unary(int t) const { return job_.unary + (begin_ + t) * n_; }
  int kept(int t) const { return rule_.keep ? rule_.keep[begin_ + t] : -1; }
  // Scores of the transitions t -> t+1 out of label i  [labels]
  const T* scores_from(int t, int i) const {
    if (job_.shared) return job_.shared->score.data() + static_cast<i64>(i) * stride_;
    return job_.pairwise + ((job_.edge_first[seq_] + t) * n_ + i) * static_cast<i64>(n_);
  }

  // Max-product. pick(t) adds labels of step t, whose scores lie in `row` with the best at zero, and gives false to end
  // it all.
  template <class Pick>
  bool forward_best(BeamResult& out, Pick pick) {
    constexpr T inf = std::numeric_limits<T>::infinity();
    out.start(length_);
    ws_.row.reserve(stride_);
    ws_.message.reserve(stride_);
    std::vector<T>& v = ws_.alpha;  // of the beam
    for (int t = 0; t < length_; ++t) {
      pad_rows(unary(t), 1, n_, stride_, ws_.row.data());
      if (t > 0) send_best(out, t - 1, v);
      typename S::Vec high = S::splat(-inf);
      for (int k = 0; k < stride_; k += W) {
        typename S::Vec x = S::load(ws_.row.data() + k);
        if (t > 0) x += S::load(ws_.message.data() + k);
        S::store(ws_.row.data() + k, x);
        high = S::max(high, x);
      }
      const T top = S::highest(high);
      if (!(top > -inf)) {
        out.log_mass = -kInf;
        return true;
      }
      for (int k = 0; k < stride_; k += W) S::store(ws_.row.data() + k, S::load(ws_.row.data() + k) - top);
      if (!pick(t)) return false;
      v.clear();
      for (std::size_t k = 0; k < out.size(t); ++k) v.push_back(ws_.row[out.label(t, k)]);
      out.nodes.insert(out.nodes.end(), v.begin(), v.end());
    }
    return true;
  }

  // Adds the labels that none dominates; at the last step, the best.
  CRFKIT_KERNEL void leave_out_dominated(const Dominance<T>& dominance, bool last, std::vector<u16>& labels) const {
    constexpr T inf = std::numeric_limits<T>::infinity(), relative = 16 * std::numeric_limits<T>::epsilon();
    const T* v = ws_.row.data();
    if (last) {
      labels.push_back(static_cast<u16>(std::find(v, v + n_, T(0)) - v));
      return;
    }
    typename S::Vec high = S::splat(-inf);
    for (int k = 0; k < stride_; k += W) high = S::max(high, S::load(v + k) + S::load(dominance.lowest.data() + k));
    const T least = S::highest(high) - dominance.noise;
    for (int k = 0; k < stride_; k += W) {
      const typename S::Vec x = S::load(v + k);
      const typename S::Mask stays = (x > -inf) & (x + S::load(dominance.highest.data() + k) - x * relative >= least);
      if (!S::any(stays)) continue;
      for (int j = 0; j < W; ++j)
        if (stays[j]) labels.push_back(static_cast<u16>(k + j));
    }
  }

  // exp(score - what is added to shift) between the beams of t and t+1; false if some allowed one is lost
  bool load_block(int t, const BeamResult& out, double* m, double& shift) const {
    const std::size_t n = out.size(t), next = out.size(t + 1);
    double high = -kInf;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < next; ++k)
        high =
            std::max(high, m[i * next + k] = static_cast<double>(scores_from(t, out.label(t, i))[out.label(t + 1, k)]));
    if (!(high > -kInf)) return false;
    shift += high;
    bool good = true;
    for (std::size_t k = 0; k < n * next; ++k) {
      good &= !(m[k] > -kInf && m[k] - high < -230);
      m[k] = std::exp(m[k] - high);
    }
    return good;
  }

  // exp(scores - shift) out of the beam's labels, one row each; false if some allowed one is lost.
  bool load_rows(int t, const BeamResult& out) {
    const std::size_t n = out.size(t);
    if (job_.shared) {
      shift_ = job_.shared->shift;
      return !job_.shared->lossy;
    }
    constexpr T inf = std::numeric_limits<T>::infinity();
    ws_.rows.reserve(n * stride_);
    T high = -inf;
    for (std::size_t k = 0; k < n; ++k) {
      T* row = ws_.rows.data() + k * stride_;
      pad_rows(scores_from(t, out.label(t, k)), 1, n_, stride_, row);
      for (int j = 0; j < n_; ++j) high = std::max(high, row[j]);
    }
    shift_ = high > -inf ? static_cast<double>(high) : 0.0;
    typename S::Mask lost = {};
    for (std::size_t q = 0; q < n * stride_; q += W) {
      const typename S::Vec x = S::load(ws_.rows.data() + q), y = S::exp(x - static_cast<T>(shift_));
      lost |= (x > -inf) & (y == T(0));
      S::store(ws_.rows.data() + q, y);
    }
    return !S::any(lost);
  }
  const T* row(const BeamResult& out, int t, std::size_t k) const {
    if (job_.shared) return job_.shared->m.data() + static_cast<i64>(out.label(t, k)) * stride_;
    return ws_.rows.data() + k * stride_;
  }

  // out = exp(scores of step t - the largest), which is given; `lost` if some possible label got zero
  T step_weights(int t, T* out, bool& lost) const {
    constexpr T inf = std::numeric_limits<T>::infinity();
    pad_rows(unary(t), 1, n_, stride_, out);
    typename S::Vec top = S::splat(-inf);
    for (int v = 0; v < stride_; v += W) top = S::max(top, S::load(out + v));
    const T high = S::highest(top);
    typename S::Mask small = {};
    for (int v = 0; v < stride_ && high > -inf; v += W) {
      const typename S::Vec x = S::load(out + v), y = S::exp(x - high);
      small |= (x > -inf) & (y == T(0));
      S::store(out + v, y);
    }
    lost |= S::any(small);
    return high;
  }

  // False where single precision loses labels that the criterion may ask for.
  bool forward(BeamResult& out) {
    const bool keep_all = rule_.form != Form::frozen, strict = !rule_.lenient;
    ws_.row.reserve(stride_);
    ws_.message.reserve(stride_);
    if (keep_all) ws_.forward.reserve(static_cast<std::size_t>(length_) * stride_);
    std::vector<T>& alpha = ws_.alpha;
    for (int t = 0; t < length_; ++t) {
      bool lost = false;
      const T high = step_weights(t, ws_.row.data(), lost);
      if (!(high > -std::numeric_limits<T>::infinity())) return false;
      if (t == 0) {
        std::fill_n(ws_.message.data(), stride_, T(1));
      } else {
        lost |= !load_rows(t - 1, out);
        send<SumTimes<T, W>>([&](std::size_t i) { return row(out, t - 1, i); }, alpha);
        lost |= strict && lost_in_message(out, t - 1, alpha.size());
      }
      typename S::Mask gone = {};
      for (int v = 0; v < stride_; v += W) {
        const typename S::Vec m = S::load(ws_.message.data() + v), e = S::load(ws_.row.data() + v);
        gone |= (m > T(0)) & (e > T(0)) & (m * e < kTiny);
        S::store(ws_.message.data() + v, m * e);
      }
      if (strict && (lost || S::any(gone))) return false;
      out.end_step(ws_.selector.select(ws_.message.data(), n_, stride_, rule_.criterion, kept(t), out.labels));
      T c = 0;
      for (std::size_t k = 0; k < out.size(t); ++k) c += ws_.message[out.label(t, k)];
      if (!(c >= kTiny)) return false;
      alpha.clear();
      for (std::size_t k = 0; k < out.size(t); ++k) alpha.push_back(ws_.message[out.label(t, k)] / c);
      if (keep_all)
        for (int v = 0; v < stride_; v += W)
          S::store(ws_.forward.data() + static_cast<std::size_t>(t) * stride_ + v, S::load(ws_.message.data() + v) / c);
      out.log_mass += std::log(static_cast<double>(c)) + static_cast<double>(high) + (t > 0 ? shift_ : 0.0);
    }
    return true;
  }

  // message[j] = sum_i x[i] row(i)[j], or max_i (x[i] + row(i)[j]). Rows are read from end to end, four at a time,
  // since with many labels they come from memory.
  template <class Algebra, class Row>
  CRFKIT_KERNEL void send(Row row, const std::vector<T>& x) {
    for (int k = 0; k < stride_; k += W) S::store(ws_.message.data() + k, Algebra::zero());
    const auto add = [&](auto R, std::size_t i) {
      const T* rows[R];
      for (int r = 0; r < R; ++r) rows[r] = row(i + r);
      for (int k = 0; k < stride_; k += W) {
        typename S::Vec total = S::load(ws_.message.data() + k);
        for (int r = 0; r < R; ++r) total = Algebra::add(total, x[i + r], S::load(rows[r] + k));
        S::store(ws_.message.data() + k, total);
      }
    };
    std::size_t i = 0;
    for (; i + 4 <= x.size(); i += 4) add(std::integral_constant<int, 4>{}, i);
    for (; i < x.size(); ++i) add(std::integral_constant<int, 1>{}, i);
  }

  // message[j] = max_i (v[i] + a[i][j]), over the beam's i
  void send_best(const BeamResult& out, int t, const std::vector<T>& v) {
    if (!job_.shared) {
      ws_.rows.reserve(v.size() * stride_);
      for (std::size_t i = 0; i < v.size(); ++i)
        pad_rows(scores_from(t, out.label(t, i)), 1, n_, stride_, ws_.rows.data() + i * stride_);
    }
    send<MaxPlus<T, W>>(
        [&](std::size_t i) { return job_.shared ? scores_from(t, out.label(t, i)) : ws_.rows.data() + i * stride_; },
        v);
  }

  // Did some label's message underflow although a transition leads there?
  bool lost_in_message(const BeamResult& out, int t, std::size_t n) const {
    for (int j = 0; j < n_; ++j) {
      if (ws_.message[j] >= kTiny) continue;
      for (std::size_t i = 0; i < n; ++i)
        if (row(out, t, i)[j] > 0) return true;
    }
    return false;
  }

  // message[i] = sum over the beam of t+1 of exp(transition score, up to a factor) x
  void send_back(int t, const std::vector<u16>& beam, const std::vector<T>& x) {
    if (job_.shared) {
      send<SumTimes<T, W>>([&](std::size_t k) { return job_.shared->m_t.data() + static_cast<i64>(beam[k]) * stride_; },
                           x);
      return;
    }
    const T* alpha = ws_.forward.data() + static_cast<std::size_t>(t) * stride_;
    T high = -std::numeric_limits<T>::infinity();
    for (int i = 0; i < n_; ++i)
      for (u16 j : beam)
        if (alpha[i] > 0) high = std::max(high, scores_from(t, i)[j]);
    std::fill_n(ws_.message.data(), stride_, T(0));
    for (int i = 0; i < n_; ++i)
      if (alpha[i] > 0)
        for (std::size_t k = 0; k < x.size(); ++k) ws_.message[i] += std::exp(scores_from(t, i)[beam[k]] - high) * x[k];
  }

  // The backward pass: beams afresh, by alpha beta over all labels. In the paper's form it gives the marginals, too.
  void revise(BeamResult& out) {
    const bool marginals = rule_.form == Form::paper;
    auto& beams = ws_.beams;
    if (static_cast<int>(beams.size()) < length_) beams.resize(length_);
    if (marginals) {
      ws_.nodes.assign(length_, {});
      ws_.edges.assign(length_, {});
    }
    std::vector<T>& x = ws_.alpha;  // of the beam at t+1: e beta
    ws_.rows.reserve(stride_);
    for (int t = length_ - 1; t >= 0; --t) {
      if (t + 1 < length_) send_back(t, beams[t + 1], x);
      else std::fill_n(ws_.message.data(), stride_, T(1));
      const T* alpha = ws_.forward.data() + static_cast<std::size_t>(t) * stride_;
      T* belief = ws_.rows.data();
      for (int v = 0; v < stride_; v += W) S::store(belief + v, S::load(alpha + v) * S::load(ws_.message.data() + v));
      std::vector<u16>& beam = beams[t];
      beam.clear();
      out.divergence[t] = -std::log(ws_.selector.select(belief, n_, stride_, rule_.criterion, kept(t), beam));
      if (marginals) {
        const auto normalised = [](std::vector<double>& p) {
          double total = 0;
          for (double y : p) total += y;
          for (double& y : p) y /= total;
        };
        for (u16 i : beam) ws_.nodes[t].push_back(static_cast<double>(belief[i]));
        normalised(ws_.nodes[t]);
        if (t + 1 < length_) {
          double high = -kInf;
          for (u16 i : beam)
            for (u16 j : beams[t + 1]) high = std::max(high, static_cast<double>(scores_from(t, i)[j]));
          for (u16 i : beam)
            for (std::size_t k = 0; k < x.size(); ++k)
              ws_.edges[t].push_back(static_cast<double>(alpha[i]) * static_cast<double>(x[k]) *
                                     std::exp(static_cast<double>(scores_from(t, i)[beams[t + 1][k]]) - high));
          normalised(ws_.edges[t]);
        }
      }
      bool lost = false;
      step_weights(t, ws_.row.data(), lost);
      x.clear();
      T scale = 0;
      for (u16 i : beam) {
        x.push_back(ws_.row[i] * ws_.message[i]);
        scale = std::max(scale, x.back());
      }
      for (T& y : x) y = scale > 0 ? y / scale : T(1);
    }
    out.labels.clear();
    out.ptr.assign(1, 0);
    for (int t = 0; t < length_; ++t) {
      out.labels.insert(out.labels.end(), beams[t].begin(), beams[t].end());
      out.ptr.push_back(out.labels.size());
    }
    if (!marginals) return;
    for (const auto& nodes : ws_.nodes) out.nodes.insert(out.nodes.end(), nodes.begin(), nodes.end());
    out.start_edges();
    for (int t = 0; t + 1 < length_; ++t)
      std::copy(ws_.edges[t].begin(), ws_.edges[t].end(), out.edges.begin() + out.edge_ptr[t]);
  }

  // Labels too small for a number of their own still count as possible.
  void forward_in_logs(BeamResult& out) {
    std::vector<double> a, message(n_), belief(log_stride(n_), 0.0);
    for (int t = 0; t < length_; ++t) {
      const auto from = [&](std::size_t i, int j) {
        return a[i] + static_cast<double>(scores_from(t - 1, out.label(t - 1, i))[j]);
      };
      for (int j = 0; j < n_; ++j) {
        double top = t == 0 ? 0.0 : -kInf, total = t == 0 ? 1.0 : 0.0;
        for (std::size_t i = 0; i < a.size(); ++i) top = std::max(top, from(i, j));
        for (std::size_t i = 0; i < a.size() && top > -kInf; ++i) total += std::exp(from(i, j) - top);
        message[j] = static_cast<double>(unary(t)[j]) + (total > 0 ? top + std::log(total) : -kInf);
      }
      const double top = *std::max_element(message.begin(), message.end());
      if (!(top > -kInf)) {
        out.log_mass = -kInf;
        return;
      }
      for (int j = 0; j < n_; ++j)
        belief[j] = message[j] > -kInf ? std::max(std::exp(message[j] - top), std::numeric_limits<double>::min()) : 0.0;
      out.end_step(ws_.log_selector.select(belief.data(), n_, log_stride(n_), rule_.criterion, kept(t), out.labels));
      a.clear();
      for (std::size_t k = 0; k < out.size(t); ++k) a.push_back(message[out.label(t, k)]);
    }
  }

  const ChainJob<T>& job_;
  const BeamRule& rule_;
  const i64 seq_;
  BeamWorkspace<T>& ws_;
  const int n_, stride_;
  const i64 begin_;
  const int length_;
  double shift_ = 0;  // of the transition rows at hand
};

}  // namespace crfkit::CRFKIT_ISA
