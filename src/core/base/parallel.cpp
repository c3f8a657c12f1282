#include "base/parallel.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace crfkit {

void parallel_for(i64 n_tasks, int n_threads, const Poll& poll, FunctionRef<void(i64, int)> body) {
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
  } catch (const std::exception&) {
    // the system gives no more threads, or no memory for them: those there are do all the tasks
  }
  work(0);
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
}

void parallel_blocks(i64 n, i64 block, const Threads& threads, FunctionRef<void(i64, i64, int)> body) {
  parallel_for((n + block - 1) / block, threads.count, threads.poll,
               [&](i64 b, int thread) { body(b * block, std::min(n, (b + 1) * block), thread); });
}

}  // namespace crfkit
