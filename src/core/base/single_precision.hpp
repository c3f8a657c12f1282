// single_precision.hpp: kernels that have AVX2 for single precision alone.
//
// Training sequence by sequence, or with labels that are known in part, is done in double precision only by those who
// ask for it: there the baseline's kernels serve, and the package stays small.
#pragma once
#include "base/instruction_set.hpp"

#if defined(CRFKIT_HAVE_avx2)
#define CRFKIT_PICK_SINGLE(T, f)                                          \
  [] {                                                                    \
    if constexpr (std::is_same_v<T, float>) return CRFKIT_PICK_NARROW(f); \
    else return base::f;                                                  \
  }()
#else
#define CRFKIT_PICK_SINGLE(T, f) base::f
#endif

#if defined(__AVX2__)
#define CRFKIT_EACH_SINGLE(X) X(float)
#else
#define CRFKIT_EACH_SINGLE(X) X(float) X(double)
#endif
