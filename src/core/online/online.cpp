#include "online/online.hpp"

#include <algorithm>

#include "chain/kernels.hpp"

namespace crfkit {
namespace {

// Appends the entries of all tokens; the dense rows begin at `first_row`, the single weights at `first_run`.
template <class T>
void fill_rows(const Family& family, i64 n_tokens, const i64* ptr, const u32* attr, const double* value, u32 first_row,
               const u32* run_at, FlatRows<T>& out) {
  out.width = family.width;
  out.first = first_row;
  for (auto* x : {&out.at, &out.column, &out.n_dense}) x->clear();
  out.value.clear();
  out.ptr.clear();
  const u32 known = family.n_attributes();
  std::size_t entries = 0;
  for (i64 k = 0; k < ptr[n_tokens]; ++k)
    if (attr[k] < known) entries += family.place[attr[k]].dense() ? 1 : family.place[attr[k]].count;
  out.at.reserve(entries);
  out.column.reserve(entries);
  if (value) out.value.reserve(entries);
  out.n_dense.reserve(n_tokens);
  out.ptr.reserve(n_tokens + 1);
  out.ptr.push_back(0);
  for (i64 t = 0; t < n_tokens; ++t) {
    const auto each = [&](bool dense) {
      for (i64 k = ptr[t]; k < ptr[t + 1]; ++k) {
        const u32 a = attr[k];
        if (a >= known || family.place[a].dense() != dense) continue;
        const u32 begin = dense ? 0 : family.ptr[a], end = dense ? 1 : family.ptr[a + 1];
        for (u32 w = begin; w < end; ++w) {
          out.at.push_back(dense ? first_row + family.place[a].first * family.width : run_at[w]);
          out.column.push_back(dense ? 0 : family.column(w));
          if (value) out.value.push_back(T(value[k]));
        }
      }
    };
    each(true);
    out.n_dense.push_back(static_cast<u32>(out.at.size() - out.ptr.back()));
    each(false);
    out.ptr.push_back(out.at.size());
  }
}

template <class T>
void mark_bits(const Family& family, int lanes, FlatRows<T>& out) {
  const std::size_t vectors = family.width / lanes;
  out.bits.assign(family.dense_attr.size() * vectors, 0);
  for (std::size_t r = 0; r < family.dense_attr.size(); ++r) {
    const u32 a = family.dense_attr[r];
    for (u32 k = family.ptr[a]; k < family.ptr[a + 1]; ++k) {
      u16& bits = out.bits[r * vectors + family.column(k) / lanes];
      bits = static_cast<u16>(bits | (1u << (family.column(k) % lanes)));
    }
  }
}

template <class T>
void set_gold(const Tokens& data, const KnownLabels& labels, OnlineData<T>& out) {
  out.gold.clear();
  out.label.clear();
  out.hints.clear();
  out.known.clear();
  out.gold.reserve(data.n_tokens());
  for (i64 t = 0; t < data.n_tokens(); ++t)
    out.gold.push_back(labels.label[t] < 0 ? kUnknown : static_cast<u16>(labels.label[t]));
  if (std::find(out.gold.begin(), out.gold.end(), kUnknown) == out.gold.end()) return;
  out.label.assign(labels.label, labels.label + data.n_tokens());
  out.hints.assign(labels.hints, labels.hints + labels.n_hints * out.n_labels);
  for (i64 s = 0; s < data.n_seq; ++s) {
    const auto first = out.label.begin() + data.offsets[s], last = out.label.begin() + data.offsets[s + 1];
    const bool all = std::all_of(first, last, [](i32 x) { return x >= 0; });
    const bool none = std::all_of(first, last, [](i32 x) { return x == kNothingKnown; });
    out.known.push_back(all ? Known::all : none ? Known::none : Known::some);
  }
}

// The sequences of the data; where its weights lie is known already.
template <class T>
void set_tokens(const Family& state, const Family& edge, const Tokens& data, const KnownLabels& labels,
                const double* seq_weight, OnlineData<T>& out) {
  const u32 state_rows = static_cast<u32>(state.dense_attr.size() * state.width);
  fill_rows(state, data.n_tokens(), data.ptr, data.attr, data.value, 0, out.place.data(), out.state);
  if (out.own_steps)
    fill_rows<T>(edge, data.n_tokens(), data.edge_ptr, data.edge_attr, nullptr, state_rows,
                 out.place.data() + edge.first_weight, out.edge);
  if (out.tuples.with_attributes()) {
    out.edge_ptr.assign(data.edge_ptr, data.edge_ptr + data.n_tokens() + 1);
    out.edge_attr.assign(data.edge_attr, data.edge_attr + out.edge_ptr.back());
  }
  out.offsets.assign(data.offsets, data.offsets + data.n_seq + 1);
  set_gold(data, labels, out);
  out.seq_weight.clear();
  if (seq_weight) out.seq_weight.assign(seq_weight, seq_weight + data.n_seq);
}

}  // namespace

template <class T>
void replace_tokens(const Layout& layout, const Tokens& tokens, const KnownLabels& labels, const double* seq_weight,
                    OnlineData<T>& data) {
  layout.check(tokens.edge_ptr != nullptr);
  set_tokens(layout.state_family(data.lanes), layout.edge_family(data.lanes), tokens, labels, seq_weight, data);
}

template <class T>
OnlineData<T> make_online_data(const Layout& layout, const Tokens& data, const KnownLabels& labels,
                               const double* seq_weight, const double* constraints, TupleWeights&& tuples) {
  layout.check(data.edge_ptr != nullptr);
  OnlineData<T> out;
  const i64 n = out.n_labels = layout.n_labels;
  out.lanes =
      chain_kernels_for<T>(1).lanes;  // the trainers' only width: one sequence at a time gains little by wider ones
  out.stride = round_up(layout.n_labels, out.lanes);
  out.own_steps = layout.has_edges();
  if (tuples.with_attributes() && !out.own_steps) throw Error("the model has no attributes of transitions");
  const Family state = layout.state_family(out.lanes), edge = layout.edge_family(out.lanes);
  const u64 state_rows = state.dense_attr.size() * state.width;
  const u64 edge_rows = edge.dense_attr.size() * edge.width;
  u64 next = state_rows + edge_rows;
  out.place.assign(layout.size, kNone);
  const Family* families[2] = {&state, &edge};
  for (int f = 0; f < 2; ++f) {
    const Family& family = *families[f];
    for (u32 a = 0; a < family.n_attributes(); ++a)
      for (u32 k = family.ptr[a]; k < family.ptr[a + 1]; ++k) {
        const u64 row = (f == 0 ? 0 : state_rows) + u64{family.place[a].first} * family.width;
        const u64 at = family.place[a].dense() ? row + family.column(k) : next++;
        out.place[family.first_weight + k] = static_cast<u32>(at);
      }
  }
  next = (next + out.lanes - 1) / out.lanes * out.lanes;
  out.transition_at = next;
  out.start_at = out.transition_at + n * out.stride;
  out.end_at = out.start_at + out.stride;
  out.tuples = std::move(tuples);
  out.tuples_at = out.end_at + out.stride;
  out.size = (out.tuples_at + out.tuples.size() + out.lanes - 1) / out.lanes * out.lanes;
  for (u32 k = 0; k < out.tuples.size(); ++k)
    if (out.size < i64{kNone}) out.place[out.tuples.first() + k] = static_cast<u32>(out.tuples_at + k);
  if (out.size >= i64{kNone}) throw Error("the model has too many weights for training sequence by sequence");
  out.pair_mask.assign(n * out.stride, T(0));
  for (i64 i = 0; i < n; ++i)
    for (i64 j = 0; j < n; ++j) {
      const i32 w = layout.transition[i * n + j];
      if (w < 0) continue;
      out.pair_mask[i * out.stride + j] = T(1);
      out.place[w] = static_cast<u32>(out.transition_at + i * out.stride + j);
    }
  out.has_start = layout.start >= 0;
  out.has_end = layout.end >= 0;
  for (i64 j = 0; j < n; ++j) {
    if (out.has_start) out.place[layout.start + j] = static_cast<u32>(out.start_at + j);
    if (out.has_end) out.place[layout.end + j] = static_cast<u32>(out.end_at + j);
  }
  set_tokens(state, edge, data, labels, seq_weight, out);
  mark_bits(state, out.lanes, out.state);
  if (out.own_steps) mark_bits(edge, out.lanes, out.edge);
  out.forbidden.assign(n * n + 2 * n, 0.0);
  if (constraints) out.forbidden.assign(constraints, constraints + n * n + 2 * n);
  return out;
}

template OnlineData<float> make_online_data(const Layout&, const Tokens&, const KnownLabels&, const double*,
                                            const double*, TupleWeights&&);
template OnlineData<double> make_online_data(const Layout&, const Tokens&, const KnownLabels&, const double*,
                                             const double*, TupleWeights&&);
template void replace_tokens(const Layout&, const Tokens&, const KnownLabels&, const double*, OnlineData<float>&);
template void replace_tokens(const Layout&, const Tokens&, const KnownLabels&, const double*, OnlineData<double>&);

}  // namespace crfkit
