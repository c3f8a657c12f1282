// arrays.hpp: what all bindings share: numpy arrays as the core takes them, checks of what comes in, threads that
// Ctrl-C reaches. Arrays come in and go out with their type, rank and order declared; results are written into arrays
// that the caller made.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "beam/criteria.hpp"
#include "chain/chain.hpp"
#include "model/features.hpp"

namespace crfkit {

namespace nb = nanobind;
using namespace nb::literals;

// One for each file of bindings.
void bind_compat(nb::module_& m);
void bind_entropy(nb::module_& m);
void bind_expectation(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_online(nb::module_& m);

template <class T, int Rank>
using Out = nb::ndarray<T, nb::numpy, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
template <class T, int Rank>
using In = Out<const T, Rank>;

inline void require(bool ok, const char* what) {
  if (!ok) throw Error(what);
}

// A numpy array that owns the vector's memory.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> own(std::vector<T>&& v) {
  auto* kept = new std::vector<T>(std::move(v));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner);
}

template <class T>
std::vector<T> to_vector(const In<T, 1>& x) {
  return std::vector<T>(x.data(), x.data() + x.size());
}

// Null where nothing is given.
template <class A>
auto* data_of(const std::optional<A>& x) {
  return x ? x->data() : nullptr;
}

// Lets Ctrl-C through while the core works without the interpreter's lock.
inline Threads make_threads(int count) {
  using Clock = std::chrono::steady_clock;
  auto last = std::make_shared<Clock::time_point>(Clock::now());
  return {std::max(1, count), [last] {
            if (Clock::now() - *last < std::chrono::milliseconds(50)) return;
            *last = Clock::now();
            const nb::gil_scoped_acquire lock;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
          }};
}

inline void check_offsets(const In<i64, 1>& offsets, i64 n, const char* what) {
  require(offsets.size() >= 1 && offsets(0) == 0 && offsets(offsets.size() - 1) == n, what);
  for (std::size_t i = 1; i < offsets.size(); ++i) require(offsets(i - 1) <= offsets(i), what);
}

template <class T>
ChainInput<T> chain_input(const In<T, 2>& unary, const In<T, 3>& pairwise, bool per_step, const In<i64, 1>& offsets) {
  ChainInput<T> in;
  in.n_labels = static_cast<int>(unary.shape(1));
  in.n_seq = static_cast<i64>(offsets.size()) - 1;
  in.offsets = offsets.data();
  in.unary = unary.data();
  in.pairwise = pairwise.data();
  in.per_step = per_step;
  require(in.n_labels >= 1, "potentials need at least one label");
  check_offsets(offsets, static_cast<i64>(unary.shape(0)), "offsets must rise from 0 to the number of tokens");
  require(pairwise.shape(1) == unary.shape(1) && pairwise.shape(2) == unary.shape(1),
          "pairwise must be labels by labels");
  const i64 edges = per_step ? edge_offsets(in.offsets, in.n_seq).back() : 1;
  require(static_cast<i64>(pairwise.shape(0)) == edges, "pairwise has the wrong number of steps");
  return in;
}

inline Criterion criterion_of(const std::string& kind, double amount, int size) {
  require(amount >= 0 && size >= 1, "a beam needs an amount >= 0 and a size >= 1");
  return {kind == "min_divergence" ? Criterion::Kind::min_divergence
          : kind == "threshold"    ? Criterion::Kind::threshold
                                   : Criterion::Kind::fixed_size,
          amount, size};
}

// A data set as the encoders give it: offsets, ptr, attributes, values or None, and the same of the edges.
struct TokenArrays {
  In<i64, 1> offsets, ptr;
  In<u32, 1> attr;
  std::optional<In<double, 1>> value;
  std::optional<In<i64, 1>> edge_ptr;
  std::optional<In<u32, 1>> edge_attr;

  Tokens view() const {
    Tokens t;
    t.n_seq = static_cast<i64>(offsets.size()) - 1;
    t.offsets = offsets.data();
    t.ptr = ptr.data();
    t.attr = attr.data();
    check_offsets(ptr, static_cast<i64>(attr.size()),
                  "attribute pointers must rise from 0 to the number of attributes");
    check_offsets(offsets, static_cast<i64>(ptr.size()) - 1, "offsets must rise from 0 to the number of tokens");
    require(!value || value->size() == attr.size(), "there must be a value for every attribute");
    t.value = data_of(value);
    if (edge_ptr) {
      require(edge_attr.has_value() && edge_ptr->size() == ptr.size(), "there must be edge attributes for every token");
      check_offsets(*edge_ptr, static_cast<i64>(edge_attr->size()),
                    "edge pointers must rise from 0 to the number of attributes");
      t.edge_ptr = edge_ptr->data();
      t.edge_attr = edge_attr->data();
    }
    return t;
  }
};

// What labelled data brings besides the tokens: weights of the sequences and hard constraints.
inline void check_training(const Tokens& tokens, int n_labels, const std::optional<In<double, 1>>& seq_weight,
                           const std::optional<In<double, 1>>& constraints) {
  require(!seq_weight || static_cast<i64>(seq_weight->size()) == tokens.n_seq,
          "there must be a weight for every sequence");
  require(!constraints || static_cast<i64>(constraints->size()) == static_cast<i64>(n_labels) * (n_labels + 2),
          "constraints have the wrong size");
}

// least: -1 where labels may be unknown
inline void check_gold(const Tokens& tokens, int n_labels, const In<i32, 1>& gold, i32 least = 0) {
  require(static_cast<i64>(gold.size()) == tokens.n_tokens(), "there must be a label for every token");
  for (std::size_t t = 0; t < gold.size(); ++t)
    require(gold(t) >= least && gold(t) < n_labels, "a label is not one of the model's");
}

}  // namespace crfkit
