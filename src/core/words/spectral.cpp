// spectral.cpp: subspace iteration. Rows are made by one thread each, sums over words in fixed blocks.
#include "words/spectral.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "words/kernels.hpp"
#include "words/random.hpp"

namespace crfkit {
namespace {

constexpr i64 kRows = 256;        // words of a task
constexpr i64 kBlocks = 64;       // of sums over all words
constexpr int kIterations = 8;    // products with the matrix and its transpose
constexpr int kMore = 4;          // vectors beside those asked for
constexpr double kFaint = 1e-10;  // relative norm of what is no direction any more

using Square = std::vector<double>;  // [m][m]

// The matrix [R, R'] of words by neighbours, where R_wv = sqrt(c_wv) a_w b_v.
class Neighbours {
 public:
  Neighbours(const Bigrams& after, int width, const Threads& threads)
      : after_(after),
        before_(turned(after)),
        width_(width),
        threads_(threads),
        a_(scale(after_)),
        b_(scale(before_)) {}

  // out = (R R' + R' R) x, of n rows
  void square(const std::vector<float>& x, std::vector<float>& room, std::vector<float>& out) const {
    product(before_, b_, a_, x, room);  // R' x
    product(after_, a_, b_, room, out);
    std::vector<float> more(x.size());
    product(after_, a_, b_, x, room);  // R x
    product(before_, b_, a_, room, more);
    parallel_blocks(std::ssize(out), kRows * width_, threads_, [&](i64 begin, i64 end, int) {
      for (i64 k = begin; k < end; ++k) out[k] += more[k];
    });
  }
  i64 size() const { return after_.size(); }

 private:
  static std::vector<float> scale(const Bigrams& x) {
    std::vector<float> out;
    for (i64 w = 0; w < x.size(); ++w) {
      const i64 total = std::accumulate(x.count.begin() + x.ptr[w], x.count.begin() + x.ptr[w + 1], i64{0});
      out.push_back(total > 0 ? static_cast<float>(std::pow(static_cast<double>(total), -0.25)) : 0.0f);
    }
    return out;
  }
  void product(const Bigrams& rows, const std::vector<float>& own, const std::vector<float>& other,
               const std::vector<float>& x, std::vector<float>& out) const {
    const WordKernels& kernels = word_kernels();
    parallel_blocks(size(), kRows, threads_, [&](i64 begin, i64 end, int) {
      for (i64 w = begin; w < end; ++w) {
        const i64 k = rows.ptr[w];
        float* row = out.data() + w * width_;
        kernels.gather(rows.next.data() + k, rows.count.data() + k, rows.ptr[w + 1] - k, other.data(), x.data(), width_,
                       row);
        for (int c = 0; c < width_; ++c) row[c] *= own[w];
      }
    });
  }

  const Bigrams& after_;
  const Bigrams before_;
  const int width_;
  const Threads& threads_;
  const std::vector<float> a_, b_;
};

// x' y of matrices [n][width]: sums of fixed blocks, added in their order.
Square inner(const std::vector<float>& x, const std::vector<float>& y, int width, const Threads& threads) {
  const i64 n = std::ssize(x) / width, size = std::max<i64>(1, (n + kBlocks - 1) / kBlocks);
  const std::size_t cells = std::size_t(width) * width;
  std::vector<Square> parts((n + size - 1) / size);
  parallel_blocks(n, size, threads, [&](i64 begin, i64 end, int) {
    Square& sum = parts[begin / size];
    sum.assign(cells, 0.0);
    word_kernels().inner(x.data() + begin * width, y.data() + begin * width, end - begin, width, sum.data());
  });
  Square out(cells, 0.0);
  for (const Square& part : parts)
    for (std::size_t k = 0; k < cells; ++k) out[k] += part[k];
  return out;
}

// x = x m, row by row.
void times(std::vector<float>& x, const Square& m, int width, const Threads& threads) {
  parallel_blocks(std::ssize(x) / width, kRows, threads, [&](i64 begin, i64 end, int) {
    word_kernels().times(x.data() + begin * width, end - begin, m.data(), width);
  });
}

// Eigenvalues of a symmetric matrix, falling, and its eigenvectors in the columns of `vectors`: Jacobi's rotations.
std::vector<double> eigen(Square a, int n, Square& vectors) {
  Square v(a.size(), 0.0);
  for (int i = 0; i < n; ++i) v[i * n + i] = 1;
  const auto rotate = [n](Square& m, i64 first, i64 second, i64 step, double c, double s) {
    for (i64 k = 0; k < n; ++k) {
      double &x = m[first + k * step], &y = m[second + k * step];
      const double old = x;
      x = c * old - s * y;
      y = s * old + c * y;
    }
  };
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, all = 0;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) (i == j ? all : off) += a[i * n + j] * a[i * n + j];
    if (off <= 1e-24 * all) break;
    for (int p = 0; p < n; ++p)
      for (int q = p + 1; q < n; ++q) {
        const double x = a[p * n + q];
        if (x == 0) continue;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * x);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        rotate(a, p, q, n, c, s);
        rotate(a, i64{p} * n, i64{q} * n, 1, c, s);
        rotate(v, p, q, n, c, s);
      }
  }
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return a[i * n + i] > a[j * n + j]; });
  vectors.assign(a.size(), 0.0);
  std::vector<double> values;
  for (int j = 0; j < n; ++j) {
    values.push_back(a[order[j] * n + order[j]]);
    for (int i = 0; i < n; ++i) vectors[i * n + j] = v[i * n + order[j]];
  }
  return values;
}

// Makes the columns orthonormal, more nearly so the more often; those that are no direction of their own become zero.
void orthonormalise(std::vector<float>& x, int width, int rounds, const Threads& threads) {
  for (int k = 0; k < rounds; ++k) {
    Square v;
    const std::vector<double> values = eigen(inner(x, x, width, threads), width, v);
    for (int j = 0; j < width; ++j) {
      const double norm = values[j] > kFaint * values[0] ? 1 / std::sqrt(values[j]) : 0.0;
      for (int i = 0; i < width; ++i) v[i * width + j] *= norm;
    }
    times(x, v, width, threads);
  }
}

}  // namespace

WordVectors word_vectors(const Bigrams& bigrams, int rank, u64 seed, const Threads& threads) {
  const i64 n = bigrams.size();
  const int width = round_up(rank + kMore, kWordPad);
  const Neighbours matrix(bigrams, width, threads);
  std::vector<float> x(n * width), room(x.size()), y(x.size());
  Random random(seed);
  for (float& value : x) value = static_cast<float>(random.normal());
  for (int k = 0; k < kIterations; ++k) {
    matrix.square(x, room, y);
    x.swap(y);
    orthonormalise(x, width, k + 1 < kIterations ? 1 : 2, threads);
  }
  matrix.square(x, room, y);
  Square v;
  const std::vector<double> values = eigen(inner(x, y, width, threads), width, v);
  times(x, v, width, threads);
  WordVectors out;
  out.rank = rank;
  out.x.resize(n * rank);
  for (i64 w = 0; w < n; ++w) std::copy_n(x.data() + w * width, rank, out.x.data() + w * rank);
  for (int j = 0; j < rank; ++j) out.singular.push_back(std::sqrt(std::max(0.0, values[j])));
  return out;
}

}  // namespace crfkit
