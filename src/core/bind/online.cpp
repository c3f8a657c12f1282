// online.cpp: the Python face of training sequence by sequence.
#include "online/online.hpp"

#include <nanobind/stl/map.h>

#include <mutex>

#include "bind/tokens.hpp"

namespace crfkit {
namespace {

// Order, class of each label, tuples of classes, the first of their weights, and their value.
using Higher = std::tuple<int, In<u16, 1>, In<u64, 1>, u32, double>;

// A trainer and a lock: callers on several threads take turns.
template <class T>
class Online {
 public:
  Online(std::shared_ptr<const Layout> layout, const TokenArrays& data, In<i32, 1> labels, In<double, 2> hints,
         Numbers seq_weight, Numbers constraints, const Higher& higher)
      : layout_(std::move(layout)) {
    const Tokens tokens = data.view();
    const KnownLabels known = known_labels(labels, tokens.n_tokens(), hints, layout_->n_labels);
    check_training(tokens, *layout_, seq_weight, constraints);
    const auto& [order, classes, tuples, first_tuple, value] = higher;
    require(order >= 1 && order <= 3, "the order must be 1, 2 or 3");
    require(shaped(classes, layout_->n_labels), "every label must have a class");
    require(tuples.size() < kNone && first_tuple + tuples.size() <= layout_->size,
            "there must be a weight for every tuple of labels");
    n_seq_ = tokens.n_seq;
    TupleWeights longer(order, to_vector<u16>(classes), to_vector<u64>(tuples), first_tuple);
    longer.value = value;
    const nb::gil_scoped_release release;
    trainer_ = make_trainer<T>(
        make_online_data<T>(*layout_, tokens, known, data_of(seq_weight), data_of(constraints), std::move(longer)));
  }

  // Other sequences in the place of those that are there.
  void replace(const TokenArrays& data, In<i32, 1> labels, In<double, 2> hints, Numbers seq_weight) {
    const Tokens tokens = data.view();
    const KnownLabels known = known_labels(labels, tokens.n_tokens(), hints, layout_->n_labels);
    require(shaped(seq_weight, tokens.n_seq), "there must be a weight for every sequence");
    locked([&] {
      replace_tokens(*layout_, tokens, known, data_of(seq_weight), trainer_->data());
      n_seq_ = tokens.n_seq;
    });
  }

  i64 size() const { return trainer_->size(); }
  i64 n_sequences() const { return n_seq_; }

  void set_weights(In<double, 1> w) {
    require(shaped(w, size()), "the weight vector has the wrong size");
    locked([&] { trainer_->set_weights(w.data()); });
  }
  void weights(bool averaged, Out<double, 1> w) {
    require(shaped(w, size()), "the weight vector has the wrong size");
    locked([&] { trainer_->weights(averaged, w.data()); });
  }
  void set_beam(const std::optional<BeamTuple>& beam, std::optional<int> most) {
    require(!most || *most >= 1, "a beam needs a label");
    Criterion criterion;
    if (beam) criterion = criterion_of(*beam);
    if (most) criterion.most = *most;
    locked([&] { trainer_->set_beam(beam ? &criterion : nullptr); });
  }
  std::tuple<i64, i64, i64> tally() {
    const BeamTally x = locked([&] { return trainer_->tally(); });
    return {x.tokens, x.labels, x.largest};
  }
  double entropy_weight() const { return entropy_weight_; }
  void set_entropy_weight(double x) {
    locked([&] { trainer_->set_entropy_weight(entropy_weight_ = x); });
  }
  double entropy() {
    return locked([&] { return trainer_->entropy(); });
  }
  auto lipschitz() { return own(std::vector<double>(trainer_->lipschitz())); }

