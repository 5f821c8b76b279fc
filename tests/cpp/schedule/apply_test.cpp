// Whatever is decided, the nest computes what the program says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "fixture.hpp"
#include "random_layout.hpp"
#include "schedule/decisions.hpp"
#include "schedule/schedule.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

std::string template_name(const ::testing::TestParamInfo<Template>& info) { return info.param.name; }

class EveryProgram : public ::testing::TestWithParam<Template> {};

TEST_P(EveryProgram, PlainLoopsComputeIt) {
  Random random(3);
  for (int trial = 0; trial < 8; ++trial) {
    const auto p = instance(GetParam(), random);
    const LoopNest nest = apply(p, Schedule{});
    ASSERT_NO_THROW(verify(nest)) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), "plain loops");
    if (HasFatalFailure()) return;
  }
}

/// A decision that might apply: drawn without looking at what is legal, from the names there are.
Decision random_decision(Random& random, const Plan& plan, std::string_view wanted) {
  const auto& rows = decisions();
  Decision d;
  d.name = wanted.empty() ? rows[random.below(rows.size())].name : wanted;
  const std::size_t s = random.below(plan.program.scopes.size());
  d.scope = plan.program.tensor(plan.program.scopes[s].output).name;
  const auto any_loop = [&](std::size_t scope) -> std::string {
    const auto& order = plan.scopes[scope].order;
    if (order.empty()) return "none";
    return plan.scopes[scope].loops[static_cast<std::size_t>(order[random.below(order.size())])].name;
  };
  const auto& order = plan.scopes[s].order;
  const auto name_at = [&](std::size_t p) {
    return plan.scopes[s].loops[static_cast<std::size_t>(order[p])].name;
  };
  if (d.name == "split" || d.name == "relax") {
    d.loops = {any_loop(s)};
    d.numbers = {draw(random, 1, 9)};
  } else if (d.name == "fuse" && order.size() > 1) {
    const std::size_t p = random.below(order.size() - 1);
    d.loops = {name_at(p), name_at(p + 1)};
  } else if (d.name == "reorder" || d.name == "register_tile") {
    for (std::size_t p = 0; p < order.size(); ++p)
      if (random.below(2)) d.loops.push_back(name_at(p));
    for (std::size_t i = d.loops.size(); i-- > 1;) std::swap(d.loops[i], d.loops[random.below(i + 1)]);
    if (d.name == "register_tile") {
      // What a reduction has inside, as it must be.
      d.loops.clear();
      bool inside = false;
      for (std::size_t p = 0; p < order.size(); ++p) {
        const bool reduction = plan.scopes[s].loops[static_cast<std::size_t>(order[p])].reduction;
        inside = inside || reduction;
        if (inside && (!reduction || random.below(4) == 0)) d.loops.push_back(name_at(p));
      }
    }
  } else if (d.name == "peel") {
    d.loops = {any_loop(s)};
    if (random.below(2)) d.numbers = {draw(random, 1, 4)};
  } else if (d.name == "vectorize" && !order.empty()) {
    d.loops = {name_at(order.size() - 1)};
  } else if (d.name == "solve" || d.name == "turn" || d.name == "tighten") {
    if (const auto sites = sites_of(plan, d.name, s); !sites.empty()) {
      const auto& site = sites[random.below(sites.size())];
      d.loops = {site.iterator};
      d.numbers = site.numbers;
    }
  } else if (d.name == "transpose" && order.size() > 1) {
    d.loops = {name_at(order.size() - 2), name_at(order.size() - 1)};
    if (random.below(2)) std::swap(d.loops[0], d.loops[1]);
  } else if (d.name == "stage") {
    const auto reads = plan.reads(s);
    d.tensor = reads.empty() || random.below(4) == 0
                   ? d.scope
                   : plan.program.tensor(plan.program.scalar(reads[random.below(reads.size())]).tensor).name;
    if (random.below(3) == 0) d.numbers = {0};
  } else if (d.name == "prefetch") {
    const auto reads = plan.reads(s);
    if (!reads.empty())
      d.tensor = plan.program.tensor(plan.program.scalar(reads[random.below(reads.size())]).tensor).name;
    d.numbers = {draw(random, 0, 400)};
  } else if (d.name == "skip" || d.name == "polyphase") {
  } else if (d.name == "innermost") {
    // Sites of their own are rare; told numbers say what moves.
    const auto scope = plan.scope_named(d.scope);
    if (random.below(3) > 0) {
      d.numbers = derive::innermost_dims(plan.program, scope);
      for (std::int64_t& dim : d.numbers)
        if (dim < 0 || random.below(2) == 0) dim = draw(random, -1, 2);
    }
  } else if (d.name == "epilogue") {
    const auto reads = plan.reads(s);
    if (!reads.empty())
      d.tensor = plan.program.tensor(plan.program.scalar(reads[random.below(reads.size())]).tensor).name;
  } else if (d.name == "share") {
    for (std::size_t other = 0; other < plan.program.scopes.size(); ++other)
      if (other != s && (d.tensor.empty() || derive::find_shared(plan.program, s, other)))
        d.tensor = plan.program.tensor(plan.program.scopes[other].output).name;
  } else if (d.name == "lay_out") {
    const auto id = static_cast<program::TensorId>(random.below(plan.program.tensors.size()));
    const Shape shape = program::shape_of(plan.program, id);
    if (shape.empty()) return d;
    const std::string& name = plan.program.tensor(id).name;
    const bool argument = plan.is_argument(id);
    d = lay_out_decision(name, testing::random_layout(random, shape, random.below(2) == 0),
                         argument ? name + "_l" : name);
  } else if (d.name == "layout") {
    d.tensor = d.scope;
    const auto& tensor = plan.program.scopes[s].output;
    const std::size_t rank = plan.program.tensor(tensor).dims.size();
    const auto& row = layout_primitives()[random.below(layout_primitives().size())];
    d.words = {std::string(row.name)};
    if (rank == 0) return d;
    if (row.kind == LayoutKind::Reorder) {
      const Shape now =
          shape_after(plan.tensors[static_cast<std::size_t>(tensor)].layout, plan.storage(tensor));
      for (std::size_t i = 0; i < now.size(); ++i) d.numbers.push_back(static_cast<std::int64_t>(i));
      for (std::size_t i = now.size(); i-- > 1;) std::swap(d.numbers[i], d.numbers[random.below(i + 1)]);
    } else {
      d.numbers = {draw(random, 0, static_cast<std::int64_t>(rank) - 1)};
      if (row.kind == LayoutKind::Split) {
        const Shape now =
            shape_after(plan.tensors[static_cast<std::size_t>(tensor)].layout, plan.storage(tensor));
        const auto dim = static_cast<std::size_t>(d.numbers[0]);
        const std::int64_t factor = draw(random, 1, 3);
        d.numbers.push_back(dim < now.size() ? std::max<std::int64_t>(1, now[dim] / factor) : 1);
        d.numbers.push_back(factor);
      } else if (row.kind == LayoutKind::Fuse || row.kind == LayoutKind::StoreAt) {
        d.numbers.push_back(draw(random, 1, 2));
      } else {
        d.numbers.push_back(draw(random, 0, 2));
        d.numbers.push_back(draw(random, 0, 2));
      }
    }
  } else if (d.name == "strides") {
    const auto& tensors = plan.program.tensors;
    const auto& tensor = tensors[random.below(tensors.size())];
    d.tensor = tensor.name;
    for (std::size_t i = 0; i < tensor.dims.size(); ++i) d.numbers.push_back(draw(random, -3, 60));
  } else if (d.name == "compute_at") {
    const std::size_t consumer = random.below(plan.program.scopes.size());
    d.tensor = plan.program.tensor(plan.program.scopes[consumer].output).name;
    d.loops = {any_loop(consumer)};
  } else {
    d.loops = {any_loop(s)};
  }
  return d;
}

