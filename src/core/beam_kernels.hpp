// beam_kernels.hpp: sum-product and max-product over a beam of labels at each step.
//
// The forward pass computes the message to all labels from the few that were kept before, picks the beam by a criterion
// on the belief (here the message itself), and goes on with the picked ones:
//
//   m[t][j] = e[t][j] sum over i in beam[t-1] of alpha[t-1][i] m[i][j]        for all j
//   alpha[t][j] = m[t][j] / c[t] for j in beam[t], c[t] their sum
//
// Restricted to the beams this is the forward pass of the lattice that has only the beams' labels, so the backward pass
// over beam x beam gives that lattice's exact marginals, and sum_t log c[t] its log-partition: the beam's mass. In the
// paper's form the backward pass picks beams of its own instead, by alpha beta, from forward messages to all labels.
#pragma once
#include "chain_kernels.hpp"
#include "selector.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T, int W>
struct BeamWorkspace : ChainWorkspace<T, W> {
  Selector<T, W> selector;
  Selector<double, kLogWidth> log_selector;
  Buffer<T> message, rows, dense;        // messages to all labels; transition rows of one step; messages of all steps
  std::vector<T> alpha, beta, block;     // of the beams; transitions between them
  std::vector<double> log_alpha;
  std::vector<std::size_t> block_ptr;
};

template <class T, int W>
class BeamKernel {
  using S = Simd<T, W>;
  static constexpr T kTiny = std::numeric_limits<T>::min();
  static constexpr double kInf = std::numeric_limits<double>::infinity();

 public:
  BeamKernel(const ChainJob<T>& job, const BeamRule& rule, i64 seq, Workspace& workspace)
      : job_(job), rule_(rule), seq_(seq), ws_(static_cast<BeamWorkspace<T, W>&>(workspace)),
        n_(job.n_labels), stride_(job.stride), begin_(job.offsets[seq]),
        length_(static_cast<int>(job.offsets[seq + 1] - job.offsets[seq])) {}

  void sum_product(BeamResult& out) {
    const FlushDenormals flush;
    out.start(length_);
    if (rule_.revise ? forward<true>(out) : forward<false>(out)) {
      if (rule_.revise) revise(out);
      else backward(out);
    } else {
      out.start(length_);
      in_log_space(out);
    }
  }

