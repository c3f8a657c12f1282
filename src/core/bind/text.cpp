// text.cpp: the Python face of text: numbered strings, columns and items, templates.
#include "bind/arrays.hpp"
#include "bind/columns.hpp"
#include "bind/objects.hpp"
#include "bind/parsing.hpp"
#include "text/columns.hpp"
#include "text/encoder.hpp"
#include "text/packing.hpp"
#include "text/run_keys.hpp"

namespace crfkit {
namespace {

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

// Low and high half of each [keys, 2].
nb::ndarray<nb::numpy, u64, nb::ndim<2>> own_keys(std::vector<Key>&& keys) {
  static_assert(sizeof(Key) == 2 * sizeof(u64));
  auto* kept = new std::vector<Key>(std::move(keys));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<Key>*>(p); });
  return {kept->data(), {kept->size(), 2}, owner};
}

// Bytes and ends.
nb::tuple strings_of(const StringTable& self) {
  return own_all(std::vector<u8>(self.bytes().begin(), self.bytes().end()), std::vector<u64>(self.ends()));
}

void bind_strings(nb::module_& m) {
  nb::class_<StringTable>(m, "StringTable")
      .def(nb::init<>())
      .def_static("from_arrays", &make_strings, "bytes"_a, "ends"_a)
      .def("__len__", &StringTable::size)
      .def("__getitem__",
           [](const StringTable& self, i64 i) {
             if (i < 0 || i >= self.size()) throw nb::index_error();
             return self[static_cast<u32>(i)];
           })
      .def("find",
           [](const StringTable& self, std::string_view s) -> i64 {
             const u32 id = self.find(s);
             return id == kNone ? -1 : i64{id};
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
      .def_prop_ro("memory", &StringTable::memory)
      .def(
          "keys",
          [](const StringTable& self, u64 seed) {
            const KeyMaker make(seed);
            std::vector<Key> keys;
            for (u32 k = 0; k < self.size(); ++k) keys.push_back(make.of(self[k]));
            return own_keys(std::move(keys));
          },
          "seed"_a)
      .def("tolist",
           [](const StringTable& self) {
             nb::list out;
             for (u32 k = 0; k < self.size(); ++k) out.append(nb::str(self[k].data(), self[k].size()));
             return out;
           })
      .def("arrays", &strings_of);
  m.def(
      "word_form",
      [](std::string_view word, int form, int n) { return word_form(word, static_cast<WordForm>(form), n); }, "word"_a,
      "form"_a, "n"_a);
}

void bind_builders(nb::module_& m) {
  nb::class_<ColumnBuilder>(m, "ColumnBuilder")
      .def(
          "__init__",
          [](ColumnBuilder* self, const std::string& separator, std::string comment, std::string document, bool conllu,
             int n_columns) {
            const char mark = named<char>("separator", separator, {{"tab", '\t'}, {"blank", '\0'}, {"auto", 'a'}});
            new (self) ColumnBuilder({mark, std::move(comment), std::move(document), conllu});
            self->n_columns = n_columns;
          },
          "separator"_a, "comment"_a, "document"_a, "conllu"_a, "n_columns"_a = 0)
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
               ItemReader(self).read(sequences);
             } catch (...) {
               self.drop_open();
               throw;
             }
           })
      // names, offsets, ptr, attributes, values or None, labels, label of each token, weights
      .def("take", [](ItemBuilder& self) {
        self.end_sequence();
        ItemBuilder x = std::exchange(self, self.fresh());
        return nb::make_tuple(std::move(x.names), own(std::move(x.offsets)), own(std::move(x.ptr)),
                              own(std::move(x.attr)), own_or_none(std::move(x.value)), std::move(x.labels),
                              own(std::move(x.label)), own(std::move(x.weight)));
      });
  // Column text with a label, and if given its probability, after every row.
  m.def(
      "write_columns",
      [](const StringTable& strings, In<u32, 2> ids, In<i64, 1> offsets, In<i32, 1> path,
         const std::vector<std::string>& labels, std::optional<In<double, 1>> probability) {
        const ColumnView rows = column_view(strings, ids, offsets);
        require(shaped(path, rows.n_tokens()), "there must be a label for every token");
        require(shaped(probability, rows.n_tokens()), "there must be a probability for every token");
        const auto out = unlocked([&] { return write_columns(rows, path.data(), labels, data_of(probability)); });
        return nb::bytes(out.data(), out.size());
      },
      "strings"_a, "ids"_a, "offsets"_a, "path"_a, "labels"_a, "probability"_a.none());
}

