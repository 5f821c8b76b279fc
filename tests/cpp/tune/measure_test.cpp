// Candidates are timed, and whatever is wrong with one is an outcome that leaves the others alone.
#include "tune/measure.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "construct/construct.hpp"
#include "jit/codegen.hpp"
#include "jit/object_cache.hpp"
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
  const schedule::Schedule plain, fast = construct::default_schedule(p, nest::Dtype::F32, {});
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

/// What is packed before calls is no part of a call: here it is nearly all of the work.
TEST(Measure, CallsAreTimedWithoutWhatIsPackedBefore) {
  const auto p =
      program::parse("t[k] = sum[j] exp(w[k,j]); y[k] = t[k] + x[k]", {.sizes = {{"k", 64}, {"j", 512}}});
  const schedule::Schedule whole, packed{nest::Dtype::F32, {{"prepack", "t", {}, {}, "", {}}}};
  const auto made = measure(p, {whole, packed}, quick());
  ASSERT_EQ(made[0].outcome, Outcome::Ok) << made[0].reason;
  ASSERT_EQ(made[1].outcome, Outcome::Ok) << made[1].reason;
  EXPECT_LT(made[1].median_s, made[0].median_s / 10);
  EXPECT_LT(compare(p, packed, whole, quick()), 0.1);
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

TEST(Measure, ProgramThatTheSystemHasNoMemoryFor) {
  auto options = quick();
  options.memory_bytes = std::numeric_limits<std::int64_t>::max();
  program::ParseOptions sizes;
  sizes.sizes = {{"i", 1 << 23}, {"j", 1 << 23}};  // more bytes than a process can address
  for (const bool verify : {false, true}) {
    options.verify = verify;
    const auto made = measure(program::parse("y[i,j] = relu(x[i,j])", sizes), {{}}, options);
    EXPECT_EQ(made[0].outcome, Outcome::TooMuchMemory) << made[0].reason;
    EXPECT_NE(made[0].reason.find("memory"), std::string::npos);
  }
}

/// Machine code that is not what its schedule says, as from a damaged cache or a mistake of the code
/// generator.
class DoctoredCode : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / fmt::format("syno-doctored-{}", ::getpid());
    std::filesystem::create_directories(directory_);
    options_.cache_directory = directory_.string();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  /// Outcomes of the plain loops of `p`, whose object `change` has changed, and of the default schedule,
  /// whose object is as it was.
  std::vector<Measured> measured(const program::Program& p,
                                 const std::function<void(jit::CompiledObject&)>& change) {
    const auto made = measure(p, {{}}, options_);
    EXPECT_EQ(made[0].outcome, Outcome::Ok) << made[0].reason;
    std::size_t found = 0;
    for (const auto& file : std::filesystem::directory_iterator(directory_)) {
      const std::string key_text = key_text_of(file.path());
      const jit::ObjectCache cache(options_.cache_directory);
      auto object = cache.find(key_text);
      EXPECT_TRUE(object.has_value());
      if (!object) continue;
      change(*object);
      cache.put(key_text, *object);
      ++found;
    }
    EXPECT_EQ(found, 1u);
    return measure(p, {{}, construct::default_schedule(p, nest::Dtype::F32, {})}, options_);
  }

  /// Puts the code of another program into the place of an object.
  static std::function<void(jit::CompiledObject&)> code_of(const program::Program& other) {
    return [other](jit::CompiledObject& object) {
      jit::CompileReport report;
      object = jit::compile_object(schedule::apply(other, {}), jit::host_cpu(), object.symbol, report);
    };
  }

  static std::string key_text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    constexpr std::size_t kMagic = 8, kLength = 8;
    std::int64_t length = 0;
    std::memcpy(&length, bytes.data() + kMagic, kLength);
    return bytes.substr(kMagic + kLength, static_cast<std::size_t>(length));
  }

  std::filesystem::path directory_;
  MeasureOptions options_ = quick();
};

program::Program product(const char* text, std::int64_t m, std::int64_t n, std::int64_t k) {
  program::ParseOptions options;
  options.sizes = {{"m", m}, {"n", n}, {"k", k}};
  return program::parse(text, options);
}

TEST_F(DoctoredCode, IsLeftAlone) {
  const auto made = measured(matmul(8, 8, 8), [](jit::CompiledObject&) {});
  for (const auto& each : made) EXPECT_EQ(each.outcome, Outcome::Ok) << each.reason;
}

TEST_F(DoctoredCode, IsWrong) {
  const auto twice = product("y[m,n] = sum[k] 2 * a[m,k] * b[k,n]", 8, 8, 8);
  const auto made = measured(matmul(8, 8, 8), code_of(twice));
  EXPECT_EQ(made[0].outcome, Outcome::Wrong) << made[0].reason;
  EXPECT_NE(made[0].reason.find("over the limit"), std::string::npos) << made[0].reason;
  EXPECT_EQ(made[0].samples, 0);
  EXPECT_EQ(made[1].outcome, Outcome::Ok) << made[1].reason;
}

