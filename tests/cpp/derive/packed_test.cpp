// Packed states: every step from random programs and states computes what the program does, exactly.
#include "derive/packed.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

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

/// A step by lot, each rule as often as the others, so that those with few sites come to their turn; none
/// where there is none.
std::optional<Move> random_move(const Space& space, const State& state, Random& random) {
  std::vector<Move> found;
  moves(space, state, Amounts(), found);
  std::set<Rule> rules;
  for (const Move& move : found) rules.insert(move.rule);
  if (rules.empty()) return std::nullopt;
  auto rule = rules.begin();
  std::advance(rule, static_cast<std::ptrdiff_t>(random.below(rules.size())));
  std::erase_if(found, [&](const Move& move) { return move.rule != *rule; });
  return found[random.below(found.size())];
}

TEST(Packed, StepsKeepWhatIsComputed) {
  std::map<Rule, int> times;
  std::int64_t guarded = 0, taken = 0;
  const std::int64_t wanted = applications(1500);
  for (std::uint64_t seed = 0; taken < wanted; ++seed) {
    Random random(seed);
    const Program p = random_product(random);
    Packed packed = pack(p, 0);
    ASSERT_TRUE(packed.space) << packed.reason;
    Space& space = *packed.space;
    State state = space.given;
    ASSERT_EQ(difference(p, program_of(p, 0, space, state), random), "") << program::to_text(p);
    std::string path;
    const auto steps = 1 + random.below(9);
    for (std::uint64_t step = 0; step < steps; ++step) {
      const auto move = random_move(space, state, random);
      if (!move) break;
      State next = state;
      if (!apply(space, next, *move)) continue;
      path += fmt::format(" {}({},{},{})", name_of(move->rule), move->a, move->b, move->number);
      state = next;
      ++times[move->rule];
      ++taken;
      guarded += state.guards > 0 ? 1 : 0;
    }
    const Program made = program_of(p, 0, space, state);
    ASSERT_EQ(difference(p, made, random), "") << seed << path << "\n"
                                               << program::to_text(p) << "\n"
                                               << program::to_text(made);
  }
  for (int rule = 0; rule < kRules; ++rule)
    EXPECT_GE(times[static_cast<Rule>(rule)], 15) << name_of(static_cast<Rule>(rule));
  fmt::print("{} steps in the space of EINNET's rules, {} of them under guards\n", taken, guarded);
}

/// What a rule does, and then one number of it wrong: found out wherever the number is of consequence.
TEST(Packed, WrongStepsAreFoundOut) {
  static const std::map<std::string_view, std::function<bool(State&, Random&)>> kFaults{
      {"an index one further",
       [](State& state, Random& random) {
         if (state.dims == 0) return false;
         ++state.dim[at(static_cast<int>(random.below(static_cast<std::uint64_t>(state.dims))))].constant;
         return true;
       }},
      {"another coefficient",
       [](State& state, Random& random) {
         if (state.terms == 0) return false;
         ++state.term[at(static_cast<int>(random.below(static_cast<std::uint64_t>(state.terms))))]
               .coefficient;
         return true;
       }},
      {"a range one short",
       [](State& state, Random& random) {
         auto& extent =
             state.extent[at(static_cast<int>(random.below(static_cast<std::uint64_t>(state.iterators))))];
         if (extent < 2) return false;
         --extent;
         return true;
       }},
      {"a traversal that lies elsewhere",
       [](State& state, Random& random) {
         if (state.traversals < 2) return false;
         const auto a = at(static_cast<int>(random.below(static_cast<std::uint64_t>(state.traversals))));
         const auto b = at(static_cast<int>(random.below(static_cast<std::uint64_t>(state.traversals))));
         if (state.place[a] == state.place[b]) return false;
         std::swap(state.place[a], state.place[b]);
         return true;
       }},
  };
  std::map<std::pair<std::string_view, Rule>, std::pair<int, int>> found;  // put in, found out
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Random random(seed);
    const Program p = random_product(random);
    Packed packed = pack(p, 0);
    Space& space = *packed.space;
    State state = space.given;
    std::optional<Move> last;
    for (int step = 0; step < 3; ++step) {
      const auto move = random_move(space, state, random);
      State next = state;
      if (!move || !apply(space, next, *move)) continue;
      state = next;
      last = move;
    }
    if (!last) continue;
    for (const auto& [name, fault] : kFaults) {
      State wrong = state;
      if (!fault(wrong, random)) continue;
      auto& [put_in, out] = found[{name, last->rule}];
      ++put_in;
      out += difference(p, program_of(p, 0, space, wrong), random).empty() ? 0 : 1;
    }
  }
  // Indices of operands with one number, and ranges that were wider than need be, are of no consequence.
  for (const auto& [name, fault] : kFaults) {
    int put_in = 0, out = 0;
    for (int rule = 0; rule < kRules; ++rule) {
      const auto& [in, seen] = found[{name, static_cast<Rule>(rule)}];
      put_in += in;
      out += seen;
      if (in >= 20) EXPECT_GE(10 * seen, 3 * in) << name << " after " << name_of(static_cast<Rule>(rule));
    }
    EXPECT_GE(put_in, 30) << name;
    EXPECT_GE(2 * out, put_in) << name;
  }
}

}  // namespace
}  // namespace syno::derive::packed
