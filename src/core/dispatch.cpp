// dispatch.cpp: picks the kernels of the best instruction set that this machine has.
#include <cstdlib>
#include <cstring>

#include "kernels.hpp"

#define CRFKIT_DECLARE(isa)                            \
  namespace crfkit::isa {                              \
  const Kernels<float>& kernels_float(int n_labels);   \
  const Kernels<double>& kernels_double(int n_labels); \
  const VectorKernels& kernels_vector();               \
  }

CRFKIT_EACH_ISA(CRFKIT_DECLARE)

namespace crfkit {
namespace {

struct Choice {
  const char* name;
  const Kernels<float>& (*single)(int);
  const Kernels<double>& (*twice)(int);
  const VectorKernels& (*vector)();
};

// CRFKIT_ISA in the environment lowers the choice, for tests and measurements.
Choice choose() {
  const char* wish = std::getenv("CRFKIT_ISA");
  [[maybe_unused]] const auto may = [&](const char* name) { return wish == nullptr || std::strcmp(wish, name) == 0; };
#if defined(CRFKIT_HAVE_avx512)
  if (may("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return {"avx512", avx512::kernels_float, avx512::kernels_double, avx512::kernels_vector};
#endif
#if defined(CRFKIT_HAVE_avx2)
  if ((may("avx2") || may("avx512")) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    return {"avx2", avx2::kernels_float, avx2::kernels_double, avx2::kernels_vector};
#endif
  return {"base", base::kernels_float, base::kernels_double, base::kernels_vector};
}

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace

template <>
const Kernels<float>& kernels_for<float>(int n_labels) {
  return chosen().single(n_labels);
}
template <>
const Kernels<double>& kernels_for<double>(int n_labels) {
  return chosen().twice(n_labels);
}

const VectorKernels& vector_kernels() { return chosen().vector(); }

const char* instruction_set() { return chosen().name; }

}  // namespace crfkit
