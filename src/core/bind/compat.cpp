// compat.cpp: bindings for other tools' files and for labelling at full speed: string tables of CRFsuite's models,
// items looked up while they are read, column text in and out.
#include <cstdio>
#include <deque>
#include <future>

#include "beam/inference.hpp"
#include "bind/arrays.hpp"
#include "bind/objects.hpp"
#include "model/scorer.hpp"
#include "text/columns.hpp"
#include "text/cqdb.hpp"

namespace crfkit {
namespace {

nb::bytes as_bytes(const std::string& s) { return nb::bytes(s.data(), s.size()); }

// Takes items whose attributes a model knows; the others are left out.
struct KnownItems {
  const StringTable* names = nullptr;
  std::vector<i64> offsets{0}, ptr{0};
  std::vector<u32> attr;
  std::vector<double> value;  // empty: all one

  void add_attribute(std::string_view name, double x) {
    if (x == 0.0) return;
    const u32 id = names->find(name);
    if (id == kNone) return;
    if (x != 1.0 && value.empty()) value.assign(attr.size(), 1.0);
    attr.push_back(id);
    if (!value.empty() || x != 1.0) value.push_back(x);
  }
  void end_token() { ptr.push_back(static_cast<i64>(attr.size())); }
  void end_sequence(bool) { offsets.push_back(static_cast<i64>(ptr.size()) - 1); }

  i64 n_tokens() const { return offsets.back(); }
  Tokens view() const {
    Tokens t;
    t.n_seq = static_cast<i64>(offsets.size()) - 1;
    t.offsets = offsets.data();
    t.ptr = ptr.data();
    t.attr = attr.data();
    t.value = value.empty() ? nullptr : value.data();
    return t;
  }
};

template <class T>
std::vector<i32> best_labels(const Scorer<T>& scorer, const KnownItems& items) {
  const int n = scorer.n_labels();
  const Threads one{1, {}};
  std::vector<T> unary(items.n_tokens() * n), pairwise(scorer.pairwise().begin(), scorer.pairwise().end());
  const Tokens tokens = items.view();
  scorer.score(tokens, one, unary.data(), pairwise.data());
  ChainInput<T> in;
  in.n_labels = n;
  in.n_seq = tokens.n_seq;
  in.offsets = tokens.offsets;
  in.unary = unary.data();
  in.pairwise = pairwise.data();
  std::vector<i32> path(items.n_tokens());
  std::vector<u8> dead(tokens.n_seq);
  decode(in, nullptr, one, path.data(), dead.data());
  for (u8 x : dead) require(x == 0, "a sequence has no labelling that the constraints allow");
  return path;
}

void append_labels(nb::list& out, const KnownItems& items, const std::vector<i32>& path,
                   const std::vector<nb::object>& labels) {
  for (std::size_t s = 1; s < items.offsets.size(); ++s) {
    const i64 begin = items.offsets[s - 1], length = items.offsets[s] - begin;
    nb::object row = nb::steal(PyList_New(length));
    for (i64 t = 0; t < length; ++t) PyList_SET_ITEM(row.ptr(), t, nb::object(labels[path[begin + t]]).release().ptr());
    out.append(std::move(row));
  }
}

template <class T>
void bind_tagging(nb::module_& m) {
  // Best labels of sequences of Python items. Reading them needs the interpreter's lock; meanwhile other threads score
  // and decode what has been read.
  m.def(
      "tag_items",
      [](const Scorer<T>& scorer, const StringTable& names, nb::handle sequences, const std::vector<nb::object>& labels,
         int threads) {
        require(!scorer.per_step(), "the model's transitions look at the input");
        require(static_cast<int>(labels.size()) == scorer.n_labels(), "there must be a name for every label");
        constexpr i64 kTokensPerPiece = 4096;
        struct Piece {
          KnownItems items;
          std::future<std::vector<i32>> path;
        };
        nb::list out;
        std::deque<Piece> open;
        const auto collect = [&] {
          Piece& piece = open.front();
          if (!piece.path.valid() || piece.path.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
            const nb::gil_scoped_release release;
            if (piece.path.valid()) piece.path.wait();
          }
          append_labels(out, piece.items, piece.path.get(), labels);
          open.pop_front();
        };
        KnownItems items;
        items.names = &names;
        ItemReader<KnownItems> reader(items);
        const auto start = [&] {
          Piece& piece = open.emplace_back();
          std::swap(piece.items, items);
          items.names = &names;
          const auto work = [&scorer, &piece] { return best_labels(scorer, piece.items); };
          piece.path = std::async(threads > 1 ? std::launch::async : std::launch::deferred, work);
          if (threads <= 1) piece.path.wait();
          while (static_cast<int>(open.size()) > std::max(1, threads)) collect();
        };
        nb::object list = nb::steal(PySequence_Fast(sequences.ptr(), "the data must be a list of sequences"));
        if (!list.is_valid()) throw nb::python_error();
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.ptr()); ++i) {
          reader.read_sequence(PySequence_Fast_GET_ITEM(list.ptr(), i));
          if (items.n_tokens() >= kTokensPerPiece) start();
        }
        if (items.offsets.size() > 1) start();
        while (!open.empty()) collect();
        return out;
      },
      "scorer"_a, "names"_a, "sequences"_a, "labels"_a, "threads"_a);
}

}  // namespace

