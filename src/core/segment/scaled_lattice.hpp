// scaled_lattice.hpp: sum-product over the segmentations of a pack of sequences, in scaled probability space.
//
// With e[t][j] = exp(u[t][j] - max_j u[t][j]), m[i][j] = exp(a[i][j] - max a), d[k][j] = exp(length(k, j) + max a),
//
//   g[t][j]     = exp(begin[t][j]) sum_i alpha[t-1][i] m[i][j]            what enters a segment j at t
//   alpha[t][j] = exp(end[t][j]) sum_k v_k[t][j] d[k][j] / c[t]           segments j that end with t; the row sums to
//   one v_k[t]      = g[t-k+1] e[t-k+1] ... e[t] / (c[t-k+1] ... c[t-1])      a ring of K rows, each times e / c at a
//   step h[t][j]     = sum_k w_k[t][j] d[k][j]                                 what follows, if a segment j begins at t
//   w_k[t]      = e[t] ... e[t+k-1] exp(end[t+k-1]) beta[t+k-1] / (c[t] ... c[t+k-1])        a ring as well
//   beta[t][i]  = sum_j m[i][j] exp(begin[t+1][j]) h[t+1][j],  beta[last] = 1
//
// so that a step costs O(L^2 + K L). Probabilities: of a segment g[t] w_k[t] d[k], of its beginning g[t] h[t], of an
// end alpha[t] beta[t]; a token has the label of what began and has not ended. log Z = sum_t log c[t] + max_j u[t][j].
//
// With a tail, K stands for K and more tokens: stay[p] is the mass in phase p, and in place of exp(end) beta there is
// leave[p], what follows from there.
//
// Products that fall below the smallest normal number, `tiny`, become zero. What v loses at t in label j cannot matter
// where as much may begin anew: a segment that was lost in its k-th token and has n more to come compares with one that
// begins at t + 1 and has n tokens, the same ones, as tiny length(k + n, j) / length(n, j) does with g[t+1][j]. So all
// that is lost holds less than
//
//   T K L tiny max_{k, n, j} (length(k + n, j) / length(n, j)) / min_{t, j} g[t][j]
//
// of the mass; where g and alpha are so large (`floor`) that this is below a rounding error, the pass is trusted. It is
// too where nothing was lost at all: a zero stays, so it is enough to look at v when a segment is as long as its label
// may be. Otherwise the sequence is repeated in log space (scaled_or_log.hpp). Where something is forbidden, what may
// be reached is followed beside the numbers.
#pragma once
#include <cmath>

#include "base/rows.hpp"
#include "chain/pack.hpp"
#include "segment/item_rows.hpp"
#include "segment/ready_tables.hpp"

namespace crfkit::CRFKIT_ISA {

template <class T>
struct PackItems : ItemRows {
  Buffer<T> score, factor;  // [items][stride]; factor: exp(score), times that of the length
  void make_room(i64 stride) {
    score.reserve(size() * stride);
    factor.reserve(size() * stride);
  }
};

template <class T, int W>
class SegmentLattice {
  using S = Simd<T, W>;
  using Vec = typename S::Vec;
  static constexpr T kInf = std::numeric_limits<T>::infinity();
  static constexpr T kTiny = std::numeric_limits<T>::min();
  static constexpr T kLeastScale = kTiny / std::numeric_limits<T>::epsilon();
  static constexpr T kHuge = std::numeric_limits<T>::max() / 16;

 public:
  // [rows][stride] each, rows as in the pack. The caller fills u (pads -inf), and begin and end if they are used (pads
  // 0), and borders.
  Buffer<T> u, begin, end, alpha, g, beta, q;
  std::vector<u8> border;
  PackItems<T> items;
  // After backward(): probabilities of labels, beginnings and ends [rows][stride], and of listed segments
  Buffer<T> nodes, begins, ends, item_nodes;
  bool has_begin = false, has_end = false;

