// The search among equivalent programs, and the part of a program that is computed once: whatever they give
// computes what was given, for random programs.
#include "derive/search.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "derive/folded.hpp"
#include "derive/forms.hpp"
#include "derive/tools.hpp"
#include "equality/keys.hpp"
#include "lower/compacted.hpp"
#include "program/interpret.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/random.hpp"
#include "whole/random_chain.hpp"

namespace syno::derive {
namespace {

using Inputs = std::map<std::string, program::Values<double>>;

Inputs small_inputs(const Program& p, Random random) {
  Inputs inputs;
  for (const TensorId id : p.inputs()) {
    program::Values<double> values{program::shape_of(p, id), {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : values.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) values.data.push_back(static_cast<double>(random.below(7)) - 3);
    inputs.emplace(p.tensor(id).name, std::move(values));
  }
  return inputs;
}

void expect_same(const Inputs& wanted, const Inputs& got, const std::string& about) {
  ASSERT_EQ(wanted.size(), got.size()) << about;
  for (const auto& [name, values] : wanted) {
    ASSERT_TRUE(got.contains(name)) << about;
    const auto& found = got.at(name);
    ASSERT_EQ(found.shape, values.shape) << about;
    for (std::size_t i = 0; i < values.data.size(); ++i) {
      const double a = values.data[i], b = found.data[i];
      const bool same =
          a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-9 * std::max(1.0, std::abs(a));
      ASSERT_TRUE(same) << about << "\nelement " << i << " of " << name << ": " << a << " and " << b;
    }
  }
}

Program random_program(std::uint64_t seed) {
  for (std::uint64_t more = 0;; ++more) {
    try {
      return program::parse(syno::testing::RandomChain(seed + 1'000'003 * more)());
    } catch (const Error&) {  // sizes at which a tensor would be empty
    }
  }
}

SearchOptions short_search() {
  SearchOptions options;
  options.seconds = 0;
  options.states = 40;
  options.cost_growth = 50;
  return options;
}

TEST(DerivationSearch, EveryProgramComputesWhatWasGiven) {
  std::size_t compared = 0;
  std::set<std::string> rows;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const Program p = random_program(seed);
    const Inputs inputs = small_inputs(p, Random(seed));
    const Inputs wanted = program::interpret(p, inputs);
    const Found found = search(p, short_search());
    ASSERT_TRUE(found.derivations.front().steps.empty());
    for (const Derivation& derivation : found.derivations) {
      program::verify(derivation.program);
      const std::string text = program::to_text(derivation.program);
      expect_same(wanted, program::interpret(derivation.program, inputs), program::to_text(p) + "\n" + text);
      for (const Step& step : derivation.steps) rows.insert(step.row);
      ++compared;
    }
  }
  EXPECT_GE(compared, 300u);
  EXPECT_GE(rows.size(), 3u);
}

TEST(DerivationSearch, FindsTheSameEachTimeWithAnyNumberOfThreads) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Program p = random_program(seed);
    SearchOptions several = short_search();
    several.threads = 3;
    const Found a = search(p, short_search()), b = search(p, several);
    EXPECT_EQ(a.applications, b.applications);
    EXPECT_EQ(a.repeats, b.repeats);
    ASSERT_EQ(a.derivations.size(), b.derivations.size());
    EXPECT_EQ(a.states, b.states);
    for (std::size_t i = 0; i < a.derivations.size(); ++i)
      EXPECT_EQ(program::to_text(a.derivations[i].program), program::to_text(b.derivations[i].program));
  }
}

/// Rows with few sites each, so that all programs can be made.
const std::vector<std::string> kFewRows{"factor", "inline",    "share",     "solve",
                                        "turn",   "split_sum", "merge_sum", "substitute"};

