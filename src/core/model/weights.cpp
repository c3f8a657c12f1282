#include "model/weights.hpp"

#include "model/tables.hpp"

namespace crfkit {

template <class T>
Weights<T>::Weights(const Layout& layout, const Family& state, const Family& edge, const double* constraints)
    : layout_(layout), state_(state), edge_(edge), state_full_(full_columns(state)), edge_full_(full_columns(edge)) {
  const std::size_t n = layout.n_labels;
  forbidden_.assign(n * n + 2 * n, 0.0);
  if (constraints) std::copy_n(constraints, n * n + 2 * n, forbidden_.begin());
}

template <class T>
void Weights<T>::set(const double* w, const Threads& threads) {
  const i64 n = layout_.n_labels, stride = state_.width;
  state_table_.reserve(state_.dense_attr.size() * state_.width + 1);
  fill_table(state_, state_full_, w, threads, state_table_.data());
  if (layout_.has_edges()) {
    edge_table_.reserve(edge_.dense_attr.size() * edge_.width + 1);
    fill_table(edge_, edge_full_, w, threads, edge_table_.data());
  }
  pairwise.assign(forbidden_.begin(), forbidden_.begin() + n * n);
  for (i64 k = 0; k < n * n; ++k)
    if (layout_.transition[k] >= 0) pairwise[k] += w[layout_.transition[k]];
  transitions.prepare(pairwise.data(), n, stride);
  set_ends(w);
}

template <class T>
void Weights<T>::set_ends(const double* w) {
  const i64 n = layout_.n_labels, stride = state_.width;
  for (Buffer<T>* b : {&start_, &end_}) b->assign(stride, T(0));
  for (i64 j = 0; j < n; ++j) {
    const double* edge_of = forbidden_.data() + n * n;
    start_[j] = T(edge_of[j] + (layout_.start >= 0 ? w[layout_.start + j] : 0.0));
    end_[j] = T(edge_of[n + j] + (layout_.end >= 0 ? w[layout_.end + j] : 0.0));
  }
}

template <class T>
ModelView<T> Weights<T>::view() const {
  return {.layout = &layout_,
          .state = &state_,
          .edge = &edge_,
          .stride = state_.width,
          .state_table = state_table_.data(),
          .edge_table = edge_table_.data(),
          .transitions = &transitions,
          .pairwise = pairwise.data(),
          .start = start_.data(),
          .end = end_.data(),
          .forbidden = forbidden_.data()};
}

template class Weights<float>;
template class Weights<double>;

}  // namespace crfkit