struct Fuzzed {
  int nests = 0, prepacked = 0;
  std::map<std::string, int> used;
};

/// Random traces: what a row refuses is left out, all else must keep the meaning.
void fuzz(const Template& t, std::uint64_t seed, int trials, int steps, Fuzzed& count) {
  Random random(seed);
  for (int trial = 0; trial < trials; ++trial) {
    const auto p = instance(t, random);
    Plan plan(p, Dtype::F32);
    Schedule schedule;
    for (int i = 0; i < steps; ++i) {
      Plan named = plan;  // with every loop there would be
      for (std::size_t s = named.scopes.size(); s-- > 0;) named.need_domain(s);
      Plan next = plan;
      Decision decision;
      try {
        // Only what comes first may lay out.
        decision = random_decision(random, named, i == 0 && random.below(8) == 0 ? "lay_out" : "");
        decide(next, decision);
      } catch (const ScheduleError&) {
        continue;
      }
      plan = std::move(next);
      schedule.trace.push_back(decision);
    }
    std::optional<LoopNest> nest;
    try {
      nest = apply(p, schedule);
    } catch (const ScheduleError&) {
      continue;  // a vectorised loop that is not innermost, a loop inside a reduction outside the tile
    }
    ASSERT_NO_THROW(verify(*nest)) << to_text(schedule) << to_text(*nest) << program::to_text(p);
    const Arguments arguments = random_arguments(p, random);
    expect_same(p, *nest, arguments, to_text(schedule));
    if (::testing::Test::HasFatalFailure()) return;
    if (const auto parts = apply_prepacked(p, schedule)) {
      expect_same_prepacked(p, *parts, arguments, to_text(schedule));
      if (::testing::Test::HasFatalFailure()) return;
      ++count.prepacked;
    }
    ++count.nests;
    for (const auto& decision : schedule.trace) ++count.used[decision.name];
  }
}

