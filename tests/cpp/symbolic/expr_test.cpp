// Index expressions: building, evaluating, bounding, printing and parsing.
#include "symbolic/expr.hpp"

#include <gtest/gtest.h>

#include "fixture.hpp"
#include "support/error.hpp"

namespace syno::symbolic {
namespace {

using testing::Fixture;

struct Usual : ::testing::Test {
  Fixture f;
  Usual() {
    f.iterate("i", "H");
    f.iterate("j", "C");
    f.iterate("r", "k");
    f.iterate("p", "H + 2", "-2");
  }
  std::optional<std::int64_t> at(const std::string& text, std::vector<std::int64_t> values,
                                 std::size_t valuation = 0) {
    return evaluate(f.arena, f.parse(text), f.sizes, valuation, values);
  }
};

TEST_F(Usual, DivisionRoundsTowardsMinusInfinity) {
  EXPECT_EQ(at("(i - 7) / 3", {0, 0, 0, 0}), -3);
  EXPECT_EQ(at("(i - 7) % 3", {0, 0, 0, 0}), 2);
  EXPECT_EQ(at("(i - 6) / 3", {0, 0, 0, 0}), -2);
}

TEST_F(Usual, SizesTakeTheirValuation) {
  EXPECT_EQ(at("H*k^-1 + C", {0, 0, 0, 0}), 12 / 3 + 8);
  EXPECT_EQ(at("H*k^-1 + C", {0, 0, 0, 0}, 1), 30 / 5 + 12);
  EXPECT_EQ(at("i + r - k/2", {5, 0, 1, 0}, 1), 5 + 1 - 2);
}

TEST_F(Usual, InsideFailsOutsideItsExtent) {
  EXPECT_EQ(at("inside(i + r - k/2, H) + 1", {0, 0, 0, 0}), std::nullopt);
  EXPECT_EQ(at("inside(i + r - k/2, H) + 1", {0, 0, 1, 0}), 1);
  EXPECT_EQ(at("inside(i + r - k/2, H) * 0", {0, 0, 0, 0}), std::nullopt)
      << "a guard outlives a factor of zero";
  EXPECT_EQ(at("inside(i + r - k/2, H) % 1", {0, 0, 0, 0}), std::nullopt);
  EXPECT_EQ(at("inside(i + 1, H)", {11, 0, 0, 0}), std::nullopt);
}

TEST_F(Usual, OperatorsBindAsInPython) {
  EXPECT_EQ(f.parse("i + j * 2"), f.parse("i + (j * 2)"));
  EXPECT_EQ(f.parse("i / 2 * 3"), f.parse("(i / 2) * 3"));
  EXPECT_EQ(f.parse("i % H * k"), f.parse("(i % H) * k"));
  EXPECT_EQ(f.parse("i%2*3"), f.parse("(i % 2) * 3"));
  EXPECT_EQ(f.parse("2*i"), f.parse("i * 2"));
  EXPECT_EQ(f.parse("s*i"), f.parse("i*s"));
  EXPECT_EQ(f.parse("i - j - r"), f.parse("(i - j) - r"));
  EXPECT_EQ(f.parse("i // 2"), f.parse("i / 2"));
}

TEST_F(Usual, ATightMonomialIsOneDivisor) {
  EXPECT_EQ(f.parse("((i % H*k^-1) * k) + (i / H*k^-1)"), f.parse("(i % (H*k^-1)) * k + i / (H*k^-1)"));
}

TEST_F(Usual, TextParsesBackToTheSameExpression) {
  for (const char* text : {"i",
                           "-i",
                           "-3 * i",
                           "i - 3",
                           "i - j",
                           "i - (j + r)",
                           "i + (j + r)",
                           "-(i + j)",
                           "(i + j) * 2",
                           "2 * (i / 3)",
                           "i / 2 * 3",
                           "i / (2*H)",
                           "i % (H*k^-1) * k + i / (H*k^-1)",
                           "inside(i + r - k/2, H)",
                           "H",
                           "-H",
                           "3*H - i",
                           "2^-1*H + i",
                           "3*4^-1*H*k^-1",
                           "(i * H) * 3",
                           "(i * 3) * H",
                           "-(i * H)",
                           "k / 2",
                           "i - k / 2",
                           "(-i) / 2",
                           "(i - 3) % 4",
                           "0 * inside(i - 1, H)",
                           "inside(inside(i - 1, H) + 1, 2*H)",
                           "-1 * (2 * H)",
                           "i + (-(j + r))"}) {
    const ExprId id = f.parse(text);
    EXPECT_EQ(f.parse(f.text(id)), id) << text << " printed as " << f.text(id);
  }
}

/// A random tree over every operation, for round trips.
ExprId random_expr(Fixture& f, Random& random, int depth) {
  Arena& a = f.arena;
  const std::vector<Size> sizes = {Size(2),
                                   Size(3),
                                   Size(7),
                                   Size::variable(0),
                                   Size::variable(1),
                                   Size::variable(2),
                                   f.sizes.parse("H*k^-1"),
                                   f.sizes.parse("C*g^-1"),
                                   f.sizes.parse("1/2*C")};
  const Size& size = sizes[random.below(sizes.size())];
  if (depth == 0) {
    switch (random.below(4)) {
      case 0:
        return a.constant(static_cast<std::int64_t>(random.below(9)) - 4);
      case 1:
        return a.size(size);
      default:
        return a.iterator(static_cast<std::uint32_t>(random.below(f.names.size())));
    }
  }
  const ExprId x = random_expr(f, random, depth - 1);
  switch (random.below(8)) {
    case 0:
      return a.multiply(x, static_cast<std::int64_t>(random.below(9)) - 4);
    case 1:
      return a.multiply(x, size);
    case 2:
      return a.divide(x, size);
    case 3:
      return a.modulo(x, size);
    case 4:
      return a.inside(x, size);
    case 5:
      return a.subtract(x, random_expr(f, random, depth - 1));
    default:
      return a.add(x, random_expr(f, random, depth - 1));
  }
}

TEST_F(Usual, RandomTextsParseBack) {
  Random random(11);
  for (int trial = 0; trial < 5000; ++trial) {
    const ExprId id = random_expr(f, random, static_cast<int>(random.below(5)));
    ASSERT_EQ(f.parse(f.text(id)), id) << f.text(id);
  }
}

TEST_F(Usual, BoundsHoldEveryValueAndAreTightForIterators) {
  Random random(12);
  for (int trial = 0; trial < 1000; ++trial) {
    const ExprId id = random_expr(f, random, static_cast<int>(random.below(4)));
    const std::size_t valuation = random.below(3);
    const Interval interval = bounds(f.arena, id, f.context(), valuation);
    for (int i = 0; i < 20; ++i) {
      const auto value = evaluate(f.arena, id, f.sizes, valuation, f.point(random, valuation));
      if (!value) continue;
      ASSERT_LE(interval.least, *value) << f.text(id);
      ASSERT_GE(interval.greatest, *value) << f.text(id);
    }
  }
  const Interval p = bounds(f.arena, f.parse("2*p + 1"), f.context(), 0);
  EXPECT_EQ(p.least, -3);
  EXPECT_EQ(p.greatest, 2 * 13 + 1);
}

TEST_F(Usual, SubstituteAndImportKeepTheMeaning) {
  const ExprId id = f.parse("(i * k + r) / s");
  const ExprId moved = f.arena.substitute(
      id, [&](std::uint32_t slot) { return slot == 0 ? f.parse("p + 1") : f.arena.iterator(slot); });
  EXPECT_EQ(moved, f.parse("((p + 1) * k + r) / s"));
  Arena other;
  const ExprId concrete =
      other.import(f.arena, id, [&](const Size& size) { return Size(f.sizes.integer_value(size, 1)); });
  const std::vector<std::int64_t> values = {4, 0, 3, 0};
  EXPECT_EQ(evaluate(other, concrete, Sizes(), 0, values), (4 * 5 + 3) / 2);
  EXPECT_EQ(f.arena.iterators(moved), (std::vector<std::uint32_t>{2, 3}));
}

TEST_F(Usual, RewritingReplacesWhatItsRuleTakesAndBuildsTheRestAgain) {
  Random random(13);
  for (int trial = 0; trial < 2000; ++trial) {
    const ExprId id = random_expr(f, random, static_cast<int>(random.below(5)));
    ASSERT_EQ(f.arena.rewrite(id, [](ExprId) { return std::nullopt; }), id) << f.text(id);
    ASSERT_EQ(f.arena.over(id, [](ExprId child) { return child; }), id) << f.text(id);
  }
  const ExprId whole = f.parse("i + r"), pair = f.parse("(i + r) / k * s + inside((i + r) % k + j, C)");
  const auto rewritten = f.arena.rewrite(pair, [&](ExprId part) -> std::optional<ExprId> {
    const Expr& node = f.arena[part];
    if (node.op == Op::Divide && node.a == whole) return f.parse("p");
    if (node.op == Op::Modulo && node.a == whole) return f.parse("r");
    return std::nullopt;
  });
  EXPECT_EQ(rewritten, f.parse("p * s + inside(r + j, C)"));
  EXPECT_EQ(f.arena.rewrite(f.parse("(i + 1) / 2"),
                            [&](ExprId part) -> std::optional<ExprId> {
                              if (part == f.parse("i")) return f.parse("i / 3");
                              return std::nullopt;
                            }),
            f.parse("(i / 3 + 1) / 2"))
      << "what a rule gives is not rewritten again";
  EXPECT_EQ(f.arena.over(f.parse("i - 2*j"), [&](ExprId) { return f.parse("r"); }), f.parse("r + r"));
}

TEST_F(Usual, OverflowThrows) { EXPECT_THROW(at("i * 4000000000 * 4000000000", {11, 0, 0, 0}), ShapeError); }

TEST_F(Usual, WrongTextsAreExplained) {
  const auto message = [&](const char* text) -> std::string {
    try {
      f.parse(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("i + z").find("'z' is neither an iterator nor a size"), std::string::npos)
      << message("i + z");
  EXPECT_NE(message("i * j").find("at least one factor that is a size"), std::string::npos);
  EXPECT_NE(message("i / j").find("positive size"), std::string::npos);
  EXPECT_NE(message("i / 0").find("positive size"), std::string::npos);
  EXPECT_NE(message("i % (0 - 3)").find("positive size"), std::string::npos);
  EXPECT_NE(message("(i + 1").find("expected ')'"), std::string::npos);
  EXPECT_NE(message("i j").find("expected an operator"), std::string::npos);
  EXPECT_NE(message("").find("expected a name"), std::string::npos);
  EXPECT_NE(message("99999999999999999999").find("64 bits"), std::string::npos);
}

}  // namespace
}  // namespace syno::symbolic
