// words.cpp: the Python face of word classes.
#include "bind/arrays.hpp"
#include "bind/columns.hpp"
#include "words/bigrams.hpp"
#include "words/brown.hpp"
#include "words/k_means.hpp"
#include "words/spectral.hpp"

namespace crfkit {
namespace {

Bigrams make_bigrams(const In<i64, 1>& ptr, const In<u32, 1>& next, const In<u32, 1>& count) {
  check_offsets(ptr, std::ssize(next), "rows of bigrams must rise from 0 to their number");
  require(next.size() == count.size(), "there must be a count for every bigram");
  const std::size_t n = ptr.size() - 1;
  for (std::size_t k = 0; k < next.size(); ++k) require(next(k) < n, "a bigram names a word that does not exist");
  return {to_vector<i64>(ptr), to_vector<u32>(next), to_vector<u32>(count)};
}

auto flat(const std::vector<std::pair<u32, u32>>& pairs) {
  std::vector<u32> out;
  for (const auto& [a, b] : pairs) out.insert(out.end(), {a, b});
  return own(std::move(out));
}

void bind_counter(nb::module_& m) {
  nb::class_<WordCounter>(m, "WordCounter")
      .def(nb::init<>())
      .def(
          "add",
          [](WordCounter& self, const StringTable& strings, In<u32, 2> ids, In<i64, 1> offsets, int column,
             bool lower) {
            const ColumnView view = column_view(strings, ids, offsets);
            require(column >= 0 && column < view.n_columns, "there is no such column");
            unlocked([&] { self.add(view, column, lower); });
          },
          "strings"_a, "ids"_a, "offsets"_a, "column"_a, "lower"_a)
      .def_prop_ro("n_tokens", &WordCounter::n_tokens)
      .def_prop_ro("n_words", [](const WordCounter& self) { return self.words().size(); })
      // words by falling frequency ("" for the boundary and for rare words), their counts, and the rows of bigrams
      .def(
          "bigrams",
          [](const WordCounter& self, i64 min_freq, int threads) {
            WordCounter::Ranking ranking;
            Bigrams found;
            unlocked([&] {
              ranking = self.rank(min_freq);
              found = self.bigrams(ranking, make_threads(threads));
            });
            nb::list words;
            for (const u32 word : ranking.word) {
              const std::string_view s = word < self.words().size() ? self.words()[word] : std::string_view();
              words.append(nb::str(s.data(), s.size()));
            }
            return nb::make_tuple(words, own(std::move(ranking.count)), own(std::move(found.ptr)),
                                  own(std::move(found.next)), own(std::move(found.count)));
          },
          "min_freq"_a, "threads"_a);
}

}  // namespace

void bind_words(nb::module_& m) {
  bind_counter(m);
  // class of each word, merges [classes - 1][2], losses of all merges, choices [words - classes][2]
  m.def(
      "brown_tree",
      [](In<i64, 1> ptr, In<u32, 1> next, In<u32, 1> count, int n_classes, int threads) {
        require(n_classes >= 1, "there must be at least one class");
        const Bigrams bigrams = make_bigrams(ptr, next, count);
        BrownTree tree = unlocked([&] { return brown_tree(bigrams, n_classes, make_threads(threads)); });
        return nb::make_tuple(own(std::move(tree.leaf)), flat(tree.merges), own(std::move(tree.losses)),
                              flat(tree.choices));
      },
      "ptr"_a, "next"_a, "count"_a, "n_classes"_a, "threads"_a);
  // left singular vectors [words * rank], singular values [rank]
  m.def(
      "word_vectors",
      [](In<i64, 1> ptr, In<u32, 1> next, In<u32, 1> count, int rank, u64 seed, int threads) {
        require(rank >= 1 && rank <= 4096, "the rank must lie between 1 and 4096");
        const Bigrams bigrams = make_bigrams(ptr, next, count);
        WordVectors found = unlocked([&] { return word_vectors(bigrams, rank, seed, make_threads(threads)); });
        return own_all(std::move(found.x), std::move(found.singular));
      },
      "ptr"_a, "next"_a, "count"_a, "rank"_a, "seed"_a, "threads"_a);
  // group of each point, centres [k * dimensions]
  m.def(
      "k_means",
      [](In<float, 2> x, int k, int iterations, u64 seed, int threads) {
        require(k >= 1 && x.shape(0) >= 1 && x.shape(1) >= 1, "k-means needs points and centres");
        Groups found = unlocked([&] {
          return k_means(x.data(), static_cast<i64>(x.shape(0)), static_cast<int>(x.shape(1)), k, iterations, seed,
                         make_threads(threads));
        });
        return own_all(std::move(found.group), std::move(found.centres));
      },
      "x"_a, "k"_a, "iterations"_a, "seed"_a, "threads"_a);
  m.def(
      "ward_tree",
      [](In<float, 2> x, In<double, 1> weight) {
        require(shaped(weight, x.shape(0)), "there must be a weight for every point");
        return flat(unlocked([&] {
          return ward_tree(x.data(), weight.data(), static_cast<i64>(x.shape(0)), static_cast<int>(x.shape(1)));
        }));
      },
      "x"_a, "weight"_a);
}

}  // namespace crfkit
