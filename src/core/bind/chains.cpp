// chains.cpp: the Python face of inference on chains: sums, best paths, samples, beams, covariances, entropies.
#include <cmath>

#include "beam/inference.hpp"
#include "bind/arrays.hpp"

namespace crfkit {
namespace {

template <class T>
i64 n_tokens(const ChainInput<T>& in) {
  return in.offsets[in.n_seq];
}
template <class T>
i64 n_edges(const ChainInput<T>& in) {
  return edge_offsets(in.offsets, in.n_seq).back();
}

template <class T>
void bind_inference(nb::module_& m) {
  m.def(
      "decode",
      [](const ChainArrays<T>& chains, int threads, const std::optional<BeamTuple>& beam, Out<i32, 1> path,
         Out<u8, 1> dead) {
        const ChainInput<T> in = chain_input<T>(chains);
        BeamRule rule;
        if (beam) rule.criterion = criterion_of(*beam);
        require(shaped(path, n_tokens(in)) && shaped(dead, in.n_seq), "path has the wrong size");
        const nb::gil_scoped_release release;
        decode(in, beam ? &rule : nullptr, make_threads(threads), path.data(), dead.data());
      },
      "chains"_a, "threads"_a, "beam"_a.none(), "path"_a.noconvert(), "dead"_a.noconvert());
  m.def(
      "sample",
      [](const ChainArrays<T>& chains, int threads, In<double, 2> uniform, Out<double, 1> log_z, Out<i32, 2> path) {
        const ChainInput<T> in = chain_input<T>(chains);
        require(shaped(uniform, uniform.shape(0), n_tokens(in)) && shaped(path, uniform.shape(0), n_tokens(in)) &&
                    shaped(log_z, in.n_seq),
                "path has the wrong size");
        const nb::gil_scoped_release release;
        sample(in, make_threads(threads), uniform.shape(0), uniform.data(), log_z.data(), path.data());
      },
      "chains"_a, "threads"_a, "uniform"_a, "log_z"_a.noconvert(), "path"_a.noconvert());
  // number of paths of each sequence, the paths one after another, their scores
  m.def(
      "nbest",
      [](const ChainArrays<T>& chains, int threads, const std::optional<BeamTuple>& beam, i64 k) {
        const ChainInput<T> in = chain_input<T>(chains);
        require(k >= 1, "there must be a path to look for");
        BeamRule rule;
        if (beam) rule.criterion = criterion_of(*beam);
        const auto found = unlocked([&] {
          return beam ? nbest(in, rule, k, make_threads(threads)) : nbest(WideInput(in), k, make_threads(threads));
        });
        std::vector<i64> count;
        std::vector<i32> path;
        std::vector<double> score;
        for (const Paths& x : found) {
          count.push_back(std::ssize(x.score));
          path.insert(path.end(), x.path.begin(), x.path.end());
          score.insert(score.end(), x.score.begin(), x.score.end());
        }
        return own_all(std::move(count), std::move(path), std::move(score));
      },
      "chains"_a, "threads"_a, "beam"_a.none(), "k"_a);
}

template <class T>
void bind_beams(nb::module_& m) {
  // log mass, pointers, labels, nodes, edge pointers, edges, divergences; all but the first empty if a sequence is dead
  m.def(
      "beam_sum_product",
      [](const ChainArrays<T>& chains, int threads, const BeamTuple& beam, std::optional<In<i32, 1>> keep,
         const std::string& form) {
        const ChainInput<T> in = chain_input<T>(chains);
        BeamRule rule;
        rule.criterion = criterion_of(beam);
        using Form = BeamRule::Form;
        rule.form = named<Form>("form of beams", form,
                                {{"frozen", Form::frozen}, {"smoothed", Form::smoothed}, {"paper", Form::paper}});
        rule.keep = data_of(keep);
        require(shaped(keep, n_tokens(in)), "there must be a label to keep for every token");
        for (i64 t = 0; keep && t < n_tokens(in); ++t)
          require(rule.keep[t] >= -1 && rule.keep[t] < in.n_labels, "a label to keep does not exist");
        const auto found = unlocked([&] { return beam_sum_product(in, rule, make_threads(threads)); });
        std::vector<double> log_mass, nodes, edges, divergence;
        std::vector<i64> ptr{0}, edge_ptr{0};
        std::vector<i32> labels;
        for (const BeamResult& x : found) log_mass.push_back(x.log_mass);
        const bool dead = std::any_of(log_mass.begin(), log_mass.end(), [](double x) { return std::isinf(x); });
        for (const BeamResult& x : found) {
          if (dead) break;
          for (std::size_t t = 1; t < x.ptr.size(); ++t) ptr.push_back(labels.size() + x.ptr[t]);
          for (std::size_t t = 1; t < x.edge_ptr.size(); ++t) edge_ptr.push_back(edges.size() + x.edge_ptr[t]);
          labels.insert(labels.end(), x.labels.begin(), x.labels.end());
          nodes.insert(nodes.end(), x.nodes.begin(), x.nodes.end());
          edges.insert(edges.end(), x.edges.begin(), x.edges.end());
          divergence.insert(divergence.end(), x.divergence.begin(), x.divergence.end());
        }
        return own_all(std::move(log_mass), std::move(ptr), std::move(labels), std::move(nodes), std::move(edge_ptr),
                       std::move(edges), std::move(divergence));
      },
      "chains"_a, "threads"_a, "beam"_a, "keep"_a.none(), "form"_a);
}

// Outputs of expectations and covariances fit the chains.
template <class T>
void check_sums(const ChainInput<T>& in, const std::optional<In<double, 1>>& weight, const Out<double, 1>& each,
                const std::optional<Out<T, 2>>& nodes, const std::optional<Out<double, 2>>& pairs,
                const std::optional<Out<T, 3>>& edges) {
  require(shaped(each, in.n_seq) && shaped(weight, in.n_seq), "there must be a number for every sequence");
  require(shaped(nodes, n_tokens(in), in.n_labels), "nodes has the wrong size");
  require(!pairs || (!in.per_step && shaped(pairs, in.n_labels, in.n_labels)), "pairs has the wrong size");
  require(shaped(edges, n_edges(in), in.n_labels, in.n_labels), "edges has the wrong size");
}

template <class T>
void bind_expectations(nb::module_& m) {
  m.def(
      "expectations",
      [](const ChainArrays<T>& chains, int threads, std::optional<In<double, 1>> weight, Out<double, 1> log_z,
         std::optional<Out<T, 2>> nodes, std::optional<Out<double, 2>> pairs, std::optional<Out<T, 3>> edges) {
        const ChainInput<T> in = chain_input<T>(chains);
        check_sums<T>(in, weight, log_z, nodes, pairs, edges);
        const nb::gil_scoped_release release;
        expectations(in, data_of(weight), make_threads(threads), log_z.data(), data_of(nodes), data_of(pairs),
                     data_of(edges));
      },
      "chains"_a, "threads"_a, "weight"_a.none(), "log_z"_a.noconvert(), "nodes"_a.none().noconvert(),
      "pairs"_a.none().noconvert(), "edges"_a.none().noconvert());
  m.def(
      "covariance",
      [](const ChainArrays<T>& chains, In<T, 2> r, In<T, 3> ra, int threads, std::optional<In<double, 1>> weight,
         Out<double, 1> mean, std::optional<Out<T, 2>> nodes, std::optional<Out<double, 2>> pairs,
         std::optional<Out<T, 3>> edges) {
        const ChainInput<T> in = chain_input<T>(chains);
        require(shaped(r, n_tokens(in), in.n_labels) && ra.size() == std::get<1>(chains).size(),
                "the direction has the wrong size");
        check_sums<T>(in, weight, mean, nodes, pairs, edges);
        const nb::gil_scoped_release release;
        covariance(in, r.data(), ra.data(), data_of(weight), make_threads(threads), mean.data(), data_of(nodes),
                   data_of(pairs), data_of(edges));
      },
      "chains"_a, "r"_a, "ra"_a, "threads"_a, "weight"_a.none(), "mean"_a.noconvert(), "nodes"_a.none().noconvert(),
      "pairs"_a.none().noconvert(), "edges"_a.none().noconvert());
}

// pairwise: [labels][labels], or one such matrix for every step
template <int Rank>
void bind_messages(nb::module_& m) {
  m.def(
      "backward_messages",
      [](In<double, 2> unary, In<double, Rank> pairwise) {
        const std::size_t steps = unary.shape(0), n = unary.shape(1);
        require(pairwise.shape(Rank - 2) == n && pairwise.shape(Rank - 1) == n, "pairwise must be labels by labels");
        require(Rank == 2 || pairwise.shape(0) + 1 == std::max<std::size_t>(steps, 1),
                "pairwise has the wrong number of steps");
        const i64 offsets[2] = {0, static_cast<i64>(steps)};
        const ChainInput<double> in{static_cast<int>(n), 1, offsets, unary.data(), pairwise.data(), Rank == 3};
        std::vector<double> beta(unary.size());
        backward_messages(in, beta.data());
        return nb::cast(own(std::move(beta))).attr("reshape")(steps, n);
      },
      "unary"_a, "pairwise"_a);
}

template <class T>
void bind_entropies(nb::module_& m) {
  m.def(
      "entropies",
      [](const ChainArrays<T>& chains, int threads, Out<double, 1> log_z, Out<double, 1> entropy,
         std::optional<Out<double, 1>> node_entropy, std::optional<Out<double, 1>> step_entropy,
         std::optional<Out<T, 2>> unary_gradient, std::optional<Out<T, 3>> pairwise_gradient,
         std::optional<Out<double, 2>> before, std::optional<Out<double, 2>> after) {
        const ChainInput<T> in = chain_input<T>(chains);
        const i64 tokens = n_tokens(in), labels = in.n_labels;
        require(shaped(log_z, in.n_seq) && shaped(entropy, in.n_seq), "log_z has the wrong size");
        require(shaped(node_entropy, tokens), "node_entropy has the wrong size");
        require(shaped(step_entropy, n_edges(in)), "step_entropy has the wrong size");
        require(unary_gradient.has_value() == pairwise_gradient.has_value(), "the gradients go together");
        require(shaped(unary_gradient, tokens, labels) &&
                    shaped(pairwise_gradient, std::get<1>(chains).shape(0), labels, labels),
                "a gradient has the wrong size");
        require(before.has_value() == after.has_value(), "the lattices go together");
        require(shaped(before, tokens, labels) && shaped(after, tokens, labels), "a lattice has the wrong size");
        const EntropyOut<T> out{log_z.data(),          entropy.data(),          data_of(node_entropy),
                                data_of(step_entropy), data_of(unary_gradient), data_of(pairwise_gradient),
                                data_of(before),       data_of(after)};
        const nb::gil_scoped_release release;
        entropies(in, make_threads(threads), out);
      },
      "chains"_a, "threads"_a, "log_z"_a.noconvert(), "entropy"_a.noconvert(), "node_entropy"_a.none().noconvert(),
      "step_entropy"_a.none().noconvert(), "unary_gradient"_a.none().noconvert(),
      "pairwise_gradient"_a.none().noconvert(), "before"_a.none().noconvert(), "after"_a.none().noconvert());
}

template <class T>
void bind_type(nb::module_& m) {
  bind_inference<T>(m);
  bind_beams<T>(m);
  bind_expectations<T>(m);
  bind_entropies<T>(m);
}

}  // namespace

void bind_chains(nb::module_& m) {
  bind_type<float>(m);
  bind_type<double>(m);
  bind_messages<2>(m);
  bind_messages<3>(m);
}

}  // namespace crfkit
