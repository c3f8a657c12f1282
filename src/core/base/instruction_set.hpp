// instruction_set.hpp: which of the instruction sets that kernels are compiled for is used on this machine.
//
// A room's kernels are compiled once per set, in a namespace named after it. The room declares the function that gives
// its table of kernels with CRFKIT_IN_EACH_SET, and picks one of them with CRFKIT_PICK:
//
//   CRFKIT_IN_EACH_SET(template <class T> const ChainKernels<T>& chain_kernels(int n_labels);)
//   ... CRFKIT_PICK(T, chain_kernels<T>)(n_labels)
//
// AVX-512 has only what most time is spent in (gradients, marginals, best paths, scores), in single precision; the rest
// is picked with CRFKIT_PICK_NARROW. Every kernel more makes the package larger. See also single_precision.hpp.
#pragma once
#include <type_traits>

namespace crfkit {

enum class InstructionSet { base, avx2, avx512 };

// The best one that this machine has, or what CRFKIT_ISA in the environment lowers it to; and its name.
InstructionSet best_set();
const char* instruction_set();

#if defined(CRFKIT_HAVE_avx512)
#define CRFKIT_IN_EACH_SET(...) \
  namespace base {              \
  __VA_ARGS__                   \
  }                             \
  namespace avx2 {              \
  __VA_ARGS__                   \
  }                             \
  namespace avx512 {            \
  __VA_ARGS__                   \
  }
#define CRFKIT_PICK_NARROW(f) (best_set() == InstructionSet::base ? base::f : avx2::f)
#define CRFKIT_PICK_WIDE(f) (best_set() == InstructionSet::avx512 ? avx512::f : CRFKIT_PICK_NARROW(f))
#else
#define CRFKIT_IN_EACH_SET(...) \
  namespace base {              \
  __VA_ARGS__                   \
  }
#define CRFKIT_PICK_NARROW(f) base::f
#define CRFKIT_PICK_WIDE(f) base::f
#endif
#define CRFKIT_PICK(T, f)                                               \
  [] {                                                                  \
    if constexpr (std::is_same_v<T, float>) return CRFKIT_PICK_WIDE(f); \
    else return CRFKIT_PICK_NARROW(f);                                  \
  }()

}  // namespace crfkit