  void start(const Pack& pack, const ReadyTables<T>& tables, bool with_begin, bool with_end) {
    pack_ = &pack;
    tables_ = &tables;
    n_ = tables.n_labels;
    stride_ = tables.stride;
    vectors_ = static_cast<int>(stride_ / W);
    has_begin = with_begin;
    has_end = with_end;
    const i64 size = pack.rows() * stride_;
    for (Buffer<T>* x : {&u, &alpha, &g, &beta, &q, &e_, &nodes, &begins, &ends}) x->reserve(size);
    if (has_begin) begin.reserve(size), eb_.reserve(size);
    if (has_end) end.reserve(size), ee_.reserve(size);
    inverse_c_.reserve(pack.rows());
    border.assign(pack.rows(), kAnyBorder);
    items.ptr.clear();
    items.length.clear();
    pad_.assign(stride_, T(1));
    std::fill_n(pad_.data(), n_, T(0));
    ring_size_ = std::min<i64>(tables.max_length, pack.steps());
    items_range_.assign(pack.n_seq(), T(0));
    good_.assign(pack.n_seq(), tables.safe);
    closed_.assign(pack.n_seq(), tables.holes);
    log_z_.assign(pack.n_seq(), 0.0);
    scale_.assign(pack.n_seq(), 1.0);
  }

  // recursion: forward
  CRFKIT_KERNEL void forward() {
    set_rows();
    const Pack& pack = *pack_;
    const i64 k_most = ring_size_, order = tables_->tail_order;
    ring_.assign(pack.n_seq() * k_most * stride_, T(0));
    phase_.assign(pack.n_seq() * order * stride_, T(0));
    if (order) stay_.reserve(pack.rows() * order * stride_);
    low_.assign(pack.n_seq() * stride_, T(1));
    low_ring_.assign(pack.n_seq() * stride_, T(1));
    reach_.assign(pack.n_seq() * (k_most + order + 1) * stride_, 0);
    rows_.resize(k_most);
    floors_.clear();
    for (int s = 0; s < pack.n_seq(); ++s) floors_.push_back(floor_of(s));
    for (int t = 0; t < pack.steps(); ++t) {
      const int n = pack.active(t);
      T* entering = g.data() + pack.first[t] * stride_;
      if (t > 0)
        rows_times<T, W>(alpha.data() + pack.first[t - 1] * stride_, n, tables_->transitions.m.data(), n_, stride_,
                         entering);
      for (int s = 0; s < n; ++s) forward_step(t, s);
    }
    for (int s = 0; s < pack.n_seq(); ++s) check_end(s);
  }

  bool good(int s) const { return good_[s]; }
  double log_z(int s) const { return log_z_[s]; }
  // Leaves a sequence out of all sums.
  void drop(int s) {
    for (int t = 0; t < pack_->length(s); ++t) {
      const i64 r = pack_->row(t, s);
      inverse_c_[r] = T(0);
      for (Buffer<T>* x : {&alpha, &g, &e_}) std::fill_n(x->data() + r * stride_, stride_, T(0));
      if (has_begin) std::fill_n(eb_.data() + r * stride_, stride_, T(0));
      if (has_end) std::fill_n(ee_.data() + r * stride_, stride_, T(0));
      for (i64 p = 0; p < tables_->tail_order; ++p)
        std::fill_n(stay_.data() + (r * tables_->tail_order + p) * stride_, stride_, T(0));
    }
  }

  // weight: of each sequence, or null. Adds to lengths [K][labels] and tail [labels], where they are not null.
  // recursion: backward
  CRFKIT_KERNEL void backward(const double* weight, double* lengths, double* tail) {
    const Pack& pack = *pack_;
    const i64 k_most = ring_size_, order = tables_->tail_order;
    ring_.assign(pack.n_seq() * k_most * stride_, T(0));
    if (order) long_ring_.assign(pack.n_seq() * k_most * stride_, T(0));
    phase_.assign(pack.n_seq() * order * stride_, T(0));
    length_sums_.assign(k_most * stride_, T(0));
    item_sums_.assign(k_most * stride_, T(0));
    tail_sums_.assign(stride_, T(0));
    running_.assign(pack.n_seq() * stride_, T(0));
    if (items.size()) item_nodes.reserve(items.size() * stride_);
    const T* m = tables_->transitions.m_t.data();
    for (int t = pack.steps() - 1; t >= 0; --t) {
      const int n = pack.active(t), later = pack.active(t + 1);
      T* after = beta.data() + pack.first[t] * stride_;
      if (later) rows_times<T, W>(q.data() + pack.first[t + 1] * stride_, later, m, n_, stride_, after);
      for (int s = later; s < n; ++s) {
        std::fill_n(after + s * stride_, n_, T(1));
        std::fill_n(after + s * stride_ + n_, stride_ - n_, T(0));
      }
      for (int s = 0; s < n; ++s) backward_step(t, s, weight ? T(weight[pack.seq[s]]) : T(1));
    }
    for (i64 k = 0; k < k_most && lengths; ++k)
      for (i64 j = 0; j < n_; ++j) {
        const T d = order && k + 1 == tables_->max_length ? tables_->full[j] : tables_->factor[k * stride_ + j];
        lengths[k * n_ + j] += double{length_sums_[k * stride_ + j]} * d + item_sums_[k * stride_ + j];
      }
    for (i64 j = 0; j < n_ && tail && order; ++j) tail[j] += tail_sums_[j];
  }

