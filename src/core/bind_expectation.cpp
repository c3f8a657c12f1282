// bind_expectation.cpp: the Python face of expectation.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <chrono>
#include <memory>
#include <optional>

#include "expectation.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace crfkit;

namespace {

template <class T, int Rank>
using Array = nb::ndarray<T, nb::numpy, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
template <class T, int Rank>
using In = Array<const T, Rank>;

void require(bool ok, const char* what) {
  if (!ok) throw Error(what);
}

Threads interruptible(int count) {
  using Clock = std::chrono::steady_clock;
  auto last = std::make_shared<Clock::time_point>(Clock::now());
  return {std::max(1, count), [last] {
            if (Clock::now() - *last < std::chrono::milliseconds(50)) return;
            *last = Clock::now();
            const nb::gil_scoped_acquire lock;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
          }};
}

template <class T>
ChainInput<T> input(const In<T, 2>& unary, const In<T, 3>& pairwise, bool per_step, const In<i64, 1>& offsets) {
  ChainInput<T> in;
  in.n_labels = static_cast<int>(unary.shape(1));
  in.n_seq = static_cast<i64>(offsets.size()) - 1;
  in.offsets = offsets.data();
  in.unary = unary.data();
  in.pairwise = pairwise.data();
  in.per_step = per_step;
  require(in.n_labels >= 1, "potentials need at least one label");
  require(in.n_seq >= 0 && offsets(0) == 0 && offsets(in.n_seq) == static_cast<i64>(unary.shape(0)),
          "offsets must rise from 0 to the number of tokens");
  for (i64 s = 0; s < in.n_seq; ++s) require(offsets(s) <= offsets(s + 1), "offsets must rise from 0 to the number of tokens");
  require(pairwise.shape(1) == unary.shape(1) && pairwise.shape(2) == unary.shape(1), "pairwise must be labels by labels");
  require(static_cast<i64>(pairwise.shape(0)) == (per_step ? edge_offsets(in.offsets, in.n_seq).back() : 1),
          "pairwise has the wrong number of steps");
  return in;
}

template <class T>
void bind_type(nb::module_& m) {
  m.def(
      "expectations",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, int threads, std::optional<In<double, 1>> weight,
         Array<double, 1> log_z, std::optional<Array<T, 2>> nodes, std::optional<Array<double, 2>> pairs,
         std::optional<Array<T, 3>> edges) {
        const ChainInput<T> in = input<T>(unary, pairwise, per_step, offsets);
        require(static_cast<i64>(log_z.size()) == in.n_seq && (!weight || static_cast<i64>(weight->size()) == in.n_seq),
                "weight and log_z must have the number of sequences");
        require(!nodes || nodes->size() == unary.size(), "nodes has the wrong size");
        require(!pairs || (!per_step && pairs->size() == pairwise.size()), "pairs has the wrong size");
        require(!edges || (per_step && edges->size() == pairwise.size()), "edges has the wrong size");
        const nb::gil_scoped_release release;
        expectations(in, weight ? weight->data() : nullptr, interruptible(threads), log_z.data(), nodes ? nodes->data() : nullptr,
                     pairs ? pairs->data() : nullptr, edges ? edges->data() : nullptr);
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "threads"_a, "weight"_a.none(), "log_z"_a.noconvert(),
      "nodes"_a.none().noconvert(), "pairs"_a.none().noconvert(), "edges"_a.none().noconvert());
  m.def(
      "covariance",
      [](In<T, 2> unary, In<T, 3> pairwise, bool per_step, In<i64, 1> offsets, In<T, 2> r, In<T, 3> ra, int threads,
         std::optional<In<double, 1>> weight, Array<double, 1> mean, std::optional<Array<T, 2>> nodes,
         std::optional<Array<double, 2>> pairs, std::optional<Array<T, 3>> edges) {
        const ChainInput<T> in = input<T>(unary, pairwise, per_step, offsets);
        require(r.size() == unary.size() && ra.size() == pairwise.size(), "the direction has the wrong size");
        require(static_cast<i64>(mean.size()) == in.n_seq && (!weight || static_cast<i64>(weight->size()) == in.n_seq),
                "weight and mean must have the number of sequences");
        require(!nodes || nodes->size() == unary.size(), "nodes has the wrong size");
        require(!pairs || (!per_step && pairs->size() == pairwise.size()), "pairs has the wrong size");
        require(!edges || (per_step && edges->size() == pairwise.size()), "edges has the wrong size");
        const nb::gil_scoped_release release;
        covariance(in, r.data(), ra.data(), weight ? weight->data() : nullptr, interruptible(threads), mean.data(),
                   nodes ? nodes->data() : nullptr, pairs ? pairs->data() : nullptr, edges ? edges->data() : nullptr);
      },
      "unary"_a, "pairwise"_a, "per_step"_a, "offsets"_a, "r"_a, "ra"_a, "threads"_a, "weight"_a.none(), "mean"_a.noconvert(),
      "nodes"_a.none().noconvert(), "pairs"_a.none().noconvert(), "edges"_a.none().noconvert());
}

}  // namespace

void bind_expectation(nb::module_& m) {
  bind_type<float>(m);
  bind_type<double>(m);
}
