// scaled_or_log.hpp: sum-product over a pack, in scaled probability space or, where that loses something, in log space.
//
// The one place that knows of both: whoever asks for log Z, labels or pairs gets them, whichever space a sequence ran
// in.
#pragma once
#include <deque>
#include <numeric>
#include <optional>

#include "chain/log_lattice.hpp"
#include "chain/scaled_lattice.hpp"

namespace crfkit::CRFKIT_ISA {

// Copies n numbers, and pads them with minus infinity up to stride.
template <class T, class U>
void pad_row(const T* x, i64 n, i64 stride, U* out) {
  for (i64 j = 0; j < n; ++j) out[j] = U(x[j]);
  std::fill(out + n, out + stride, -std::numeric_limits<U>::infinity());
}
// The same of the rows of a [rows][n] matrix.
template <class T, class U>
void pad_rows(const T* x, i64 rows, i64 n, i64 stride, U* out) {
  for (i64 r = 0; r < rows; ++r) pad_row(x + r * n, n, stride, out + r * stride);
}

template <class T, int W>
class SumProduct {
 public:
  // e holds the probabilities of labels after backward(). What log space served has zeros in alpha and q.
  Lattice<T, W> lattice;

  // Makes room for a pack. Gives a place for its scores, [rows][stride] with pads -inf, where they last until
  // backward().
  T* start(const Pack& pack, i64 n_labels, i64 stride) {
    pack_ = &pack;
    n_ = n_labels;
    stride_ = stride;
    lattice.start(pack, n_labels, stride);
    redone_.assign(pack.n_seq(), nullptr);
    weight_.assign(pack.n_seq(), 1.0);
    used_ = 0;
    return lattice.q.data();
  }

  // u: the scores. lenient: as in Lattice::forward.
  void forward(const T* u, Steps<T, W> steps, bool lenient = false) {
    steps_.emplace(std::move(steps));
    log_at_ = -1;
    lattice.set_rows(*pack_, u);
    lattice.forward(*pack_, *steps_, lenient);
    for (int s = 0; s < pack_->n_seq(); ++s)
      if (!lattice.good(s)) redo(s, u);
  }

  // Of sequence s; minus infinity where no path is allowed.
  double log_z(int s) const {
    if (redone_[s]) return redone_[s]->log_z;
    return lattice.log_z(*pack_, s) + steps_->total_shift(pack_->length(s));
  }
  bool alive(int s) const { return !redone_[s] || redone_[s]->log_z > -std::numeric_limits<double>::infinity(); }
  bool scaled(int s) const { return !redone_[s]; }

  // Probabilities of the labels; zero where no path is allowed.
  void backward() {
    lattice.backward(*pack_, *steps_);
    for (int s = 0; used_ > 0 && s < pack_->n_seq(); ++s)
      for (int t = 0; redone_[s] && alive(s) && t < pack_->length(s); ++t)
        node(t, s, lattice.e.data() + pack_->row(t, s) * stride_);
  }
  template <class Out>
  void node(int t, int s, Out* out) const {
    const T* row = lattice.e.data() + pack_->row(t, s) * stride_;
    for (i64 j = 0; j < n_; ++j) out[j] = redone_[s] ? Out(redone_[s]->node(t, j)) : Out(row[j]);
  }

  // Makes the probabilities of sequence s add up to one at each step: in single precision they move away from it by
  // 1e-4 in a million steps.
  void normalise(int s) {
    if (redone_[s]) return;
    const int steps = pack_->length(s);
    for (int t = 0; t < steps; ++t) {
      T* rows[] = {lattice.e.data() + pack_->row(t, s) * stride_, lattice.q.data() + pack_->row(t, s) * stride_};
      const T scale = T(1 / std::accumulate(rows[0], rows[0] + n_, 0.0));
      for (T* row : rows) scale_row<T, W>(scale, stride_, row);
    }
  }

  // From here on the pairs of sequence s count w times.
  void weigh(int s, double w) {
    weight_[s] = w;
    if (w == 1.0 || redone_[s]) return;
    const int steps = pack_->length(s);
    for (int t = 1; t < steps; ++t) scale_row<T, W>(T(w), stride_, lattice.q.data() + pack_->row(t, s) * stride_);
  }

