// messages.cpp: loopy belief propagation and tree-reweighted messages.
//
// With appearance rho_f of every factor (one for plain belief propagation) and u the unary scores,
//   total_v(x) = u_v(x) + sum_f rho_f m_{f->v}(x)
//   m_{f->v}(x_v) = log sum_{x_f without x_v} exp(theta_f(x_f) / rho_f + sum_{w in f, w != v} (total_w(x_w) -
//   m_{f->w}(x_w)))
// up to a constant that makes the largest entry zero. The approximation of log Z at a fixed point is
//   sum_f (<b_f, theta_f> + rho_f H(b_f)) + sum_v (<b_v, u_v> + (1 - sum_{f at v} rho_f) H(b_v)).
#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <tuple>

#include "base/log_sum.hpp"
#include "base/parallel.hpp"
#include "base/thread_phases.hpp"
#include "beam/selector.hpp"
#include "graph/incidence.hpp"
#include "graph/kernels.hpp"
#include "graph/table_sums.hpp"

namespace crfkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kSmall = 1e-290;

struct Scratch {
  static constexpr int kWidth = 4;
  CRFKIT_ISA::Selector<double, kWidth> selector;
  Buffer<double> cavity, weight, sum, entries;
  std::vector<i32> kept;
  void fit(i64 n) {
    cavity.reserve(n);
    weight.reserve(n + 8);
    sum.reserve(n + 8);
  }
};

// What a distribution p expects of the scores x, and its entropy.
std::pair<double, double> energy_and_entropy(const double* p, const double* x, i64 n) {
  double energy = 0, entropy = 0;
  for (i64 i = 0; i < n; ++i) {
    if (p[i] <= 0) continue;
    energy += p[i] * x[i];
    entropy -= p[i] * std::log(p[i]);
  }
  return {energy, entropy};
}

class Passing {
 public:
  Passing(const Structure& g, const Scores& scores, const PassingRule& rule, const Threads& threads)
      : g_(g),
        scores_(scores),
        rule_(rule),
        threads_(threads),
        at_(g),
        message_(at_.entries, 0.0),
        total_(g.node_ptr.back()) {
    for (i64 f = 0; f < g.n_factors(); ++f) {
      i64 size = 0;
      for (const i32 v : g.scope_of(f)) size += g.card[v];
      widest_ = std::max(widest_, size);
    }
    scratch_.resize(threads.count);
    for (Scratch& s : scratch_) s.fit(widest_);
    if (!rule.max) prepare();
    each_variable([&](i64 v) { add_up(v); });
  }

  PassingReport run() {
    PassingReport report;
    if (g_.n_factors() == 0) return report;
    if (rule_.schedule == PassingRule::Schedule::flooding) return quick(report) ? report : flood();
    if (rule_.schedule == PassingRule::Schedule::residual) {
      fresh_.resize(at_.entries);
      version_.assign(g_.scope.size(), 0);
    }
    std::vector<PassingReport> reports(g_.n_components);
    parallel_for(g_.n_components, threads_.count, threads_.poll, [&](i64 c, int thread) {
      reports[c] = rule_.schedule == PassingRule::Schedule::sequential ? sweep(c, scratch_[thread])
                                                                       : follow(c, scratch_[thread]);
    });
    for (const PassingReport& r : reports) report.add(r);
    return report;
  }

  void read_off(const Beliefs& beliefs) {
    each_variable([&](i64 v) {
      add_up(v);
      double* out =
          std::copy_n(total_.data() + g_.node_ptr[v], g_.card[v], beliefs.nodes + g_.node_ptr[v]) - g_.card[v];
      double& term = beliefs.node_terms[v] = -kInf;
      if (!softmax(out, g_.card[v])) return;  // nothing is left
      const auto [energy, entropy] = energy_and_entropy(out, scores_.unary + g_.node_ptr[v], g_.card[v]);
      double weight = 1;
      for (i64 e = at_.ptr[v]; e < at_.ptr[v + 1]; ++e) weight -= appearance(at_.factor[e]);
      term = energy + weight * entropy;
    });
    TableSums sums(g_, scores_, beliefs.factors, threads_.count);
    sums.each_factor(threads_, [&](i64 f, double* out, int thread) {
      beliefs.factor_terms[f] = factor_belief(f, scratch_[thread], out);
    });
  }

