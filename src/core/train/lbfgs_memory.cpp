#include "train/lbfgs_memory.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>

#include "train/search_kernels.hpp"

namespace crfkit {
namespace {

constexpr i64 kChunk = 4096;

i64 count_chunks(i64 n) { return (n + kChunk - 1) / kChunk; }

// Calls body(chunk, begin, n) for the chunks of [0, size).
template <class Body>
void each_chunk(i64 size, const Threads& threads, Body body) {
  constexpr i64 kTogether = 8;  // chunks: what a thread takes at a time should be worth the asking
  parallel_blocks(count_chunks(size), kTogether, {threads.count, {}}, [&](i64 first, i64 last, int) {
    for (i64 c = first; c < last; ++c) body(c, c * kChunk, std::min(kChunk, size - c * kChunk));
  });
}

// Sums rows of partial results in their order.
std::vector<double> add_rows(const std::vector<double>& partial, i64 width) {
  std::vector<double> total(width, 0.0);
  for (std::size_t k = 0; k < partial.size(); ++k) total[k % width] += partial[k];
  return total;
}

// Asks for large pages: a pass reads many rows side by side, and each page must be found.
void ask_for_large_pages([[maybe_unused]] float* begin, [[maybe_unused]] i64 n) {
#if defined(__linux__)
  constexpr std::uintptr_t kPage = std::uintptr_t{1} << 21;
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(begin) + kPage - 1) / kPage * kPage;
  const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(begin + n) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // a hint: it may fail
#endif
}

// A move whose d is made chunk by chunk: prepare(begin, n).
template <class Prepare>
Moved move_by(const Move& m, i64 size, const Threads& threads, Prepare prepare) {
  const SearchKernels& kernels = search_kernels();
  const auto move = m.in_orthant ? kernels.move_in_orthant : kernels.move;
  std::vector<double> partial(3 * count_chunks(size));
  each_chunk(size, threads, [&](i64 c, i64 begin, i64 n) {
    prepare(begin, n);
    move(m.x + begin, m.v + begin, m.d + begin, m.step, m.to + begin, n, partial.data() + 3 * c);
  });
  const std::vector<double> total = add_rows(partial, 3);
  return {total[0], total[1], total[2]};
}

}  // namespace

double dot(const double* a, const double* b, i64 n, const Threads& threads) {
  const SearchKernels& kernels = search_kernels();
  std::vector<double> partial(count_chunks(n));
  each_chunk(n, threads, [&](i64 c, i64 begin, i64 m) { partial[c] = kernels.dot(a + begin, b + begin, m); });
  double total = 0;
  for (double x : partial) total += x;
  return total;
}

Moved make_move(const Move& move, i64 n, const Threads& threads) {
  return move_by(move, n, threads, [](i64, i64) {});
}

struct Memory::Pair {
  const double *x, *x_old, *g, *g_old;
};

Memory::Memory(i64 size, int capacity) : size_(size), capacity_(capacity), slots_(capacity) {
  if (size < 0 || capacity < 0) throw Error("the memory's size must not be negative");
  pairs_.reserve(2 * slots_ * size_ + 1);
  ask_for_large_pages(pairs_.data(), 2 * slots_ * size_);
  products_.assign(i64{4} * slots_ * slots_, 0.0);
}

bool Memory::push(const double* x, const double* x_old, const double* g, const double* g_old, const Threads& threads) {
  const Pair pair{x, x_old, g, g_old};
  return sweep(&pair, nullptr, nullptr, threads);
}

Norms Memory::look(const SearchPoint& point, const Threads& threads) {
  Norms norms;
  sweep(nullptr, &point, &norms, threads);
  return norms;
}

Norms Memory::advance(const SearchPoint& point, const double* x_old, const double* g_old, const Threads& threads) {
  const Pair pair{point.x, x_old, point.g, g_old};
  Norms norms;
  sweep(&pair, &point, &norms, threads);
  return norms;
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

// Takes in a fresh pair, looks at a point, or both: all products that are new, in one pass over the memory.
bool Memory::sweep(const Pair* fresh, const SearchPoint* point, Norms* norms, const Threads& threads) {
  const SearchKernels& kernels = search_kernels();
  int slot = -1;
  if (fresh && capacity_ > 0) {
    if (count() == capacity_) order_.erase(order_.begin());
    slot = 0;
    while (std::find(order_.begin(), order_.end(), slot) != order_.end()) ++slot;
    order_.push_back(slot);
  }
  const std::vector<int> all = rows();
  const i64 width = all.size(), each = 3 * width + 3;
  const double* v = point ? point->steepest() : fresh->g;  // products with what is not there are not used
  std::vector<double> partial(each * count_chunks(size_), 0.0);
  each_chunk(size_, threads, [&](i64 c, i64 begin, i64 n) {
    double* out = partial.data() + each * c;
    if (slot >= 0) {
      kernels.change(fresh->x + begin, fresh->x_old + begin, step(slot) + begin, n);
      kernels.change(fresh->g + begin, fresh->g_old + begin, change(slot) + begin, n);
    }
    if (point) {
      double* at_v = point->v ? point->v + begin : nullptr;
      kernels.look(point->x + begin, point->g + begin, point->c1, at_v, n, out + 3 * width);
    }
    for (int k = 0; k < count(); ++k) {
      const float* pair = step(order_[k]) + begin;
      const float* next = k + 1 < count() ? step(order_[k + 1]) + begin : step(order_[0]) + begin + n;
      const float* s = slot < 0 ? pair : step(slot) + begin;
      kernels.products(pair, size_, next, v + begin, s, s + size_, n, out + 6 * k);
    }
  });
  const std::vector<double> total = add_rows(partial, each);
  with_v_.assign(point ? width : 0, 0.0);
  for (i64 r = 0; r < std::ssize(with_v_); ++r) with_v_[r] = total[3 * r];
  if (norms) *norms = {total[3 * width], total[3 * width + 1], static_cast<i64>(total[3 * width + 2])};
  if (slot < 0) return true;
  for (i64 r = 0; r < width; ++r) {
    product(2 * slot, all[r]) = product(all[r], 2 * slot) = total[3 * r + 1];
    product(2 * slot + 1, all[r]) = product(all[r], 2 * slot + 1) = total[3 * r + 2];
  }
  if (product(2 * slot, 2 * slot + 1) > 1e-12 * product(2 * slot + 1, 2 * slot + 1)) return true;
  order_.pop_back();  // the slot stays unused
  if (point) with_v_.resize(width - 2);
  return false;
}

// The two loops, on coefficients: the vector at hand is c_v v + sum_r c[r] row[r].
std::vector<double> Memory::coefficients(double& c_v) {
  const std::vector<int> all = rows();
  const i64 width = all.size();
  std::vector<double> c(width, 0.0);
  c_v = -1;
  const auto inner = [&](i64 r) {
    double total = c_v * with_v_[r];
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
  return c;
}

Moved Memory::direction(const Move& move, const Threads& threads) {
  const SearchKernels& kernels = search_kernels();
  const std::vector<int> all = rows();
  if (with_v_.size() != all.size()) throw Error("the memory has not looked at the point");
  double c_v;
  const std::vector<double> c = coefficients(c_v);
  return move_by(move, size_, threads, [&](i64 begin, i64 n) {
    std::vector<const float*> row;
    for (int r : all) row.push_back(pairs_.data() + r * size_ + begin);
    kernels.combine(c_v, move.v + begin, c.data(), row.data(), static_cast<int>(all.size()), move.d + begin, n);
  });
}

}  // namespace crfkit
