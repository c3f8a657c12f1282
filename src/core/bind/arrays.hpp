// arrays.hpp: what all bindings share: numpy arrays as the core takes them, checks of arguments, threads that Ctrl-C
// interrupts. The type, rank and order of every array are declared; results are written into arrays that the caller
// made.
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
void bind_chains(nb::module_& m);
void bind_compat(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_lexicons(nb::module_& m);
void bind_objectives(nb::module_& m);
void bind_online(nb::module_& m);
void bind_tagger(nb::module_& m);
void bind_text(nb::module_& m);
void bind_words(nb::module_& m);

template <class T, int Rank>
using Out = nb::ndarray<T, nb::numpy, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
template <class T, int Rank>
using In = Out<const T, Rank>;

inline void require(bool ok, const char* what) {
  if (!ok) throw Error(what);
}

// Whether an array has this shape.
template <class A>
bool shaped(const A& x, auto... extents) {
  std::size_t axis = 0;
  return ((static_cast<i64>(x.shape(axis++)) == static_cast<i64>(extents)) && ...);
}
// Whether it has, if it is given.
template <class A>
bool shaped(const std::optional<A>& x, auto... extents) {
  return !x || shaped(*x, extents...);
}

// Runs f without the interpreter's lock.
template <class F>
auto unlocked(F f) {
  const nb::gil_scoped_release release;
  return f();
}

// A numpy array that owns the vector's memory.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> own(std::vector<T>&& v) {
  auto* kept = new std::vector<T>(std::move(v));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner);
}
template <class... T>
nb::tuple own_all(std::vector<T>&&... v) {
  return nb::make_tuple(own(std::move(v))...);
}
// None instead of an empty array.
template <class T>
nb::object own_or_none(std::vector<T>&& v) {
  return v.empty() ? nb::none() : nb::cast(own(std::move(v)));
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

// Records that Python passes as tuples. Chains: unary, pairwise, whether the latter are given step by step, offsets.
template <class T>
using ChainArrays = std::tuple<In<T, 2>, In<T, 3>, bool, In<i64, 1>>;
// A beam: kind, amount, size.
using BeamTuple = std::tuple<std::string, double, int>;

template <class T>
ChainInput<T> chain_input(const ChainArrays<T>& arrays) {
  const auto& [unary, pairwise, per_step, offsets] = arrays;
  ChainInput<T> in;
  in.n_labels = static_cast<int>(unary.shape(1));
  in.n_seq = std::ssize(offsets) - 1;
  in.offsets = offsets.data();
  in.unary = unary.data();
  in.pairwise = pairwise.data();
  in.per_step = per_step;
  require(in.n_labels >= 1, "potentials need at least one label");
  check_offsets(offsets, unary.shape(0), "offsets must rise from 0 to the number of tokens");
  require(shaped(pairwise, pairwise.shape(0), in.n_labels, in.n_labels), "pairwise must be labels by labels");
  require(shaped(pairwise, per_step ? edge_offsets(in.offsets, in.n_seq).back() : 1),
          "pairwise has the wrong number of steps");
  return in;
}

// The value that a name stands for.
template <class Value>
Value named(const char* what, std::string_view name, std::initializer_list<std::pair<std::string_view, Value>> known) {
  std::string words;
  for (const auto& [word, value] : known) {
    if (word == name) return value;
    words += (words.empty() ? "" : ", ") + std::string(word);
  }
  throw Error(std::string("there is no ") + what + " '" + std::string(name) + "', only " + words);
}

inline Criterion criterion_of(const BeamTuple& beam) {
  const auto& [kind, amount, size] = beam;
  require(amount >= 0 && size >= 1, "a beam needs an amount >= 0 and a size >= 1");
  using Kind = Criterion::Kind;
  const Kind found = named<Kind>(
      "beam", kind,
      {{"min_divergence", Kind::min_divergence}, {"fixed_size", Kind::fixed_size}, {"threshold", Kind::threshold}});
  return {found, amount, size};
}

}  // namespace crfkit