  // Messages of sequence s in log space, as in SegmentSums; before backward() has weighed q.
  void messages(int s, FunctionRef<void(int t, i64 j, double enter, double leave)> f) const {
    double before = 0;
    for (int t = 0; t < pack_->length(s); ++t) {
      const i64 r = pack_->row(t, s), at = r * stride_;
      const double now = before + double{top_[r]} - std::log(double{inverse_c_[r]});
      const double shift = tables_->transitions.shift;  // is in the lengths there, in g here
      for (i64 j = 0; j < n_; ++j) {
        const double after = double{beta[at + j]} * (has_end ? ee_[at + j] : T(1));
        f(t, j, std::log(double{g[at + j]}) + before + shift, std::log(after) + log_z_[s] - now);
      }
      before = now;
    }
  }

 private:
  template <class F>
  CRFKIT_INLINE void each_vector(F f) const {
    for (int v = 0; v < vectors_; ++v) f(v * W);
  }
  // Calls f(first k, last k, slot of the first): the ring's rows by rising length, of which `used` are filled; the
  // shortest is in slot r.
  template <class F>
  CRFKIT_INLINE void ranges(i64 r, i64 used, F f) const {
    const i64 turn = std::min(used, ring_size_ - r);
    f(i64{0}, turn, r);
    if (turn < used) f(turn, used, i64{0});
  }
  i64 slot_back(i64 t) const { return (ring_size_ - t % ring_size_) % ring_size_; }
  bool listed(i64 r) const { return !items.ptr.empty() && items.ptr[r] < items.ptr[r + 1]; }

  // out = exp(x), where x has no score too large for that.
  CRFKIT_INLINE bool exponentials(const T* x, T* out) const {
    Vec top = S::splat(-kInf);
    each_vector([&](int j) { top = S::max(top, S::load(x + j)); });
    const T high = S::highest(top);
    if (!(std::abs(high) <= kMostScore<T>)) {
      std::fill_n(out, stride_, T(0));
      return !(high > -kInf);
    }
    const T scale = std::exp(high);
    each_vector([&](int j) { S::store(out + j, S::exp(S::load(x + j) - high) * scale); });
    return true;
  }
  CRFKIT_INLINE bool has_infinity(const T* x) const {
    for (i64 j = 0; j < n_; ++j)
      if (!(x[j] > -kInf)) return true;
    return false;
  }

  CRFKIT_KERNEL void set_rows() {
    const Pack& pack = *pack_;
    top_.reserve(pack.rows());
    for (int t = 0; t < pack.steps(); ++t)
      for (int s = 0; s < pack.active(t); ++s) {
        const i64 r = pack.row(t, s), at = r * stride_;
        Vec top = S::splat(-kInf), low = S::splat(kInf);
        each_vector([&](int j) { top = S::max(top, S::load(u.data() + at + j)); });
        T high = S::highest(top);
        if (!(high > -kInf)) high = 0;
        top_[r] = high;
        each_vector([&](int j) {
          const Vec x = S::load(u.data() + at + j);
          low = S::min(low, S::load(pad_.data() + j) > T(0) ? S::splat(kInf) : x);
          S::store(e_.data() + at + j, S::exp(x - high));
        });
        if (!(S::lowest(low) > -kInf)) closed_[s] = 1;
        if (border[r] != kAnyBorder) closed_[s] = 1;
        if (has_begin) {
          if (has_infinity(begin.data() + at)) closed_[s] = 1;
          if (!exponentials(begin.data() + at, eb_.data() + at)) good_[s] = 0;
        }
        if (has_end) {
          if (has_infinity(end.data() + at)) closed_[s] = 1;
          if (!exponentials(end.data() + at, ee_.data() + at)) good_[s] = 0;
        }
        for (i64 i = listed(r) ? items.ptr[r] : 0; listed(r) && i < items.ptr[r + 1]; ++i) {
          const T* x = items.score.data() + i * stride_;
          T* factor = items.factor.data() + i * stride_;
          if (has_infinity(x)) closed_[s] = 1;
          if (!exponentials(x, factor)) good_[s] = 0;
          const auto [lowest, highest] = std::minmax_element(x, x + n_);
          items_range_[s] = std::max(items_range_[s], std::max(T(0), *highest) - std::min(T(0), *lowest));
          const T* d = tables_->factor.data() + (items.length[i] - 1) * stride_;
          each_vector([&](int j) { S::store(factor + j, S::load(factor + j) * S::load(d + j)); });
        }
      }
  }
  // Below this, alpha and g of a sequence may hide what v has lost.
  T floor_of(int s) const {
    const double steps = pack_->length(s), many = steps * double(ring_size_) * double(n_);
    const double least = double{kTiny} * many * std::exp(tables_->length_range(steps) + double{items_range_[s]});
    return T(std::min(1.0, least / std::numeric_limits<T>::epsilon()));
  }

