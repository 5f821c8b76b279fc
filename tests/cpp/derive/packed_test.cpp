// Packed states: every step from random programs and states computes what the program does, exactly.
#include "derive/packed.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "derive/checking.hpp"

namespace syno::derive::packed {
namespace {

using namespace derive::testing;

/// Sums of products at sizes by lot.
Program random_product(Random& random) {
  static const std::vector<std::string> kTexts{
      "y[n: 2,o: 2,h: {a},w: {b}] = sum[c: {n},r: 3,s: 3] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
      "y[o: 2,h: {a}] = sum[c: 2,r: {n}] x[c,{m}*h+r-{t}] * k[o,c,r]",
      "y[o: 2,h: {a}] = sum[c: 2,r: {n}] x[c,h+{m}*r-{t}] * k[o,c,r]",
      "y[o: 2,h: {a}] = sum[c: 2,r: {n}] x[c,h+{t}-r] * k[c,o,r]",
      "y[g: 2,o: 2,h: {a}] = sum[c: 2,r: {n}] x[2*g+c,h+r-1] * k[g,o,c,r]",
      "y[o: 8,h: {a}] = sum[c: 2,r: 2] x[c,h-r] * k[c,o/2,2*r+o%2]",
      "y[b: 2,m: {l},w: {n}] = sum[k: 3] p[b,m,k] * q[b,m+{m}*w-{m},k]",
      "y[b: 2,m: {l},w: {n}] = sum[k: 2] p[b,m,k] * q[b,m+4*w-4,k]",
      "y[i: {l},j: {b}] = sum[k: 8] p[i,k] * q[k,j]",
      "y[o: 4,h: {a}] = sum[c: 2,r: 5] x[c,h+r-2] * k[o,c,r]",
      "y[h: {a},w: 4] = sum[q: 2,r: 4,s: 5] x[h+2*q+r,w+s-2] * k[q,r,s]",
      "y[i: 12,j: 8] = sum[k: {n}] p[i/4,i%4+k,j] * q[k,j%2]",
      "y[h: {a}] = sum[r: {n},c: {b}] x[c,h+r-1] * k[c,r] * g[c]",
  };
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1)));
  };
  for (;;) {
    try {
      return program::parse(fmt::format(fmt::runtime(kTexts[random.below(kTexts.size())]),
                                        fmt::arg("a", draw(2, 9)), fmt::arg("b", draw(2, 5)),
                                        fmt::arg("m", draw(2, 4)), fmt::arg("t", draw(0, 3)),
                                        fmt::arg("n", draw(2, 5)), fmt::arg("l", draw(6, 13))));
    } catch (const Error&) {  // sizes at which a tensor would be empty
    }
  }
}

TEST(Packed, StepsKeepWhatIsComputed) {
  std::map<Rule, int> times;
  int guarded = 0, checked = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const Program p = random_product(random);
    Packed packed = pack(p, 0);
    ASSERT_TRUE(packed.space) << packed.reason;
    Space& space = *packed.space;
    State state = space.given;
    ASSERT_EQ(difference(p, program_of(p, 0, space, state), random), "") << program::to_text(p);
    std::vector<Move> found;
    std::string path;
    const auto steps = 1 + random.below(9);
    for (std::uint64_t step = 0; step < steps; ++step) {
      Amounts amounts;
      moves(space, state, amounts, found);
      // Each rule as often as the others, so that those with few sites come to their turn.
      std::set<Rule> rules;
      for (const Move& move : found) rules.insert(move.rule);
      if (rules.empty()) break;
      auto rule = rules.begin();
      std::advance(rule, static_cast<std::ptrdiff_t>(random.below(rules.size())));
      std::erase_if(found, [&](const Move& move) { return move.rule != *rule; });
      const Move move = found[random.below(found.size())];
      State next = state;
      if (!apply(space, next, move)) continue;
      path += fmt::format(" {}({},{},{})", name_of(move.rule), move.a, move.b, move.number);
      state = next;
      ++times[move.rule];
      guarded += state.guards > 0 ? 1 : 0;
    }
    ++checked;
    const Program made = program_of(p, 0, space, state);
    ASSERT_EQ(difference(p, made, random), "") << seed << path << "\n"
                                               << program::to_text(p) << "\n"
                                               << program::to_text(made);
  }
  EXPECT_EQ(checked, 400);
  for (int rule = 0; rule < kRules; ++rule)
    EXPECT_GE(times[static_cast<Rule>(rule)], 15) << name_of(static_cast<Rule>(rule));
  RecordProperty("guarded", guarded);
}

}  // namespace
}  // namespace syno::derive::packed
