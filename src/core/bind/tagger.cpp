// tagger.cpp: the Python face of labelling one sequence of items at a time, as python-crfsuite's taggers do.
#include <cmath>

#include "bind/arrays.hpp"
#include "bind/objects.hpp"
#include "chain/single.hpp"
#include "model/scorer.hpp"

namespace crfkit {
namespace {

// A sequence: its scores, and once somebody asks for a probability, log Z and the marginals, from one pass.
struct Scored {
  i64 length = 0;
  std::vector<double> unary, nodes;  // [length][labels]
  double log_z = 0;
  bool summed = false;
};

// Labels a sequence, and holds it for questions about probabilities. Whatever runs without the interpreter's lock works
// on a sequence of its own, so that several threads may tag.
class ItemTagger {
  using Sequence = std::shared_ptr<Scored>;
  static constexpr const char* kNoPath = "a sequence has no labelling that the constraints allow";
  static constexpr i64 kLong = 4096;  // steps

  // Long sequences leave the interpreter's lock to others, and so need scratch memory of their own.
  template <class F>
  auto work(i64 length, F f) {
    if (length < kLong) return f(*workspace_);
    return unlocked([&] { return f(*chain_.workspace()); });
  }

 public:
  ItemTagger(const Scorer<double>& scorer, const StringTable& names, const std::vector<nb::object>& labels)
      : scorer_(scorer),
        names_(names),
        labels_(labels),
        chain_(scorer.pairwise().data(), scorer.n_labels()),
        workspace_(chain_.workspace()),
        scoring_(scorer.workspace()) {
    require(!scorer.per_step(), "the model's transitions look at the input");
    require(std::ssize(labels) == scorer.n_labels(), "there must be a name for every label");
    for (std::size_t k = 0; k < labels.size(); ++k) numbers_[labels[k]] = k;
  }

  void set(nb::handle sequence) { held_ = read(sequence); }

  // The same of attributes that have their numbers.
  void set_encoded(In<i64, 1> ptr, In<u32, 1> attr, std::optional<In<double, 1>> value) {
    check_offsets(ptr, attr.size(), "attribute pointers must rise from 0 to the number of attributes");
    require(shaped(value, attr.size()), "there must be a value for every attribute");
    const i64 offsets[] = {0, std::ssize(ptr) - 1};
    held_ = score({1, offsets, ptr.data(), attr.data(), data_of(value), nullptr, nullptr});
  }

  // Of the given sequence, which is held from then on, or of the one that is.
  nb::object tag(nb::handle sequence) {
    const Sequence x = sequence.is_none() ? held_ : held_ = read(sequence);
    std::vector<i32> path(x->length);
    const auto decode = [&](Workspace& w) { return chain_.decode(x->length, x->unary.data(), path.data(), w); };
    require(work(x->length, decode), kNoPath);
    nb::object out = nb::steal(PyList_New(x->length));
    for (i64 t = 0; t < x->length; ++t) PyList_SetItem(out.ptr(), t, nb::object(labels_[path[t]]).release().ptr());
    return out;
  }

  double probability(nb::handle labels) {
    PyObject* list = PySequence_Fast(labels.ptr(), "the labels must be a list");
    if (list == nullptr) throw nb::python_error();
    const nb::object kept = nb::steal(list);
    const Sequence x = held_;
    const i64 n = PySequence_Size(list);
    if (x->length == 0) return 0;  // as in the original
    if (n != x->length)
      throw Error("The numbers of items and labels differ: |x| = " + std::to_string(x->length) +
                  ", |y| = " + std::to_string(n));
    std::vector<i32> path(n);
    for (i64 t = 0; t < n; ++t) path[t] = static_cast<i32>(number(item(list, t)));
    sum(*x);
    return std::exp(chain_.score(n, x->unary.data(), path.data()) - x->log_z);
  }

