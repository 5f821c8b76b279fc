// The thread pool: every piece once, results independent of the number of threads, exceptions come back.
#include "support/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/interrupt.hpp"

namespace syno {
namespace {

class Pool : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Pool, RunsEveryPieceOnceInEachOfManyRounds) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (std::size_t count : {0u, 1u, 2u, 7u, 100u, 1000u}) {
    std::vector<std::atomic<int>> seen(count);
    pool.for_each(count, [&](std::size_t i) { ++seen[i]; });
    for (const auto& times : seen) ASSERT_EQ(times, 1);
  }
}

TEST_P(Pool, RethrowsTheFirstFailureAndWorksOn) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 50; ++round) {
    try {
      pool.for_each(64, [](std::size_t i) {
        if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "the exception was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "7");
    }
  }
  std::atomic<int> done = 0;
  pool.for_each(10, [&](std::size_t) { ++done; });
  EXPECT_EQ(done, 10);
}

std::atomic<bool> heard = false;
void interrupt() {
  if (!heard.exchange(true)) throw std::runtime_error("interrupted");
}

TEST(ThreadPool, HearsInterruptionsWhileItWaits) {
  ThreadPool pool(2);
  std::atomic<bool> entered = false;
  const auto caller = std::this_thread::get_id();
  set_interruption_handler(interrupt);
  EXPECT_THROW(pool.for_each(2,
                             [&](std::size_t) {
                               if (std::this_thread::get_id() == caller) return entered.wait(false);
                               entered = true;
                               entered.notify_all();
                               for (;;) interruption_point();
                             }),
               std::runtime_error);
  set_interruption_handler(nullptr);
  std::atomic<int> done = 0;
  pool.for_each(10, [&](std::size_t) { ++done; });
  EXPECT_EQ(done, 10);
}

INSTANTIATE_TEST_SUITE_P(Threads, Pool, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace syno