  CRFKIT_INLINE void forward_step(int t, int s) {
    const i64 r = pack_->row(t, s), at = r * stride_, k_most = ring_size_, order = tables_->tail_order;
    T *entering = g.data() + at, *ring = ring_.data() + s * k_most * stride_;
    T* phase = phase_.data() + s * order * stride_;
    if (t == 0) {
      std::fill_n(entering, n_, tables_->first);
      std::fill_n(entering + n_, stride_ - n_, T(0));
    } else if (border[r] == kNoBorder) {
      std::fill_n(entering, stride_, T(0));
    } else if (border[r] == kBorder) {
      std::fill_n(ring, k_most * stride_, T(0));
      std::fill_n(phase, order * stride_, T(0));
    }
    if (has_begin)
      each_vector([&](int j) { S::store(entering + j, S::load(entering + j) * S::load(eb_.data() + at + j)); });
    const T before = t > 0 ? inverse_c_[pack_->row(t - 1, s)] : T(1);
    const i64 slot = slot_back(t), used = std::min<i64>(t + 1, k_most);
    const T* factor = tables_->factor.data();
    const bool own = listed(r);
    if (own) {
      for (i64 k = 0; k < used; ++k) rows_[k] = factor + k * stride_;
      for (i64 i = items.ptr[r]; i < items.ptr[r + 1]; ++i)
        rows_[items.length[i] - 1] = items.factor.data() + i * stride_;
    }
    for_tiles<4>(vectors_, [&](auto N, int v0) __attribute__((always_inline)) {
      const i64 c0 = v0 * W;
      Vec f[N], sum[N] = {};
      for (int v = 0; v < N; ++v) {
        const Vec e = S::load(e_.data() + at + c0 + v * W);
        f[v] = e * before;
        S::store(ring + slot * stride_ + c0 + v * W, S::load(entering + c0 + v * W) * e);
      }
      const auto add = [&](i64 first, i64 last, i64 p, auto row) __attribute__((always_inline)) {
        T* x = ring + (p - first) * stride_ + c0;
        for (i64 k = first; k < last; ++k) {
          const T* d = row(k) + c0;
          for (int v = 0; v < N; ++v) {
            const Vec y = S::load(x + k * stride_ + v * W) * f[v];
            S::store(x + k * stride_ + v * W, y);
            sum[v] += y * S::load(d + v * W);
          }
        }
      };
      const auto all = [&](auto row) __attribute__((always_inline)) {
        const T* d = row(0) + c0;  // a segment of one token has not been scaled yet
        for (int v = 0; v < N; ++v) sum[v] += S::load(ring + slot * stride_ + c0 + v * W) * S::load(d + v * W);
        const i64 turn = std::min(used, k_most - slot);
        add(1, turn, slot + 1, row);
        if (turn < used) add(turn, used, 0, row);
      };
      if (own) all([&](i64 k) { return rows_[k]; });
      else all([&](i64 k) { return factor + k * stride_; });
      for (int v = 0; v < N; ++v) S::store(alpha.data() + at + c0 + v * W, sum[v]);
    });
    if (order) forward_tail(t, s, before);
    normalise(t, s);
    if (closed_[s]) check_reach(t, s);
    else check_low(t, s);
  }

