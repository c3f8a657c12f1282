// online.cpp: the Python face of training sequence by sequence.
#include <mutex>

#include "bind/arrays.hpp"
#include "online/online.hpp"

namespace crfkit {
namespace {

// A trainer and a lock: callers on several threads take turns.
template <class T>
class Online {
 public:
  Online(const Layout& layout, const TokenArrays& data, In<i32, 1> gold, In<i64, 1> set_tokens, In<u8, 2> set_labels,
         std::optional<In<double, 1>> seq_weight, std::optional<In<double, 1>> constraints) {
    const Tokens tokens = data.view();
    check_gold(tokens, layout.n_labels, gold, -1);
    require(set_labels.shape(0) == set_tokens.size() &&
                (set_tokens.size() == 0 || static_cast<int>(set_labels.shape(1)) == layout.n_labels),
            "there must be possible labels for every token of a set");
    for (std::size_t k = 0; k < set_tokens.size(); ++k)
      require(set_tokens(k) >= (k == 0 ? 0 : set_tokens(k - 1) + 1) && set_tokens(k) < tokens.n_tokens() &&
                  gold(set_tokens(k)) < 0,
              "sets of labels must be of tokens without a label, in order");
    check_training(tokens, layout.n_labels, seq_weight, constraints);
    n_seq_ = tokens.n_seq;
    const nb::gil_scoped_release release;
    const GoldLabels labels{gold.data(), set_tokens.data(), set_labels.data(), static_cast<i64>(set_tokens.size())};
    trainer_ = make_trainer<T>(make_online_data<T>(layout, tokens, labels, data_of(seq_weight), data_of(constraints)));
  }

  i64 size() const { return trainer_->size(); }
  i64 n_sequences() const { return n_seq_; }

  void set_weights(In<double, 1> w) {
    require(static_cast<i64>(w.size()) == size(), "the weight vector has the wrong size");
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    trainer_->set_weights(w.data());
  }
  void weights(bool averaged, Out<double, 1> w) {
    require(static_cast<i64>(w.size()) == size(), "the weight vector has the wrong size");
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    trainer_->weights(averaged, w.data());
  }

  template <class F>
  double pass(const In<i64, 1>& order, F f) {
    for (std::size_t k = 0; k < order.size(); ++k)
      require(order(k) >= 0 && order(k) < n_seq_, "there is no such sequence");
    const Order o{order.data(), static_cast<i64>(order.size())};
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    return f(*trainer_, o, make_threads(1).poll);
  }

  void set_beam(const std::optional<std::string>& kind, double amount, int size, std::optional<int> most) {
    Criterion criterion = criterion_of(kind.value_or("fixed_size"), amount, size);
    require(!most || *most >= 1, "a beam needs a label");
    if (most) criterion.most = *most;
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    trainer_->set_beam(kind ? &criterion : nullptr);
  }
  std::tuple<i64, i64, i64> tally() {
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    const BeamTally x = trainer_->tally();
    return {x.tokens, x.labels, x.largest};
  }
  double entropy_weight() const { return entropy_weight_; }
  void set_entropy_weight(double x) {
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    trainer_->set_entropy_weight(x);
    entropy_weight_ = x;
  }
  double entropy() {
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    return trainer_->entropy();
  }

  auto lipschitz() { return own(std::vector<double>(trainer_->lipschitz())); }