TEST_P(EveryProgram, RandomTracesKeepItsMeaning) {
  Fuzzed count;
  fuzz(GetParam(), 5, 100, 14, count);
  EXPECT_GT(count.nests, 15) << "nearly every trace was refused: the property was hardly tested";
}

INSTANTIATE_TEST_SUITE_P(Programs, EveryProgram, ::testing::ValuesIn(templates()), template_name);

TEST(Decisions, EachRowIsDrawnByTheProperty) {
  Fuzzed count;
  for (const auto& t : templates()) fuzz(t, 23, 80, 14, count);
  for (const auto& row : decisions())
    EXPECT_GT(count.used[std::string(row.name)], 5) << row.name << " hardly ever applied";
  EXPECT_GT(count.prepacked, 5) << "hardly ever in two parts";
}

/// What is inlined into a copy is worth the fill wherever the copy reaches past it.
TEST(Decisions, WhatIsInlinedIntoACopyKeepsItsBorder) {
  const auto p =
      program::parse("t[h] = x[h] + e[h]; y[h] = sum[r] t[h+r-1] * b[r]", {.sizes = {{"h", 7}, {"r", 3}}});
  const Schedule schedule{Dtype::F32,
                          {{"stage", "y", {}, {}, "t", {"t_s"}}, {"inline", "t", {}, {}, "", {}}}};
  Random random(3);
  expect_same(p, apply(p, schedule), random_arguments(p, random), to_text(schedule));
}