  // Adds to alpha what is longer than the table.
  void forward_tail(int t, int s, T before) {
    const i64 at = pack_->row(t, s) * stride_, order = tables_->tail_order;
    T* phase = phase_.data() + s * order * stride_;
    const bool full = t + 1 >= tables_->max_length;
    const T* whole = ring_.data() + (s * ring_size_ + (slot_back(t) + tables_->max_length - 1) % ring_size_) * stride_;
    each_vector([&](int j) {
      const Vec f = S::load(e_.data() + at + j) * before * S::load(tables_->tail.data() + j);
      Vec in = full ? S::load(whole + j) * S::load(tables_->full.data() + j) : Vec{};
      for (i64 p = 0; p < order; ++p) {
        in += S::load(phase + p * stride_ + j) * f;
        S::store(phase + p * stride_ + j, in);
      }
      S::store(alpha.data() + at + j, S::load(alpha.data() + at + j) + in);
    });
  }

  CRFKIT_INLINE void normalise(int t, int s) {
    const i64 r = pack_->row(t, s), at = r * stride_, order = tables_->tail_order;
    Vec total = {};
    each_vector([&](int j) {
      Vec x = S::load(alpha.data() + at + j);
      if (has_end) x *= S::load(ee_.data() + at + j);
      S::store(alpha.data() + at + j, x);
      total += x;
    });
    const T c = S::sum(total);
    if (!(c >= kLeastScale && c <= kHuge)) good_[s] = 0;
    const T inverse = T(1) / c;
    inverse_c_[r] = inverse;
    each_vector([&](int j) { S::store(alpha.data() + at + j, S::load(alpha.data() + at + j) * inverse); });
    for (i64 p = 0; p < order; ++p)
      each_vector([&](int j) {
        S::store(stay_.data() + (r * order + p) * stride_ + j,
                 S::load(phase_.data() + (s * order + p) * stride_ + j) * inverse);
      });
    // log c, several at a time
    scale_[s] /= double{inverse};
    log_z_[s] += double{top_[r]};
    if (!(scale_[s] > 1e-200 && scale_[s] < 1e200)) {
      log_z_[s] += std::log(scale_[s]);
      scale_[s] = 1;
    }
  }

  // Nothing is forbidden: all should be above zero.
  CRFKIT_INLINE void check_low(int t, int s) {
    const i64 at = pack_->row(t, s) * stride_, order = tables_->tail_order;
    T *low = low_.data() + s * stride_, *low_ring = low_ring_.data() + s * stride_;
    each_vector([&](int j) {
      const Vec x = S::min(S::load(alpha.data() + at + j), S::load(g.data() + at + j));
      S::store(low + j, S::min(S::load(low + j), x + S::load(pad_.data() + j)));
    });
    const auto look = [&](const T* x, const T* mask) {
      each_vector(
          [&](int j) { S::store(low_ring + j, S::min(S::load(low_ring + j), S::load(x + j) + S::load(mask + j))); });
    };
    for (const auto& group : tables_->longest) {
      if (group.length > t + 1) continue;
      look(ring_.data() + (s * ring_size_ + (slot_back(t) + group.length - 1) % ring_size_) * stride_,
           group.mask.data());
      for (i64 p = 0; p < order && group.length == tables_->max_length; ++p)
        look(phase_.data() + (s * order + p) * stride_, group.mask.data());
    }
  }