 private:
  std::unique_ptr<OnlineTrainer<T>> trainer_;
  std::mutex lock_;
  i64 n_seq_ = 0;
  double entropy_weight_ = 0;
};

template <class T>
void bind(nb::module_& m, const char* name) {
  using Self = Online<T>;
  using Trainer = OnlineTrainer<T>;
  nb::class_<Self>(m, name)
      .def(
          "__init__",
          [](Self* self, std::shared_ptr<const Layout> layout, const TokenArrays& data, In<i32, 1> gold,
             In<i64, 1> set_tokens, In<u8, 2> set_labels, std::optional<In<double, 1>> seq_weight,
             std::optional<In<double, 1>> constraints) {
            new (self) Self(*layout, data, gold, set_tokens, set_labels, seq_weight, constraints);
          },
          "layout"_a, "data"_a, "gold"_a, "set_tokens"_a, "set_labels"_a, "seq_weight"_a.none(), "constraints"_a.none())
      .def_prop_rw("entropy_weight", &Self::entropy_weight, &Self::set_entropy_weight)
      .def_prop_ro("entropy", &Self::entropy)
      .def("set_weights", &Self::set_weights, "w"_a)
      .def("weights", &Self::weights, "averaged"_a, "w"_a.noconvert())
      .def(
          "loss",
          [](Self& self, In<i64, 1> order) {
            return self.pass(order, [](Trainer& t, Order o, const Poll&) { return t.loss(o); });
          },
          "order"_a)
      .def(
          "sgd",
          [](Self& self, In<i64, 1> order, double eta0, double decay, double rate, double power, double t0, int batch,
             bool average) {
            require(batch >= 1, "a batch needs a sequence");
            return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) {
              return t.sgd(o, {eta0, decay, rate, power, t0, batch, average}, poll);
            });
          },
          "order"_a, "eta0"_a, "decay"_a, "rate"_a, "power"_a, "t0"_a, "batch"_a, "average"_a)
      .def(
          "adagrad",
          [](Self& self, In<i64, 1> order, double eta, double decay, double floor, int batch) {
            require(batch >= 1, "a batch needs a sequence");
            return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) {
              return t.adagrad(o, eta, decay, floor, batch, poll);
            });
          },
          "order"_a, "eta"_a, "decay"_a, "floor"_a, "batch"_a)
      .def(
          "perceptron",
          [](Self& self, In<i64, 1> order) {
            return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) { return t.perceptron(o, poll); });
          },
          "order"_a)
      .def(
          "passive_aggressive",
          [](Self& self, In<i64, 1> order, int type, double c, bool error_sensitive) {
            return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) {
              return t.passive_aggressive(o, type, c, error_sensitive, poll);
            });
          },
          "order"_a, "type"_a, "c"_a, "error_sensitive"_a)
      .def(
          "arow",
          [](Self& self, In<i64, 1> order, double variance, double r) {
            return self.pass(order,
                             [&](Trainer& t, Order o, const Poll& poll) { return t.arow(o, variance, r, poll); });
          },
          "order"_a, "variance"_a, "r"_a)
      .def(
          "sag",
          [](Self& self, In<i64, 1> order, double decay, int search) {
            require(search >= 1, "the search must be done now and then");
            return self.pass(order,
                             [&](Trainer& t, Order o, const Poll& poll) { return t.sag(o, decay, search, poll); });
          },
          "order"_a, "decay"_a, "search"_a)
      .def("set_beam", &Self::set_beam, "kind"_a.none(), "amount"_a = 0.0, "size"_a = 1, "most"_a = nb::none())
      .def_prop_ro("tally", &Self::tally)
      .def(
          "gradient",
          [](Self& self, In<i64, 1> order, Out<double, 1> g) {
            require(static_cast<i64>(g.size()) == self.size(), "the gradient has the wrong size");
            return self.pass(order, [&](Trainer& t, Order o, const Poll&) { return t.gradient(o, g.data()); });
          },
          "order"_a, "g"_a.noconvert())
      .def("lipschitz", &Self::lipschitz)
      .def(
          "smd",
          [](Self& self, In<i64, 1> order, double eta0, double mu, double lambda, double decay, double damp,
             int batch) {
            require(batch >= 1, "a batch needs a sequence");
            return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) {
              return t.smd(o, {eta0, mu, lambda, decay, damp, batch}, poll);
            });
          },
          "order"_a, "eta0"_a, "mu"_a, "lam"_a, "decay"_a, "damp"_a, "batch"_a)
      .def_prop_ro("n_sequences", &Self::n_sequences)
      .def_prop_ro("size", &Self::size);
}

}  // namespace

void bind_online(nb::module_& m) {
  bind<float>(m, "SequencesF32");
  bind<double>(m, "SequencesF64");
}

}  // namespace crfkit