/// Every program that at most `depth` steps of those lead to, level by level.
std::set<Hash128> all_programs(const Program& given, int depth) {
  const auto tidy = [](const Program& p) {
    const auto inputs = p.inputs();
    return lower::compacted(p, {inputs.begin(), inputs.end()});
  };
  std::set<Hash128> seen = {equality::structural_key(tidy(given))};
  std::vector<Program> level = {tidy(given)};
  for (int d = 0; d < depth; ++d) {
    std::vector<Program> next;
    for (const Program& p : level)
      for (const std::string& name : kFewRows)
        for (const Site& site : sites(rewrite_named(name), p)) {
          Program made = p;
          derive::apply(rewrite_named(name), made, site);
          made = tidy(made);
          if (seen.insert(equality::structural_key(made)).second) next.push_back(std::move(made));
        }
    level = std::move(next);
    if (seen.size() > 400) break;
  }
  return seen;
}

// A memo that forgets at which depth a program was seen loses what lies behind it: the search goes deep
// before it is done with what is near.
TEST(DerivationSearch, SeesEveryProgramWithinItsDepth) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Program p = random_program(seed);
    for (int depth = 1; depth <= 3; ++depth) {
      SearchOptions options = short_search();
      options.states = 0;
      options.rows = kFewRows;
      options.depth = depth;
      options.cost_growth = 1e9;
      const std::set<Hash128> all = all_programs(p, depth);
      if (all.size() > 400) break;
      const Found found = search(p, options);
      EXPECT_EQ(found.ended, Ended::Exhausted);
      EXPECT_EQ(found.states, static_cast<std::int64_t>(all.size())) << depth << "\n" << program::to_text(p);
      for (const Derivation& each : found.derivations) EXPECT_TRUE(all.contains(each.key));
      ++compared;
    }
  }
  EXPECT_GE(compared, 100);
}

TEST(DerivationSearch, StopsWhereItIsTold) {
  const Program p = program::parse("y[i: 8,j: 9] = exp(x[i,j]) / sum[k: 9] exp(x[i,k])");
  SearchOptions options = short_search();
  options.states = 2;
  EXPECT_EQ(search(p, options).ended, Ended::States);
  options.states = 0;
  const Found stopped = search(p, options, [](const Progress&) { return false; });
  EXPECT_EQ(stopped.ended, Ended::Stopped);
  EXPECT_EQ(stopped.derivations.size(), 1u);
  options.depth = 1;
  for (const Derivation& each : search(p, options).derivations) EXPECT_LE(each.steps.size(), 1u);
}

/// Ctrl-C is the watch's to hear: an interruption point anywhere in a rewrite would lose what was found.
TEST(DerivationSearch, KeepsWhatItHasWhereOthersAreInterrupted) {
  const Program p = program::parse("y[o: 8,h: 12,w: 12] = sum[c: 8,r: 3,s: 3] x[c,h+r-1,w+s-1] * k[o,c,r,s]");
  struct Heard {
    Heard() {
      set_interruption_handler([] { throw 1; });
    }
    ~Heard() { set_interruption_handler(nullptr); }
  } heard;
  SearchOptions options;
  options.seconds = 0;
  options.states = 20000;
  Found found;
  EXPECT_NO_THROW(found = search(p, options, [](const Progress& now) { return now.seconds < 0.5; }));
  EXPECT_GT(found.derivations.size(), 1U);
  EXPECT_ANY_THROW(check_interruption()) << "and is heard again";
}

TEST(DerivationSearch, RefusesWhatItCannotSearch) {
  const Program p = program::parse("y[i: 8] = x[i] * 2");
  SearchOptions options;
  options.rows = {"factr"};
  EXPECT_THROW(search(p, options), UnknownName);
  options.rows = {};
  options.constants = {"z"};
  EXPECT_THROW(search(p, options), UnknownName);
}

TEST(DerivationSearch, KeepsToTheRowsItIsGiven) {
  const Program p = program::parse("y[o: 32,h: 40] = sum[c: 32,r: 3] x[c,h+r-1] * k[o,c,r]");
  SearchOptions options = short_search();
  options.rows = {"toom_cook"};
  const Found found = search(p, options);
  EXPECT_GE(found.derivations.size(), 2u);
  for (const Derivation& each : found.derivations)
    for (const Step& step : each.steps) EXPECT_EQ(step.row, "toom_cook");
  options.reassociating = false;
  EXPECT_EQ(search(p, options).derivations.size(), 1u);
}

