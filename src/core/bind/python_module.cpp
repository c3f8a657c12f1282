// python_module.cpp: the Python face of chains, data sets, objectives, encoders and L-BFGS; the module itself.
#include <cmath>

#include "base/instruction_set.hpp"
#include "beam/inference.hpp"
#include "bind/arrays.hpp"
#include "bind/objects.hpp"
#include "model/scorer.hpp"
#include "text/columns.hpp"
#include "text/encoder.hpp"
#include "train/lbfgs_memory.hpp"
#include "train/objective.hpp"

using namespace crfkit;

namespace {

BeamRule beam_rule(const std::string& kind, double amount, int size, const std::optional<In<i32, 1>>& keep,
                   const std::string& form, i64 tokens, int n_labels) {
  BeamRule rule;
  rule.criterion = criterion_of(kind, amount, size);
  rule.form = form == "paper"      ? BeamRule::Form::paper
              : form == "smoothed" ? BeamRule::Form::smoothed
                                   : BeamRule::Form::frozen;
  if (keep) {
    require(static_cast<i64>(keep->size()) == tokens, "there must be a label to keep for every token");
    for (std::size_t t = 0; t < keep->size(); ++t)
      require((*keep)(t) >= -1 && (*keep)(t) < n_labels, "a label to keep does not exist");
    rule.keep = keep->data();
  }
  return rule;
}

template <class T>
void bind_beams(nb::module_& m) {
  // log mass, pointers, labels, nodes, edge pointers, edges, divergences; all but the first empty if a sequence is dead
  m.def(
      "beam_sum_product",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads, const std::string& kind,
         double amount, int size, std::optional<In<i32, 1>> keep, const std::string& form) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        const BeamRule rule = beam_rule(kind, amount, size, keep, form, static_cast<i64>(unary.shape(0)), in.n_labels);
        std::vector<BeamResult> found;
        {
          const nb::gil_scoped_release release;
          found = beam_sum_product(in, rule, make_threads(threads));
        }
        std::vector<double> log_mass, nodes, edges, divergence;
        std::vector<i64> ptr{0}, edge_ptr{0};
        std::vector<i32> labels;
        for (const BeamResult& x : found) log_mass.push_back(x.log_mass);
        const bool dead = std::any_of(log_mass.begin(), log_mass.end(), [](double x) { return std::isinf(x); });
        for (const BeamResult& x : found) {
          if (dead) break;
          for (std::size_t t = 1; t < x.ptr.size(); ++t) ptr.push_back(static_cast<i64>(labels.size() + x.ptr[t]));
          for (std::size_t t = 1; t < x.edge_ptr.size(); ++t)
            edge_ptr.push_back(static_cast<i64>(edges.size() + x.edge_ptr[t]));
          labels.insert(labels.end(), x.labels.begin(), x.labels.end());
          nodes.insert(nodes.end(), x.nodes.begin(), x.nodes.end());
          edges.insert(edges.end(), x.edges.begin(), x.edges.end());
          divergence.insert(divergence.end(), x.divergence.begin(), x.divergence.end());
        }
        return nb::make_tuple(own(std::move(log_mass)), own(std::move(ptr)), own(std::move(labels)),
                              own(std::move(nodes)), own(std::move(edge_ptr)), own(std::move(edges)),
                              own(std::move(divergence)));
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "kind"_a, "amount"_a, "size"_a, "keep"_a.none(),
      "form"_a);
  // number of paths of each sequence, the paths one after another, their scores
  m.def(
      "nbest",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads,
         std::optional<std::string> kind, double amount, int size, i64 k) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        require(k >= 1, "there must be a path to look for");
        const BeamRule rule =
            beam_rule(kind.value_or("fixed_size"), amount, size, std::nullopt, "frozen", 0, in.n_labels);
        std::vector<Paths> found;
        {
          const nb::gil_scoped_release release;
          found = kind ? nbest(in, rule, k, make_threads(threads)) : nbest(in, k, make_threads(threads));
        }
        std::vector<i64> count;
        std::vector<i32> path;
        std::vector<double> score;
        for (const Paths& x : found) {
          count.push_back(static_cast<i64>(x.score.size()));
          path.insert(path.end(), x.path.begin(), x.path.end());
          score.insert(score.end(), x.score.begin(), x.score.end());
        }
        return nb::make_tuple(own(std::move(count)), own(std::move(path)), own(std::move(score)));
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "kind"_a.none(), "amount"_a, "size"_a, "k"_a);
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
        sum_product(in, make_threads(threads), log_z.data(), nodes ? nodes->data() : nullptr,
                    edges ? edges->data() : nullptr);
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "log_z"_a.noconvert(),
      "nodes"_a.none().noconvert(), "edges"_a.none().noconvert());
  m.def(
      "decode",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads,
         std::optional<std::string> kind, double amount, int size, Out<i32, 1> path, Out<u8, 1> dead) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        const BeamRule rule =
            beam_rule(kind.value_or("fixed_size"), amount, size, std::nullopt, "frozen", 0, in.n_labels);
        require(path.size() == unary.shape(0) && static_cast<i64>(dead.size()) == in.n_seq, "path has the wrong size");
        const nb::gil_scoped_release release;
        decode(in, kind ? &rule : nullptr, make_threads(threads), path.data(), dead.data());
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "kind"_a.none(), "amount"_a, "size"_a,
      "path"_a.noconvert(), "dead"_a.noconvert());
  m.def(
      "sample",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads, In<double, 2> uniform,
         Out<double, 1> log_z, Out<i32, 2> path) {
        const ChainInput<T> in = chain_input<T>(unary, pairwise, per_step, offsets);
        require(uniform.shape(1) == unary.shape(0) && path.shape(0) == uniform.shape(0) &&
                    path.shape(1) == uniform.shape(1) && static_cast<i64>(log_z.size()) == in.n_seq,
                "path has the wrong size");
        const nb::gil_scoped_release release;
        sample(in, make_threads(threads), static_cast<i64>(uniform.shape(0)), uniform.data(), log_z.data(),
               path.data());
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "uniform"_a, "log_z"_a.noconvert(),
      "path"_a.noconvert());
}

