// Predictions against a simulated cache and exact counts, and what must not depend on how a nest is written.
#include "machine/predict.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <unordered_map>

#include "construct/construct.hpp"
#include "jit/kernel.hpp"
#include "machine/features.hpp"
#include "machine/nest_facts.hpp"
#include "machine/tile_cost.hpp"
#include "program/text.hpp"
#include "schedule/schedule.hpp"
#include "support/random.hpp"

namespace syno::machine {
namespace {

using nest::LoopNest;

/// A machine nobody has: small caches, so that small nests overflow them.
Machine small_machine() {
  Machine machine;
  machine.name = "small";
  machine.vector_bits = 512;
  machine.levels = {{"L1", 4 << 10, 1, 64, 0, 1, 200, 100},
                    {"L2", 32 << 10, 1, 64, 0, 5, 100, 100},
                    {"memory", 1 << 30, 1, 64, 0, 100, 20, 20}};
  return machine;
}

/// Lines moved into a fully associative cache with least-recently-used replacement, the nest run twice; the
/// second run counts.
class Simulation {
 public:
  Simulation(const LoopNest& nest, std::int64_t bytes)
      : nest_(nest), capacity_(static_cast<std::size_t>(bytes / 64)) {
    std::int64_t at = 0;
    for (const auto& buffer : nest.buffers) {
      base_.push_back(at);
      std::int64_t count = 1;
      for (const auto extent : buffer.extents) count *= extent;
      at += (count * 4 + 127) / 64 * 64;
    }
  }
  double moved_lines() {
    std::vector<std::int64_t> env(nest_.next_slot, 0);
    run(nest_.root, env);
    misses_ = 0;
    run(nest_.root, env);
    return misses_;
  }

 private:
  std::int64_t number(symbolic::ExprId e, const std::vector<std::int64_t>& env) const {
    return *symbolic::evaluate(nest_.arena, e, symbolic::Sizes(), 0, env);
  }
  void touch(nest::BufferId id, const std::vector<symbolic::ExprId>& indices,
             const std::vector<std::int64_t>& env) {
    const auto& buffer = nest_.buffer(id);
    if (buffer.kind == nest::BufferKind::Register) return;
    std::int64_t address = 0;
    for (std::size_t d = 0; d < indices.size(); ++d) address += number(indices[d], env) * buffer.strides[d];
    const std::int64_t line = (base_[static_cast<std::size_t>(id)] + address * 4) / 64;
    if (const auto found = where_.find(line); found != where_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return;
    }
    misses_ += 1;
    order_.push_front(line);
    where_[line] = order_.begin();
    if (order_.size() > capacity_) {
      where_.erase(order_.back());
      order_.pop_back();
    }
  }
  void loads(nest::ValueId id, const std::vector<std::int64_t>& env) {
    const auto& v = nest_.value(id);
    switch (v.kind) {
      case nest::ValueKind::Load:
        for (const auto& guard : v.guards) {
          const std::int64_t at = number(guard.expr, env);
          if (at < guard.begin || at >= guard.end) return;
        }
        touch(v.buffer, v.indices, env);
        return;
      case nest::ValueKind::Select:
        loads(v.c, env);
        [[fallthrough]];
      case nest::ValueKind::Binary:
        loads(v.b, env);
        [[fallthrough]];
      case nest::ValueKind::Unary:
        loads(v.a, env);
        return;
      default:
        return;
    }
  }
  void run(nest::StatementId id, std::vector<std::int64_t>& env) {
    const auto& s = nest_.statement(id);
    if (s.kind == nest::StatementKind::For) {
      for (std::int64_t i = number(s.begin, env), end = number(s.end, env); i < end; ++i) {
        env[s.slot] = i;
        for (const auto child : s.children) run(child, env);
      }
      return;
    }
    for (const auto& condition : s.conditions) {
      const std::int64_t at = number(condition.expr, env);
      if (at < condition.begin || at >= condition.end) return;
    }
    if (s.kind == nest::StatementKind::Store) {
      loads(s.value, env);
      touch(s.buffer, s.indices, env);
    }
    for (const auto child : s.children) run(child, env);
  }

