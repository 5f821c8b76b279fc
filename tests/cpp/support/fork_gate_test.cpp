#include "support/fork_gate.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace syno {
namespace {

/// Exit status of a child that does `act` within a minute; -1 where a signal ended it.
template <class Act>
int status_of_child(const Act& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    act();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Threads {
 public:
  template <class Act>
  Threads(int count, const Act& act) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, act] {
        while (!over_) act();
      });
  }
  ~Threads() {
    over_ = true;
    for (std::thread& each : threads_) each.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  std::atomic<bool> over_ = false;
  std::vector<std::thread> threads_;
};

std::mutex first, second;

TEST(ForkGate, AChildInheritsNoLockThatAThreadHolds) {
  const Threads busy(3, [] {
    const ForkSection section;
    const std::lock_guard one(first);
    const ForkSection inner;
    const std::lock_guard two(second);
  });
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(status_of_child([] {
                const ForkSection section;
                const std::lock_guard one(first), two(second);
              }),
              0);
}

TEST(ForkGate, ThreadsOfAChildHaveSectionsOfTheirOwn) {
  const Threads busy(2, [] { const ForkSection section; });
  const auto forks_beside_threads = [] {
    const Threads more(2, [] { const ForkSection section; });
    for (int i = 0; i < 10; ++i)
      if (status_of_child([] { const ForkSection section; }) != 0) ::_exit(1);
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(status_of_child(forks_beside_threads), 0);
}

TEST(ForkGate, WhatASectionWaitsForIsEnteredWhileAForkWaits) {
  std::atomic<bool> inside = false, done = false;
  std::thread waits([&] {
    const ForkSection section;
    inside = true;
    while (!done) std::this_thread::yield();
  });
  while (!inside) std::this_thread::yield();
  std::thread forks([] { EXPECT_EQ(status_of_child([] {}), 0); });
  std::thread urgent([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the fork waits by now, or comes later
    const ForkSection section(ForkSection::Kind::Urgent);
    done = true;
  });
  urgent.join();
  waits.join();
  forks.join();
}

TEST(ForkGate, WhatTakesOthersLocksRunsOutsideOfSections) {
  std::vector<int> order;
  outside_fork_sections([&] { order.push_back(1); });
  {
    const ForkSection section;
    {
      const ForkSection inner;
      outside_fork_sections([&] { order.push_back(3); });
      outside_fork_sections([] { throw 1; });
    }
    order.push_back(2);
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

}  // namespace
}  // namespace syno