  double loss(In<i64, 1> order) {
    return pass(order, [&](Order o, const Poll&) { return trainer_->loss(o); });
  }
  double gradient(In<i64, 1> order, Out<double, 1> g) {
    require(shaped(g, size()), "the gradient has the wrong size");
    return pass(order, [&](Order o, const Poll&) { return trainer_->gradient(o, g.data()); });
  }
  double sgd(In<i64, 1> order, double eta0, double decay, double rate, double power, double t0, int batch,
             bool average) {
    check_batch(batch);
    return pass(order, [&](Order o, const Poll& poll) {
      return trainer_->sgd(o, {eta0, decay, rate, power, t0, batch, average}, poll);
    });
  }
  double adagrad(In<i64, 1> order, double eta, double decay, double floor, int batch) {
    check_batch(batch);
    return pass(order, [&](Order o, const Poll& poll) { return trainer_->adagrad(o, eta, decay, floor, batch, poll); });
  }
  double mistakes() {
    return locked([&] { return trainer_->mistakes(); });
  }
  double perceptron(In<i64, 1> order) {
    return pass(order, [&](Order o, const Poll& poll) { return trainer_->perceptron(o, poll); });
  }
  double passive_aggressive(In<i64, 1> order, int type, double c, bool error_sensitive) {
    return pass(order, [&](Order o, const Poll& poll) {
      return trainer_->passive_aggressive(o, type, c, error_sensitive, poll);
    });
  }
  double arow(In<i64, 1> order, double variance, double r) {
    return pass(order, [&](Order o, const Poll& poll) { return trainer_->arow(o, variance, r, poll); });
  }
  double sag(In<i64, 1> order, double decay, int search) {
    require(search >= 1, "the search must be done now and then");
    return pass(order, [&](Order o, const Poll& poll) { return trainer_->sag(o, decay, search, poll); });
  }
  double smd(In<i64, 1> order, double eta0, double mu, double lambda, double decay, double damp, int batch) {
    check_batch(batch);
    return pass(order, [&](Order o, const Poll& poll) {
      return trainer_->smd(o, {eta0, mu, lambda, decay, damp, batch}, poll);
    });
  }
  nb::dict state() {
    nb::dict out;
    for (auto& [name, bytes] : locked([&] { return trainer_->state(); })) out[name.c_str()] = own(std::move(bytes));
    return out;
  }
  void restore(const std::map<std::string, In<u8, 1>>& state) {
    typename OnlineTrainer<T>::State copy;
    for (const auto& [name, bytes] : state) copy[name] = to_vector<u8>(bytes);
    locked([&] { trainer_->restore(copy); });
  }

 private:
  static void check_batch(int batch) { require(batch >= 1, "a batch needs a sequence"); }

  template <class F>
  auto locked(F f) {
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    return f();
  }
  template <class F>
  double pass(const In<i64, 1>& order, F f) {
    for (std::size_t k = 0; k < order.size(); ++k)
      require(order(k) >= 0 && order(k) < n_seq_, "there is no such sequence");
    return locked([&] { return f(Order{order.data(), std::ssize(order)}, make_threads(1).poll); });
  }

  const std::shared_ptr<const Layout> layout_;
  std::unique_ptr<OnlineTrainer<T>> trainer_;
  std::mutex lock_;
  i64 n_seq_ = 0;
  double entropy_weight_ = 0;
};

template <class T>
void bind(nb::module_& m, const char* name) {
  using Self = Online<T>;
  nb::class_<Self>(m, name)
      .def(nb::init<std::shared_ptr<const Layout>, const TokenArrays&, In<i32, 1>, In<double, 2>, Numbers, Numbers,
                    const Higher&>(),
           "layout"_a, "data"_a, "labels"_a, "hints"_a, "seq_weight"_a.none(), "constraints"_a.none(), "higher"_a)
      .def("replace", &Self::replace, "data"_a, "labels"_a, "hints"_a, "seq_weight"_a.none())
      .def_prop_ro("n_sequences", &Self::n_sequences)
      .def_prop_ro("size", &Self::size)
      .def("set_weights", &Self::set_weights, "w"_a)
      .def("weights", &Self::weights, "averaged"_a, "w"_a.noconvert())
      .def("set_beam", &Self::set_beam, "beam"_a.none(), "most"_a = nb::none())
      .def_prop_ro("tally", &Self::tally)
      .def_prop_rw("entropy_weight", &Self::entropy_weight, &Self::set_entropy_weight)
      .def_prop_ro("entropy", &Self::entropy)
      .def("lipschitz", &Self::lipschitz)
      .def("state", &Self::state)
      .def("restore", &Self::restore, "state"_a)
      .def("loss", &Self::loss, "order"_a)
      .def("gradient", &Self::gradient, "order"_a, "g"_a.noconvert())
      .def("sgd", &Self::sgd, "order"_a, "eta0"_a, "decay"_a, "rate"_a, "power"_a, "t0"_a, "batch"_a, "average"_a)
      .def("adagrad", &Self::adagrad, "order"_a, "eta"_a, "decay"_a, "floor"_a, "batch"_a)
      .def_prop_ro("mistakes", &Self::mistakes)
      .def("perceptron", &Self::perceptron, "order"_a)
      .def("passive_aggressive", &Self::passive_aggressive, "order"_a, "type"_a, "c"_a, "error_sensitive"_a)
      .def("arow", &Self::arow, "order"_a, "variance"_a, "r"_a)
      .def("sag", &Self::sag, "order"_a, "decay"_a, "search"_a)
      .def("smd", &Self::smd, "order"_a, "eta0"_a, "mu"_a, "lam"_a, "decay"_a, "damp"_a, "batch"_a);
}

}  // namespace

void bind_online(nb::module_& m) {
  bind<float>(m, "SequencesF32");
  bind<double>(m, "SequencesF64");
}

}  // namespace crfkit
