// Every row of rewrites, wherever it applies in random programs, one after the other: what comes out computes
// the same, exactly where its functions are rational. And what must not be: other sites, a row that is wrong.
#include "derive/rewrite.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "lower/compacted.hpp"
#include "lower/derivative.hpp"
#include "program/interpret.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"
#include "support/random.hpp"
#include "whole/random_chain.hpp"

namespace syno::derive {
namespace {

template <class T>
std::map<std::string, program::Values<T>> random_inputs(const Program& p, Random random) {
  std::map<std::string, program::Values<T>> inputs;
  for (const TensorId id : p.inputs()) {
    program::Values<T> values{program::shape_of(p, id), {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : values.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i)
      values.data.push_back(T(static_cast<std::int64_t>(random.below(7)) - 3));
    inputs.emplace(p.tensor(id).name, std::move(values));
  }
  return inputs;
}

bool close(const Rational& a, const Rational& b) { return a == b; }
bool close(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-9 * std::max(1.0, std::abs(a));
}

template <class T>
std::string difference_in(const Program& before, const Program& after, const Random& random) {
  const auto wanted = program::interpret(before, random_inputs<T>(before, random));
  const auto got = program::interpret(after, random_inputs<T>(after, random));
  if (wanted.size() != got.size()) return "other outputs";
  for (const auto& [name, values] : wanted) {
    const auto found = got.find(name);
    if (found == got.end() || found->second.shape != values.shape) return "no output " + name;
    for (std::size_t i = 0; i < values.data.size(); ++i)
      if (!close(values.data[i], found->second.data[i])) return fmt::format("element {} of {}", i, name);
  }
  return {};
}

Program applied(const Rewrite& row, Program program, const Site& site) {
  row.apply(program, site);
  return program;
}

/// Without tensors that nobody computes any more.
Program tidy(const Program& p) {
  const auto inputs = p.inputs();
  return lower::compacted(p, {inputs.begin(), inputs.end()});
}

/// Where two programs differ; empty where they do not.
std::string difference(const Program& before, const Program& rewritten, const Random& random) {
  const Program after = tidy(rewritten);
  program::verify(after);
  try {
    return difference_in<Rational>(before, after, random);
  } catch (const Error&) {  // a function that is not rational, or numbers beyond 64 bits
    return difference_in<double>(before, after, random);
  }
}

/// What the rows are about, at sizes by lot; random chains hold the other kinds of programs.
std::string about_a_row(Random& random) {
  static const std::vector<std::string> kTexts{
      "y[h: {a}] = sum[c: {b},r: {m}] x[c,(h+{t}-r)/{m} + inside((h+{t}-r)%{m},1)] * w[c,r]",
      "y[h: {a}] = sum[c: {b},r: 5] x[c,(h+{t}+r)/{m} + inside((h+{t}+r)%{m},1)] * w[r,c]",
      "y[h: {a}] = sum[r: 5] w[r] * x[(2*h+5*r)/3 + inside((2*h+5*r)%3,1)]",
      "y[c: {b},h: 3,w: 7] = sum[d: {a}] x[d,h,(w+{m})%7] * k[c,d,(w+{m})%7]",
      "y[c: {b},h: 12] = sum[d: {a}] x[d,4*(h/4)+(h+3)%4] * k[c,d,(h+3)%4]",
      "y[i: {a},j: {b}] = exp(x[i,j]) / sum[k: {b}] exp(x[i,k])",
      "s[i: {a}] = sum[k: {b}] exp(x[i,k]) * z[k]\ny[i: {a}, j: {b}] = s[i] * exp(x[i,j])\nreturn y",
      "y[i: {a},j: {b}] = sum[k: {m}] a[i,k] * b[j,k] / (3 + j)",
      "y[i: {a},j: {b}] = sum[k: {m}] -(g[i] * a[i,k]) * b[k,j]",
      "y[i: {a},j: {b}] = mean[k: {m}] s[] * (a[i,k] + b[j,k])",
      "t[i: {a}] = relu(x[i-1]) + i\nu[i: {a}] = t[i+1] * t[{a}-i]\ny[j: {b}] = sum[i: {a}] u[i+j-1] * "
      "2\nreturn y",
      "t[i: {a},j: {b}] = x[i,j] * 2 - z[j]\ny[j: {b}] = max[i: {a}] (t[i,j+1] fill -9)\nreturn y, t",
  };
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1)));
  };
  const std::int64_t m = draw(2, 4);
  return fmt::format(fmt::runtime(kTexts[random.below(kTexts.size())]), fmt::arg("a", draw(1, 9)),
                     fmt::arg("b", draw(1, 6)), fmt::arg("m", m), fmt::arg("t", draw(0, 3)));
}

