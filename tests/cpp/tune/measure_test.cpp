// Candidates are timed, and whatever is wrong with one is an outcome that leaves the others alone.
#include "tune/measure.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "program/text.hpp"
#include "support/error.hpp"

namespace syno::tune {
namespace {

program::Program matmul(std::int64_t m, std::int64_t n, std::int64_t k) {
  program::ParseOptions options;
  options.sizes = {{"m", m}, {"n", n}, {"k", k}};
  return program::parse("y[m,n] = sum[k] a[m,k] * b[k,n]", options);
}
MeasureOptions quick() {
  MeasureOptions options;
  options.samples = 3;
  options.sample_s = 1e-4;
  options.limit_s = 60;
  return options;
}

TEST(Measure, TimesCandidatesInOrder) {
  const auto p = matmul(64, 64, 64);
  const schedule::Schedule plain, fast = schedule::default_schedule(p, schedule::Dtype::F32, {});
  const auto made = measure(p, {plain, fast}, quick());
  ASSERT_EQ(made.size(), 2u);
  for (const auto& each : made) {
    ASSERT_EQ(each.outcome, Outcome::Ok) << each.reason;
    EXPECT_GT(each.median_s, 0);
    EXPECT_LE(each.q1_s, each.median_s);
    EXPECT_LE(each.median_s, each.q3_s);
    EXPECT_EQ(each.samples, 3);
  }
  EXPECT_GT(compare(p, plain, fast, quick()),
            1);  // plain loops against tiles: no load of the machine turns that
}

TEST(Measure, ColdCallsAreTimedOnce) {
  auto options = quick();
  options.cold = true;
  const auto made = measure(matmul(16, 16, 16), {schedule::Schedule{}}, options);
  ASSERT_EQ(made[0].outcome, Outcome::Ok) << made[0].reason;
  EXPECT_EQ(made[0].calls, 1);
}

TEST(Measure, ScheduleThatDoesNotApply) {
  const auto made =
      measure(matmul(8, 8, 8), {schedule::parse_schedule("schedule f32\nunroll y loops=q\n"), {}}, quick());
  EXPECT_EQ(made[0].outcome, Outcome::NotApplicable);
  EXPECT_NE(made[0].reason.find("q"), std::string::npos);
  EXPECT_EQ(made[1].outcome, Outcome::Ok) << made[1].reason;
}

TEST(Measure, ProgramThatDoesNotEndInTime) {
  auto options = quick();
  options.limit_s = 0.3;
  options.verify = false;
  const auto made = measure(matmul(2000, 2000, 2000), {{}}, options);  // plain loops: several seconds
  EXPECT_EQ(made[0].outcome, Outcome::TimedOut) << made[0].median_s;
  EXPECT_NE(made[0].reason.find("0.3"), std::string::npos);
}

TEST(Measure, ProgramThatNeedsTooMuchMemory) {
  auto options = quick();
  options.memory_bytes = 1000;
  const auto made = measure(matmul(64, 64, 64), {{}}, options);
  EXPECT_EQ(made[0].outcome, Outcome::TooMuchMemory);
}

TEST(Measure, RequestsOutOfRange) {
  auto options = quick();
  options.samples = 1;
  EXPECT_THROW(measure(matmul(4, 4, 4), {{}}, options), KernelError);
  options = quick();
  options.threads = 0;
  EXPECT_THROW(measure(matmul(4, 4, 4), {{}}, options), KernelError);
}

TEST(Measure, HoldsTheLockOfTheMachine) {
  const auto path = std::filesystem::temp_directory_path() / "syno-measure-test.lock";
  auto options = quick();
  options.lock_file = path.string();
  EXPECT_EQ(measure(matmul(8, 8, 8), {{}}, options)[0].outcome, Outcome::Ok);
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
  options.lock_file = "/nowhere/at/all.lock";
  EXPECT_EQ(measure(matmul(8, 8, 8), {{}}, options)[0].outcome, Outcome::Ok);
}

}  // namespace
}  // namespace syno::tune
