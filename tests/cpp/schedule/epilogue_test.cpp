// What follows a reduction point by point is computed where its results are complete: it keeps the meaning,
// writes the output once, and is refused where results would be missing, repeated or needed elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "construct/construct.hpp"
#include "fixture.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

/// Sizes of those iterators a text holds.
program::Program parsed(const std::string& text, const std::map<std::string, std::int64_t>& sizes) {
  program::ParseOptions options;
  const auto letter = [&](std::size_t at) { return at < text.size() && std::isalpha(text[at]) != 0; };
  for (const auto& [name, extent] : sizes)
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1))
      if (!letter(at - 1) && !letter(at + 1) && text[at + 1] != '[') options.sizes[name] = extent;
  return program::parse(text, options);
}

bool has_epilogue(const Schedule& schedule) {
  return std::any_of(schedule.trace.begin(), schedule.trace.end(),
                     [](const Decision& d) { return d.name == "epilogue"; });
}

/// Stores to an output and reads of it in a nest.
struct Uses {
  int stores = 0, loads = 0;
};
Uses uses_of(const LoopNest& nest, const std::string& name) {
  Uses uses;
  for (const auto& statement : nest.statements)
    uses.stores += statement.kind == StatementKind::Store && nest.buffer(statement.buffer).name == name;
  for (const auto& value : nest.values)
    uses.loads += value.kind == ValueKind::Load && nest.buffer(value.buffer).name == name;
  return uses;
}

TEST(Epilogue, IsComputedInTheRegistersThatHoldTheResults) {
  const auto p = program::parse("y[o,h,w] = max(sum[c] x[c,h,w] * k[o,c] + b[o] + z[o,h,w], 0)",
                                {.sizes = {{"o", 64}, {"h", 28}, {"w", 28}, {"c", 64}}});
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  ASSERT_TRUE(has_epilogue(schedule)) << to_text(schedule);
  const LoopNest nest = apply(p, schedule);
  for (const auto& buffer : nest.buffers)
    EXPECT_NE(buffer.kind, BufferKind::Temporary) << buffer.name << "\n" << to_text(nest);
  EXPECT_EQ(uses_of(nest, "y").loads, 0) << to_text(nest);
  for (const auto& statement : nest.statements) {
    if (statement.kind != StatementKind::Store || nest.buffer(statement.buffer).name != "y") continue;
    EXPECT_EQ(statement.mode, StoreMode::Assign);
    EXPECT_EQ(nest.value(statement.value).function, program::Function::Maximum) << to_text(nest);
  }
}

TEST(Epilogue, GoesWithTheCopyOfATileThatIsWrittenLater) {
  // Small images: lanes along channels, transposed on the way out; rows at a wider pitch than the output's.
  const std::string text = "y[o,h,w] = max(sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s] + b[o] + z[o,h,w], 0)";
  int copies = 0, in_pieces = 0;
  for (const std::int64_t side : {7, 14, 22, 29, 56}) {
    const auto p =
        program::parse(text, {.sizes = {{"o", 28}, {"h", side}, {"w", side}, {"c", 9}, {"r", 3}, {"s", 3}}});
    for (const Target target : {Target{}, Target{256, 16, 2}}) {
      const Schedule schedule = default_schedule(p, Dtype::F32, target, {"k"});
      ASSERT_TRUE(has_epilogue(schedule)) << to_text(schedule);
      const LoopNest nest = apply(p, schedule);
      ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
      Random random(7);
      expect_same(p, nest, random_arguments(p, random), to_text(schedule));
      for (const Decision& d : schedule.trace) {
        copies += d.name == "stage" && d.tensor == "y";
        in_pieces += d.name == "compute_at" && d.tensor == "y";
      }
    }
  }
  EXPECT_GT(copies, 0);
  EXPECT_GT(in_pieces, 0);
}

