// kernels.cpp: compiled once per instruction set; CRFKIT_ISA names it.
#include "segment/kernels.hpp"

#include "segment/scaled_or_log.hpp"

namespace crfkit::CRFKIT_ISA {
namespace {

template <class T, int W>
struct SegmentWorkspace : Workspace {
  SegmentSumProduct<T, W> sum;
};

template <class T, int W>
class SegmentKernel {
 public:
  SegmentKernel(const SegmentJob<T>& job, const Pack& pack, Workspace& workspace)
      : job_(job),
        pack_(pack),
        sum_(static_cast<SegmentWorkspace<T, W>&>(workspace).sum),
        n_(job.n_labels),
        stride_(job.tables->stride) {}

  void sums() {
    const FlushDenormals flush;
    const SegmentSums<T>& out = job_.out;
    sum_.start(pack_, *job_.tables, job_.begin != nullptr, job_.end != nullptr);
    load();
    sum_.forward();
    for (int s = 0; s < pack_.n_seq(); ++s) out.log_z[pack_.seq[s]] = sum_.log_z(s);
    if (!out.nodes && !out.begins && !out.ends && !out.pairs && !out.lengths && !out.items && !out.enter) return;
    sum_.backward(out.weight, out.pairs, out.lengths, out.tail);
    for (int s = 0; s < pack_.n_seq(); ++s)
      if (sum_.alive(s)) write(s);
  }

 private:
  void load() {
    auto& x = sum_.lattice;
    const T inf = std::numeric_limits<T>::infinity();
    each_row([&](i64 r, i64 token) {
      copy(job_.unary, r, token, -inf, x.u);
      if (job_.begin) copy(job_.begin, r, token, T(0), x.begin);
      if (job_.end) copy(job_.end, r, token, T(0), x.end);
      if (job_.border) x.border[r] = job_.border[token];
    });
    if (!job_.items.ptr) return;
    numbers_.clear();
    x.items.lay_out(pack_, job_.offsets, job_.items.ptr, job_.items.length, [&](i64 i) { numbers_.push_back(i); });
    x.items.make_room(stride_);
    for (i64 i = 0; i < x.items.size(); ++i) copy(job_.items.score, i, numbers_[i], -inf, x.items.score);
  }
  void copy(const T* from, i64 row, i64 number, T pad, Buffer<T>& to) const {
    T* out = to.data() + row * stride_;
    std::copy_n(from + number * n_, n_, out);
    std::fill(out + n_, out + stride_, pad);
  }
  template <class F>
  void each_row(F f) const {
    for (int t = 0; t < pack_.steps(); ++t)
      for (int s = 0; s < pack_.active(t); ++s) f(pack_.row(t, s), job_.offsets[pack_.seq[s]] + t);
  }

  void write(int s) const {
    const auto& x = sum_.lattice;
    const SegmentSums<T>& out = job_.out;
    const i64 first = job_.offsets[pack_.seq[s]];
    const std::pair<T*, const Buffer<T>*> rows[] = {
        {out.nodes, &x.nodes}, {out.begins, &x.begins}, {out.ends, &x.ends}};
    for (int t = 0; t < pack_.length(s); ++t) {
      const i64 r = pack_.row(t, s);
      for (const auto& [to, from] : rows)
        if (to) std::copy_n(from->data() + r * stride_, n_, to + (first + t) * n_);
      for (i64 i = out.items && job_.items.ptr ? x.items.ptr[r] : 0;
           out.items && job_.items.ptr && i < x.items.ptr[r + 1]; ++i)
        std::copy_n(x.item_nodes.data() + i * stride_, n_, out.items + numbers_[i] * n_);
    }
    if (!out.enter) return;
    sum_.messages(s, [&](int t, i64 j, double enter, double leave) {
      out.enter[(first + t) * n_ + j] = enter;
      out.leave[(first + t) * n_ + j] = leave;
    });
  }

  const SegmentJob<T>& job_;
  const Pack& pack_;
  SegmentSumProduct<T, W>& sum_;
  const i64 n_, stride_;
  std::vector<i64> numbers_;  // of the items
};

}  // namespace

#define CRFKIT_DEFINE(T, W) template class SegmentLattice<T, W>;
CRFKIT_EACH_WIDTH(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

template <class T>
const SegmentKernels<T>& segment_kernels(int n_labels) {
  return with_width<T>(n_labels, [](auto width) -> const SegmentKernels<T>& {
    constexpr int W = width;
    static const SegmentKernels<T> kernels = {
        .lanes = W,
        .workspace = [] { return std::unique_ptr<Workspace>(new SegmentWorkspace<T, W>); },
        .sums = [](const SegmentJob<T>& job, const Pack& pack,
                   Workspace& ws) { SegmentKernel<T, W>(job, pack, ws).sums(); },
    };
    return kernels;
  });
}
#define CRFKIT_DEFINE(T) template const SegmentKernels<T>& segment_kernels<T>(int);
CRFKIT_EACH_TYPE(CRFKIT_DEFINE)
#undef CRFKIT_DEFINE

}  // namespace crfkit::CRFKIT_ISA
