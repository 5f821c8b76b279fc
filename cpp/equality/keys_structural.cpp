// The structural key: every scope is serialised with its iterators in a canonical order, producers by their
// own hash.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "equality/keys.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"
#include "symbolic/simplify.hpp"

namespace syno::equality {
namespace {

using symbolic::Expr;
using symbolic::Op;

constexpr std::uint32_t kOther = 0xffff0000;  ///< a summation iterator that is not looked at
constexpr std::uint32_t kSelf = 0xffff0001;

/// The canonical number of each slot: traversal by dimension, then sums in the order under test.
using SlotNumbers = std::vector<std::uint32_t>;

class StructuralKey {
 public:
  explicit StructuralKey(const Program& program)
      : program_(program),
        arena_(program.arena),
        simplifier_(arena_, context_of(program)),
        tensors_(program.tensors.size()) {}

  Hash128 key() {
    Hasher out;
    out.add(std::string_view("program 1"));
    const auto inputs = program_.inputs();
    out.add(static_cast<std::uint32_t>(inputs.size()));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      tensors_[index(inputs[i])] =
          Hasher().add(std::string_view("input")).add(static_cast<std::uint32_t>(i)).finish();
      const Tensor& tensor = program_.tensor(inputs[i]);
      out.add(tensor.role);
      add_dims(out, tensor);
    }
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
      const Tensor& tensor = program_.tensors[t];
      if (tensor.role != Role::Constant) continue;
      Hasher constant;
      constant.add(std::string_view("constant"));
      add_dims(constant, tensor);
      for (const Rational& value : tensor.literal) constant.add(value.num()).add(value.den());
      tensors_[t] = constant.finish();
    }
    for (const Scope& scope : program_.scopes) tensors_[index(scope.output)] = scope_hash(scope);
    for (const TensorId output : program_.outputs) out.add(*tensors_[index(output)]);
    return out.finish();
  }

