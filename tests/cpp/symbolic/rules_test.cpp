// Every row of the rule table keeps the value of what it rewrites, at every point of random iteration spaces
// and at random valuations, and fails (inside) exactly where the original does.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "fixture.hpp"
#include "support/error.hpp"
#include "symbolic/simplify.hpp"

namespace syno::symbolic {

void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name; }

namespace {

using testing::Fixture;

/// Random sizes with the divisibility synthesis relies on (k*s | H, g | C), random ranges, and instances of
/// sub-expressions and sizes to put into a rule's left-hand side.
class Instance {
 public:
  explicit Instance(Random random) : random_(random), f_(random_sizes(random_)) {
    f_.iterate("i", "H");
    f_.iterate("j", "C");
    f_.iterate("r", "k");
    f_.iterate("t", "s");
    f_.iterate("u", "H*k^-1");
    f_.iterate("v", std::to_string(2 + random_.below(40)));
    f_.iterate("p", "H + 3", "-3");
    f_.iterate("q", std::to_string(random_.below(3)), "-" + std::to_string(1 + random_.below(9)));
  }

  Fixture& fixture() { return f_; }
  Arena& arena() { return f_.arena; }
  std::uint64_t below(std::uint64_t n) { return random_.below(n); }
  std::int64_t integer() { return static_cast<std::int64_t>(random_.below(11)) - 5; }

  /// A size that is an integer at every valuation.
  Size size() {
    static const char* const kTexts[] = {"k",      "s",      "g",   "H",   "C",  "H*k^-1",
                                         "H*s^-1", "C*g^-1", "k*s", "2*s", "3*k"};
    const std::uint64_t pick = random_.below(18);
    return pick < 11 ? f_.sizes.parse(kTexts[pick]) : Size(static_cast<std::int64_t>(pick) - 9);
  }
  Size divisor() {
    const Size result = size();
    return result.is_one() ? Size(2) : result;
  }
  /// Any expression; about one in eight holds an inside() that fails at some points.
  ExprId any(int depth = 2) {
    Arena& a = arena();
    if (depth == 0 || below(4) == 0) {
      return below(6) == 0 ? a.constant(integer())
                           : a.iterator(static_cast<std::uint32_t>(below(f_.names.size())));
    }
    const ExprId x = any(depth - 1);
    switch (below(9)) {
      case 0:
        return a.multiply(x, integer());
      case 1:
        return a.multiply(x, size());
      case 2:
        return a.divide(x, divisor());
      case 3:
        return a.modulo(x, divisor());
      case 4:
        return a.inside(x, f_.sizes.parse("H"));
      default:
        return a.add(x, any(depth - 1));
    }
  }
  ExprId in_range(const Size& size) { return below(2) ? arena().modulo(any(), size) : below_size(size); }
  ExprId scaled(ExprId x, const Size& size, std::int64_t factor = 1) {
    return arena().multiply(arena().multiply(x, size), factor);
  }
  ExprId sum(std::initializer_list<ExprId> parts) {
    ExprId result = arena().constant(0);
    for (const ExprId part : parts) {
      result = below(2) ? arena().add(result, part) : arena().add(part, result);
    }
    return result;
  }
  std::int64_t factor() {
    return below(3) ? 1 : 1 + static_cast<std::int64_t>(below(4)) * (below(2) ? 1 : -1);
  }

 private:
  static Sizes random_sizes(Random& random) {
    using enum VariableKind;
    std::vector<std::vector<std::int64_t>> rows;
    for (std::size_t i = 0; i < 1 + random.below(3); ++i) {
      const auto draw = [&](std::uint64_t least, std::uint64_t count) {
        return static_cast<std::int64_t>(least + random.below(count));
      };
      const std::int64_t k = draw(2, 5), s = draw(2, 3), g = draw(2, 4);
      rows.push_back({g * draw(1, 5), k * s * draw(1, 4), k, s, g});
    }
    return Sizes({{"C", Primary}, {"H", Primary}, {"k", Coefficient}, {"s", Coefficient}, {"g", Coefficient}},
                 std::move(rows));
  }
  /// An iterator or constant that lies in [0, size) as often as not.
  ExprId below_size(const Size& size) {
    for (std::uint32_t slot = 0; slot < 5; ++slot) {
      if (f_.arena[f_.ranges[slot].end].op == Op::SizeValue &&
          f_.arena[f_.arena[f_.ranges[slot].end].size] == size) {
        return arena().iterator(slot);
      }
    }
    return below(2) ? arena().constant(static_cast<std::int64_t>(below(2))) : any(1);
  }

