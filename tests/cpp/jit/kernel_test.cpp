// Kernels: checks of calls, strides, threads, forks, and the object cache on disk.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "jit/object_cache.hpp"
#include "jit/runtime.hpp"
#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;
namespace fs = std::filesystem;

LoopNest scale(std::int64_t rows = 6, std::int64_t columns = 20) {
  return nest::parse_loop_nest(
      fmt::format("nest scale\ninput x: f32[{0}, {1}]\noutput y: f32[{0}, {1}]\nfor i in 0..{0} parallel\n"
                  "  for j in 0..{1} vector\n    y[i, j] = x[i, j] * 3 + index(i)\n",
                  rows, columns));
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "no error";
}

TEST(KernelCall, RefusesWhatDoesNotFitBeforeItRuns) {
  const auto kernel = compile(scale());
  std::vector<float> x(400, 1), y(400, -5);
  const View in{x.data(), {6, 20}, {20, 1}}, out{y.data(), {6, 20}, {20, 1}};
  const auto call = [&](std::vector<View> views) { return message_of([&] { kernel->call(views, 1); }); };
  EXPECT_NE(call({in}).find("1 arrays for 2"), std::string::npos);
  EXPECT_NE(call({{x.data(), {20, 6}, {6, 1}}, out}).find("`x` has shape [20, 6]"), std::string::npos);
  EXPECT_NE(call({{nullptr, {6, 20}, {20, 1}}, out}).find("no memory"), std::string::npos);
  EXPECT_NE(call({in, {x.data(), {6, 20}, {20, 1}}}).find("shares memory"), std::string::npos);
  EXPECT_NE(call({in, {x.data() + 100, {6, 20}, {20, 1}}}).find("shares memory"), std::string::npos);
  EXPECT_NE(call({in, {y.data(), {6, 20}, {10, 1}}}).find("reaches an element twice"), std::string::npos);
  EXPECT_NE(call({{x.data(), {6, 20}, {40, 1}}, out}).find("variant_for"), std::string::npos);
  EXPECT_EQ(y, std::vector<float>(400, -5));
  EXPECT_EQ(call({in, out}), "no error");
  EXPECT_EQ(y[119], 8);
}

TEST(KernelCall, VariantsServeAnyStridesAndInterleavedViews) {
  const auto kernel = compile(scale());
  std::vector<float> both(2 * 6 * 20);
  for (std::size_t i = 0; i < both.size(); ++i) both[i] = static_cast<float>(i);
  // Even elements in, odd elements out; then rows and columns backwards.
  for (const auto& [offset, strides] :
       {std::pair<std::int64_t, std::vector<std::int64_t>>{0, {40, 2}}, {238, {-40, -2}}, {200, {-40, 2}}}) {
    std::vector<float> data = both;
    const std::vector<View> views{{data.data() + offset, {6, 20}, strides},
                                  {data.data() + 1, {6, 20}, {40, 2}}};
    const Kernel& variant = kernel->variant_for(views);
    EXPECT_EQ(&variant, &kernel->variant_for(views)) << "compiled once";
    variant.call(views, 1);
    for (std::int64_t i = 0; i < 6; ++i)
      for (std::int64_t j = 0; j < 20; ++j) {
        const auto from = static_cast<std::size_t>(offset + i * strides[0] + j * strides[1]);
        ASSERT_EQ(data[static_cast<std::size_t>(40 * i + 2 * j + 1)], both[from] * 3 + static_cast<float>(i));
      }
  }
  const std::vector<View> same{{both.data(), {6, 20}, {20, 1}}, {both.data() + 120, {6, 20}, {20, 1}}};
  EXPECT_EQ(&kernel->variant_for(same), kernel.get());
}

TEST(KernelCall, TakesZeroSizedTensors) {
  const auto kernel = compile(scale(0, 20));
  EXPECT_NO_THROW(
      kernel->call(std::vector<View>{{nullptr, {0, 20}, {20, 1}}, {nullptr, {0, 20}, {20, 1}}}, 2));
}