/// Every sketch with an epilogue, whatever the count of cycles says.
TEST(Epilogue, KeepsTheMeaningInEverySketch) {
  const char* texts[] = {
      "y[o,h,w] = max(sum[c,r,s] x[c,h+r-1,w+s-1] * f[o,c,r,s] + b[o] + z[o,h,w], 0)",
      "t[m,n] = sum[k] x[m,k] * f[n,k]; y[m,n] = gelu(t[m,n] + b[n])",
      "y[c,h,w] = relu(sum[r,s] x[c,2*h+r-1,2*w+s-1] * f[c,r,s]) * z[h,w]",
  };
  Random random(11);
  int sketches_seen = 0;
  for (const char* text : texts)
    for (int trial = 0; trial < 4; ++trial) {
      const auto p = parsed(text, {{"o", draw(random, 1, 37)},
                                   {"h", draw(random, 2, 9)},
                                   {"w", draw(random, 2, 19)},
                                   {"c", draw(random, 1, 6)},
                                   {"m", draw(random, 1, 9)},
                                   {"n", draw(random, 1, 40)},
                                   {"k", draw(random, 1, 40)},
                                   {"r", 3},
                                   {"s", 3}});
      constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::BF16};
      const Dtype dtype = kDtypes[trial % 3];
      std::size_t count = 1;
      for (std::size_t wanted = 0; wanted < count; ++wanted) {
        const Schedule schedule =
            construct(p, dtype, Target{}, [&](const Construction&, const std::string&, const Sketches& all) {
              count = std::max(count, all.size());
              const std::size_t sketch = std::min(wanted, all.size() - 1);
              return Choosing{sketch, all[sketch].counted};
            });
        ASSERT_TRUE(has_epilogue(schedule)) << to_text(schedule);
        const LoopNest nest = apply(p, schedule);
        ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
        expect_same(p, nest, random_arguments(p, random), to_text(schedule));
        if (HasFatalFailure()) return;
        ++sketches_seen;
      }
    }
  EXPECT_GT(sketches_seen, 30);
}

TEST(Epilogue, AChainIsOneEpilogue) {
  const auto p = program::parse(
      "t[i,j] = sum[k] x[i,k] * w[k,j]; u[i,j] = exp(t[i,j]); y[j,i] = u[i,j] / (u[i,j] + b[j])",
      {.sizes = {{"i", 5}, {"j", 18}, {"k", 7}}});
  const Schedule chained{Dtype::F32,
                         {{"epilogue", "u", {}, {}, "t", {}}, {"epilogue", "y", {}, {}, "u", {}}}};
  const LoopNest nest = apply(p, chained);
  ASSERT_NO_THROW(verify(nest)) << to_text(nest);
  Random random(3);
  expect_same(p, nest, random_arguments(p, random), to_text(chained));
  for (const auto& buffer : nest.buffers)
    EXPECT_NE(buffer.kind, BufferKind::Temporary) << buffer.name << "\n" << to_text(nest);
  // The same results, staged: the epilogue is applied when the copy is written.
  const Schedule staged{Dtype::F32,
                        {{"epilogue", "u", {}, {}, "t", {}},
                         {"epilogue", "y", {}, {}, "u", {}},
                         {"stage", "y", {}, {}, "y", {"sums"}},
                         {"compute_at", "sums", {"j"}, {}, "y", {}}}};
  const LoopNest later = apply(p, staged);
  ASSERT_NO_THROW(verify(later)) << to_text(later);
  expect_same(p, later, random_arguments(p, random), to_text(staged));
}

