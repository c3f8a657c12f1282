// isa.hpp: the instruction sets that kernels are compiled for. CMake compiles them all on x86-64, one elsewhere.
#pragma once
#include <cstring>

#if defined(CRFKIT_HAVE_avx512)
#define CRFKIT_EACH_ISA(X) X(avx512) X(avx2) X(base)
#else
#define CRFKIT_EACH_ISA(X) X(base)
#endif

namespace crfkit {

// The name of the best one that this machine has, or of the one that CRFKIT_ISA in the environment asks for.
const char* instruction_set();

// Whether kernels of this name are the ones to use.
inline bool is_instruction_set(const char* name) { return std::strcmp(instruction_set(), name) == 0; }

}  // namespace crfkit
