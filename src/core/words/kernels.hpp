// kernels.hpp: the inner loops of vectors of words, compiled once per instruction set.
#pragma once
#include "base/base.hpp"
#include "base/instruction_set.hpp"

namespace crfkit {

// Columns of all matrices are padded to a multiple of this.
constexpr int kWordPad = 16;

struct WordKernels {
  // out = sum_k sqrt(count[k]) scale[at[k]] x[at[k]], of rows of `width` numbers
  void (*gather)(const u32* at, const u32* count, i64 n, const float* scale, const float* x, int width, float* out);
  // nearest[i] = the k with the largest sum_d x[i][d] m[d][k], the first of them; best[i] is that sum. x is
  // [n][depth], m [depth][stride], where columns from `columns` on do not count; room for 8 rows.
  void (*nearest)(const float* x, i64 n, const float* m, int depth, int columns, int stride, float* room, u32* nearest,
                  float* best);
  // out[i] = x[i] . y, of rows of `width` numbers
  void (*products)(const float* x, i64 n, const float* y, int width, float* out);
  // sum += x' y, and x = x m, of n rows of `width` numbers; sum and m are [width][width]
  void (*inner)(const float* x, const float* y, i64 n, int width, double* sum);
  void (*times)(float* x, i64 n, const double* m, int width);
};

CRFKIT_IN_EACH_SET(const WordKernels& word_kernels();)

inline const WordKernels& word_kernels() { return CRFKIT_PICK_NARROW(word_kernels)(); }

}  // namespace crfkit