 private:
  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }
  std::size_t rows() const { return program_.sizes.valuation_count(); }

  /// A size by its values at every valuation; as written while there is none.
  void add_size(Hasher& out, const Size& size) const {
    if (rows() == 0 || !size.has_variables()) {
      const std::size_t copies = std::max<std::size_t>(rows(), 1);
      for (std::size_t v = 0; v < copies; ++v) {
        out.add(size.factor().num()).add(size.factor().den());
        if (rows() != 0) continue;
        for (std::size_t i = 0; i < symbolic::kMaxVariables; ++i)
          out.add(static_cast<std::int8_t>(size.exponent(i)));
      }
      return;
    }
    for (std::size_t v = 0; v < rows(); ++v) {
      const Rational value = program_.sizes.value(size, v);
      out.add(value.num()).add(value.den());
    }
  }
  void add_bound(Hasher& out, ExprId bound) const {
    if (rows() == 0) {
      add_expr(out, bound, {});
      return;
    }
    for (std::size_t v = 0; v < rows(); ++v) {
      out.add(evaluate(program_.arena, bound, program_.sizes, v, {}).value_or(0));
    }
  }
  void add_dims(Hasher& out, const Tensor& tensor) const {
    out.add(static_cast<std::uint32_t>(tensor.dims.size()));
    for (const Range& range : tensor.dims) {
      add_bound(out, range.begin);
      add_bound(out, range.end);
    }
  }

  /// Sums of expressions do not depend on the order of their terms.
  Hash128 expr_hash(ExprId id, const SlotNumbers& numbers) const {
    const Expr& node = arena_[id];
    if (node.op == Op::Add) {
      std::vector<Hash128> terms;
      const auto collect = [&](auto&& self, ExprId part) -> void {
        const Expr& sum = arena_[part];
        if (sum.op != Op::Add) {
          terms.push_back(expr_hash(part, numbers));
          return;
        }
        self(self, sum.a);
        self(self, sum.b);
      };
      collect(collect, id);
      std::sort(terms.begin(), terms.end());
      Hasher out;
      out.add(Op::Add);
      for (const Hash128& term : terms) out.add(term);
      return out.finish();
    }
    Hasher out;
    if (node.op == Op::SizeValue) {  // a number is a size without variables
      out.add(Op::SizeValue);
      add_size(out, arena_[node.size]);
      return out.finish();
    }
    if (node.op == Op::Constant && node.value > 0) {
      out.add(Op::SizeValue);
      add_size(out, Size(node.value));
      return out.finish();
    }
    out.add(node.op);
    if (node.op == Op::Iterator) {
      out.add(numbers.empty() ? static_cast<std::uint32_t>(node.a)
                              : numbers[static_cast<std::size_t>(node.a)]);
    } else if (node.op == Op::Constant) {
      out.add(node.value);
    } else {
      out.add(node.value);
      add_size(out, arena_[node.size]);
      out.add(expr_hash(node.a, numbers));
    }
    return out.finish();
  }
  void add_expr(Hasher& out, ExprId id, const SlotNumbers& numbers) const { out.add(expr_hash(id, numbers)); }

  static bool commutes(Function function) {
    switch (function) {
      case Function::Add:
      case Function::Multiply:
      case Function::Maximum:
      case Function::Minimum:
      case Function::And:
      case Function::Or:
        return true;
      default:
        return false;
    }
  }

  Hash128 scalar_hash(ScalarId id, const SlotNumbers& numbers, bool simplified) {
    const Scalar& scalar = program_.scalar(id);
    const auto expr = [&](ExprId e) { return simplified ? simple_[static_cast<std::size_t>(e)] : e; };
    Hasher out;
    out.add(scalar.kind);
    switch (scalar.kind) {
      case ScalarKind::Literal:
        return out.add(scalar.literal.num()).add(scalar.literal.den()).finish();
      case ScalarKind::Index:
        add_expr(out, expr(scalar.index), numbers);
        return out.finish();
      case ScalarKind::Read: {
        SYNO_ASSERT(tensors_[index(scalar.tensor)].has_value(), "a tensor is written before it is read");
        out.add(*tensors_[index(scalar.tensor)]).add(scalar.fill.num()).add(scalar.fill.den());
        for (const ExprId e : scalar.indices) add_expr(out, expr(e), numbers);
        return out.finish();
      }
      case ScalarKind::Unary:
        return out.add(scalar.function).add(scalar_hash(scalar.a, numbers, simplified)).finish();
      case ScalarKind::Binary: {
        out.add(scalar.function);
        std::vector<Hash128> operands;
        const auto collect = [&](auto&& self, ScalarId part) -> void {
          const Scalar& operand = program_.scalar(part);
          if (operand.kind == ScalarKind::Binary && operand.function == scalar.function &&
              commutes(scalar.function)) {
            self(self, operand.a);
            self(self, operand.b);
            return;
          }
          operands.push_back(scalar_hash(part, numbers, simplified));
        };
        if (commutes(scalar.function)) {
          collect(collect, scalar.a);
          collect(collect, scalar.b);
        } else {
          operands = {scalar_hash(scalar.a, numbers, simplified), scalar_hash(scalar.b, numbers, simplified)};
        }
        if (commutes(scalar.function) || scalar.function == Function::Equal ||
            scalar.function == Function::NotEqual) {
          std::sort(operands.begin(), operands.end());
        }
        for (const Hash128& operand : operands) out.add(operand);
        return out.finish();
      }
      case ScalarKind::Select:
        out.add(scalar_hash(scalar.a, numbers, simplified));
        out.add(scalar_hash(scalar.b, numbers, simplified));
        return out.add(scalar_hash(scalar.c, numbers, simplified)).finish();
    }
    return out.finish();
  }

  Hash128 scope_hash(const Scope& scope) {
    simplify(scope);
    SlotNumbers numbers(program_.next_slot, kOther);
    for (std::size_t d = 0; d < scope.traversal.size(); ++d) {
      numbers[scope.traversal[d].slot] = static_cast<std::uint32_t>(d);
    }
    // Sums in the order of what the body looks like around each; ties are tried in every order.
    std::vector<std::pair<Hash128, std::uint32_t>> sums;
    for (const Iterator& sum : scope.sums) {
      SlotNumbers marked = numbers;
      marked[sum.slot] = kSelf;
      Hasher out;
      add_bound(out, sum.range.begin);
      add_bound(out, sum.range.end);
      out.add(written(scope, marked));
      sums.emplace_back(out.finish(), sum.slot);
    }
    std::sort(sums.begin(), sums.end());
    std::size_t orders = 1, run = 1;
    for (std::size_t i = 1; i < sums.size(); ++i) {
      run = sums[i].first == sums[i - 1].first ? run + 1 : 1;
      orders *= run;
    }
    std::optional<Hash128> least;
    do {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        numbers[sums[i].second] = static_cast<std::uint32_t>(scope.traversal.size() + i);
      }
      const Hash128 hash = written(scope, numbers);
      if (!least || hash < *least) least = hash;
    } while (orders <= 5040 && next_order(sums));

    Hasher out;
    out.add(std::string_view("scope"));
    add_dims(out, program_.tensor(scope.output));
    out.add(scope.reduction);
    for (const auto* iterators : {&scope.traversal, &scope.sums})
      out.add(static_cast<std::uint32_t>(iterators->size()));
    for (const Iterator& iterator : scope.traversal) {
      add_bound(out, iterator.range.begin);
      add_bound(out, iterator.range.end);
    }
    for (const auto& [look, slot] : sums) out.add(look);
    return out.add(*least).finish();
  }

  /// The next order of sums that keeps the looks sorted.
  static bool next_order(std::vector<std::pair<Hash128, std::uint32_t>>& sums) {
    for (std::size_t begin = 0; begin < sums.size();) {
      std::size_t end = begin;
      while (end < sums.size() && sums[end].first == sums[begin].first) ++end;
      const auto from = sums.begin() + static_cast<std::ptrdiff_t>(begin);
      if (std::next_permutation(from, sums.begin() + static_cast<std::ptrdiff_t>(end))) return true;
      begin = end;  // this run is back at its first order: carry on to the next
    }
    return false;
  }

  Hash128 written(const Scope& scope, const SlotNumbers& numbers) {
    Hasher out;
    for (const ExprId target : scope.target)
      add_expr(out, simple_[static_cast<std::size_t>(target)], numbers);
    return out.add(scalar_hash(scope.body, numbers, true)).finish();
  }

  /// The simplified form of every index expression of the scope, in `simple_` by its id.
  void simplify(const Scope& scope) {
    const auto note = [&](ExprId id) {
      if (static_cast<std::size_t>(id) >= simple_.size()) simple_.resize(static_cast<std::size_t>(id) + 1);
      simple_[static_cast<std::size_t>(id)] = simplifier_(id);
    };
    for (const ExprId target : scope.target) note(target);
    for (const ScalarId id : scalars_of(program_, scope.body)) over_indices(program_.scalar(id), note);
  }

  const Program& program_;
  symbolic::Arena arena_;  ///< a copy: ids stay valid, and simplifying adds to it
  symbolic::Simplifier simplifier_;
  std::vector<std::optional<Hash128>> tensors_;
  std::vector<ExprId> simple_;
};

}  // namespace

Hash128 structural_key(const Program& program) { return StructuralKey(program).key(); }

}  // namespace syno::equality
