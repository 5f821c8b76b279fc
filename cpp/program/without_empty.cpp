#include "program/without_empty.hpp"

#include <algorithm>
#include <map>

#include "program/scalars.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"

namespace syno::program {

namespace {

constexpr const char* kEmpty = "empty";

class Remover {
 public:
  Remover(const Program& two, const Program& three) : made_(two), two_(two), three_(three) {}

  Program run() {
    if (two_.tensors.size() != three_.tensors.size() || two_.scopes.size() != three_.scopes.size())
      differ("it");
    for (std::size_t t = 0; t < two_.tensors.size(); ++t) {
      Tensor& tensor = made_.tensors[t];
      bool empty = false;
      for (std::size_t d = 0; d < tensor.dims.size(); ++d)
        empty = shrink(tensor.dims[d], three_.tensors[t].dims[d]) || empty;
      empty_.push_back(empty);
    }
    std::vector<Scope> scopes;
    for (std::size_t s = 0; s < two_.scopes.size(); ++s)
      if (!empty_[index(two_.scopes[s].output)]) scopes.push_back(left_of(s));
    made_.scopes = std::move(scopes);
    for (const TensorId id : made_.outputs)
      if (empty_[index(id)])
        fail<ShapeError>(kEmpty, "'{}' has no elements to compute", made_.tensor(id).name);
    drop_tensors();
    verify(made_);
    return std::move(made_);
  }

 private:
  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }

  [[noreturn]] void differ(const std::string& what) const {
    fail<ShapeError>(kEmpty, "{} is not computed in the same way for every extent, so not for an empty one",
                     what);
  }

  /// The range with 0 instead; whether nothing is in it.
  bool shrink(Range& range, const Range& with_three) {
    const Extent a = extent_of(two_, range, 0), b = extent_of(three_, with_three, 0);
    const std::int64_t begin = 3 * a.begin - 2 * b.begin, end = 3 * a.end - 2 * b.end;
    if (a.begin != b.begin || a.end != b.end)
      range = {made_.arena.constant(begin), made_.arena.constant(std::max(begin, end))};
    return end <= begin;
  }
  bool shrink(std::vector<Iterator>& iterators, const std::vector<Iterator>& with_three) {
    if (iterators.size() != with_three.size()) differ("it");
    bool empty = false;
    for (std::size_t i = 0; i < iterators.size(); ++i)
      empty = shrink(iterators[i].range, with_three[i].range) || empty;
    return empty;
  }

  Scope left_of(std::size_t s) {
    Scope scope = two_.scopes[s];
    const Scope& other = three_.scopes[s];
    const bool nowhere = shrink(scope.traversal, other.traversal);
    const bool nothing = shrink(scope.sums, other.sums);
    if (nowhere || nothing) {
      if (!scope.target.empty()) {  // nothing is added to the zeros it starts with
        scope.target.clear();
        scope.traversal.clear();
        for (const Range& dim : made_.tensor(scope.output).dims)
          scope.traversal.push_back(made_.new_iterator(fmt::format("i{}", scope.traversal.size()), dim));
        scope.body = made_.literal(0);
      } else {
        scope.body = of_nothing(scope);
      }
      scope.sums.clear();
      scope.reduction = Reduction::None;
      return scope;
    }
    const auto parts = scalars_of(two_, scope.body), others = scalars_of(three_, other.body);
    if (parts.size() != others.size()) differ(name(scope));
    std::map<ScalarId, ScalarId> left;
    for (std::size_t i = 0; i < parts.size(); ++i) left[parts[i]] = part(scope, parts[i], others[i], left);
    for (std::size_t d = 0; d < scope.target.size(); ++d) same(scope, scope.target[d], other.target[d]);
    scope.body = left.at(scope.body);
    return scope;
  }

  std::string name(const Scope& scope) const { return fmt::format("'{}'", made_.tensor(scope.output).name); }

  ScalarId of_nothing(const Scope& scope) {
    switch (scope.reduction) {
      case Reduction::None:
      case Reduction::Sum:
        return made_.literal(0);
      case Reduction::Product:
        return made_.literal(1);
      case Reduction::Mean:
        return made_.binary(Function::Divide, made_.literal(0), made_.literal(0));
      case Reduction::Max:
      case Reduction::Min:
        break;
    }
    fail<ShapeError>(kEmpty, "{} is a {} over nothing, which has no value", name(scope),
                     scope.reduction == Reduction::Max ? "maximum" : "minimum");
  }

  void same(const Scope& scope, ExprId a, ExprId b) const {
    const auto slot = [](std::uint32_t number) { return fmt::format("_{}", number); };
    if (symbolic::to_text(two_.arena, a, symbolic::Sizes(), slot) !=
        symbolic::to_text(three_.arena, b, symbolic::Sizes(), slot))
      differ(name(scope));
  }

  ScalarId part(const Scope& scope, ScalarId id, ScalarId other, const std::map<ScalarId, ScalarId>& left) {
    Scalar made = two_.scalar(id);
    const Scalar& with_three = three_.scalar(other);
    if (made.kind != with_three.kind || made.tensor != with_three.tensor) differ(name(scope));
    switch (made.kind) {
      case ScalarKind::Literal:
        if (made.literal != with_three.literal) differ(name(scope));
        return id;
      case ScalarKind::Index:
        same(scope, made.index, with_three.index);
        return id;
      case ScalarKind::Read:
        if (empty_[index(made.tensor)]) return made_.literal(made.fill);
        for (std::size_t d = 0; d < made.indices.size(); ++d)
          same(scope, made.indices[d], with_three.indices[d]);
        return id;
      default:
        over_operands(made, [&](ScalarId& operand) { operand = left.at(operand); });
    }
    return made_.add_scalar(std::move(made));
  }

  void drop_tensors() {
    std::vector<TensorId> now(made_.tensors.size());
    std::vector<Tensor> kept;
    for (std::size_t t = 0; t < made_.tensors.size(); ++t) {
      if (empty_[t]) continue;
      now[t] = TensorId{static_cast<std::uint32_t>(kept.size())};
      kept.push_back(std::move(made_.tensors[t]));
    }
    made_.tensors = std::move(kept);
    for (Scope& scope : made_.scopes) scope.output = now[index(scope.output)];
    for (Scalar& scalar : made_.scalars) {
      if (scalar.kind != ScalarKind::Read) continue;
      if (empty_[index(scalar.tensor)]) {
        Scalar unused;
        unused.literal = scalar.fill;
        scalar = unused;
      } else {
        scalar.tensor = now[index(scalar.tensor)];
      }
    }
    for (TensorId& id : made_.outputs) id = now[index(id)];
  }

  Program made_;
  const Program& two_;
  const Program& three_;
  std::vector<bool> empty_;  // by tensor
};

}  // namespace

Program without_empty(const Program& two, const Program& three) {
  if (!two.concrete() || !three.concrete()) fail<ShapeError>(kEmpty, "the programs have symbolic sizes");
  return Remover(two, three).run();
}

}  // namespace syno::program