TEST(KernelCall, GivesTheSameBitsForAnyNumberOfThreadsAndCallers) {
  const LoopNest nest = nest::parse_loop_nest(R"(nest rows
input x: f32[67, 301]
output y: f32[67]
temporary t: f32[301]
register s: f32[16]
for i in 0..67 parallel
  allocate t
    for j in 0..301 vector
      t[j] = x[i, 300 - j] * x[i, j]
    y[i] = 0
    for j in 0..301 vector
      y[i] += t[j]
)");
  const auto kernel = compile(nest);
  Random random(1);
  NestRun run = random_arguments(nest, random);
  kernel->call(run.views(), 1);
  const std::string one = run.arguments[1].bytes();
  for (const int threads : {2, 3, 7, 64, 100}) {
    NestRun again = run;
    kernel->call(again.views(), threads);
    EXPECT_EQ(again.arguments[1].bytes(), one) << threads;
  }
  std::vector<std::thread> callers;
  std::vector<std::string> results(4);
  for (std::size_t c = 0; c < results.size(); ++c)
    callers.emplace_back([&, c] {
      NestRun mine = run;
      for (int repeat = 0; repeat < 50; ++repeat) kernel->call(mine.views(), 2);
      results[c] = mine.arguments[1].bytes();
    });
  for (std::thread& caller : callers) caller.join();
  for (const std::string& result : results) EXPECT_EQ(result, one);
}

/// Iterations of a parallel loop, in the order in which each thread took them.
struct Taken {
  std::int64_t count = 0;
  std::mutex mutex;
  std::map<void*, std::vector<std::pair<std::int64_t, std::int64_t>>> by_thread;  ///< by its memory

  static void kernel(void* const* arguments, void* /*memory*/, ParallelRunner* parallel, void* pool) {
    parallel(pool, body, arguments[0], static_cast<const Taken*>(arguments[0])->count);
  }
  static void body(void* context, std::int64_t begin, std::int64_t end, void* memory) {
    auto& taken = *static_cast<Taken*>(context);
    const std::scoped_lock lock(taken.mutex);
    taken.by_thread[memory].emplace_back(begin, end);
  }
};

TEST(KernelCall, TakesEveryIterationOnce) {
  for (const std::int64_t count : {2, 3, 7, 16, 100, 1000, 4096}) {
    for (const int threads : {2, 3, 5}) {
      Taken taken;
      taken.count = count;
      void* const arguments[] = {&taken};
      run_kernel(Taken::kernel, arguments, 0, 64, threads);
      std::vector<int> times(static_cast<std::size_t>(count), 0);
      for (const auto& [memory, chunks] : taken.by_thread) {
        for (const auto& [begin, end] : chunks) {
          ASSERT_LT(begin, end);
          ASSERT_LE(end, count);
          for (std::int64_t i = begin; i < end; ++i) ++times[static_cast<std::size_t>(i)];
        }
      }
      EXPECT_LE(taken.by_thread.size(), static_cast<std::size_t>(threads));
      EXPECT_EQ(times, std::vector<int>(static_cast<std::size_t>(count), 1)) << count << " on " << threads;
    }
  }
}

/// What an iteration asked for ahead is there for the next one, where the same thread does it: the own run
/// forwards, then what is left of others' from the end.
TEST(KernelCall, WhoIsDoneHelpsFromTheEnd) {
  const auto alone = [](void (*body)(void*), void* data, unsigned /*threads*/, unsigned /*flags*/) {
    body(data);  // a team of one, though more were wanted
  };
  run_on({alone, [] { return 0; }});
  Taken taken;
  taken.count = 64;
  void* const arguments[] = {&taken};
  run_kernel(Taken::kernel, arguments, 0, 64, 2);
  run_on({});
  ASSERT_EQ(taken.by_thread.size(), 1U);
  const auto& chunks = taken.by_thread.begin()->second;
  ASSERT_EQ(chunks.size(), 16U);
  for (std::int64_t n = 0; n < 8; ++n) {
    EXPECT_EQ(chunks[static_cast<std::size_t>(n)].first, 4 * n);
    EXPECT_EQ(chunks[static_cast<std::size_t>(n + 8)].first, 60 - 4 * n);
  }
}

