// Every row of rewrites, wherever it applies in random programs, one after the other: what comes out computes
// the same, exactly where its functions are rational. And what must not be: other sites, a row that is wrong.
#include "derive/rewrite.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "derive/checking.hpp"

namespace syno::derive {
namespace {

using namespace testing;

/// Up to `most` of them, by lot, in their order.
std::vector<Site> some_of(std::vector<Site> all, std::size_t most, Random& random) {
  while (all.size() > most) all.erase(all.begin() + static_cast<std::ptrdiff_t>(random.below(all.size())));
  return all;
}

TEST(Rewrites, KeepWhatIsComputedAtEverySite) {
  std::map<std::string_view, int> times;
  std::int64_t taken = 0;
  const std::int64_t wanted = applications(0);
  for (std::uint64_t seed = 0; seed < 300 || taken < wanted; ++seed) {
    Random random(seed);
    Program p = random_program(random);
    for (int step = 0; step < 3; ++step) {
      std::vector<std::pair<const Rewrite*, Site>> all;
      for (const Rewrite& row : rewrites())
        for (const Site& site : some_of(sites(row, p), 2, random)) {
          all.emplace_back(&row, site);
          const Program after = applied(row, p, site);
          ASSERT_EQ(difference(p, after, random), "") << seed << " " << text_of(row, site) << "\n"
                                                      << program::to_text(p) << "\n"
                                                      << program::to_text(after);
          ++times[row.name];
          ++taken;
        }
      if (all.empty()) break;
      const auto& [row, site] = all[random.below(all.size())];
      p = tidy(applied(*row, std::move(p), site));
    }
  }
  for (const Rewrite& row : rewrites()) EXPECT_GE(times[row.name], 20) << row.name;
  fmt::print("{} applications of {} rewrites\n", taken, rewrites().size());
}

TEST(Rewrites, AreRefusedWhereFindGivesNoSite) {
  std::map<std::string_view, int> refused;
  static const std::vector<std::vector<std::int64_t>> kNumbers{{}, {2}, {4, 3}, {1, 1, 0}, {0, 5}};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Program p = random_program(random);
    const std::string text = program::to_text(p);
    std::vector<std::string> scopes{"no_such_scope"}, names{"", "no_such_iterator"};
    for (const Scope& scope : p.scopes) {
      scopes.push_back(p.tensor(scope.output).name);
      names.push_back(scopes.back());
      for (const auto* list : {&scope.traversal, &scope.sums})
        for (const Iterator& iterator : *list) names.push_back(iterator.name);
    }
    const auto any = [&](const auto& from) { return from[random.below(from.size())]; };
    for (const Rewrite& row : rewrites()) {
      const auto good = sites(row, p);
      for (int tries = 0; tries < 30; ++tries) {
        Site site{any(scopes), any(names), random.below(2) == 0 ? "" : any(names), {}, any(kNumbers)};
        if (!good.empty() && random.below(2) == 0) {  // one part of a good one is another
          Site other = any(good);
          switch (random.below(4)) {
            case 0:
              other.scope = site.scope;
              break;
            case 1:
              other.iterator = site.iterator;
              break;
            case 2:
              other.other = site.other;
              break;
            default:
              other.numbers = site.numbers;
          }
          site = other;
        }
        if (std::find(good.begin(), good.end(), site) != good.end()) continue;
        if (row.schedules && std::any_of(good.begin(), good.end(), [&](const Site& other) {
              return site.scope == other.scope &&
                     (row.name == "share" || site.iterator == other.iterator || other.iterator.empty()) &&
                     (site.other == other.other || other.other.empty());
            }))
          continue;  // what these do not look at
        EXPECT_THROW(row.apply(p, site), ScheduleError) << text_of(row, site) << "\n" << text;
        EXPECT_EQ(program::to_text(p), text) << row.name << " changed what it refused";
        ++refused[row.name];
      }
    }
  }
  for (const Rewrite& row : rewrites()) EXPECT_GE(refused[row.name], 60) << row.name;
}

/// Takes factors out of whatever reduces, as if all reductions were linear.
Program out_of_any_reduction(Program p, const Site& site) {
  for (Scope& scope : p.scopes)
    if (p.tensor(scope.output).name == site.scope) scope.reduction = program::Reduction::Sum;
  return applied(rewrite_named("factor"), std::move(p), site);
}

TEST(Rewrites, OfWhichOneIsWrongAreFoundOut) {
  const Program greatest = program::parse("y[i: 3] = max[k: 4] x[i,k] * g[i]");
  EXPECT_NE(difference(greatest, out_of_any_reduction(greatest, {"y", "", "", ""}), Random(3)), "");
  const Program turned = program::parse("y[c: 2,w: 7] = sum[d: 3] x[d,(w+1)%7] * k[c,d,(w+1)%7]");
  Program further = applied(rewrite_named("turn"), turned, {"y", "w", "", ""});
  for (Scalar& scalar : further.scalars)
    if (scalar.kind == ScalarKind::Read && scalar.tensor == further.scopes[0].output)
      scalar.indices[1] = further.arena.modulo(
          further.arena.add(scalar.indices[1], further.arena.constant(1)), symbolic::Size(7));
  EXPECT_NE(difference(turned, further, Random(3)), "");
}

TEST(Copies, AreIndicesOfTheirReaders) {
  int fewer = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Program p = random_program(random), made = without_copies(p);
    program::verify(made);
    EXPECT_EQ(difference(p, made, random), "") << seed << "\n" << program::to_text(p);
    EXPECT_EQ(made.inputs().size(), p.inputs().size());
    fewer += made.scopes.size() < p.scopes.size() ? 1 : 0;
  }
  EXPECT_GE(fewer, 3);
  const auto text = [](const char* given) {
    return program::to_short_text(without_copies(program::parse(given)));
  };
  EXPECT_EQ(text("input x[9,2]\ninput q[9,2]\np[m: 13,k: 2] = x[m-2,k]\nb[m: 9,k: 2,w: 5] = p[m+w,k]\n"
                 "y[m: 9,w: 5] = sum[k: 2] q[m,k] * b[m,k,w]\nreturn y"),
            "y[m,w] = sum[k] q[m,k] * x[m+w-2,k]");
  EXPECT_EQ(text("input x[4]\nt[i: 4] = x[3-i]\ny[i: 4] = t[i] * 2\nreturn y, t"),
            "t[i] = x[3-i]\ny[i] = t[i] * 2\nreturn y, t")
      << "an output is written";
}

TEST(Rewrites, NameWhatTheyMake) {
  const Program p = program::parse("y[i: 3] = sum[k: 4] x[i,k] * g[i]");
  const Rewrite& factor = rewrite_named("factor");
  EXPECT_TRUE(applied(factor, p, {"y", "", "", "sums"}).find_tensor("sums"));
  EXPECT_THROW(applied(factor, p, {"y", "", "", "x"}), ScheduleError);
  EXPECT_THROW(rewrite_named("factors"), UnknownName);
}

}  // namespace
}  // namespace syno::derive