// ("leaf", column, form, n), ("join", a, b, distance, between), ("always",), ("first",), ("last",),
// ("pattern", column, command, lower, absolute, place, regex), or of a lexicon ("derived", column, form, n), ("number",
// k)
Node make_node(const nb::tuple& x) {
  constexpr const char* kDamaged = "a node of the plan is damaged";
  const auto number = [&](std::size_t k) {
    require(k < x.size() && nb::isinstance<nb::int_>(x[k]), kDamaged);
    return nb::cast<int>(x[k]);
  };
  const auto text = [&](std::size_t k) {
    require(k < x.size() && nb::isinstance<nb::str>(x[k]), kDamaged);
    return nb::cast<std::string>(x[k]);
  };
  const std::string kind = text(0);
  Node node;
  std::size_t size = 1;
  if (kind == "leaf" || kind == "derived") {
    require(number(2) >= 0 && number(2) <= static_cast<int>(WordForm::start), kDamaged);
    node = {.kind = Node::Kind::leaf,
            .column = number(1),
            .derived = kind == "derived",
            .form = static_cast<WordForm>(number(2)),
            .n = number(3)};
    size = 4;
  } else if (kind == "number") {
    node = {.kind = Node::Kind::number, .column = number(1)};
    size = 2;
  } else if (kind == "pattern") {
    const int command = number(2);
    require(command >= 1 && command <= 3, kDamaged);
    node = {.kind = Node::Kind::leaf,
            .column = number(1),
            .command = static_cast<Node::Command>(command),
            .lower = number(3) != 0,
            .absolute = number(4) != 0,
            .place = number(5),
            .regex = text(6)};
    size = 7;
  } else if (kind == "join") {
    node = {.kind = Node::Kind::join, .a = number(1), .b = number(2), .distance = number(3), .between = text(4)};
    size = 5;
  } else {
    require(kind == "first" || kind == "last" || kind == "always", kDamaged);
    node.kind = kind == "first" ? Node::Kind::first : kind == "last" ? Node::Kind::last : Node::Kind::always;
  }
  require(x.size() == size, kDamaged);
  return node;
}

auto pairs_of(const PairTable& table) {
  std::vector<u32> flat;
  flat.reserve(2 * std::size_t{table.size()});
  for (u32 k = 0; k < table.size(); ++k) flat.insert(flat.end(), {table.first(k), table.second(k)});
  return own(std::move(flat));
}

// strings, pairs, attributes: see TemplateEncoder::Vocabulary
nb::tuple vocabulary_of(const TemplateEncoder& self) {
  nb::list strings, pairs, attribute;
  for (const StringTable& table : self.vocabulary().strings) strings.append(nb::cast(StringTable(table)));
  for (const PairTable& table : self.vocabulary().pairs) pairs.append(pairs_of(table));
  for (const std::vector<u32>& x : self.vocabulary().attribute) attribute.append(own(std::vector<u32>(x)));
  return nb::make_tuple(strings, pairs, attribute);
}

void restore(TemplateEncoder& self, const std::vector<const StringTable*>& strings,
             const std::vector<In<u32, 1>>& pairs, const std::vector<In<u32, 1>>& attribute, u32 n_state, u32 n_edge) {
  TemplateEncoder::Vocabulary vocabulary;
  for (const StringTable* table : strings) vocabulary.strings.push_back(*table);
  for (const auto& flat : pairs) {
    PairTable& table = vocabulary.pairs.emplace_back();
    table.reserve(flat.size() / 2);
    require(flat.size() % 2 == 0, "pairs come in twos");
    for (std::size_t k = 0; k < flat.size(); k += 2)
      require(table.add(flat(k), flat(k + 1)) == k / 2, "a pair is there twice");
  }
  for (const auto& x : attribute) vocabulary.attribute.push_back(to_vector<u32>(x));
  self.restore(std::move(vocabulary), n_state, n_edge);
}

template <class T>
std::span<const T> span_of(const In<T, 1>& x) {
  return {x.data(), x.size()};
}

