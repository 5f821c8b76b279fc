// Machine files round-trip and are read strictly; what is measured is what such a machine can be.
#include "machine/machine.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "jit/kernel.hpp"
#include "support/error.hpp"

namespace syno::machine {
namespace {

TEST(Machine, FileRoundTrips) {
  const Machine machine = describe_machine(jit::host_cpu());
  EXPECT_EQ(machine_from_json(to_json(machine)), machine);
  EXPECT_EQ(machine_from_json(nlohmann::json::parse(to_json(machine).dump())), machine);
}

TEST(Machine, DescriptionHasCachesAndMemory) {
  const Machine machine = describe_machine(jit::host_cpu());
  ASSERT_GE(machine.levels.size(), 2u);
  EXPECT_EQ(machine.levels.back().name, "memory");
  for (std::size_t l = 1; l < machine.levels.size(); ++l)
    EXPECT_GT(machine.levels[l].bytes, machine.levels[l - 1].bytes);
  EXPECT_EQ(machine.level_of(1), 0u);
  EXPECT_EQ(machine.level_of(1e18), machine.levels.size() - 1);
  EXPECT_EQ(machine.target(3).threads, 3);
  EXPECT_EQ(machine.target(1).l1_bytes, machine.levels[0].bytes);
}

TEST(Machine, PortsAreWholeWhateverUsedTheCoreBesideIt) {
  for (const auto& [measured, pipes] : {std::pair{0.3, 0.5},
                                        {0.5, 0.5},
                                        {0.7, 1.0},
                                        {0.98, 1.0},
                                        {1.05, 1.0},
                                        {1.47, 2.0},
                                        {1.6, 2.0},
                                        {2.02, 2.0},
                                        {2.12, 2.0},
                                        {2.5, 3.0},
                                        {4.0, 4.0}})
    EXPECT_EQ(whole_pipes(measured), pipes) << measured;
  Machine machine = describe_machine(jit::host_cpu());
  machine.fma_per_cycle = 1.47;
  EXPECT_EQ(machine.target(1).fma_per_cycle, 2) << "schedules are made for the core";
  EXPECT_DOUBLE_EQ(machine.peak_gflops(4), 4.0 * static_cast<double>(machine.lanes(4)) * machine.ghz);
  EXPECT_EQ(machine_from_json(to_json(machine)).fma_per_cycle, 1.47) << "the file keeps what was measured";
}

TEST(Machine, ACpuHasThePortsItIsKnownToHave) {
  Machine machine = describe_machine(jit::cpu_named("x86-64-v3"));
  EXPECT_EQ(machine.fma_ports, 2);
  machine.measured = true;
  // Half of the rate looks like whole ports, too: another thread of the core had the other half.
  for (const double reached : {0.5, 0.98, 1.5}) {
    machine.fma_per_cycle = reached;
    EXPECT_EQ(machine.fma_pipes(), 2) << reached;
    EXPECT_TRUE(machine.disturbed()) << reached;
    EXPECT_EQ(machine_from_json(to_json(machine)), machine);
  }
  machine.fma_per_cycle = 1.93;
  EXPECT_FALSE(machine.disturbed());
  machine.fma_per_cycle = 3.9;  // more than is known
  EXPECT_EQ(machine.fma_pipes(), 4);
  EXPECT_FALSE(machine.disturbed());
  // Some Xeons have one unit for 512-bit vectors, some two.
  EXPECT_EQ(describe_machine(jit::cpu_named("skylake-avx512")).fma_ports, 0);
}

TEST(Machine, CachesAreTypicallyAsWideAsWhatMultiplies) {
  const auto described = [](const char* cpu) { return describe_machine(jit::cpu_named(cpu)); };
  // LLVM 19 takes Zen 4, whose 512-bit instructions are two of 256, for Zen 5.
  EXPECT_EQ(described("znver4").fma_per_cycle, 1);
  EXPECT_EQ(described("znver5").fma_per_cycle, 2);
  EXPECT_EQ(described("x86-64-v3").fma_per_cycle, 2);
  const auto bytes = [&](const char* cpu, std::size_t level) {
    const Machine machine = described(cpu);
    return level < machine.levels.size() ? machine.levels[level].read_gbs / machine.ghz : 0;
  };
  EXPECT_DOUBLE_EQ(bytes("x86-64-v3", 0), 64);
  EXPECT_DOUBLE_EQ(bytes("znver4", 0), 64);
  EXPECT_DOUBLE_EQ(bytes("znver5", 0), 128);
  EXPECT_DOUBLE_EQ(bytes("znver5", 1), 2 * bytes("znver4", 1));
  EXPECT_DOUBLE_EQ(bytes("znver5", 2), bytes("znver4", 2));
}

TEST(Machine, BytesTakeWhatReadingWritingAndCopyingTake) {
  MemoryLevel level;
  level.read_gbs = 10, level.write_gbs = 2, level.copy_gbs = 4;
  EXPECT_DOUBLE_EQ(level.seconds(5e9, 0), 0.5);
  EXPECT_DOUBLE_EQ(level.seconds(0, 5e9), 2.5);
  EXPECT_DOUBLE_EQ(level.seconds(2e9, 2e9), 1);
  EXPECT_DOUBLE_EQ(level.seconds(7e9, 2e9), 1.5);
  EXPECT_DOUBLE_EQ(level.seconds(2e9, 4e9), 2);
}

TEST(Machine, FilesOfMachinesWhoseCopiesWereNotMeasuredAreRead) {
  nlohmann::json json = to_json(describe_machine(jit::host_cpu()));
  json["levels"][0]["read_gbs"] = 6.0, json["levels"][0]["write_gbs"] = 3.0;
  json["levels"][0].erase("copy_gbs");
  EXPECT_DOUBLE_EQ(machine_from_json(json).levels[0].copy_gbs, 4) << "one after the other";
  json["levels"][0]["copy_gbs"] = 0;
  EXPECT_THROW(machine_from_json(json), FormatError);
}

TEST(Machine, FilesWithoutCyclesOfAccessesHaveTypicalOnes) {
  Machine machine = describe_machine(jit::host_cpu());
  machine.access_cycles.broadcast = 0.25, machine.access_cycles.masked = 3;
  nlohmann::json json = to_json(machine);
  EXPECT_EQ(machine_from_json(json), machine);
  json["access_cycles"].erase("masked");
  EXPECT_EQ(machine_from_json(json).access_cycles.masked, AccessCycles{}.masked);
  json.erase("access_cycles");
  EXPECT_EQ(machine_from_json(json).access_cycles, AccessCycles{});
  EXPECT_EQ(machine.target(1).broadcast_cycles, 0.25);
}

struct Damage {
  const char* name;
  const char* patch;  ///< JSON merge patch of a good file
  const char* path;   ///< what the sentence names
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class DamagedMachine : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedMachine, IsRefusedByPath) {
  nlohmann::json json = to_json(describe_machine(jit::host_cpu()));
  json.merge_patch(nlohmann::json::parse(GetParam().patch));
  try {
    machine_from_json(json);
    FAIL() << "was accepted";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().path), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, DamagedMachine,
    ::testing::Values(
        Damage{"other_format", R"({"format": "a list"})", "/format"},
        Damage{"newer", R"({"version": 99})", "newer"},
        Damage{"missing", R"({"cores": null})", "/cores is missing"},
        Damage{"unknown", R"({"gpus": 1})", "/gpus is unknown"}, Damage{"type", R"({"ghz": "fast"})", "/ghz"},
        Damage{"zero", R"({"fma_per_cycle": 0})", "/fma_per_cycle"},
        Damage{"negative", R"({"cores": -1})", "/cores"},
        Damage{"huge", R"({"cores": 18446744073709551615})", "/cores"},
        Damage{"odd_vector", R"({"vector_bits": 96})", "/vector_bits"},
        Damage{"unknown_access", R"({"access_cycles": {"halved": 1}})", "/access_cycles/halved is unknown"},
        Damage{"access_for_nothing", R"({"access_cycles": {"masked": 0}})", "/access_cycles/masked"},
        Damage{"no_accesses", R"({"access_cycles": 1})", "/access_cycles"},
        Damage{"no_pages", R"({"tlb": {"pages": 0}})", "/tlb/pages is 0"},
        Damage{"no_walk", R"({"tlb": {"pages": 64, "page_bytes": 4096}})", "/tlb/walk_ns is missing"},
        Damage{"unknown_tlb",
               R"({"tlb": {"pages": 64, "page_bytes": 4096, "walk_ns": 1,
                                                      "ways": 4}})",
               "/tlb/ways is unknown"},
        Damage{"no_levels", R"({"levels": []})", "/levels"},
        Damage{"level_type", R"({"levels": [1, 2]})", "/levels/0"}),
    [](const auto& info) { return info.param.name; });

