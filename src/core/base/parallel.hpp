// parallel.hpp: run tasks on threads; hand results over in task order.
#pragma once
#include <atomic>
#include <functional>
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
void parallel_for(i64 n_tasks, int n_threads, const Poll& poll, FunctionRef<void(i64, int)> body);

// Calls body(begin, end, thread) for blocks of [0, n).
void parallel_blocks(i64 n, i64 block, const Threads& threads, FunctionRef<void(i64, i64, int)> body);

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
