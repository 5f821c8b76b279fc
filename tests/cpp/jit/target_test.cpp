// Targets: what is known of each CPU, and the machine code of register tiles on every architecture.
#include <gtest/gtest.h>

#include "jit/codegen.hpp"
#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

constexpr const char* kAArch64 = "aarch64-linux-gnu";

TEST(Target, KnowsTheVectorsOfEveryArchitecture) {
  const auto vectors = [](const std::string& name, const std::string& triple) {
    const TargetInfo info = cpu_named(name, triple).info;
    return std::vector<int>{info.vector_bits, info.vector_registers, info.scalable_bits};
  };
  EXPECT_EQ(vectors("generic", "x86_64-linux-gnu"), (std::vector{128, 16, 0}));
  EXPECT_EQ(vectors("x86-64-v3", "x86_64-linux-gnu"), (std::vector{256, 16, 0}));
  EXPECT_EQ(vectors("znver4", "x86_64-unknown-linux-gnu"), (std::vector{512, 32, 0}));
  EXPECT_EQ(vectors("generic", kAArch64), (std::vector{128, 32, 0}));
  EXPECT_EQ(vectors("cortex-a76", kAArch64), (std::vector{128, 32, 0}));
  EXPECT_EQ(vectors("neoverse-v1", kAArch64), (std::vector{256, 32, 256}));
  EXPECT_EQ(vectors("neoverse-n2", kAArch64), (std::vector{128, 32, 0}))
      << "SVE of 128 bits is as wide as NEON";
  EXPECT_EQ(vectors("a64fx", kAArch64), (std::vector{512, 32, 512}));
  EXPECT_EQ(vectors("generic+sve512", "aarch64-unknown-linux-musl"), (std::vector{512, 32, 512}));
}

std::string complaint(const std::string& name, const std::string& triple) {
  try {
    cpu_named(name, triple);
  } catch (const UnknownName& error) {
    return error.what();
  }
  return "none";
}

TEST(Target, NamesTheValidOnes) {
  for (const char* triple :
       {"aarch65-linux-gnu", "", "aarch64_be-linux-gnu", "aarch64-apple-darwin", "x86_64-pc-windows-msvc",
        "x86_64-linux-gnux32", "aarch64-linux-gnuu", "aarch64-linux", "riscv64-linux-gnu"}) {
    const std::string said = complaint("generic", triple);
    EXPECT_NE(said.find("aarch64-linux-gnu"), std::string::npos) << triple << ": " << said;
    EXPECT_NE(said.find("x86_64-linux-gnu"), std::string::npos) << triple << ": " << said;
  }
  EXPECT_NE(complaint("cortex-a67", kAArch64).find("cortex-a76"), std::string::npos);
  EXPECT_NE(complaint("host", kAArch64).find("generic+sve256"), std::string::npos);
  EXPECT_NE(complaint("x86-64-v3", kAArch64).find("neoverse-v1"), std::string::npos);
  EXPECT_NE(complaint("cortex-a76", "x86_64-linux-gnu").find("znver4"), std::string::npos);
}

/// One whose name this LLVM does not have would run again.
TEST(Target, LeavesOutPassesThatThereAre) {
  for (const MachineNames& row : all_machine_names())
    EXPECT_EQ(unneeded_passes_not_met(cpu_named("generic", std::string(row.triple))),
              std::vector<std::string>{})
        << row.triple;
}

TEST(Target, KernelsForAnotherArchitectureAreNotCalled) {
  const Cpu cpu = cpu_named("cortex-a76", kAArch64);
  CompileOptions options;
  options.cpu = &cpu;
  const auto kernel = compile(nest::parse_loop_nest("nest one\ninput x: f32[8]\noutput y: f32[8]\n"
                                                    "for i in 0..8 vector\n  y[i] = x[i] + 1\n"),
                              options);
  EXPECT_FALSE(kernel->cpu().here);
  EXPECT_EQ(kernel->object().substr(18, 2), std::string("\xb7\0", 2)) << "EM_AARCH64";
  EXPECT_NE(kernel->assembly().find("fadd\tv"), std::string::npos) << kernel->assembly();
  std::vector<float> x(8), y(8);
  EXPECT_THROW(kernel->call(std::vector<View>{{x.data(), {8}, {1}}, {y.data(), {8}, {1}}}, 1), KernelError);
}