// Among others, a program that costs more and does no less than one with fewer steps is none to look at.
TEST(DerivationSearch, GivesNoStepsInVain) {
  const Program p = program::parse("y[o: 32,h: 40] = sum[c: 32,r: 3] x[c,h+r-1] * k[o,c,r]");
  SearchOptions options = short_search();
  options.states = 300;
  const Found found = search(p, options);
  for (std::size_t i = 1; i < found.derivations.size(); ++i) {
    const std::vector<Step>& steps = found.derivations[i].steps;
    if (rewrite_named(steps.front().row).finishes) continue;  // about where results lie
    const Estimate &first = found.derivations[0].estimate, &own = found.derivations[i].estimate;
    EXPECT_TRUE(own.seconds < first.seconds || own.multiply_adds < first.multiply_adds);
  }
}

/// A band has no equal program of fewer multiply-adds, but one whose operands serve several of them.
TEST(DerivationSearch, FindsBlocksOfBands) {
  for (const char* text : {"y[b: 4,m: 500,w: 101] = sum[k: 64] a[b,m,k] * c[b,m+w-50,k]",
                           "y[m: 700,w: 65] = sum[k: 32] a[k,m] * c[m+w,k]"}) {
    const Program p = program::parse(text);
    SearchOptions options;
    options.seconds = 0;
    options.states = 2000;
    options.rates.levels = {{1 << 20, 2e11}, {32 << 20, 7e10}};
    const Found found = search(p, options);
    ASSERT_GT(found.derivations.size(), 1u) << text;
    const Derivation& best = found.derivations[1];
    EXPECT_LT(best.estimate.seconds, 0.8 * found.derivations[0].estimate.seconds) << text;
    const auto made = [&](const char* row) {
      return std::any_of(best.steps.begin(), best.steps.end(), [&](const Step& s) { return s.row == row; });
    };
    EXPECT_TRUE(made("split_iterator") && made("substitute")) << program::to_text(best.program);
    EXPECT_LT(best.estimate.multiply_adds, 1.2 * found.derivations[0].estimate.multiply_adds) << text;
  }
}

/// Phases of a transposed convolution are windows only once they are iterators of their own, four exact steps
/// that gain nothing more than two of them do: those of both dimensions are multiplied by their values.
TEST(DerivationSearch, FindsWindowsBehindStepsThatGainNothing) {
  const auto transposed = [](int size, int taps, int stride) {
    const auto index = [&](const char* at, const char* tap) {
      return fmt::format("({0}+1-{1})/{2} + inside(({0}+1-{1})%{2},1)", at, tap, stride);
    };
    return program::parse(
        fmt::format("input x[8,64,{0},{0}]\nweight k[64,48,{1},{1}]\n"
                    "y[n: 8,o: 48,h: {2},w: {2}] = sum[c: 64,r: {1},s: {1}] "
                    "x[n,c,{3},{4}] * k[c,o,r,s]\nreturn y",
                    size, taps, size * stride, index("h", "r"), index("w", "s")));
  };
  for (const Program& p : {transposed(12, 4, 2), transposed(8, 4, 2), transposed(8, 6, 3)}) {
    SearchOptions options;
    options.seconds = 0;
    options.states = 8000;
    options.constants = {"k"};
    options.rates.levels = {{1 << 20, 2e11}, {32 << 20, 7e10}};
    const Found found = search(p, options);
    int of_both = 0;
    for (const Derivation& each : found.derivations) {
      const auto times = [&](const char* row) {
        return std::count_if(each.steps.begin(), each.steps.end(),
                             [&](const Step& step) { return step.row == row; });
      };
      of_both += times("solve") >= 2 && times("toom_cook") >= 2;
    }
    EXPECT_GT(of_both, 0) << program::to_text(p);
  }
}

