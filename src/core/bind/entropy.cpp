// entropy.cpp: the Python face of entropies and of the loss of partly labelled sequences.
#include "bind/arrays.hpp"
#include "train/semi_objective.hpp"

namespace crfkit {
namespace {

template <class T>
void bind_entropies(nb::module_& m) {
  m.def(
      "entropies",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads, Out<double, 1> log_z,
         Out<double, 1> entropy, std::optional<Out<double, 1>> node_entropy, std::optional<Out<double, 1>> step_entropy,
         std::optional<Out<T, 2>> unary_gradient, std::optional<Out<T, 3>> pairwise_gradient,
         std::optional<Out<double, 2>> before, std::optional<Out<double, 2>> behind) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        const i64 edges = edge_offsets(in.offsets, in.n_seq).back();
        require(static_cast<i64>(log_z.size()) == in.n_seq && static_cast<i64>(entropy.size()) == in.n_seq,
                "log_z has the wrong size");
        require(!node_entropy || node_entropy->size() == unary.shape(0), "node_entropy has the wrong size");
        require(!step_entropy || static_cast<i64>(step_entropy->size()) == edges, "step_entropy has the wrong size");
        require(unary_gradient.has_value() == pairwise_gradient.has_value(), "the gradients go together");
        require(
            !unary_gradient || (unary_gradient->size() == unary.size() && pairwise_gradient->size() == pairwise.size()),
            "a gradient has the wrong size");
        require(before.has_value() == behind.has_value(), "the lattices go together");
        require(!before || (before->size() == unary.size() && behind->size() == unary.size()),
                "a lattice has the wrong size");
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
        entropies(in, make_threads(threads), out);
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
          [](SemiObjective<T>* self, std::shared_ptr<const Layout> layout, const TokenArrays& data, i64 n_partial,
             In<u8, 2> allowed, std::optional<In<double, 1>> seq_weight, std::optional<In<double, 1>> constraints,
             int threads) {
            const Tokens tokens = data.view();
            const i64 n = layout->n_labels;
            require(n_partial >= 0 && n_partial <= tokens.n_seq, "there are fewer sequences");
            require(static_cast<i64>(allowed.shape(0)) == tokens.offsets[n_partial] &&
                        static_cast<i64>(allowed.shape(1)) == n,
                    "there must be allowed labels for every token of the partly labelled sequences");
            check_training(tokens, layout->n_labels, seq_weight, constraints);
            const nb::gil_scoped_release release;
            new (self) SemiObjective<T>(layout, tokens, n_partial, allowed.data(), data_of(seq_weight),
                                        data_of(constraints), make_threads(threads));
          },
          "layout"_a, "data"_a, "n_partial"_a, "allowed"_a, "seq_weight"_a.none(), "constraints"_a.none(), "threads"_a)
      // Adds to g the gradient; gives the partial loss and the entropy without its weight.
      .def(
          "add",
          [](SemiObjective<T>& self, In<double, 1> w, double entropy_weight, Out<double, 1> g, int threads) {
            require(static_cast<i64>(w.size()) == self.size() && static_cast<i64>(g.size()) == self.size(),
                    "the weight vector has the wrong size");
            typename SemiObjective<T>::Value value;
            {
              const nb::gil_scoped_release release;
              value = self.add(w.data(), entropy_weight, g.data(), make_threads(threads));
            }
            return nb::make_tuple(value.partial, value.entropy);
          },
          "w"_a, "entropy_weight"_a, "g"_a.noconvert(), "threads"_a)
      .def(
          "add_hessian_product",
          [](SemiObjective<T>& self, In<double, 1> w, In<double, 1> v, double entropy_weight, Out<double, 1> out,
             int threads) {
            for (const std::size_t size : {w.size(), v.size(), out.size()})
              require(static_cast<i64>(size) == self.size(), "the weight vector has the wrong size");
            const nb::gil_scoped_release release;
            self.add_hessian_product(w.data(), v.data(), entropy_weight, out.data(), make_threads(threads));
          },
          "w"_a, "v"_a, "entropy_weight"_a, "out"_a.noconvert(), "threads"_a);
}

}  // namespace

void bind_entropy(nb::module_& m) {
  bind_entropies<float>(m);
  bind_entropies<double>(m);
  bind_semi<float>(m, "SemiObjectiveF32");
  bind_semi<double>(m, "SemiObjectiveF64");
}

}  // namespace crfkit