Program random_program(Random& random) {
  std::optional<Program> made;
  while (!made) {
    try {
      made = program::parse(random.below(3) == 0 ? testing::RandomChain(random.below(1 << 30))()
                                                 : about_a_row(random));
    } catch (const Error&) {  // sizes at which a tensor would be empty
    }
  }
  Program p = std::move(*made);
  if (random.below(4) != 0) return p;
  try {
    const auto inputs = p.inputs();
    return lower::derivative(p, p.tensor(inputs[random.below(inputs.size())]).name);
  } catch (const Error&) {  // none with respect to that input
    return p;
  }
}

TEST(Rewrites, KeepWhatIsComputedAtEverySite) {
  std::map<std::string_view, int> times;
  for (std::uint64_t seed = 0; seed < 700; ++seed) {
    Random random(seed);
    Program p = random_program(random);
    for (int step = 0; step < 5; ++step) {
      std::vector<std::pair<const Rewrite*, Site>> all;
      for (const Rewrite& row : rewrites())
        for (const Site& site : sites(row, p)) {
          all.emplace_back(&row, site);
          const Program after = applied(row, p, site);
          ASSERT_EQ(difference(p, after, random), "") << seed << " " << row.name << " at " << site.scope
                                                      << " " << site.iterator << " " << site.other << "\n"
                                                      << program::to_text(p) << "\n"
                                                      << program::to_text(after);
          ++times[row.name];
        }
      if (all.empty()) break;
      const auto& [row, site] = all[random.below(all.size())];
      p = tidy(applied(*row, std::move(p), site));
    }
  }
  for (const Rewrite& row : rewrites()) EXPECT_GE(times[row.name], 40) << row.name;
}

TEST(Rewrites, AreRefusedWhereFindGivesNoSite) {
  std::map<std::string_view, int> refused;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Program p = random_program(random);
    const std::string text = program::to_text(p);
    std::vector<std::string> scopes{"no_such_scope"}, iterators{"", "no_such_iterator"};
    for (const Scope& scope : p.scopes) {
      scopes.push_back(p.tensor(scope.output).name);
      for (const auto* list : {&scope.traversal, &scope.sums})
        for (const Iterator& iterator : *list) iterators.push_back(iterator.name);
    }
    for (const Rewrite& row : rewrites()) {
      const auto good = sites(row, p);
      const bool by_iterator = row.name == "solve" || row.name == "turn", by_other = row.name == "share";
      for (const std::string& scope : scopes)
        for (const std::string& iterator : by_iterator ? iterators : std::vector<std::string>{""})
          for (const std::string& other : by_other ? scopes : std::vector<std::string>{""}) {
            const Site site{scope, iterator, other, {}};
            if (std::find(good.begin(), good.end(), site) != good.end()) continue;
            EXPECT_THROW(row.apply(p, site), ScheduleError) << row.name << " at " << scope << " " << iterator;
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

TEST(Rewrites, NameWhatTheyMake) {
  const Program p = program::parse("y[i: 3] = sum[k: 4] x[i,k] * g[i]");
  const Rewrite& factor = rewrite_named("factor");
  EXPECT_TRUE(applied(factor, p, {"y", "", "", "sums"}).find_tensor("sums"));
  EXPECT_THROW(applied(factor, p, {"y", "", "", "x"}), ScheduleError);
  EXPECT_THROW(rewrite_named("factors"), UnknownName);
}

}  // namespace
}  // namespace syno::derive
