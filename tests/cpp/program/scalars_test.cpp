// What walks over bodies and makes one of another, held against what the interpreter says of both.
#include "program/scalars.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "naive.hpp"
#include "program/interpret.hpp"
#include "program/verify.hpp"
#include "random_program.hpp"

namespace syno::program {
namespace {

using testing::random_inputs;
using testing::same;

std::optional<ScalarId> keep(ScalarId) { return std::nullopt; }

bool computes_the_same(const Program& p, const Program& q, std::uint64_t seed) {
  verify(q);
  const auto inputs = random_inputs(p, seed);
  const auto wanted = interpret(p, inputs), got = interpret(q, inputs);
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& output) {
    const auto& [a, b] = std::pair{output.second.data, got.at(output.first).data};
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) { return same(x, y); });
  });
}

template <class Property>
void of_random_programs(std::string_view name, Property property) {
  EXPECT_TRUE(rc::check(std::string(name), [&](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 10; ++i) {
      const std::uint64_t seed = Random(start).fork(i)();
      property(at(testing::ProgramGenerator(seed)(), 0), seed);
    }
  }));
}

TEST(Scalars, ACopiedBodyComputesTheSame) {
  of_random_programs("copy_body", [](const Program& p, std::uint64_t seed) {
    Program q = p, anew = p;
    anew.scalars.assign(3, Scalar{});  // so that no scalar keeps its number
    std::map<ScalarId, ScalarId> known;
    for (std::size_t s = 0; s < p.scopes.size(); ++s) {
      std::map<ScalarId, ScalarId> copies;
      const std::size_t before = q.scalars.size(), parts = scalars_of(p, p.scopes[s].body).size();
      q.scopes[s].body = copy_body(q, p.scopes[s].body, q, copies, [](Scalar&) {});
      RC_ASSERT(q.scalars.size() == before + parts);
      RC_ASSERT(static_cast<std::size_t>(q.scopes[s].body) >= before);
      anew.scopes[s].body = copy_body(p, p.scopes[s].body, anew, known, [](Scalar&) {});
    }
    RC_ASSERT(computes_the_same(p, q, seed));
    RC_ASSERT(computes_the_same(p, anew, seed));
  });
}

TEST(Scalars, ACopyOfWhatIsUsedTwiceIsUsedTwice) {
  Program p;
  const TensorId x = p.add_tensor({"x", Role::Input, {p.range_of(Size(4))}, {}});
  const ScalarId read = p.read(x, {p.arena.constant(1)});
  ScalarId power = read;
  for (int i = 0; i < 40; ++i) power = p.binary(Function::Multiply, power, power);  // 2^40 as a tree
  std::map<ScalarId, ScalarId> copies;
  Program q = p;
  q.scalars.clear();
  int changed = 0;
  copy_body(p, power, q, copies, [&](Scalar& scalar) { changed += is_call(scalar, Function::Multiply); });
  EXPECT_EQ(q.scalars.size(), 41U);
  EXPECT_EQ(changed, 40);
  EXPECT_EQ(q.scalars.back().a, q.scalars.back().b);
  int reads = 0;
  over_reads(p, power, [&](ScalarId id, const Scalar& scalar) {
    ++reads;
    EXPECT_EQ(id, read);
    EXPECT_EQ(scalar.tensor, x);
  });
  EXPECT_EQ(reads, 1);
}

/// y[i] over [0, n) is y[i] with i - c for i over [c, n + c), wherever an iterator stands.
TEST(Scalars, IteratorsMayBeReplaced) {
  int moved = 0;
  of_random_programs("with_iterators", [&](const Program& p, std::uint64_t seed) {
    Random random(seed);
    Program q = p;
    for (Scope& scope : q.scopes) {
      std::vector<std::pair<std::uint32_t, ExprId>> values;
      const auto shift = [&](Iterator& iterator) {
        const ExprId by = q.arena.constant(static_cast<std::int64_t>(random.below(7)) - 3);
        const Iterator made = q.new_iterator(
            iterator.name, {q.arena.add(iterator.range.begin, by), q.arena.add(iterator.range.end, by)});
        values.emplace_back(iterator.slot, q.arena.subtract(q.arena.iterator(made.slot), by));
        iterator = made;
        ++moved;
      };
      for (Iterator& iterator : scope.sums) shift(iterator);
      if (!scope.target.empty())
        for (Iterator& iterator : scope.traversal) shift(iterator);
      scope.body = with_iterators(q, scope.body, values);
      for (ExprId& target : scope.target)
        target = q.arena.substitute(target, [&](std::uint32_t slot) {
          for (const auto& [from, to] : values)
            if (from == slot) return to;
          return q.arena.iterator(slot);
        });
    }
    RC_ASSERT(computes_the_same(p, q, seed));
  });
  EXPECT_GT(moved, 1000);
}