 private:
  double appearance(i64 f) const { return rule_.appearance == nullptr ? 1.0 : rule_.appearance[f]; }

  template <class Body>
  void each_variable(Body body) {
    parallel_blocks(g_.n_variables(), 1024, threads_, [&](i64 begin, i64 end, int) {
      for (i64 v = begin; v < end; ++v) body(v);
    });
  }

  // Pairwise tables in probability space: one per distinct table, or with appearances one per factor.
  void prepare() {
    const bool own = rule_.appearance != nullptr;
    const i64 n = own ? g_.n_factors() : scores_.n_tables;
    psi_ptr_.assign(1, 0);
    for (i64 k = 0; k < n; ++k)
      psi_ptr_.push_back(psi_ptr_.back() + (own ? g_.table_size(k) : scores_.table_ptr[k + 1] - scores_.table_ptr[k]));
    psi_.reserve(psi_ptr_.back() + 8);
    parallel_blocks(n, 256, threads_, [&](i64 begin, i64 end, int) {
      for (i64 k = begin; k < end; ++k) {
        const double* x = own ? scores_.table(k) : scores_.tables + scores_.table_ptr[k];
        const double scale = own ? 1 / appearance(k) : 1.0;
        double* out = psi_.data() + psi_ptr_[k];
        const i64 size = psi_ptr_[k + 1] - psi_ptr_[k];
        const double top = *std::max_element(x, x + size);
        if (top == -kInf) std::fill_n(out, size, 0.0);
        else kernels_.exponentials(x, size, top, scale, out);
      }
    });
  }
  const double* psi(i64 f) const {
    return psi_.data() + psi_ptr_[rule_.appearance != nullptr ? f : scores_.table_of[f]];
  }

  // total_v from scratch
  void add_up(i64 v) {
    double* t = total_.data() + g_.node_ptr[v];
    const i64 n = g_.card[v];
    std::copy(scores_.unary + g_.node_ptr[v], scores_.unary + g_.node_ptr[v] + n, t);
    for (i64 e = at_.ptr[v]; e < at_.ptr[v + 1]; ++e) {
      const double* m = message_.data() + at_.message[at_.place[e]];
      const double rho = appearance(at_.factor[e]);
      for (i64 i = 0; i < n; ++i) t[i] += rho * m[i];
    }
  }

  // total_w - m_{f->w}, where minus infinity is taken back by adding up the others; largest entry zero
  void cavity(i64 s, double* out) const {
    const i32 w = g_.scope[s];
    const i64 n = g_.card[w];
    const double* t = total_.data() + g_.node_ptr[w];
    const double* m = message_.data() + at_.message[s];
    double top = -kInf;
    for (i64 i = 0; i < n; ++i) {
      out[i] = t[i] - m[i];
      if (m[i] == -kInf) [[unlikely]] {
        out[i] = scores_.unary[g_.node_ptr[w] + i];
        for (i64 e = at_.ptr[w]; e < at_.ptr[w + 1]; ++e)
          if (at_.place[e] != s) out[i] += appearance(at_.factor[e]) * message_[at_.message[at_.place[e]] + i];
      }
      top = std::max(top, out[i]);
    }
    if (top > -kInf)
      for (i64 i = 0; i < n; ++i) out[i] -= top;
  }

  // Values that the beam keeps, given weights exp(cavity); the others' weights become zero.
  void prune(i64 n, double* c, Scratch& work) const {
    double* q = work.weight.data();
    const int padded = round_up(static_cast<int>(n), Scratch::kWidth);
    std::fill(q + n, q + padded, 0.0);
    work.kept.clear();
    work.selector.select(q, n, padded, *rule_.beam, -1, work.kept);
    auto next = work.kept.begin();
    for (i64 i = 0; i < n; ++i) {
      if (next != work.kept.end() && *next == i) {
        ++next;
      } else if (q[i] > 0) {
        q[i] = 0;
        c[i] = -kInf;
      }
    }
  }