  const LoopNest& nest_;
  std::size_t capacity_;
  std::vector<std::int64_t> base_;
  std::list<std::int64_t> order_;
  std::unordered_map<std::int64_t, std::list<std::int64_t>::iterator> where_;
  double misses_ = 0;
};

program::Program parsed(const char* text, std::map<std::string, std::int64_t> sizes) {
  program::ParseOptions options;
  for (const auto& [name, value] : sizes) options.sizes.emplace(name, value);
  return program::parse(text, options);
}

struct Traffic {
  const char* name;
  const char* text;
  std::map<std::string, std::int64_t> sizes;
  const char* schedule;
};
void PrintTo(const Traffic& t, std::ostream* out) { *out << t.name; }

class PredictedTraffic : public ::testing::TestWithParam<Traffic> {};

TEST_P(PredictedTraffic, IsCloseToASimulatedCache) {
  const auto p = parsed(GetParam().text, GetParam().sizes);
  const LoopNest nest =
      schedule::apply(p, schedule::parse_schedule(std::string("schedule f32\n") + GetParam().schedule));
  const Machine machine = small_machine();
  const Prediction made = predict(nest, machine);
  double nearer = 0;  // bytes that farther levels give are brought into all nearer ones
  for (std::size_t l = machine.levels.size() - 1; l > 0; --l) {
    nearer += made.moved_bytes[l];
    const double wanted = Simulation(nest, machine.levels[l - 1].bytes).moved_lines() * 64;
    EXPECT_LE(nearer, wanted * 2 + 4096) << machine.levels[l - 1].name;
    EXPECT_GE(nearer * 2 + 4096, wanted) << machine.levels[l - 1].name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, PredictedTraffic,
    ::testing::Values(
        Traffic{"copy", "y[i,j] = x[i,j]", {{"i", 64}, {"j", 128}}, ""},
        Traffic{"copy_that_stays", "y[i,j] = x[i,j]", {{"i", 16}, {"j", 16}}, ""},
        Traffic{"transpose", "y[j,i] = x[i,j]", {{"i", 64}, {"j", 96}}, ""},
        Traffic{"plain_matmul", "y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", 40}, {"n", 80}, {"k", 64}}, ""},
        Traffic{"reordered_matmul",
                "y[m,n] = sum[k] a[m,k] * b[k,n]",
                {{"m", 32}, {"n", 80}, {"k", 64}},
                "reorder y loops=m,k,n"},
        Traffic{"blocked_matmul",
                "y[m,n] = sum[k] a[m,k] * b[k,n]",
                {{"m", 96}, {"n", 96}, {"k", 64}},
                "split y loops=n numbers=16\nsplit y loops=m numbers=16\n"
                "reorder y loops=n_o,m_o,k,m_i,n_i"},
        Traffic{"tiled_matmul",
                "y[m,n] = sum[k] a[m,k] * b[k,n]",
                {{"m", 48}, {"n", 64}, {"k", 80}},
                "split y loops=m numbers=6\nsplit y loops=n numbers=32\nsplit y loops=n_i numbers=16\n"
                "reorder y loops=n_o,m_o,k,m_i,n_i_o,n_i_i\nvectorize y loops=n_i_i\n"
                "register_tile y loops=m_i,n_i_o,n_i_i"},
        Traffic{"conv",
                "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
                {{"o", 8}, {"h", 16}, {"w", 16}, {"c", 8}, {"r", 3}, {"s", 3}},
                ""},
        Traffic{"two_scopes", "t[i,j] = exp(x[i,j]); y[i,j] = t[i,j] * x[i,j]", {{"i", 80}, {"j", 64}}, ""},
        Traffic{"two_scopes_joined",
                "t[i,j] = exp(x[i,j]); y[i,j] = t[i,j] * x[i,j]",
                {{"i", 80}, {"j", 64}},
                "compute_at t tensor=y loops=i"}),
    [](const auto& info) { return info.param.name; });

TEST(Predict, CountsEveryOperationOfAMatrixProduct) {
  Random random(5);
  for (int trial = 0; trial < 30; ++trial) {
    const auto draw = [&](std::uint64_t most) { return static_cast<std::int64_t>(1 + random.below(most)); };
    const std::int64_t m = draw(70), n = draw(70), k = draw(40);
    const auto p = parsed("y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", m}, {"n", n}, {"k", k}});
    const LoopNest plain = schedule::apply(p, {});
    EXPECT_DOUBLE_EQ(predict(plain, small_machine()).flops, static_cast<double>(2 * m * n * k));
    // A schedule may compute dead results beside them, but not fewer.
    const LoopNest fast = schedule::apply(p, construct::default_schedule(p, nest::Dtype::F32, {}));
    EXPECT_GE(predict(fast, small_machine()).flops, static_cast<double>(2 * m * n * k) * 0.999);
  }
}

