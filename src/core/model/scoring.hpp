// scoring.hpp: scores from weights, gradients from marginals; one the adjoint of the other.
//
//   u[r] = init + sum over the entries k of token row r of value_k * row_k
//   grad(row_k) += value_k * p[r]
#pragma once
#include "base/rows.hpp"
#include "model/features.hpp"

namespace crfkit::CRFKIT_ISA {

// A group's rows, copied out of the model for one block.
template <class T, int W>
class LocalRows {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;

 public:
  // table: the family's dense rows; w: all weights of the model.
  CRFKIT_KERNEL void load(const Group<T>& group, const Family& family, const T* table, const double* w) {
    group_ = &group;
    width_ = family.width;
    dense_.reserve(group.dense.size() * width_ + 1);
    for (std::size_t r = 0; r < group.dense.size(); ++r)
      for (i64 k = 0; k < width_; k += W)
        S::store(dense_.data() + r * width_ + k, S::load(table + group.dense[r] * width_ + k));
    runs_.reserve(group.weight.size() + 1);
    run_ = runs_.data();
    run_ptr_ = group.run_ptr.empty() ? nullptr : group.run_ptr.data();
    w += family.first_weight;
    for (std::size_t k = 0; k < group.weight.size(); ++k) {
      const u32 weight = group.weight[k];
      runs_[k] = {T(w[weight]), family.column(weight)};
    }
  }

  // out[r] = init + the scores of token row `row` + r, for n of them
  void score(i64 row, i64 n, const T* init, T* out) const {
    by_id([&](const auto* id) { score_rows(id, row, n, init, out); });
  }

  CRFKIT_KERNEL void clear_gradient() {
    dense_gradient_.assign(group_->dense.size() * width_, T(0));
    run_gradient_.assign(group_->weight.size(), T(0));
  }

  // adds the marginals p[r] of token rows `row` + r to the gradients of their rows
  void scatter(i64 row, i64 n, const T* p) {
    by_id([&](const auto* id) { scatter_rows(id, row, n, p); });
  }

  // Adds part `part` of `parts` of the local gradient to the model's: dense rows into `table`
  // [dense rows][width], the rest into g.
  CRFKIT_KERNEL void merge(const Family& family, int part, int parts, T* table, double* g) const {
    const auto range = [&](const std::vector<u32>& ids, u64 total) {
      const auto at = [&](u64 p) {
        return std::lower_bound(ids.begin(), ids.end(), static_cast<u32>(total * p / parts)) - ids.begin();
      };
      return std::pair<i64, i64>(at(part), part + 1 == parts ? std::ssize(ids) : at(part + 1));
    };
    const auto [d0, d1] = range(group_->dense, family.dense_attr.size());
    for (i64 r = d0; r < d1; ++r) {
      T* out = table + group_->dense[r] * width_;
      const T* in = dense_gradient_.data() + r * width_;
      for (i64 k = 0; k < width_; k += W) S::store(out + k, S::load(out + k) + S::load(in + k));
    }
    g += family.first_weight;
    const auto [k0, k1] = range(group_->weight, family.n_weights());
    for (i64 k = k0; k < k1; ++k) g[group_->weight[k]] += run_gradient_[k];
  }

 private:
  template <class F>
  CRFKIT_INLINE void by_id(F f) const {
    if (group_->wide_id.empty()) f(group_->id.data());
    else f(group_->wide_id.data());
  }

  template <class F>
  CRFKIT_INLINE void for_run(u32 id, F f) const {
    if (run_ptr_ == nullptr) return f(id);
    for (u32 q = run_ptr_[id]; q < run_ptr_[id + 1]; ++q) f(q);
  }

  template <class Id>
  CRFKIT_KERNEL void score_rows(const Id* ids, i64 row, i64 n, const T* init, T* out) const {
    const T* dense = dense_.data();
    const RunWeight<T>* run = run_;
    const T* value = group_->value.empty() ? nullptr : group_->value.data();
    for (i64 r = 0; r < n; ++r, ++row, out += width_) {
      const u32 begin = group_->ptr[row], middle = begin + group_->n_dense[row], end = group_->ptr[row + 1];
      for_tiles<4>(static_cast<int>(width_ / W), [&](auto N, int v0) {
        Vec acc[N];
        for (int v = 0; v < N; ++v) acc[v] = S::load(init + (v0 + v) * W);
        if (value) {
          for (u32 k = begin; k < middle; ++k)
            for (int v = 0; v < N; ++v) acc[v] += value[k] * S::load(dense + ids[k] * width_ + (v0 + v) * W);
        } else {
          for (u32 k = begin; k < middle; ++k)
            for (int v = 0; v < N; ++v) acc[v] += S::load(dense + ids[k] * width_ + (v0 + v) * W);
        }
        for (int v = 0; v < N; ++v) S::store(out + (v0 + v) * W, acc[v]);
      });
      for (u32 k = middle; k < end; ++k) {
        const T scale = value ? value[k] : T(1);
        for_run(ids[k], [&](u32 q) { out[run[q].column] += scale * run[q].weight; });
      }
    }
  }