  void exponential(const double* x, i64 n, double* out) const { kernels_.exponentials(x, n, 0.0, 1.0, out); }

  // The new message of factor f to the variable at place s; gives its change.
  double compute(i64 f, i64 s, Scratch& work, double* out) const {
    const i64 first = g_.scope_ptr[f], arity = g_.scope_ptr[f + 1] - first;
    const i64 n = g_.card[g_.scope[s]];
    if (arity == 2 && !rule_.max) pair_message(f, s, work, out);
    else wide_message(f, s, work, out);
    double top = -kInf;
    for (i64 i = 0; i < n; ++i) top = std::max(top, out[i]);
    const double* old = message_.data() + at_.message[s];
    const double damping = rule_.damping;
    double change = 0;
    for (i64 i = 0; i < n; ++i) {
      if (top > -kInf) out[i] -= top;
      if (out[i] == old[i]) continue;  // both minus infinity, too
      if (damping > 0 && old[i] > -kInf) out[i] = (1 - damping) * out[i] + damping * old[i];
      // every entry counts, however small: what others say of the variable may raise it to any belief
      change = std::max(change, std::abs(out[i] - old[i]));
    }
    return change;
  }

  void pair_message(i64 f, i64 s, Scratch& work, double* out) const {
    const i64 first = g_.scope_ptr[f];
    const i64 other = s == first ? first + 1 : first;
    const i64 n = g_.card[g_.scope[s]], m = g_.card[g_.scope[other]];
    double* c = work.cavity.data();
    double* q = work.weight.data();
    cavity(other, c);
    exponential(c, m, q);
    const bool sparse = rule_.beam.has_value();
    if (sparse) prune(m, c, work);
    const double* p = psi(f);
    double* sum = work.sum.data();
    if (!sparse) {
      (s == first ? kernels_.up_columns : kernels_.up_rows)(p, q, m, n, sum);
    } else if (s == first) {  // rows are the target's
      for (i64 i = 0; i < n; ++i) {
        const double* row = p + i * m;
        double x = 0;
        for (const i32 j : work.kept) x += row[j] * q[j];
        sum[i] = x;
      }
    } else {
      std::fill(sum, sum + n, 0.0);
      for (const i32 j : work.kept) {
        const double* row = p + j * n;
        const double weight = q[j];
        for (i64 i = 0; i < n; ++i) sum[i] += row[i] * weight;
      }
    }
    bool lost = false;
    for (i64 i = 0; i < n; ++i) {
      out[i] = std::log(sum[i]);
      lost |= sum[i] < kSmall;
    }
    if (!lost) return;
    // an entry that is zero, or nearly: in log space, to be sure
    const double* x = scores_.table(f);
    const double top = *std::max_element(x, x + n * m), scale = 1 / appearance(f);
    for (i64 i = 0; i < n; ++i) {
      if (sum[i] >= kSmall) continue;
      out[i] = log_sum(m, [&](i64 j) { return (x[s == first ? i * m + j : j * n + i] - top) * scale + c[j]; });
    }
  }

  // Any number of variables, sum or max, in log space.
  void wide_message(i64 f, i64 s, Scratch& work, double* out) const {
    const i64 n = g_.card[g_.scope[s]], size = g_.table_size(f);
    cavities(f, s, work);
    work.entries.reserve(size);
    double* x = work.entries.data();
    add_cavities(f, work, x, [scale = 1 / appearance(f)](double score) { return score * scale; });
    i64 inner = 1;  // entries from one value of the variable to its next
    for (i64 k = s + 1; k < g_.scope_ptr[f + 1]; ++k) inner *= g_.card[g_.scope[k]];
    for (i64 i = 0; i < n; ++i) {
      const auto entry = [&](i64 j) { return x[(j / inner * n + i) * inner + j % inner]; };
      if (!rule_.max) {
        out[i] = log_sum(size / n, entry);
        continue;
      }
      out[i] = -kInf;
      for (i64 j = 0; j < size / n; ++j) out[i] = std::max(out[i], entry(j));
    }
  }

