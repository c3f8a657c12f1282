// compat.cpp: the Python face of CRFsuite's files, and labelling of items at full speed.
#include <deque>
#include <future>

#include "beam/inference.hpp"
#include "bind/arrays.hpp"
#include "bind/objects.hpp"
#include "model/scorer.hpp"
#include "text/cqdb.hpp"

namespace crfkit {
namespace {

template <class T>
std::vector<i32> best_labels(const Scorer<T>& scorer, const ItemBuilder& items) {
  const int n = scorer.n_labels();
  const Threads one{1, {}};
  const Tokens tokens{std::ssize(items.offsets) - 1,
                      items.offsets.data(),
                      items.ptr.data(),
                      items.attr.data(),
                      items.value.empty() ? nullptr : items.value.data(),
                      nullptr,
                      nullptr};
  std::vector<T> unary(tokens.n_tokens() * n), pairwise(scorer.pairwise().begin(), scorer.pairwise().end());
  scorer.score(tokens, one, unary.data(), pairwise.data());
  const ChainInput<T> in{n, tokens.n_seq, tokens.offsets, unary.data(), pairwise.data(), false};
  std::vector<i32> path(tokens.n_tokens());
  std::vector<u8> dead(tokens.n_seq);
  decode(in, nullptr, one, path.data(), dead.data());
  for (u8 x : dead) require(x == 0, "a sequence has no labelling that the constraints allow");
  return path;
}

void append_labels(nb::list& out, const std::vector<i64>& offsets, const std::vector<i32>& path,
                   const std::vector<nb::object>& labels) {
  for (std::size_t s = 1; s < offsets.size(); ++s) {
    const i64 begin = offsets[s - 1], length = offsets[s] - begin;
    nb::object row = nb::steal(PyList_New(length));
    for (i64 t = 0; t < length; ++t) PyList_SetItem(row.ptr(), t, nb::object(labels[path[begin + t]]).release().ptr());
    out.append(std::move(row));
  }
}

// Best labels of sequences of Python items. Reading them needs the interpreter's lock; meanwhile other threads score
// and decode what has been read.
template <class T>
nb::list tag_items(const Scorer<T>& scorer, const StringTable& names, nb::handle sequences,
                   const std::vector<nb::object>& labels, int threads) {
  require(!scorer.per_step(), "the model's transitions look at the input");
  require(std::ssize(labels) == scorer.n_labels(), "there must be a name for every label");
  constexpr i64 kTokensPerPiece = 4096;
  struct Piece {
    ItemBuilder items;
    std::future<std::vector<i32>> path;
  };
  nb::list out;
  std::deque<Piece> open;
  const auto collect = [&] {
    Piece& piece = open.front();
    if (piece.path.wait_for(std::chrono::seconds(0)) != std::future_status::ready) unlocked([&] { piece.path.wait(); });
    append_labels(out, piece.items.offsets, piece.path.get(), labels);
    open.pop_front();
  };
  ItemBuilder items(false, &names);
  ItemReader reader(items);
  const auto start = [&] {
    Piece& piece = open.emplace_back();
    piece.items = std::exchange(items, items.fresh());
    const auto work = [&scorer, &piece] { return best_labels(scorer, piece.items); };
    piece.path = std::async(threads > 1 ? std::launch::async : std::launch::deferred, work);
    if (threads <= 1) piece.path.wait();
    while (std::ssize(open) > std::max(1, threads)) collect();
  };
  nb::object list = nb::steal(PySequence_Fast(sequences.ptr(), "the data must be a list of sequences"));
  if (!list.is_valid()) throw nb::python_error();
  for (nb::handle sequence : list) {
    reader.read_sequence(sequence);
    if (items.offsets.back() >= kTokensPerPiece) start();
  }
  if (items.offsets.size() > 1) start();
  while (!open.empty()) collect();
  return out;
}

}  // namespace

void bind_compat(nb::module_& m) {
  m.def(
      "read_cqdb",
      [](nb::bytes data, u64 begin, u32 count) {
        const std::string_view s(data.c_str(), data.size());
        require(begin <= s.size(), "a string table lies outside the file");
        return read_cqdb(s.substr(begin), count);
      },
      "data"_a, "begin"_a, "count"_a);
  m.def(
      "write_cqdb",
      [](const StringTable& strings) {
        const std::string out = write_cqdb(strings);
        return nb::bytes(out.data(), out.size());
      },
      "strings"_a);
  m.def("tag_items", &tag_items<float>, "scorer"_a, "names"_a, "sequences"_a, "labels"_a, "threads"_a);
  m.def("tag_items", &tag_items<double>, "scorer"_a, "names"_a, "sequences"_a, "labels"_a, "threads"_a);
}

}  // namespace crfkit