void bind_compat(nb::module_& m) {
  m.def(
      "read_cqdb",
      [](nb::bytes data, u64 begin, u32 count) {
        const std::string_view s(data.c_str(), data.size());
        require(begin <= s.size(), "a string table lies outside of the file");
        return read_cqdb(s.substr(begin), count);
      },
      "data"_a, "begin"_a, "count"_a);
  m.def("write_cqdb", [](const StringTable& strings) { return as_bytes(write_cqdb(strings)); }, "strings"_a);
  // offsets, ptr, attributes, values or None
  m.def(
      "find_items",
      [](const StringTable& names, nb::handle sequences) {
        KnownItems items;
        items.names = &names;
        ItemReader<KnownItems>(items).read(sequences);
        nb::object value = nb::none();
        if (!items.value.empty()) value = nb::cast(own(std::move(items.value)));
        return nb::make_tuple(own(std::move(items.offsets)), own(std::move(items.ptr)), own(std::move(items.attr)),
                              value);
      },
      "names"_a, "sequences"_a);
  bind_tagging<float>(m);
  bind_tagging<double>(m);
  // Whole sequences of column text: (strings, ids, offsets, columns), or (line, what is wrong with it).
  m.def(
      "parse_columns",
      [](nb::bytes text, i64 first_line, const std::string& separator, std::string comment, std::string document,
         bool conllu, int n_columns) {
        ColumnBuilder builder({separator == "tab" ? '\t' : '\0', std::move(comment), std::move(document), conllu});
        builder.n_columns = n_columns;
        const std::string_view s(text.c_str(), text.size());
        try {
          const nb::gil_scoped_release release;
          builder.parse(s, first_line);
          builder.end_sequence();
        } catch (const LineError& e) {
          return nb::make_tuple(e.line, std::string(e.what()));
        }
        ColumnBuilder taken = builder.take();
        return nb::make_tuple(std::move(taken.strings), own(std::move(taken.ids)), own(std::move(taken.offsets)),
                              taken.n_columns);
      },
      "text"_a, "first_line"_a, "separator"_a, "comment"_a, "document"_a, "conllu"_a, "n_columns"_a);
  // Column text with a label, and if given its probability, behind every row.
  m.def(
      "write_columns",
      [](const StringTable& strings, In<u32, 2> ids, In<i64, 1> offsets, In<i32, 1> path,
         const std::vector<std::string>& labels, std::optional<In<double, 1>> probability) {
        const i64 n = static_cast<i64>(ids.shape(0)), n_columns = static_cast<i64>(ids.shape(1)),
                  n_seq = static_cast<i64>(offsets.size()) - 1;
        require(n_seq >= 0 && offsets(0) == 0 && offsets(n_seq) == n && static_cast<i64>(path.size()) == n,
                "the arrays do not fit together");
        require(!probability || static_cast<i64>(probability->size()) == n,
                "there must be a probability for every token");
        for (i64 s = 0; s < n_seq; ++s) require(offsets(s) <= offsets(s + 1), "offsets must rise");
        std::string out;
        {
          const nb::gil_scoped_release release;
          out.reserve(n * 16);
          char digits[32];
          for (i64 s = 0; s < n_seq; ++s) {
            for (i64 t = offsets(s); t < offsets(s + 1); ++t) {
              for (i64 c = 0; c < n_columns; ++c) {
                const u32 id = ids(t, c);
                require(id < strings.size(), "a column names a string that does not exist");
                out += strings[id];
                out += '\t';
              }
              require(path(t) >= 0 && path(t) < static_cast<i32>(labels.size()), "there is no such label");
              out += labels[path(t)];
              if (probability) {
                std::snprintf(digits, sizeof digits, "\t%.6f", (*probability)(t));
                out += digits;
              }
              out += '\n';
            }
            out += '\n';
          }
        }
        return as_bytes(out);
      },
      "strings"_a, "ids"_a, "offsets"_a, "path"_a, "labels"_a, "probability"_a.none());
}

}  // namespace crfkit