  // Something is forbidden: what is reached must be above zero.
  CRFKIT_KERNEL void check_reach(int t, int s) {
    const i64 r = pack_->row(t, s), at = r * stride_, k_most = ring_size_, order = tables_->tail_order;
    u8* reach = reach_.data() + s * (k_most + order + 1) * stride_;
    u8 *phase = reach + k_most * stride_, *before = phase + order * stride_;
    const i64 slot = slot_back(t), used = std::min<i64>(t + 1, k_most);
    if (t > 0 && border[r] == kBorder) std::fill(reach, before, u8{0});
    std::vector<u8>& now = now_;
    now.assign(2 * stride_, 0);
    u8* entering = now.data() + stride_;
    bool bad = false;
    const T floor = floors_[s];
    for (i64 i = 0; i < n_ && t > 0 && border[r] != kNoBorder; ++i)
      if (before[i])
        for (i64 j = 0; j < n_; ++j) entering[j] |= tables_->follows[i * stride_ + j];
    for (i64 j = 0; j < n_; ++j) {
      if (t == 0) entering[j] = 1;
      if (has_begin) entering[j] &= begin[at + j] > -kInf;
      bad |= entering[j] && !(g[at + j] >= floor);
    }
    std::copy_n(entering, n_, reach + slot * stride_);
    for (i64 k = 0; k < used; ++k) {
      const i64 p = (slot + k) % k_most;
      u8* row = reach + p * stride_;
      const T* v = ring_.data() + (s * k_most + p) * stride_;
      const T* item = nullptr;
      for (i64 i = listed(r) ? items.ptr[r] : 0; listed(r) && i < items.ptr[r + 1]; ++i)
        if (items.length[i] == k + 1) item = items.score.data() + i * stride_;
      for (i64 j = 0; j < n_; ++j) {
        row[j] &= u[at + j] > -kInf;
        if (row[j] && tables_->label_longest[j] > k && !(v[j] >= kTiny)) {  // lost
          if (entering[j] && !tables_->gaps) row[j] = 0;                    // as much begins here
          else bad = true;
        }
        const bool arrives = row[j] && tables_->open[k * stride_ + j] && !(item && !(item[j] > -kInf));
        if (order && k + 1 == tables_->max_length) phase[j] |= arrives << 1;
        else now[j] |= arrives;
      }
    }
    for (i64 j = 0; j < n_ && order; ++j) {
      u8 in = phase[j] >> 1;
      for (i64 p = 0; p < order; ++p) {
        if ((phase[p * stride_ + j] & 1) && u[at + j] > -kInf && tables_->tail[j] > 0) in = 1;
        phase[p * stride_ + j] = in;
        bad |= in && !(phase_[(s * order + p) * stride_ + j] >= kTiny);
      }
      now[j] |= in;
    }
    for (i64 j = 0; j < n_; ++j) {
      before[j] = now[j] && !(has_end && !(end[at + j] > -kInf));
      bad |= before[j] && !(alpha[at + j] >= floor);
    }
    if (bad) good_[s] = 0;
  }

  // Whether the sequence can be trusted.
  void check_end(int s) {
    log_z_[s] += std::log(scale_[s]);
    scale_[s] = 1;
    if (closed_[s]) return;
    const int steps = pack_->length(s);
    const i64 k_most = ring_size_, slot = slot_back(steps - 1);
    T low = 1, low_ring = 1;
    for (i64 j = 0; j < n_; ++j) {
      low = std::min(low, low_[s * stride_ + j]);
      low_ring = std::min(low_ring, low_ring_[s * stride_ + j]);
      for (i64 k = 0; k < std::min<i64>(steps, k_most); ++k)  // segments that the sequence cuts short
        if (tables_->label_longest[j] > k)
          low_ring = std::min(low_ring, ring_[(s * k_most + (slot + k) % k_most) * stride_ + j]);
    }
    if (!(low >= floors_[s]) && !(low >= kTiny && low_ring >= kTiny)) good_[s] = 0;
  }

  CRFKIT_INLINE void backward_step(int t, int s, T weight) {
    const i64 r = pack_->row(t, s), at = r * stride_, k_most = ring_size_, order = tables_->tail_order;
    T* ring = ring_.data() + s * k_most * stride_;
    const bool last = s >= pack_->active(t + 1);
    if (!last && border[pack_->row(t + 1, s)] == kBorder) {
      std::fill_n(ring, k_most * stride_, T(0));
      if (order) std::fill_n(long_ring_.data() + s * k_most * stride_, k_most * stride_, T(0));
      std::fill_n(phase_.data() + s * order * stride_, order * stride_, T(0));
    }
    const T inverse = inverse_c_[r];
    const i64 slot = t % k_most;
    // ends, and what a segment that ends here goes on with
    each_vector([&](int j) {
      const Vec a = S::load(alpha.data() + at + j);
      Vec after = S::load(beta.data() + at + j);
      after = a > T(0) ? after : Vec{};  // what cannot be reached may not overflow
      S::store(beta.data() + at + j, after);
      S::store(ends.data() + at + j, a * after);
      if (has_end) after *= S::load(ee_.data() + at + j);
      S::store(ring + slot * stride_ + j, after);
    });
    if (order) backward_phases(t, s);
    depart(t, s, inverse, weight);
    if (order) depart_long(t, s, inverse, weight);
    finish(t, s, weight);
  }