TEST(Epilogue, IsRefusedWithAReason) {
  struct Refused {
    const char* text;
    std::string scope, tensor, reason;
    std::vector<Decision> before = {};
  };
  const Refused table[] = {
      {"y[i] = x[i]", "y", "x", "is not computed"},
      {"t[i] = exp(x[i]); y[i] = t[i]", "y", "t", "no plain reduction"},
      {"t[2*i + j] += x[i] * w[j]; y[i: 4] = t[i]", "y", "t", "no plain reduction"},
      {"t[i] = sum[k] x[i,k]; y[j: 3] = sum[i] t[i] * w[j,i]", "y", "t", "reduces or accumulates itself"},
      {"t[i] = sum[k] x[i,k]; u[i] = exp(t[i]); y[i] = t[i] * u[i]", "u", "t", "read by other scopes"},
      {"t[i: 6] = sum[k] x[i,k]; y[i: 5] = t[i] + t[i+1]", "y", "t", "at 2 places"},
      {"t[i: 6] = sum[k] x[i,k]; y[i: 6] = t[i+1]", "y", "t", "outside its dimension 0"},
      {"t[i: 6] = sum[k] x[i,k]; y[i: 6] = t[(i+1)%6]", "y", "t", "no iterator of its own"},
      {"t[i: 6] = sum[k] x[i,k]; y[i: 3] = t[2*i]", "y", "t", "no iterator of its own"},
      {"t[i: 6,j: 6] = sum[k] x[i,j,k]; y[i: 6] = t[i,i]", "y", "t", "no iterator of its own"},
      {"t[i] = sum[k] x[i,k]; y[i,j: 2] = t[i]", "y", "t", "again for each 'j'"},
      {"t[i: 6] = sum[k] x[i,k]; y[i: 6] = t[inside(i, 6)]", "y", "t", "under a condition"},
      {"t[i] = sum[k] x[i,k]; y[i] = exp(t[i])",
       "y",
       "t",
       "decisions about 'y' came before",
       {{"unroll", "y", {"i"}, {}, "", {}}}},
      {"t[i] = sum[k] x[i,k]; y[i] = exp(t[i])",
       "y",
       "t",
       "decisions about 't' came before",
       {{"unroll", "t", {"i"}, {}, "", {}}}},
  };
  for (const auto& test : table) {
    const auto p = parsed(test.text, {{"i", 4}, {"j", 4}, {"k", 4}});
    Schedule schedule{Dtype::F32, test.before};
    schedule.trace.push_back({"epilogue", test.scope, {}, {}, test.tensor, {}});
    try {
      apply(p, schedule);
      ADD_FAILURE() << "accepted: " << test.text;
    } catch (const ScheduleError& error) {
      EXPECT_NE(std::string(error.what()).find(test.reason), std::string::npos) << test.text << "\n"
                                                                                << error.what();
    }
  }
  program::Program outputs = program::parse("t[i: 4] = sum[k: 3] x[i,k]; y[i: 4] = exp(t[i])");
  outputs.outputs.push_back(outputs.scopes[0].output);
  EXPECT_THROW(apply(outputs, {Dtype::F32, {{"epilogue", "y", {}, {}, "t", {}}}}), ScheduleError);
  EXPECT_THROW(apply(outputs, {Dtype::F32, {{"epilogue", "y", {}, {}, "q", {}}}}), Error);
}

TEST(Epilogue, ReadsWhatIsComputedOutsideTheReduction) {
  const auto p = program::parse("m[i] = max[k] x[i,k]; t[i] = sum[k] x[i,k]; y[i] = m[i] / t[i]; return y",
                                {.sizes = {{"i", 5}, {"k", 7}}});
  const auto at = [](const char* loop) {
    return Schedule{Dtype::F32,
                    {{"epilogue", "y", {}, {}, "t", {}}, {"compute_at", "m", {loop}, {}, "y", {}}}};
  };
  EXPECT_THROW(apply(p, at("k")), ScheduleError);
  Random random(5);
  expect_same(p, apply(p, at("i")), random_arguments(p, random), "computed for one row");
}

TEST(Epilogue, NeedsResultsInRegisters) {
  const auto p = program::parse("t[i,j] = sum[k] x[i,k] * w[k,j]; y[i,j] = exp(t[i,j])",
                                {.sizes = {{"i", 5}, {"j", 8}, {"k", 7}}});
  EXPECT_THROW(
      apply(p, {Dtype::F32, {{"epilogue", "y", {}, {}, "t", {}}, {"reorder", "y", {"k", "j"}, {}, "", {}}}}),
      ScheduleError);
}

}  // namespace
}  // namespace syno::schedule
