#include "train/lbfgs_memory.hpp"

#include <algorithm>

#include "train/kernels.hpp"

namespace crfkit {
namespace {

constexpr i64 kChunk = 4096;

// Sums rows of partial results in their order.
std::vector<double> add_rows(const std::vector<double>& partial, i64 width) {
  std::vector<double> total(width, 0.0);
  for (std::size_t k = 0; k < partial.size(); ++k) total[k % width] += partial[k];
  return total;
}

}  // namespace

double dot(const double* a, const double* b, i64 n) {
  double total = 0;
  for (i64 c = 0; c < n; c += kChunk) total += vector_kernels().dot(a + c, b + c, std::min(kChunk, n - c));
  return total;
}

Memory::Memory(i64 size, int capacity) : size_(size), capacity_(capacity), slots_(capacity) {
  if (size < 0 || capacity < 0) throw Error("the memory's size must not be negative");
  pairs_.reserve(2 * slots_ * size_ + 1);
  products_.assign(i64{4} * slots_ * slots_, 0.0);
}

bool Memory::push(const double* x, const double* x_old, const double* g, const double* g_old, const Threads& threads) {
  const VectorKernels& kernels = vector_kernels();
  if (capacity_ == 0) return true;
  if (fresh_ >= 0) take_products(nullptr, threads);
  if (count() == capacity_) order_.erase(order_.begin());
  int slot = 0;
  while (std::find(order_.begin(), order_.end(), slot) != order_.end()) ++slot;
  float *s = step(slot), *y = change(slot);
  const i64 n_chunks = (size_ + kChunk - 1) / kChunk;
  std::vector<double> partial(2 * n_chunks);
  parallel_for(n_chunks, threads.count, {}, [&](i64 c, int) {
    const i64 begin = c * kChunk, n = std::min(kChunk, size_ - begin);
    for (i64 k = begin; k < begin + n; ++k) {
      s[k] = float(x[k] - x_old[k]);
      y[k] = float(g[k] - g_old[k]);
    }
    partial[2 * c] = kernels.dot_single(s + begin, y + begin, n);
    partial[2 * c + 1] = kernels.dot_single(y + begin, y + begin, n);
  });
  const std::vector<double> total = add_rows(partial, 2);
  if (!(total[0] > 1e-12 * total[1])) return false;  // the slot stays unused
  order_.push_back(slot);
  fresh_ = slot;
  return true;
}

std::vector<float> Memory::pairs() const {
  std::vector<float> out;
  for (int slot : order_) {
    const float* pair = pairs_.data() + 2 * slot * size_;
    out.insert(out.end(), pair, pair + 2 * size_);
  }
  return out;
}

std::vector<int> Memory::rows() const {
  std::vector<int> out;
  for (int k : order_) out.insert(out.end(), {2 * k, 2 * k + 1});
  return out;
}

// Products of v (if any) and of the fresh pair with all rows, in one pass; gives those of v.
std::vector<double> Memory::take_products(const double* v, const Threads& threads) {
  const VectorKernels& kernels = vector_kernels();
  const std::vector<int> all = rows();
  const i64 width = all.size(), n_chunks = (size_ + kChunk - 1) / kChunk;
  std::vector<double> partial(3 * width * n_chunks, 0.0);
  parallel_for(n_chunks, threads.count, {}, [&](i64 c, int) {
    const i64 begin = c * kChunk, n = std::min(kChunk, size_ - begin);
    for (i64 r = 0; r < width; ++r) {
      const float* row = pairs_.data() + all[r] * size_ + begin;
      double* out = partial.data() + 3 * (c * width + r);
      if (v) out[0] = kernels.dot_mixed(row, v + begin, n);
      if (fresh_ < 0) continue;
      out[1] = kernels.dot_single(row, step(fresh_) + begin, n);
      out[2] = kernels.dot_single(row, change(fresh_) + begin, n);
    }
  });
  std::vector<double> with_v(width);
  if (width == 0) return with_v;
  const std::vector<double> total = add_rows(partial, 3 * width);
  for (i64 r = 0; r < width; ++r) {
    with_v[r] = total[3 * r];
    if (fresh_ < 0) continue;
    product(2 * fresh_, all[r]) = product(all[r], 2 * fresh_) = total[3 * r + 1];
    product(2 * fresh_ + 1, all[r]) = product(all[r], 2 * fresh_ + 1) = total[3 * r + 2];
  }
  fresh_ = -1;
  return with_v;
}

void Memory::direction(const double* v, double* d, const Threads& threads) {
  const VectorKernels& kernels = vector_kernels();
  const std::vector<int> all = rows();
  const i64 width = all.size(), n_chunks = (size_ + kChunk - 1) / kChunk;
  const std::vector<double> with_v = take_products(v, threads);
  // the two loops, on coefficients: the vector at hand is c_v v + sum_r c[r] row[r]
  std::vector<double> c(width, 0.0);
  double c_v = -1;
  const auto inner = [&](i64 r) {
    double total = c_v * with_v[r];
    for (i64 q = 0; q < width; ++q) total += c[q] * product(all[r], all[q]);
    return total;
  };
  std::vector<double> alpha(order_.size());
  for (i64 k = count() - 1; k >= 0; --k) {
    alpha[k] = inner(2 * k) / product(all[2 * k], all[2 * k + 1]);
    c[2 * k + 1] -= alpha[k];
  }
  if (width > 0) {
    const int s = all[width - 2], y = all[width - 1];
    const double scale = product(s, y) / product(y, y);
    c_v *= scale;
    for (double& x : c) x *= scale;
  }
  for (i64 k = 0; k < count(); ++k) {
    const double beta = inner(2 * k + 1) / product(all[2 * k], all[2 * k + 1]);
    c[2 * k] += alpha[k] - beta;
  }
  parallel_for(n_chunks, threads.count, {}, [&](i64 chunk, int) {
    const i64 begin = chunk * kChunk, n = std::min(kChunk, size_ - begin);
    std::vector<const float*> row;
    for (int r : all) row.push_back(pairs_.data() + r * size_ + begin);
    for (i64 k = begin; k < begin + n; ++k) d[k] = c_v * v[k];
    kernels.add_rows(c.data(), row.data(), static_cast<int>(width), d + begin, n);
  });
}

}  // namespace crfkit