TEST_F(DoctoredCode, WritesWhereNothingIs) {
  const auto made = measured(matmul(8, 8, 8), code_of(matmul(100'000, 100'000, 8)));
  EXPECT_EQ(made[0].outcome, Outcome::Crashed) << made[0].reason;
  EXPECT_NE(made[0].reason.find("signal"), std::string::npos) << made[0].reason;
  EXPECT_EQ(made[1].outcome, Outcome::Ok) << made[1].reason;
}

TEST_F(DoctoredCode, DoesNotEnd) {
  const auto endless =
      product("y[m,n] = sum[k] a[m,k/68719476736] * b[k/68719476736,n]", 8, 8, std::int64_t{8} << 36);
  options_.limit_s = 10;  // the schedule beside it must end in time on a busy machine, too
  const auto made = measured(matmul(8, 8, 8), code_of(endless));
  EXPECT_EQ(made[0].outcome, Outcome::TimedOut) << made[0].reason;
  EXPECT_NE(made[0].reason.find("10 s"), std::string::npos) << made[0].reason;
  EXPECT_EQ(made[1].outcome, Outcome::Ok) << made[1].reason;
}

TEST_F(DoctoredCode, WantsTooMuchWorkspace) {
  const auto made = measured(
      matmul(8, 8, 8), [](jit::CompiledObject& object) { object.private_bytes = std::int64_t{1} << 50; });
  EXPECT_EQ(made[0].outcome, Outcome::TooMuchMemory) << made[0].reason;
  EXPECT_EQ(made[1].outcome, Outcome::Ok) << made[1].reason;
}

TEST(Measure, RequestsOutOfRange) {
  auto options = quick();
  options.samples = 1;
  EXPECT_THROW(measure(matmul(4, 4, 4), {{}}, options), KernelError);
  options = quick();
  options.threads = 0;
  EXPECT_THROW(measure(matmul(4, 4, 4), {{}}, options), KernelError);
}

/// Of this process alone: others run the same test.
std::filesystem::path lock_path() {
  return std::filesystem::temp_directory_path() / fmt::format("syno-measure-test-{}.lock", ::getpid());
}

TEST(Measure, WaitsForTheLockOfTheMachineWhateverSignalsCome) {
  const auto path = lock_path();
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  struct sigaction interrupts{};  // no SA_RESTART: system calls end with EINTR
  interrupts.sa_handler = [](int) {};
  struct sigaction before{};
  ::sigaction(SIGALRM, &interrupts, &before);
  const itimerval often{{0, 20'000}, {0, 20'000}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  std::atomic<bool> released = false;
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::seconds(2));  // longer than a small kernel takes to compile
    released = true;
    ::close(file);
  });
  auto options = quick();
  options.lock_file = path.string();
  const auto made = measure(matmul(8, 8, 8), {{}}, options);
  EXPECT_TRUE(released);
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  holder.join();
  EXPECT_EQ(made[0].outcome, Outcome::Ok) << made[0].reason;
  std::filesystem::remove(path);
}

TEST(Measure, HoldsTheLockOfTheMachine) {
  const auto path = lock_path();
  auto options = quick();
  options.lock_file = path.string();
  EXPECT_EQ(measure(matmul(8, 8, 8), {{}}, options)[0].outcome, Outcome::Ok);
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
  options.lock_file = "/nowhere/at/all.lock";
  const auto made = measure(matmul(8, 8, 8), {{}}, options);
  EXPECT_EQ(made[0].outcome, Outcome::Ok);
  EXPECT_NE(made[0].note.find("cannot be locked"), std::string::npos);
}

TEST(Measure, NotesThatAnotherProcessHeldTheMachine) {
  const auto path = lock_path();
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  auto options = quick();
  options.lock_file = path.string();
  options.lock_wait_s = 0.05;
  EXPECT_EQ(measure(matmul(8, 8, 8), {{}}, options)[0].note, "another process was measuring");
  ::close(file);
  EXPECT_EQ(measure(matmul(8, 8, 8), {{}}, options)[0].note, "");
  std::filesystem::remove(path);
}

TEST(Measure, FollowsNoLinkToALockAndWaitsForNoPipe) {
  const std::filesystem::path path = lock_path(), target = path.string() + ".target";
  auto options = quick();
  options.lock_file = path.string();
  std::filesystem::create_symlink(target, path);
  EXPECT_NE(measure(matmul(8, 8, 8), {{}}, options)[0].note, "");
  EXPECT_FALSE(std::filesystem::exists(target));
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
  EXPECT_NE(measure(matmul(8, 8, 8), {{}}, options)[0].note, "");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace syno::tune
