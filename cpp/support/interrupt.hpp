// support/interrupt.hpp — long loops ask now and then whether the user wants them to stop.
#pragma once

#include <atomic>

namespace syno {

/// What a long loop calls: a few instructions; every twentieth of a second, in the process's main thread, the
/// handler. The handler throws to stop the loop.
void interruption_point();

/// The same at once, for loops that wait.
void check_interruption();

/// How often the handler has thrown.
unsigned interruptions();

/// What the interruption points of a thread throw that works for another one, which was interrupted.
struct Stopped {};
/// While this lives, those of this thread throw once `stop` is set.
class StopWhen {
 public:
  explicit StopWhen(const std::atomic<bool>& stop);
  ~StopWhen();
  StopWhen(const StopWhen&) = delete;
  StopWhen& operator=(const StopWhen&) = delete;

 private:
  const std::atomic<bool>* before_;
};

/// While this lives, those of this thread hear nothing: for loops that ask by themselves, and keep what they
/// have when they are to stop.
class Unheard {
 public:
  Unheard();
  ~Unheard();
  Unheard(const Unheard&) = delete;
  Unheard& operator=(const Unheard&) = delete;
};

/// The embedding language's check for signals; none by default. It is called without any lock held.
void set_interruption_handler(void (*handler)());

}  // namespace syno