TEST(Predict, IsWithinTheMachine) {
  const Machine machine = describe_machine(jit::host_cpu());
  for (const std::int64_t size : {1, 7, 64, 500}) {
    const auto p = parsed("y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", size}, {"n", size}, {"k", size}});
    const LoopNest nest =
        schedule::apply(p, construct::default_schedule(p, nest::Dtype::F32, machine.target(1)));
    const Prediction warm = predict(nest, machine), cold = predict(nest, machine, {1, true}),
                     two = predict(nest, machine, {2, false});
    EXPECT_GT(warm.seconds, 0);
    EXPECT_LE(warm.fraction_of_peak, 1.0001);
    EXPECT_GE(cold.seconds, warm.seconds * 0.999999) << size;
    if (size == 500) {
      EXPECT_LT(two.seconds, warm.seconds);
      EXPECT_EQ(warm.bottleneck, "multiply-adds");
    }
    EXPECT_FALSE(warm.bottleneck.empty());
  }
}

/// A vector has half as many lanes of twice the size; bfloat16 is computed in float32.
TEST(Predict, CountsLanesOfTheTypeComputedIn) {
  const Machine machine = describe_machine(jit::cpu_named("x86-64-v3"));
  const auto p = parsed("y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", 384}, {"n", 384}, {"k", 384}});
  const auto made = [&](nest::Dtype dtype) {
    return predict(schedule::apply(p, construct::default_schedule(p, dtype, machine.target(1))), machine);
  };
  const Prediction f32 = made(nest::Dtype::F32), f64 = made(nest::Dtype::F64), bf16 = made(nest::Dtype::BF16);
  EXPECT_NEAR(f64.compute_s / f32.compute_s, 2, 0.1);
  EXPECT_GE(bf16.compute_s, f32.compute_s);  // and the conversions
  for (const Prediction& each : {f32, f64, bf16}) EXPECT_LE(each.fraction_of_peak, 1);
  EXPECT_GT(f64.fraction_of_peak, 0.5);
}

TEST(Predict, KnowsWhatLimitsANest) {
  const Machine machine = describe_machine(jit::host_cpu());
  const auto limited = [&](const char* text, std::map<std::string, std::int64_t> sizes) {
    const auto p = parsed(text, std::move(sizes));
    return predict(schedule::apply(p, construct::default_schedule(p, nest::Dtype::F32, machine.target(1))),
                   machine)
        .bottleneck;
  };
  EXPECT_EQ(limited("y[i] = x[i] + 1", {{"i", 1 << 26}}), "memory");
  EXPECT_EQ(limited("y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", 256}, {"n", 256}, {"k", 256}}),
            "multiply-adds");
}

TEST(Predict, LoopsThatRunNeverTakeNoTime) {
  // As the interior of a range at its least sizes: what they would read begins streams and pieces of no
  // lines.
  const auto rows = [](const char* never) {
    return nest::parse_loop_nest(
        fmt::format("nest rows\ninput x: f32[64, 4096]\noutput y: f32[64, 4096]\n"
                    "for i in 0..64\n{}"
                    "  for j in 0..16 vector\n    y[i, j] = x[i, j]\n",
                    never));
  };
  const LoopNest with = rows(
      "  for k in 1..1\n    for j in 0..16 vector\n      y[i, 16 * k + j] = x[i, 16 * k + j]\n"
      "  for l in 0..0\n    for k in 0..4\n      for j in 0..16 vector\n"
      "        y[i, 64 * l + 16 * k + j] = x[i, 2 * k + 64 * l + j]\n");
  for (const bool cold : {false, true})
    EXPECT_EQ(predict(with, small_machine(), {1, cold}).seconds,
              predict(rows(""), small_machine(), {1, cold}).seconds);
}