TEST(Scalars, WhatIsReplacedIsReplacedAndTheRestIsNot) {
  int replaced = 0;
  of_random_programs("rebuild", [&](const Program& p, std::uint64_t seed) {
    Program q = p, other = p;
    const ScalarId seven = q.literal(7);
    other.literal(7);
    for (std::size_t s = 0; s < p.scopes.size(); ++s) {
      const ScalarId body = p.scopes[s].body;
      q.scopes[s].body = rebuild(q, body, [&](ScalarId id) -> std::optional<ScalarId> {
        if (p.scalar(id).kind != ScalarKind::Read) return std::nullopt;
        return seven;
      });
      RC_ASSERT(reads_in(q, q.scopes[s].body).empty());
      replaced += !reads_in(p, body).empty();
      const auto is_read = [](const Scalar& scalar) { return scalar.kind == ScalarKind::Read; };
      RC_ASSERT(any_scalar(p, body, is_read) == !reads_in(p, body).empty());
      other.scopes[s].body = rebuild(other, body, keep);
      RC_ASSERT(nodes_of(other, other.scopes[s].body, 1000) == nodes_of(p, body, 1000));
      RC_ASSERT(reads_in(other, other.scopes[s].body) == reads_in(p, body));
      std::vector<ScalarId> once;
      over_reads(p, body, [&](ScalarId id, const Scalar&) { once.push_back(id); });
      const auto all = reads_in(p, body);
      RC_ASSERT(std::set<ScalarId>(all.begin(), all.end()) == std::set<ScalarId>(once.begin(), once.end()));
      RC_ASSERT(std::adjacent_find(once.begin(), once.end(), std::greater_equal<>()) == once.end());
    }
    RC_ASSERT(computes_the_same(p, other, seed));
  });
  EXPECT_GT(replaced, 500);
}

TEST(Scalars, FactorsAreThoseThatWereMultiplied) {
  EXPECT_TRUE(rc::check("factors of a random tree of products", [](std::uint64_t seed) {
    Random random(seed);
    Program p;
    const TensorId x = p.add_tensor({"x", Role::Input, {p.range_of(Size(4))}, {}});
    std::vector<ScalarId> leaves;
    for (int i = 0; i < 4; ++i) leaves.push_back(p.read(x, {p.arena.constant(i)}));
    leaves.push_back(p.literal(3));
    leaves.push_back(p.binary(Function::Add, leaves[0], p.binary(Function::Multiply, leaves[1], leaves[2])));
    leaves.push_back(
        p.binary(Function::Divide, p.binary(Function::Multiply, leaves[2], leaves[3]), leaves[4]));
    leaves.push_back(p.unary(Function::Negate, p.binary(Function::Multiply, leaves[2], leaves[0])));
    std::vector<ScalarId> wanted;
    const auto product = [&](const auto& self, int depth) -> ScalarId {
      if (depth == 0 || random.below(3) == 0) {
        wanted.push_back(leaves[random.below(leaves.size())]);
        return wanted.back();
      }
      const ScalarId a = self(self, depth - 1);
      return p.binary(Function::Multiply, a, self(self, depth - 1));
    };
    const ScalarId root = product(product, 4);
    RC_ASSERT(factors_of(p, root) == wanted);
  }));
}

TEST(Scalars, OnlyUnaryAndBinaryScalarsAreCalls) {
  Program p;
  const ScalarId number = p.literal(1);
  const ScalarId select = p.select(number, number, number);
  const ScalarId sum = p.binary(Function::Add, number, number);
  const ScalarId negated = p.unary(Function::Negate, sum);
  for (std::uint8_t f = 0; f <= static_cast<std::uint8_t>(Function::Or); ++f) {
    const auto function = static_cast<Function>(f);
    EXPECT_FALSE(is_call(p.scalar(number), function));  // whatever the field holds that nobody set
    EXPECT_FALSE(is_call(p.scalar(select), function));
    EXPECT_EQ(is_call(p.scalar(sum), function), function == Function::Add);
    EXPECT_EQ(is_call(p.scalar(negated), function), function == Function::Negate);
  }
}

}  // namespace
}  // namespace syno::program
