// expectations.cpp: the Python face of sums over the paths of chains.
#include "bind/arrays.hpp"

namespace crfkit {
namespace {

template <class T>
void bind_type(nb::module_& m) {
  m.def(
      "expectations",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads,
         std::optional<In<double, 1>> weight, Out<double, 1> log_z, std::optional<Out<T, 2>> nodes,
         std::optional<Out<double, 2>> pairs, std::optional<Out<T, 3>> edges) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        require(static_cast<i64>(log_z.size()) == in.n_seq && (!weight || static_cast<i64>(weight->size()) == in.n_seq),
                "weight and log_z must have the number of sequences");
        require(!nodes || nodes->size() == unary.size(), "nodes has the wrong size");
        require(!pairs || (!per_step && pairs->size() == pairwise.size()), "pairs has the wrong size");
        require(!edges || (per_step && edges->size() == pairwise.size()), "edges has the wrong size");
        const nb::gil_scoped_release release;
        expectations(in, data_of(weight), make_threads(threads), log_z.data(), data_of(nodes), data_of(pairs),
                     data_of(edges));
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "weight"_a.none(), "log_z"_a.noconvert(),
      "nodes"_a.none().noconvert(), "pairs"_a.none().noconvert(), "edges"_a.none().noconvert());
  m.def(
      "covariance",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, In<T, 2> r, In<T, 3> ra, int threads,
         std::optional<In<double, 1>> weight, Out<double, 1> mean, std::optional<Out<T, 2>> nodes,
         std::optional<Out<double, 2>> pairs, std::optional<Out<T, 3>> edges) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        require(r.size() == unary.size() && ra.size() == pairwise.size(), "the direction has the wrong size");
        require(static_cast<i64>(mean.size()) == in.n_seq && (!weight || static_cast<i64>(weight->size()) == in.n_seq),
                "weight and mean must have the number of sequences");
        require(!nodes || nodes->size() == unary.size(), "nodes has the wrong size");
        require(!pairs || (!per_step && pairs->size() == pairwise.size()), "pairs has the wrong size");
        require(!edges || (per_step && edges->size() == pairwise.size()), "edges has the wrong size");
        const nb::gil_scoped_release release;
        covariance(in, r.data(), ra.data(), data_of(weight), make_threads(threads), mean.data(), data_of(nodes),
                   data_of(pairs), data_of(edges));
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "r"_a, "ra"_a, "threads"_a, "weight"_a.none(),
      "mean"_a.noconvert(), "nodes"_a.none().noconvert(), "pairs"_a.none().noconvert(), "edges"_a.none().noconvert());
}

// pairwise: [labels][labels], or one such matrix for every step
template <int Rank>
void bind_messages(nb::module_& m) {
  m.def(
      "backward_messages",
      [](In<double, 2> unary, In<double, Rank> pairwise) {
        const std::size_t n = unary.shape(1);
        const i64 offsets[2] = {0, static_cast<i64>(unary.shape(0))};
        const ChainInput<double> in{static_cast<int>(n), 1, offsets, unary.data(), pairwise.data(), Rank == 3};
        require(pairwise.shape(Rank - 2) == n && pairwise.shape(Rank - 1) == n, "pairwise must be labels by labels");
        require(Rank == 2 || pairwise.shape(0) + 1 == std::max<std::size_t>(unary.shape(0), 1),
                "pairwise has the wrong number of steps");
        auto* beta = new std::vector<double>(unary.size());
        const nb::capsule owner(beta, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
        backward_messages(in, beta->data());
        return nb::ndarray<nb::numpy, double, nb::ndim<2>>(beta->data(), {unary.shape(0), n}, owner);
      },
      "unary"_a, "pairwise"_a);
}

}  // namespace

void bind_expectation(nb::module_& m) {
  bind_type<float>(m);
  bind_type<double>(m);
  bind_messages<2>(m);
  bind_messages<3>(m);
}

}  // namespace crfkit
