// What is refused, or decided and undone, leaves a plan as it was; what is decided keeps the meaning.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "schedule/decisions.hpp"
#include "schedule/fixture.hpp"
#include "support/error.hpp"
#include "whole/random_chain.hpp"

namespace syno::schedule {
namespace {

void write(std::string& text, const Plan& plan, const program::Range& range) {
  const auto [begin, end] = plan.range(range);
  text += fmt::format(" {}..{}:{}", begin, end, range.live.parameter);
}

/// Everything that a plan holds.
std::string state_of(const Plan& plan) {
  const program::Program& p = plan.program;
  std::string text = fmt::format("slots {} nodes {} scalars {} outputs", p.next_slot, p.arena.node_count(),
                                 p.scalars.size());
  for (const auto id : p.outputs) text += fmt::format(" {}", static_cast<std::uint32_t>(id));
  for (std::uint32_t i = 0; i < p.arena.node_count(); ++i) {
    const symbolic::Expr& e = p.arena[ExprId{i}];
    text += fmt::format("\n{} {} {} {} {}", static_cast<int>(e.op), static_cast<std::uint32_t>(e.a),
                        static_cast<std::uint32_t>(e.b), static_cast<std::uint32_t>(e.size), e.value);
  }
  for (const program::Scalar& s : p.scalars) {
    text += fmt::format("\n{} {} {} {} {} {} {}", static_cast<int>(s.kind), static_cast<int>(s.function),
                        static_cast<std::uint32_t>(s.a), static_cast<std::uint32_t>(s.b),
                        static_cast<std::uint32_t>(s.c), static_cast<std::uint32_t>(s.index),
                        static_cast<std::uint32_t>(s.tensor));
    for (const ExprId e : s.indices) text += fmt::format(" [{}]", static_cast<std::uint32_t>(e));
  }
  for (std::size_t t = 0; t < p.tensors.size(); ++t) {
    text += fmt::format("\n{} {}", p.tensors[t].name, static_cast<int>(p.tensors[t].role));
    for (const program::Range& dim : p.tensors[t].dims) write(text, plan, dim);
    text += fmt::format(" {} {}", to_text(plan.tensors[t].layout), fmt::join(plan.tensors[t].strides, ","));
  }
  for (std::size_t s = 0; s < p.scopes.size(); ++s) {
    const program::Scope& scope = p.scopes[s];
    text += fmt::format("\n{} = {} of {}", static_cast<std::uint32_t>(scope.output),
                        static_cast<int>(scope.reduction), static_cast<std::uint32_t>(scope.body));
    for (const auto* group : {&scope.traversal, &scope.sums})
      for (const program::Iterator& iterator : *group) {
        text += fmt::format(" {}@{}", iterator.name, iterator.slot);
        write(text, plan, iterator.range);
      }
    for (const ExprId e : scope.target) text += fmt::format(" [{}]", static_cast<std::uint32_t>(e));
    const ScopePlan& of = plan.scopes[s];
    text += fmt::format("\n order {} tile {} flags {}{}{}{}{} at {} {}", fmt::join(of.order, ","),
                        fmt::join(of.tile, ","), of.total, of.has_domain, of.prepacked, of.skips, of.frozen,
                        of.attach_scope, of.attach_loop);
    for (const ExprId e : of.bases) text += fmt::format(" [{}]", static_cast<std::uint32_t>(e));
    if (of.epilogue)
      text += fmt::format(" then {} of {}", static_cast<std::uint32_t>(of.epilogue->body),
                          static_cast<std::uint32_t>(of.epilogue->value));
    for (const Prefetched& ahead : of.prefetched)
      text += fmt::format(" ahead {} {}", static_cast<std::uint32_t>(ahead.tensor), ahead.near_bytes);
    for (const PlannedLoop& loop : of.loops)
      text += fmt::format("\n  {}@{} {}/{} {} {} {} {} {} {} {} {} {} cuts {}", loop.name, loop.slot,
                          loop.live, loop.extent, static_cast<int>(loop.kind), loop.reduction, loop.outer,
                          loop.inner, loop.factor, loop.fused, loop.first, loop.second, loop.parent,
                          fmt::join(loop.cuts, ","));
  }
  return text;
}

/// Decisions by lot: rows with names from the plan most of the time, and numbers that fit now and then.
class RandomDecisions {
 public:
  explicit RandomDecisions(Random& random) : random_(random) {}

