// bind_online.cpp: the Python face of training sequence by sequence.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <mutex>

#include "online.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace crfkit {
namespace {

template <class T>
using In = nb::ndarray<const T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void require(bool ok, const char* what) {
  if (!ok) throw Error(what);
}

// Lets Ctrl-C through while the core works without the interpreter's lock.
Poll make_poll() {
  using Clock = std::chrono::steady_clock;
  auto last = std::make_shared<Clock::time_point>(Clock::now());
  return [last] {
    if (Clock::now() - *last < std::chrono::milliseconds(50)) return;
    *last = Clock::now();
    const nb::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
}

void check_offsets(const In<i64>& offsets, i64 n, const char* what) {
  require(offsets.size() >= 1 && offsets(0) == 0 && offsets(offsets.size() - 1) == n, what);
  for (std::size_t i = 1; i < offsets.size(); ++i) require(offsets(i - 1) <= offsets(i), what);
}

// A trainer, its siblings for other threads, and a lock: callers on several threads take turns.
template <class T>
class Online {
 public:
  Online(const Layout& layout, In<i64> offsets, In<i64> ptr, In<u32> attr, std::optional<In<double>> value,
         std::optional<In<i64>> edge_ptr, std::optional<In<u32>> edge_attr, In<i32> gold, std::optional<In<double>> seq_weight,
         std::optional<In<double>> constraints) {
    Tokens t;
    t.n_seq = static_cast<i64>(offsets.size()) - 1;
    t.offsets = offsets.data();
    t.ptr = ptr.data();
    t.attr = attr.data();
    check_offsets(ptr, static_cast<i64>(attr.size()), "attribute pointers must rise from 0 to the number of attributes");
    check_offsets(offsets, static_cast<i64>(ptr.size()) - 1, "offsets must rise from 0 to the number of tokens");
    if (value) {
      require(value->size() == attr.size(), "there must be a value for every attribute");
      t.value = value->data();
    }
    if (edge_ptr) {
      require(edge_attr.has_value() && edge_ptr->size() == ptr.size(), "there must be edge attributes for every token");
      check_offsets(*edge_ptr, static_cast<i64>(edge_attr->size()), "edge pointers must rise from 0 to the number of attributes");
      t.edge_ptr = edge_ptr->data();
      t.edge_attr = edge_attr->data();
    }
    require(static_cast<i64>(gold.size()) == t.n_tokens(), "there must be a label for every token");
    for (std::size_t k = 0; k < gold.size(); ++k) require(gold(k) >= 0 && gold(k) < layout.n_labels, "a label is not one of the model's");
    require(!seq_weight || static_cast<i64>(seq_weight->size()) == t.n_seq, "there must be a weight for every sequence");
    require(!constraints || static_cast<i64>(constraints->size()) == static_cast<i64>(layout.n_labels) * (layout.n_labels + 2),
            "constraints have the wrong size");
    n_seq_ = t.n_seq;
    const nb::gil_scoped_release release;
    trainer_ = make_trainer<T>(make_online_data<T>(layout, t, gold.data(), seq_weight ? seq_weight->data() : nullptr,
                                                   constraints ? constraints->data() : nullptr));
  }

  i64 size() const { return trainer_->size(); }
  i64 n_sequences() const { return n_seq_; }

  void set_weights(In<double> w) {
    require(static_cast<i64>(w.size()) == size(), "the weight vector has the wrong size");
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    trainer_->set_weights(w.data());
  }
  void weights(bool averaged, Out<double> w) {
    require(static_cast<i64>(w.size()) == size(), "the weight vector has the wrong size");
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    trainer_->weights(averaged, w.data());
  }

  template <class F>
  double pass(const In<i64>& order, F f) {
    for (std::size_t k = 0; k < order.size(); ++k) require(order(k) >= 0 && order(k) < n_seq_, "there is no such sequence");
    const Order o{order.data(), static_cast<i64>(order.size())};
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    return f(*trainer_, o, make_poll());
  }

  nb::object lipschitz() {
    auto* kept = new std::vector<double>(trainer_->lipschitz());
    const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
  }

  // out = Hessian of the sum of losses at w, times v: chunks on threads, added in their order
  void hessian_product(In<double> w, In<double> v, Out<double> out, int threads) {
    require(static_cast<i64>(w.size()) == size() && static_cast<i64>(v.size()) == size() && static_cast<i64>(out.size()) == size(),
            "the weight vector has the wrong size");
    const nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> guard(lock_);
    threads = std::max(1, threads);
    while (static_cast<int>(siblings_.size()) < threads) siblings_.push_back(trainer_->sibling());
    for (int t = 0; t < threads; ++t) siblings_[t]->set_weights(w.data());
    const i64 chunks = std::min<i64>(kChunks, std::max<i64>(1, n_seq_));
    std::fill_n(out.data(), out.size(), 0.0);
    std::vector<std::vector<double>> part(chunks);
    parallel_for(chunks, threads, make_poll(), [&](i64 c, int thread) {
      part[c].assign(out.size(), 0.0);
      siblings_[thread]->hessian_product(n_seq_ * c / chunks, n_seq_ * (c + 1) / chunks, v.data(), part[c].data());
    });
    for (const auto& x : part)
      for (std::size_t k = 0; k < out.size(); ++k) out.data()[k] += x[k];
  }

 private:
  static constexpr i64 kChunks = 8;
  std::unique_ptr<OnlineTrainer<T>> trainer_;
  std::vector<std::unique_ptr<OnlineTrainer<T>>> siblings_;
  std::mutex lock_;
  i64 n_seq_ = 0;
};

template <class T>
void bind(nb::module_& m, const char* name) {
  using Self = Online<T>;
  using Trainer = OnlineTrainer<T>;
  nb::class_<Self>(m, name)
      .def(
          "__init__",
          [](Self* self, std::shared_ptr<const Layout> layout, In<i64> offsets, In<i64> ptr, In<u32> attr,
             std::optional<In<double>> value, std::optional<In<i64>> edge_ptr, std::optional<In<u32>> edge_attr, In<i32> gold,
             std::optional<In<double>> seq_weight, std::optional<In<double>> constraints) {
            new (self) Self(*layout, offsets, ptr, attr, value, edge_ptr, edge_attr, gold, seq_weight, constraints);
          },
          "layout"_a, "offsets"_a, "ptr"_a, "attr"_a, "value"_a.none(), "edge_ptr"_a.none(), "edge_attr"_a.none(), "gold"_a,
          "seq_weight"_a.none(), "constraints"_a.none())
      .def("set_weights", &Self::set_weights, "w"_a)
      .def("weights", &Self::weights, "averaged"_a, "w"_a.noconvert())
      .def("loss",
           [](Self& self, In<i64> order) {
             return self.pass(order, [](Trainer& t, Order o, const Poll&) { return t.loss(o); });
           },
           "order"_a)
      .def("sgd",
           [](Self& self, In<i64> order, double eta0, double decay, double rate, double power, double t0, int batch, bool average) {
             require(batch >= 1, "a batch needs a sequence");
             return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) {
               return t.sgd(o, {eta0, decay, rate, power, t0, batch, average}, poll);
             });
           },
           "order"_a, "eta0"_a, "decay"_a, "rate"_a, "power"_a, "t0"_a, "batch"_a, "average"_a)
      .def("adagrad",
           [](Self& self, In<i64> order, double eta, double decay, int batch) {
             require(batch >= 1, "a batch needs a sequence");
             return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) { return t.adagrad(o, eta, decay, batch, poll); });
           },
           "order"_a, "eta"_a, "decay"_a, "batch"_a)
      .def("perceptron",
           [](Self& self, In<i64> order) {
             return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) { return t.perceptron(o, poll); });
           },
           "order"_a)
      .def("passive_aggressive",
           [](Self& self, In<i64> order, int type, double c, bool error_sensitive) {
             return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) {
               return t.passive_aggressive(o, type, c, error_sensitive, poll);
             });
           },
           "order"_a, "type"_a, "c"_a, "error_sensitive"_a)
      .def("arow",
           [](Self& self, In<i64> order, double variance, double r) {
             return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) { return t.arow(o, variance, r, poll); });
           },
           "order"_a, "variance"_a, "r"_a)
      .def("sag",
           [](Self& self, In<i64> order, double decay, int search) {
             require(search >= 1, "the search must be done now and then");
             return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) { return t.sag(o, decay, search, poll); });
           },
           "order"_a, "decay"_a, "search"_a)
      .def("lipschitz", &Self::lipschitz)
      .def("smd",
           [](Self& self, In<i64> order, double eta0, double mu, double lambda, double decay, double damp, int batch) {
             require(batch >= 1, "a batch needs a sequence");
             return self.pass(order, [&](Trainer& t, Order o, const Poll& poll) {
               return t.smd(o, {eta0, mu, lambda, decay, damp, batch}, poll);
             });
           },
           "order"_a, "eta0"_a, "mu"_a, "lam"_a, "decay"_a, "damp"_a, "batch"_a)
      .def("hessian_product", &Self::hessian_product, "w"_a, "v"_a, "out"_a.noconvert(), "threads"_a)
      .def_prop_ro("n_sequences", &Self::n_sequences)
      .def_prop_ro("size", &Self::size);
}

}  // namespace

void bind_online(nb::module_& m) {
  bind<float>(m, "SequencesF32");
  bind<double>(m, "SequencesF64");
}

}  // namespace crfkit
