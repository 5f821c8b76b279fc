// The operator key of a program: its one scope as a TermSpace.
#include <algorithm>
#include <optional>

#include "equality/keys.hpp"
#include "equality/term_factors.hpp"
#include "support/error.hpp"

namespace syno::equality {
namespace {

using symbolic::Expr;
using symbolic::Op;

constexpr std::size_t kMostReads = 64;  // of one product

/// The reads and the constant of a product of reads.
struct Product {
  std::vector<const Scalar*> reads;
  Rational constant = 1;
};

void gather(const Program& program, ScalarId id, Product& out) {
  const Scalar& scalar = program.scalar(id);
  switch (scalar.kind) {
    case ScalarKind::Read:
      out.reads.push_back(&scalar);
      return;
    case ScalarKind::Literal:
      out.constant = out.constant * scalar.literal;
      return;
    case ScalarKind::Unary:
      if (scalar.function == Function::Negate) {
        out.constant = out.constant * Rational(-1);
        gather(program, scalar.a, out);
        return;
      }
      break;
    case ScalarKind::Binary:
      if (scalar.function == Function::Multiply) {
        gather(program, scalar.a, out);
        gather(program, scalar.b, out);
        return;
      }
      if (scalar.function == Function::Divide && program.scalar(scalar.b).kind == ScalarKind::Literal &&
          program.scalar(scalar.b).literal != Rational(0)) {
        out.constant = out.constant / program.scalar(scalar.b).literal;
        gather(program, scalar.a, out);
        return;
      }
      break;
    default:
      break;
  }
  fail<VerifyError>("operator_key",
                    "operators are compared as sums of products of reads, but the body holds {}",
                    scalar.kind == ScalarKind::Unary || scalar.kind == ScalarKind::Binary
                        ? fmt::format("the function '{}'", name_of(scalar.function))
                        : std::string("a select or an index used as a number"));
}

/// A scope in numbers. Unknown where a size is no integer at one of the valuations.
class ScopeTerms {
 public:
  ScopeTerms(const Program& program, const std::vector<UnorderedDim>& unordered, const Product& product)
      : program_(program), scope_(program.scopes.front()), unordered_(unordered), product_(product) {}

  std::optional<TermSpace> at(const Sizes& sizes) {
    sizes_ = &sizes;
    const std::size_t rows = std::min(kTermRows, sizes.valuation_count());
    space_ = TermSpace(rows);
    integral_ = true;
    iterator_.assign(program_.next_slot, 0);
    known_.assign(program_.arena.node_count(), std::nullopt);
    for (const Iterator& iterator : scope_.traversal) declare(iterator);
    for (const Iterator& iterator : scope_.sums) declare(iterator);
    space_.read(0, false);
    for (std::size_t d = 0; d < scope_.traversal.size(); ++d) {
      const TermNode node = iterator_[scope_.traversal[d].slot];
      space_.dimension(legal(node, program_.tensor(scope_.output).dims[d]), is_unordered(scope_.output, d));
    }
    const std::vector<TensorId> inputs = program_.inputs();
    for (const Scalar* read : product_.reads) {
      const bool weight = program_.tensor(read->tensor).role == Role::Weight;
      const auto place = std::find(inputs.begin(), inputs.end(), read->tensor);
      if (place == inputs.end()) {
        fail<VerifyError>("operator_key", "'{}' is a constant; operators are compared as products of inputs",
                          program_.tensor(read->tensor).name);
      }
      // Data tensors are told apart by their place among the inputs that are no weights.
      const auto data_before = std::count_if(inputs.begin(), place, [&](TensorId id) {
        return (program_.tensor(id).role == Role::Weight) == weight;
      });
      space_.read(static_cast<std::uint32_t>(data_before), weight);
      for (std::size_t d = 0; d < read->indices.size(); ++d) {
        const TermNode node = legal(node_of(read->indices[d]), program_.tensor(read->tensor).dims[d]);
        space_.dimension(node, is_unordered(read->tensor, d));
      }
    }
    for (std::size_t row = 0; row < rows; ++row) {
      space_.multiply(product_.constant.num(), product_.constant.den(), row);
      if (scope_.reduction != Reduction::Mean) continue;
      for (const Iterator& iterator : scope_.sums) {
        space_.multiply(1, bound(iterator.range.end)[row] - bound(iterator.range.begin)[row], row);
      }
    }
    if (!integral_) return std::nullopt;
    return std::move(space_);
  }

 private:
  bool is_unordered(TensorId tensor, std::size_t dim) const {
    return std::find(unordered_.begin(), unordered_.end(), UnorderedDim{tensor, dim}) != unordered_.end();
  }

  RowValues value_of(const Size& size) {
    RowValues result{};
    for (std::size_t row = 0; row < space_.rows(); ++row) {
      const Rational value = sizes_->value(size, row);
      integral_ = integral_ && value.integral();
      result[row] = std::max<std::int64_t>(value.num() / value.den(), 1);
    }
    return result;
  }

  RowValues bound(ExprId id) {
    const TermNode node = node_of(id);
    RowValues result{};
    for (std::size_t row = 0; row < space_.rows(); ++row) result[row] = space_.bounds(node, row).first;
    return result;
  }

