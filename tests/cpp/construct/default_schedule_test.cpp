// The default schedule keeps the meaning of every program, and has the shape that fast kernels have.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "program/builders.hpp"
#include "schedule/decisions.hpp"
#include "schedule/fixture.hpp"
#include "schedule/schedule.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

class EveryDefault : public ::testing::TestWithParam<Template> {};

TEST_P(EveryDefault, KeepsTheMeaning) {
  Random random(31);
  for (int trial = 0; trial < 12; ++trial) {
    const auto p = instance(GetParam(), random);
    for (const Target target : {Target{}, Target{256, 16, 2}, Target{128, 16, 1}}) {
      constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::BF16};
      const Schedule schedule = default_schedule(p, kDtypes[trial % 3], target);
      const LoopNest nest = apply(p, schedule);
      ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
      expect_same(p, nest, random_arguments(p, random), to_text(schedule));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryDefault, KeepsTheMeaningWithConstantsPrepacked) {
  Random random(47);
  for (int trial = 0; trial < 6; ++trial) {
    const auto p = instance(GetParam(), random);
    std::vector<std::string> constants;
    for (const auto id : p.inputs())
      if (random.below(2)) constants.push_back(p.tensor(id).name);
    const Schedule schedule = default_schedule(p, Dtype::F32, Target{}, constants);
    const Arguments arguments = random_arguments(p, random);
    expect_same(p, apply(p, schedule), arguments, to_text(schedule));
    if (const auto parts = apply_prepacked(p, schedule))
      expect_same_prepacked(p, *parts, arguments, to_text(schedule));
    if (HasFatalFailure()) return;
  }
}

/// Strides of memory in which the dimensions lie in another order, apart, repeated or backwards.
std::vector<std::int64_t> random_strides(const std::vector<std::int64_t>& extents, bool written,
                                         Random& random) {
  std::vector<std::size_t> order(extents.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  for (std::size_t d = order.size(); d-- > 1;) std::swap(order[d], order[random.below(d + 1)]);
  std::vector<std::int64_t> strides(extents.size());
  std::int64_t reach = 1;
  for (const std::size_t d : order) {
    reach += draw(random, 0, 1) * draw(random, 0, 7);
    strides[d] = random.below(5) == 0 ? -reach : !written && random.below(6) == 0 ? 0 : reach;
    reach *= extents[d];
  }
  return strides;
}

TEST_P(EveryDefault, KeepsTheMeaningOfStridedArguments) {
  Random random(53);
  for (int trial = 0; trial < 12; ++trial) {
    const auto p = instance(GetParam(), random);
    Strides strides;
    const auto lie_anyhow = [&](program::TensorId id, bool written) {
      strides[p.tensor(id).name] = random_strides(program::shape_of(p, id), written, random);
    };
    for (const auto id : p.inputs())
      if (random.below(4)) lie_anyhow(id, false);
    for (const auto id : p.outputs)
      if (random.below(2)) lie_anyhow(id, true);
    const Target target = trial % 2 ? Target{} : Target{256, 16, 2};
    const Schedule schedule = construct(p, Dtype::F32, target, fewest_cycles, {}, strides);
    EXPECT_EQ(parse_schedule(to_text(schedule)), schedule);
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
    for (const BufferId id : arguments(nest)) {
      const Buffer& buffer = nest.buffer(id);
      const auto found = strides.find(buffer.name);
      EXPECT_EQ(buffer.strides, found == strides.end() ? row_major_strides(buffer.extents) : found->second);
    }
    expect_same(p, nest, random_arguments(p, random), to_text(schedule));
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryDefault, DependsOnProgramAndTargetOnly) {
  Random random(37);
  const auto p = instance(GetParam(), random);
  EXPECT_EQ(default_schedule(p, Dtype::F32, Target{}), default_schedule(p, Dtype::F32, Target{}));
}

INSTANTIATE_TEST_SUITE_P(Programs, EveryDefault, ::testing::ValuesIn(templates()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Every builder, with odd attributes.
std::vector<std::pair<std::string, program::Program>> built(Random& random) {
  using namespace program;
  std::vector<std::pair<std::string, Program>> all;
  const auto few = [&](std::int64_t least, std::int64_t most) { return draw(random, least, most); };
  for (std::size_t rank = 1; rank <= 3; ++rank) {
    ConvAttributes a;
    a.batch = few(1, 2);
    a.groups = few(1, 3);
    a.in_channels = a.groups * few(1, 2);
    a.out_channels = a.groups * few(1, 3);
    a.bias = few(0, 1) == 1;
    for (std::size_t d = 0; d < rank; ++d) {
      a.kernel.push_back(few(1, 3));
      a.stride.push_back(few(1, 2));
      a.dilation.push_back(few(1, 2));
      a.pad_begin.push_back(few(0, 2));
      a.pad_end.push_back(few(0, 2));
      a.in_size.push_back(few(5, rank == 3 ? 6 : 11));
    }
    all.emplace_back(fmt::format("conv{}d", rank), conv(a));
    if (rank == 3) continue;
    a.output_padding.assign(rank, 0);
    for (std::size_t d = 0; d < rank; ++d)
      a.pad_begin[d] = a.pad_end[d] = std::min(a.pad_begin[d], (a.kernel[d] - 1) * a.dilation[d]);
    all.emplace_back(fmt::format("conv_transposed{}d", rank), conv_transposed(a));
    PoolAttributes pools;
    pools.batch = few(1, 2);
    pools.channels = few(1, 5);
    pools.in_size = a.in_size;
    pools.kernel.assign(rank, few(2, 3));
    pools.stride.assign(rank, few(1, 2));
    pools.pad_begin = pools.pad_end = std::vector<std::int64_t>(rank, 1);
    pools.count_include_pad = few(0, 1) == 1;
    all.emplace_back("max_pool", pool(Pool::Max, pools));
    all.emplace_back("average_pool", pool(Pool::Average, pools));
  }
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      all.emplace_back("matmul", matmul(few(1, 9), few(1, 20), few(1, 33), {few(1, 2)}, a, b));
  all.emplace_back("g2bmm", g2bmm(few(1, 2), few(4, 9), few(1, 5), few(1, 3), few(1, 2)));
  all.emplace_back("softmax_rows", softmax({few(1, 4), few(1, 37)}, 1));
  all.emplace_back("softmax_columns", softmax({few(1, 9), few(1, 21)}, 0));
  all.emplace_back("layer_norm", layer_norm({few(1, 4), few(1, 37)}, 1, 1e-5, true));
  all.emplace_back("gelu", elementwise(Function::Gelu, {few(1, 4), few(1, 37)}));
  all.emplace_back("add", elementwise(Function::Add, {few(2, 4), few(1, 37)}, {1}));
  return all;
}

TEST(DefaultSchedule, KeepsTheMeaningOfEveryBuilder) {
  Random random(41);
  for (int trial = 0; trial < 4; ++trial)
    for (const auto& [name, p] : built(random)) {
      const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
      const LoopNest nest = apply(p, schedule);
      ASSERT_NO_THROW(verify(nest)) << name << to_text(schedule) << to_text(nest);
      expect_same(p, nest, random_arguments(p, random), name + "\n" + to_text(schedule));
      if (HasFatalFailure()) return;
    }
}

TEST(DefaultSchedule, PrepacksConstantWeightsAndReadsThemOnlyThere) {
  const auto p =
      program::parse("y[m,n] = sum[k] x[m,k] * w[n,k]", {.sizes = {{"m", 96}, {"n", 80}, {"k", 70}}});
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{}, {"w"});
  const auto parts = apply_prepacked(p, schedule);
  ASSERT_TRUE(parts.has_value()) << to_text(schedule);
  for (const auto& buffer : parts->call.buffers) EXPECT_NE(buffer.name, "w");
  Random random(3);
  expect_same_prepacked(p, *parts, random_arguments(p, random), to_text(schedule));
  EXPECT_FALSE(apply_prepacked(p, default_schedule(p, Dtype::F32, Target{})).has_value());
  EXPECT_THROW(default_schedule(p, Dtype::F32, Target{}, {"y"}), ScheduleError);
  EXPECT_THROW(default_schedule(p, Dtype::F32, Target{}, {"v"}), Error);
}

TEST(DefaultSchedule, TransposedOperandsAreTurnedOnce) {
  // Where b lies along k, nothing reads its columns one by one: blocks of it are transposed.
  const auto p =
      program::parse("y[m,n] = sum[k] a[m,k] * b[k,n]", {.sizes = {{"m", 64}, {"n", 80}, {"k", 96}}});
  const auto transposes = [&](const Strides& strides) {
    const Schedule made = construct(p, Dtype::F32, Target{}, fewest_cycles, {}, strides);
    return std::count_if(made.trace.begin(), made.trace.end(),
                         [](const Decision& decision) { return decision.name == "transpose"; });
  };
  EXPECT_EQ(transposes({}), 0);
  EXPECT_EQ(transposes({{"b", {1, 100}}}), 1);
}

TEST(DefaultSchedule, StridesThatAreNoArgumentsAreRefused) {
  const auto p = program::parse("t[i: 8] = x[i] + x[i]; y[i: 8] = sum[k: 8] t[k] * x[i]");
  for (const auto& [name, numbers] :
       {std::pair<std::string, std::vector<std::int64_t>>{"t", {2}}, {"x", {1, 8}}})
    EXPECT_THROW(construct(p, Dtype::F32, Target{}, fewest_cycles, {}, {{name, numbers}}), ScheduleError)
        << name;
  EXPECT_THROW(construct(p, Dtype::F32, Target{}, fewest_cycles, {}, {{"q", {1}}}), Error);
}

/// The loops of a nest that run innermost in a reduction: what time is spent in.
TEST(DefaultSchedule, DenseKernelsKeepRegistersFullAndGuardsOut) {
  struct DefaultCase {
    const char* text;
    std::map<std::string, std::int64_t, std::less<>> sizes;
  };
  const DefaultCase cases[] = {
      {"y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
       {{"o", 64}, {"h", 56}, {"w", 56}, {"c", 64}, {"r", 3}, {"s", 3}}},
      {"y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
       {{"o", 512}, {"h", 7}, {"w", 7}, {"c", 512}, {"r", 3}, {"s", 3}}},
      {"y[o,h,w] = sum[c] x[c,h,w] * k[o,c]", {{"o", 128}, {"h", 28}, {"w", 28}, {"c", 128}}},
      {"y[o,h,w] = sum[c,r,s] x[c,2*h+r-3,2*w+s-3] * k[o,c,r,s]",
       {{"o", 64}, {"h", 112}, {"w", 112}, {"c", 3}, {"r", 7}, {"s", 7}}},
      {"d[o,c,r,s] = sum[h,w] x[c,h+r-1,w+s-1] * g[o,h,w]",
       {{"o", 128}, {"h", 28}, {"w", 28}, {"c", 128}, {"r", 3}, {"s", 3}}},
      {"y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", 512}, {"n", 512}, {"k", 512}}},
  };
  for (const auto& test : cases) {
    const auto p = program::parse(test.text, {.sizes = test.sizes});
    const LoopNest nest = apply(p, default_schedule(p, Dtype::F32, Target{}));
    bool found = false;
    std::int64_t largest = 0;
    for (const auto& buffer : nest.buffers)
      if (buffer.kind == BufferKind::Register) {
        std::int64_t elements = 1;
        for (const auto extent : buffer.extents) elements *= extent;
        EXPECT_LE(elements, 30 * 16) << test.text;
        largest = std::max(largest, elements);
      }
    EXPECT_GE(largest, 12 * 16) << test.text
                                << ": too few accumulators to hide the latency of a multiply-add";
    for (const auto& statement : nest.statements) {
      if (statement.kind != StatementKind::Store || statement.mode != StoreMode::Add) continue;
      found = true;
      const Value& product = nest.value(statement.value);
      ASSERT_EQ(product.kind, ValueKind::Binary);
      for (const ValueId operand : {product.a, product.b}) {
        ASSERT_EQ(nest.value(operand).kind, ValueKind::Load);
        EXPECT_TRUE(nest.value(operand).guards.empty()) << test.text << "\n" << to_text(nest);
      }
    }
    EXPECT_TRUE(found) << test.text;
  }
}

/// Dimensions of one element hide nothing: what lies together beside them still fills vectors.
TEST(DefaultSchedule, SeesPastDimensionsOfOneElement) {
  Random random(5);
  for (const char* text :
       {"y[m: 70,n: 1] = sum[k: 30] a[k,m] * b[n,k]", "y[m: 70,n: 1] = max(0, a[m]) + b[m]",
        "y[m: 9,n: 1,o: 20] = a[m,o] * b[m,n,o] + c[m]", "y[n: 1,m: 70,o: 1] = sum[k: 30] a[k,m] * b[k]"}) {
    const auto p = program::parse(text);
    const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
    const LoopNest nest = apply(p, schedule);
    expect_same(p, nest, random_arguments(p, random), to_text(schedule));
    EXPECT_TRUE(std::any_of(nest.statements.begin(), nest.statements.end(), [](const Statement& s) {
      return s.loop == LoopKind::Vector;
    })) << to_text(nest);
    EXPECT_TRUE(std::none_of(nest.buffers.begin(), nest.buffers.end(), [](const Buffer& b) {
      return b.kind == BufferKind::Temporary;
    })) << to_text(nest);
  }
}

/// (s+1)/2 is s/2 + (s%2+1)/2 with the first part 0: that is known before any loop of the copied piece is.
TEST(DefaultSchedule, IsReplayedWithTheCopiesItWasConstructedWith) {
  Random random(6);
  const auto p = program::parse(
      "input x[16,6,6]; weight k[16,2,64]\n"
      "y[c: 64, w: 6, h: 6] = sum[d: 16, s: 2, q: 2] x[d, h+6*q-(s+1)/2, (w+5)%6] * k[d, (s+1)%2, c]\n"
      "return y");
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  expect_same(p, apply(p, schedule), random_arguments(p, random), to_text(schedule));
}

bool decides(const Schedule& schedule, std::string_view name, std::string_view scope) {
  return std::any_of(schedule.trace.begin(), schedule.trace.end(),
                     [&](const Decision& d) { return d.name == name && d.scope == scope; });
}

// Its entries are known once the sum over them is unrolled.
TEST(DefaultSchedule, UnrollsSumsWithAConstantMatrix) {
  const std::string sum = "t[p: 4,w: 20,c: 32] = sum[a: 4] {}[p,a] * x[a,w,c]\n";
  const auto schedule = [&](const std::string& before, const char* matrix) {
    const auto p = program::parse(before + fmt::format(fmt::runtime(sum), matrix) + "return t");
    return default_schedule(p, Dtype::F32, Target{});
  };
  const std::string known = "constant B[4, 4] = {1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1}\n";
  EXPECT_TRUE(decides(schedule(known, "B"), "unroll", "t"));
  EXPECT_FALSE(decides(schedule("", "b"), "unroll", "t"));
}

// A short sum keeps its lanes where its operands have them; a long one is worth reading them across.
TEST(DefaultSchedule, CopiesShortSumsThatLieTurned) {
  const auto schedule = [](int terms, const char* copied) {
    const auto p = program::parse(fmt::format(
        "t[h: 24,w: 24,o: 32] = sum[c: {}] x[c,h,w,o] * k[c,h]\ny[o: 32,h: 24,w: 24] = {}\nreturn y", terms,
        copied));
    return default_schedule(p, Dtype::F32, Target{});
  };
  EXPECT_FALSE(decides(schedule(6, "t[h,w,o]"), "epilogue", "y"));
  EXPECT_TRUE(decides(schedule(64, "t[h,w,o]"), "epilogue", "y"));
  EXPECT_TRUE(decides(schedule(6, "relu(t[h,w,o])"), "epilogue", "y"));  // more than a copy
}

}  // namespace
}  // namespace syno::construct