  // h, into q; and sums of lengths and items.
  CRFKIT_INLINE void depart(int t, int s, T inverse, T weight) {
    const i64 r = pack_->row(t, s), at = r * stride_, k_most = ring_size_, slot = t % k_most;
    T* ring = ring_.data() + s * k_most * stride_;
    const i64 used = std::min<i64>(k_most, pack_->steps() - t);
    const T* factor = tables_->factor.data();
    const bool own = !items.ptr.empty() && items.start_ptr[r] < items.start_ptr[r + 1];
    for_tiles<4>(vectors_, [&](auto N, int v0) __attribute__((always_inline)) {
      const i64 c0 = v0 * W;
      Vec f[N], sum[N] = {}, in[N];
      for (int v = 0; v < N; ++v) {
        f[v] = S::load(e_.data() + at + c0 + v * W) * inverse;
        in[v] = own ? Vec{} : S::load(g.data() + at + c0 + v * W) * weight;
      }
      ranges(slot, used, [&](i64 first, i64 end_k, i64 p) __attribute__((always_inline)) {
        T* x = ring + (p - first) * stride_ + c0;
        T* sums = length_sums_.data() + c0;
        for (i64 k = first; k < end_k; ++k)
          for (int v = 0; v < N; ++v) {
            const i64 o = k * stride_ + v * W;
            const Vec y = S::min(S::load(x + o) * f[v], S::splat(kHuge));
            S::store(x + o, y);
            sum[v] += y * S::load(factor + c0 + o);
            S::store(sums + o, S::load(sums + o) + in[v] * y);
          }
      });
      for (int v = 0; v < N; ++v) S::store(q.data() + at + c0 + v * W, sum[v]);
    });
    if (own) depart_listed(r, ring, slot, weight);
  }

  // The same where segments that begin at row r are listed: they have factors of their own.
  CRFKIT_KERNEL void depart_listed(i64 r, const T* ring, i64 slot, T weight) {
    const i64 at = r * stride_, used = ring_size_;
    std::fill_n(q.data() + at, stride_, T(0));
    own_.assign(used, -1);
    for (i64 i = items.start_ptr[r]; i < items.start_ptr[r + 1]; ++i)
      own_[items.length[items.by_start[i]] - 1] = items.by_start[i];
    for (i64 k = 0; k < used; ++k) {
      const i64 item = own_[k];
      const T* x = ring + (slot + k) % ring_size_ * stride_;
      const T* d = item >= 0 ? items.factor.data() + item * stride_ : tables_->factor.data() + k * stride_;
      T* sums = (item >= 0 ? item_sums_ : length_sums_).data() + k * stride_;
      each_vector([&](int j) {
        const Vec y = S::load(x + j), in = S::load(g.data() + at + j) * weight, mass = y * S::load(d + j);
        S::store(q.data() + at + j, S::load(q.data() + at + j) + mass);
        S::store(sums + j, S::load(sums + j) + in * (item >= 0 ? mass : y));
        if (item >= 0) S::store(item_nodes.data() + item * stride_ + j, in * mass);
      });
    }
  }

  // leave[p] at t: what follows a segment in phase p; the first is what K tokens go on with.
  void backward_phases(int t, int s) {
    const i64 order = tables_->tail_order, k_most = ring_size_, slot = t % k_most;
    T* phase = phase_.data() + s * order * stride_;
    const bool last = s >= pack_->active(t + 1);
    const i64 next = last ? 0 : pack_->row(t + 1, s);
    each_vector([&](int j) {
      Vec out = S::load(ring_.data() + (s * k_most + slot) * stride_ + j);
      Vec f = {};
      if (!last) f = S::load(e_.data() + next * stride_ + j) * inverse_c_[next] * S::load(tables_->tail.data() + j);
      for (i64 p = order; p-- > 0;) {
        out = S::min(out + S::load(phase + p * stride_ + j) * f, S::splat(kHuge));
        S::store(phase + p * stride_ + j, out);
      }
      S::store(long_ring_.data() + (s * k_most + slot) * stride_ + j, out);
    });
  }
  void depart_long(int t, int s, T inverse, T weight) {
    const i64 r = pack_->row(t, s), at = r * stride_, k_most = ring_size_, order = tables_->tail_order;
    T* ring = long_ring_.data() + s * k_most * stride_;
    const i64 whole = tables_->max_length;
    const bool fits = whole <= k_most;
    T* x = ring + (t % k_most + whole - 1) % k_most * stride_;
    each_vector([&](int j) {
      const Vec f = S::load(e_.data() + at + j) * inverse, in = S::load(g.data() + at + j) * weight;
      for (i64 p = 0; p < k_most; ++p)
        S::store(ring + p * stride_ + j, S::min(S::load(ring + p * stride_ + j) * f, S::splat(kHuge)));
      if (fits) {
        const Vec y = S::load(x + j);
        T* sums = length_sums_.data() + (whole - 1) * stride_ + j;
        // the plain ring has put the segments of just K tokens there
        const Vec plain = S::load(ring_.data() + (s * k_most + (t % k_most + whole - 1) % k_most) * stride_ + j);
        S::store(sums, S::load(sums) + in * (y - plain));
        S::store(q.data() + at + j, S::load(q.data() + at + j) + y * S::load(tables_->full.data() + j));
      }
      if (t == 0) return;
      Vec more = {};
      const i64 back = pack_->row(t - 1, s);
      for (i64 p = 0; p < order && border[r] != kBorder; ++p)
        more += S::load(stay_.data() + (back * order + p) * stride_ + j) *
                S::load(phase_.data() + (s * order + p) * stride_ + j);
      T* sums = tail_sums_.data() + j;
      S::store(sums, S::load(sums) + more * (f * S::load(tables_->tail.data() + j) * weight));
    });
  }