  // Pairs of the transition t -> t+1, rows of `stride` with pads zero. alpha_last: in another order of the factors,
  // whose rounding training sequence by sequence keeps.
  template <bool alpha_last = false, class Out>
  void edge(int t, int s, Out* out, i64 stride) {
    if (redone_[s]) return log_edge(t, s, out, stride);
    const T* m = steps_->matrix(t);
    const T* a = lattice.alpha.data() + pack_->row(t, s) * stride_;
    const T* q = lattice.q.data() + pack_->row(t + 1, s) * stride_;
    for (i64 i = 0; i < n_; ++i, m += stride_, out += stride) {
      const Out ai = Out(a[i]);
      for (i64 j = 0; j < n_; ++j) {
        const Out mj = Out(m[j]), qj = Out(q[j]);
        out[j] = alpha_last ? mj * qj * ai : ai * mj * qj;
      }
      std::fill(out + n_, out + stride, Out(0));
    }
  }

  // pairs [labels][labels] += those of all steps and sequences, where all steps share their transitions. Sums of a pack
  // in T, of packs in double precision: transitions are frequent, and their gradient is a difference of large counts.
  void add_pairs(double* pairs) {
    sums_.assign(n_ * stride_, T(0));
    lattice.add_edges(*pack_, sums_.data());
    const T* m = steps_->matrix(0);
    for (i64 i = 0; i < n_; ++i)
      for (i64 j = 0; j < n_; ++j) pairs[i * n_ + j] += double{sums_[i * stride_ + j]} * m[i * stride_ + j];
    for (int s = 0; used_ > 0 && s < pack_->n_seq(); ++s)
      for (int t = 0; redone_[s] && alive(s) && t + 1 < pack_->length(s); ++t) {
        pair_.reserve(n_ * n_);
        log_edge(t, s, pair_.data(), n_);
        for (i64 k = 0; k < n_ * n_; ++k) pairs[k] += pair_[k];
      }
  }

  // out[i] is proportional to the probability of i at t before label j at t+1; at the last step j is not looked at.
  void before(int t, int s, int j, double* out) {
    const bool last = t + 1 == pack_->length(s);
    const T* a = lattice.alpha.data() + pack_->row(t, s) * stride_;
    const T* m = last || redone_[s] ? nullptr : steps_->matrix(t) + j;
    const double* score = last || !redone_[s] ? nullptr : log_scores(t, false) + j;
    for (i64 i = 0; i < n_; ++i) {
      if (!redone_[s]) out[i] = m ? a[i] * m[i * stride_] : a[i];
      else out[i] = score ? redone_[s]->edge(t, i, j, score[i * log_stride(n_)]) : redone_[s]->node(t, i);
    }
  }

 private:
  CRFKIT_KERNEL void redo(int s, const T* u) {
    if (used_ == logs_.size()) logs_.emplace_back();
    LogLattice& log = logs_[used_++];
    redone_[s] = &log;
    log.start(pack_->length(s), n_);
    for (int t = 0; t < pack_->length(s); ++t) pad_row(u + pack_->row(t, s) * stride_, n_, log_stride(n_), log.row(t));
    log.run([&](int t) { return log_scores(t, false); }, [&](int t) { return log_scores(t, true); });
    lattice.drop(*pack_, s);
  }

  // Scores of the transition t -> t+1, or their transpose   [labels][log_stride]
  const double* log_scores(int t, bool transposed) {
    const i64 wide = log_stride(n_);
    if (steps_->shared()) t = 0;
    if (log_at_ != t) {
      log_at_ = t;
      for (Buffer<double>& x : log_scores_) x.assign(n_ * wide, -std::numeric_limits<double>::infinity());
      steps_->scores(t, wide, log_scores_[0].data());
      for (i64 i = 0; i < n_; ++i)
        for (i64 j = 0; j < n_; ++j) log_scores_[1][j * wide + i] = log_scores_[0][i * wide + j];
    }
    return log_scores_[transposed].data();
  }

  template <class Out>
  CRFKIT_KERNEL void log_edge(int t, int s, Out* out, i64 stride) {
    const i64 wide = log_stride(n_);
    const double* score = log_scores(t, false);
    for (i64 i = 0; i < n_; ++i)
      for (i64 j = 0; j < stride; ++j)
        out[i * stride + j] = j < n_ ? Out(weight_[s] * redone_[s]->edge(t, i, j, score[i * wide + j])) : Out(0);
  }

  const Pack* pack_ = nullptr;
  i64 n_ = 0, stride_ = 0;
  std::optional<Steps<T, W>> steps_;
  std::vector<const LogLattice*> redone_;  // of the sequences that scaling could not serve, null of the others
  std::vector<double> weight_;             // of the pairs
  std::deque<LogLattice> logs_;
  std::size_t used_ = 0;
  Buffer<double> log_scores_[2];  // and transposed, of the step at hand
  int log_at_ = -1;
  Buffer<T> sums_;
  Buffer<double> pair_;
};

}  // namespace crfkit::CRFKIT_ISA
