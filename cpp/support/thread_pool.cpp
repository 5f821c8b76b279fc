#include "support/thread_pool.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "support/interrupt.hpp"

namespace syno {

ThreadPool::ThreadPool(std::size_t threads) {
  if (threads == 0) threads = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  workers_.reserve(threads - 1);
  for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_pieces(std::unique_lock<std::mutex>& lock) {
  while (next_ < count_) {
    const std::size_t i = next_++;
    const auto* piece = piece_;
    ++running_;
    lock.unlock();
    std::exception_ptr error;
    try {
      const StopWhen stopped(interrupted_);
      (*piece)(i);
    } catch (const Stopped&) {  // the caller has its exception already
    } catch (...) {
      error = std::current_exception();
      if (interruptions() != interruptions_) interrupted_ = true;
    }
    lock.lock();
    --running_;
    if (error && (!error_ || i < failed_)) {
      error_ = error;
      failed_ = i;
      next_ = count_;  // pieces are handed out in order, so all before i are done or running
    }
  }
}

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    start_.wait(lock, [this] { return stop_ || next_ < count_; });
    if (stop_) return;
    run_pieces(lock);
    if (running_ == 0) done_.notify_all();
  }
}

void ThreadPool::for_each(std::size_t count, const std::function<void(std::size_t)>& piece) {
  std::unique_lock lock(mutex_);
  piece_ = &piece;
  count_ = count;
  next_ = failed_ = 0;
  interrupted_ = false;
  interruptions_ = interruptions();
  error_ = nullptr;
  if (count > 1) start_.notify_all();
  run_pieces(lock);
  constexpr std::chrono::milliseconds kBetweenChecks{50};
  while (!done_.wait_for(lock, kBetweenChecks, [this] { return running_ == 0; })) {
    lock.unlock();
    std::exception_ptr heard;
    try {
      check_interruption();
    } catch (...) {
      heard = std::current_exception();
    }
    lock.lock();
    if (!heard) continue;
    error_ = heard;
    failed_ = 0;
    next_ = count_;
    interrupted_ = true;
  }
  count_ = next_ = 0;
  if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

}  // namespace syno