  // Beginnings and labels; q becomes exp(begin) h.
  CRFKIT_INLINE void finish(int t, int s, T weight) {
    const i64 r = pack_->row(t, s), at = r * stride_;
    T* running = running_.data() + s * stride_;
    const bool last = s >= pack_->active(t + 1);
    const T* later = last ? nullptr : begins.data() + pack_->row(t + 1, s) * stride_;
    Vec total = {};
    each_vector([&](int j) {
      const Vec in = S::load(g.data() + at + j);
      Vec h = S::load(q.data() + at + j);
      h = in > T(0) ? h : Vec{};
      S::store(begins.data() + at + j, in * h);
      Vec x = S::load(running + j) + S::load(ends.data() + at + j);
      if (later) x -= S::load(later + j);
      x = S::max(x, Vec{});
      total += x;
      S::store(running + j, x);
      S::store(q.data() + at + j, has_begin ? h * S::load(eb_.data() + at + j) : h);
    });
    // rounding errors would add up over a long sequence
    const T sum = S::sum(total), scale = sum > T(0) ? T(1) / sum : T(0);
    each_vector([&](int j) {
      const Vec x = S::load(running + j) * scale;
      S::store(running + j, x);
      S::store(nodes.data() + at + j, x * weight);
    });
  }

 public:
  // From here on the beginnings, ends and pairs of sequence s count w times; nodes, items and lengths do already.
  void weigh(int s, T w) {
    if (w == T(1)) return;
    for (int t = 0; t < pack_->length(s); ++t)
      for (Buffer<T>* x : {&begins, &ends, &q}) {
        T* row = x->data() + pack_->row(t, s) * stride_;
        each_vector([&](int j) { S::store(row + j, S::load(row + j) * w); });
      }
  }

 private:
  const Pack* pack_ = nullptr;
  const ReadyTables<T>* tables_ = nullptr;
  i64 n_ = 0, stride_ = 0, ring_size_ = 0;
  int vectors_ = 0;
  Buffer<T> e_, eb_, ee_, inverse_c_, top_;
  Buffer<T> ring_, long_ring_;          // [sequences][ring][stride]
  Buffer<T> phase_, stay_;              // phases of the tail at hand [sequences][order][stride], and of all rows
  Buffer<T> low_, low_ring_, running_;  // smallest seen; labels of the step at hand [sequences][stride]
  Buffer<T> pad_;                       // 1 in padding, 0 elsewhere [stride]
  std::vector<T> floors_, items_range_;
  Buffer<T> length_sums_, item_sums_;  // [ring][stride]
  Buffer<T> tail_sums_;                // [stride]
  std::vector<u8> good_, closed_, reach_, now_;
  std::vector<double> log_z_, scale_;
  std::vector<const T*> rows_;
  std::vector<i64> own_;
};

// in kernels.cpp
#define CRFKIT_EXTERN(T, W) extern template class SegmentLattice<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_EXTERN)
#undef CRFKIT_EXTERN

}  // namespace crfkit::CRFKIT_ISA