  Random random_;
  Fixture f_;
};

/// The left-hand side of every rule, with random parts in place of its letters.
const std::map<std::string_view, std::function<ExprId(Instance&)>> kLeftHandSides = {
    {"collect-terms",
     [](Instance& m) {
       const ExprId x = m.any();
       return m.sum({m.scaled(x, m.size(), m.factor()), m.any(), m.scaled(x, m.size(), m.factor())});
     }},
    {"join-quotient-and-remainder",
     [](Instance& m) {
       const ExprId x = m.any();
       const Size b = m.divisor(), c = m.size();
       const std::int64_t f = m.factor();
       return m.sum(
           {m.scaled(m.arena().divide(x, b), c * b, f), m.scaled(m.arena().modulo(x, b), c, f), m.any(1)});
     }},
    {"join-digits",
     [](Instance& m) {
       const ExprId x = m.any();
       const Size a = m.divisor(), b = m.divisor(), c = m.size();
       const std::int64_t f = m.factor();
       const ExprId high =
           m.arena().add(m.arena().divide(x, a), m.below(2) ? m.any(1) : m.arena().constant(0));
       return m.sum({m.scaled(m.arena().modulo(high, b), a * c, f), m.scaled(m.arena().modulo(x, a), c, f)});
     }},
    {"remainder-from-quotient",
     [](Instance& m) {
       const ExprId x = m.any();
       const Size b = m.divisor(), c = m.size();
       const std::int64_t f = m.factor();
       return m.sum({m.scaled(x, c, f), m.scaled(m.arena().divide(x, b), c * b, -f), m.any(1)});
     }},
    {"quotient-from-remainder",
     [](Instance& m) {
       const ExprId x = m.any();
       const Size c = m.size();
       const std::int64_t f = m.factor();
       return m.sum({m.scaled(x, c, f), m.scaled(m.arena().modulo(x, m.divisor()), c, -f), m.any(1)});
     }},
    {"divide-within-block",
     [](Instance& m) {
       const Size b = m.divisor();
       const ExprId shift = m.below(2) ? m.scaled(m.arena().constant(m.integer()), b) : m.arena().constant(0);
       return m.arena().divide(m.sum({m.in_range(b), shift}), b);
     }},
    {"divide-multiples",
     [](Instance& m) {
       const Size b = m.divisor();
       return m.arena().divide(m.sum({m.scaled(m.any(), b * m.size(), m.factor()), m.any()}), b);
     }},
    {"divide-nested",
     [](Instance& m) {
       const ExprId x = m.arena().divide(m.any(), m.divisor());
       return m.arena().divide(m.below(2) ? x : m.sum({x, m.any(1)}), m.divisor());
     }},
    {"divide-common-block",
     [](Instance& m) {
       const Size a = m.divisor();
       return m.arena().divide(m.sum({m.scaled(m.any(), a, m.factor()), m.in_range(a)}), a * m.divisor());
     }},
    {"divide-remainder",
     [](Instance& m) {
       const Size a = m.divisor();
       return m.arena().divide(m.arena().modulo(m.any(), a * m.divisor()), a);
     }},
    {"modulo-within-block",
     [](Instance& m) {
       const Size b = m.divisor();
       const ExprId shift = m.below(2) ? m.scaled(m.arena().constant(m.integer()), b) : m.arena().constant(0);
       return m.arena().modulo(m.sum({m.in_range(b), shift}), b);
     }},
    {"modulo-multiples",
     [](Instance& m) {
       const Size b = m.divisor();
       return m.arena().modulo(m.sum({m.scaled(m.any(), b * m.size(), m.factor()), m.any()}), b);
     }},
    {"modulo-of-modulo",
     [](Instance& m) {
       const Size b = m.divisor(), c = m.size();
       const ExprId x = m.scaled(m.arena().modulo(m.any(), b * m.size()), c, m.factor());
       return m.arena().modulo(m.below(2) ? x : m.sum({x, m.any(1)}), m.below(2) ? b : b * c);
     }},
    {"modulo-common-block",
     [](Instance& m) {
       const Size a = m.divisor();
       return m.arena().modulo(m.sum({m.scaled(m.any(), a, m.factor()), m.in_range(a)}), a * m.divisor());
     }},
    {"modulo-coefficients",
     [](Instance& m) {
       return m.arena().modulo(m.sum({m.scaled(m.any(), m.size(), m.integer()), m.any(1)}),
                               Size(2 + static_cast<std::int64_t>(m.below(6))));
     }},
    {"inside-never-fails",
     [](Instance& m) {
       const Size b = m.divisor();
       return m.arena().inside(m.below(4) ? m.in_range(b) : m.any(), b);
     }},
    {"inside-nested",
     [](Instance& m) { return m.arena().inside(m.arena().inside(m.any(), m.divisor()), m.divisor()); }},
};

/// Empty when `after` has the value of `before` at random points of every valuation, fails where it fails.
std::string difference(Fixture& f, ExprId before, ExprId after, Random& random) {
  for (std::size_t valuation = 0; valuation < f.sizes.valuation_count(); ++valuation) {
    for (int i = 0; i < 30; ++i) {
      const auto point = f.point(random, valuation);
      const auto expected = evaluate(f.arena, before, f.sizes, valuation, point);
      const auto actual = evaluate(f.arena, after, f.sizes, valuation, point);
      if (expected == actual) continue;
      std::string text = f.text(before) + "  ->  " + f.text(after) + "\n at ";
      for (std::size_t v = 0; v < f.sizes.variables().size(); ++v) {
        text += f.sizes.variables()[v].name + "=" + std::to_string(f.sizes.valuation(valuation)[v]) + " ";
      }
      for (std::size_t n = 0; n < point.size(); ++n)
        text += f.names[n] + "=" + std::to_string(point[n]) + " ";
      const auto show = [](auto value) { return value ? std::to_string(*value) : std::string("fails"); };
      return text + ": " + show(expected) + " became " + show(actual);
    }
  }
  return {};
}

class EveryRule : public ::testing::TestWithParam<Rule> {};

TEST_P(EveryRule, KeepsTheValue) {
  const Rule& rule = GetParam();
  ASSERT_TRUE(kLeftHandSides.contains(rule.name)) << "give the new rule a left-hand side here";
  const auto& left_hand_side = kLeftHandSides.at(rule.name);
  Random random(hash_text(rule.name).low);
  int fired = 0, fired_on_inside = 0;
  for (std::uint64_t space = 0; space < 150; ++space) {
    Instance instance(random.fork(space));
    Fixture& f = instance.fixture();
    const Context context = f.context();
    Facts facts(f.arena, context);
    for (int trial = 0; trial < 12; ++trial) {
      const ExprId before = left_hand_side(instance);
      const ExprId after = rule.apply(facts, before);
      if (after == before) continue;
      ++fired;
      fired_on_inside += f.arena.has_inside(before);
      ASSERT_EQ(difference(f, before, after, random), "");
    }
  }
  EXPECT_GT(fired, 100) << "the property was hardly tested";
  EXPECT_GT(fired_on_inside, 5) << "the rule was hardly tested on expressions that may fail";
}

INSTANTIATE_TEST_SUITE_P(Table, EveryRule, ::testing::ValuesIn(rules().begin(), rules().end()),
                         [](const auto& param) {
                           std::string name(param.param.name);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

/// Random instances of every left-hand side and of sums of them.
ExprId random_instance(Instance& m) {
  static const auto kAll = [] {
    std::vector<std::function<ExprId(Instance&)>> all;
    for (const auto& row : kLeftHandSides) all.push_back(row.second);
    return all;
  }();
  const ExprId x = kAll[m.below(kAll.size())](m);
  return m.below(2) ? x : m.arena().add(x, kAll[m.below(kAll.size())](m));
}

TEST(Simplify, KeepsTheValueIsIdempotentAndForgetsHistory) {
  Random random(77);
  std::map<std::string_view, int> fired;
  for (std::uint64_t space = 0; space < 400; ++space) {
    Instance instance(random.fork(space));
    Fixture& f = instance.fixture();
    for (int trial = 0; trial < 6; ++trial) {
      const ExprId before = random_instance(instance);
      std::vector<std::string_view> trace;
      const ExprId after = simplify(f.arena, before, f.context(), {.trace = &trace});
      for (const auto name : trace) ++fired[name];
      ASSERT_EQ(difference(f, before, after, random), "");
      ASSERT_EQ(f.text(simplify(f.arena, after, f.context())), f.text(after)) << "from " << f.text(before);
      Fixture other(f.sizes);  // another arena, built in another order, gives the same form
      for (const Range& range : f.ranges) {
        other.names.push_back(f.names[other.names.size()]);
        other.ranges.push_back(
            {other.arena.import(f.arena, range.begin), other.arena.import(f.arena, range.end)});
      }
      const ExprId copied = other.arena.import(f.arena, before);
      ASSERT_EQ(other.text(simplify(other.arena, copied, other.context())), f.text(after));
    }
  }
  for (const Rule& rule : rules()) EXPECT_GT(fired[rule.name], 20) << rule.name << " hardly fires in context";
}

TEST(Simplify, EveryRuleCanBeSwitchedOff) {
  Random random(5);
  for (const Rule& rule : rules()) {
    Instance instance(random.fork(rule.name));
    Fixture& f = instance.fixture();
    for (int trial = 0; trial < 40; ++trial) {
      const ExprId before = random_instance(instance);
      std::vector<std::string_view> trace;
      const ExprId after =
          simplify(f.arena, before, f.context(), {.disabled = {std::string(rule.name)}, .trace = &trace});
      for (const auto name : trace) ASSERT_NE(name, rule.name);
      ASSERT_EQ(difference(f, before, after, random), "");
    }
  }
  Fixture f;
  EXPECT_THROW(simplify(f.arena, f.parse("1"), f.context(), {.disabled = {"join-digit"}}), UnknownName);
}

}  // namespace
}  // namespace syno::symbolic
