#include <set>

#include "program/scalars.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

constexpr std::string_view kCost = "cost";

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail<ShapeError>(kCost, "{} + {} does not fit 64 bits", a, b);
  return sum;
}

std::int64_t elements(const Program& program, TensorId tensor, std::size_t valuation) {
  return checked_product(kCost, shape_of(program, tensor, valuation));
}

bool literal(const Program& program, ScalarId id) { return program.scalar(id).kind == ScalarKind::Literal; }

// `id` without the constants that it is multiplied with or divided by.
ScalarId without_constants(const Program& program, ScalarId id) {
  const Scalar& scalar = program.scalar(id);
  const bool product = is_call(scalar, Function::Multiply);
  if ((product || is_call(scalar, Function::Divide)) && literal(program, scalar.b))
    return without_constants(program, scalar.a);
  if (product && literal(program, scalar.a)) return without_constants(program, scalar.b);
  return id;
}

// What one point of the iteration space costs. Where values are summed, one multiplication joins the
// addition.
std::int64_t point_flops(const Program& program, const Scope& scope, ScalarId body) {
  std::int64_t multiplications = 0, others = 0;
  for (const ScalarId id : scalars_of(program, body)) {
    const Scalar& scalar = program.scalar(id);
    const bool multiplies = is_call(scalar, Function::Multiply);
    multiplications += multiplies;
    others += !multiplies && operand_count(scalar.kind) > 0;
  }
  const bool sums = !scope.sums.empty() || !scope.target.empty();
  return (sums ? std::max<std::int64_t>(1, multiplications) : multiplications) + others;
}

}  // namespace

Cost cost(const Program& program, std::size_t valuation) {
  if (valuation >= program.sizes.valuation_count())
    fail<ShapeError>(kCost, "valuation {} asked for, but the program has {}", valuation,
                     program.sizes.valuation_count());
  Cost total;
  for (const Scope& scope : program.scopes) {
    // A constant factor of what is summed is one of the sum.
    const bool sums =
        !scope.sums.empty() && (scope.reduction == Reduction::Sum || scope.reduction == Reduction::Mean);
    const ScalarId body = sums ? without_constants(program, scope.body) : scope.body;
    std::vector<std::int64_t> factors = {point_flops(program, scope, body)};
    if (body != scope.body) {
      std::vector<std::int64_t> results = {1};
      for (const Iterator& iterator : scope.traversal) {
        const Extent extent = extent_of(program, iterator.range, valuation);
        results.push_back(extent.end - extent.begin);
      }
      total.flops = checked_add(total.flops, checked_product(kCost, results));
    }
    for (const auto* iterators : {&scope.traversal, &scope.sums})
      for (const Iterator& iterator : *iterators) {
        const Extent extent = extent_of(program, iterator.range, valuation);
        factors.push_back(extent.end - extent.begin);
      }
    total.flops = checked_add(total.flops, checked_product(kCost, factors));

    std::set<TensorId> touched = {scope.output};
    over_reads(program, scope.body, [&](ScalarId, const Scalar& read) { touched.insert(read.tensor); });
    for (const TensorId tensor : touched)
      total.bytes =
          checked_add(total.bytes, checked_product(kCost, {4, elements(program, tensor, valuation)}));
  }
  for (std::uint32_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].role == Role::Weight)
      total.params = checked_add(total.params, elements(program, TensorId{t}, valuation));
  return total;
}

}  // namespace syno::program