/// What a row says its sites leave is what they leave: points of the sum of products before and after.
TEST(DerivationSearch, RowsLeaveWhatTheySay) {
  Random random(3);
  int compared = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const std::int64_t taps = 2 + random.below(4), size = 3 + random.below(20), outputs = 1 + random.below(4);
    const Program p = program::parse(
        fmt::format("y[o: {0},h: {1},w: {2}] = sum[c: 3,r: {3},s: 2] x[c,h+r-1,w+s] * k[o,c,r,s]", outputs,
                    size, 2 + random.below(9), taps));
    for (const Rewrite& row : rewrites())
      for (const Site& site : row.leaves ? sites(row, p) : std::vector<Site>{}) {
        Program made = p;
        apply(row, made, site);
        double after = 0;  // of what still multiplies data by a window: the largest scope but transformations
        for (const Scope& scope : made.scopes)
          if (program::reads_in(made, scope.body).size() == 2 &&
              scope.sums.size() == p.scopes[0].sums.size() - 1) {
            double points = 1;
            for (const auto* list : {&scope.traversal, &scope.sums})
              for (const Iterator& i : *list) {
                const auto [begin, end] = range_of(made, i.range);
                points *= static_cast<double>(end - begin);
              }
            after = std::max(after, points);
          }
        const double before = estimate(p, {}, {}).multiply_adds;
        EXPECT_NEAR(after / before, row.leaves(p, 0, site), 1e-9) << program::to_text(made);
        ++compared;
      }
  }
  EXPECT_GT(compared, 100);
}

/// Among what is found is the given program with its intermediate results by channels.
TEST(DerivationSearch, LaysResultsOfTheGivenProgramOtherwise) {
  const Program p = program::parse(
      "input x[1,32,7,28]\nweight k[32,32]\nweight g[32,7]\n"
      "t[n: 1,c: 32,h: 7,w: 4] = sum[d: 32] x[n,d,h,7*w] * k[c,d]\n"
      "y[n: 1,c: 32,h: 7,w: 28] = t[n,c,h,(w/7+1)%4] * g[c,w%7]\nreturn y");
  SearchOptions options = short_search();
  options.constants = {"k", "g"};
  const Found found = search(p, options);
  EXPECT_TRUE(std::any_of(found.derivations.begin(), found.derivations.end(), [](const Derivation& each) {
    return each.steps.size() == 1 && each.steps[0].row == "innermost";
  }));
}

TEST(Windows, AreToldFromOtherProducts) {
  const auto sliding = [](const char* text) { return slides(program::parse(text)); };
  EXPECT_TRUE(sliding("y[o: 4,h: 6] = sum[c: 3,r: 3] x[c,h+r-1] * k[o,c,r]"));
  EXPECT_TRUE(sliding("y[m: 9,w: 5] = sum[k: 3] a[m,k] * c[m+w,k]"));
  EXPECT_TRUE(sliding("y[o: 4,h: 6] = sum[c: 3,r: 4] x[c,(h+1-r)/2] * k[o,c,r]"));
  EXPECT_FALSE(sliding("y[i: 4,j: 5] = sum[k: 6] a[i,k] * b[k,j]"));
  EXPECT_FALSE(sliding("y[i: 4] = sum[r: 3] x[i+r]")) << "nothing is multiplied";
  EXPECT_FALSE(sliding("y[i: 4] = x[i+1] * x[i]")) << "no sum";
}

// Folding

Inputs run_folded(const Folded& parts, const Inputs& inputs) {
  const auto chosen = [](const Program& p, const Inputs& from) {
    Inputs result;
    for (const TensorId id : p.inputs()) result.emplace(p.tensor(id).name, from.at(p.tensor(id).name));
    return result;
  };
  Inputs all = inputs;
  for (auto& [name, values] : program::interpret(parts.once, chosen(parts.once, inputs)))
    all.insert_or_assign(name, values);
  return program::interpret(parts.call, chosen(parts.call, all));
}