  // Cavities of all variables of f one after another; zeros at place s (none if s < 0).
  void cavities(i64 f, i64 s, Scratch& work) const {
    double* c = work.cavity.data();
    for (i64 k = g_.scope_ptr[f]; k < g_.scope_ptr[f + 1]; ++k) {
      const i64 n = g_.card[g_.scope[k]];
      if (k == s) {
        std::fill(c, c + n, 0.0);
      } else {
        cavity(k, c);
        if (rule_.beam && s >= 0) {
          exponential(c, n, work.weight.data());
          prune(n, c, work);
        }
      }
      c += n;
    }
  }

  // The reweighted scores of all entries of f, with the cavities.
  template <class Reweighted>
  void add_cavities(i64 f, const Scratch& work, double* out, Reweighted reweighted) const {
    const auto scope = g_.scope_of(f);
    const double* x = scores_.table(f);
    each_entry(g_, f, [&](i64 k, const i32* y) {
      out[k] = reweighted(x[k]);
      const double* c = work.cavity.data();
      for (std::size_t d = 0; d < scope.size(); c += g_.card[scope[d++]]) out[k] += c[y[d]];
    });
  }

  // A pair's belief, and what it adds to log Z; with S the sum of exp(theta / rho + c_a + c_b), the entropy is
  // log S - E[theta] / rho - E[c_a] - E[c_b]. Not a number where probability space does not do.
  double pair_belief(i64 f, Scratch& work, double* out) const {
    const i64 first = g_.scope_ptr[f];
    const i64 n = g_.card[g_.scope[first]], m = g_.card[g_.scope[first + 1]];
    double* c = work.cavity.data();
    double* q = work.weight.data();
    double* sums = work.sum.data();
    cavity(first, c);
    cavity(first + 1, c + n);
    exponential(c, n + m, q);
    kernels_.down_rows(psi(f), q, q + n, n, m, out, sums);
    double total = 0;
    for (i64 i = 0; i < n; ++i) total += sums[i];
    if (!(total > kFaint)) return std::numeric_limits<double>::quiet_NaN();
    const double scale = 1 / total;
    const double* x = scores_.table(f);
    double energy = 0, offsets = 0;
    std::fill(sums + n, sums + n + m, 0.0);
    for (i64 i = 0; i < n; ++i) {
      double* row = out + i * m;
      for (i64 j = 0; j < m; ++j) {
        row[j] *= scale;
        sums[n + j] += row[j];
        energy += row[j] > 0 ? row[j] * x[i * m + j] : 0.0;
      }
      sums[i] *= scale;
    }
    for (i64 k = 0; k < n + m; ++k) offsets += sums[k] > 0 ? sums[k] * c[k] : 0.0;
    const double rho = appearance(f), top = *std::max_element(x, x + n * m);
    return energy + rho * (std::log(total) + top / rho - energy / rho - offsets);
  }

  double factor_belief(i64 f, Scratch& work, double* out) const {
    const i64 arity = g_.scope_ptr[f + 1] - g_.scope_ptr[f];
    if (arity == 2 && !rule_.max) {
      const double term = pair_belief(f, work, out);
      if (!std::isnan(term)) return term;
    }
    cavities(f, -1, work);
    add_cavities(f, work, out, [rho = appearance(f)](double score) { return score / rho; });
    if (!softmax(out, g_.table_size(f))) return -kInf;
    const auto [energy, entropy] = energy_and_entropy(out, scores_.table(f), g_.table_size(f));
    return energy + appearance(f) * entropy;
  }

  // Takes over a new message into the total of its variable.
  void commit(i64 f, i64 s, const double* fresh) {
    const i32 v = g_.scope[s];
    const i64 n = g_.card[v];
    double* m = message_.data() + at_.message[s];
    double* t = total_.data() + g_.node_ptr[v];
    const double rho = appearance(f);
    bool again = false;
    for (i64 i = 0; i < n; ++i) {
      again |= m[i] == -kInf || fresh[i] == -kInf;
      t[i] += rho * (fresh[i] - m[i]);
      m[i] = fresh[i];
    }
    if (again) add_up(v);
  }