  Decision operator()(const Plan& plan) {
    const auto& rows = decisions();
    Decision made;
    // What breaks loops up or names scopes is tried oftener: it leads somewhere.
    static constexpr std::string_view kOften[] = {"split", "reorder", "compute_at",
                                                  "stage", "fuse",    "inline"};
    made.name = random_.below(2) ? std::string(kOften[random_.below(std::size(kOften))])
                                 : std::string(rows[random_.below(rows.size())].name);
    if (random_.below(40) == 0) made.name = "splitt";
    const std::size_t scope = random_.below(plan.scopes.size());
    const std::size_t other = random_.below(plan.scopes.size());
    made.scope = name_of(plan, scope);
    const bool at = made.name == "compute_at" || made.name == "share" || made.name == "epilogue";
    made.tensor =
        at ? name_of(plan, other) : plan.program.tensors[random_.below(plan.program.tensors.size())].name;
    add_loops(plan, made.name == "compute_at" ? other : scope, made);
    const std::size_t numbers = made.name == "strides" || made.name == "layout" ? 1 + random_.below(3)
                                : made.name == "tighten"                        ? 2
                                : made.name == "stage"                          ? random_.below(2)
                                                                                : 1;
    if (made.name != "reorder" && made.name != "peel")
      for (std::size_t i = 0; i < numbers; ++i) made.numbers.push_back(draw(random_, -1, 6));
    if (made.name == "layout" || made.name == "lay_out") {
      const auto& primitive = layout_primitives()[random_.below(layout_primitives().size())];
      made.words = {made.name == "layout" ? std::string(primitive.name)
                                          : fmt::format("{}:1", primitive.name)};
      if (made.name == "lay_out") made.scope = "lies", made.numbers = {0};
    }
    if (random_.below(60) == 0) made.numbers.push_back(std::int64_t{1} << 62);
    return made;
  }

 private:
  static const std::string& name_of(const Plan& plan, std::size_t scope) {
    return plan.program.tensor(plan.program.scopes[scope].output).name;
  }
  void add_loops(const Plan& plan, std::size_t scope, Decision& made) {
    const ScopePlan& of = plan.scopes[scope];
    if (of.order.empty()) {  // not known yet: iterators, which become loops
      if (plan.iterator_count(scope) > 0)
        made.loops.push_back(plan.iterator(scope, random_.below(plan.iterator_count(scope))).name);
      return;
    }
    std::size_t count = made.name == "reorder"                            ? of.order.size()
                        : made.name == "fuse" || made.name == "transpose" ? 2
                        : made.name == "register_tile"                    ? 1 + random_.below(3)
                                                                          : 1;
    const std::size_t first = random_.below(of.order.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(of.order[(first + i) % of.order.size()]);
      made.loops.push_back(of.loops[at].name);
    }
    if (random_.below(30) == 0) made.loops.emplace_back("nowhere");
  }
  Random& random_;
};

struct Programs {
  std::vector<program::Program> all;
  Programs() {
    Random random(5);
    for (const Template& t : templates()) all.push_back(instance(t, random));
    for (std::uint64_t seed = 1; seed <= 60; ++seed)
      all.push_back(program::parse(syno::testing::RandomChain(seed)()));
  }
};

/// The class of an error, and its text.
template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const ScheduleError& error) {
    return std::string("ScheduleError ") + error.what();
  } catch (const ShapeError& error) {
    return std::string("ShapeError ") + error.what();
  } catch (const UnknownName& error) {
    return std::string("UnknownName ") + error.what();
  }
  return "";
}

