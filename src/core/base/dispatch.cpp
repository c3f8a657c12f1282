// dispatch.cpp: picks the kernels of the best instruction set that this machine has.
#include <cstdlib>
#include <cstring>

#include "online/online.hpp"
#include "train/entropy.hpp"
#include "train/kernels.hpp"

// Every instruction set has these, but AVX-512 single precision only, and no trainers, whose vectors are short: there
// the code would be AVX2's once more.
#define CRFKIT_DECLARE(isa)                                        \
  namespace crfkit::isa {                                          \
  template <class T>                                               \
  const Kernels<T>& kernels(int n_labels);                         \
  template <class T>                                               \
  const EntropyKernels<T>& entropy_kernels(int lanes);             \
  template <class T>                                               \
  std::unique_ptr<OnlineTrainer<T>> trainer(OnlineData<T>&& data); \
  const VectorKernels& vector_kernels();                           \
  }
CRFKIT_DECLARE(base)
#if defined(CRFKIT_HAVE_avx512)
CRFKIT_DECLARE(avx2)
CRFKIT_DECLARE(avx512)
#endif

namespace crfkit {
namespace {

template <class T>
struct Set {
  const Kernels<T>& (*kernels)(int n_labels);
  const EntropyKernels<T>& (*entropy)(int lanes);
  std::unique_ptr<OnlineTrainer<T>> (*trainer)(OnlineData<T>&& data);
};

struct Choice {
  const char* name;
  Set<float> single;
  Set<double> twice;
  const VectorKernels& (*vector)();
};

// CRFKIT_ISA in the environment lowers the choice, for tests and measurements.
Choice choose() {
#if defined(CRFKIT_HAVE_avx512)
  const char* wish = std::getenv("CRFKIT_ISA");
  const auto may = [&](const char* name) { return wish == nullptr || std::strcmp(wish, name) == 0; };
  if ((may("avx2") || may("avx512")) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    const Set<float> single = {avx2::kernels<float>, avx2::entropy_kernels<float>, avx2::trainer<float>};
    const Set<double> twice = {avx2::kernels<double>, avx2::entropy_kernels<double>, avx2::trainer<double>};
    if (may("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
      return {"avx512",
              {avx512::kernels<float>, avx512::entropy_kernels<float>, single.trainer},
              twice,
              avx512::vector_kernels};
    return {"avx2", single, twice, avx2::vector_kernels};
  }
#endif
  return {"base",
          {base::kernels<float>, base::entropy_kernels<float>, base::trainer<float>},
          {base::kernels<double>, base::entropy_kernels<double>, base::trainer<double>},
          base::vector_kernels};
}

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

template <class T>
const Set<T>& set_of() {
  if constexpr (std::is_same_v<T, float>) return chosen().single;
  else return chosen().twice;
}

}  // namespace

template <class T>
const Kernels<T>& kernels_for(int n_labels) {
  return set_of<T>().kernels(n_labels);
}
template <class T>
const EntropyKernels<T>& entropy_kernels_for(int lanes) {
  return set_of<T>().entropy(lanes);
}
template <class T>
std::unique_ptr<OnlineTrainer<T>> make_trainer(OnlineData<T>&& data) {
  return set_of<T>().trainer(std::move(data));
}

template const Kernels<float>& kernels_for(int);
template const Kernels<double>& kernels_for(int);
template const EntropyKernels<float>& entropy_kernels_for(int);
template const EntropyKernels<double>& entropy_kernels_for(int);
template std::unique_ptr<OnlineTrainer<float>> make_trainer(OnlineData<float>&&);
template std::unique_ptr<OnlineTrainer<double>> make_trainer(OnlineData<double>&&);

const VectorKernels& vector_kernels() { return chosen().vector(); }

const char* instruction_set() { return chosen().name; }

}  // namespace crfkit
