// bindings.cpp: the Python face of the core. Arrays come in and go out as numpy arrays whose type, rank and order
// are declared here; results are written into arrays that the caller made.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>

#include "chain.hpp"
#include "objective.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace crfkit;

namespace {

template <class T, int Rank>
using Array = nb::ndarray<T, nb::numpy, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
template <class T, int Rank>
using In = Array<const T, Rank>;
template <class T, int Rank>
using Out = Array<T, Rank>;

// Lets Ctrl-C through while the core works without the interpreter's lock.
Threads make_threads(int count) {
  using Clock = std::chrono::steady_clock;
  auto last = std::make_shared<Clock::time_point>(Clock::now());
  return {std::max(1, count), [last] {
            if (Clock::now() - *last < std::chrono::milliseconds(50)) return;
            *last = Clock::now();
            const nb::gil_scoped_acquire lock;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
          }};
}

void require(bool ok, const char* what) {
  if (!ok) throw Error(what);
}

template <class T>
void check_offsets(const In<i64, 1>& offsets, i64 n, const T& what) {
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
  require(pairwise.shape(1) == unary.shape(1) && pairwise.shape(2) == unary.shape(1), "pairwise must be labels by labels");
  const i64 edges = per_step ? edge_offsets(in.offsets, in.n_seq).back() : 1;
  require(static_cast<i64>(pairwise.shape(0)) == edges, "pairwise has the wrong number of steps");
  return in;
}

template <class T>
void bind_chain(nb::module_& m) {
  m.def(
      "sum_product",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads, Out<double, 1> log_z,
         std::optional<Out<T, 2>> nodes, std::optional<Out<T, 3>> edges) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        require(static_cast<i64>(log_z.size()) == in.n_seq, "log_z has the wrong size");
        require(!nodes || nodes->size() == unary.size(), "nodes has the wrong size");
        require(!edges || static_cast<i64>(edges->size()) ==
                              edge_offsets(in.offsets, in.n_seq).back() * in.n_labels * in.n_labels,
                "edges has the wrong size");
        const nb::gil_scoped_release release;
        sum_product(in, make_threads(threads), log_z.data(), nodes ? nodes->data() : nullptr, edges ? edges->data() : nullptr);
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "log_z"_a, "nodes"_a.none(), "edges"_a.none());
  m.def(
      "decode",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads, Out<i32, 1> path,
         Out<u8, 1> dead) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        require(path.size() == unary.shape(0) && static_cast<i64>(dead.size()) == in.n_seq, "path has the wrong size");
        const nb::gil_scoped_release release;
        decode(in, make_threads(threads), path.data(), dead.data());
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "path"_a, "dead"_a);
  m.def(
      "sample",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads, In<double, 2> uniform,
         Out<double, 1> log_z, Out<i32, 2> path) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        require(uniform.shape(1) == unary.shape(0) && path.shape(0) == uniform.shape(0) &&
                    path.shape(1) == uniform.shape(1) && static_cast<i64>(log_z.size()) == in.n_seq,
                "path has the wrong size");
        const nb::gil_scoped_release release;
        sample(in, make_threads(threads), static_cast<i64>(uniform.shape(0)), uniform.data(), log_z.data(), path.data());
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "uniform"_a, "log_z"_a, "path"_a);
  m.def(
      "nbest",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, i64 sequence, Out<i32, 2> path,
         Out<double, 1> score) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        require(sequence >= 0 && sequence < in.n_seq, "no such sequence");
        require(static_cast<i64>(path.shape(1)) == offsets(sequence + 1) - offsets(sequence) &&
                    path.shape(0) == score.size(),
                "path has the wrong size");
        const nb::gil_scoped_release release;
        return nbest(in, sequence, static_cast<i64>(score.size()), path.data(), score.data());
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "sequence"_a, "path"_a, "score"_a);
}

template <class T>
std::vector<T> to_vector(const In<T, 1>& x) {
  return std::vector<T>(x.data(), x.data() + x.size());
}

Layout make_layout(int n_labels, In<u32, 1> state_ptr, In<u16, 1> state_label, In<i32, 1> transition, i64 start, i64 end,
                   In<u32, 1> edge_ptr, In<u32, 1> edge_pair, u32 edge_first, u32 size) {
  Layout layout;
  layout.n_labels = n_labels;
  layout.state_ptr = to_vector<u32>(state_ptr);
  layout.state_label = to_vector<u16>(state_label);
  layout.transition = to_vector<i32>(transition);
  layout.start = start;
  layout.end = end;
  layout.edge_ptr = to_vector<u32>(edge_ptr);
  layout.edge_pair = to_vector<u32>(edge_pair);
  layout.edge_first = edge_first;
  layout.size = size;
  layout.check();
  return layout;
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
    check_offsets(ptr, static_cast<i64>(attr.size()), "attribute pointers must rise from 0 to the number of attributes");
    check_offsets(offsets, static_cast<i64>(ptr.size()) - 1, "offsets must rise from 0 to the number of tokens");
    if (value) {
      require(value->size() == attr.size(), "there must be a value for every attribute");
      t.value = value->data();
    }
    if (edge_ptr) {
      require(edge_attr.has_value() && edge_ptr->size() == ptr.size(), "there must be edge attributes for every token");
      check_offsets(*edge_ptr, static_cast<i64>(edge_attr->size()), "edge pointers must rise from 0 to the number of attributes");
      t.edge_ptr = edge_ptr->data();
      t.edge_attr = edge_attr->data();
    }
    return t;
  }
};