TEST(Attempt, LeavesAPlanAsItWasWhereItIsRefusedOrUndone) {
  Random random(11);
  RandomDecisions decision_by_lot(random);
  std::set<std::string> accepted, refused;
  std::size_t undone = 0;
  for (const program::Program& p : Programs().all) {
    Plan plan(p, Dtype::F32);
    Schedule schedule;
    for (int step = 0; step < 40; ++step) {
      const Decision decision = decision_by_lot(plan);
      const std::string before = state_of(plan);
      Plan other = plan;
      const std::string wrong = error_of([&] { decide(other, decision); });
      std::string after;
      {
        Attempt attempt(plan);
        const Refused why = try_decide(plan, decision);
        ASSERT_EQ(why.has_value(), !wrong.empty()) << to_text(decision) << ": " << wrong;
        if (why) {
          ASSERT_EQ(state_of(plan), before) << to_text(decision) << " was refused: " << why->reason();
          ASSERT_EQ(error_of([&] { why->raise(); }), wrong);
          refused.insert(decision.name);
        } else {
          after = state_of(plan);
          ASSERT_EQ(after, state_of(other)) << to_text(decision);
          accepted.insert(decision.name);
        }
        // More of it, taken back together with it.
        for (int more = 0; more < 3; ++more) static_cast<void>(try_decide(plan, decision_by_lot(plan)));
      }
      ++undone;
      ASSERT_EQ(state_of(plan), before) << to_text(decision) << " was undone";
      if (!wrong.empty() || random.below(3) == 0) continue;
      {  // an attempt that is kept inside one that is undone
        Attempt outer(plan);
        Attempt inner(plan);
        decide(plan, decision);
        inner.keep();
      }
      ASSERT_EQ(state_of(plan), before) << to_text(decision) << " was kept in what was undone";
      {
        Attempt attempt(plan);
        decide(plan, decision);
        attempt.keep();
      }
      ASSERT_EQ(state_of(plan), after) << to_text(decision) << " was kept";
      schedule.trace.push_back(decision);
    }
    // Some rules speak only where the nest is made.
    std::optional<LoopNest> nest;
    const std::string wrong = error_of([&] {
      nest = apply(p, schedule);
      verify(*nest);
    });
    if (wrong.empty()) expect_same(p, *nest, random_arguments(p, random), to_text(schedule));
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(accepted.size(), 14U) << fmt::format("{}", fmt::join(accepted, " "));
  EXPECT_GE(refused.size(), 24U) << fmt::format("{}", fmt::join(refused, " "));
  EXPECT_GT(undone, 3000U);
}

TEST(Attempt, NamesTheRowAndWhatItIsAbout) {
  program::ParseOptions options;
  options.sizes = {{"m", 4}, {"n", 6}, {"k", 3}};
  Plan plan(program::parse("y[m,n] = sum[k] a[m,k] * b[k,n]", options), Dtype::F32);
  const Refused why = try_decide(plan, {"vectorize", "y", {"m"}, {}, "", {}});
  ASSERT_TRUE(why);
  EXPECT_EQ(why->row, "vectorize");
  EXPECT_EQ(why->where(), "schedule");
  EXPECT_EQ(why->arguments(), (std::vector<Refusal::Argument>{std::string("m"), std::string("k")}));
  EXPECT_EQ(why->reason(),
            "only the innermost loop can be vectorised: 'm' has 'k' inside; reorder them first");
  EXPECT_THROW(decide(plan, {"vectorize", "y", {"m"}, {}, "", {}}), ScheduleError);
  EXPECT_THROW(decide(plan, {"vectorise", "y", {"m"}, {}, "", {}}), UnknownName);
}

}  // namespace
}  // namespace syno::schedule
