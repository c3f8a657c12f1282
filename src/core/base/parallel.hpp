// parallel.hpp: run tasks on threads; hand results over in task order.
#pragma once
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/base.hpp"

namespace crfkit {

// Called now and then on the calling thread while it works; throws to stop the work (Ctrl-C).
using Poll = std::function<void()>;

// Looks for Ctrl-C after every million steps or so, if given a way to.
class Watch {
 public:
  explicit Watch(const Poll* poll) : poll_(poll) {}
  void spend(u64 steps) {
    constexpr u64 kOften = 1 << 20;
    if ((spent_ += steps) < kOften) return;
    spent_ = 0;
    if (poll_ != nullptr && *poll_) (*poll_)();
  }

 private:
  const Poll* poll_;
  u64 spent_ = 0;
};

struct Threads {
  int count = 1;
  Poll poll;
};

// Thrown in tasks that wait for one that failed.
struct Stopped {};

// Calls body(task, thread) for every task in [0, n_tasks). Tasks are taken in order, each thread one at
// a time; which thread gets which task is left open, so body's results must not depend on it.
// The first exception stops the rest and is thrown again here.
template <class Body>
void parallel_for(i64 n_tasks, int n_threads, const Poll& poll, Body body) {
  std::atomic<i64> next{0};
  std::atomic<bool> stop{false};
  std::exception_ptr failure;
  std::mutex failure_lock;
  const auto work = [&](int thread) {
    try {
      while (!stop.load(std::memory_order_relaxed)) {
        const i64 task = next.fetch_add(1);
        if (task >= n_tasks) break;
        body(task, thread);
        if (thread == 0 && poll) poll();
      }
    } catch (const Stopped&) {
      stop = true;  // of a task that failed, and says why itself
    } catch (...) {
      const std::lock_guard<std::mutex> guard(failure_lock);
      if (!failure) failure = std::current_exception();
      stop = true;
    }
  };
  n_threads = static_cast<int>(std::min<i64>(n_threads, n_tasks));
  std::vector<std::thread> threads;
  threads.reserve(std::max(0, n_threads - 1));
  try {
    for (int t = 1; t < n_threads; ++t) threads.emplace_back(work, t);
  } catch (const std::system_error&) {
    // the system gives no more threads: those there are do all the tasks
  }
  work(0);
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
}

// Calls body(begin, end, thread) for blocks of [0, n).
template <class Body>
void parallel_blocks(i64 n, i64 block, const Threads& threads, Body body) {
  parallel_for((n + block - 1) / block, threads.count, threads.poll,
               [&](i64 b, int thread) { body(b * block, std::min(n, (b + 1) * block), thread); });
}

// Lets tasks add to shared memory in the order of their numbers, part by part: task k may touch part p
// only after task k-1 has left it. Sums then do not depend on the number of threads, and tasks
// follow each other through the parts without waiting for whole tasks.
class Turns {
 public:
  explicit Turns(int parts) : turns_(parts) {}
  void wait(int part, i64 task) {
    i64 seen = turns_[part].load(std::memory_order_acquire);
    for (int spin = 0; spin < kSpins && seen != task && seen != kBroken; ++spin)
      seen = turns_[part].load(std::memory_order_acquire);
    while (seen != task && seen != kBroken) {
      turns_[part].wait(seen, std::memory_order_acquire);
      seen = turns_[part].load(std::memory_order_acquire);
    }
    if (seen == kBroken) throw Stopped();
  }
  void pass(int part, i64 task) {
    i64 mine = task;  // stays broken once broken
    turns_[part].compare_exchange_strong(mine, task + 1, std::memory_order_acq_rel);
    turns_[part].notify_all();
  }
  // A failed task must let go of those who wait for it.
  void break_all() {
    for (auto& turn : turns_) {
      turn.store(kBroken, std::memory_order_release);
      turn.notify_all();
    }
  }
  int parts() const { return static_cast<int>(turns_.size()); }

 private:
  static constexpr i64 kBroken = -1;
  static constexpr int kSpins = 20000;  // some tens of microseconds; going to sleep and waking up takes longer
  std::vector<std::atomic<i64>> turns_;
};

}  // namespace crfkit