TEST(KernelCall, WorksInAForkedChild) {
  const auto kernel = compile(scale(50, 40));
  std::vector<float> x(2000, 2), y(2000);
  void* pointers[] = {x.data(), y.data()};
  kernel->call_unchecked(pointers, 3);  // the parent's threads exist
  const ::pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::fill(y.begin(), y.end(), 0.f);
    kernel->call_unchecked(pointers, 3);
    bool right = y[1999] == 55;
    const auto other = compile(scale(51, 41));  // compiling works too
    std::vector<float> a(51 * 41, 1), b(51 * 41);
    void* both[] = {a.data(), b.data()};
    other->call_unchecked(both, 2);
    right = right && b[0] == 3;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/// A team that is smaller than wanted, as OpenMP may give, and counts how often it was asked for.
int teams = 0;
thread_local int member = 0;
void smaller_team(void (*body)(void*), void* data, unsigned threads, unsigned) {
  ++teams;
  std::vector<std::thread> others;
  for (int i = 1; i + 1 < static_cast<int>(threads); ++i)
    others.emplace_back([=] {
      member = i;
      body(data);
    });
  body(data);
  for (auto& other : others) other.join();
}

TEST(KernelCall, RunsOnTheTeamsOfAnotherRuntime) {
  const auto kernel = compile(scale(50, 40));
  std::vector<float> x(2000, 2), y(2000);
  void* pointers[] = {x.data(), y.data()};
  run_on({smaller_team, [] { return member; }});
  teams = 0;
  kernel->call_unchecked(pointers, 3);
  EXPECT_EQ(teams, 1);
  EXPECT_EQ(y[1999], 55);
  kernel->call_unchecked(pointers, 1);
  EXPECT_EQ(teams, 1);
  const ::pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // the runtime's threads stayed in the parent
    std::fill(y.begin(), y.end(), 0.f);
    kernel->call_unchecked(pointers, 3);
    ::_exit(y[1999] == 55 && teams == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  run_on({});
  kernel->call_unchecked(pointers, 3);
  EXPECT_EQ(teams, 1);
}

TEST(Compile, ManyThreadsMayCompileTheSameAndDropIt) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 6; ++i) {
        const auto kernel = compile(scale(3, 16 + (i + t) % 2));
        std::vector<float> x(60, 1), y(60);
        void* pointers[] = {x.data(), y.data()};
        kernel->call_unchecked(pointers, 1);
        right += y[0] == 3;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 24);
}

TEST(Compile, RefusesNestsThatDoNotVerify) {
  EXPECT_THROW(compile(nest::parse_loop_nest("nest n\noutput y: f32[2]\nfor i in 0..3\n  y[i] = 1\n")),
               ScheduleError);
}

TEST(Compile, NamesTheValidCpus) {
  try {
    cpu_named("znver44");
    FAIL();
  } catch (const UnknownName& error) {
    EXPECT_NE(std::string(error.what()).find("znver4"), std::string::npos);
  }
}

TEST(Compile, KnowsTheVectorsOfNamedCpus) {
  EXPECT_EQ(cpu_named("generic").target.vector_bits, 128);
  EXPECT_EQ(cpu_named("x86-64-v3").target.vector_bits, 256);
  EXPECT_EQ(cpu_named("x86-64-v3").target.vector_registers, 16);
  EXPECT_EQ(cpu_named("x86-64-v4").target.vector_bits, 512);
  EXPECT_EQ(cpu_named("znver4").target.vector_registers, 32);
  EXPECT_EQ(cpu_named("alderlake").target.vector_bits, 256) << "its list leaves out avx2, which others imply";
  // Vectors of multiply-adds a cycle, by the makers' optimisation guides.
  for (const auto& [name, ports] : {std::pair{"znver1", 1},
                                    {"znver3", 2},
                                    {"haswell", 2},
                                    {"skylake", 2},
                                    {"alderlake", 2},
                                    {"x86-64-v3", 2},
                                    {"znver4", 1},
                                    {"x86-64", 1}})
    EXPECT_EQ(cpu_named(name).target.fma_per_cycle, ports) << name;
  EXPECT_EQ(cpu_named("neoverse-n1", "aarch64-linux-gnu").target.fma_per_cycle, 2);
}