/// Layouts of the whole program come before all else; what is said of them is said.
TEST(Decisions, LayOutComesFirstAndSaysWhatDoesNotFit) {
  const auto p = program::parse("y[m,n] = sum[k] a[m,k] * b[k,n]", {.sizes = {{"m", 4}, {"n", 6}, {"k", 8}}});
  const Decision good = lay_out_decision("a", parse_layout("split(0, 2, 2) reorder(1, 0, 2)"), "a_l");
  EXPECT_EQ(to_text(good), "lay_out a_l tensor=a numbers=0,2,2,1,0,2 words=split:3,reorder:3");
  EXPECT_EQ(parse_schedule(to_text(Schedule{Dtype::F32, {good}})).trace[0], good);
  const auto refused = [&](const std::vector<Decision>& trace, const std::string& reason) {
    try {
      apply(p, {Dtype::F32, trace});
      FAIL() << "accepted: " << to_text(trace.back());
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  };
  const auto with = [&](auto&& change) {
    Decision changed = good;
    change(changed);
    return std::vector<Decision>{changed};
  };
  refused({{"split", "y", {"m"}, {2}, "", {}}, good}, "decisions about 'y' came before");
  refused({{"strides", "", {}, {9, 1}, "a", {}}, good}, "decisions about 'a' came before");
  refused({good, good}, "cannot be called 'a_l'");
  refused(with([](Decision& d) { d.scope = "b"; }), "cannot be called 'b'");
  refused(with([](Decision& d) { d.words = {"split:3"}; }), "3 numbers that belong to none");
  refused(with([](Decision& d) { d.words[1] = "reorder:4"; }), "'reorder:4' with 3 left");
  refused(with([](Decision& d) { d.words[0] = "split"; }), "not 'split' with");
  refused(with([](Decision& d) { d.words[0] = "slice:3"; }), "layout primitive");
  refused(with([](Decision& d) { d.numbers[0] = -1; }), "at least 0");
  refused(with([](Decision& d) { d.numbers[1] = 3; }), "pad it first");
  refused(with([](Decision& d) { d.words.clear(), d.numbers.clear(); }), "0 primitives");
  nest::Parameter size;
  size.name = "m";
  size.least = 1, size.greatest = 4;
  EXPECT_THROW(apply(p, {Dtype::F32, {good}}, {size}), ScheduleError);
}

TEST(Decisions, TransposeRefusesWhatIsNoBlockOfACopy) {
  const auto p = program::parse("t[i,j] = x[j,i]; y[i] = sum[j] t[i,j]", {.sizes = {{"i", 40}, {"j", 8}}});
  const auto refused = [&](const std::vector<Decision>& trace, const std::string& reason) {
    try {
      apply(p, {Dtype::F32, trace});
      FAIL() << "accepted: " << to_text(trace.back());
    } catch (const ScheduleError& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  };
  refused({{"transpose", "y", {"i", "j"}, {}, "", {}}}, "reduces");
  refused({{"transpose", "t", {"i", "j"}, {}, "", {}}}, "split it to at most");
  refused({{"split", "t", {"i"}, {8}, "", {}}, {"transpose", "t", {"i_o", "j"}, {}, "", {}}}, "innermost");
  refused({{"split", "t", {"i"}, {8}, "", {}}, {"transpose", "t", {"j", "j"}, {}, "", {}}}, "twice");
  refused({{"split", "t", {"i"}, {8}, "", {}},
           {"transpose", "t", {"j", "i_i"}, {}, "", {}},
           {"transpose", "t", {"j", "i_i"}, {}, "", {}}},
          "already");
}

TEST(Decisions, PrepackRefusesWhatACallComputes) {
  const auto p = program::parse("t[i] = sum[j] x[i,j]; y[i] = t[i] * k[i]", {.sizes = {{"i", 5}, {"j", 8}}});
  const auto refused = [&](const std::vector<Decision>& trace, const std::string& reason) {
    try {
      apply(p, {Dtype::F32, trace});
      FAIL() << "accepted: " << to_text(trace.back());
    } catch (const ScheduleError& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  };
  const Decision copy{"stage", "y", {}, {}, "t", {"copy"}};
  refused({{"prepack", "y", {}, {}, "", {}}}, "is an output");
  refused({copy, {"prepack", "copy", {}, {}, "", {}}}, "computed in every call");
  refused({{"stage", "y", {}, {}, "k", {"k2"}},
           {"compute_at", "k2", {"i"}, {}, "y", {}},
           {"prepack", "k2", {}, {}, "", {}}},
          "at a loop");
  refused({{"prepack", "t", {}, {}, "", {}}, {"compute_at", "t", {"i"}, {}, "y", {}}}, "before calls");
  EXPECT_FALSE(apply_prepacked(p, {}).has_value());
  const auto parts = apply_prepacked(
      p, {Dtype::F32, {{"stage", "y", {}, {}, "k", {"k2"}}, {"prepack", "k2", {}, {}, "", {}}}});
  ASSERT_TRUE(parts.has_value());
  const auto names = [](const LoopNest& nest) {
    std::vector<std::string> all;
    for (const BufferId id : arguments(nest)) all.push_back(nest.buffer(id).name);
    return all;
  };
  EXPECT_EQ(names(parts->prepack), (std::vector<std::string>{"k", "k2"}));
  EXPECT_EQ(names(parts->call), (std::vector<std::string>{"x", "k2", "y"}));
}

program::Program conv() {
  return program::parse("y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
                        {.sizes = {{"o", 4}, {"h", 7}, {"w", 9}, {"c", 3}, {"r", 3}, {"s", 3}}});
}

void expect_refused(const program::Program& p, const std::vector<Decision>& trace,
                    const std::string& reason) {
  try {
    apply(p, {Dtype::F32, trace});
    FAIL() << "accepted: " << to_text(trace.back());
  } catch (const ScheduleError& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(fmt::format("decision {}", trace.size() - 1)), std::string::npos)
        << error.what();
  }
}

TEST(Decisions, RefusalsNameTheDecisionAndTheReason) {
  const auto p = conv();
  expect_refused(p, {{"split", "y", {"z"}, {2}, "", {}}}, "z");
  expect_refused(p, {{"split", "q", {"h"}, {2}, "", {}}}, "q");
  expect_refused(p, {{"split", "y", {"h"}, {0}, "", {}}}, "at least 1");
  expect_refused(p, {{"split", "y", {"h"}, {2, 3}, "", {}}}, "one number");
  expect_refused(p, {{"fuse", "y", {"o", "w"}, {}, "", {}}}, "not the loop just outside");
  expect_refused(p, {{"fuse", "y", {"w", "c"}, {}, "", {}}}, "reduction");
  expect_refused(p, {{"reorder", "y", {"o", "o"}, {}, "", {}}}, "twice");
  expect_refused(p, {{"relax", "y", {"w"}, {12}, "", {}}}, "caller's memory");
  expect_refused(p, {{"stage", "y", {}, {}, "y", {"t"}}, {"relax", "t", {"c"}, {12}, "", {}}},
                 "is a reduction");
  expect_refused(p, {{"vectorize", "y", {"w"}, {}, "", {}}}, "innermost");
  expect_refused(p, {{"parallel", "y", {"c"}, {}, "", {}}}, "reduction");
  expect_refused(p, {{"reorder", "y", {"c", "h"}, {}, "", {}}, {"parallel", "y", {"h"}, {}, "", {}}},
                 "inside");
  expect_refused(p, {{"split", "y", {"h"}, {4}, "", {}}, {"peel", "y", {"h_i"}, {}, "", {}}},
                 "no outer loop");
  expect_refused(p, {{"peel", "y", {"h"}, {9}, "", {}}}, "lie inside");
  expect_refused(p, {{"layout", "", {}, {0, 2, 2}, "x", {"split"}}}, "caller's memory");
  expect_refused(p, {{"stage", "y", {}, {}, "x", {}}, {"layout", "", {}, {0, 2, 2}, "x_s", {"split"}}},
                 "product");
  expect_refused(p, {{"stage", "y", {}, {3}, "x", {}}}, "no number 3");
  expect_refused(p, {{"stage", "y", {}, {}, "x", {"k"}}}, "already");
  expect_refused(p, {{"inline", "y", {}, {}, "", {}}}, "output");
  expect_refused(p, {{"unroll", "y", {"h"}, {}, "", {}}, {"split", "y", {"h"}, {2}, "", {}}},
                 "already unrolled");
  expect_refused(p,
                 {{"stage", "y", {}, {}, "x", {}},
                  {"compute_at", "x_s", {"h"}, {}, "y", {}},
                  {"split", "y", {"h"}, {2}, "", {}}},
                 "before");
  EXPECT_THROW(apply(p, {Dtype::F32, {{"spilt", "y", {"h"}, {2}, "", {}}}}), UnknownName);
}

TEST(Decisions, APeeledAndStagedNestHasNoGuards) {
  const auto p = conv();
  const Schedule schedule{Dtype::F32,
                          {{"stage", "y", {}, {}, "x", {"x_s"}},
                           {"split", "y", {"w"}, {4}, "", {}},
                           {"peel", "y", {"w_o"}, {}, "", {}},
                           {"reorder", "y", {"c", "r", "s", "w_i"}, {}, "", {}},
                           {"register_tile", "y", {"w_i"}, {}, "", {}},
                           {"vectorize", "y", {"w_i"}, {}, "", {}}}};
  const LoopNest nest = apply(p, schedule);
  for (const auto& statement : nest.statements)
    EXPECT_FALSE(statement.kind == StatementKind::If) << to_text(nest);
  Random random(1);
  expect_same(p, nest, random_arguments(p, random), to_text(schedule));
  // Border and interior: the interior reads without guards.
  const Schedule borders{Dtype::F32,
                         {{"peel", "y", {"h"}, {1, 6}, "", {}}, {"peel", "y", {"w"}, {1, 8}, "", {}}}};
  const LoopNest cut = apply(p, borders);
  EXPECT_TRUE(std::any_of(cut.values.begin(), cut.values.end(), [](const Value& v) {
    return v.kind == ValueKind::Load && v.buffer == BufferId{0} && v.guards.empty();
  })) << to_text(cut);
  expect_same(p, cut, random_arguments(p, random), to_text(borders));
}

/// Sums along lanes whose results lie one behind the other are lanes of one vector; others are numbers.
TEST(Emission, NeighbouringSumsOfLanesAreWrittenAsAVector) {
  Random random(3);
  const auto nest_of = [&](const char* text, std::int64_t columns) {
    const auto p = program::parse(text, {.sizes = {{"i", 6}, {"j", 20}, {"c", 32}}});
    const LoopNest nest = apply(
        p, parse_schedule(fmt::format("schedule f32\nsplit y loops=j numbers={}\nsplit y loops=i numbers=2\n"
                                      "split y loops=c numbers=16\nreorder y loops=i_o,j_o,c_o,i_i,j_i,c_i\n"
                                      "vectorize y loops=c_i\nregister_tile y loops=i_i,j_i,c_i\n",
                                      columns)));
    verify(nest);
    expect_same(p, nest, random_arguments(p, random), text);
    return to_text(nest);
  };
  const auto holds = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  for (const std::int64_t columns : {5, 6, 16})  // 6: the last are fewer
    EXPECT_TRUE(holds(nest_of("y[i,j] = sum[c] x[i,c] * k[j,c]", columns),
                      fmt::format("for j_i in 0..{} vector", columns)));
  EXPECT_FALSE(holds(nest_of("y[i,j] = sum[c] x[i,c] * k[j,c]", 20), "for j_i in 0..20 vector"))
      << "too many";
  const std::string apart = nest_of("y[j,i] = sum[c] x[i,c] * k[j,c]", 5);
  EXPECT_FALSE(holds(apart, "for j_i in 0..5 vector")) << "they lie apart";
  EXPECT_TRUE(holds(apart, "for i_i in 0..2 vector"));
}

TEST(Emission, ConstantFactorsLeaveTheReduction) {
  struct AppliedCase {
    const char* text;
    const char* update;   ///< of the accumulator
    const char* written;  ///< to the output
  };
  for (const AppliedCase& test :
       {AppliedCase{"y[i] = sum[k] a[i,k] * 0.5 * b[k] * 4", "+= a[i, k] * b[k]", "y_acc[] * 2"},
        AppliedCase{"y[i] = mean[k] 3 * a[i,k]", "+= a[i, k]\n", "y_acc[] * 0.75"},
        AppliedCase{"y[i] = sum[k] a[i,k] * 0", "+= a[i, k] * 0", "= y_acc[]\n"},
        AppliedCase{"y[i] = max[k] a[i,k] * -2", "max= a[i, k] * -2", "= y_acc[]\n"},
        AppliedCase{"y[i] = prod[k] a[i,k] * 2", "*= a[i, k] * 2", "= y_acc[]\n"},
        AppliedCase{"y[i] = sum[k] (a[i,k] + 2)", "+= a[i, k] + 2", "= y_acc[]\n"}}) {
    program::ParseOptions options{.sizes = {{"i", 5}, {"k", 4}}};
    const auto p = program::parse(test.text, options);
    const LoopNest nest = apply(p, Schedule{});
    const std::string text = to_text(nest);
    EXPECT_NE(text.find(test.update), std::string::npos) << test.text << "\n" << text;
    EXPECT_NE(text.find(test.written), std::string::npos) << test.text << "\n" << text;
    Random random(3);
    expect_same(p, nest, random_arguments(p, random), test.text);
  }
}

}  // namespace
}  // namespace syno::schedule
