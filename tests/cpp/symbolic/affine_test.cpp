// Affine forms are worth what the expressions they are of are, and no more is said of these than is true.
#include "symbolic/affine.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <limits>
#include <optional>

#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::symbolic {
namespace {

/// Random expressions over three iterators with concrete sizes.
struct Expressions {
  Arena arena;
  Sizes sizes;
  Random random;
  explicit Expressions(std::uint64_t seed) : random(seed) {}

  std::int64_t number(std::int64_t least, std::uint64_t count) {
    return least + static_cast<std::int64_t>(random.below(count));
  }
  ExprId operator()(int depth, bool affine) {
    if (depth == 0 || random.below(5) == 0) {
      switch (random.below(4)) {
        case 0:
          return arena.constant(number(-4, 9));
        case 1:
          return arena.size(Size(number(1, 5)));
        default:
          return arena.iterator(static_cast<std::uint32_t>(random.below(3)));
      }
    }
    const ExprId a = (*this)(depth - 1, affine);
    const Size size(number(1, 5));
    switch (random.below(affine ? 4 : 7)) {
      case 0:
        return arena.multiply(a, number(-3, 7));
      case 1:
        return arena.multiply(a, size);
      case 2:
        return arena.subtract(a, (*this)(depth - 1, affine));
      case 3:
        return arena.add(a, (*this)(depth - 1, affine));
      case 4:
        return arena.divide(a, size);
      case 5:
        return arena.modulo(a, size);
      default:
        return arena.inside(a, Size(number(4, 9)));
    }
  }
  std::array<std::int64_t, 3> point() { return {number(-9, 19), number(-9, 19), number(-9, 19)}; }
  std::optional<std::int64_t> value(ExprId e, const std::array<std::int64_t, 3>& at) {
    return evaluate(arena, e, sizes, 0, at);
  }
};

template <class Property>
void holds(const char* name, Property property) {
  EXPECT_TRUE(rc::check(name, [&](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      Expressions expressions(Random(start).fork(i)());
      property(expressions);
    }
  }));
}

TEST(AffineForm, IsWorthWhatItsExpressionIs) {
  int guarded = 0, failed = 0;
  holds("affine_form and expression_of keep values", [&](Expressions& of) {
    const ExprId e = of(4, false);
    const AffineForm<ExprId> form = affine_form(of.arena, e);
    const ExprId back = expression_of(of.arena, form);
    for (std::size_t i = 0; i < form.terms.size(); ++i) {
      const auto& [atom, coefficient] = form.terms[i];
      if (i > 0) RC_ASSERT(form.terms[i - 1].first < atom);
      RC_ASSERT(coefficient != 0 || of.arena.has_inside(atom));
      const Op op = of.arena[atom].op;
      RC_ASSERT(op == Op::Iterator || op == Op::Divide || op == Op::Modulo || op == Op::Inside);
    }
    for (int i = 0; i < 4; ++i) {
      const auto at = of.point();
      const auto wanted = of.value(e, at);
      RC_ASSERT(of.value(back, at) == wanted);  // also where a guard fails
      std::optional<std::int64_t> sum = form.constant;
      for (const auto& [atom, coefficient] : form.terms) {
        const auto part = of.value(atom, at);
        sum = sum && part ? std::optional(*sum + coefficient * *part) : std::nullopt;
      }
      RC_ASSERT(sum == wanted);
      guarded += of.arena.has_inside(e);
      failed += !wanted;
    }
  });
  EXPECT_GT(failed, 1000);
  EXPECT_GT(guarded, failed + 1000);
}