// strings: (bytes, ends)
void adopt(TemplateEncoder& self, const std::vector<std::pair<In<u8, 1>, In<u64, 1>>>& strings,
           const std::vector<In<u32, 1>>& pairs, const std::vector<In<u32, 1>>& attribute, In<u32, 1> state,
           In<u32, 1> edge) {
  TemplateEncoder::Flat flat;
  for (const auto& [bytes, ends] : strings)
    flat.strings.push_back({{reinterpret_cast<const char*>(bytes.data()), bytes.size()}, span_of(ends)});
  for (const auto& x : pairs) flat.pairs.push_back(span_of(x));
  for (const auto& x : attribute) flat.attribute.push_back(span_of(x));
  unlocked([&] { self.adopt(flat, span_of(state), span_of(edge)); });
}

// A part: attributes, counts, values or None, numbers.
using PartTuple = std::tuple<In<u32, 1>, In<u16, 1>, std::optional<In<double, 1>>, In<u32, 1>>;

// A run: records and firsts of its keys, pieces [pieces, 2], and what is found: numbers, and which are its own.
using RunTuple = std::tuple<In<u64, 1>, In<i64, 1>, In<i64, 2>, Out<u32, 1>, Out<u8, 1>>;

void bind_packer(nb::module_& m) {
  nb::class_<BlockPacker>(m, "BlockPacker")
      .def(nb::init<u32>(), "n_attributes"_a)
      // attributes, entries, counts, values or None
      .def(
          "pack",
          [](BlockPacker& self, const std::vector<PartTuple>& tuples) {
            std::vector<PackPart> parts;
            for (const auto& [attr, count, value, number] : tuples) {
              require(shaped(value, attr.size()), "there must be a value for every attribute");
              parts.push_back({span_of(attr), span_of(count), {}, span_of(number)});
              if (value) parts.back().value = span_of(*value);
            }
            BlockPacker::Packed out = unlocked([&] { return self.pack(parts); });
            return nb::make_tuple(own(std::move(out.attr)), own(std::move(out.entry)), own(std::move(out.count)),
                                  own_or_none(std::move(out.value)));
          },
          "parts"_a);
  // records, firsts: see SortedKeys
  m.def(
      "sort_keys",
      [](In<u64, 2> keys, In<u32, 1> count) {
        require(shaped(keys, count.size(), 2), "the keys must be as many as their counts");
        SortedKeys out = unlocked([&] { return sort_keys(keys.data(), span_of(count)); });
        return own_all(std::move(out.records), std::move(out.first));
      },
      "keys"_a, "count"_a);
  m.def(
      "merge_keys",
      [](const std::vector<RunTuple>& tuples, double min_freq, int threads) {
        std::vector<RunKeys> runs;
        for (const auto& [records, first, pieces, number, own] : tuples) {
          const std::size_t n = number.size();
          require(first.size() == (1 << SortedKeys::kBits) + 1 && first(first.size() - 1) == static_cast<i64>(n) &&
                      shaped(records, 3 * n) && shaped(own, n) && pieces.shape(1) == 2,
                  "the keys of a run are damaged");
          RunKeys& run = runs.emplace_back();
          run.records = span_of(records);
          run.first = span_of(first);
          run.number = {number.data(), n};
          run.own = {own.data(), n};
          for (std::size_t k = 0; k < pieces.shape(0); ++k) run.pieces.push_back({pieces(k, 0), pieces(k, 1)});
        }
        return unlocked([&] { return merge_keys(runs, min_freq, make_threads(threads)); });
      },
      "runs"_a, "min_freq"_a, "threads"_a);
  // counts[attr[k]] += 1
  m.def(
      "add_counts",
      [](In<u32, 1> attr, Out<u32, 1> counts) {
        const nb::gil_scoped_release release;
        u32* count = counts.data();
        const u32* a = attr.data();
        const std::size_t n = attr.size(), size = counts.size();
        for (std::size_t k = 0; k < n; ++k) {
          require(a[k] < size, "there is no count for an attribute");
          count[a[k]] += count[a[k]] < kNone;
        }
      },
      "attr"_a, "counts"_a.noconvert());
}

// Of what several encoders have in common.
void bind_merging(nb::class_<TemplateEncoder>& encoder) {
  using Self = TemplateEncoder;
  encoder
      .def(
          "absorb",
          [](Self& self, const Self& other) {
            Self::Numbers numbers = unlocked([&] { return self.absorb(other); });
            return own_all(std::move(numbers.state), std::move(numbers.edge));
          },
          "other"_a)
      .def(
          "translate",
          [](const Self& self, const Self& other) {
            Self::Numbers out = unlocked([&] { return self.translate(other); });
            return own_all(std::move(out.state), std::move(out.edge));
          },
          "other"_a)
      .def_prop_ro("shares_names", &Self::shares_names)
      .def("adopt", &adopt, "strings"_a, "pairs"_a, "attribute"_a, "state"_a, "edge"_a);
}