/// A matrix product with a register tile of rows x columns vectors.
LoopNest tile_of(int rows, int columns, int lanes, int steps = 64) {
  const std::string text = fmt::format(R"(nest gemm
input a: f32[{0}, {4}]
input b: f32[{4}, {2}]
output c: f32[{0}, {2}]
register acc: f32[{0}, {2}]
allocate acc
  for i in 0..{0} unroll
    for j in 0..{1} unroll
      for v in 0..{3} vector
        acc[i, {3} * j + v] = 0
  for k in 0..{4}
    for i in 0..{0} unroll
      for j in 0..{1} unroll
        for v in 0..{3} vector
          acc[i, {3} * j + v] += a[i, k] * b[k, {3} * j + v]
  for i in 0..{0} unroll
    for j in 0..{1} unroll
      for v in 0..{3} vector
        c[i, {3} * j + v] = acc[i, {3} * j + v]
)",
                                       rows, columns, columns * lanes, lanes, steps);
  return nest::parse_loop_nest(text);
}

struct Tile {
  std::string cpu, triple;
  int rows, columns;
};
void PrintTo(const Tile& value, std::ostream* out) { *out << value.cpu << " " << value.rows; }

class RegisterTile : public ::testing::TestWithParam<Tile> {};

TEST_P(RegisterTile, IsMultiplyAddsAndTheLoadsTheyNeed) {
  const Tile& tile = GetParam();
  const Cpu cpu = cpu_named(tile.cpu, tile.triple);
  CompileOptions options;
  options.cpu = &cpu;
  const auto kernel = compile(tile_of(tile.rows, tile.columns, cpu.info.lanes(nest::Dtype::F32)), options);
  EXPECT_EQ(kernel->report().spills, 0) << kernel->assembly();
  const auto loops = innermost_loops(kernel->object(), cpu);
  ASSERT_EQ(loops.size(), 1u) << kernel->assembly();
  // A step multiplies every row with every vector and reads each once; where that is little, the loop takes
  // several steps at once. Around that: for either matrix a product and a sum to find the step's elements,
  // the counter, a test and a jump; SVE's loads reach 252 bytes beyond an address, so each row has one.
  const std::int64_t products = tile.rows * tile.columns, operands = tile.rows + tile.columns;
  const std::int64_t around = 2 * 2 + 3 + (cpu.info.scalable_bits > 0 ? tile.rows : 0);
  const std::int64_t steps = products > 16 ? 1 : 4;
  EXPECT_EQ(loops[0].multiply_adds, steps * products) << kernel->assembly();
  EXPECT_EQ(loops[0].stores, 0);
  EXPECT_LE(loops[0].loads, steps * operands) << kernel->assembly();
  EXPECT_LE(loops[0].instructions, steps * (products + operands) + around) << kernel->assembly();
}

TEST_P(RegisterTile, AFewStepsAreWrittenWithoutALoop) {
  const Tile& tile = GetParam();
  const Cpu cpu = cpu_named(tile.cpu, tile.triple);
  CompileOptions options;
  options.cpu = &cpu;
  const int lanes = cpu.info.lanes(nest::Dtype::F32), products = tile.rows * tile.columns;
  for (const int steps : {2, 3, 5}) {
    const auto kernel = compile(tile_of(tile.rows, tile.columns, lanes, steps), options);
    const bool whole = products <= 16 && steps * products <= 64;
    EXPECT_EQ(innermost_loops(kernel->object(), cpu).size(), whole ? 0U : 1U) << steps << kernel->assembly();
    EXPECT_EQ(kernel->report().spills, 0) << steps << kernel->assembly();
  }
}

TEST_P(RegisterTile, SpillsAreCountedWhereItDoesNotFit) {
  const Tile& tile = GetParam();
  const Cpu cpu = cpu_named(tile.cpu, tile.triple);
  CompileOptions options;
  options.cpu = &cpu;
  const int rows = cpu.info.vector_registers / tile.columns + 4;
  const auto kernel = compile(tile_of(rows, tile.columns, cpu.info.lanes(nest::Dtype::F32)), options);
  EXPECT_GT(kernel->report().spills, 0) << kernel->assembly();
}

INSTANTIATE_TEST_SUITE_P(Cpus, RegisterTile,
                         ::testing::Values(Tile{"x86-64-v3", "x86_64-linux-gnu", 6, 2},
                                           Tile{"x86-64-v4", "x86_64-linux-gnu", 14, 2},
                                           Tile{"cortex-a76", kAArch64, 8, 3},
                                           Tile{"cortex-a76", kAArch64, 14, 2},
                                           Tile{"neoverse-v1", kAArch64, 8, 3},
                                           Tile{"a64fx", kAArch64, 14, 2}),
                         [](const auto& info) {
                           std::string name = info.param.cpu + "_" + std::to_string(info.param.rows);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace syno::jit
