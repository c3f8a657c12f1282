// objective.cpp: the Python face of training on whole data sets: layouts, objectives, scorers, the memory of L-BFGS.
#include "train/objective.hpp"

#include <algorithm>

#include "bind/tokens.hpp"
#include "model/pair_counts.hpp"
#include "model/scorer.hpp"
#include "train/expectation_objective.hpp"
#include "train/lbfgs_memory.hpp"
#include "train/semi_objective.hpp"

namespace crfkit {
namespace {

Layout make_layout(int n_labels, In<u32, 1> state_ptr, In<u16, 1> state_label, In<i32, 1> transition, i64 start,
                   i64 end, In<u32, 1> edge_ptr, In<u32, 1> edge_pair, u32 edge_first, u32 size) {
  const auto span = [](const auto& x) { return std::span(x.data(), x.size()); };
  Layout layout{n_labels,
                span(state_ptr),
                span(state_label),
                to_vector<i32>(transition),
                start,
                end,
                span(edge_ptr),
                span(edge_pair),
                edge_first,
                size};
  layout.check();
  using Arrays = std::tuple<In<u32, 1>, In<u16, 1>, In<u32, 1>, In<u32, 1>>;
  layout.owner = {new Arrays(state_ptr, state_label, edge_ptr, edge_pair), [](Arrays* arrays) {
                    const nb::gil_scoped_acquire lock;
                    delete arrays;
                  }};
  return layout;
}

Observed seen_pairs(In<i64, 1> ptr, In<u32, 1> attr, u32 n_attributes, In<u32, 1> column, u32 n_columns,
                    double min_count, std::vector<u32>* counts) {
  check_offsets(ptr, attr.size(), "attribute pointers must rise from 0 to the number of attributes");
  require(column.size() + 1 == ptr.size(), "there must be a label for every token");
  return unlocked([&] {
    const auto known = [&](u32 j) { return j < n_columns || j == kNone; };
    require(std::all_of(attr.data(), attr.data() + attr.size(), [&](u32 a) { return a < n_attributes; }),
            "no such attribute");
    require(std::all_of(column.data(), column.data() + column.size(), known), "no such label");
    return counted_pairs(ptr.data(), attr.data(), std::ssize(column), n_attributes, column.data(), n_columns, min_count,
                         counts);
  });
}

void bind_data(nb::module_& m) {
  nb::class_<Layout>(m, "Layout")
      .def(nb::new_(&make_layout), "n_labels"_a, "state_ptr"_a, "state_label"_a, "transition"_a, "start"_a, "end"_a,
           "edge_ptr"_a, "edge_pair"_a, "edge_first"_a, "size"_a);
  nb::class_<TokenArrays>(m, "Tokens")
      .def(
          nb::init<In<i64, 1>, In<i64, 1>, In<u32, 1>, Numbers, std::optional<In<i64, 1>>, std::optional<In<u32, 1>>>(),
          "offsets"_a, "ptr"_a, "attr"_a, "value"_a.none(), "edge_ptr"_a.none(), "edge_attr"_a.none());
  nb::class_<StoredArrays>(m, "StoredTokens")
      .def(nb::init<In<i64, 1>, In<i64, 1>, StoredArrays::Group, std::optional<StoredArrays::Group>>(), "offsets"_a,
           "first_seq"_a, "state"_a, "edge"_a.none())
      .def_prop_ro("has_edges", [](const StoredArrays& self) { return self.edge.has_value(); });
  m.def("tokens_per_block", &tokens_per_block, "n_labels"_a);
  m.def(
      "stored_pairs",
      [](const StoredArrays& data, bool edge, u32 n_attributes, In<i32, 1> labels, u32 n_labels, double min_count) {
        const StoredTokens tokens = data.view();
        require(!edge || data.edge, "there are no attributes of transitions");
        require(shaped(labels, tokens.n_tokens()), "there must be a label for every token");
        for (std::size_t t = 0; t < labels.size(); ++t)
          require(labels(t) >= -1 && labels(t) < static_cast<i64>(n_labels), "no such label");
        Observed out = unlocked([&] {
          return stored_pairs(tokens, edge, n_attributes, labels.data(), n_labels, min_count, make_threads(1).poll);
        });
        return own_all(std::move(out.ptr), std::move(out.column));
      },
      "data"_a, "edge"_a, "n_attributes"_a, "labels"_a, "n_labels"_a, "min_count"_a);
  m.def(
      "observed_pairs",
      [](In<i64, 1> ptr, In<u32, 1> attr, u32 n_attributes, In<u32, 1> column, u32 n_columns, double min_count) {
        Observed out = seen_pairs(ptr, attr, n_attributes, column, n_columns, min_count, nullptr);
        return own_all(std::move(out.ptr), std::move(out.column));
      },
      "ptr"_a, "attr"_a, "n_attributes"_a, "column"_a, "n_columns"_a, "min_count"_a);
  m.def(
      "count_pairs",
      [](In<i64, 1> ptr, In<u32, 1> attr, u32 n_attributes, In<u32, 1> column, u32 n_columns) {
        std::vector<u32> counts;
        Observed out = seen_pairs(ptr, attr, n_attributes, column, n_columns, 0, &counts);
        return own_all(std::move(out.ptr), std::move(out.column), std::move(counts));
      },
      "ptr"_a, "attr"_a, "n_attributes"_a, "column"_a, "n_columns"_a);
}

// Vectors of weights or of their gradients.
template <class Self>
void check_weights(const Self& self, const auto&... vectors) {
  require((shaped(vectors, self.size()) && ...), "the weight vector has the wrong size");
}

template <class T>
void check_block(const Objective<T>& self, i64 block) {
  require(block >= 0 && block < self.n_blocks(), "there is no such block");
}

// Beams of labels that value and gradient look at.
template <class T>
void bind_beams(nb::class_<Objective<T>>& objective) {
  using Self = Objective<T>;
  objective
      // tokens, labels in their beams, the largest beam, labels of beams by the criterion alone
      .def(
          "choose_beams",
          [](Self& self, In<double, 1> w, const BeamTuple& beam, bool grow, int threads) {
            check_weights(self, w);
            const auto sizes = unlocked([&, rule = criterion_of(beam)] {
              return self.choose_beams(w.data(), rule, grow, make_threads(threads));
            });
            return nb::make_tuple(sizes.tokens, sizes.labels, sizes.largest, sizes.fresh);
          },
          "w"_a, "beam"_a, "grow"_a, "threads"_a)
      .def(
          "beam_sizes",
          [](Self& self, In<double, 1> w, i64 block, const BeamTuple& beam, int threads) {
            check_weights(self, w);
            check_block(self, block);
            const auto sizes = unlocked([&, rule = criterion_of(beam)] {
              return self.beam_sizes(w.data(), block, rule, make_threads(threads));
            });
            return nb::make_tuple(sizes.tokens, sizes.labels, sizes.squares);
          },
          "w"_a, "block"_a, "beam"_a, "threads"_a)
      .def("beams",
           [](Self& self) {
             Beams all = unlocked([&] { return self.beams(); });
             return own_all(std::move(all.labels), std::move(all.ptr));
           })
      .def(
          "set_beams",
          [](Self& self, In<u16, 1> labels, In<u32, 1> ptr) {
            i64 tokens = 0;
            for (i64 b = 0; b < self.n_blocks(); ++b) tokens += self.block_size(b).first;
            require(std::ssize(ptr) == tokens + 1 && ptr(0) == 0 && ptr(tokens) == labels.size(),
                    "there must be a beam for every token");
            for (i64 t = 0; t < tokens; ++t) {
              require(ptr(t) <= ptr(t + 1) && ptr(t + 1) <= labels.size(), "beams must follow each other");
              for (u32 k = ptr(t); k < ptr(t + 1); ++k)
                require(labels(k) < self.n_labels() && (k == ptr(t) || labels(k - 1) < labels(k)),
                        "the labels of a beam must rise");
            }
            self.set_beams({to_vector<u16>(labels), to_vector<u32>(ptr)});
          },
          "labels"_a, "ptr"_a)
      .def("drop_beams", &Self::drop_beams, nb::call_guard<nb::gil_scoped_release>());
}

template <class T>
void bind_objective(nb::module_& m, const char* name) {
  using Self = Objective<T>;
  nb::class_<Self> objective(m, name);
  bind_beams(objective);
  objective
      .def(
          "__init__",
          [](Self* self, std::shared_ptr<const Layout> layout, const TokenArrays& data, In<i32, 1> gold,
             Numbers seq_weight, Numbers constraints, int threads) {
            const Tokens tokens = data.view();
            check_labels(gold, tokens.n_tokens(), layout->n_labels);
            check_training(tokens, *layout, seq_weight, constraints);
            const nb::gil_scoped_release release;
            new (self)
                Self(layout, tokens, gold.data(), data_of(seq_weight), data_of(constraints), make_threads(threads));
          },
          "layout"_a, "data"_a, "gold"_a, "seq_weight"_a.none(), "constraints"_a.none(), "threads"_a)
      .def(
          "__init__",  // data and labels stay in use
          [](Self* self, std::shared_ptr<const Layout> layout, const StoredArrays& data, In<i32, 1> gold,
             Numbers seq_weight, Numbers constraints, int) {
            const StoredTokens tokens = data.view();
            require(shaped(gold, tokens.n_tokens()), "there must be a label for every token");
            require(shaped(seq_weight, tokens.n_seq), "there must be a weight for every sequence");
            check_constraints(*layout, constraints);
            const nb::gil_scoped_release release;
            new (self) Self(layout, tokens, gold.data(), data_of(seq_weight), data_of(constraints));
          },
          "layout"_a, "data"_a, "gold"_a.noconvert(), "seq_weight"_a.none(), "constraints"_a.none(), "threads"_a,
          nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def(
          "packed_block",
          [](Self& self, i64 block) {
            check_block(self, block);
            return own(unlocked([&] { return self.packed_block(block); }));
          },
          "block"_a)
      .def(
          "use_packed",
          [](Self& self, In<u8, 1> bytes, In<i64, 1> offsets) {
            require(shaped(offsets, self.n_blocks() + 1), "every block must have a place");
            check_offsets(offsets, bytes.size(), "blocks must follow each other");
            self.use_packed(bytes.data(), to_vector<i64>(offsets));
          },
          "bytes"_a.noconvert(), "offsets"_a, nb::keep_alive<1, 2>())
      .def(
          "value_and_grad",
          [](Self& self, In<double, 1> w, double c2, Out<double, 1> g, int threads) {
            check_weights(self, w, g);
            const nb::gil_scoped_release release;
            return self.value_and_grad(w.data(), c2, g.data(), make_threads(threads));
          },
          "w"_a, "c2"_a, "g"_a.noconvert(), "threads"_a)
      .def(
          "hessian_product",
          [](Self& self, In<double, 1> w, In<double, 1> v, double c2, Out<double, 1> out, int threads) {
            check_weights(self, w, v, out);
            const nb::gil_scoped_release release;
            self.hessian_product(w.data(), v.data(), c2, out.data(), make_threads(threads));
          },
          "w"_a, "v"_a, "c2"_a, "out"_a.noconvert(), "threads"_a)
      .def(
          "block_size",
          [](const Self& self, i64 block) {
            check_block(self, block);
            return self.block_size(block);
          },
          "block"_a)
      .def(
          "block_value_and_grad",
          [](Self& self, In<double, 1> w, i64 block, bool beams, Out<double, 1> g, int threads) {
            check_weights(self, w, g);
            check_block(self, block);
            const nb::gil_scoped_release release;
            return self.block_value_and_grad(w.data(), block, beams, g.data(), make_threads(threads));
          },
          "w"_a, "block"_a, "beams"_a, "g"_a.noconvert(), "threads"_a)
      .def_prop_ro("n_blocks", &Self::n_blocks)
      .def_prop_ro("size", &Self::size);
}

template <class T>
void bind_semi(nb::module_& m, const char* name) {
  using Self = SemiObjective<T>;
  nb::class_<Self>(m, name)
      .def(
          "__init__",
          [](Self* self, std::shared_ptr<const Layout> layout, const TokenArrays& data, i64 n_partial,
             In<i32, 1> labels, In<double, 2> hints, Numbers seq_weight, Numbers constraints, int threads) {
            const Tokens tokens = data.view();
            require(n_partial >= 0 && n_partial <= tokens.n_seq, "there are fewer sequences");
            const KnownLabels known = known_labels(labels, tokens.offsets[n_partial], hints, layout->n_labels);
            check_training(tokens, *layout, seq_weight, constraints);
            const nb::gil_scoped_release release;
            new (self) Self(layout, tokens, n_partial, known, data_of(seq_weight), data_of(constraints),
                            make_threads(threads));
          },
          "layout"_a, "data"_a, "n_partial"_a, "labels"_a, "hints"_a, "seq_weight"_a.none(), "constraints"_a.none(),
          "threads"_a)
      // Adds to g the gradient; gives the partial loss and the entropy without its weight.
      .def(
          "add",
          [](Self& self, In<double, 1> w, double entropy_weight, Out<double, 1> g, int threads) {
            check_weights(self, w, g);
            const auto value =
                unlocked([&] { return self.add(w.data(), entropy_weight, g.data(), make_threads(threads)); });
            return nb::make_tuple(value.partial, value.entropy);
          },
          "w"_a, "entropy_weight"_a, "g"_a.noconvert(), "threads"_a)
      .def(
          "add_hessian_product",
          [](Self& self, In<double, 1> w, In<double, 1> v, double entropy_weight, Out<double, 1> out, int threads) {
            check_weights(self, w, v, out);
            const nb::gil_scoped_release release;
            self.add_hessian_product(w.data(), v.data(), entropy_weight, out.data(), make_threads(threads));
          },
          "w"_a, "v"_a, "entropy_weight"_a, "out"_a.noconvert(), "threads"_a);
}

using Table = std::optional<In<double, 2>>;

template <class T>
void bind_expectations(nb::module_& m, const char* name) {
  using Self = ExpectationObjective<T>;
  const auto check_table = [](const Self& self, const auto& table) {
    require(shaped(table, self.n_groups(), self.n_labels()), "there must be a number for every group and label");
  };
  nb::class_<Self>(m, name)
      .def(
          "__init__",
          [](Self* self, std::shared_ptr<const Layout> layout, const TokenArrays& data, In<i64, 1> ptr,
             In<i32, 1> group, i64 n_groups, Numbers constraints, int threads) {
            const Tokens tokens = data.view();
            check_constraints(*layout, constraints);
            require(shaped(ptr, tokens.n_tokens() + 1), "every token must have a place");
            check_offsets(ptr, group.size(), "groups must follow each other");
            for (std::size_t k = 0; k < group.size(); ++k)
              require(group(k) >= 0 && group(k) < n_groups, "there is no such group");
            const nb::gil_scoped_release release;
            new (self)
                Self(layout, tokens, ptr.data(), group.data(), n_groups, data_of(constraints), make_threads(threads));
          },
          "layout"_a, "data"_a, "ptr"_a, "group"_a, "n_groups"_a, "constraints"_a.none(), "threads"_a)
      .def(
          "set",
          [](Self& self, In<double, 1> w, int threads) {
            check_weights(self, w);
            const nb::gil_scoped_release release;
            self.set(w.data(), make_threads(threads));
          },
          "w"_a, "threads"_a)
      .def(
          "expected",
          [=](Self& self, Table table, Out<double, 2> counts, int threads) {
            if (table) check_table(self, *table);
            check_table(self, counts);
            const nb::gil_scoped_release release;
            return self.expected(table ? table->data() : nullptr, counts.data(), make_threads(threads));
          },
          "table"_a.none(), "counts"_a.noconvert(), "threads"_a)
      .def(
          "add_covariance",
          [=](Self& self, In<double, 2> table, Out<double, 1> g, int threads) {
            check_table(self, table);
            check_weights(self, g);
            const nb::gil_scoped_release release;
            self.add_covariance(table.data(), g.data(), make_threads(threads));
          },
          "table"_a, "g"_a.noconvert(), "threads"_a)
      .def(
          "add_divergence",
          [=](Self& self, In<double, 2> table, double scale, Out<double, 1> g, int threads) {
            check_table(self, table);
            check_weights(self, g);
            const nb::gil_scoped_release release;
            return self.add_divergence(table.data(), scale, g.data(), make_threads(threads));
          },
          "table"_a, "scale"_a, "g"_a.noconvert(), "threads"_a);
}

template <class T>
void bind_scorer(nb::module_& m, const char* name) {
  using Self = Scorer<T>;
  nb::class_<Self>(m, name)
      .def(
          "__init__",
          [](Self* self, std::shared_ptr<const Layout> layout, In<double, 1> w, Numbers constraints, int threads) {
            require(w.size() == layout->size, "the weight vector has the wrong size");
            check_constraints(*layout, constraints);
            const nb::gil_scoped_release release;
            new (self) Self(layout, w.data(), data_of(constraints), make_threads(threads));
          },
          "layout"_a, "w"_a, "constraints"_a.none(), "threads"_a)
      .def(
          "set",
          [](Self& self, In<double, 1> w, int threads) {
            require(w.size() == self.size(), "the weight vector has the wrong size");
            const nb::gil_scoped_release release;
            self.set(w.data(), make_threads(threads));
          },
          "w"_a, "threads"_a)
      .def(
          "score",
          [](const Self& self, const TokenArrays& data, int threads, Out<T, 2> unary, Out<T, 3> pairwise) {
            const Tokens tokens = data.view();
            const i64 n = self.n_labels();
            require(shaped(unary, tokens.n_tokens(), n), "unary has the wrong size");
            const i64 steps = self.per_step() ? edge_offsets(tokens.offsets, tokens.n_seq).back() : 1;
            require(shaped(pairwise, steps, n, n), "pairwise has the wrong size");
            if (!self.per_step())
              std::transform(self.pairwise().begin(), self.pairwise().end(), pairwise.data(),
                             [](double x) { return T(x); });
            const nb::gil_scoped_release release;
            self.score(tokens, make_threads(threads), unary.data(), pairwise.data());
          },
          "data"_a, "threads"_a, "unary"_a.noconvert(), "pairwise"_a.noconvert())
      .def(
          "score_stored",
          [](const Self& self, const StoredArrays& data, int threads, Out<T, 2> unary, Out<T, 3> pairwise) {
            const StoredTokens tokens = data.view();
            const i64 n = self.n_labels();
            require(!self.per_step(), "transitions that look at the input need flat data");
            require(shaped(unary, tokens.n_tokens(), n) && shaped(pairwise, 1, n, n), "unary has the wrong size");
            std::transform(self.pairwise().begin(), self.pairwise().end(), pairwise.data(),
                           [](double x) { return T(x); });
            const nb::gil_scoped_release release;
            self.score(tokens, make_threads(threads), unary.data());
          },
          "data"_a, "threads"_a, "unary"_a.noconvert(), "pairwise"_a.noconvert())
      .def_prop_ro("per_step", &Self::per_step);
}

using MaybeOut = std::optional<Out<double, 1>>;

// A point of the search, and where v is written; c1 asks for it.
SearchPoint search_point(const Memory& memory, In<double, 1> x, In<double, 1> g, double c1, const MaybeOut& v) {
  check_weights(memory, x, g);
  require(v.has_value() == (c1 != 0), "v goes with c1");
  if (v) check_weights(memory, *v);
  return {x.data(), g.data(), c1, v ? v->data() : nullptr};
}

nb::tuple as_tuple(const Moved& moved) { return nb::make_tuple(moved.slope, moved.ascent, moved.l1); }
nb::tuple as_tuple(const Norms& norms) { return nb::make_tuple(norms.v2, norms.x2, norms.active); }

void bind_memory(nb::module_& m) {
  m.def(
      "dot",
      [](In<double, 1> a, In<double, 1> b, int threads) {
        require(a.size() == b.size(), "the vectors differ in size");
        const nb::gil_scoped_release release;
        return dot(a.data(), b.data(), std::ssize(a), make_threads(threads));
      },
      "a"_a, "b"_a, "threads"_a = 1);
  m.def(
      "move",
      [](In<double, 1> x, In<double, 1> v, bool in_orthant, Out<double, 1> d, double step, Out<double, 1> to,
         int threads) {
        require(x.size() == v.size() && x.size() == d.size() && x.size() == to.size(), "the vectors differ in size");
        const Move move{x.data(), v.data(), d.data(), step, to.data(), in_orthant};
        return as_tuple(unlocked([&] { return make_move(move, std::ssize(x), make_threads(threads)); }));
      },
      "x"_a, "v"_a, "in_orthant"_a, "d"_a.noconvert(), "step"_a, "to"_a.noconvert(), "threads"_a);
  nb::class_<Memory>(m, "Memory")
      .def(nb::init<i64, int>(), "size"_a, "capacity"_a)
      .def("pairs", [](const Memory& self) { return own(self.pairs()); })
      .def(
          "push",
          [](Memory& self, In<double, 1> x, In<double, 1> x_old, In<double, 1> g, In<double, 1> g_old, int threads) {
            check_weights(self, x, x_old, g, g_old);
            const nb::gil_scoped_release release;
            return self.push(x.data(), x_old.data(), g.data(), g_old.data(), make_threads(threads));
          },
          "x"_a, "x_old"_a, "g"_a, "g_old"_a, "threads"_a)
      .def(
          "look",
          [](Memory& self, In<double, 1> x, In<double, 1> g, double c1, MaybeOut v, int threads) {
            const SearchPoint point = search_point(self, x, g, c1, v);
            return as_tuple(unlocked([&] { return self.look(point, make_threads(threads)); }));
          },
          "x"_a, "g"_a, "c1"_a, "v"_a.none().noconvert(), "threads"_a)
      .def(
          "advance",
          [](Memory& self, In<double, 1> x, In<double, 1> x_old, In<double, 1> g, In<double, 1> g_old, double c1,
             MaybeOut v, int threads) {
            const SearchPoint point = search_point(self, x, g, c1, v);
            check_weights(self, x_old, g_old);
            return as_tuple(
                unlocked([&] { return self.advance(point, x_old.data(), g_old.data(), make_threads(threads)); }));
          },
          "x"_a, "x_old"_a, "g"_a, "g_old"_a, "c1"_a, "v"_a.none().noconvert(), "threads"_a)
      .def(
          "direction",
          [](Memory& self, In<double, 1> x, In<double, 1> v, bool in_orthant, Out<double, 1> d, double step,
             Out<double, 1> to, int threads) {
            check_weights(self, x, v, d, to);
            const Move move{x.data(), v.data(), d.data(), step, to.data(), in_orthant};
            return as_tuple(unlocked([&] { return self.direction(move, make_threads(threads)); }));
          },
          "x"_a, "v"_a, "in_orthant"_a, "d"_a.noconvert(), "step"_a, "to"_a.noconvert(), "threads"_a)
      .def("clear", &Memory::clear)
      .def("__len__", &Memory::count);
}

}  // namespace

void bind_objectives(nb::module_& m) {
  bind_data(m);
  bind_objective<float>(m, "ObjectiveF32");
  bind_objective<double>(m, "ObjectiveF64");
  bind_semi<float>(m, "SemiObjectiveF32");
  bind_semi<double>(m, "SemiObjectiveF64");
  bind_expectations<float>(m, "ExpectationObjectiveF32");
  bind_expectations<double>(m, "ExpectationObjectiveF64");
  bind_scorer<float>(m, "ScorerF32");
  bind_scorer<double>(m, "ScorerF64");
  bind_memory(m);
}

}  // namespace crfkit