  template <class Id>
  CRFKIT_KERNEL void scatter_rows(const Id* ids, i64 row, i64 n, const T* p) {
    T* dense = dense_gradient_.data();
    T* gradient = run_gradient_.data();
    const RunWeight<T>* run = run_;
    const T* value = group_->value.empty() ? nullptr : group_->value.data();
    for (i64 r = 0; r < n; ++r, ++row, p += width_) {
      const u32 begin = group_->ptr[row], middle = begin + group_->n_dense[row], end = group_->ptr[row + 1];
      for_tiles<4>(static_cast<int>(width_ / W), [&](auto N, int v0) {
        Vec x[N];
        for (int v = 0; v < N; ++v) x[v] = S::load(p + (v0 + v) * W);
        for (u32 k = begin; k < middle; ++k) {
          T* out = dense + ids[k] * width_ + v0 * W;
          const T scale = value ? value[k] : T(1);
          for (int v = 0; v < N; ++v) S::store(out + v * W, S::load(out + v * W) + (value ? scale * x[v] : x[v]));
        }
      });
      for (u32 k = middle; k < end; ++k) {
        const T scale = value ? value[k] : T(1);
        for_run(ids[k], [&](u32 q) { gradient[q] += scale * p[run[q].column]; });
      }
    }
  }

  const Group<T>* group_ = nullptr;
  i64 width_ = 0;
  const RunWeight<T>* run_ = nullptr;
  const u32* run_ptr_ = nullptr;      // null: entries name weights
  Buffer<T> dense_, dense_gradient_;  // [local dense rows][width]
  Buffer<RunWeight<T>> runs_;         // [local weights]
  Buffer<T> run_gradient_;            // [local weights]
};

// The model's own rows, for data that is scored once: building a block would take longer than it saves. The rows of a
// few tokens are looked up before the first of them is added, so that the memory answers all at once.
template <class T, int W>
class ModelRows {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  static constexpr i64 kAhead = 8;  // tokens

 public:
  // out[t] = init + the scores of token `first` + t, for n of them. table: the family's dense rows; runs: all its
  // weights.
  CRFKIT_KERNEL void score(const Family& family, const T* table, const RunWeight<T>* runs, const i64* ptr,
                           const u32* attr, const double* value, i64 first, i64 n, const T* init, T* out) {
    for (i64 t = 0; t < n; t += kAhead, out += kAhead * family.width)
      score_few(family, table, runs, ptr + first + t, attr, value, std::min(kAhead, n - t), init, out);
  }

 private:
  void score_few(const Family& family, const T* table, const RunWeight<T>* runs, const i64* ptr, const u32* attr,
                 const double* value, i64 n, const T* init, T* out) {
    const u32 known = family.n_attributes();
    const std::size_t width = family.width;
    const std::size_t most = ptr[n] - ptr[0];
    dense_.reserve(most + 1);
    run_.reserve(most + 1);
    i64 n_dense = 0, n_run = 0, dense_end[kAhead], run_end[kAhead];
    for (i64 t = 0; t < n; ++t) {
      for (i64 k = ptr[t]; k < ptr[t + 1]; ++k) {
        if (attr[k] >= known) continue;
        const Family::Place place = family.place[attr[k]];
        const T scale = value ? T(value[k]) : T(1);
        if (place.dense()) {
          const T* row = table + place.first * width;
          for (std::size_t j = 0; j < width; j += 64 / sizeof(T)) __builtin_prefetch(row + j);
          dense_[n_dense++] = {row, scale};
        } else {
          __builtin_prefetch(runs + place.first);
          run_[n_run++] = {runs + place.first, place.count, scale};
        }
      }
      dense_end[t] = n_dense;
      run_end[t] = n_run;
    }
    const Dense* dense = dense_.data();
    const Run* run = run_.data();
    for (i64 t = 0; t < n; ++t, out += width) {
      const Dense* last = dense_.data() + dense_end[t];
      for_tiles<4>(family.width / W, [&](auto N, int v0) {
        Vec acc[N];
        for (int v = 0; v < N; ++v) acc[v] = S::load(init + (v0 + v) * W);
        if (value) {
          for (const Dense* d = dense; d < last; ++d)
            for (int v = 0; v < N; ++v) acc[v] += d->scale * S::load(d->row + (v0 + v) * W);
        } else {
          for (const Dense* d = dense; d < last; ++d)
            for (int v = 0; v < N; ++v) acc[v] += S::load(d->row + (v0 + v) * W);
        }
        for (int v = 0; v < N; ++v) S::store(out + (v0 + v) * W, acc[v]);
      });
      dense = last;
      for (const Run* end = run_.data() + run_end[t]; run < end; ++run)
        for (u32 q = 0; q < run->count; ++q) out[run->first[q].column] += run->scale * run->first[q].weight;
    }
  }

  struct Dense {
    const T* row;
    T scale;
  };
  struct Run {
    const RunWeight<T>* first;
    u32 count;
    T scale;
  };
  Buffer<Dense> dense_;
  Buffer<Run> run_;
};

// in kernels.cpp
#define CRFKIT_EXTERN(T, W)              \
  extern template class LocalRows<T, W>; \
  extern template class ModelRows<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_EXTERN)
#undef CRFKIT_EXTERN

}  // namespace crfkit::CRFKIT_ISA
