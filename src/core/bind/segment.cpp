// segment.cpp: the Python face of inference on segmentations.
#include "segment/segment.hpp"

#include "bind/tokens.hpp"
#include "text/segment_trie.hpp"
#include "train/segment_objective.hpp"

namespace crfkit {
namespace {

// Unary, begin, end, pairwise, lengths, tail and its order, borders, listed segments (pointers, lengths, scores),
// offsets.
template <class T>
using SegmentArrays =
    std::tuple<In<T, 2>, std::optional<In<T, 2>>, std::optional<In<T, 2>>, In<T, 2>, In<T, 2>, std::optional<In<T, 1>>,
               int, std::optional<In<u8, 1>>, std::optional<std::tuple<In<i64, 1>, In<i32, 1>, In<T, 2>>>, In<i64, 1>>;

template <class T>
void check_items(const SegmentInput<T>& in) {
  const int longest = in.max_length - (in.tail_order > 0);
  for (i64 s = 0; s < in.n_seq; ++s)
    for (i64 t = in.offsets[s]; t < in.offsets[s + 1]; ++t)
      for (i64 i = in.items.ptr[t]; i < in.items.ptr[t + 1]; ++i) {
        const i64 k = in.items.length[i];
        require(k >= 1 && k <= longest && k <= t - in.offsets[s] + 1, "a listed segment does not fit its sequence");
        require(i == in.items.ptr[t] || in.items.length[i - 1] < k, "listed segments must rise in length");
      }
}

template <class T>
SegmentInput<T> segment_input(const SegmentArrays<T>& arrays) {
  const auto& [unary, begin, end, pairwise, lengths, tail, order, border, items, offsets] = arrays;
  SegmentInput<T> in;
  const i64 tokens = unary.shape(0), n = unary.shape(1);
  in.n_labels = static_cast<int>(n);
  in.max_length = static_cast<int>(lengths.shape(0));
  in.n_seq = std::ssize(offsets) - 1;
  in.offsets = offsets.data();
  in.unary = unary.data();
  in.begin = data_of(begin);
  in.end = data_of(end);
  in.pairwise = pairwise.data();
  in.lengths = lengths.data();
  in.tail = data_of(tail);
  in.tail_order = tail ? order : 0;
  in.border = data_of(border);
  require(n >= 1 && in.max_length >= 1, "potentials need a label and a length");
  check_offsets(offsets, tokens, "offsets must rise from 0 to the number of tokens");
  require(shaped(pairwise, n, n) && shaped(lengths, in.max_length, n) && shaped(tail, n),
          "scores of labels have the wrong size");
  require(!tail || order >= 1, "a tail needs an order of at least 1");
  require(shaped(begin, tokens, n) && shaped(end, tokens, n) && shaped(border, tokens),
          "scores of tokens have the wrong size");
  if (items) {
    const auto& [ptr, length, score] = *items;
    require(shaped(ptr, tokens + 1) && shaped(score, std::ssize(length), n), "listed segments have the wrong size");
    check_offsets(ptr, std::ssize(length), "listed segments must follow each other");
    in.items = {ptr.data(), length.data(), score.data()};
    check_items(in);
  }
  return in;
}

// Places for the sums over the segmentations of a batch.
template <class T>
struct SumArrays {
  Out<double, 1> log_z;
  std::optional<Out<T, 2>> nodes, begins, ends;
  std::optional<Out<double, 2>> pairs, lengths;
  std::optional<Out<double, 1>> tail;
  std::optional<Out<T, 2>> items;
  std::optional<Out<double, 2>> enter, leave;

