// k_means.cpp: a group's centre is summed by one thread, in the order of its points.
#include "words/k_means.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "words/kernels.hpp"
#include "words/random.hpp"

namespace crfkit {
namespace {

constexpr i64 kPoints = 1024;  // of a task

// Points with a one after their coordinates, so that a product with (c, -|c|^2 / 2) tells which centre c is near.
class Points {
 public:
  Points(const float* x, i64 n, int dimensions, const Threads& threads)
      : n_(n),
        dimensions_(dimensions),
        depth_(round_up(dimensions + 1, kWordPad)),
        threads_(threads),
        x_(n * depth_, 0.0f),
        norm_(n) {
    for (i64 i = 0; i < n; ++i) {
      float* row = x_.data() + i * depth_;
      std::copy_n(x + i * dimensions, dimensions, row);
      norm_[i] = std::inner_product(row, row + dimensions, row, 0.0f);
      row[dimensions] = 1;
    }
  }
  i64 size() const { return n_; }
  int dimensions() const { return dimensions_; }
  const float* operator[](i64 i) const { return x_.data() + i * depth_; }

  // The nearest of k centres, [k][dimensions], and the squared distance to it, of each point.
  void nearest(const std::vector<float>& centres, int k, u32* group, float* distance) const {
    const int stride = round_up(std::max(k, depth_), kWordPad);
    std::vector<float> m(std::size_t(depth_) * stride, 0.0f);
    for (int c = 0; c < k; ++c) {
      const float* centre = centres.data() + std::size_t(c) * dimensions_;
      for (int d = 0; d < dimensions_; ++d) m[std::size_t(d) * stride + c] = centre[d];
      m[std::size_t(dimensions_) * stride + c] = -std::inner_product(centre, centre + dimensions_, centre, 0.0f) / 2;
    }
    std::vector<Buffer<float>> room(threads_.count);
    parallel_blocks(n_, kPoints, threads_, [&](i64 begin, i64 end, int thread) {
      room[thread].reserve(8 * std::size_t(stride));
      word_kernels().nearest((*this)[begin], end - begin, m.data(), depth_, k, stride, room[thread].data(),
                             group + begin, distance + begin);
      for (i64 i = begin; i < end; ++i) distance[i] = std::max(0.0f, norm_[i] - 2 * distance[i]);
    });
  }
  // Lowers distances to those from one of the points.
  void approach(i64 centre, float* distance) const {
    parallel_blocks(n_, kPoints, threads_, [&](i64 begin, i64 end, int) {
      float product[kPoints];
      word_kernels().products((*this)[begin], end - begin, (*this)[centre], depth_, product);
      for (i64 i = begin; i < end; ++i) {
        const float found = norm_[i] + norm_[centre] - 2 * (product[i - begin] - 1);
        distance[i] = i == centre ? 0.0f : std::min(distance[i], std::max(0.0f, found));
      }
    });
  }