TEST(Compile, ShowsItsWork) {
  const auto kernel = compile(scale());
  EXPECT_NE(kernel->llvm().find("define void @" + kernel->symbol()), std::string::npos);
  EXPECT_NE(kernel->assembly().find(kernel->symbol()), std::string::npos);
  EXPECT_EQ(kernel->object().substr(1, 3), "ELF");
  EXPECT_EQ(kernel->key().size(), 32u);
  EXPECT_GT(kernel->report().code_bytes, 0);
}

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "syno-cache-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    fs::permissions(directory_, fs::perms::owner_all);
    fs::remove_all(directory_);
  }
  CompileReport compiled(std::int64_t columns = 20, const Cpu* cpu = nullptr) {
    CompileOptions options;
    options.cache_directory = directory_.string();
    options.cpu = cpu;
    const auto kernel = compile(scale(6, columns), options);
    std::vector<float> x(400, 1), y(400);
    void* pointers[] = {x.data(), y.data()};
    if (cpu == nullptr) kernel->call_unchecked(pointers, 1);
    EXPECT_TRUE(cpu != nullptr || y[0] == 3);
    return kernel->report();
  }
  std::vector<fs::path> entries() {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(directory_)) all.push_back(entry.path());
    return all;
  }
  fs::path directory_;
};

TEST_F(Cache, KeepsObjectsForTheNextProcess) {
  const CompileReport first = compiled();
  EXPECT_FALSE(first.from_cache);
  ASSERT_EQ(entries().size(), 1u);
  const CompileReport second = compiled();
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.code_bytes, first.code_bytes);
  EXPECT_FALSE(compiled(21).from_cache) << "another shape";
  const Cpu v2 = cpu_named("x86-64-v2");
  EXPECT_FALSE(compiled(20, &v2).from_cache) << "another CPU";
  EXPECT_EQ(entries().size(), 3u);
}

TEST_F(Cache, DamagedAndForeignEntriesAreMisses) {
  compiled();
  const fs::path path = entries().at(0);
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto write = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  for (std::size_t at = 0; at < good.size(); at += good.size() / 13) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    write(bad);
    EXPECT_FALSE(compiled().from_cache) << "byte " << at;
    EXPECT_TRUE(compiled().from_cache) << "it was written anew";
    write(good.substr(0, at));
    EXPECT_FALSE(compiled().from_cache) << "cut at " << at;
  }
  // A key that hashes alike but reads otherwise: the entry of another shape under this name.
  compiled(21);
  for (const fs::path& other : entries())
    if (other != path) fs::copy_file(other, path, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(compiled().from_cache);
}

TEST_F(Cache, WhateverLiesInThePlaceOfAnEntryMakesWay) {
  compiled();
  const fs::path path = entries().at(0), away = directory_ / "away";
  const std::vector<std::function<void()>> things = {
      [&] { fs::create_directories(path / "inner"); },
      [&] { fs::create_symlink(away, path); },
      [&] { fs::create_symlink(directory_, path); },
      [&] { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); },
      [&] { fs::resize_file((std::ofstream(path), path), std::uintmax_t{1} << 40); },
  };
  for (std::size_t i = 0; i < things.size(); ++i) {
    fs::remove_all(path);
    things[i]();
    EXPECT_FALSE(compiled().from_cache) << i;
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path))) << i;
    EXPECT_TRUE(compiled().from_cache) << i;
  }
  EXPECT_FALSE(fs::exists(away)) << "nothing is written through a link";
}