  // Flooding in probability space; false, and nothing changed, if that is not to be trusted.
  bool quick(PassingReport& out) {
    if (rule_.max || rule_.beam || rule_.damping > 0 || rule_.appearance != nullptr) return false;
    const i64 n = g_.n_factors(), n_variables = g_.n_variables();
    int labels = n_variables > 0 ? g_.card[0] : 0;
    for (i64 v = 0; v < n_variables; ++v) {
      if (g_.card[v] > 64 || at_.ptr[v + 1] - at_.ptr[v] > 8) return false;
      if (g_.card[v] != labels) labels = 0;
    }
    if (g_.scope_ptr.back() != 2 * n) return false;
    for (i64 f = 0; f < n; ++f)
      if (g_.scope_ptr[f] != 2 * f) return false;
    Buffer<double> weight(total_.size()), belief(total_.size());
    for (i64 v = 0; v < n_variables; ++v) {
      const double* u = scores_.unary + g_.node_ptr[v];
      const i64 card = g_.card[v];
      const double top = *std::max_element(u, u + card);
      if (!(top > -kInf)) return false;
      double* w = weight.data() + g_.node_ptr[v];
      kernels_.exponentials(u, card, top, 1.0, w);
      for (i64 i = 0; i < card; ++i)
        if (!(w[i] >= kFaint)) return false;
    }
    if (2 <= labels && labels <= kFewLabels) return quick_lanes(labels, weight, belief, out);
    std::vector<double> message(at_.entries);
    for (i64 s = 0; s < 2 * n; ++s) {
      const i32 card = g_.card[g_.scope[s]];
      std::fill_n(message.data() + at_.message[s], card, 1.0 / card);
    }
    const bool good = quick_sweeps(
        n, 2048, out,
        [&](i64 begin, i64 end) {
          for (i64 v = begin; v < end; ++v) {
            double* b = belief.data() + g_.node_ptr[v];
            const i64 card = g_.card[v];
            std::copy_n(weight.data() + g_.node_ptr[v], card, b);
            for (i64 e = at_.ptr[v]; e < at_.ptr[v + 1]; ++e) {
              const double* m = message.data() + at_.message[at_.place[e]];
              for (i64 i = 0; i < card; ++i) b[i] *= m[i];
            }
          }
        },
        [&](i64 begin, i64 end, double& change, double& least) {
          const Flood g{g_.scope.data(), g_.node_ptr.data(), g_.card.data(), at_.message.data(), psi_.data(),
                        psi_ptr_.data(), scores_.table_of,   belief.data(),  message.data()};
          kernels_.flood_edges(g, begin, end, change, least);
        });
    if (good) take_logs([&](i64 s) { return message.data() + at_.message[s]; }, 1);
    return good;
  }

  // The same where all variables have the same few labels.
  bool quick_lanes(int labels, const Buffer<double>& weight, Buffer<double>& belief, PassingReport& out) {
    const i64 n = g_.n_factors(), blocks = (n + kLanes - 1) / kLanes, size = labels * kLanes, table = labels * size;
    // a block whose edges share a table shares its lanes with all such blocks
    std::vector<i64> psi_at(blocks), shared(scores_.n_tables, -1);
    std::vector<char> fill(blocks, 0);
    i64 used = 0;
    for (i64 k = 0; k < blocks; ++k) {
      const i32* first = scores_.table_of + k * kLanes;
      const i64 lanes = std::min<i64>(kLanes, n - k * kLanes);
      const bool same = std::all_of(first, first + lanes, [&](i32 t) { return t == *first; });
      if (same && shared[*first] >= 0) {
        psi_at[k] = shared[*first];
        continue;
      }
      psi_at[k] = used;
      fill[k] = 1;
      if (same) shared[*first] = used;
      used += table;
    }
    Buffer<double> psi(used), message(blocks * 2 * size);
    std::fill_n(message.data(), blocks * 2 * size, 1.0 / labels);
    std::vector<i32> ends(blocks * 2 * kLanes);
    parallel_blocks(blocks, 256, threads_, [&](i64 first, i64 last, int) {
      for (i64 k = first; k < last; ++k)
        for (i64 w = 0; w < kLanes; ++w) {
          const i64 f = std::min(n - 1, k * kLanes + w);  // the last one again where there are no more
          for (i64 side = 0; side < 2; ++side) ends[(2 * k + side) * kLanes + w] = g_.scope[2 * f + side];
          if (!fill[k]) continue;
          const double* x = psi_.data() + psi_ptr_[scores_.table_of[f]];
          double* y = psi.data() + psi_at[k] + w;
          for (i64 i = 0; i < labels * labels; ++i) y[i * kLanes] = x[i];
        }
    });
    const auto begin_of = [&](i64 s) { return ((s / 2 / kLanes) * 2 + s % 2) * size + s / 2 % kLanes; };
    std::vector<i64> at(at_.place.size());
    for (std::size_t e = 0; e < at.size(); ++e) at[e] = begin_of(at_.place[e]);
    const bool good = quick_sweeps(
        blocks, 256, out,
        [&](i64 begin, i64 end) {
          kernels_.multiply_blocks(labels, at_.ptr.data(), at.data(), weight.data(), message.data(), begin, end,
                                   belief.data());
        },
        [&](i64 begin, i64 end, double& change, double& least) {
          kernels_.flood_blocks({psi_at.data(), psi.data(), ends.data(), belief.data(), message.data()}, labels, begin,
                                end, change, least);
        });
    if (good) take_logs([&](i64 s) { return message.data() + begin_of(s); }, kLanes);
    return good;
  }