void bind_encoder(nb::module_& m) {
  using Self = TemplateEncoder;
  nb::class_<Self> encoder(m, "TemplateEncoder");
  bind_merging(encoder);
  encoder
      // templates: (node, offset, prefix, suffix, edge)
      .def(
          "__init__",
          [](Self* self, const std::vector<nb::tuple>& nodes,
             const std::vector<std::tuple<int, int, std::string, std::string, bool>>& templates, int pad) {
            require(pad >= 0 && pad <= 2, "there is no such padding");
            std::vector<Node> made;
            for (const nb::tuple& x : nodes) made.push_back(make_node(x));
            std::vector<Template> list;
            for (const auto& [node, offset, prefix, suffix, edge] : templates)
              list.push_back({node, offset, prefix, suffix, edge});
            new (self) Self(std::move(made), std::move(list), static_cast<Padding>(pad));
          },
          "nodes"_a, "templates"_a, "pad"_a)
      .def(
          "encode",
          [](Self& self, const StringTable& strings, In<u32, 2> ids, In<i64, 1> offsets, const Lexicon* lexicon,
             bool grow, int threads) {
            const ColumnView view = column_view(strings, ids, offsets);
            Attributes state, edge;
            unlocked([&] { self.encode(view, lexicon, grow, make_threads(threads), state, edge); });
            nb::object edge_ptr = nb::none(), edge_attr = nb::none();
            if (self.has_edges()) {
              edge_ptr = nb::cast(own(std::move(edge.ptr)));
              edge_attr = nb::cast(own(std::move(edge.attr)));
            }
            const nb::object value = self.has_values() ? nb::cast(own(std::move(state.value))) : nb::none();
            return nb::make_tuple(own(std::move(state.ptr)), own(std::move(state.attr)), value, edge_ptr, edge_attr);
          },
          "strings"_a, "ids"_a, "offsets"_a, "lexicon"_a.none(), "grow"_a, "threads"_a)
      .def("n_attributes", &Self::n_attributes, "edge"_a)
      .def("names", &Self::names, "edge"_a)
      .def_prop_ro("has_edges", &Self::has_edges)
      .def("copy", [](const Self& self) { return Self(self); })
      .def(
          "learn",
          [](Self& self, const StringTable& state, const StringTable& edge) {
            Self::Marks marks = unlocked([&] { return self.learn(state, edge, make_threads(1).poll); });
            return own_all(std::move(marks.state), std::move(marks.edge));
          },
          "state"_a, "edge"_a)
      .def(
          "pruned",
          [](const Self& self, In<u8, 1> state, In<u8, 1> edge) {
            const std::vector<u8> keep_state = to_vector<u8>(state), keep_edge = to_vector<u8>(edge);
            return unlocked([&] { return self.pruned(keep_state, keep_edge); });
          },
          "keep_state"_a, "keep_edge"_a)
      .def_prop_ro("memory", &Self::memory)
      // how many tables of strings, of pairs and of attributes there are; and one of them
      .def_prop_ro("tables",
                   [](const Self& self) {
                     const auto& x = self.vocabulary();
                     return nb::make_tuple(x.strings.size(), x.pairs.size(), x.attribute.size());
                   })
      .def("strings_of", [](const Self& self, std::size_t k) { return strings_of(self.vocabulary().strings.at(k)); })
      .def("pairs_of", [](const Self& self, std::size_t k) { return pairs_of(self.vocabulary().pairs.at(k)); })
      .def("attributes_of",
           [](const Self& self, std::size_t k) { return own(std::vector<u32>(self.vocabulary().attribute.at(k))); })
      .def(
          "keys",
          [](const Self& self, bool edge, u64 seed) {
            return own_keys(unlocked([&] { return self.keys(edge, seed); }));
          },
          "edge"_a, "seed"_a)
      .def("vocabulary", &vocabulary_of)
      .def("restore", &restore, "strings"_a, "pairs"_a, "attribute"_a, "n_state"_a, "n_edge"_a);
}

}  // namespace

void bind_text(nb::module_& m) {
  bind_strings(m);
  bind_builders(m);
  bind_encoder(m);
  bind_packer(m);
}

}  // namespace crfkit
