// bind_entropy.cpp: the Python face of entropies and of the loss of partly labelled sequences.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "entropy.hpp"

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

void require(bool ok, const char* what) {
  if (!ok) throw Error(what);
}

// Lets Ctrl-C through while the core works without the interpreter's lock.
Threads threads_of(int count) {
  using Clock = std::chrono::steady_clock;
  auto last = std::make_shared<Clock::time_point>(Clock::now());
  return {std::max(1, count), [last] {
            if (Clock::now() - *last < std::chrono::milliseconds(50)) return;
            *last = Clock::now();
            const nb::gil_scoped_acquire lock;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
          }};
}

void check_rising(const In<i64, 1>& x, i64 n, const char* what) {
  require(x.size() >= 1 && x(0) == 0 && x(x.size() - 1) == n, what);
  for (std::size_t i = 1; i < x.size(); ++i) require(x(i - 1) <= x(i), what);
}

template <class T>
void bind_entropies(nb::module_& m) {
  m.def(
      "entropies",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads, Out<double, 1> log_z, Out<double, 1> entropy,
         std::optional<Out<double, 1>> node_entropy, std::optional<Out<double, 1>> step_entropy, std::optional<Out<T, 2>> unary_gradient,
         std::optional<Out<T, 3>> pairwise_gradient, std::optional<Out<double, 2>> before, std::optional<Out<double, 2>> behind) {
        ChainInput<T> in;
        in.n_labels = static_cast<int>(unary.shape(1));
        in.n_seq = static_cast<i64>(offsets.size()) - 1;
        in.offsets = offsets.data();
        in.unary = unary.data();
        in.pairwise = pairwise.data();
        in.per_step = per_step;
        require(in.n_labels >= 1, "potentials need at least one label");
        check_rising(offsets, static_cast<i64>(unary.shape(0)), "offsets must rise from 0 to the number of tokens");
        require(pairwise.shape(1) == unary.shape(1) && pairwise.shape(2) == unary.shape(1), "pairwise must be labels by labels");
        const i64 edges = edge_offsets(in.offsets, in.n_seq).back();
        require(static_cast<i64>(pairwise.shape(0)) == (per_step ? edges : 1), "pairwise has the wrong number of steps");
        require(static_cast<i64>(log_z.size()) == in.n_seq && static_cast<i64>(entropy.size()) == in.n_seq, "log_z has the wrong size");
        require(!node_entropy || node_entropy->size() == unary.shape(0), "node_entropy has the wrong size");
        require(!step_entropy || static_cast<i64>(step_entropy->size()) == edges, "step_entropy has the wrong size");
        require(unary_gradient.has_value() == pairwise_gradient.has_value(), "the gradients go together");
        require(!unary_gradient || (unary_gradient->size() == unary.size() && pairwise_gradient->size() == pairwise.size()),
                "a gradient has the wrong size");
        require(before.has_value() == behind.has_value(), "the lattices go together");
        require(!before || (before->size() == unary.size() && behind->size() == unary.size()), "a lattice has the wrong size");
        EntropyOut<T> out;
        out.log_z = log_z.data();
        out.entropy = entropy.data();
        if (node_entropy) out.node_entropy = node_entropy->data();
        if (step_entropy) out.step_entropy = step_entropy->data();
        if (unary_gradient) {
          out.unary = unary_gradient->data();
          out.pairwise = pairwise_gradient->data();
        }
        if (before) {
          out.before = before->data();
          out.behind = behind->data();
        }
        const nb::gil_scoped_release release;
        entropies(in, threads_of(threads), out);
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "log_z"_a.noconvert(), "entropy"_a.noconvert(),
      "node_entropy"_a.none().noconvert(), "step_entropy"_a.none().noconvert(), "unary_gradient"_a.none().noconvert(),
      "pairwise_gradient"_a.none().noconvert(), "before"_a.none().noconvert(), "behind"_a.none().noconvert());
}