Layout make_layout(int n_labels, In<u32, 1> state_ptr, In<u16, 1> state_label, In<i32, 1> transition, i64 start,
                   i64 end, In<u32, 1> edge_ptr, In<u32, 1> edge_pair, u32 edge_first, u32 size) {
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

template <class T>
void bind_objective(nb::module_& m, const char* objective, const char* scorer) {
  nb::class_<Objective<T>>(m, objective)
      .def(
          "__init__",
          [](Objective<T>* self, std::shared_ptr<const Layout> layout, const TokenArrays& data, In<i32, 1> gold,
             std::optional<In<double, 1>> seq_weight, std::optional<In<double, 1>> constraints, int threads) {
            const Tokens tokens = data.view();
            check_gold(tokens, layout->n_labels, gold);
            check_training(tokens, layout->n_labels, seq_weight, constraints);
            const nb::gil_scoped_release release;
            new (self) Objective<T>(layout, tokens, gold.data(), data_of(seq_weight), data_of(constraints),
                                    make_threads(threads));
          },
          "layout"_a, "data"_a, "gold"_a, "seq_weight"_a.none(), "constraints"_a.none(), "threads"_a)
      .def(
          "value_and_grad",
          [](Objective<T>& self, In<double, 1> w, double c2, Out<double, 1> g, int threads) {
            require(static_cast<i64>(w.size()) == self.size() && static_cast<i64>(g.size()) == self.size(),
                    "the weight vector has the wrong size");
            const nb::gil_scoped_release release;
            return self.value_and_grad(w.data(), c2, g.data(), make_threads(threads));
          },
          "w"_a, "c2"_a, "g"_a.noconvert(), "threads"_a)
      .def(
          "hessian_product",
          [](Objective<T>& self, In<double, 1> w, In<double, 1> v, double c2, Out<double, 1> out, int threads) {
            for (std::size_t size : {w.size(), v.size(), out.size()})
              require(static_cast<i64>(size) == self.size(), "the weight vector has the wrong size");
            const nb::gil_scoped_release release;
            self.hessian_product(w.data(), v.data(), c2, out.data(), make_threads(threads));
          },
          "w"_a, "v"_a, "c2"_a, "out"_a.noconvert(), "threads"_a)
      // tokens, labels in their beams, the largest beam, labels of beams by the criterion alone
      .def(
          "choose_beams",
          [](Objective<T>& self, In<double, 1> w, const std::string& kind, double amount, int size, bool grow,
             int threads) {
            require(static_cast<i64>(w.size()) == self.size(), "the weight vector has the wrong size");
            const Criterion rule = criterion_of(kind, amount, size);
            typename Objective<T>::BeamSizes sizes;
            {
              const nb::gil_scoped_release release;
              sizes = self.choose_beams(w.data(), rule, grow, make_threads(threads));
            }
            return nb::make_tuple(sizes.tokens, sizes.labels, sizes.largest, sizes.fresh);
          },
          "w"_a, "kind"_a, "amount"_a, "size"_a, "grow"_a, "threads"_a)
      .def(
          "beam_sizes",
          [](Objective<T>& self, In<double, 1> w, i64 block, const std::string& kind, double amount, int size,
             int threads) {
            require(static_cast<i64>(w.size()) == self.size(), "the weight vector has the wrong size");
            require(block >= 0 && block < self.n_blocks(), "there is no such block");
            const Criterion rule = criterion_of(kind, amount, size);
            typename Objective<T>::BeamSizes sizes;
            {
              const nb::gil_scoped_release release;
              sizes = self.beam_sizes(w.data(), block, rule, make_threads(threads));
            }
            return nb::make_tuple(sizes.tokens, sizes.labels, sizes.squares);
          },
          "w"_a, "block"_a, "kind"_a, "amount"_a, "size"_a, "threads"_a)
      .def(
          "block_size",
          [](const Objective<T>& self, i64 block) {
            require(block >= 0 && block < self.n_blocks(), "there is no such block");
            return self.block_size(block);
          },
          "block"_a)
      .def("drop_beams", &Objective<T>::drop_beams, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "block_value_and_grad",
          [](Objective<T>& self, In<double, 1> w, i64 block, bool beams, Out<double, 1> g, int threads) {
            require(static_cast<i64>(w.size()) == self.size() && static_cast<i64>(g.size()) == self.size(),
                    "the weight vector has the wrong size");
            require(block >= 0 && block < self.n_blocks(), "there is no such block");
            const nb::gil_scoped_release release;
            return self.block_value_and_grad(w.data(), block, beams, g.data(), make_threads(threads));
          },
          "w"_a, "block"_a, "beams"_a, "g"_a.noconvert(), "threads"_a)
      .def_prop_ro("n_blocks", &Objective<T>::n_blocks)
      .def_prop_ro("has_beams", &Objective<T>::has_beams)
      .def_prop_ro("size", &Objective<T>::size);
  nb::class_<Scorer<T>>(m, scorer)
      .def(
          "__init__",
          [](Scorer<T>* self, std::shared_ptr<const Layout> layout, In<double, 1> w,
             std::optional<In<double, 1>> constraints, int threads) {
            require(w.size() == layout->size, "the weight vector has the wrong size");
            require(!constraints || static_cast<i64>(constraints->size()) ==
                                        static_cast<i64>(layout->n_labels) * (layout->n_labels + 2),
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
          "data"_a, "threads"_a, "unary"_a.noconvert(), "pairwise"_a.noconvert())
      .def_prop_ro("per_step", &Scorer<T>::per_step);
}

ColumnView column_view(const StringTable& strings, const In<u32, 2>& ids, const In<i64, 1>& offsets) {
  check_offsets(offsets, static_cast<i64>(ids.shape(0)), "offsets must rise from 0 to the number of tokens");
  for (std::size_t k = 0; k < ids.size(); ++k)
    require(ids.data()[k] < strings.size(), "a column names a string that does not exist");
  ColumnView view;
  view.strings = &strings;
  view.n_columns = static_cast<int>(ids.shape(1));
  view.n_seq = static_cast<i64>(offsets.size()) - 1;
  view.ids = ids.data();
  view.offsets = offsets.data();
  return view;
}

StringTable make_strings(In<u8, 1> bytes, In<u64, 1> ends) {
  StringTable table;
  table.reserve(ends.size(), bytes.size());
  u64 begin = 0;
  for (std::size_t k = 0; k < ends.size(); ++k) {
    require(ends(k) >= begin && ends(k) <= bytes.size(), "the ends of the strings must rise to the number of bytes");
    const std::string_view s(reinterpret_cast<const char*>(bytes.data()) + begin, ends(k) - begin);
    require(invalid_utf8(s) == std::string_view::npos, "a string is not valid UTF-8");
    require(table.add(s) == k, "a string is there twice");
    begin = ends(k);
  }
  return table;
}

// None, or (line, what is wrong with it)
template <class Builder>
nb::object parse_into(Builder& self, nb::bytes text, i64 first_line) {
  const std::string_view s(text.c_str(), text.size());
  try {
    const nb::gil_scoped_release release;
    self.parse(s, first_line);
  } catch (const LineError& e) {
    return nb::make_tuple(e.line, std::string(e.what()));
  }
  return nb::none();
}

void bind_text(nb::module_& m) {
  nb::class_<StringTable>(m, "StringTable")
      .def(nb::init<>())
      .def_static("from_arrays", &make_strings, "bytes"_a, "ends"_a)
      .def("__len__", &StringTable::size)
      .def("__getitem__",
           [](const StringTable& self, i64 i) {
             if (i < 0 || i >= static_cast<i64>(self.size())) throw nb::index_error();
             return self[static_cast<u32>(i)];
           })
      .def("find",
           [](const StringTable& self, std::string_view s) -> i64 {
             const u32 id = self.find(s);
             return id == kNone ? -1 : static_cast<i64>(id);
           })
      .def("add", &StringTable::add)
      // the numbers here of another table's strings, 2^32 - 1 for those that are unknown; grow: adds them instead
      .def(
          "translate",
          [](StringTable& self, const StringTable& other, bool grow) {
            std::vector<u32> out;
            out.reserve(other.size());
            for (u32 k = 0; k < other.size(); ++k) out.push_back(grow ? self.add(other[k]) : self.find(other[k]));
            return own(std::move(out));
          },
          "other"_a, "grow"_a)
      .def("copy", [](const StringTable& self) { return StringTable(self); })
      .def("pruned",
           [](const StringTable& self, In<u8, 1> keep) {
             require(keep.size() == self.size(), "the marks of what to keep have the wrong size");
             StringTable out;
             for (u32 k = 0; k < self.size(); ++k)
               if (keep(k)) out.add(self[k]);
             return out;
           })
      .def("tolist",
           [](const StringTable& self) {
             nb::list out;
             for (u32 k = 0; k < self.size(); ++k) out.append(nb::str(self[k].data(), self[k].size()));
             return out;
           })
      .def("arrays", [](const StringTable& self) {
        return nb::make_tuple(own(std::vector<u8>(self.bytes().begin(), self.bytes().end())),
                              own(std::vector<u64>(self.ends())));
      });
  nb::class_<ColumnBuilder>(m, "ColumnBuilder")
      .def(
          "__init__",
          [](ColumnBuilder* self, const std::string& separator, std::string comment, std::string document,
             bool conllu) {
            require(separator == "auto" || separator == "tab" || separator == "blank",
                    "separator must be auto, tab or blank");
            new (self) ColumnBuilder({separator == "auto"  ? 'a'
                                      : separator == "tab" ? '\t'
                                                           : '\0',
                                      std::move(comment), std::move(document), conllu});
          },
          "separator"_a, "comment"_a, "document"_a, "conllu"_a)
      .def("parse", &parse_into<ColumnBuilder>, "text"_a, "first_line"_a)
      .def("read_rows", [](ColumnBuilder& self, nb::handle rows) { read_rows(rows, self); })
      // The sequences that have ended (all of them if final): strings, ids [tokens * columns], offsets, columns.
      .def(
          "take",
          [](ColumnBuilder& self, bool final) {
            if (final) self.end_sequence();
            ColumnBuilder taken = self.take();
            return nb::make_tuple(std::move(taken.strings), own(std::move(taken.ids)), own(std::move(taken.offsets)),
                                  taken.n_columns);
          },
          "final"_a);
  nb::class_<ItemBuilder>(m, "ItemBuilder")
      .def(nb::init<bool>(), "keep_zeros"_a = false)
      .def("parse", &parse_into<ItemBuilder>, "text"_a, "first_line"_a)
      .def("read_items",
           [](ItemBuilder& self, nb::handle sequences) {
             try {
               ItemReader<ItemBuilder>(self).read(sequences);
             } catch (...) {
               self.drop_open();
               throw;
             }
           })
      // names, offsets, ptr, attributes, values or None, labels, label of each token, weights
      .def("take", [](ItemBuilder& self) {
        self.end_sequence();
        nb::object value = nb::none();
        if (!self.value.empty()) value = nb::cast(own(std::move(self.value)));
        nb::object out = nb::make_tuple(std::move(self.names), own(std::move(self.offsets)), own(std::move(self.ptr)),
                                        own(std::move(self.attr)), value, std::move(self.labels),
                                        own(std::move(self.label)), own(std::move(self.weight)));
        self = self.fresh();
        return out;
      });
  m.def(
      "word_form",
      [](std::string_view word, int form, int n) { return word_form(word, static_cast<WordForm>(form), n); }, "word"_a,
      "form"_a, "n"_a);
  m.def(
      "observed_pairs",
      [](In<i64, 1> ptr, In<u32, 1> attr, u32 n_attributes, In<u32, 1> column, u32 n_columns, double min_count) {
        check_offsets(ptr, static_cast<i64>(attr.size()),
                      "attribute pointers must rise from 0 to the number of attributes");
        require(column.size() + 1 == ptr.size(), "there must be a label for every token");
        for (std::size_t k = 0; k < attr.size(); ++k) require(attr(k) < n_attributes, "no such attribute");
        for (std::size_t t = 0; t < column.size(); ++t)
          require(column(t) < n_columns || column(t) == kNone, "no such label");
        Observed out;
        {
          const nb::gil_scoped_release release;
          out = observed_pairs(ptr.data(), attr.data(), static_cast<i64>(column.size()), n_attributes, column.data(),
                               n_columns, min_count);
        }
        return nb::make_tuple(own(std::move(out.ptr)), own(std::move(out.column)));
      },
      "ptr"_a, "attr"_a, "n_attributes"_a, "column"_a, "n_columns"_a, "min_count"_a);

  // nodes: ("leaf", column, form, n), ("join", a, b, distance, between), ("always",), ("first",), ("last",),
  //        ("pattern", column, command, lower, absolute, place, regex)
  // templates: (node, offset, prefix, suffix, edge)
  nb::class_<TemplateEncoder>(m, "TemplateEncoder")
      .def(
          "__init__",
          [](TemplateEncoder* self, const std::vector<nb::tuple>& nodes,
             const std::vector<std::tuple<int, int, std::string, std::string, bool>>& templates, int pad) {
            require(pad >= 0 && pad <= 2, "there is no such padding");
            std::vector<Node> made;
            for (const nb::tuple& x : nodes) {
              const std::string kind = x.size() > 0 && nb::isinstance<nb::str>(x[0]) ? nb::cast<std::string>(x[0]) : "";
              const bool joins = kind == "join", marks = kind == "first" || kind == "last" || kind == "always";
              const bool patterns = kind == "pattern";
              require(x.size() == (kind == "leaf" ? 4u
                                   : joins        ? 5u
                                   : patterns     ? 7u
                                                  : 1u) &&
                          (kind == "leaf" || joins || patterns || marks),
                      "a node of the plan is damaged");
              for (std::size_t k = 1; k < x.size(); ++k)
                require((joins && k == 4) || (patterns && k == 6) ? nb::isinstance<nb::str>(x[k])
                                                                  : nb::isinstance<nb::int_>(x[k]),
                        "a node of the plan is damaged");
              if (kind == "leaf")
                made.push_back(
                    Node::leaf(nb::cast<int>(x[1]), static_cast<WordForm>(nb::cast<int>(x[2])), nb::cast<int>(x[3])));
              else if (patterns) {
                const int command = nb::cast<int>(x[2]);
                require(command >= 1 && command <= 3, "a node of the plan is damaged");
                made.push_back(Node::pattern(nb::cast<int>(x[1]), static_cast<Node::Command>(command),
                                             nb::cast<int>(x[3]) != 0, nb::cast<int>(x[4]) != 0, nb::cast<int>(x[5]),
                                             nb::cast<std::string>(x[6])));
              } else if (kind == "join")
                made.push_back(Node::join(nb::cast<int>(x[1]), nb::cast<int>(x[2]), nb::cast<int>(x[3]),
                                          nb::cast<std::string>(x[4])));
              else
                made.push_back(Node::mark(kind == "first"  ? Node::Kind::first
                                          : kind == "last" ? Node::Kind::last
                                                           : Node::Kind::always));
            }
            std::vector<Template> list;
            for (const auto& [node, offset, prefix, suffix, edge] : templates)
              list.push_back({node, offset, prefix, suffix, edge});
            new (self) TemplateEncoder(std::move(made), std::move(list), static_cast<Padding>(pad));
          },
          "nodes"_a, "templates"_a, "pad"_a)
      .def(
          "encode",
          [](TemplateEncoder& self, const StringTable& strings, In<u32, 2> ids, In<i64, 1> offsets, bool grow,
             int threads) {
            const ColumnView view = column_view(strings, ids, offsets);
            Attributes state, edge;
            {
              const nb::gil_scoped_release release;
              self.encode(view, grow, make_threads(threads), state, edge);
            }
            nb::object edge_ptr = nb::none(), edge_attr = nb::none();
            if (self.has_edges()) {
              edge_ptr = nb::cast(own(std::move(edge.ptr)));
              edge_attr = nb::cast(own(std::move(edge.attr)));
            }
            return nb::make_tuple(own(std::move(state.ptr)), own(std::move(state.attr)), edge_ptr, edge_attr);
          },
          "strings"_a, "ids"_a, "offsets"_a, "grow"_a, "threads"_a)
      .def("n_attributes", &TemplateEncoder::n_attributes, "edge"_a)
      .def("name", &TemplateEncoder::name, "attribute"_a, "edge"_a)
      .def("names", &TemplateEncoder::names, "edge"_a)
      .def_prop_ro("has_edges", &TemplateEncoder::has_edges)
      .def_prop_ro("n_columns", &TemplateEncoder::n_columns)
      .def("copy", [](const TemplateEncoder& self) { return TemplateEncoder(self); })
      .def(
          "learn",
          [](TemplateEncoder& self, const StringTable& state, const StringTable& edge) {
            TemplateEncoder::Marks marks = self.learn(state, edge);
            return nb::make_tuple(own(std::move(marks.state)), own(std::move(marks.edge)));
          },
          "state"_a, "edge"_a)
      .def(
          "pruned",
          [](const TemplateEncoder& self, In<u8, 1> state, In<u8, 1> edge) {
            return self.pruned(to_vector<u8>(state), to_vector<u8>(edge));
          },
          "keep_state"_a, "keep_edge"_a)
      .def("vocabulary",
           [](const TemplateEncoder& self) {
             nb::list strings, pairs, attribute;
             for (const StringTable& table : self.vocabulary().strings) strings.append(nb::cast(StringTable(table)));
             for (const PairTable& table : self.vocabulary().pairs) {
               std::vector<u32> flat;
               for (u32 k = 0; k < table.size(); ++k) flat.insert(flat.end(), {table.first(k), table.second(k)});
               pairs.append(own(std::move(flat)));
             }
             for (const std::vector<u32>& x : self.vocabulary().attribute) attribute.append(own(std::vector<u32>(x)));
             return nb::make_tuple(strings, pairs, attribute);
           })
      .def(
          "restore",
          [](TemplateEncoder& self, const std::vector<const StringTable*>& strings,
             const std::vector<In<u32, 1>>& pairs, const std::vector<In<u32, 1>>& attribute, u32 n_state, u32 n_edge) {
            TemplateEncoder::Vocabulary vocabulary;
            for (const StringTable* table : strings) vocabulary.strings.push_back(*table);
            for (const auto& flat : pairs) {
              PairTable table;
              table.reserve(flat.size() / 2);
              require(flat.size() % 2 == 0, "pairs come in twos");
              for (std::size_t k = 0; k < flat.size(); k += 2)
                require(table.add(flat(k), flat(k + 1)) == k / 2, "a pair is there twice");
              vocabulary.pairs.push_back(std::move(table));
            }
            for (const auto& x : attribute) vocabulary.attribute.push_back(to_vector<u32>(x));
            self.restore(std::move(vocabulary), n_state, n_edge);
          },
          "strings"_a, "pairs"_a, "attribute"_a, "n_state"_a, "n_edge"_a);
}

void bind_memory(nb::module_& m) {
  m.def(
      "dot",
      [](In<double, 1> a, In<double, 1> b) {
        require(a.size() == b.size(), "the vectors differ in size");
        const nb::gil_scoped_release release;
        return dot(a.data(), b.data(), static_cast<i64>(a.size()));
      },
      "a"_a, "b"_a);
  nb::class_<Memory>(m, "Memory")
      .def(nb::init<i64, int>(), "size"_a, "capacity"_a)
      .def(
          "push",
          [](Memory& self, In<double, 1> x, In<double, 1> x_old, In<double, 1> g, In<double, 1> g_old, int threads) {
            for (const auto* v : {&x, &x_old, &g, &g_old})
              require(static_cast<i64>(v->size()) == self.size(), "a vector has the wrong size");
            const nb::gil_scoped_release release;
            return self.push(x.data(), x_old.data(), g.data(), g_old.data(), make_threads(threads));
          },
          "x"_a, "x_old"_a, "g"_a, "g_old"_a, "threads"_a)
      .def(
          "direction",
          [](Memory& self, In<double, 1> v, Out<double, 1> d, int threads) {
            require(static_cast<i64>(v.size()) == self.size() && static_cast<i64>(d.size()) == self.size(),
                    "a vector has the wrong size");
            const nb::gil_scoped_release release;
            self.direction(v.data(), d.data(), make_threads(threads));
          },
          "v"_a, "d"_a.noconvert(), "threads"_a)
      .def("clear", &Memory::clear)
      .def("__len__", &Memory::count);
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
  bind_beams<float>(m);
  bind_beams<double>(m);
  bind_expectation(m);
  nb::class_<Layout>(m, "Layout")
      .def(nb::new_(&make_layout), "n_labels"_a, "state_ptr"_a, "state_label"_a, "transition"_a, "start"_a, "end"_a,
           "edge_ptr"_a, "edge_pair"_a, "edge_first"_a, "size"_a);
  nb::class_<TokenArrays>(m, "Tokens")
      .def(nb::init<In<i64, 1>, In<i64, 1>, In<u32, 1>, std::optional<In<double, 1>>, std::optional<In<i64, 1>>,
                    std::optional<In<u32, 1>>>(),
           "offsets"_a, "ptr"_a, "attr"_a, "value"_a.none(), "edge_ptr"_a.none(), "edge_attr"_a.none());
  bind_text(m);
  bind_memory(m);
  bind_graph(m);
  bind_objective<float>(m, "ObjectiveF32", "ScorerF32");
  bind_objective<double>(m, "ObjectiveF64", "ScorerF64");
  bind_compat(m);
  bind_entropy(m);
  bind_online(m);
}
