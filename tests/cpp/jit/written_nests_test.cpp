// Hand-written nests, one a feature of the code generator, on every CPU level and dtype.
#include <gtest/gtest.h>

#include <bit>

#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

struct Case {
  std::string name, text;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"scalar", "input a: T[]\noutput y: T[]\ny[] = a[] * a[] + 2\n"},
      {"elementwise_tail", R"(input x: T[37]
input z: T[37]
output y: T[37]
for i in 0..37 vector
  y[i] = x[i] * z[i] + 1
)"},
      {"long_vector_loop", R"(input x: T[523]
output y: T[523]
for i in 0..523 vector
  y[i] = max(x[i], 0.25) - 1
)"},
      {"masked_tail_by_if", R"(input x: T[100]
output y: T[100]
for i in 0..7
  for v in 0..16 vector
    if 16 * i + v in 0..100
      y[16 * i + v] = x[16 * i + v]
      y[16 * i + v] += x[99 - 16 * i - v]
)"},
      {"guards_without_reading_outside", R"(input x: T[5, 7]
output y: T[9, 11]
for i in 0..9
  for j in 0..11 vector
    y[i, j] = x[i - 2, j - 2] {i - 2 in 0..5, j - 2 in 0..7 else -1} + x[0, i] {i in 0..7 else 3}
)"},
      {"fills", R"(input x: T[5]
output y: T[20]
output z: T[20]
for i in 0..20 vector
  y[i] = x[i - 7] {i - 7 in 0..5 else -inf}
  z[i] = x[2] {i in 3..4 else 0.5}
)"},
      {"strides", R"(input x: T[200]
output y: T[19]
output z: T[200]
for i in 0..19 vector
  y[i] = x[2 * i] + x[3 * i + 1] * x[4 * i + 2] - x[7 * i] + x[60 - 2 * i] + x[20 - i]
for i in 0..200
  z[i] = 0
for i in 0..19 vector
  z[5 * i + 1] = x[i]
  z[5 * i + 1] += x[i + 1]
)"},
      {"quotients_and_remainders", R"(input x: T[6, 10]
output y: T[60]
output z: T[64]
for i in 0..60 vector
  y[i] = x[i / 10, i % 10]
for f in 0..8
  for v in 0..8 vector
    z[8 * f + v] = x[(f - 4) % 6, (v - 9) % 10] + index((f - 5) / 3 + (v - 4) / 2) + index(8 * f + v)
)"},
      {"negative_quotients_of_serial_loops", R"(input x: T[50]
output y: T[40]
for i in 0..40
  y[i] = x[(i - 20) / 3 + 7] * x[(i - 20) % 7] + x[(i - 20) / 4 + 5] - x[(i - 20) % 8]
)"},
      {"register_tile", R"(input a: T[13, 21]
input b: T[21, 50]
output c: T[13, 50]
register acc: T[4, 32]
for i in 0..4
  for j in 0..2
    allocate acc
      for r in 0..4 unroll
        for q in 0..2 unroll
          for v in 0..16 vector
            acc[r, 16 * q + v] = 0
      for k in 0..21
        for r in 0..4 unroll
          for q in 0..2 unroll
            for v in 0..16 vector
              acc[r, 16 * q + v] += a[4 * i + r, k] {4 * i + r in 0..13 else 0} * b[k, 32 * j + 16 * q + v] {32 * j + 16 * q + v in 0..50 else 0}
      for r in 0..4 unroll
        if 4 * i + r in 0..13
          for q in 0..2 unroll
            for v in 0..16 vector
              if 32 * j + 16 * q + v in 0..50
                c[4 * i + r, 32 * j + 16 * q + v] = acc[r, 16 * q + v]
)"},
      {"register_tile_of_odd_width", R"(input a: T[3, 9]
input b: T[9, 23]
output c: T[3, 23]
register acc: T[3, 23]
allocate acc
  for r in 0..3 unroll
    for v in 0..23 vector
      acc[r, v] = a[r, 0] * b[0, v]
  for k in 1..9
    for r in 0..3 unroll
      for v in 0..23 vector
        acc[r, v] += a[r, k] * b[k, v]
  for r in 0..3 unroll
    for v in 0..23 vector
      c[r, v] = acc[r, v]
)"},
      {"register_lanes_in_the_first_dimension", R"(input x: T[16, 5]
output y: T[5, 16]
register t: T[16, 5]
allocate t
  for j in 0..5 unroll
    for v in 0..16 vector
      t[v, j] = x[v, j]
  for j in 0..5 unroll
    for v in 0..16 vector
      y[j, v] = t[v, j] + t[v, 4 - j] * t[15 - v, j] + t[3, j]
)"},
      {"register_transposed_by_lanes", R"(input x: T[8, 8]
output y: T[8, 8]
register t: T[8, 8]
allocate t
  for i in 0..8 unroll
    for v in 0..8 vector
      t[i, v] = x[i, v]
  for i in 0..8 unroll
    for v in 0..8 vector
      y[i, v] = t[v, i]
)"},
      {"register_of_each_lane", R"(input x: T[20, 7]
output y: T[20]
register s: T[2]
for v in 0..20 vector
  allocate s
    s[0] = 0
    s[1] = -inf
    for k in 0..7
      s[0] += x[v, k]
      if k in 1..6
        s[1] max= x[v, k]
    y[v] = s[0] * s[1]
)"},
      {"register_of_a_loop_that_may_be_empty", R"(input x: T[6]
output y: T[6]
register s: T[1]
for i in 0..6
  allocate s
    s[0] = 1
    for k in 2..i
      s[0] += x[k]
    y[i] = s[0]
)"},
      {"vector_reduction", R"(input x: T[9, 45]
output sum: T[9]
output most: T[9]
output least: T[9]
output product: T[9]
for i in 0..9
  sum[i] = 0
  most[i] = -inf
  least[i] = inf
  product[i] = 1
  for v in 0..45 vector
    sum[i] += x[i, v]
    most[i] max= x[i, v]
    least[i] min= x[i, v]
    product[i] *= x[i, v] + 1
)"},
      {"vector_reduction_into_registers", R"(input x: T[70]
output y: T[1]
register part: T[16]
register s: T[1]
allocate part
  for v in 0..16 vector
    part[v] = 0
  for i in 0..5
    for v in 0..16 vector
      part[v] += x[16 * i + v] {16 * i + v in 0..70 else 0}
  allocate s
    s[0] = 0
    for v in 0..16 vector
      s[0] += part[v]
    y[0] = s[0]
)"},
      {"colliding_lanes", R"(input x: T[32]
output y: T[9]
output z: T[3]
for i in 0..9
  y[i] = 0
  z[i / 3] = -1
for v in 0..32 vector
  if v in 3..30
    y[v / 4] += x[v]
  z[v % 3] max= x[v]
)"},
      {"if_with_registers", R"(input x: T[30]
output y: T[30]
register s: T[1]
allocate s
  s[0] = 0
  for i in 0..30
    if i in 5..20, i % 3 in 1..3
      s[0] += x[i]
    y[i] = s[0]
)"},
      {"if_that_no_lane_may_enter", R"(input x: T[3]
output y: T[64]
for i in 0..4
  for v in 0..16 vector
    y[16 * i + v] = 0
    if 16 * i + v in 20..23
      y[16 * i + v] = x[16 * i + v - 20] + x[0]
)"},
      {"loops_inside_vector", R"(input x: T[40, 6]
output y: T[40]
for v in 0..40 vector
  y[v] = 0
  for k in 0..6
    y[v] += x[v, k]
)"},
      {"loop_bounds_of_the_lane_stay_scalar", R"(input x: T[12]
output y: T[12]
for v in 0..12 vector
  y[v] = 0
  for k in 0..v
    y[v] += x[k]
)"},
      {"temporary_of_a_vector_iteration", R"(input x: T[12]
output y: T[12]
temporary t: T[2]
for v in 0..12 vector
  allocate t
    t[0] = x[v]
    t[1] = t[0] * 2
    y[v] = t[1] + t[0]
)"},
      {"triangular_loops", R"(input x: T[10]
output y: T[10]
for i in 0..10
  y[i] = 0
  for j in i..2 * i - 3
    y[i] += x[j % 10]
)"},
      {"temporaries_share_memory", R"(input x: T[30]
output y: T[30]
temporary p: T[30]
temporary q: T[30]
temporary r: T[30]
allocate p
  for i in 0..30
    p[i] = x[29 - i]
  allocate q
    for i in 0..30
      q[i] = p[i] * 2
    for i in 0..30
      y[i] = q[i] - p[i]
  allocate r
    for i in 0..30 vector
      r[i] = p[29 - i]
    for i in 0..30
      y[i] += r[i]
)"},
      {"one_temporary_twice", R"(input x: T[8]
output y: T[8]
temporary p: T[3]
temporary t: T[8]
allocate t
  for i in 0..8
    t[i] = x[i]
  for i in 0..8
    y[i] = t[i]
allocate p
  p[0] = x[0]
  allocate t
    for i in 0..8
      t[i] = x[i] * 3
    for i in 0..8
      y[i] += t[i] + p[0]
)"},
      {"stores_are_seen_by_later_loads", R"(input x: T[16]
output y: T[16]
for i in 0..16 vector
  y[i] = x[i]
for i in 0..16 vector
  y[i] = y[i] + y[i] * x[i]
  y[i] += y[i]
for i in 1..16
  y[i] += y[i - 1]
)"},
      {"constants", R"(input x: T[2, 3]
output y: T[2]
constant k: T[3] = {1, -2.5, 0.125}
for i in 0..2
  y[i] = 0
  for j in 0..3
    y[i] += x[i, j] * k[j]
)"},
      {"convolution_3x3", R"(input x: T[3, 9, 10]
input k: T[5, 3, 3, 3]
output y: T[5, 9, 10]
register acc: T[5, 10]
for h in 0..9
  allocate acc
    for o in 0..5 unroll
      for w in 0..10 vector
        acc[o, w] = 0
    for c in 0..3
      for r in 0..3
        for q in 0..3
          for o in 0..5 unroll
            for w in 0..10 vector
              acc[o, w] += x[c, h + r - 1, w + q - 1] {h + r - 1 in 0..9, w + q - 1 in 0..10 else 0} * k[o, c, r, q]
    for o in 0..5 unroll
      for w in 0..10 vector
        y[o, h, w] = acc[o, w]
)"},
      {"strided_arguments", R"(input x: T[6, 20] strides[1, 9]
input z: T[6, 20] strides[-40, -2]
input s: T[6, 20] strides[0, 1]
output y: T[6, 20] strides[50, 2]
for i in 0..6
  for j in 0..20 vector
    y[i, j] = x[i, j] * z[i, j] + s[i, j]
)"},
      {"parallel_with_private_memory", R"(input x: T[33, 20]
output y: T[33, 20]
temporary whole: T[33]
temporary row: T[20]
allocate whole
  for i in 0..33
    whole[i] = x[i, 3]
  for g in 0..2
    for i in 0..33 parallel
      allocate row
        for j in 0..20 vector
          row[j] = x[i, j] * whole[i]
        for j in 0..20 vector
          y[i, j] = row[19 - j] + index(g)
)"},
      {"parallel_in_parallel", R"(input x: T[7, 9]
output y: T[7, 9]
for i in 0..7 parallel
  for j in 0..9 parallel
    y[i, j] = x[6 - i, 8 - j]
)"},
      {"parallel_over_runtime_bounds", R"(input x: T[20]
output y: T[20]
for i in 0..20
  y[i] = 0
for o in 0..4
  for i in 3 * o..4 * o + 2 parallel
    y[i] += x[i] * index(o + i)
)"},
      {"zero_extent", R"(input x: T[0, 4]
output y: T[4]
for j in 0..4 vector
  y[j] = 5
  for i in 0..0
    y[j] += x[i, j]
)"},
      {"select_and_logic", R"(input x: T[40]
output y: T[40]
for i in 0..40 vector
  y[i] = select(and(less(x[i], 0.5), or(less_equal(-0.5, x[i]), equal(x[i], 0))), x[i], select(not_equal(x[i], x[0]), -x[i] * 2, 7))
)"},
      {"not_a_number_spreads_through_max", R"(input x: T[40]
output y: T[40]
output m: T[1]
m[0] = -inf
for i in 0..40 vector
  y[i] = max(x[i] / 0 - x[i] / 0, x[i]) + min(1, x[i]) + relu(x[i] * inf * 0)
for i in 0..40 vector
  m[0] max= select(less(0.9, x[i]), 0 / (x[i] - x[i]), x[i])
)"},
  };
  return all;
}

std::string with_dtype(const Case& value, const std::string& dtype) {
  std::string text = "nest " + value.name + "\n" + value.text;
  for (std::size_t at = 0; (at = text.find(": T[", at)) != std::string::npos;) text.replace(at + 2, 1, dtype);
  // A minus in front of a name is written as a function.
  for (std::size_t at = 0; (at = text.find("-x[i] * 2", at)) != std::string::npos;)
    text.replace(at, 9, "negate(x[i]) * 2");
  return text;
}

class WrittenNest : public testing::TestWithParam<Case> {};

TEST_P(WrittenNest, ComputesWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  std::uint64_t seed = 1;
  for (const std::string dtype : {"f32", "f64"})
    for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
      expect_as_interpreted(nest::parse_loop_nest(with_dtype(GetParam(), dtype)), seed++, cpu, 1);
  expect_as_interpreted(nest::parse_loop_nest(with_dtype(GetParam(), "f32")), seed++, nullptr, 3);
}

INSTANTIATE_TEST_SUITE_P(Table, WrittenNest, testing::ValuesIn(cases()),
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
  for (const Case& value : cases()) {
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

}  // namespace syno::jit