template <class T>
void bind_objective(nb::module_& m, const char* objective, const char* scorer) {
  nb::class_<Objective<T>>(m, objective)
      .def(
          "__init__",
          [](Objective<T>* self, const Layout& layout, const TokenArrays& data, In<i32, 1> gold,
             std::optional<In<double, 1>> seq_weight, std::optional<In<double, 1>> constraints, int threads) {
            const Tokens tokens = data.view();
            require(static_cast<i64>(gold.size()) == tokens.n_tokens(), "there must be a label for every token");
            for (std::size_t t = 0; t < gold.size(); ++t)
              require(gold(t) >= 0 && gold(t) < layout.n_labels, "a label is not one of the model's");
            require(!seq_weight || static_cast<i64>(seq_weight->size()) == tokens.n_seq, "there must be a weight for every sequence");
            require(!constraints || static_cast<i64>(constraints->size()) == static_cast<i64>(layout.n_labels) * (layout.n_labels + 2),
                    "constraints have the wrong size");
            const nb::gil_scoped_release release;
            new (self) Objective<T>(layout, tokens, gold.data(), seq_weight ? seq_weight->data() : nullptr,
                                    constraints ? constraints->data() : nullptr, make_threads(threads));
          },
          "layout"_a, "data"_a, "gold"_a, "seq_weight"_a.none(), "constraints"_a.none(), "threads"_a)
      .def(
          "value_and_grad",
          [](Objective<T>& self, In<double, 1> w, Out<double, 1> g, int threads) {
            require(static_cast<i64>(w.size()) == self.size() && static_cast<i64>(g.size()) == self.size(),
                    "the weight vector has the wrong size");
            const nb::gil_scoped_release release;
            return self.value_and_grad(w.data(), g.data(), make_threads(threads));
          },
          "w"_a, "g"_a, "threads"_a)
      .def_prop_ro("size", &Objective<T>::size);
  nb::class_<Scorer<T>>(m, scorer)
      .def(
          "__init__",
          [](Scorer<T>* self, const Layout& layout, In<double, 1> w, std::optional<In<double, 1>> constraints, int threads) {
            require(w.size() == layout.size, "the weight vector has the wrong size");
            require(!constraints || static_cast<i64>(constraints->size()) == static_cast<i64>(layout.n_labels) * (layout.n_labels + 2),
                    "constraints have the wrong size");
            const nb::gil_scoped_release release;
            new (self) Scorer<T>(layout, w.data(), constraints ? constraints->data() : nullptr, make_threads(threads));
          },
          "layout"_a, "w"_a, "constraints"_a.none(), "threads"_a)
      .def(
          "score",
          [](const Scorer<T>& self, const TokenArrays& data, int threads, Out<T, 2> unary, Out<T, 3> pairwise) {
            const Tokens tokens = data.view();
            const i64 n = self.n_labels();
            require(static_cast<i64>(unary.shape(0)) == tokens.n_tokens() && static_cast<i64>(unary.shape(1)) == n,
                    "unary has the wrong size");
            const i64 steps = self.per_step() ? edge_offsets(tokens.offsets, tokens.n_seq).back() : 1;
            require(static_cast<i64>(pairwise.shape(0)) == steps && static_cast<i64>(pairwise.shape(1)) == n &&
                        static_cast<i64>(pairwise.shape(2)) == n,
                    "pairwise has the wrong size");
            if (!self.per_step())
              for (i64 k = 0; k < n * n; ++k) pairwise.data()[k] = static_cast<T>(self.pairwise()[k]);
            const nb::gil_scoped_release release;
            self.score(tokens, make_threads(threads), unary.data(), pairwise.data());
          },
          "data"_a, "threads"_a, "unary"_a, "pairwise"_a)
      .def_prop_ro("per_step", &Scorer<T>::per_step);
}

}  // namespace

NB_MODULE(_core, m) {
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    }
  });
  m.def("instruction_set", &instruction_set);
  bind_chain<float>(m);
  bind_chain<double>(m);
  nb::class_<Layout>(m, "Layout")
      .def(nb::new_(&make_layout), "n_labels"_a, "state_ptr"_a, "state_label"_a, "transition"_a, "start"_a, "end"_a,
           "edge_ptr"_a, "edge_pair"_a, "edge_first"_a, "size"_a);
  nb::class_<TokenArrays>(m, "Tokens")
      .def(nb::init<In<i64, 1>, In<i64, 1>, In<u32, 1>, std::optional<In<double, 1>>, std::optional<In<i64, 1>>,
                    std::optional<In<u32, 1>>>(),
           "offsets"_a, "ptr"_a, "attr"_a, "value"_a.none(), "edge_ptr"_a.none(), "edge_attr"_a.none());
  bind_objective<float>(m, "ObjectiveF32", "ScorerF32");
  bind_objective<double>(m, "ObjectiveF64", "ScorerF64");
}
