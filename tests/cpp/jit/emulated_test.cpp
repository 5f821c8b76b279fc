// Code for AArch64: what the kernel tests run on this machine, compiled for NEON and for SVE of every width
// and run under an emulator, computes what the interpreter does.
#include "emulated.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "construct/construct.hpp"
#include "elementary.hpp"
#include "program/text.hpp"
#include "random_nest.hpp"
#include "schedule/schedule.hpp"
#include "shuffled_loads.hpp"
#include "written_nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

/// A CPU that code is for, and one that has what it needs and nothing wider.
struct Emulation {
  std::string name, cpu, model;
};
void PrintTo(const Emulation& value, std::ostream* out) { *out << value.name; }

class EmulatedKernels : public ::testing::TestWithParam<Emulation> {
 protected:
  void SetUp() override {
    if (const std::string names = Emulated::missing(); !names.empty())
      GTEST_SKIP() << "needs " << names
                   << ": apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross";
    cpu_ = cpu_named(GetParam().cpu, "aarch64-linux-gnu");
    emulated_ = std::make_unique<Emulated>(GetParam().model);
  }
  void add(const LoopNest& nest, std::uint64_t seed, std::string name) {
    Random random(seed);
    EmulatedCase made;
    made.nest = nest;
    made.name = std::move(name);
    made.run = random_arguments(nest, random);
    made.reference = nest::interpret(nest, made.run.inputs);
    cases_.push_back(std::move(made));
    emulated_->add(*compiled(nest), cases_.back().run.arguments, cases_.back().name);
  }
  std::shared_ptr<Kernel> compiled(const LoopNest& nest) const {
    CompileOptions options;
    options.cpu = &cpu_;
    return compile(nest, options);
  }
  void run_and_compare() {
    emulated_->run();
    if (::testing::Test::HasFatalFailure()) return;
    for (EmulatedCase& each : cases_) {
      SCOPED_TRACE(each.name + "\n" + nest::to_text(each.nest));
      expect_results(each.nest, each.run, each.reference);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  struct EmulatedCase {
    LoopNest nest;
    std::string name;
    NestRun run;
    std::map<std::string, program::Values<double>> reference;
  };
  Cpu cpu_;
  std::unique_ptr<Emulated> emulated_;
  std::deque<EmulatedCase> cases_;
};

TEST_P(EmulatedKernels, ComputeWhatTheInterpreterDoes) {
  std::uint64_t seed = 1;
  for (const std::string dtype : {"f32", "f64", "bf16"}) {
    for (const WrittenCase& each : written_cases()) {
      if (dtype == "bf16" && (each.name == "vector_reduction" || each.name == "colliding_lanes"))
        continue;  // rounded at every step
      add(nest::parse_loop_nest(with_dtype(each, dtype)), seed++, each.name + " " + dtype);
    }
    for (const ShuffledCase& each : shuffled_cases())
      add(nest::parse_loop_nest(with_dtype(each, dtype)), seed++, each.name + " " + dtype);
  }
  run_and_compare();
}

TEST_P(EmulatedKernels, OfRandomNestsComputeWhatTheInterpreterDoes) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Dtype dtype = seed % 3 == 2 ? Dtype::F64 : seed % 6 == 1 ? Dtype::BF16 : Dtype::F32;
    add(RandomNest(7000 + seed, dtype).make(), seed, "random nest " + std::to_string(7000 + seed));
  }
  run_and_compare();
}

