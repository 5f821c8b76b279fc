// A machine model measured on the machine at hand: rates that can be, in a file that reads back.
#include "tune/measure_machine.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "jit/kernel.hpp"

namespace syno::tune {
namespace {

using machine::Machine;

TEST(Machine, IsMeasuredInSeconds) {
  const Machine machine = measure_machine(jit::host_cpu());
  EXPECT_TRUE(machine.measured);
  EXPECT_GT(machine.ghz, 0.1);
  EXPECT_GT(machine.fma_per_cycle, 0.1);
  EXPECT_LT(machine.fma_per_cycle, 16);
  EXPECT_GT(machine.fma_latency_cycles, 1);
  for (const auto& level : machine.levels) {
    EXPECT_GT(level.read_gbs, 0.05) << level.name;
    EXPECT_GT(level.write_gbs, 0.05) << level.name;
    EXPECT_GT(level.copy_gbs, 0.05) << level.name;
    EXPECT_GT(level.latency_ns, 0.1) << level.name;
    EXPECT_GT(level.usable(), 0) << level.name;
    EXPECT_LE(level.usable(), level.bytes) << level.name;
  }
  EXPECT_GE(machine.tlb.pages, 0);  // 0 where pages are large
  EXPECT_LE(machine.tlb.pages, 8192);
  EXPECT_LT(machine.tlb.walk_ns, 2000);
  EXPECT_EQ(machine::machine_from_json(to_json(machine)), machine);  // every rate is one the reader takes
}

TEST(MeasureMachine, LatencyLeavesNumbersThatAreComputedWithAtFullSpeed) {
  std::vector<float> memory(1 << 14);
  for (const std::int64_t line : {64, 128}) {
    EXPECT_GT(measure_latency(1 << 15, line, memory.data()), 0);
    for (std::size_t i = 0; i < memory.size(); ++i)
      EXPECT_TRUE(memory[i] == 0 || std::isnormal(memory[i])) << i << ": " << memory[i];
  }
}

TEST(MeasureMachine, PagesAreToldFromLines) {
  constexpr std::int64_t kPage = 4096, kBytes = std::int64_t{32} << 20;
  std::vector<float> memory(kBytes / 4);
  // As far apart as lines are: nothing to walk for.
  EXPECT_EQ(measure_tlb(kBytes / 64, 64, 64, memory.data()).pages, 0);
  EXPECT_EQ(measure_tlb(64 * kPage, kPage, 64, memory.data()).pages, 0);  // too few to tell
  const machine::Tlb tlb = measure_tlb(kBytes, kPage, 64, memory.data());
  if (tlb.pages > 0) {
    EXPECT_EQ(tlb.page_bytes, kPage);
    EXPECT_GE(tlb.pages, 256);
    EXPECT_GE(tlb.walk_ns, 1);
  }
  for (const float number : memory) ASSERT_TRUE(number == 0 || std::isnormal(number)) << number;
}

}  // namespace
}  // namespace syno::tune
