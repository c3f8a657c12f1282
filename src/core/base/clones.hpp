// clones.hpp: functions compiled for several instruction sets, chosen by the loader.
#pragma once
#include "base/base.hpp"

#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define CRFKIT_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CRFKIT_CLONES
#endif