TEST_P(EmulatedKernels, OfSchedulesComputeWhatTheInterpreterDoes) {
  const std::pair<const char*, std::map<std::string, std::int64_t>> programs[] = {
      {"c[i,j] = sum[k] a[i,k] * b[k,j]", {{"i", 37}, {"j", 45}, {"k", 29}}},
      {"y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
       {{"n", 1}, {"o", 19}, {"c", 5}, {"h", 9}, {"w", 11}, {"r", 3}, {"s", 3}}},
      {"y[n,o,h,w] = sum[c,r,s] x[n,c,2*h+r-1,2*w+s-1] * k[o,c,r,s]",
       {{"n", 2}, {"o", 6}, {"c", 3}, {"h", 7}, {"w", 5}, {"r", 3}, {"s", 3}}},
      {"y[c,h,w] = max[r,s] x[c,2*h+r-1,2*w+s-1]", {{"c", 3}, {"h", 7}, {"w", 9}, {"r", 3}, {"s", 3}}},
      {"y[i,j] = 2 * x[j,i]", {{"i", 19}, {"j", 37}}},
      {"y[i] = exp(x[i]) / (sum[k] exp(x[k]))", {{"i", 50}, {"k", 50}}},
      {"y[i] = sum[k] a[i,k] * x[k]", {{"i", 33}, {"k", 70}}},
  };
  std::uint64_t seed = 100;
  for (const auto& [text, sizes] : programs) {
    program::ParseOptions options;
    options.sizes = {sizes.begin(), sizes.end()};
    const program::Program program = program::parse(text, options);
    for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16})
      add(schedule::apply(program, construct::default_schedule(program, dtype, cpu_.target)), seed++, text);
  }
  run_and_compare();
}

TEST_P(EmulatedKernels, OfElementaryFunctionsAreWithinTheirBounds) {
  const auto argument = [&](const LoopNest& nest, std::size_t i) {
    return Argument(nest.buffer(nest::arguments(nest)[i]));
  };
  std::deque<std::vector<Argument>> memory;
  for (const ElementaryCase& each : elementary_cases())
    for (const bool wide : {false, true}) {
      const LoopNest nest = elementary_nest(each, wide ? "f64" : "f32");
      memory.push_back({argument(nest, 0), argument(nest, 1)});
      std::int64_t i = 0;
      if (wide)
        for (const double x : elementary_points<double>(each)) memory.back()[0].set(i++, x);
      else
        for (const float x : elementary_points<float>(each))
          memory.back()[0].set(i++, static_cast<double>(x));
      emulated_->add(*compiled(nest), memory.back(), each.word);
    }
  const PowerPoints points = power_points();
  std::vector<Argument> power{argument(power_nest(), 0), argument(power_nest(), 1),
                              argument(power_nest(), 2)};
  for (std::size_t i = 0; i < points.x.size(); ++i) {
    power[0].set(static_cast<std::int64_t>(i), points.x[i]);
    power[1].set(static_cast<std::int64_t>(i), points.z[i]);
  }
  emulated_->add(*compiled(power_nest()), power, "power");
  emulated_->run();
  if (::testing::Test::HasFatalFailure()) return;
  std::vector<double> powers;
  for (std::size_t i = 0; i < points.x.size(); ++i)
    powers.push_back(power[2].get(static_cast<std::int64_t>(i)));
  EXPECT_LE(worst_power_ulps(points, powers), 2);
  std::size_t next = 0;
  const auto worst = [&]<class T>(const ElementaryCase& each, T) {
    std::vector<Argument>& pair = memory[next++];
    std::vector<T> got;
    const std::vector<T> at = elementary_points<T>(each);
    for (std::size_t i = 0; i < at.size(); ++i)
      got.push_back(static_cast<T>(pair[1].get(static_cast<std::int64_t>(i))));
    return worst_ulps(each, at, got);
  };
  for (const ElementaryCase& each : elementary_cases()) {
    EXPECT_LE(worst(each, float{}), each.float_ulps) << each.word;
    EXPECT_LE(worst(each, double{}), each.double_ulps) << each.word;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpus, EmulatedKernels,
                         ::testing::Values(Emulation{"neon", "cortex-a76", "cortex-a76"},
                                           Emulation{"sve128", "generic+sve128", "max,sve128=on"},
                                           Emulation{"sve256", "neoverse-v1", "max,sve256=on"},
                                           Emulation{"sve512", "generic+sve512", "max,sve512=on"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace syno::jit