 private:
  const i64 n_;
  const int dimensions_, depth_;
  const Threads& threads_;
  std::vector<float> x_;     // [n][depth]
  std::vector<float> norm_;  // squared
};

// k-means++: each centre is a point, drawn by its squared distance to the centres before.
std::vector<float> first_centres(const Points& points, int k, Random& random) {
  const i64 n = points.size();
  const int d = points.dimensions();
  std::vector<float> centres, least(n, std::numeric_limits<float>::infinity());
  i64 chosen = static_cast<i64>(random.uniform() * static_cast<double>(n));
  for (int c = 0; c < k; ++c) {
    centres.insert(centres.end(), points[chosen], points[chosen] + d);
    points.approach(chosen, least.data());
    const double total = std::accumulate(least.begin(), least.end(), 0.0);
    double left = random.uniform() * total;
    for (chosen = 0; chosen + 1 < n && (left -= least[chosen]) >= 0; ++chosen) {}
  }
  return centres;
}

}  // namespace

Groups k_means(const float* x, i64 n, int dimensions, int k, int iterations, u64 seed, const Threads& threads) {
  const Points points(x, n, dimensions, threads);
  Random random(seed);
  Groups out;
  out.centres = first_centres(points, k, random);
  out.group.assign(n, 0);
  std::vector<u32> old;
  std::vector<float> distance(n);
  std::vector<i64> first(k + 1), members(n);
  for (int step = 0; step < iterations; ++step) {
    points.nearest(out.centres, k, out.group.data(), distance.data());
    if (out.group == old) break;
    std::vector<i64> count(k, 0);
    for (const u32 g : out.group) ++count[g];
    for (int g = 0; g < k; ++g) {  // an empty group takes the point that lies worst
      if (count[g] > 0) continue;
      const i64 far = std::max_element(distance.begin(), distance.end()) - distance.begin();
      if (count[out.group[far]] < 2) continue;
      --count[out.group[far]];
      ++count[out.group[far] = static_cast<u32>(g)];
      distance[far] = 0;
    }
    old = out.group;
    for (int g = 0; g < k; ++g) first[g + 1] = first[g] + count[g];
    std::vector<i64> at(first.begin(), first.end() - 1);
    for (i64 i = 0; i < n; ++i) members[at[out.group[i]]++] = i;
    parallel_blocks(k, 4, threads, [&](i64 begin, i64 end, int) {
      std::vector<double> sum(dimensions);
      for (i64 g = begin; g < end; ++g) {
        if (count[g] == 0) continue;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (i64 m = first[g]; m < first[g + 1]; ++m)
          for (int d = 0; d < dimensions; ++d) sum[d] += points[members[m]][d];
        for (int d = 0; d < dimensions; ++d)
          out.centres[g * dimensions + d] = static_cast<float>(sum[d] / static_cast<double>(count[g]));
      }
    });
  }
  return out;
}

std::vector<std::pair<u32, u32>> ward_tree(const float* x, const double* weight, i64 n, int dimensions) {
  std::vector<double> centre(x, x + n * dimensions), mass(weight, weight + n);
  std::vector<u32> node(n);
  std::iota(node.begin(), node.end(), 0u);
  const auto cost = [&](i64 i, i64 j) {
    double sum = 0;
    for (int d = 0; d < dimensions; ++d) {
      const double away = centre[i * dimensions + d] - centre[j * dimensions + d];
      sum += away * away;
    }
    return mass[i] * mass[j] / (mass[i] + mass[j]) * sum;
  };
  // the nearest of those before it
  std::vector<double> least(n, std::numeric_limits<double>::infinity());
  std::vector<i64> near(n, 0);
  const auto look = [&](i64 i) {
    least[i] = std::numeric_limits<double>::infinity();
    for (i64 j = 0; j < i; ++j)
      if (node[j] != kNone)
        if (const double c = cost(i, j); c < least[i]) least[i] = c, near[i] = j;
  };
  for (i64 i = 0; i < n; ++i) look(i);
  std::vector<std::pair<u32, u32>> out;
  for (i64 k = 1; k < n; ++k) {
    const i64 i = std::min_element(least.begin(), least.end()) - least.begin(), j = near[i];
    out.emplace_back(node[j], node[i]);
    for (int d = 0; d < dimensions; ++d) {
      double& c = centre[j * dimensions + d];
      c = (mass[j] * c + mass[i] * centre[i * dimensions + d]) / (mass[i] + mass[j]);
    }
    mass[j] += mass[i];
    node[j] = static_cast<u32>(n + k - 1);
    node[i] = kNone;
    least[i] = std::numeric_limits<double>::infinity();
    look(j);
    for (i64 r = j + 1; r < n; ++r) {
      if (node[r] == kNone) continue;
      if (near[r] == i || near[r] == j) look(r);
      else if (const double c = cost(r, j); c < least[r]) least[r] = c, near[r] = j;
    }
  }
  return out;
}

}  // namespace crfkit
