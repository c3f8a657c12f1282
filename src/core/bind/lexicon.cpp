// lexicon.cpp: the Python face of what is known of words: classes, gazetteers, vectors.
#include "text/lexicon.hpp"

#include "bind/arrays.hpp"
#include "bind/parsing.hpp"

namespace crfkit {
namespace {

Folding folding_of(const std::string& name) {
  if (name == "exact") return Folding::exact;
  if (name == "lower") return Folding::lower;
  require(name == "either", "words are looked up exact, lower or either");
  return Folding::either;
}

void bind_gazetteers(nb::module_& m) {
  nb::class_<Gazetteer>(m, "Gazetteer")
      .def(
          "__init__",
          [](Gazetteer* self, const StringTable& words, const std::string& folding, In<u32, 1> first, In<u32, 1> label,
             In<u8, 1> last) {
            Gazetteer::Trie trie{to_vector<u32>(first), to_vector<u32>(label), to_vector<u8>(last)};
            new (self) Gazetteer({words, folding_of(folding)}, std::move(trie));
          },
          "words"_a, "folding"_a, "first"_a, "label"_a, "last"_a)
      .def("__len__", &Gazetteer::size)
      // of the words of a sequence: a mark or None
      .def(
          "marks",
          [](const Gazetteer& self, const std::vector<std::string_view>& words) {
            std::vector<u32> ids;
            std::vector<u32> places;
            for (std::string_view word : words) {
              ids.push_back(self.words().find(word));
              places.push_back(self.start(ids.back()));
            }
            self.match(ids.data(), places.data(), std::ssize(ids));
            std::vector<std::optional<std::string_view>> out(ids.size());
            for (std::size_t t = 0; t < ids.size(); ++t)
              if (ids[t] != kNone) out[t] = Gazetteer::marks()[ids[t]];
            return out;
          },
          "words"_a)
      .def_prop_ro("words", [](const Gazetteer& self) { return StringTable(self.words().words); })
      // first, label, last: see Gazetteer::Trie
      .def("trie", [](const Gazetteer& self) {
        const Gazetteer::Trie& x = self.trie();
        return own_all(std::vector<u32>(x.first), std::vector<u32>(x.label), std::vector<u8>(x.last));
      });
  nb::class_<GazetteerBuilder>(m, "GazetteerBuilder")
      .def(
          "__init__",
          [](GazetteerBuilder* self, const std::string& folding) { new (self) GazetteerBuilder(folding_of(folding)); },
          "folding"_a)
      .def("parse", &parse_into<GazetteerBuilder>, "text"_a, "first_line"_a)
      .def("add", &GazetteerBuilder::add, "phrase"_a)
      .def("build", [](GazetteerBuilder& self) { return unlocked([&] { return self.build(); }); });
}

}  // namespace

void bind_lexicons(nb::module_& m) {
  nb::class_<ClassTable>(m, "ClassTable")
      .def(
          "__init__",
          [](ClassTable* self, const StringTable& words, const std::string& folding, const StringTable& codes,
             In<u32, 1> code_of) {
            new (self) ClassTable({words, folding_of(folding)}, codes, to_vector<u32>(code_of));
          },
          "words"_a, "folding"_a, "codes"_a, "code_of"_a);
  bind_gazetteers(m);
  nb::class_<VectorTable>(m, "VectorTable")
      .def(
          "__init__",
          [](VectorTable* self, const StringTable& words, const std::string& folding, In<float, 2> values) {
            std::vector<float> copy(values.data(), values.data() + values.size());
            new (self) VectorTable({words, folding_of(folding)}, std::move(copy), static_cast<u32>(values.shape(1)));
          },
          "words"_a, "folding"_a, "values"_a);
  nb::class_<VectorReader>(m, "VectorReader")
      .def(nb::init<u32>(), "n"_a)
      .def("parse", &parse_into<VectorReader>, "text"_a, "first_line"_a)
      .def(
          "parse_binary",
          [](VectorReader& self, nb::bytes bytes) {
            const std::string_view s(bytes.c_str(), bytes.size());
            return unlocked([&] { return self.parse_binary(s); });
          },
          "bytes"_a)
      .def_prop_ro("seen", &VectorReader::seen)
      .def_prop_ro("invalid", &VectorReader::invalid)
      .def_prop_ro("first_invalid", &VectorReader::first_invalid)
      .def_prop_ro("n", &VectorReader::n)
      // words, numbers one after another
      .def("take", [](const VectorReader& self) {
        return nb::make_tuple(StringTable(self.words()), own(std::vector<float>(self.values())));
      });
  nb::class_<Lexicon>(m, "Lexicon")
      .def(
          "__init__",
          [](Lexicon* self, std::vector<std::shared_ptr<ClassTable>> classes,
             std::vector<std::shared_ptr<Gazetteer>> gazetteers, std::shared_ptr<VectorTable> vectors) {
            new (self) Lexicon({classes.begin(), classes.end()}, {gazetteers.begin(), gazetteers.end()}, vectors);
          },
          "classes"_a, "gazetteers"_a, "vectors"_a.none())
      .def_prop_ro("n_columns", &Lexicon::n_columns)
      .def_prop_ro("n_numbers", &Lexicon::n_numbers);
}

}  // namespace crfkit
