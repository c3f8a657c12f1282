#include "base/instruction_set.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#if defined(CRFKIT_HAVE_avx512)
#include <cpuid.h>
#endif

namespace crfkit {
namespace {

#if defined(CRFKIT_HAVE_avx512)
// By the processor's own words: __builtin_cpu_supports needs a library that clang-cl does not link.
InstructionSet best_of_machine() {
  unsigned a = 0, b = 0, c = 0, d = 0, low = 0, high = 0;
  const auto bits = [](unsigned word, std::initializer_list<int> numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [&](int n) { return (word >> n & 1) != 0; });
  };
  constexpr int fma = 12, osxsave = 27, avx = 28, f16c = 29;                                             // leaf 1, ecx
  constexpr int bmi = 3, avx2 = 5, bmi2 = 8, avx512f = 16, avx512dq = 17, avx512bw = 30, avx512vl = 31;  // leaf 7, ebx
  if (!__get_cpuid(1, &a, &b, &c, &d) || !bits(c, {fma, osxsave, avx, f16c})) return InstructionSet::base;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));  // which registers the system saves
  if (!bits(low, {1, 2}) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !bits(b, {bmi, avx2, bmi2}))
    return InstructionSet::base;
  const bool wide = bits(low, {5, 6, 7}) && bits(b, {avx512f, avx512dq, avx512bw, avx512vl});
  return wide ? InstructionSet::avx512 : InstructionSet::avx2;
}
#endif

InstructionSet choose() {
#if defined(CRFKIT_HAVE_avx512)
  const char* wish = std::getenv("CRFKIT_ISA");
  const auto may = [&](const char* name) { return wish == nullptr || std::strcmp(wish, name) == 0; };
  const InstructionSet best = best_of_machine();
  if (may("avx512") && best == InstructionSet::avx512) return best;
  if ((may("avx2") || may("avx512")) && best != InstructionSet::base) return InstructionSet::avx2;
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