TEST(AffineForm, OfWhatIsAffineHoldsIteratorsAlone) {
  int other = 0;
  holds("is_affine", [&](Expressions& of) {
    const ExprId plain = of(4, true), any = of(4, false);
    RC_ASSERT(is_affine(of.arena, plain));
    for (const auto& [atom, coefficient] : affine_form(of.arena, plain).terms)
      RC_ASSERT(slot_of(of.arena, atom) != kNoSlot);
    bool cut = false;
    const auto look = [&](const auto& self, ExprId id) -> void {
      const Expr& node = of.arena[id];
      cut = cut || node.op == Op::Divide || node.op == Op::Modulo || node.op == Op::Inside;
      if (node.op == Op::Add) self(self, node.b);
      if (node.op == Op::Add || node.op == Op::Multiply) self(self, node.a);
    };
    look(look, any);
    RC_ASSERT(is_affine(of.arena, any) == !cut);
    other += cut;
  });
  EXPECT_GT(other, 1000);
}

TEST(AffineForm, CoefficientsAreDifferences) {
  int constant = 0, varying = 0;
  holds("coefficient_of", [&](Expressions& of) {
    const ExprId e = of(3, false);
    const auto slot = static_cast<std::uint32_t>(of.random.below(3));
    const auto coefficient = coefficient_of(of.arena, e, slot);
    for (int i = 0; i < 40; ++i) {
      auto at = of.point();
      const auto here = of.value(e, at);
      ++at[slot];
      const auto next = of.value(e, at);
      if (!here || !next) continue;
      if (coefficient) RC_ASSERT(*next - *here == *coefficient);
    }
    ++(coefficient ? constant : varying);
  });
  EXPECT_GT(constant, 1000);
  EXPECT_GT(varying, 500);
}

TEST(AffineForm, NothingIsSaidOfIteratorsInQuotientsRemaindersAndGuards) {
  Arena arena;
  const ExprId i = arena.iterator(0), j = arena.iterator(1);
  EXPECT_EQ(coefficient_of(arena, arena.add(arena.multiply(i, 6), arena.divide(j, Size(2))), 0), 6);
  EXPECT_EQ(coefficient_of(arena, arena.divide(j, Size(2)), 0), 0);
  for (const ExprId cut : {arena.divide(i, Size(2)), arena.modulo(i, Size(2)), arena.inside(i, Size(2))}) {
    EXPECT_EQ(coefficient_of(arena, arena.add(i, cut), 0), std::nullopt);
    EXPECT_FALSE(is_affine(arena, arena.add(i, cut)));
  }
}

TEST(AffineForm, SumsAndMultiplesKeepOrderAndDropWhatCancels) {
  using Form = AffineForm<int>;
  EXPECT_TRUE(rc::check("as maps", [](std::uint64_t seed) {
    Random random(seed);
    const auto any = [&] {
      std::array<std::int64_t, 6> values{};
      for (auto& value : values) value = static_cast<std::int64_t>(random.below(5)) - 2;
      return values;
    };
    const auto form_of = [](const std::array<std::int64_t, 6>& values) {
      Form form{{}, values[5]};
      for (int atom = 0; atom < 5; ++atom)
        if (values[static_cast<std::size_t>(atom)] != 0)
          form.terms.emplace_back(atom, values[static_cast<std::size_t>(atom)]);
      return form;
    };
    auto a = any();
    const auto b = any();
    const std::int64_t factor = static_cast<std::int64_t>(random.below(5)) - 2;
    const Form sum = add(form_of(a), form_of(b)), product = multiply(form_of(b), factor);
    for (std::size_t k = 0; k < a.size(); ++k) a[k] += b[k];
    RC_ASSERT(sum == form_of(a));
    for (std::size_t k = 0; k < a.size(); ++k) a[k] = b[k] * factor;
    RC_ASSERT(product == form_of(a));
  }));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(add(Form{{{0, kMost}}, 0}, Form{{{0, 1}}, 0}), ShapeError);
  EXPECT_THROW(add(Form{{}, kMost}, Form{{}, 1}), ShapeError);
  EXPECT_THROW(multiply(Form{{{0, kMost}}, 0}, 2), ShapeError);
  EXPECT_EQ(add(Form{{{0, kMost}}, 0}, Form{{{0, -kMost}}, 0}), Form());
}

}  // namespace
}  // namespace syno::symbolic
