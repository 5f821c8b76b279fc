#include "emit/triton_split.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "program/scalars.hpp"
#include "symbolic/affine.hpp"
#include "symbolic/simplify.hpp"

namespace syno::emit {
namespace {

using program::Iterator;
using program::Program;
using program::Scalar;
using program::ScalarId;
using program::Scope;
using symbolic::Arena;
using symbolic::Expr;
using symbolic::ExprId;
using symbolic::Op;

/// Numbers by which an index expression divides an iterator, or the quotient of one: of c / 4 % 8, 4 and 32.
class Divisors {
 public:
  explicit Divisors(const Arena& arena) : arena_(arena) {}

  void see(ExprId root) {
    const Expr node = arena_[root];
    switch (node.op) {
      case Op::Divide:
      case Op::Modulo:
        if (std::int64_t by = 1; const auto slot = divided(node.a, by))
          found_[*slot].insert(by * symbolic::integer_of(arena_, node.size));
        see(node.a);
        return;
      case Op::Add:
        see(node.a);
        see(node.b);
        return;
      case Op::Multiply:
      case Op::Inside:
        see(node.a);
        return;
      default:
        return;
    }
  }

  /// Those of an iterator that divide its extent and one another, ascending: the smallest that can be.
  std::vector<std::int64_t> chain(std::uint32_t slot, std::int64_t extent) const {
    std::vector<std::int64_t> chain;
    const auto found = found_.find(slot);
    if (found == found_.end()) return chain;
    for (const std::int64_t by : found->second)
      if (by > 1 && by < extent && extent % by == 0 && (chain.empty() || by % chain.back() == 0))
        chain.push_back(by);
    return chain;
  }

 private:
  /// The iterator that `root` is, or is a quotient of; `by` is what it is divided by.
  std::optional<std::uint32_t> divided(ExprId root, std::int64_t& by) const {
    const Expr node = arena_[root];
    if (node.op == Op::Iterator) return static_cast<std::uint32_t>(node.a);
    if (node.op != Op::Divide) return std::nullopt;
    by *= symbolic::integer_of(arena_, node.size);
    return divided(node.a, by);
  }

  const Arena& arena_;
  std::map<std::uint32_t, std::set<std::int64_t>> found_;
};

}  // namespace

DigitScope as_it_is(const Program& program, std::size_t number) {
  DigitScope made{program, program.scopes[number].target};
  if (made.at.empty())
    for (const Iterator& i : program.scopes[number].traversal)
      made.at.push_back(made.program.arena.iterator(i.slot));
  return made;
}

DigitScope in_digits(const Program& program, std::size_t number) {
  DigitScope made = as_it_is(program, number);
  Arena& arena = made.program.arena;
  Scope& scope = made.program.scopes[number];
  Divisors divisors(program.arena);
  for (const ScalarId id : program::scalars_of(program, scope.body))
    program::over_indices(program.scalar(id), [&](ExprId index) { divisors.see(index); });
  std::vector<std::pair<std::uint32_t, ExprId>> values;
  for (auto* iterators : {&scope.traversal, &scope.sums}) {
    std::vector<Iterator> digits;
    for (const Iterator& i : *iterators) {
      const auto [begin, end] = program::extent_of(program, i.range, 0);
      const bool plain = begin == 0 && i.range.live.parameter == 0;
      const auto chain = plain ? divisors.chain(i.slot, end) : std::vector<std::int64_t>{};
      if (chain.empty()) {
        digits.push_back(i);
        continue;
      }
      ExprId value = arena.constant(0);
      std::int64_t above = end;
      for (std::size_t c = chain.size() + 1; c-- > 0;) {
        const std::int64_t step = c == 0 ? 1 : chain[c - 1];
        const program::Range range{arena.constant(0), arena.constant(above / step), {}};
        digits.push_back(made.program.new_iterator(i.name, range));
        value = arena.add(value, arena.multiply(arena.iterator(digits.back().slot), step));
        above = step;
      }
      values.emplace_back(i.slot, value);
    }
    *iterators = std::move(digits);
  }
  if (values.empty()) return made;
  scope.body = program::with_iterators(made.program, scope.body, values);
  symbolic::Simplifier simplify(arena, program::context_of(made.program));
  scope.body = program::rebuild(
      made.program, scope.body, [](ScalarId) { return std::optional<ScalarId>(); },
      [&](ExprId index) { return simplify(index); });
  for (ExprId& place : made.at) {
    place = simplify(arena.substitute(place, [&](std::uint32_t slot) {
      const auto found =
          std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == slot; });
      return found == values.end() ? arena.iterator(slot) : found->second;
    }));
  }
  if (!scope.target.empty()) scope.target = made.at;
  return made;
}

}  // namespace syno::emit
