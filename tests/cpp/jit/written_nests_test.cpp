// Hand-written nests, one a feature of the code generator, on every CPU level and dtype.
#include "written_nests.hpp"

#include <gtest/gtest.h>

#include <bit>

#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

class WrittenNest : public ::testing::TestWithParam<WrittenCase> {};

TEST_P(WrittenNest, ComputesWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  std::uint64_t seed = 1;
  for (const std::string dtype : {"f32", "f64"})
    for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
      expect_as_interpreted(nest::parse_loop_nest(with_dtype(GetParam(), dtype)), seed++, cpu, 1);
  expect_as_interpreted(nest::parse_loop_nest(with_dtype(GetParam(), "f32")), seed++, nullptr, 3);
}

INSTANTIATE_TEST_SUITE_P(Table, WrittenNest, ::testing::ValuesIn(written_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(WrittenNestBf16, StoresHalvesAndAccumulatesInFloat) {
  // 1 + 256 * 2^-8 summed one by one stays 1 in bf16 and is 2 in f32.
  const LoopNest nest = nest::parse_loop_nest(R"(nest halves
input x: bf16[40, 256]
output y: bf16[40]
register acc: f32[40]
allocate acc
  for v in 0..40 vector
    acc[v] = 1
  for k in 0..256
    for v in 0..40 vector
      acc[v] += x[v, k]
  for v in 0..40 vector
    y[v] = acc[v]
)");
  Random random(3);
  NestRun run = random_arguments(nest, random);
  for (std::int64_t i = 0; i < 40 * 256; ++i) run.arguments[0].set(i, 0.00390625);
  compile(nest)->call(run.views(), 1);
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(run.arguments[1].get(i), 2);
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  for (const WrittenCase& value : written_cases()) {
    if (value.name == "vector_reduction" || value.name == "colliding_lanes")
      continue;  // rounded at every step
    for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
      expect_as_interpreted(nest::parse_loop_nest(with_dtype(value, "bf16")), 5, cpu);
  }
}

TEST(WrittenNestBf16, ConvertsEveryNumber) {
  const std::string vector = "for i in 0..{0} vector\n  y[i] = x[i]\n",
                    serial = "for i in 0..{0}\n  y[i] = x[i]\n",
                    masked = "for i in 0..{0} vector\n  if i in 3..{0}\n    y[i] = x[i]\n";
  std::vector<std::uint32_t> words;
  for (std::uint32_t half = 0; half < 0x10000; ++half)
    for (const std::uint32_t rest : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      if (rest == 0 || half % 7 == 0 || (half & 0x7f80) == 0 || (half & 0x7f80) == 0x7f80)
        words.push_back(half << 16 | rest);
  const auto count = static_cast<std::int64_t>(words.size());
  const auto view = [&](auto& memory) { return View{memory.data(), {count}, {1}}; };
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  for (const Cpu* cpu : {&host_cpu(), &v3, &generic})
    for (const std::string& loop : {vector, serial, masked}) {
      CompileOptions options;
      options.cpu = cpu;
      const auto made = [&](const char* from, const char* into) {
        const std::string text =
            fmt::format("nest n\ninput x: {1}[{0}]\noutput y: {2}[{0}]\n", count, from, into);
        return compile(nest::parse_loop_nest(text + fmt::format(fmt::runtime(loop), count)), options);
      };
      std::vector<std::uint16_t> narrow(words.size());
      made("f32", "bf16")->call(std::vector{view(words), view(narrow)}, 1);
      std::vector<std::uint32_t> wide(words.size());
      made("bf16", "f32")->call(std::vector{view(narrow), view(wide)}, 1);
      for (std::size_t i = loop == masked ? 3 : 0; i < words.size(); ++i) {
        ASSERT_EQ(narrow[i], to_bfloat16(std::bit_cast<float>(words[i]))) << std::hex << words[i];
        ASSERT_EQ(wide[i], std::uint32_t{narrow[i]} << 16);
      }
    }
}

TEST(WrittenNestBf16, FillsWithAllDigits) {
  const LoopNest nest = nest::parse_loop_nest(R"(nest n
input x: bf16[5]
output y: f32[20]
output z: f32[3]
for i in 0..20 vector
  y[i] = x[i - 7] {i - 7 in 0..5 else 0.1}
for i in 0..3
  z[i] = x[i - 1] {i - 1 in 0..5 else 0.1}
)");
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  for (const Cpu* cpu : {&host_cpu(), &v3, &generic}) {
    CompileOptions options;
    options.cpu = cpu;
    Random random(3);
    NestRun run = random_arguments(nest, random);
    compile(nest, options)->call(run.views(), 1);
    EXPECT_EQ(run.arguments[1].get(0), static_cast<double>(0.1f));
    EXPECT_EQ(run.arguments[1].get(8), run.arguments[0].get(1));
    EXPECT_EQ(run.arguments[1].get(19), static_cast<double>(0.1f));
    EXPECT_EQ(run.arguments[2].get(0), static_cast<double>(0.1f));
    EXPECT_EQ(run.arguments[2].get(2), run.arguments[0].get(1));
  }
}

TEST(WrittenNestCode, RegisterTilesStayInRegisters) {
  if (host_cpu().target.vector_bits < 512) GTEST_SKIP() << "needs AVX-512";
  const LoopNest nest = nest::parse_loop_nest(R"(nest gemm
input a: f32[14, 64]
input b: f32[64, 32]
output c: f32[14, 32]
register acc: f32[14, 32]
allocate acc
  for i in 0..14 unroll
    for j in 0..2 unroll
      for v in 0..16 vector
        acc[i, 16 * j + v] = 0
  for k in 0..16
    for u in 0..4 unroll
      for i in 0..14 unroll
        for j in 0..2 unroll
          for v in 0..16 vector
            acc[i, 16 * j + v] += a[i, 4 * k + u] * b[4 * k + u, 16 * j + v]
  for i in 0..14 unroll
    for j in 0..2 unroll
      for v in 0..16 vector
        c[i, 16 * j + v] = acc[i, 16 * j + v]
)");
  const auto kernel = compile(nest);
  EXPECT_EQ(kernel->report().spills, 0);
  const std::string text = kernel->assembly();
  std::size_t fused = 0;
  for (std::size_t at = 0; (at = text.find("vfmadd", at)) != std::string::npos; ++at) ++fused;
  EXPECT_EQ(fused, 4u * 14 * 2);
  EXPECT_EQ(text.find("vmulps"), std::string::npos);
  expect_as_interpreted(nest, 9);
}

}  // namespace
/// Taps read each other's elements, but where sums take nearly all registers none is left to keep them in.
TEST(WrittenNestCode, UnrolledTapsLoadAgainWhereSumsTakeTheRegisters) {
  if (host_cpu().target.vector_bits < 512) GTEST_SKIP() << "needs AVX-512";
  const LoopNest nest = nest::parse_loop_nest(R"(nest taps
input x: f32[64, 14]
input k: f32[64, 3, 32]
output y: f32[14, 32]
register acc: f32[14, 32]
allocate acc
  for i in 0..14 unroll
    for j in 0..2 unroll
      for v in 0..16 vector
        acc[i, 16 * j + v] = 0
  for c in 0..64
    for s in 0..3 unroll
      for i in 0..14 unroll
        if i + s in 1..15
          for j in 0..2 unroll
            for v in 0..16 vector
              acc[i, 16 * j + v] += x[c, i + s - 1] * k[c, s, 16 * j + v]
  for i in 0..14 unroll
    for j in 0..2 unroll
      for v in 0..16 vector
        y[i, 16 * j + v] = acc[i, 16 * j + v]
)");
  const auto kernel = compile(nest);
  EXPECT_EQ(kernel->report().spills, 0);
  const std::string text = kernel->assembly();
  std::size_t fused = 0;
  for (std::size_t at = 0; (at = text.find("vfmadd", at)) != std::string::npos; ++at) ++fused;
  EXPECT_EQ(fused, 2u * (3 * 14 - 2)) << "two taps lie outside";
  expect_as_interpreted(nest, 11);
}

/// With sixteen registers: what a tap leaves in them for the next one must not push sums out. Some of these
/// are known to be crowded by their sums, the others show it only when registers are given out.
TEST(WrittenNestCode, TapsOfEveryTileKeepTheirSumsInRegisters) {
  const Cpu v3 = cpu_named("x86-64-v3");
  struct Tile {
    int rows, vectors, stride, taps;
  };
  std::uint64_t seed = 21;
  for (const Tile& tile : {Tile{6, 2, 1, 3}, Tile{6, 2, 2, 7}, Tile{4, 3, 1, 5}, Tile{5, 2, 2, 3},
                           Tile{4, 2, 1, 3}, Tile{8, 1, 2, 7}}) {
    const int width = 8 * tile.vectors, read = tile.stride * (tile.rows - 1) + tile.taps;
    const LoopNest nest =
        nest::parse_loop_nest(fmt::format(R"(nest taps
input x: f32[64, {0}]
input k: f32[64, {1}, {2}]
output y: f32[{3}, {2}]
register acc: f32[{3}, {2}]
allocate acc
  for i in 0..{3} unroll
    for j in 0..{4} unroll
      for v in 0..8 vector
        acc[i, 8 * j + v] = 0
  for c in 0..64
    for s in 0..{1} unroll
      for i in 0..{3} unroll
        for j in 0..{4} unroll
          for v in 0..8 vector
            acc[i, 8 * j + v] += x[c, {5} * i + s] * k[c, s, 8 * j + v]
  for i in 0..{3} unroll
    for j in 0..{4} unroll
      for v in 0..8 vector
        y[i, 8 * j + v] = acc[i, 8 * j + v]
)",
                                          read, tile.taps, width, tile.rows, tile.vectors, tile.stride));
    const auto kernel = compile(nest, {.cpu = &v3});
    EXPECT_EQ(kernel->report().spills, 0) << tile.rows << "x" << tile.vectors << " stride " << tile.stride;
    expect_as_interpreted(nest, seed++, &v3, 1);
  }
}

/// Vectors that are kept on the stack while an inner loop runs cost little; those that go there in it cost
/// much.
TEST(WrittenNestCode, SpillsInTheDeepestLoopAreToldFromThoseAroundIt) {
  const Cpu v3 = cpu_named("x86-64-v3");
  const auto compiled = [&](int held, int sums) {
    return compile(nest::parse_loop_nest(fmt::format(R"(nest held
input x: f32[64, 64]
input k: f32[64, {2}]
input a: f32[64, {0}]
output y: f32[64, {1}]
output z: f32[64, {0}]
register kept: f32[{0}]
register acc: f32[{1}]
for i in 0..64
  allocate kept
    for v in 0..{0} vector
      kept[v] = a[i, v]
    allocate acc
      for v in 0..{1} vector
        acc[v] = 0
      for c in 0..64
        for v in 0..{1} vector
          acc[v] += x[i, c] * k[c, v]
      for v in 0..{1} vector
        y[i, v] = acc[v]
    for v in 0..{0} vector
      z[i, v] = kept[v]
)",
                                                     8 * held, 8 * sums, 8 * sums)),
                   {.cpu = &v3});
  };
  const auto around = compiled(14, 8)->report();
  EXPECT_GT(around.spills, 8);
  EXPECT_GT(around.hot_spills, 0);
  EXPECT_LT(around.hot_spills, 1);
  const auto within = compiled(1, 20)->report();
  EXPECT_GE(within.hot_spills, 8);
  const auto none = compiled(2, 8)->report();
  EXPECT_EQ(none.spills, 0);
  EXPECT_EQ(none.hot_spills, 0);
}

}  // namespace syno::jit