  // Sweeps until they change little; false if a message has come near zero.
  template <class Multiply, class Update>
  bool quick_sweeps(i64 n, i64 block, PassingReport& out, Multiply multiply, Update update) {
    PassingReport report;
    const i64 blocks = (n + block - 1) / block, n_variables = g_.n_variables();
    constexpr i64 step = 2048;
    const i64 steps = (n_variables + step - 1) / step;
    std::vector<double> changes(blocks), leasts(blocks);
    const auto body = [&](i64 phase, i64 b) {
      if (phase == 0) return multiply(b * step, std::min(n_variables, (b + 1) * step));
      double change = 0, least = 1;
      update(b * block, std::min(n, (b + 1) * block), change, least);
      changes[b] = change;
      leasts[b] = least;
    };
    PhasedThreads phases(threads_, {steps, blocks}, body);
    bool good = true;
    report.repeat(rule_.tol, rule_.max_iter, [&] {
      phases.run();
      phases.run();
      for (const double least : leasts) good &= least > kFaint;
      report.messages += 2 * g_.n_factors();
      return good ? *std::max_element(changes.begin(), changes.end()) : 0.0;
    });
    if (good) out = report;
    return good;
  }

  // Messages out of probability space, whose largest entry becomes zero.
  template <class Begin>
  void take_logs(Begin begin, i64 stride) {
    parallel_blocks(std::ssize(g_.scope), 2048, threads_, [&](i64 first, i64 last, int) {
      for (i64 s = first; s < last; ++s) {
        double* m = message_.data() + at_.message[s];
        const double* x = begin(s);
        const i64 card = g_.card[g_.scope[s]];
        double top = 0;
        for (i64 i = 0; i < card; ++i) top = std::max(top, x[i * stride]);
        for (i64 i = 0; i < card; ++i) m[i] = std::log(x[i * stride] / top);
      }
    });
  }

  PassingReport flood() {
    PassingReport report;
    std::vector<double> fresh(at_.entries);
    constexpr i64 block = 512;
    const i64 n = g_.n_factors();
    std::vector<double> changes((n + block - 1) / block);
    report.repeat(rule_.tol, rule_.max_iter, [&] {
      parallel_blocks(n, block, threads_, [&](i64 begin, i64 end, int thread) {
        double change = 0;
        for (i64 f = begin; f < end; ++f)
          for (i64 s = g_.scope_ptr[f]; s < g_.scope_ptr[f + 1]; ++s)
            change = std::max(change, compute(f, s, scratch_[thread], fresh.data() + at_.message[s]));
        changes[begin / block] = change;
      });
      message_.swap(fresh);
      each_variable([&](i64 v) { add_up(v); });
      report.messages += std::ssize(g_.scope);
      return *std::max_element(changes.begin(), changes.end());
    });
    return report;
  }