  SegmentSums<T> view(const SegmentInput<T>& in) const {
    const i64 tokens = in.n_tokens(), n = in.n_labels;
    require(shaped(log_z, in.n_seq), "there must be a number for every sequence");
    require(shaped(nodes, tokens, n) && shaped(begins, tokens, n) && shaped(ends, tokens, n) &&
                shaped(enter, tokens, n) && shaped(leave, tokens, n),
            "sums over tokens have the wrong size");
    require(
        shaped(pairs, n, n) && shaped(lengths, in.max_length, n) && shaped(tail, n) && shaped(items, in.n_items(), n),
        "sums have the wrong size");
    require(enter.has_value() == leave.has_value(), "messages come in pairs");
    require(!items || in.items.ptr, "there are no listed segments");
    SegmentSums<T> out;
    out.log_z = log_z.data();
    out.nodes = data_of(nodes);
    out.begins = data_of(begins);
    out.ends = data_of(ends);
    out.pairs = data_of(pairs);
    out.lengths = data_of(lengths);
    out.tail = data_of(tail);
    out.items = data_of(items);
    out.enter = data_of(enter);
    out.leave = data_of(leave);
    return out;
  }
};

template <class T>
using SumTuple =
    std::tuple<Out<double, 1>, std::optional<Out<T, 2>>, std::optional<Out<T, 2>>, std::optional<Out<T, 2>>,
               std::optional<Out<double, 2>>, std::optional<Out<double, 2>>, std::optional<Out<double, 1>>,
               std::optional<Out<T, 2>>, std::optional<Out<double, 2>>, std::optional<Out<double, 2>>>;
template <class T>
SegmentSums<T> sums_of(const SumTuple<T>& x, const SegmentInput<T>& in) {
  return std::apply([&](const auto&... parts) { return SumArrays<T>{parts...}.view(in); }, x);
}

// Segmentations of each sequence, segments of each of those, ends, labels, scores.
nb::tuple as_arrays(const std::vector<std::vector<Segmentation>>& found) {
  std::vector<i64> count, size, end;
  std::vector<i32> label;
  std::vector<double> score;
  for (const auto& of_sequence : found) {
    count.push_back(std::ssize(of_sequence));
    for (const Segmentation& x : of_sequence) {
      size.push_back(std::ssize(x.end));
      end.insert(end.end(), x.end.begin(), x.end.end());
      label.insert(label.end(), x.label.begin(), x.label.end());
      score.push_back(x.score);
    }
  }
  return own_all(std::move(count), std::move(size), std::move(end), std::move(label), std::move(score));
}

template <class T>
void bind_type(nb::module_& m) {
  m.def(
      "segment_sums",
      [](const SegmentArrays<T>& segments, int threads, std::optional<In<double, 1>> weight, const SumTuple<T>& out) {
        const SegmentInput<T> in = segment_input<T>(segments);
        SegmentSums<T> sums = sums_of<T>(out, in);
        require(shaped(weight, in.n_seq), "there must be a weight for every sequence");
        sums.weight = data_of(weight);
        const nb::gil_scoped_release release;
        segment_sums(in, make_threads(threads), sums);
      },
      "segments"_a, "threads"_a, "weight"_a.none(), "out"_a);
  m.def(
      "segment_best",
      [](const SegmentArrays<T>& segments, int threads, i64 k) {
        const SegmentInput<T> in = segment_input<T>(segments);
        require(k >= 1, "there must be a segmentation to look for");
        return as_arrays(unlocked([&] { return best_segmentations(in, k, make_threads(threads)); }));
      },
      "segments"_a, "threads"_a, "k"_a);
}

// Numbers of the weights of pairs, lengths, tail, start and end; labels, lengths, order of the tail, whether beginnings
// and ends have columns; number of weights.
using LayoutTuple = std::tuple<In<i32, 1>, In<i32, 1>, In<i32, 1>, In<i32, 1>, In<i32, 1>>;
using ShapeTuple = std::tuple<int, int, int, bool, bool, i64>;

SegmentLayout segment_layout(const LayoutTuple& numbers, const ShapeTuple& shape) {
  SegmentLayout out;
  std::tie(out.n_labels, out.max_length, out.tail_order, out.has_begin, out.has_end, out.size) = shape;
  const auto& [pairs, lengths, tail, start, end] = numbers;
  out.pairs = to_vector<i32>(pairs);
  out.lengths = to_vector<i32>(lengths);
  out.tail = to_vector<i32>(tail);
  out.start = to_vector<i32>(start);
  out.end = to_vector<i32>(end);
  return out;
}

template <class T>
void bind_objective(nb::module_& m, const char* name) {
  using Self = SegmentObjective<T>;
  // items: pointers [tokens + 1] and lengths; their attributes are those of one more sequence of the data
  using Items = std::tuple<In<i64, 1>, In<i32, 1>>;
  nb::class_<Self>(m, name)
      .def(
          "__init__",
          [](Self* self, std::shared_ptr<const Layout> columns, const LayoutTuple& numbers, const ShapeTuple& shape,
             const TokenArrays& data, const std::optional<Items>& items, In<i32, 1> labels, In<double, 2> hints,
             std::tuple<In<u8, 1>, i64, Numbers> given, int threads) {
            const SegmentLayout layout = segment_layout(numbers, shape);
            const auto& [border, n_full, seq_weight] = given;
            const Tokens tokens = data.view();
            require(!items || tokens.n_seq >= 1, "there are no listed segments");
            const i64 n_seq = tokens.n_seq - items.has_value(), n_tokens = tokens.offsets[n_seq];
            SegmentInput<T> in;
            in.n_seq = n_seq;
            in.offsets = tokens.offsets;
            in.max_length = layout.max_length;
            in.tail_order = layout.tail_order;
            if (items) {
              const auto& [ptr, length] = *items;
              require(shaped(ptr, n_tokens + 1) && std::ssize(length) == tokens.n_tokens() - n_tokens,
                      "listed segments have the wrong size");
              check_offsets(ptr, std::ssize(length), "listed segments must follow each other");
              in.items = {ptr.data(), length.data(), nullptr};
              check_items(in);
            }
            KnownSegments known{known_labels(labels, n_tokens, hints, layout.n_labels), border.data(), n_full};
            require(shaped(border, n_tokens) && n_full >= 0 && n_full <= n_seq, "borders have the wrong size");
            require(shaped(seq_weight, n_seq), "there must be a weight for every sequence");
            for (i64 t = 0; t < tokens.offsets[n_full]; ++t)
              require(known.labels.label[t] >= 0 && known.border[t] != kAnyBorder, "a segmentation is not known");
            const nb::gil_scoped_release release;
            new (self) Self(columns, layout, tokens, in.items, known, data_of(seq_weight), make_threads(threads));
          },
          "columns"_a, "numbers"_a, "shape"_a, "data"_a, "items"_a.none(), "labels"_a, "hints"_a, "given"_a,
          "threads"_a)
      .def(
          "value_and_grad",
          [](Self& self, In<double, 1> w, double c2, Out<double, 1> g, int threads) {
            require(shaped(w, self.size()) && shaped(g, self.size()), "the weight vector has the wrong size");
            const nb::gil_scoped_release release;
            return self.value_and_grad(w.data(), c2, g.data(), make_threads(threads));
          },
          "w"_a, "c2"_a, "g"_a.noconvert(), "threads"_a)
      .def_prop_ro("size", &Self::size)
      .def_prop_ro("n_redone", &Self::n_redone);
}

void bind_trie(nb::module_& m) {
  const auto as_tuple = [](FoundSegments&& x) {
    return own_all(std::move(x.start), std::move(x.length), std::move(x.entry), std::move(x.value));
  };
  using Tokens1 = In<u32, 1>;
  nb::class_<SegmentTrie>(m, "SegmentTrie")
      .def(
          "__init__",
          [](SegmentTrie* self, Tokens1 tokens, In<i64, 1> ptr) {
            check_offsets(ptr, std::ssize(tokens), "entries must follow each other");
            for (std::size_t t = 0; t < tokens.size(); ++t)
              require(tokens(t) < tokens.size(), "tokens of entries must be numbered without gaps");
            new (self) SegmentTrie(tokens.data(), ptr.data(), std::ssize(ptr) - 1);
          },
          "tokens"_a, "ptr"_a)
      .def(
          "find",
          [=](const SegmentTrie& self, Tokens1 tokens, In<i64, 1> offsets, i64 max_length, int threads) {
            check_offsets(offsets, std::ssize(tokens), "offsets must rise from 0 to the number of tokens");
            return as_tuple(unlocked([&] {
              return self.find(tokens.data(), offsets.data(), std::ssize(offsets) - 1, max_length,
                               make_threads(threads));
            }));
          },
          "tokens"_a, "offsets"_a, "max_length"_a, "threads"_a)
      .def(
          "similar",
          [=](const SegmentTrie& self, Tokens1 tokens, In<i64, 1> offsets, i64 max_length, double least, int threads) {
            check_offsets(offsets, std::ssize(tokens), "offsets must rise from 0 to the number of tokens");
            return as_tuple(unlocked([&] {
              return self.similar(tokens.data(), offsets.data(), std::ssize(offsets) - 1, max_length, least,
                                  make_threads(threads));
            }));
          },
          "tokens"_a, "offsets"_a, "max_length"_a, "least"_a, "threads"_a);
}

}  // namespace

void bind_segment(nb::module_& m) {
  bind_trie(m);
  bind_type<float>(m);
  bind_type<double>(m);
  bind_objective<float>(m, "SegmentObjectiveF32");
  bind_objective<double>(m, "SegmentObjectiveF64");
  m.def(
      "segment_entropies",
      [](const SegmentArrays<double>& segments, int threads, Out<double, 1> entropy, const SumTuple<double>& out) {
        const SegmentInput<double> in = segment_input<double>(segments);
        const SegmentSums<double> sums = sums_of<double>(out, in);
        require(shaped(entropy, in.n_seq), "there must be a number for every sequence");
        require(!sums.pairs == !sums.lengths, "sums over lengths and pairs come together");
        require(!sums.pairs || in.tail_order == 0 || sums.tail, "there must be a place for the tail");
        const nb::gil_scoped_release release;
        segment_entropies(in, make_threads(threads), entropy.data(), sums);
      },
      "segments"_a, "threads"_a, "entropy"_a.noconvert(), "out"_a);
  m.def(
      "segment_sample",
      [](const SegmentArrays<double>& segments, int threads, i64 n, u64 seed) {
        const SegmentInput<double> in = segment_input<double>(segments);
        require(n >= 0, "there must be a number of samples");
        return as_arrays(unlocked([&] { return sample_segmentations(in, n, seed, make_threads(threads)); }));
      },
      "segments"_a, "threads"_a, "n"_a, "seed"_a);
}

}  // namespace crfkit