TEST_F(Cache, CodeOfAnotherSecretIsNotRun) {
  const CacheSecret mine{1, 2, 3}, theirs{4, 5, 6};
  set_cache_secret(theirs);
  compiled();
  std::ifstream in(entries().at(0), std::ios::binary);
  const std::string entry((std::istreambuf_iterator<char>(in)), {});
  const std::string key = entries().at(0).stem().string();
  EXPECT_EQ(entry_key(entry), key);
  EXPECT_EQ(adopt_entry(entry), entry);
  set_cache_secret(mine);
  EXPECT_EQ(entry_key(entry), "");
  EXPECT_FALSE(compiled().from_cache);
  EXPECT_TRUE(compiled().from_cache);

  const std::string adopted = adopt_entry(entry);
  EXPECT_EQ(entry_key(adopted), key);
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{40}, entry.size() - 1})
    EXPECT_EQ(adopt_entry(entry.substr(0, size)), "") << size;
}

TEST_F(Cache, AnObjectsDigestNamesItAndItsKey) {
  CompiledObject object;
  object.symbol = "s";
  object.bytes = "code";
  const std::string digest = digest_of("key", object);
  EXPECT_EQ(digest.size(), 64u);
  const ObjectCache cache(directory_.string());
  cache.put("key", object);
  EXPECT_EQ(cache.find("key")->digest, digest);
  EXPECT_NE(digest_of("another key", object), digest);
  object.bytes = "other";
  EXPECT_NE(digest_of("key", object), digest);
}

std::string warned;

TEST_F(Cache, SaysOnceThatADirectoryCannotBeWritten) {
  set_warning_handler([](const std::string& message) { warned += message + "\n"; });
  const std::string blocked = (directory_ / "file").string();
  std::ofstream(blocked) << "no directory";
  CompileOptions options;
  options.cache_directory = blocked;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(compile(scale(2, 30 + i), options)->report().from_cache);
  set_warning_handler(nullptr);
  EXPECT_NE(warned.find("cannot be written"), std::string::npos);
  EXPECT_EQ(std::count(warned.begin(), warned.end(), '\n'), 1);
}

TEST_F(Cache, ForgetsWhatWasLongestUnused) {
  const ObjectCache cache(directory_.string(), 3000);
  CompiledObject object;
  object.symbol = "s";
  object.bytes = std::string(1000, 'x');
  for (int i = 0; i < 130; ++i) {
    cache.put("key " + std::to_string(i), object);
    if (i == 63) EXPECT_TRUE(cache.find("key 63"));
  }
  EXPECT_LT(entries().size(), 70u) << "the directory is tidied every 64 entries";
  EXPECT_FALSE(cache.find("key 0"));
  EXPECT_TRUE(cache.find("key 129"));
  EXPECT_EQ(cache.find("key 129")->bytes, object.bytes);
}

TEST_F(Cache, CodeThatLivesIsKeptWhenSomebodyAsks) {
  const auto live = compile(scale(3, 40), {});
  EXPECT_TRUE(entries().empty()) << "nobody named a cache";
  CompileOptions options;
  options.cache_directory = directory_.string();
  EXPECT_TRUE(compile(scale(3, 40), options)->report().from_cache) << "it lives";
  ASSERT_EQ(entries().size(), 1u);
  EXPECT_EQ(entries().at(0).stem().string(), live->key());
  const auto written = fs::last_write_time(entries().at(0));
  compile(scale(3, 40), options);
  EXPECT_EQ(fs::last_write_time(entries().at(0)), written) << "it lies there";
}

TEST_F(Cache, FreshKernelsNeitherReadNorWriteIt) {
  CompileOptions options;
  options.cache_directory = directory_.string();
  options.fresh = true;
  const auto a = compile(scale(), options), b = compile(scale(), options);
  EXPECT_FALSE(b->report().from_cache);
  EXPECT_NE(a->symbol(), b->symbol());
  EXPECT_TRUE(entries().empty());
}

}  // namespace
}  // namespace syno::jit
