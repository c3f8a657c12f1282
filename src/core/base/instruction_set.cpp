#include "base/instruction_set.hpp"

#include <cstdlib>
#include <cstring>

namespace crfkit {
namespace {

InstructionSet choose() {
#if defined(CRFKIT_HAVE_avx512)
  const char* wish = std::getenv("CRFKIT_ISA");
  const auto may = [&](const char* name) { return wish == nullptr || std::strcmp(wish, name) == 0; };
  if ((may("avx2") || may("avx512")) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    if (may("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
      return InstructionSet::avx512;
    return InstructionSet::avx2;
  }
#endif
  return InstructionSet::base;
}

}  // namespace

InstructionSet best_set() {
  static const InstructionSet set = choose();
  return set;
}

const char* instruction_set() {
  constexpr const char* names[] = {"base", "avx2", "avx512"};
  return names[static_cast<int>(best_set())];
}

}  // namespace crfkit
