// support/thread_pool.hpp — a fixed set of threads that share out numbered, independent pieces of work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace syno {

/// `threads` workers, the calling thread being one of them: 1 runs everything in the caller, in order.
/// What piece i computes must depend on i alone and go to its own place; then results are the same for any
/// number of threads. One caller at a time; pieces must not call the pool.
class ThreadPool {
 public:
  explicit ThreadPool(std::size_t threads);  ///< 0: as many as the machine has
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t size() const { return workers_.size() + 1; }

  /// Calls `piece(i)` once for each i in [0, count) and returns when all are done. When pieces throw, the
  /// exception of the least i that threw is rethrown; pieces after a throw may be left out. A caller that
  /// waits hears interruptions, and then the pieces' own interruption points end them.
  void for_each(std::size_t count, const std::function<void(std::size_t)>& piece);

 private:
  void work();
  void run_pieces(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::vector<std::thread> workers_;
  const std::function<void(std::size_t)>* piece_ = nullptr;
  std::size_t count_ = 0, next_ = 0, running_ = 0, failed_ = 0;
  std::exception_ptr error_;
  bool stop_ = false;
  std::atomic<bool> interrupted_{false};
  unsigned interruptions_ = 0;  ///< there had been before
};

}  // namespace syno