TEST(Machine, WhatIsUsableOfACacheIsKeptAndNeverMoreThanTheCache) {
  Machine machine = describe_machine(jit::host_cpu());
  machine.levels[0].usable_bytes = machine.levels[0].bytes / 2;
  EXPECT_EQ(machine_from_json(to_json(machine)), machine);
  nlohmann::json json = to_json(machine);
  json["levels"][0]["usable_bytes"] = machine.levels[0].bytes + 1;
  EXPECT_THROW(machine_from_json(json), FormatError);
}

TEST(Machine, WhatIsKnownOfPagesIsKept) {
  Machine machine = describe_machine(jit::host_cpu());
  EXPECT_EQ(to_json(machine).count("tlb"), 0);
  machine.tlb = {1536, 4096, 12.5};
  EXPECT_EQ(machine_from_json(to_json(machine)), machine);
  EXPECT_NE(to_text(machine).find("1536 pages of 4 KiB, walk 12.5 ns"), std::string::npos);
}

TEST(Machine, LevelsMustGrow) {
  nlohmann::json json = to_json(describe_machine(jit::host_cpu()));
  json["levels"][1]["bytes"] = json["levels"][0]["bytes"];
  EXPECT_THROW(machine_from_json(json), FormatError);
}

}  // namespace
}  // namespace syno::machine