TEST(Folding, TheTwoProgramsComputeTheOne) {
  std::size_t folds = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Program p = random_program(seed);
    Random random(seed);
    std::vector<std::string> constants;
    for (const TensorId input : p.inputs())
      if (random.below(2) == 0) constants.push_back(p.tensor(input).name);
    const auto parts = folded(p, constants);
    if (!parts) continue;
    ++folds;
    program::verify(parts->once);
    program::verify(parts->call);
    for (const TensorId id : parts->once.inputs())
      EXPECT_NE(std::find(constants.begin(), constants.end(), parts->once.tensor(id).name), constants.end());
    const Inputs inputs = small_inputs(p, random);
    expect_same(program::interpret(p, inputs), run_folded(*parts, inputs), program::to_text(p));
    EXPECT_GE(constant_bytes(p, constants).after, 0);
  }
  EXPECT_GE(folds, 60u);
}

TEST(Folding, LeavesWhatCallsNeed) {
  const auto parse = [](const char* text) { return program::parse(text); };
  // No constants; nothing computed of constants alone; an output, which every call writes.
  EXPECT_FALSE(folded(parse("t[i: 4] = k[i]*2; y[i: 4] = x[i]*t[i]; return y"), {}));
  EXPECT_FALSE(folded(parse("t[i: 4] = x[i]*2; y[i: 4] = k[i]*t[i]; return y"), {"k"}));
  EXPECT_FALSE(folded(parse("t[i: 4] = k[i]*2; y[i: 4] = x[i]*t[i]; return y, t"), {"k"}));
  // What depends on the place alone.
  EXPECT_FALSE(folded(parse("t[i: 4] = i*i; y[i: 4] = x[i]*t[i]*k[i]; return y"), {"k"}));
  EXPECT_FALSE(folded(parse("t[i: 4] = sum[j: 9] j; y[i: 4] = x[i]*t[i]; return y"), {}));
  const auto parts = folded(parse("t[i: 4] = k[i]*2; y[i: 4] = x[i]*t[i]; return y"), {"k"});
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->once.scopes.size(), 1u);
  EXPECT_EQ(parts->call.scopes.size(), 1u);
  EXPECT_EQ(parts->call.inputs().size(), 2u);
  EXPECT_THROW(folded(parse("y[i: 4] = x[i]"), {"z"}), UnknownName);
}

TEST(Folding, CountsTheBytesThatCallsRead) {
  const Program p = program::parse("t[i: 4,j: 3] = k[i]*j; y[i: 4] = sum[j: 3] x[j]*t[i,j]*b[i]; return y");
  const ConstantBytes bytes = constant_bytes(p, {"k", "b"});
  EXPECT_EQ(bytes.before, 4 * (4 + 4));
  EXPECT_EQ(bytes.after, 4 * (12 + 4));
}

// Estimating

TEST(Estimating, ProductsAreCheaperAPointThanShortSums) {
  const Rates rates;
  const auto cost = [&](const char* text) { return estimate(program::parse(text), rates, {}); };
  const Estimate product = cost("y[i: 64,j: 64] = sum[k: 64] a[i,k] * b[k,j]");
  const Estimate sums = cost("y[i: 4096,j: 16] = sum[k: 4] a[i,4*j+k] * b[k]");
  EXPECT_EQ(product.multiply_adds, sums.multiply_adds);
  EXPECT_LT(product.seconds, sums.seconds);
  EXPECT_EQ(product.bytes, 4 * 3 * 4096);
  // Every vector of c is loaded for one multiply-add.
  const Estimate band = cost("y[i: 64,j: 64] = sum[k: 64] a[i,k] * c[i+j,k]");
  EXPECT_EQ(product.multiply_adds, band.multiply_adds);
  EXPECT_LT(product.seconds, band.seconds);
  const Program copy = program::parse("y[i: 8] = x[7-i]");
  EXPECT_EQ(estimate(copy, rates, {}).multiply_adds, 0);
  EXPECT_EQ(estimate(copy, rates, {copy.scopes[0].output}).seconds, 0);
}

}  // namespace
}  // namespace syno::derive