  void declare(const Iterator& iterator) {
    const RowValues begin = bound(iterator.range.begin), end = bound(iterator.range.end);
    RowValues extent{};
    bool moved = false;
    for (std::size_t row = 0; row < space_.rows(); ++row) {
      extent[row] = end[row] - begin[row];
      moved = moved || begin[row] != 0;
      if (extent[row] < 0) {
        if (!integral_)
          extent[row] = 1;
        else
          fail<VerifyError>("operator_key", "the range of iterator '{}' is empty", iterator.name);
      }
    }
    const TermNode node = space_.iterator(extent);
    iterator_[iterator.slot] = moved ? space_.add(node, space_.constant(begin)) : node;
  }

  /// Outside a tensor's legal indices there is no term.
  TermNode legal(TermNode node, const Range& range) {
    RowValues begin = bound(range.begin), extent = bound(range.end);
    bool moved = false;
    for (std::size_t row = 0; row < space_.rows(); ++row) {
      extent[row] -= begin[row];
      begin[row] = -begin[row];
      moved = moved || begin[row] != 0;
    }
    return space_.inside(moved ? space_.add(node, space_.constant(begin)) : node, extent);
  }

  TermNode node_of(ExprId id) {
    auto& known = known_[static_cast<std::uint32_t>(id)];
    if (known) return *known;
    const Expr expr = program_.arena[id];
    const Size& size = program_.arena[expr.size];
    const TermNode node = [&]() -> TermNode {
      switch (expr.op) {
        case Op::Iterator:
          return iterator_[static_cast<std::uint32_t>(expr.a)];
        case Op::Constant:
          return space_.constant({expr.value, expr.value});
        case Op::SizeValue:
          return space_.constant(value_of(size));
        case Op::Add: {
          const TermNode a = node_of(expr.a);
          return space_.add(a, node_of(expr.b));
        }
        case Op::Multiply: {
          RowValues factor{}, divisor{};
          for (std::size_t row = 0; row < space_.rows(); ++row) {
            const Rational value = sizes_->value(size, row) * Rational(expr.value);
            factor[row] = value.num();
            divisor[row] = value.den();
          }
          const TermNode product = space_.scale(node_of(expr.a), factor);
          const bool whole =
              std::all_of(divisor.begin(), divisor.begin() + static_cast<std::ptrdiff_t>(space_.rows()),
                          [](std::int64_t d) { return d == 1; });
          return whole ? product : space_.divide(product, divisor);
        }
        case Op::Divide:
          return space_.divide(node_of(expr.a), value_of(size));
        case Op::Modulo:
          return space_.modulo(node_of(expr.a), value_of(size));
        case Op::Inside:
          return space_.inside(node_of(expr.a), value_of(size));
      }
      SYNO_ASSERT(false, "an index expression has a known operation");
      return 0;
    }();
    known_[static_cast<std::uint32_t>(id)] = node;
    return node;
  }

  const Program& program_;
  const Scope& scope_;
  const std::vector<UnorderedDim>& unordered_;
  const Product& product_;
  const Sizes* sizes_ = nullptr;
  TermSpace space_{1};
  bool integral_ = true;
  std::vector<TermNode> iterator_;              ///< by slot
  std::vector<std::optional<TermNode>> known_;  ///< by expression
};

}  // namespace

Hash128 operator_key(const Program& program, const std::vector<UnorderedDim>& unordered,
                     OperatorKeyCache* cache) {
  if (program.outputs.size() != 1) {
    fail<VerifyError>("operator_key", "an operator has one output, this program has {}",
                      program.outputs.size());
  }
  if (program.scopes.size() != 1) {
    const Program fused = one_scope_form(program);
    SYNO_ASSERT(fused.scopes.size() == 1, "fusion leaves one scope for one output");
    return operator_key(fused, unordered, cache);
  }
  const Scope& scope = program.scopes.front();
  if (!scope.target.empty()) {
    fail<VerifyError>("operator_key", "'{}' accumulates at an index; operators are compared as gathers",
                      program.tensor(scope.output).name);
  }
  if (scope.reduction != Reduction::None && scope.reduction != Reduction::Sum &&
      scope.reduction != Reduction::Mean) {
    fail<VerifyError>("operator_key", "'{}' is reduced by other than a sum",
                      program.tensor(scope.output).name);
  }
  Product product;
  gather(program, scope.body, product);
  if (product.reads.size() > kMostReads) {
    fail<VerifyError>("operator_key", "'{}' is a product of {} reads; operators are compared up to {}",
                      program.tensor(scope.output).name, product.reads.size(), kMostReads);
  }
  for (const Scalar* read : product.reads) {
    if (read->fill != Rational(0)) {
      fail<VerifyError>("operator_key",
                        "tensor '{}' is read with fill {}; operators are compared with fill 0 only",
                        program.tensor(read->tensor).name, read->fill.to_text());
    }
  }
  OperatorKeyCache own;
  OperatorKeyCache& used = cache ? *cache : own;
  ScopeTerms terms(program, unordered, product);
  std::optional<TermSpace> space = terms.at(small_sizes_of(program.sizes, used));
  if (!space) space = terms.at(program.sizes);  // the first valuations themselves
  SYNO_ASSERT(space.has_value(), "sizes are integers at every valuation");
  return space->key(used);
}

}  // namespace syno::equality