  // Up through the variables, sending to later ones, and down again, sending to earlier ones.
  PassingReport sweep(i64 component, Scratch& work) {
    PassingReport report;
    const auto& members = at_.members[component];
    if (members.size() == 1) return report;
    std::vector<double> fresh(widest_);
    double change = 0;
    const auto send = [&](i32 v, bool up) {
      for (i64 e = at_.ptr[v]; e < at_.ptr[v + 1]; ++e) {
        const i64 f = at_.factor[e];
        for (i64 s = g_.scope_ptr[f]; s < g_.scope_ptr[f + 1]; ++s) {
          if (up ? g_.scope[s] <= v : g_.scope[s] >= v) continue;
          change = std::max(change, compute(f, s, work, fresh.data()));
          commit(f, s, fresh.data());
          ++report.messages;
        }
      }
    };
    report.repeat(rule_.tol, rule_.max_iter, [&] {
      change = 0;
      for (const i32 v : members) send(v, true);
      for (std::size_t k = members.size(); k-- > 0;) send(members[k], false);
      for (const i32 v : members) add_up(v);
      return change;
    });
    return report;
  }

  // Always the message that would change most.
  PassingReport follow(i64 component, Scratch& work) {
    PassingReport report;
    const auto& members = at_.members[component];
    if (members.size() == 1) return report;
    i64 n = 0;
    using Entry = std::tuple<double, i64, u32>;
    std::priority_queue<Entry> queue;
    const auto refresh = [&](i64 e) {  // e: number of the message, at_.place[e] its place in `scope`
      const i64 s = at_.place[e];
      queue.emplace(compute(at_.factor[e], s, work, fresh_.data() + at_.message[s]), -e, ++version_[e]);
    };
    for (const i32 v : members)
      for (i64 e = at_.ptr[v]; e < at_.ptr[v + 1]; ++e, ++n) refresh(e);
    while (!queue.empty()) {
      const auto [change, minus, seen] = queue.top();
      const i64 e = -minus, f = at_.factor[e], at = at_.place[e];
      if (seen != version_[e]) {
        queue.pop();
        continue;
      }
      report.residual = change;
      if (change <= rule_.tol || report.messages >= rule_.max_iter * n) break;
      queue.pop();
      commit(f, at, fresh_.data() + at_.message[at]);
      ++report.messages;
      const i32 v = g_.scope[at];
      for (i64 k = at_.ptr[v]; k < at_.ptr[v + 1]; ++k) {
        const i64 g = at_.factor[k];
        if (g == f) continue;
        for (i64 s = g_.scope_ptr[g]; s < g_.scope_ptr[g + 1]; ++s)
          if (g_.scope[s] != v) refresh(at_.number[s]);
      }
      if (rule_.damping > 0 || rule_.appearance != nullptr) {
        // the message itself moves on, and with appearances its own cavity did
        for (i64 s = g_.scope_ptr[f]; s < g_.scope_ptr[f + 1]; ++s) refresh(at_.number[s]);
      } else {
        queue.emplace(0.0, -e, ++version_[e]);
      }
    }
    report.converged = report.residual <= rule_.tol;
    report.iterations = (report.messages + n - 1) / n;
    return report;
  }

  const Structure& g_;
  const Scores& scores_;
  const PassingRule& rule_;
  const Threads& threads_;
  Incidence at_;
  const GraphKernels& kernels_ = graph_kernels();
  std::vector<double> message_, total_;
  std::vector<double> fresh_;  // by residual: the messages as they would be, and how often they were computed
  std::vector<u32> version_;
  std::vector<i64> psi_ptr_;
  Buffer<double> psi_;
  std::vector<Scratch> scratch_;
  i64 widest_ = 0;
};

}  // namespace

PassingReport pass_messages(const Structure& graph, const Scores& scores, const PassingRule& rule,
                            const Threads& threads, const Beliefs& out) {
  Passing passing(graph, scores, rule, threads);
  const PassingReport report = passing.run();
  passing.read_off(out);
  return report;
}

}  // namespace crfkit