/// The quotient and the remainder of one index take their values together, not each with each of the other.
TEST(Predict, RowsOfSeveralLinesAreReadOnceEach) {
  const LoopNest nest = nest::parse_loop_nest(
      "nest rows\ninput x: f32[8, 7]\ninput k: f32[6, 16]\noutput y: f32[14, 16]\nregister t: f32[14, 16]\n"
      "allocate t\n"
      "  for i in 0..14 unroll\n    for l in 0..16 vector\n      t[i, l] = 0\n"
      "  for c in 0..6\n    for i in 0..14 unroll\n      for l in 0..16 vector\n"
      "        t[i, l] += x[c + i / 7, i % 7] * k[c, l]\n"
      "  for i in 0..14 unroll\n    for l in 0..16 vector\n      y[i, l] = t[i, l]\n");
  verify(nest);
  double scalars = 0;
  for (const NestNode& node : facts_of(nest, 64).nodes) scalars = std::max(scalars, node.work.scalar_loads);
  EXPECT_EQ(scalars, 14);
}

TEST(Predict, OneSumWaitsForItself) {
  // The same additions in one chain and in four.
  const auto nest = [](int chains) {
    return nest::parse_loop_nest(fmt::format(
        "nest sum\ninput x: f32[4096]\noutput y: f32[{0}, 16]\nregister t: f32[{0}, 16]\nallocate t\n"
        "  for c in 0..{0} unroll\n    for l in 0..16 vector\n      t[c, l] = 0\n  for i in 0..{1}\n"
        "    for c in 0..{0} unroll\n      for l in 0..16 vector\n        t[c, l] += x[{2} * i + (16 * c + "
        "l)]\n"
        "  for c in 0..{0} unroll\n    for l in 0..16 vector\n      y[c, l] = t[c, l]\n",
        chains, 256 / chains, 16 * chains));
  };
  const Machine machine = describe_machine(jit::cpu_named("x86-64-v4"));
  const Prediction one = predict(nest(1), machine), four = predict(nest(4), machine);
  EXPECT_EQ(one.bottleneck, "latency of sums");
  EXPECT_GT(one.seconds, 2 * four.seconds);
}

double feature(const LoopNest& nest, const Machine& machine, std::string_view name) {
  const auto at = std::find(feature_names().begin(), feature_names().end(), name) - feature_names().begin();
  return std::exp2(features_of(predict(nest, machine)).at(static_cast<std::size_t>(at))) - 1;
}

/// As many lines come from the second cache, one behind the other, some further on or each on a page of its
/// own: only the last are waited for.
TEST(Predict, ShortPiecesOfTheSecondCacheAreWaitedFor) {
  const int kRows = 256;  // of a line each: four times the first cache
  const auto nest = [kRows](int apart) {
    return nest::parse_loop_nest(
        fmt::format("nest rows\ninput x: f32[{}]\noutput y: f32[16]\nregister t: f32[16]\nallocate t\n"
                    "  for l in 0..16 vector\n    t[l] = 0\n  for i in 0..{}\n    for l in 0..16 vector\n"
                    "      t[l] += x[{} * i + l]\n  for l in 0..16 vector\n    y[l] = t[l]\n",
                    apart * kRows, kRows, apart));
  };
  Machine machine = small_machine();
  machine.levels[1].bytes = 8 << 20;
  machine.levels[1].latency_ns = 0;
  machine.fma_latency_cycles = 0;
  machine.access_cycles.near_piece = 20;  // nothing takes longer than waiting for pieces
  const Prediction together = predict(nest(16), machine), far = predict(nest(1040), machine);
  EXPECT_LT(together.waiting_s, 0.01 * far.waiting_s);  // for the result's one line
  EXPECT_NEAR(far.waiting_s, machine.access_cycles.near_piece * kRows * 1e-9 / machine.ghz,
              0.02 * far.waiting_s);
  EXPECT_NEAR(far.seconds - together.seconds, far.waiting_s, 0.1 * far.waiting_s);
  EXPECT_EQ(far.bottleneck, "short pieces");
  EXPECT_EQ(predict(nest(256), machine).waiting_s, together.waiting_s);
  EXPECT_EQ(predict(nest(1040), machine, {1, true}).waiting_s, far.waiting_s);  // wherever they lie beyond it
  // What takes longer than all that is moved hides none of it.
  machine.fma_latency_cycles = 1000;
  EXPECT_NEAR(predict(nest(1040), machine).seconds - predict(nest(16), machine).seconds, far.waiting_s,
              0.1 * far.waiting_s);
  machine.levels[0].bytes = 1 << 20;
  EXPECT_EQ(predict(nest(1040), machine).waiting_s, 0);  // what the first cache holds is not brought at all
}

