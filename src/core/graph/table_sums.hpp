// table_sums.hpp: where the probabilities of factors go.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "base/parallel.hpp"
#include "graph/factor_graph.hpp"

namespace crfkit {

// Hands out room for a factor's probabilities and takes them: each into its own place, or times a weight into the sum
// over all factors that have the same table, or nowhere. Sums are made block by block, and the blocks are added in
// their order: the same numbers on any number of threads.
class TableSums {
 public:
  TableSums(const Structure& g, const Scores& scores, const FactorOutput& out, int threads)
      : g_(g), scores_(scores), out_(out), mine_(threads), turns_(1) {
    if (out.each != nullptr) return;
    for (i64 f = 0; f < g.n_factors(); ++f) largest_ = std::max(largest_, g.table_size(f));
    for (Mine& mine : mine_) mine.room.reserve(largest_);
    if (out.sums == nullptr) return;
    std::fill_n(out.sums, scores.table_ptr[scores.n_tables], 0.0);
    std::vector<i64> uses(scores.n_tables, 0);
    for (i64 f = 0; f < g.n_factors(); ++f) ++uses[scores.table_of[f]];
    shared_.assign(scores.n_tables, -1);
    i64 entries = 0;
    for (i64 t = 0; t < scores.n_tables; ++t) {
      if (uses[t] < 2) continue;
      shared_[t] = entries;
      entries += size(t);
    }
    for (Mine& mine : mine_) {
      mine.sums.assign(entries, 0.0);
      mine.touched.assign(scores.n_tables, 0);
    }
  }

  bool wanted() const { return out_.each != nullptr || out_.sums != nullptr; }

  double* open(i64 f, int thread) {
    return out_.each != nullptr ? out_.each + g_.out_ptr[f] : mine_[thread].room.data();
  }

  void close(i64 f, int thread) {
    if (out_.sums == nullptr) return;
    Mine& mine = mine_[thread];
    const double weight = out_.weight[g_.component[g_.scope[g_.scope_ptr[f]]]];
    const i32 t = scores_.table_of[f];
    double* sum = out_.sums + scores_.table_ptr[t];  // of this factor alone, or
    if (shared_[t] >= 0) {
      sum = mine.sums.data() + shared_[t];
      if (!mine.touched[t]) mine.list.push_back(t);
      mine.touched[t] = 1;
    }
    const double* p = mine.room.data();
    for (i64 i = 0; i < size(t); ++i) sum[i] += weight * p[i];
  }

  // Calls body(block, thread) for all blocks.
  template <class Body>
  void run(i64 blocks, const Threads& threads, Body body) {
    parallel_for(blocks, threads.count, threads.poll, [&](i64 block, int thread) {
      try {
        body(block, thread);
        add(block, mine_[thread]);
      } catch (...) {
        turns_.break_all();
        throw;
      }
    });
  }

  // Calls body(factor, room, thread) for all factors, which it then takes.
  template <class Body>
  void each_factor(const Threads& threads, Body body) {
    constexpr i64 block = 256;
    const i64 n = g_.n_factors();
    run((n + block - 1) / block, threads, [&](i64 b, int thread) {
      for (i64 f = b * block; f < std::min(n, (b + 1) * block); ++f) {
        body(f, open(f, thread), thread);
        close(f, thread);
      }
    });
  }

 private:
  struct Mine {
    Buffer<double> room;       // one factor
    std::vector<double> sums;  // of the block
    std::vector<u8> touched;   // tables
    std::vector<i32> list;
  };

  i64 size(i64 t) const { return scores_.table_ptr[t + 1] - scores_.table_ptr[t]; }

  void add(i64 block, Mine& mine) {
    if (out_.sums == nullptr) return;
    turns_.wait(0, block);
    for (const i32 t : mine.list) {
      double* from = mine.sums.data() + shared_[t];
      double* to = out_.sums + scores_.table_ptr[t];
      for (i64 i = 0; i < size(t); ++i) to[i] += from[i];
      std::fill_n(from, size(t), 0.0);
      mine.touched[t] = 0;
    }
    mine.list.clear();
    turns_.pass(0, block);
  }

  const Structure& g_;
  const Scores& scores_;
  FactorOutput out_;
  std::vector<Mine> mine_;
  std::vector<i64> shared_;  // tables of several factors: place in the threads' sums; others -1
  i64 largest_ = 0;
  Turns turns_;
};

}  // namespace crfkit