template <class T>
void bind_semi(nb::module_& m, const char* name) {
  nb::class_<SemiObjective<T>>(m, name)
      .def(
          "__init__",
          [](SemiObjective<T>* self, std::shared_ptr<const Layout> layout, In<i64, 1> offsets, In<i64, 1> ptr, In<u32, 1> attr,
             std::optional<In<double, 1>> value, std::optional<In<i64, 1>> edge_ptr, std::optional<In<u32, 1>> edge_attr, i64 n_partial,
             In<u8, 2> allowed, std::optional<In<double, 1>> seq_weight, std::optional<In<double, 1>> constraints, int threads) {
            Tokens tokens;
            tokens.n_seq = static_cast<i64>(offsets.size()) - 1;
            tokens.offsets = offsets.data();
            tokens.ptr = ptr.data();
            tokens.attr = attr.data();
            check_rising(ptr, static_cast<i64>(attr.size()), "attribute pointers must rise from 0 to the number of attributes");
            check_rising(offsets, static_cast<i64>(ptr.size()) - 1, "offsets must rise from 0 to the number of tokens");
            require(!value || value->size() == attr.size(), "there must be a value for every attribute");
            if (value) tokens.value = value->data();
            if (edge_ptr) {
              require(edge_attr.has_value() && edge_ptr->size() == ptr.size(), "there must be edge attributes for every token");
              check_rising(*edge_ptr, static_cast<i64>(edge_attr->size()), "edge pointers must rise from 0 to the number of attributes");
              tokens.edge_ptr = edge_ptr->data();
              tokens.edge_attr = edge_attr->data();
            }
            const i64 n = layout->n_labels;
            require(n_partial >= 0 && n_partial <= tokens.n_seq, "there are fewer sequences");
            require(static_cast<i64>(allowed.shape(0)) == offsets(n_partial) && static_cast<i64>(allowed.shape(1)) == n,
                    "there must be allowed labels for every token of the partly labelled sequences");
            require(!seq_weight || static_cast<i64>(seq_weight->size()) == tokens.n_seq, "there must be a weight for every sequence");
            require(!constraints || static_cast<i64>(constraints->size()) == n * (n + 2), "constraints have the wrong size");
            const nb::gil_scoped_release release;
            new (self) SemiObjective<T>(layout, tokens, n_partial, allowed.data(), seq_weight ? seq_weight->data() : nullptr,
                                        constraints ? constraints->data() : nullptr, threads_of(threads));
          },
          "layout"_a, "offsets"_a, "ptr"_a, "attr"_a, "value"_a.none(), "edge_ptr"_a.none(), "edge_attr"_a.none(), "n_partial"_a,
          "allowed"_a, "seq_weight"_a.none(), "constraints"_a.none(), "threads"_a)
      // Adds to g the gradient of the blocks [first, last); gives the partial loss and the entropy without its weight.
      .def(
          "add",
          [](SemiObjective<T>& self, In<double, 1> w, double entropy_weight, i64 first, i64 last, Out<double, 1> g, int threads) {
            require(static_cast<i64>(w.size()) == self.size() && static_cast<i64>(g.size()) == self.size(),
                    "the weight vector has the wrong size");
            require(first >= 0 && last <= self.n_blocks(), "there is no such block");
            typename SemiObjective<T>::Value value;
            {
              const nb::gil_scoped_release release;
              value = self.add(w.data(), entropy_weight, first, last, g.data(), threads_of(threads));
            }
            return nb::make_tuple(value.partial, value.entropy);
          },
          "w"_a, "entropy_weight"_a, "first"_a, "last"_a, "g"_a.noconvert(), "threads"_a)
      .def("block_size",
           [](const SemiObjective<T>& self, i64 block) {
             require(block >= 0 && block < self.n_blocks(), "there is no such block");
             return self.block_size(block);
           }, "block"_a)
      .def_prop_ro("n_blocks", &SemiObjective<T>::n_blocks);
}

}  // namespace

void bind_entropy(nb::module_& m) {
  bind_entropies<float>(m);
  bind_entropies<double>(m);
  bind_semi<float>(m, "SemiObjectiveF32");
  bind_semi<double>(m, "SemiObjectiveF64");
}