/// Rows that the taps of a window share are loaded once, masked or not; a mask is computed once for all of
/// them.
TEST(Predict, MaskedWindowsLoadSharedRowsOnce) {
  const auto nest = [](const char* guard) {
    return nest::parse_loop_nest(
        fmt::format("nest window\ninput x: f32[32, 64]\ninput k: f32[5, 5]\noutput y: f32[4, 16]\nregister "
                    "t: f32[4, 16]\n"
                    "allocate t\n  for h in 0..4 unroll\n    for l in 0..16 vector\n      t[h, l] = 0\n"
                    "  for s in 0..5\n    for r in 0..5 unroll\n      for h in 0..4 unroll\n        for l in "
                    "0..16 vector\n"
                    "          t[h, l] += x[r + h, s + l]{} * k[r, s]\n"
                    "  for h in 0..4 unroll\n    for l in 0..16 vector\n      y[h, l] = t[h, l]\n",
                    guard));
  };
  Machine machine = small_machine();
  machine.ghz = 1;
  machine.levels[0].read_gbs = 64;
  const double plain = feature(nest(""), machine, "loads"),
               masked = feature(nest(" {s + l in 0..18 else 0}"), machine, "loads");
  // Eight rows that may cross lines and five scalars a step; the mask moves with s.
  EXPECT_GE(plain, 5 * (8 + 5 * 0.5) - 1e-6);
  EXPECT_LE(plain, 5 * (8 * 2 + 5 * 0.5));
  EXPECT_NEAR(masked - plain, 5, 1e-6);
}

/// Accesses that are no plain vector cost what the machine says, each of them.
struct AccessKind {
  const char* name;
  double AccessCycles::* cycles;
  const char* read;     ///< what is added to t[l] in step i of 32, lanes l of 16
  const char* written;  ///< where it is put in the end
  const char* feature;
  double count;
};
void PrintTo(const AccessKind& kind, std::ostream* out) { *out << kind.name; }
class EveryAccess : public ::testing::TestWithParam<AccessKind> {};

