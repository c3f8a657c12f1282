// junction_tree.cpp: exact inference on junction trees.
//
// Sum-product runs in probability space: every table and message is divided by its largest entry, and a lower bound of
// the smallest entry above zero travels with it. Where the bound says that a product might not be a normal number, the
// component is redone in log space. Max-product is in log space.
//
// A clique of v and its neighbours whose one neighbour u is tied to v alone, by a factor psi(v, u), needs no table
// either: it is base(v, others) psi(v, u), and with D(others, u) what comes from above,
//   message(others, u) = sum_v base(v, others) psi(v, u)
//   p(v, u)            = psi(v, u) sum_others base(v, others) D(others, u)
//   p(v, others)       = base(v, others) sum_u psi(v, u) D(others, u)
// are matrix products. Chains side by side (factorial CRFs) and grids of many labels are made of such cliques.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log_sum.hpp"
#include "base/parallel.hpp"
#include "base/simd.hpp"
#include "graph/factor_graph.hpp"
#include "graph/kernels.hpp"
#include "graph/table_sums.hpp"

namespace crfkit {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kSmall = 1e-290;  // products above this are exact
constexpr i64 kMatrix = 8;         // labels from which a clique is better a matrix product
constexpr i64 kBlocks = 512;       // of components, whose sums are added in order

using Vec4 = base::Simd<double, 4>;

// out = exp(x - shift); gives the smallest value above zero, or 0 if a finite score was lost.
double exponentials(const double* x, i64 n, double shift, double* out) {
  i64 k = 0;
  Vec4::Vec lowest = Vec4::splat(1.0);
  for (; k + 4 <= n; k += 4) {
    const Vec4::Vec in = Vec4::load(x + k);
    const Vec4::Vec e = Vec4::exp(in - shift);
    Vec4::store(out + k, e);
    const Vec4::Mask allowed = in > -kInf;
    lowest = Vec4::min(lowest, allowed ? e : lowest);
  }
  double low = Vec4::lowest(lowest);
  for (; k < n; ++k) {
    out[k] = std::exp(x[k] - shift);
    if (x[k] > -kInf) low = std::min(low, out[k]);
  }
  return low < kSmall ? 0.0 : low;
}

struct Linear {
  static constexpr double one = 1.0, zero = 0.0;
  static double times(double a, double b) { return a * b; }
  static double plus(double a, double b) { return a + b; }
};

struct Log {
  static constexpr double one = 0.0, zero = -kInf;
  static double times(double a, double b) { return a + b; }
  static double plus(double a, double b) {
    return log_sum(2, [&](int i) { return i == 0 ? a : b; });
  }
};

struct Max : Log {
  static double plus(double a, double b) { return std::max(a, b); }
};

// Calls inner(place in the clique's table, place in the smaller table, extent, step) for every innermost run.
template <class Inner>
inline void run(const Walk& walk, Inner inner) {
  const i64 n = std::ssize(walk.extent);
  const i64 last = walk.extent[n - 1], step = walk.step[n - 1];
  if (n == 1) return inner(i64{0}, i64{0}, last, step);
  if (n == 2) {
    for (i64 i = 0; i < walk.extent[0]; ++i) inner(i * last, i * walk.step[0], last, step);
    return;
  }
  i64 index[64] = {};
  i64 at = 0, other = 0;
  for (;;) {
    inner(at, other, last, step);
    at += last;
    i64 d = n - 2;
    for (; d >= 0; --d) {
      other += walk.step[d];
      if (++index[d] < walk.extent[d]) break;
      other -= walk.extent[d] * walk.step[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

template <class A>
void multiply(double* table, const Walk& walk, const double* other) {
  run(walk, [&](i64 at, i64 from, i64 n, i64 step) {
    double* t = table + at;
    const double* o = other + from;
    if (step == 1)
      for (i64 k = 0; k < n; ++k) t[k] = A::times(t[k], o[k]);
    else if (step == 0)
      for (i64 k = 0; k < n; ++k) t[k] = A::times(t[k], *o);
    else
      for (i64 k = 0; k < n; ++k) t[k] = A::times(t[k], o[k * step]);
  });
}

void assign(double* table, const Walk& walk, const double* other) {
  run(walk, [&](i64 at, i64 from, i64 n, i64 step) {
    double* t = table + at;
    const double* o = other + from;
    for (i64 k = 0; k < n; ++k) t[k] = o[k * step];
  });
}

template <class A>
void marginalise(const double* table, const Walk& walk, double* out, i64 size) {
  std::fill(out, out + size, A::zero);
  run(walk, [&](i64 at, i64 to, i64 n, i64 step) {
    const double* t = table + at;
    double* o = out + to;
    if (step == 0) {
      double sum = A::zero;
      for (i64 k = 0; k < n; ++k) sum = A::plus(sum, t[k]);
      *o = A::plus(*o, sum);
    } else {
      for (i64 k = 0; k < n; ++k) o[k * step] = A::plus(o[k * step], t[k]);
    }
  });
}

// The table of a pair as a matrix with one row for every value of v.
Matrix pair_matrix(const Structure& graph, i64 f, i32 v, const double* values) {
  const i64 columns = graph.card[graph.scope_of(f)[1]];
  const Matrix m{values, columns, 1};
  return graph.scope_of(f)[0] == v ? m : m.turned();
}

// Walks of tables of variables `inner` (with their own strides) beside one of variables `outer`.
Walk make_walk(const std::vector<i32>& outer, std::span<const i32> inner, const std::vector<i32>& card) {
  std::vector<i64> strides(inner.size());
  i64 stride = 1;
  for (std::size_t k = inner.size(); k-- > 0;) {
    strides[k] = stride;
    stride *= card[inner[k]];
  }
  Walk walk;
  for (const i32 v : outer) {
    i64 step = 0;
    for (std::size_t k = 0; k < inner.size(); ++k)
      if (inner[k] == v) step = strides[k];
    const i64 extent = card[v];
    if (extent == 1) continue;
    if (!walk.extent.empty() && walk.step.back() == step * extent) {
      walk.extent.back() *= extent;
      walk.step.back() = step;
    } else {
      walk.extent.push_back(extent);
      walk.step.push_back(step);
    }
  }
  if (walk.extent.empty()) {
    walk.extent.push_back(1);
    walk.step.push_back(0);
  }
  if (walk.extent.size() > 60) throw Error("a clique has too many variables");
  return walk;
}

}  // namespace

// Distinct tables in probability space.
struct JunctionTree::Tables {
  std::vector<double> values, shift, low;
};

struct JunctionTree::Work {
  Buffer<double> tables, messages, vectors, down, scratch, packed;
  std::vector<double> scale;  // what the messages were divided by, inverted
};

JunctionTree::JunctionTree(const Structure& graph, std::vector<i32> order)
    : graph_(graph), kernels_(graph_kernels()), order_(std::move(order)) {
  const i64 n = graph.n_variables();
  if (std::ssize(order_) != n) throw Error("an elimination order must name every variable once");
  std::vector<i64> place(n, -1);
  for (i64 k = 0; k < n; ++k) {
    if (order_[k] < 0 || order_[k] >= n || place[order_[k]] >= 0)
      throw Error("an elimination order must name every variable once");
    place[order_[k]] = k;
  }
  cliques_.resize(n);
  const auto earlier = [&](i32 a, i32 b) { return place[a] < place[b]; };
  for (i64 f = 0; f < graph.n_factors(); ++f) {
    std::vector<i32> scope(graph.scope_of(f).begin(), graph.scope_of(f).end());
    std::sort(scope.begin(), scope.end(), earlier);
    Clique& home = cliques_[place[scope[0]]];
    home.parts.push_back({f, {}, {}});
    home.rest.insert(home.rest.end(), scope.begin() + 1, scope.end());
  }
  members_.resize(graph.n_components);
  memory_.assign(graph.n_components, 0);
  lean_memory_ = message_memory_ = vector_memory_ = memory_;
  std::vector<double> component_entries(graph.n_components, 0.0);
  for (i64 k = 0; k < n; ++k) {
    Clique& c = cliques_[k];
    c.variable = order_[k];
    std::sort(c.rest.begin(), c.rest.end(), earlier);
    c.rest.erase(std::unique(c.rest.begin(), c.rest.end()), c.rest.end());
    double size = 1;
    for (const i32 v : c.rest) size *= graph.card[v];
    const double whole = size * graph.card[c.variable];
    entries_ += whole;
    largest_ = std::max(largest_, whole);
    treewidth_ = std::max<i64>(treewidth_, std::ssize(c.rest));
    const i32 component = graph.component[c.variable];
    component_entries[component] += whole + size;
    if (whole > 4e18) throw Error("a clique's table is too large");
    c.message = static_cast<i64>(size);
    c.size = static_cast<i64>(whole);
    c.strides.assign(c.rest.size(), 1);
    for (std::size_t j = c.rest.size(); j-- > 1;) c.strides[j - 1] = c.strides[j] * graph.card[c.rest[j]];
    c.at = memory_[component];
    c.message_at = message_memory_[component];
    c.lean_at = lean_memory_[component];
    c.vector_at = vector_memory_[component];
    memory_[component] += c.size;
    vector_memory_[component] += graph.card[c.variable];
    message_memory_[component] += c.message;
    c.number = std::ssize(members_[component]);
    members_[component].push_back(k);
    if (!c.rest.empty()) {
      c.parent = place[c.rest[0]];
      Clique& up = cliques_[c.parent];
      up.children.push_back(k);
      up.rest.insert(up.rest.end(), c.rest.begin() + 1, c.rest.end());
    }
    std::vector<i32> all{c.variable};
    all.insert(all.end(), c.rest.begin(), c.rest.end());
    for (Part& part : c.parts) part.walk = make_walk(all, graph.scope_of(part.factor), graph.card);
    bool alone = c.parts.size() == 1 && c.rest.size() == 1;
    for (const i64 child : c.children) {
      cliques_[child].in_parent = make_walk(all, cliques_[child].rest, graph.card);
      alone &= cliques_[child].rest.size() == 1;
    }
    if (alone) c.kind = graph.scope_of(c.parts[0].factor)[0] == c.variable ? Clique::Kind::rows : Clique::Kind::columns;
    else find_product(c);
    if (c.kind == Clique::Kind::product) {
      all.erase(c.u_last ? all.end() - 1 : all.begin() + 1);
      for (std::size_t p = 0; p + 1 < c.parts.size(); ++p)
        c.parts[p].base_walk = make_walk(all, graph.scope_of(c.parts[p].factor), graph.card);
      for (const i64 child : c.children) cliques_[child].in_base = make_walk(all, cliques_[child].rest, graph.card);
    }
    if (!alone) lean_memory_[component] += graph.card[c.variable] * c.others;
  }
  const auto most = std::max_element(component_entries.begin(), component_entries.end());
  if (most != component_entries.end()) {
    largest_component_ = *most;
    costliest_ = most - component_entries.begin();
  }
}

// Whether the clique is a product, and of what.
void JunctionTree::find_product(Clique& c) const {
  c.others = c.message;
  if (c.rest.size() < 2 || graph_.card[c.variable] < kMatrix) return;
  for (const bool last : {true, false}) {
    const i32 u = last ? c.rest.back() : c.rest.front();
    if (graph_.card[u] < kMatrix) continue;
    const auto names = [&](const auto& variables) {
      return std::find(variables.begin(), variables.end(), u) != variables.end();
    };
    if (std::any_of(c.children.begin(), c.children.end(), [&](i64 child) { return names(cliques_[child].rest); }))
      continue;
    const auto has = [&](const Part& part) { return names(graph_.scope_of(part.factor)); };
    if (std::count_if(c.parts.begin(), c.parts.end(), has) != 1) continue;
    const auto psi = std::find_if(c.parts.begin(), c.parts.end(), has);
    if (graph_.scope_of(psi->factor).size() != 2) continue;
    std::rotate(psi, psi + 1, c.parts.end());
    c.kind = Clique::Kind::product;
    c.u_last = last;
    c.others = c.message / graph_.card[u];
    return;
  }
}

JunctionTree::Tables JunctionTree::prepare(const Scores& scores, const Threads& threads) const {
  Tables out;
  out.values.resize(scores.table_ptr[scores.n_tables]);
  out.shift.resize(scores.n_tables);
  out.low.resize(scores.n_tables);
  parallel_blocks(scores.n_tables, 256, threads, [&](i64 begin, i64 end, int) {
    for (i64 k = begin; k < end; ++k) {
      const double* x = scores.tables + scores.table_ptr[k];
      const i64 n = scores.table_ptr[k + 1] - scores.table_ptr[k];
      double top = -kInf;
      for (i64 i = 0; i < n; ++i) top = std::max(top, x[i]);
      out.shift[k] = top;
      out.low[k] = top == -kInf ? 0.0 : exponentials(x, n, top, out.values.data() + scores.table_ptr[k]);
    }
  });
  return out;
}

// The upward pass over a component: clique tables before they hear from above, messages, log Z. Lean: cliques that are
// said by a vector and a factor, or are products, have no tables.
template <class A, bool Lean>
class JunctionTree::Collector {
 public:
  Collector(const JunctionTree& tree, i64 component, const Scores& scores, const Tables& tables, Work& work,
            double& log_z)
      : tree_(tree), graph_(tree.graph_), scores_(scores), tables_(tables), work_(work), log_z_(log_z) {
    log_z = 0;
    const auto& members = tree.members_[component];
    work.tables.reserve((Lean ? tree.lean_memory_ : tree.memory_)[component]);
    work.vectors.reserve(tree.vector_memory_[component]);
    work.scale.resize(members.size());
    work.messages.reserve(tree.message_memory_[component]);
    low_of_.resize(members.size());
    for (const i64 k : members)
      if (!collect(tree.cliques_[k])) break;
  }
  bool trusted() const { return trusted_; }

 private:
  static constexpr bool kLinear = A::one == 1.0;

  // Each step says whether to go on: not if nothing is allowed, log Z is then minus infinity, nor if numbers would be
  // too small to be trusted.
  bool collect(const Clique& c) {
    const bool product = Lean && c.kind == Clique::Kind::product,
               bare = Lean && !product && c.kind != Clique::Kind::table;
    double* vec = work_.vectors.data() + c.vector_at;
    double* table = work_.tables.data() + (Lean ? c.lean_at : c.at);
    double* message = work_.messages.data() + c.message_at;
    if (!fill_vector(c, vec)) return false;
    if (bare) {
      const i32 t = scores_.table_of[c.parts[0].factor];
      if (!admit_table(t)) return false;
      const auto up = c.kind == Clique::Kind::rows ? tree_.kernels_.up_rows : tree_.kernels_.up_columns;
      up(values(t), vec, card(c), c.message, message);
    } else {
      if (!fill_table(c, product, vec, table)) return false;
      if (!product) sum_out(c, table, message);
      else if (!multiply_out(c, table, message)) return false;
    }
    return settle(c, message);
  }

  // What concerns the variable alone: its scores, and messages about nothing else.
  bool fill_vector(const Clique& c, double* vec) {
    const double* unary = scores_.unary + graph_.node_ptr[c.variable];
    bound_ = 1.0;
    if constexpr (kLinear) {
      const double top = *std::max_element(unary, unary + card(c));
      log_z_ += top;
      if (top == -kInf) return false;
      bound_ = exponentials(unary, card(c), top, vec);
      if (bound_ == 0) return trusted_ = false;
    } else {
      std::copy(unary, unary + card(c), vec);
    }
    for (const i64 child : c.children) {
      const Clique& d = tree_.cliques_[child];
      if (d.rest.size() != 1) continue;
      if (!admit(low_of_[d.number], vec, card(c))) return false;
      const double* m = work_.messages.data() + d.message_at;
      for (i64 i = 0; i < card(c); ++i) vec[i] = A::times(vec[i], m[i]);
    }
    return true;
  }

  // The table, or the base of a product: the first factor times the vector, then the other factors and messages.
  bool fill_table(const Clique& c, bool product, const double* vec, double* table) {
    const i64 width = product ? c.others : c.message, parts = std::ssize(c.parts) - product;
    const auto walk = [&](i64 p) -> const Walk& { return product ? c.parts[p].base_walk : c.parts[p].walk; };
    if (parts > 0) {
      const i32 t = scores_.table_of[c.parts[0].factor];
      if (!admit_table(t)) return false;
      if (walk(0).is_identity()) {
        const double* from = values(t);
        for (i64 i = 0; i < card(c); ++i)
          for (i64 r = 0; r < width; ++r) table[i * width + r] = A::times(from[i * width + r], vec[i]);
      } else {
        assign(table, walk(0), values(t));
        for (i64 i = 0; i < card(c); ++i)
          for (i64 r = 0; r < width; ++r) table[i * width + r] = A::times(table[i * width + r], vec[i]);
      }
    } else {
      for (i64 i = 0; i < card(c); ++i) std::fill_n(table + i * width, width, vec[i]);
    }
    for (i64 p = 1; p < parts; ++p) {
      const i32 t = scores_.table_of[c.parts[p].factor];
      if (!admit_table(t, table, card(c) * width)) return false;
      multiply<A>(table, walk(p), values(t));
    }
    for (const i64 child : c.children) {
      const Clique& d = tree_.cliques_[child];
      if (d.rest.size() == 1) continue;
      if (!admit(low_of_[d.number], table, card(c) * width)) return false;
      multiply<A>(table, product ? d.in_base : d.in_parent, work_.messages.data() + d.message_at);
    }
    return true;
  }

  // The message of a product.
  bool multiply_out(const Clique& c, double* table, double* message) {
    const i64 f = c.parts.back().factor, width = c.others, n_u = c.message / width;
    const i32 t = scores_.table_of[f];
    if (!admit_table(t, table, card(c) * width)) return false;
    const Matrix base{table, width, 1}, psi = pair_matrix(graph_, f, c.variable, values(t));
    const auto multiply = tree_.kernels_.multiply;
    if (c.u_last) multiply(base.turned(), psi, width, n_u, card(c), message, work_.packed);
    else multiply(psi.turned(), base, n_u, width, card(c), message, work_.packed);
    return true;
  }

  // The message: the variable summed out; it is the outermost axis.
  void sum_out(const Clique& c, const double* table, double* message) const {
    if (c.message == 1) {
      double sum = A::zero;
      for (i64 i = 0; i < card(c); ++i) sum = A::plus(sum, table[i]);
      message[0] = sum;
      return;
    }
    std::copy(table, table + c.message, message);
    for (i64 i = 1; i < card(c); ++i)
      for (i64 r = 0; r < c.message; ++r) message[r] = A::plus(message[r], table[i * c.message + r]);
  }

  // Divides the message by its largest entry.
  bool settle(const Clique& c, double* message) {
    if constexpr (kLinear) {
      const double top = tree_.kernels_.divide_by_largest(message, c.message, low_of_[c.number]);
      log_z_ = top > 0 ? log_z_ + std::log(top) : -kInf;
      if (!(top > 0)) return false;
      work_.scale[c.number] = 1 / top;
      return trusted_ = low_of_[c.number] >= kSmall;
    } else {
      const double top = *std::max_element(message, message + c.message);
      log_z_ += top;
      for (i64 r = 0; top > -kInf && r < c.message; ++r) message[r] -= top;
      return top > -kInf;
    }
  }

  // Whether x, n numbers, may be multiplied by others whose smallest one above zero is `low`: if need be after x is
  // divided by its largest.
  bool admit(double low, double* x, i64 n) {
    if constexpr (!kLinear) return true;
    if (bound_ * low < kSmall && n > 0) {
      const double top = tree_.kernels_.divide_by_largest(x, n, bound_);
      if (top > 0) log_z_ += std::log(top);
    }
    if (bound_ * low < kSmall) return trusted_ = false;
    bound_ *= low;
    return true;
  }
  bool admit_table(i32 t, double* x = nullptr, i64 n = 0) {
    if constexpr (!kLinear) return true;
    log_z_ += tables_.shift[t];
    return tables_.shift[t] > -kInf && admit(tables_.low[t], x, n);
  }

  i64 card(const Clique& c) const { return graph_.card[c.variable]; }
  const double* values(i32 t) const {
    return (kLinear ? tables_.values.data() : scores_.tables) + scores_.table_ptr[t];
  }

  const JunctionTree& tree_;
  const Structure& graph_;
  const Scores& scores_;
  const Tables& tables_;
  Work& work_;
  double& log_z_;
  double bound_ = 1;  // of the smallest entry above zero
  bool trusted_ = true;
  std::vector<double> low_of_;  // smallest entries of the messages
};

// The downward pass: tables become the cliques' probabilities, and values and factors are read off them.
void JunctionTree::distribute(i64 component, const Scores& scores, const Tables& tables, Work& work, double* nodes,
                              TableSums& factors, int thread) const {
  const auto& members = members_[component];
  for (std::size_t j = members.size(); j-- > 0;) {
    const Clique& c = cliques_[members[j]];
    const i64 card = graph_.card[c.variable];
    double* mine = nodes + graph_.node_ptr[c.variable];
    work.down.reserve(c.message);
    double* down = work.down.data();
    // what the parent knows of the rest, without what it was told from here
    const double scale = work.scale[c.number];
    if (c.parent < 0) {
      down[0] = scale;
    } else {
      const Clique& up = cliques_[c.parent];
      const double* message = work.messages.data() + c.message_at;
      const double* known = nodes + graph_.node_ptr[up.variable];
      if (c.rest.size() > 1) {
        marginalise<Linear>(work.tables.data() + up.lean_at, up.kind == Clique::Kind::product ? c.in_base : c.in_parent,
                            down, c.message);
        known = down;
      }
      kernels_.divide(known, message, scale, c.message, down);
    }
    double* table = work.tables.data() + c.lean_at;
    const bool product = c.kind == Clique::Kind::product, bare = !product && c.kind != Clique::Kind::table;
    if (bare) {
      const i64 f = c.parts[0].factor;
      const double* values = tables.values.data() + scores.table_ptr[scores.table_of[f]];
      const double* vec = work.vectors.data() + c.vector_at;
      const auto pass_down = c.kind == Clique::Kind::rows ? kernels_.down_rows : kernels_.down_columns;
      pass_down(values, vec, down, card, c.message, factors.open(f, thread), mine);
      factors.close(f, thread);
    } else if (product) {
      const i64 f = c.parts.back().factor, width = c.others, n_u = c.message / width;
      const double* values = tables.values.data() + scores.table_ptr[scores.table_of[f]];
      const Matrix base{table, width, 1}, psi = pair_matrix(graph_, f, c.variable, values);
      const Matrix above = c.u_last ? Matrix{down, n_u, 1} : Matrix{down, 1, width};  // (others, u)
      if (factors.wanted()) {
        double* out = factors.open(f, thread);
        if (graph_.scope_of(f)[0] == c.variable) kernels_.multiply(base, above, card, n_u, width, out, work.packed);
        else kernels_.multiply(above.turned(), base.turned(), n_u, card, width, out, work.packed);
        for (i64 k = 0; k < card * n_u; ++k) out[k] *= values[k];
        factors.close(f, thread);
      }
      work.scratch.reserve(card * width);
      double* from_u = work.scratch.data();
      kernels_.multiply(psi, above.turned(), card, width, n_u, from_u, work.packed);
      kernels_.scale_rows(table, from_u, width, card, width, mine);
    } else {
      kernels_.scale_rows(table, down, 0, card, c.message, mine);
    }
    double total = 0;
    for (i64 i = 0; i < card; ++i) total += mine[i];
    for (i64 i = 0; i < card; ++i) mine[i] /= total;
    if (!factors.wanted() || bare) continue;
    for (std::size_t p = 0; p < c.parts.size() - product; ++p) {
      const i64 f = c.parts[p].factor, size = graph_.table_size(f);
      const Walk& walk = product ? c.parts[p].base_walk : c.parts[p].walk;
      double* out = factors.open(f, thread);
      if (walk.is_identity()) std::copy(table, table + size, out);
      else marginalise<Linear>(table, walk, out, size);
      factors.close(f, thread);
    }
  }
}

// The same in log space.
void JunctionTree::distribute_log(i64 component, Work& work, double* nodes, TableSums& factors, int thread) const {
  const auto& members = members_[component];
  for (std::size_t j = members.size(); j-- > 0;) {
    const Clique& c = cliques_[members[j]];
    const i64 card = graph_.card[c.variable];
    double* table = work.tables.data() + c.at;
    double* mine = nodes + graph_.node_ptr[c.variable];
    if (c.parent >= 0) {
      const Clique& up = cliques_[c.parent];
      work.down.reserve(c.message);
      double* down = work.down.data();
      marginalise<Log>(work.tables.data() + up.at, c.in_parent, down, c.message);
      const double* message = work.messages.data() + c.message_at;
      for (i64 r = 0; r < c.message; ++r) down[r] = message[r] > -kInf ? down[r] - message[r] : -kInf;
      for (i64 i = 0; i < card; ++i)
        for (i64 r = 0; r < c.message; ++r) table[i * c.message + r] += down[r];
    }
    double total = -kInf;
    for (i64 i = 0; i < card; ++i) {
      double sum = -kInf;
      for (i64 r = 0; r < c.message; ++r) sum = Log::plus(sum, table[i * c.message + r]);
      mine[i] = sum;
      total = Log::plus(total, sum);
    }
    for (i64 i = 0; i < card; ++i) mine[i] = std::exp(mine[i] - total);
    for (i64 i = 0; i < c.size; ++i) table[i] -= total;
    if (!factors.wanted()) continue;
    for (const Part& part : c.parts) {
      double* out = factors.open(part.factor, thread);
      const i64 size = graph_.table_size(part.factor);
      marginalise<Log>(table, part.walk, out, size);
      for (i64 i = 0; i < size; ++i) out[i] = std::exp(out[i]);
      factors.close(part.factor, thread);
    }
  }
}

void JunctionTree::sum_product(const Scores& scores, const Threads& threads, double* log_z, double* nodes,
                               const FactorOutput& factors) const {
  const Tables tables = prepare(scores, threads);
  std::vector<Work> work(threads.count);
  TableSums sums(graph_, scores, factors, threads.count);
  const i64 n = graph_.n_components, blocks = std::min(n, kBlocks);
  sums.run(blocks, threads, [&](i64 block, int thread) {
    for (i64 component = block * n / blocks; component < (block + 1) * n / blocks; ++component) {
      Work& mine = work[thread];
      const bool fine = Collector<Linear, true>(*this, component, scores, tables, mine, log_z[component]).trusted();
      if (!fine) Collector<Log, false>(*this, component, scores, tables, mine, log_z[component]);
      if (nodes == nullptr || log_z[component] == -kInf) continue;
      if (fine) distribute(component, scores, tables, mine, nodes, sums, thread);
      else distribute_log(component, mine, nodes, sums, thread);
    }
  });
}

void JunctionTree::max_product(const Scores& scores, const Threads& threads, double* score, i32* assignment) const {
  const Tables none;
  std::vector<Work> work(threads.count);
  parallel_for(graph_.n_components, threads.count, threads.poll, [&](i64 component, int thread) {
    Collector<Max, false>(*this, component, scores, none, work[thread], score[component]);
    if (score[component] == -kInf) return;
    const auto& members = members_[component];
    for (std::size_t j = members.size(); j-- > 0;) {
      const Clique& c = cliques_[members[j]];
      i64 at = 0;
      for (std::size_t r = 0; r < c.rest.size(); ++r) at += c.strides[r] * assignment[c.rest[r]];
      const double* table = work[thread].tables.data() + c.at + at;
      i32 best = 0;
      for (i32 i = 1; i < graph_.card[c.variable]; ++i)
        if (table[i * c.message] > table[best * c.message]) best = i;
      assignment[c.variable] = best;
    }
  });
}

void JunctionTree::sample(const Scores& scores, const Threads& threads, i64 n, const double* uniform, double* log_z,
                          i32* values) const {
  const Tables tables = prepare(scores, threads);
  std::vector<Work> work(threads.count);
  const i64 n_variables = graph_.n_variables();
  parallel_for(graph_.n_components, threads.count, threads.poll, [&](i64 component, int thread) {
    Work& mine = work[thread];
    const bool fine = Collector<Linear, false>(*this, component, scores, tables, mine, log_z[component]).trusted();
    if (!fine) Collector<Log, false>(*this, component, scores, tables, mine, log_z[component]);
    if (log_z[component] == -kInf) return;
    const auto& members = members_[component];
    std::vector<double> p;
    for (i64 s = 0; s < n; ++s) {
      i32* y = values + s * n_variables;
      for (std::size_t j = members.size(); j-- > 0;) {
        const Clique& c = cliques_[members[j]];
        const i64 card = graph_.card[c.variable];
        i64 at = 0;
        for (std::size_t r = 0; r < c.rest.size(); ++r) at += c.strides[r] * y[c.rest[r]];
        const double* table = mine.tables.data() + c.at + at;
        p.resize(card);
        double top = -kInf, total = 0;
        for (i64 i = 0; i < card; ++i) top = std::max(top, table[i * c.message]);
        for (i64 i = 0; i < card; ++i)
          total += p[i] = fine ? table[i * c.message] : std::exp(table[i * c.message] - top);
        double left = uniform[s * n_variables + c.variable] * total;
        i32 pick = 0;
        for (i64 i = 0; i < card; ++i) {
          if (p[i] <= 0) continue;
          pick = static_cast<i32>(i);
          left -= p[i];
          if (left < 0) break;
        }
        y[c.variable] = pick;
      }
    }
  });
}

}  // namespace crfkit