  // Beams by max-product: the message is the score of the best path so far, its belief the exponential.
  void choose_for_maximum(BeamResult& out) {
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
        return;
      }
      for (int k = 0; k < stride_; k += W) {  // what is possible keeps some belief
        const typename S::Vec x = S::load(ws_.row.data() + k) - top, y = S::exp(x);
        S::store(ws_.message.data() + k, x > -inf ? S::max(y, S::splat(kTiny)) : y);
      }
      out.end_step(ws_.selector.select(ws_.message.data(), n_, stride_, rule_.criterion, kept(t), out.labels));
      v.clear();
      for (std::size_t k = 0; k < out.size(t); ++k) v.push_back(ws_.row[out.label(t, k)] - top);
    }
  }

 private:
  const T* unary(int t) const { return job_.unary + (begin_ + t) * n_; }
  int kept(int t) const { return rule_.keep ? rule_.keep[begin_ + t] : -1; }
  // Scores of the transitions t -> t+1 out of label i  [labels]
  const T* scores_from(int t, int i) const {
    if (job_.shared) return job_.shared->score.data() + static_cast<i64>(i) * stride_;
    return job_.pairwise + ((job_.edge_first[seq_] + t) * n_ + i) * static_cast<i64>(n_);
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

  // False where single steps lose what could come back: then the caller goes through log space. KeepAll stores
  // the messages to all labels.
  template <bool KeepAll>
  bool forward(BeamResult& out) {
    constexpr T inf = std::numeric_limits<T>::infinity();
    ws_.row.reserve(stride_);
    ws_.message.reserve(stride_);
    if (KeepAll) ws_.dense.reserve(static_cast<std::size_t>(length_) * stride_);
    ws_.alpha.clear();
    ws_.block.clear();
    ws_.block_ptr.assign(1, 0);
    for (int t = 0; t < length_; ++t) {
      pad_rows(unary(t), 1, n_, stride_, ws_.row.data());
      typename S::Vec top = S::splat(-inf);
      for (int v = 0; v < stride_; v += W) top = S::max(top, S::load(ws_.row.data() + v));
      const T high = S::highest(top);
      if (!(high > -inf)) return false;
      typename S::Mask lost = {};
      for (int v = 0; v < stride_; v += W) {
        const typename S::Vec x = S::load(ws_.row.data() + v), y = S::exp(x - high);
        lost |= (x > -inf) & (y == T(0));
        S::store(ws_.row.data() + v, y);
      }
      if (S::any(lost)) return false;
      shift_ = 0;
      const std::size_t before = t > 0 ? out.size(t - 1) : 0;
      const T* last = ws_.alpha.data() + ws_.alpha.size() - before;
      if (t == 0) {
        std::fill_n(ws_.message.data(), stride_, T(1));
      } else {
        if (!load_rows(t - 1, out)) return false;
        send(out, t - 1, last, before);
        if (lost_in_message(out, t - 1, before)) return false;
      }
      for (int v = 0; v < stride_; v += W)
        S::store(ws_.message.data() + v, S::load(ws_.message.data() + v) * S::load(ws_.row.data() + v));
      const double share = ws_.selector.select(ws_.message.data(), n_, stride_, rule_.criterion, kept(t), out.labels);
      out.end_step(share);
      T c = 0;
      for (std::size_t k = 0; k < out.size(t); ++k) c += ws_.message[out.label(t, k)];
      if (!(c >= kTiny)) return false;
      if (t > 0)
        for (std::size_t i = 0; i < before; ++i)
          for (std::size_t k = 0; k < out.size(t); ++k) ws_.block.push_back(row(out, t - 1, i)[out.label(t, k)]);
      ws_.block_ptr.push_back(ws_.block.size());
      for (std::size_t k = 0; k < out.size(t); ++k) {
        const T a = ws_.message[out.label(t, k)] / c;
        if (!(a >= kTiny)) return false;  // what is always kept may have next to no belief
        ws_.alpha.push_back(a);
      }
      if (KeepAll)
        for (int j = 0; j < stride_; ++j) ws_.dense[static_cast<std::size_t>(t) * stride_ + j] = ws_.message[j] / c;
      out.log_mass += std::log(static_cast<double>(c)) + static_cast<double>(high) + shift_;
    }
    return true;
  }

  // message[j] = sum_i alpha[i] m[i][j], over the beam's i
  void send(const BeamResult& out, int t, const T* alpha, std::size_t n) {
    for_tiles<kTile<T, W>>(stride_ / W, [&](auto N, int v0) {
      typename S::Vec acc[N] = {};
      for (std::size_t i = 0; i < n; ++i) {
        const T* m = row(out, t, i) + v0 * W;
        for (int v = 0; v < N; ++v) acc[v] += alpha[i] * S::load(m + v * W);
      }
      for (int v = 0; v < N; ++v) S::store(ws_.message.data() + (v0 + v) * W, acc[v]);
    });
  }

  // message[j] = max_i (v[i] + a[i][j]), over the beam's i
  void send_best(const BeamResult& out, int t, const std::vector<T>& v) {
    if (!job_.shared) {
      ws_.rows.reserve(v.size() * stride_);
      for (std::size_t i = 0; i < v.size(); ++i)
        pad_rows(scores_from(t, out.label(t, i)), 1, n_, stride_, ws_.rows.data() + i * stride_);
    }
    for_tiles<kTile<T, W>>(stride_ / W, [&](auto N, int v0) {
      typename S::Vec acc[N];
      for (int q = 0; q < N; ++q) acc[q] = MaxPlus<T, W>::zero();
      for (std::size_t i = 0; i < v.size(); ++i) {
        const T* a = (job_.shared ? scores_from(t, out.label(t, i)) : ws_.rows.data() + i * stride_) + v0 * W;
        for (int q = 0; q < N; ++q) acc[q] = MaxPlus<T, W>::add(acc[q], v[i], S::load(a + q * W));
      }
      for (int q = 0; q < N; ++q) S::store(ws_.message.data() + (v0 + q) * W, acc[q]);
    });
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

  void backward(BeamResult& out) {
    std::vector<T>&beta = ws_.beta, q;
    out.nodes.resize(out.labels.size());
    out.start_edges();
    beta.assign(length_ > 0 ? out.size(length_ - 1) : 0, T(1));
    for (int t = length_ - 1; t >= 0; --t) {
      const std::size_t at = out.ptr[t], n = out.size(t);
      for (std::size_t k = 0; k < n; ++k) out.nodes[at + k] = static_cast<double>(ws_.alpha[at + k] * beta[k]);
      if (t == 0) break;
      // alpha[t][k] = e sum_i alpha[t-1][i] m / c, so e / c = alpha[t][k] / (sum_i alpha[t-1][i] m[i][k])
      const std::size_t last = out.ptr[t - 1], m = out.size(t - 1);
      const T* block = ws_.block.data() + ws_.block_ptr[t];
      q.assign(n, T(0));
      for (std::size_t k = 0; k < n; ++k) {
        T into = 0;
        for (std::size_t i = 0; i < m; ++i) into += ws_.alpha[last + i] * block[i * n + k];
        q[k] = ws_.alpha[at + k] * beta[k] / into;
      }
      beta.assign(m, T(0));
      double* edge = out.edges.data() + out.edge_ptr[t - 1];
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t k = 0; k < n; ++k) {
          beta[i] += block[i * n + k] * q[k];
          edge[i * n + k] = static_cast<double>(ws_.alpha[last + i] * block[i * n + k] * q[k]);
        }
    }
  }

  // The paper's backward pass: beams afresh, by alpha beta over all labels.
  void revise(BeamResult& out) {
    std::vector<T> weight, message(n_), belief(stride_, T(0));  // weight: of the beam at t+1, e beta
    std::vector<std::vector<u16>> beams(length_);
    std::vector<std::vector<double>> nodes(length_), edges(length_);
    for (int t = length_ - 1; t >= 0; --t) {
      std::fill(message.begin(), message.end(), T(1));
      if (t + 1 < length_) {
        double high = -kInf;
        for (int i = 0; i < n_; ++i)
          for (u16 j : beams[t + 1]) high = std::max(high, static_cast<double>(scores_from(t, i)[j]));
        for (int i = 0; i < n_; ++i) {
          double total = 0;
          for (std::size_t k = 0; k < weight.size(); ++k)
            total += std::exp(static_cast<double>(scores_from(t, i)[beams[t + 1][k]]) - high) * static_cast<double>(weight[k]);
          message[i] = static_cast<T>(total);
        }
      }
      const T* alpha = ws_.dense.data() + static_cast<std::size_t>(t) * stride_;
      for (int i = 0; i < n_; ++i) belief[i] = alpha[i] * message[i];
      std::vector<u16>& beam = beams[t];
      out.divergence[t] = -std::log(ws_.selector.select(belief.data(), n_, stride_, rule_.criterion, kept(t), beam));
      double total = 0;
      for (u16 i : beam) total += static_cast<double>(belief[i]);
      for (u16 i : beam) nodes[t].push_back(static_cast<double>(belief[i]) / total);
      if (t + 1 < length_) {
        double all = 0;
        double high = -kInf;
        for (u16 i : beam)
          for (u16 j : beams[t + 1]) high = std::max(high, static_cast<double>(scores_from(t, i)[j]));
        for (u16 i : beam)
          for (std::size_t k = 0; k < weight.size(); ++k) {
            const double a = static_cast<double>(scores_from(t, i)[beams[t + 1][k]]) - high;
            edges[t].push_back(static_cast<double>(alpha[i]) * std::exp(a) * static_cast<double>(weight[k]));
            all += edges[t].back();
          }
        for (double& x : edges[t]) x /= all;
      }
      weight.clear();
      T top = -std::numeric_limits<T>::infinity();
      for (int j = 0; j < n_; ++j) top = std::max(top, unary(t)[j]);
      T scale = 0;
      for (u16 i : beam) {
        weight.push_back(std::exp(unary(t)[i] - top) * message[i]);
        scale = std::max(scale, weight.back());
      }
      for (T& x : weight) x /= scale;
    }
    out.labels.clear();
    out.ptr.assign(1, 0);
    for (int t = 0; t < length_; ++t) {
      out.labels.insert(out.labels.end(), beams[t].begin(), beams[t].end());
      out.ptr.push_back(out.labels.size());
      out.nodes.insert(out.nodes.end(), nodes[t].begin(), nodes[t].end());
    }
    out.start_edges();
    for (int t = 0; t + 1 < length_; ++t) std::copy(edges[t].begin(), edges[t].end(), out.edges.begin() + out.edge_ptr[t]);
  }

  // Picks a beam by log-beliefs; labels too small for a number of their own still count as possible. False if none is.
  bool pick_logs(int t, const double* logs, double top, double* belief, BeamResult& out) {
    if (!(top > -kInf)) {
      out.log_mass = -kInf;
      return false;
    }
    for (int j = 0; j < n_; ++j)
      belief[j] = logs[j] > -kInf ? std::max(std::exp(logs[j] - top), std::numeric_limits<double>::min()) : 0.0;
    out.end_step(ws_.log_selector.select(belief, n_, log_stride(n_), rule_.criterion, kept(t), out.labels));
    return true;
  }

  void in_log_space(BeamResult& out) {
    std::vector<double>&a = ws_.log_alpha, message(n_), belief(log_stride(n_), 0.0);
    a.clear();
    for (int t = 0; t < length_; ++t) {
      for (int j = 0; j < n_; ++j) {
        double top = t == 0 ? 0.0 : -kInf, total = t == 0 ? 1.0 : 0.0;
        if (t > 0) {
          const std::size_t last = out.ptr[t - 1], m = out.size(t - 1);
          for (std::size_t i = 0; i < m; ++i)
            top = std::max(top, a[last + i] + static_cast<double>(scores_from(t - 1, out.label(t - 1, i))[j]));
          for (std::size_t i = 0; i < m && top > -kInf; ++i)
            total += std::exp(a[last + i] + static_cast<double>(scores_from(t - 1, out.label(t - 1, i))[j]) - top);
        }
        message[j] = static_cast<double>(unary(t)[j]) + (total > 0 ? top + std::log(total) : -kInf);
      }
      if (!pick_logs(t, message.data(), *std::max_element(message.begin(), message.end()), belief.data(), out)) return;
      for (std::size_t k = 0; k < out.size(t); ++k) a.push_back(message[out.label(t, k)]);
    }
    std::vector<double> beta(out.size(length_ - 1), 0.0), next;
    out.log_mass = log_sum(a.data() + out.ptr[length_ - 1], beta.size());
    if (!(out.log_mass > -kInf)) return;
    out.nodes.resize(out.labels.size());
    out.start_edges();
    for (int t = length_ - 1; t >= 0; --t) {
      const std::size_t at = out.ptr[t], n = out.size(t);
      for (std::size_t k = 0; k < n; ++k) out.nodes[at + k] = std::exp(a[at + k] + beta[k] - out.log_mass);
      if (t == 0) break;
      const std::size_t last = out.ptr[t - 1], m = out.size(t - 1);
      double* edge = out.edges.data() + out.edge_ptr[t - 1];
      std::vector<double> terms(n);
      next.assign(m, 0.0);
      for (std::size_t i = 0; i < m; ++i) {
        const T* scores = scores_from(t - 1, out.label(t - 1, i));
        for (std::size_t k = 0; k < n; ++k) {
          terms[k] = static_cast<double>(scores[out.label(t, k)]) + static_cast<double>(unary(t)[out.label(t, k)]) + beta[k];
          edge[i * n + k] = std::exp(a[last + i] + terms[k] - out.log_mass);
        }
        next[i] = log_sum(terms.data(), n);
      }
      beta = next;
    }
  }

  static double log_sum(const double* x, std::size_t n) {
    double top = -kInf, total = 0;
    for (std::size_t k = 0; k < n; ++k) top = std::max(top, x[k]);
    if (!(top > -kInf)) return top;
    for (std::size_t k = 0; k < n; ++k) total += std::exp(x[k] - top);
    return top + std::log(total);
  }

  const ChainJob<T>& job_;
  const BeamRule& rule_;
  const i64 seq_;
  BeamWorkspace<T, W>& ws_;
  const int n_, stride_;
  const i64 begin_;
  const int length_;
  double shift_ = 0;  // of the transition rows at hand
};

}  // namespace crfkit::CRFKIT_ISA
