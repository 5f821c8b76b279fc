#include "support/interrupt.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <utility>

namespace syno {

namespace {

std::atomic<void (*)()> g_handler{nullptr};

std::atomic<unsigned> g_interruptions{0};
thread_local const std::atomic<bool>* g_stop = nullptr;
thread_local int g_unheard = 0;

bool in_main_thread() { return ::syscall(SYS_gettid) == ::getpid(); }

}  // namespace

void interruption_point() {
  constexpr unsigned kCallsBetweenLooksAtTheClock = 256;
  constexpr std::chrono::milliseconds kBetweenChecks{50};
  thread_local unsigned calls = 0;
  thread_local std::chrono::steady_clock::time_point last{};
  if (++calls % kCallsBetweenLooksAtTheClock != 0) return;
  if (g_stop != nullptr && g_stop->load(std::memory_order_relaxed)) throw Stopped{};
  const auto now = std::chrono::steady_clock::now();
  if (now - last < kBetweenChecks) return;
  last = now;
  check_interruption();
}

void check_interruption() {
  const auto handler = g_handler.load(std::memory_order_relaxed);
  // Signals are the main thread's; another thread may have to wait for it with a lock.
  if (handler == nullptr || g_unheard > 0 || !in_main_thread()) return;
  try {
    handler();
  } catch (...) {
    ++g_interruptions;
    throw;
  }
}

unsigned interruptions() { return g_interruptions; }

StopWhen::StopWhen(const std::atomic<bool>& stop) : before_(std::exchange(g_stop, &stop)) {}
StopWhen::~StopWhen() { g_stop = before_; }

Unheard::Unheard() { ++g_unheard; }
Unheard::~Unheard() { --g_unheard; }

void set_interruption_handler(void (*handler)()) { g_handler = handler; }

}  // namespace syno