TEST_P(EveryAccess, CostsWhatTheMachineSays) {
  const AccessKind& kind = GetParam();
  const std::string written = kind.written;
  const auto nest = nest::parse_loop_nest(fmt::format(
      "nest access\ninput x: f32[64, 512]\noutput y: f32[32, 512]\nregister t: f32[{0}]\nfor i in 0..32\n"
      "  allocate t\n    for l in 0..{0} vector\n      t[l] = {1}\n    for l in 0..{0} vector\n      {2} = "
      "t[l]\n",
      written == "narrow" ? 8 : 16, kind.read, written == "narrow" ? "y[i, l]" : written));
  Machine machine = small_machine();
  const double before = feature(nest, machine, kind.feature);
  machine.access_cycles.*kind.cycles += 0.75;
  EXPECT_NEAR(feature(nest, machine, kind.feature) - before, 0.75 * kind.count, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Table, EveryAccess,
    ::testing::Values(
        AccessKind{"broadcast", &AccessCycles::broadcast, "x[i, 3]", "y[i, l]", "loads", 32},
        AccessKind{"unaligned", &AccessCycles::unaligned, "x[i, l + 1]", "y[i, l]", "loads", 32},
        AccessKind{"aligned", &AccessCycles::unaligned, "x[i, l + 16]", "y[i, l]", "loads", 0},
        AccessKind{"picked", &AccessCycles::picked, "x[i, 2 * l]", "y[i, l]", "loads", 32},
        AccessKind{"gathered", &AccessCycles::gathered, "x[l, i]", "y[i, l]", "loads", 32 * 16},
        AccessKind{"scattered", &AccessCycles::scattered, "x[i, l]", "y[l, i]", "stores", 32 * 16},
        AccessKind{"narrow", &AccessCycles::narrow_store, "x[i, l]", "narrow", "stores", 32},
        AccessKind{"whole", &AccessCycles::narrow_store, "x[i, l]", "y[i, l]", "stores", 0},
        AccessKind{"masked", &AccessCycles::masked, "x[i, l] {i + l in 0..40 else 0}", "y[i, l]", "loads",
                   32},
        AccessKind{"maximum", &AccessCycles::maximum, "max(x[i, l], x[i + 1, l])", "y[i, l]", "multiply_adds",
                   32},
        AccessKind{"relu", &AccessCycles::maximum, "max(x[i, l], 0)", "y[i, l]", "multiply_adds", 0},
        AccessKind{"known", &AccessCycles::masked, "x[i, l] {l in 0..9 else 0}", "y[i, l]", "loads", 0}),
    [](const auto& info) { return info.param.name; });

/// Four rows of four are one vector where code knows it; where a call says how long rows are, each element
/// has its own address.
TEST(Predict, LanesAlongAStrideThatACallBringsAreGathered) {
  const auto loads = [](const char* extent, const char* parameter, const char* guard) {
    const auto nest = nest::parse_loop_nest(
        fmt::format("nest rows\n{1}input x: f32[8, 4, {0}]\noutput y: f32[8, 16]\nfor c in 0..8\n"
                    "  for l in 0..16 vector\n    y[c, l] = x[c, l / 4, l % 4]{2}\n",
                    extent, parameter, guard));
    return feature(nest.parameters.empty() ? nest : specialised(nest, {4}), small_machine(), "loads");
  };
  const char* const guard = " {l % 4 - n in -4..0 else 0}";
  const double gathered = small_machine().access_cycles.gathered;
  EXPECT_LT(loads("4", "", ""), 8 * 4);
  EXPECT_GE(loads("n", "parameter n in 3..5\n", guard), 8 * 16 * gathered);
  EXPECT_LT(loads("4", "parameter n in 3..5\n", ""), 8 * 4) << "a parameter that no extent follows";
}

/// A mask that the innermost loop does not move is computed before it.
TEST(Predict, MasksMoveOutOfALoop) {
  const auto loads = [](const char* guard) {
    return feature(nest::parse_loop_nest(fmt::format(
                       "nest rows\ninput x: f32[8, 64]\noutput y: f32[16]\nregister t: f32[16]\nallocate t\n"
                       "  for l in 0..16 vector\n    t[l] = 0\n  for i in 0..3\n    for j in 0..8\n"
                       "      for l in 0..16 vector\n        t[l] += x[j, 16 * i + l]{}\n"
                       "  for l in 0..16 vector\n    y[l] = t[l]\n",
                       guard)),
                   small_machine(), "loads");
  };
  EXPECT_LT(loads(" {16 * i + l in 0..40 else 0}") - loads(""), 0.5 * 24);
  EXPECT_NEAR(loads(" {j + l in 0..18 else 0}") - loads(""), 24, 1e-6);
}

/// Sixteen vectors that are folded together take less than four that are folded one by one.
TEST(Predict, LanesOfSeveralResultsAreFoldedTogether) {
  const auto cycles = [](int results) {
    return feature(
        nest::parse_loop_nest(fmt::format(
            "nest fold\ninput x: f32[{0}, 16]\noutput y: f32[{0}]\nregister t: f32[{0}]\nallocate t\n"
            "  for i in 0..{0} unroll\n    for l in 0..16 vector\n      t[i] += x[i, l]\n"
            "  for i in 0..{0} unroll\n    y[i] = t[i]\n",
            results)),
        small_machine(), "multiply_adds");
  };
  EXPECT_NEAR(cycles(1), 1 + 4, 1e-6);  // half of the lanes, four times
  EXPECT_NEAR(cycles(16), 16 + 15, 1e-6);
  EXPECT_NEAR(cycles(4), 4 + 3 + 2, 1e-6);
}

/// Where one block waits for its stores, the next one multiplies already; never more than the core has ports.
TEST(Predict, PartsThatFollowEachOtherOverlap) {
  const auto cycles = [](int stores, int sums) {
    const std::string zero = "  for r in 0..8 unroll\n    for l in 0..16 vector\n      t[r, l] = 0\n";
    std::string text =
        "nest parts\ninput x: f32[16]\noutput y: f32[64, 16]\noutput z: f32[64, 8, 16]\nregister t: f32[8, "
        "16]\nfor i in 0..64\n";
    if (stores > 0)
      text +=
          fmt::format("  for r in 0..{} unroll\n    for l in 0..16 vector\n      z[i, r, l] = 1\n", stores);
    text += "  allocate t\n  " + zero.substr(0, 22) + "\n      for l in 0..16 vector\n        t[r, l] = 0\n";
    for (int s = 0; s < sums; ++s)
      text += "    for r in 0..8 unroll\n      for l in 0..16 vector\n        t[r, l] += x[l] * 2\n";
    text += "    for l in 0..16 vector\n      y[i, l] = t[0, l]\n";
    return feature(nest::parse_loop_nest(text), small_machine(), "cycles");
  };
  const double both = cycles(8, 3), one = cycles(0, 3), other = cycles(8, 0);
  EXPECT_LT(both, one + other);
  EXPECT_GE(both, std::max(one, other));
}

/// What takes long and does not change in the innermost loop is computed before it.
TEST(Predict, CountsWhatMovesOutOfALoopOnce) {
  const auto nest = [](const char* factor) {
    return nest::parse_loop_nest(fmt::format(
        "nest scale\ninput x: f32[8, 1024]\ninput v: f32[8]\ninput w: f32[1024]\noutput y: f32[8, 1024]\n"
        "for i in 0..8\n  for j in 0..64\n    for l in 0..16 vector\n"
        "      y[i, 16 * j + l] = x[i, 16 * j + l] * {}\n",
        factor));
  };
  const Machine machine = describe_machine(jit::cpu_named("x86-64-v3"));
  const double product = feature(nest("v[i]"), machine, "multiply_adds");
  EXPECT_NEAR(feature(nest("rsqrt(v[i])"), machine, "multiply_adds"), product, 1e-6);
  EXPECT_GT(feature(nest("rsqrt(w[16 * j + l])"), machine, "multiply_adds"), 2 * product);
  const double quotient = feature(nest("w[16 * j + l] / v[i]"), machine, "multiply_adds");
  EXPECT_LT(quotient, feature(nest("v[i] / w[16 * j + l]"), machine, "multiply_adds"));
}

/// A short sum that is one block does not wait for the block before it.
TEST(Predict, IndependentSumsOverlap) {
  const auto nest = [](const char* loop) {
    return nest::parse_loop_nest(fmt::format(
        "nest sums\ninput x: f32[64, 9, 16]\noutput y: f32[64, 16]\nregister t: f32[16]\n"
        "for i in 0..64\n  allocate t\n    for l in 0..16 vector\n      t[l] = 0\n    for k in 0..9{}\n"
        "      for l in 0..16 vector\n        t[l] += x[i, k, l]\n    for l in 0..16 vector\n      y[i, l] = "
        "t[l]\n",
        loop));
  };
  const Machine machine = describe_machine(jit::cpu_named("x86-64-v3"));
  EXPECT_GT(feature(nest(""), machine, "latency"), 3 * feature(nest(" unroll"), machine, "latency"));
}

TEST(Predict, PowersThatAreProductsCostProducts) {
  const auto seconds = [](const char* body) {
    const auto nest =
        nest::parse_loop_nest(fmt::format("nest powers\ninput x: f32[16]\noutput y: f32[16]\nfor i in 0..64\n"
                                          "  for l in 0..16 vector\n    y[l] = {}\n",
                                          body));
    return predict(nest, describe_machine(jit::cpu_named("x86-64-v3"))).seconds;
  };
  EXPECT_NEAR(seconds("power(x[l], 2)"), seconds("(x[l] * x[l])"), 0.05 * seconds("power(x[l], 2)"));
  EXPECT_LT(3 * seconds("power(x[l], 7)"), seconds("power(x[l], 2.5)"));
  EXPECT_LT(3 * seconds("power(x[l], -3)"), seconds("power(x[l], x[l])"));
}

TEST(Predict, TheLargestBlockIsWhatOneIterationExecutes) {
  const auto nest = [](int rows, int vectors) {
    return nest::parse_loop_nest(
        fmt::format("nest tile\ninput a: f32[{0}, 64]\ninput b: f32[64, {2}]\noutput y: f32[{0}, {2}]\n"
                    "register t: f32[{0}, {1}, 16]\nallocate t\n"
                    "  for m in 0..{0} unroll\n    for v in 0..{1} unroll\n      for l in 0..16 vector\n"
                    "        t[m, v, l] = 0\n"
                    "  for k in 0..64\n    for m in 0..{0} unroll\n      for v in 0..{1} unroll\n"
                    "        for l in 0..16 vector\n          t[m, v, l] += a[m, k] * b[k, 16 * v + l]\n"
                    "  for m in 0..{0} unroll\n    for v in 0..{1} unroll\n      for l in 0..16 vector\n"
                    "        y[m, 16 * v + l] = t[m, v, l]\n",
                    rows, vectors, 16 * vectors));
  };
  for (const auto& [rows, vectors] : {std::pair{1, 1}, {3, 2}, {7, 4}})
    EXPECT_EQ(predict(nest(rows, vectors), describe_machine(jit::host_cpu())).largest_block,
              rows * vectors * 512 / describe_machine(jit::host_cpu()).vector_bits);
}

/// Positions of two rows in one vector: together in memory, seven again and again, every other one, far
/// apart.
TEST(Predict, LanesThatVectorsHoldAreShuffled) {
  const auto seconds = [](const std::string& from) {
    return predict(nest::parse_loop_nest(
                       "nest lanes\ninput x: f32[64, 100]\noutput y: f32[64, 14]\nfor i in 0..64\n"
                       "  for l in 0..14 vector\n    y[i, l] = x[i, " +
                       from + "]\n"),
                   describe_machine(jit::cpu_named("x86-64-v4")))
        .seconds;
  };
  const double together = seconds("l"), two_rows = seconds("l / 7 * 7 + l % 7"), again = seconds("l % 7"),
               woven = seconds("l / 7 + l % 7 * 2"), apart = seconds("l / 7 * 50 + l % 7 * 7");
  EXPECT_DOUBLE_EQ(two_rows, together);
  EXPECT_LT(again, 2.5 * together);
  EXPECT_LT(woven, 2.5 * together);
  EXPECT_GT(apart, 2 * again);
}

/// Rows on pages of their own surprise prefetchers; not where the nest asks for the next row itself.
TEST(Predict, WhatIsAskedForAheadIsNoSurprise) {
  const auto seconds = [](const char* asking) {
    const auto nest = nest::parse_loop_nest(fmt::format(
        "nest n\ninput x: f32[8192, 4096]\noutput y: f32[256, 16]\nfor j in 0..256\n  for i in 0..8192\n{}"
        "    for l in 0..16 vector\n      y[j, l] += x[i, 16 * j + l]\n",
        asking));
    return predict(nest, small_machine(), {}).seconds;
  };
  EXPECT_LT(seconds("    prefetch x[i, 16 * j + 16]\n"), 0.7 * seconds(""));
}

/// What neighbours left of a cache is what is read from it again.
TEST(Predict, ACacheHoldsWhatIsUsableOfIt) {
  const auto nest = nest::parse_loop_nest(
      "nest n\ninput x: f32[5120]\noutput y: f32[64]\nfor i in 0..64\n  for k in 0..5120\n    y[i] += "
      "x[k]\n");
  Machine machine = small_machine();
  EXPECT_EQ(predict(nest, machine, {}).moved_bytes[2], 0);  // 20 KB of 32 KB
  machine.levels[1].usable_bytes = 16 << 10;
  EXPECT_GT(predict(nest, machine, {}).moved_bytes[2], 60 * 20e3);
  EXPECT_EQ(machine.level_of(20e3), 2u);
}

TEST(Predict, FeaturesHaveNames) {
  const auto p = parsed("y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", 20}, {"n", 20}, {"k", 20}});
  const LoopNest nest = schedule::apply(p, {});
  const auto values = features_of(predict(nest, small_machine()));
  ASSERT_EQ(values.size(), feature_names().size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(std::isfinite(values[i])) << feature_names()[i];
}

/// Rows far apart, each read a stretch at a time: a stretch shorter than a page is a stream, too, of which
/// only the beginning surprises.
TEST(Predict, AShortStreamIsForeseenButForItsBeginning) {
  const auto p =
      program::parse("y[m,n] = sum[k] a[k,m] * b[n,k]", {.sizes = {{"m", 32}, {"n", 64}, {"k", 12288}}});
  const auto seconds = [&](int steps) {
    const std::string trace = fmt::format(
        "schedule f32\nsplit y loops=k numbers={}\nsplit y loops=n numbers=8\nsplit y loops=m numbers=16\n"
        "reorder y loops=k_o,n_o,k_i,n_i,m_o,m_i\nvectorize y loops=m_i\n"
        "register_tile y loops=n_i,m_o,m_i\n",
        steps);
    return predict(schedule::apply(p, schedule::parse_schedule(trace)), small_machine()).seconds;
  };
  EXPECT_LT(seconds(512), 1.25 * seconds(1536));
  EXPECT_GT(seconds(32), seconds(512)) << "beginnings count";
}

}  // namespace
}  // namespace syno::machine
