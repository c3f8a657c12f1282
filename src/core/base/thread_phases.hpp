// thread_phases.hpp: threads that stay between short phases of work.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/parallel.hpp"

namespace crfkit {

// Threads that go through two kinds of tasks in turns, body(kind, task), all of the one before any of the other. Unlike
// parallel_for's they stay, and one that comes late is not waited for.
class PhasedThreads {
 public:
  using Body = std::function<void(i64, i64)>;
  PhasedThreads(const Threads& threads, std::array<i64, 2> counts, Body body)
      : threads_(threads), counts_(counts), body_(std::move(body)) {
    const i64 n = std::min<i64>(threads.count, std::max(counts[0], counts[1]));
    others_.reserve(std::max<i64>(0, n - 1));
    try {
      for (i64 t = 1; t < n; ++t) others_.emplace_back([this] { follow(); });
    } catch (const std::system_error&) {
      // the system gives no more threads: those there are do all the tasks
    }
  }
  PhasedThreads(const PhasedThreads&) = delete;
  PhasedThreads& operator=(const PhasedThreads&) = delete;
  ~PhasedThreads() {
    next_.store(kOver);
    next_.notify_all();
    for (std::thread& t : others_) t.join();
  }

  // The next kind's tasks.
  void run() {
    const u64 phase = ++phase_;
    const i64 count = counts_[(phase - 1) % 2];
    done_.store(0);
    next_.store(phase << 32);
    next_.notify_all();
    while (work(phase))
      if (threads_.poll) threads_.poll();
    while (done_.load(std::memory_order_acquire) < count) std::this_thread::yield();
  }

 private:
  static constexpr u64 kOver = ~u64{0};

  // One task of the phase, if there is one left.
  bool work(u64 phase) {
    u64 seen = next_.load(std::memory_order_acquire);
    const i64 kind = static_cast<i64>((phase - 1) % 2);
    do {
      if (seen >> 32 != phase || static_cast<i64>(seen & 0xffffffff) >= counts_[kind]) return false;
    } while (!next_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel));
    body_(kind, static_cast<i64>(seen & 0xffffffff));
    done_.fetch_add(1, std::memory_order_acq_rel);
    return true;
  }

  void follow() {
    for (;;) {
      const u64 seen = next_.load(std::memory_order_acquire);
      if (seen == kOver) return;
      if (seen >> 32 != 0 && work(seen >> 32)) continue;
      const u64 now = next_.load(std::memory_order_acquire);
      if (now >> 32 == seen >> 32 && now != kOver) next_.wait(now);
    }
  }

  const Threads& threads_;
  std::array<i64, 2> counts_;
  Body body_;
  u64 phase_ = 0;
  std::atomic<u64> next_{0};
  std::atomic<i64> done_{0};
  std::vector<std::thread> others_;
};

}  // namespace crfkit