  double marginal(nb::handle label, i64 position) {
    const Sequence x = held_;
    const i64 j = number(label);
    if (x->length == 0) return 0;  // as in the original
    if (position < 0 || position >= x->length)
      throw Error("The position " + std::to_string(position) + " is out of range of " + std::to_string(x->length));
    sum(*x);
    return x->nodes[position * std::ssize(labels_) + j];
  }

  // A dict of all labels for every position.
  nb::list marginals(nb::handle sequence) {
    const Sequence x = sequence.is_none() ? held_ : held_ = read(sequence);
    sum(*x);
    const double* p = x->nodes.data();
    nb::list out;
    for (i64 t = 0; t < x->length; ++t) {
      nb::dict row;
      for (const nb::object& label : labels_) row[label] = *p++;
      out.append(std::move(row));
    }
    return out;
  }

 private:
  Sequence read(nb::handle sequence) {
    ItemBuilder items(false, &names_);
    items.ptr.reserve(64);
    items.attr.reserve(1024);
    ItemReader(items, &cache_).read_sequence(sequence);  // may run Python code, and with it other threads
    return score({1, items.offsets.data(), items.ptr.data(), items.attr.data(),
                  items.value.empty() ? nullptr : items.value.data(), nullptr, nullptr});
  }

  Sequence score(const Tokens& tokens) {
    Sequence x = std::make_shared<Scored>();
    x->length = tokens.n_tokens();
    x->unary.resize(x->length * scorer_.n_labels());
    scorer_.score_one(tokens, x->unary.data(), *scoring_);
    return x;
  }

  void sum(Scored& x) {
    if (!x.summed) {
      std::vector<double> nodes(x.unary.size());
      const double log_z =
          work(x.length, [&](Workspace& w) { return chain_.sum_product(x.length, x.unary.data(), nodes.data(), w); });
      x.nodes = std::move(nodes);
      x.log_z = log_z;
      x.summed = true;
    }
    require(x.log_z > -std::numeric_limits<double>::infinity(), kNoPath);
  }

  // Of what PySequence_Fast gave.
  static nb::handle item(PyObject* list, i64 t) {
    return PyList_Check(list) ? PyList_GetItem(list, t) : PyTuple_GetItem(list, t);
  }

  i64 number(nb::handle label) const {
    nb::object text = nb::borrow(label);
    if (PyBytes_Check(label.ptr())) {
      std::string room;
      const std::string_view s = decoded(label, room);
      text = nb::str(s.data(), s.size());
    }
    if (!PyUnicode_Check(text.ptr())) throw nb::type_error(("a label must be a str, got " + kind_of(label)).c_str());
    PyObject* found = PyDict_GetItemWithError(numbers_.ptr(), text.ptr());
    if (found == nullptr && PyErr_Occurred()) throw nb::python_error();
    if (found == nullptr)
      throw std::runtime_error("Failed to convert into label identifier: " + nb::cast<std::string>(nb::str(text)));
    return PyLong_AsLong(found);
  }

  const Scorer<double>& scorer_;
  const StringTable& names_;
  const std::vector<nb::object> labels_;
  nb::dict numbers_;
  const SingleChain<double> chain_;
  const std::unique_ptr<Workspace> workspace_, scoring_;
  AttributeCache cache_;
  Sequence held_ = std::make_shared<Scored>();
};

}  // namespace

void bind_tagger(nb::module_& m) {
  nb::class_<ItemTagger>(m, "ItemTagger")
      .def(nb::init<const Scorer<double>&, const StringTable&, const std::vector<nb::object>&>(), "scorer"_a, "names"_a,
           "labels"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def("set", &ItemTagger::set, "sequence"_a)
      .def("set_encoded", &ItemTagger::set_encoded, "ptr"_a, "attr"_a, "value"_a.none())
      .def("tag", &ItemTagger::tag, "sequence"_a.none())
      .def("probability", &ItemTagger::probability, "labels"_a)
      .def("marginal", &ItemTagger::marginal, "label"_a, "position"_a)
      .def("marginals", &ItemTagger::marginals, "sequence"_a.none());
}

}  // namespace crfkit
