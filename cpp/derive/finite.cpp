#include "derive/finite.hpp"

#include <algorithm>
#include <vector>

#include "derive/moved.hpp"
#include "derive/tools.hpp"

namespace syno::derive {

namespace {

constexpr std::int64_t kMostPlaces = 1 << 16;  ///< of one dimension, that are looked at

bool infinite(const Scalar& scalar) {
  return (scalar.kind == ScalarKind::Literal && !scalar.literal.finite()) ||
         (scalar.kind == ScalarKind::Read && !scalar.fill.finite());
}

/// Whether for all values of the first iterators there are values of the others that put an index inside.
class Coverage {
 public:
  Coverage(const Program& program, ExprId index, const program::Range& dimension)
      : program_(program), index_(index), range_(range_of(program, dimension)), values_(program.next_slot) {}

  bool holds(const Iterators& every, const Iterators& some) {
    std::int64_t places = 1;
    for (const Iterators* list : {&every, &some})
      for (const Iterator& iterator : *list) {
        const auto [begin, end] = range_of(program_, iterator.range);
        if ((places *= end - begin) > kMostPlaces) return false;
      }
    return over(every, 0, true, [&] { return over(some, 0, false, [&] { return inside(); }); });
  }

 private:
  bool inside() const {
    const auto at = symbolic::evaluate(program_.arena, index_, program_.sizes, 0, values_);
    return at && *at >= range_.first && *at < range_.second;
  }

  template <class Holds>
  bool over(const Iterators& list, std::size_t k, bool all, Holds&& holds) {
    if (k == list.size()) return holds();
    const auto [begin, end] = range_of(program_, list[k].range);
    for (std::int64_t value = begin; value < end; ++value) {
      values_[list[k].slot] = value;
      if (over(list, k + 1, all, holds) != all) return !all;
    }
    return all;
  }

  const Program& program_;
  ExprId index_;
  std::pair<std::int64_t, std::int64_t> range_;
  std::vector<std::int64_t> values_;
};

/// Whether a maximum or minimum of one read finds an element in every window, one dimension at a time.
bool covered(const Program& program, const Scope& scope) {
  const Scalar& read = program.scalar(scope.body);
  const bool padded = (scope.reduction == program::Reduction::Max && read.fill == Rational::infinity(true)) ||
                      (scope.reduction == program::Reduction::Min && read.fill == Rational::infinity());
  if (read.kind != ScalarKind::Read || !padded) return false;
  std::vector<std::uint32_t> seen;
  for (std::size_t d = 0; d < read.indices.size(); ++d) {
    Iterators every, some;
    for (const Iterator& i : scope.traversal)
      if (depends_on(program, read.indices[d], i.slot)) every.push_back(i);
    for (const Iterator& i : scope.sums) {
      if (!depends_on(program, read.indices[d], i.slot)) continue;
      if (std::find(seen.begin(), seen.end(), i.slot) != seen.end()) return false;
      seen.push_back(i.slot);
      some.push_back(i);
    }
    if (!Coverage(program, read.indices[d], program.tensor(read.tensor).dims[d]).holds(every, some))
      return false;
  }
  return true;
}

}  // namespace

bool finite(const Program& program, ScalarId body) {
  if (!total(program, body) || program::any_scalar(program, body, infinite)) return false;
  // Scopes stand after what they read: from the last one on, what is read is known.
  std::vector<bool> needed(program.tensors.size());
  const auto need = [&](ScalarId root) {
    program::over_reads(program, root, [&](ScalarId, const Scalar& read) {
      needed[static_cast<std::size_t>(read.tensor)] = true;
    });
  };
  need(body);
  for (std::size_t s = program.scopes.size(); s-- > 0;) {
    const Scope& scope = program.scopes[s];
    if (!needed[static_cast<std::size_t>(scope.output)]) continue;
    if (program::any_scalar(program, scope.body, infinite) && !covered(program, scope)) return false;
    need(scope.body);
  }
  return std::none_of(program.tensors.begin(), program.tensors.end(), [&](const Tensor& tensor) {
    const bool read = needed[static_cast<std::size_t>(&tensor - program.tensors.data())];
    return read && std::any_of(tensor.literal.begin(), tensor.literal.end(),
                               [](const Rational& value) { return !value.finite(); });
  });
}

}  // namespace syno::derive
