#include "program/infer.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::program::detail {
namespace {

constexpr std::string_view kParse = "parse";
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;
constexpr std::int64_t kMaxEnumerated = std::int64_t{1} << 18;

using symbolic::Expr;
using symbolic::Interval;
using symbolic::Op;
using RangeOf = std::function<Extent(std::uint32_t)>;

Interval plus(Interval a, Interval b) {
  Interval result;
  if (__builtin_add_overflow(a.least, b.least, &result.least) ||
      __builtin_add_overflow(a.greatest, b.greatest, &result.greatest))
    fail<ShapeError>(kParse, "an index does not fit 64 bits");
  return result;
}

Interval times(Interval a, std::int64_t factor) {
  Interval result;
  if (__builtin_mul_overflow(a.least, factor, &result.least) ||
      __builtin_mul_overflow(a.greatest, factor, &result.greatest))
    fail<ShapeError>(kParse, "an index does not fit 64 bits");
  if (factor < 0) std::swap(result.least, result.greatest);
  return result;
}

// An index as constant + linear terms + factor * atom, atoms being what divides or guards.
struct Terms {
  std::int64_t constant = 0;
  std::map<std::uint32_t, std::int64_t> linear;
  std::vector<std::pair<ExprId, std::int64_t>> atoms;
};

class Bounds {
 public:
  Bounds(const Program& program, const RangeOf& range) : program_(program), range_(range) {}

  std::optional<Interval> of(ExprId index) const {
    Terms terms;
    collect(index, 1, terms);
    Interval total{terms.constant, terms.constant};
    std::vector<bool> done(terms.atoms.size(), false);
    for (std::size_t first = 0; first < terms.atoms.size(); ++first) {
      if (done[first]) continue;
      // The atoms that share iterators, directly or through others, and the linear terms over these.
      std::set<std::uint32_t> slots = slots_of(terms.atoms[first].first);
      std::vector<std::pair<ExprId, std::int64_t>> group;
      for (bool grown = true; grown;) {
        grown = false;
        for (std::size_t i = first; i < terms.atoms.size(); ++i) {
          if (done[i]) continue;
          const std::set<std::uint32_t> others = slots_of(terms.atoms[i].first);
          const bool shares = i == first || std::any_of(others.begin(), others.end(),
                                                        [&](auto s) { return slots.contains(s); });
          if (!shares) continue;
          slots.insert(others.begin(), others.end());
          group.push_back(terms.atoms[i]);
          done[i] = grown = true;
        }
      }
      std::map<std::uint32_t, std::int64_t> linear;
      for (const std::uint32_t slot : slots)
        if (const auto found = terms.linear.find(slot); found != terms.linear.end()) {
          linear.insert(*found);
          terms.linear.erase(found);
        }
      std::optional<Interval> part;
      if (group.size() == 1 && linear.empty()) part = atom(group[0].first);
      part = part ? times(*part, group[0].second) : enumerate(slots, group, linear);
      if (!part) return std::nullopt;
      total = plus(total, *part);
    }
    for (const auto& [slot, coefficient] : terms.linear) {
      const Extent extent = range_(slot);
      total = plus(total, times({extent.begin, extent.end - 1}, coefficient));
    }
    return total;
  }

 private:
  std::int64_t size(const Expr& node) const {
    return program_.sizes.integer_value(program_.arena[node.size], 0);
  }

  void collect(ExprId id, std::int64_t factor, Terms& terms) const {
    const Expr& node = program_.arena[id];
    switch (node.op) {
      case Op::Iterator:
        terms.linear[static_cast<std::uint32_t>(node.a)] += factor;
        return;
      case Op::Constant:
        terms.constant += times({node.value, node.value}, factor).least;
        return;
      case Op::SizeValue:
        terms.constant += times({size(node), size(node)}, factor).least;
        return;
      case Op::Add:
        collect(node.a, factor, terms);
        collect(node.b, factor, terms);
        return;
      case Op::Multiply: {
        const std::int64_t by = program_.arena[node.size].is_one() ? node.value : size(node);
        collect(node.a, times({by, by}, factor).least, terms);
        return;
      }
      default:
        terms.atoms.emplace_back(id, factor);
        return;
    }
  }

  std::set<std::uint32_t> slots_of(ExprId id) const {
    const auto slots = program_.arena.iterators(id);
    return {slots.begin(), slots.end()};
  }

  // What needs no enumeration: a quotient is monotone; a remainder is known within one period and over whole
  // ones.
  std::optional<Interval> atom(ExprId id) const {
    const Expr& node = program_.arena[id];
    const std::int64_t by = size(node);
    const std::optional<Interval> inner = of(node.a);
    if (!inner) return std::nullopt;
    if (node.op == Op::Divide)
      return Interval{floor_divide(inner->least, by), floor_divide(inner->greatest, by)};
    if (node.op == Op::Inside) {
      if (inner->least >= 0 && inner->greatest < by) return inner;
      return std::nullopt;
    }
    const std::int64_t period = floor_divide(inner->least, by);
    if (period == floor_divide(inner->greatest, by))
      return Interval{inner->least - period * by, inner->greatest - period * by};
    Terms terms;
    collect(node.a, 1, terms);
    for (const auto& [slot, coefficient] : terms.linear) {
      const Extent extent = range_(slot);
      if (std::abs(coefficient) == 1 && extent.end - extent.begin >= by) return Interval{0, by - 1};
    }
    return std::nullopt;
  }

  std::optional<Interval> enumerate(const std::set<std::uint32_t>& slots,
                                    const std::vector<std::pair<ExprId, std::int64_t>>& atoms,
                                    const std::map<std::uint32_t, std::int64_t>& linear) const {
    std::int64_t points = 1;
    for (const std::uint32_t slot : slots) {
      const Extent extent = range_(slot);
      if (__builtin_mul_overflow(points, extent.end - extent.begin, &points) || points > kMaxEnumerated)
        return std::nullopt;
    }
    std::vector<std::int64_t> values(slots.empty() ? 0 : *slots.rbegin() + 1);
    for (const std::uint32_t slot : slots) values[slot] = range_(slot).begin;
    std::optional<Interval> result;
    for (;;) {
      Interval point;
      bool defined = true;
      for (const auto& [id, factor] : atoms) {
        const auto value = evaluate(program_.arena, id, program_.sizes, 0, values);
        if (!(defined = value.has_value())) break;
        point = plus(point, times({*value, *value}, factor));
      }
      for (const auto& [slot, coefficient] : linear)
        point = plus(point, times({values[slot], values[slot]}, coefficient));
      if (defined) {
        if (!result) result = point;
        result->least = std::min(result->least, point.least);
        result->greatest = std::max(result->greatest, point.greatest);
      }
      auto slot = slots.begin();
      while (slot != slots.end() && ++values[*slot] == range_(*slot).end) {
        values[*slot] = range_(*slot).begin;
        ++slot;
      }
      if (slot == slots.end()) return result;
    }
  }

  const Program& program_;
  const RangeOf& range_;
};

class Inference {
 public:
  Inference(Program& program, std::vector<IteratorFacts>& iterators, std::vector<TensorFacts>& tensors)
      : program_(program), iterators_(iterators), tensors_(tensors), numeric_(program.concrete()) {}

  void run() {
    while (follow_single_iterators() || follow_windows() || follow_consumers()) {
    }
    require_iterators();
    for (IteratorFacts& iterator : iterators_) iterator.range = iterators_[root(iterator)].range;
    for (TensorFacts& tensor : tensors_)
      for (std::size_t d = 0; d < tensor.dims.size(); ++d)
        if (!tensor.dims[d]) tensor.dims[d] = assumed(tensor, d);
    for (const TensorFacts& tensor : tensors_)
      for (std::size_t d = 0; numeric_ && d < tensor.dims.size(); ++d) check(tensor, d);
  }

 private:
  std::size_t root(const IteratorFacts& iterator) const {
    std::uint32_t slot = iterator.same_as;
    while (iterators_[slot].same_as != slot) slot = iterators_[slot].same_as;
    return slot;
  }
  std::optional<Range>& range(std::uint32_t slot) { return iterators_[root(iterators_[slot])].range; }
  std::optional<std::uint32_t> single(ExprId index) const {
    const Expr& node = program_.arena[index];
    if (node.op != Op::Iterator) return std::nullopt;
    return static_cast<std::uint32_t>(node.a);
  }
  bool all_single(const std::vector<ExprId>& uses) const {
    return std::all_of(uses.begin(), uses.end(), [&](ExprId use) { return single(use).has_value(); });
  }
  Extent numbers(const Range& range) const { return extent_of(program_, range, 0); }
  Range from_zero(std::int64_t end) { return {program_.arena.constant(0), program_.arena.constant(end)}; }

  bool follow_single_iterators() {
    bool changed = false;
    for (TensorFacts& tensor : tensors_)
      for (std::size_t d = 0; d < tensor.dims.size(); ++d) {
        if (!tensor.dims[d] && !tensor.traversal.empty() && !tensor.accumulated &&
            range(tensor.traversal[d])) {
          tensor.dims[d] = range(tensor.traversal[d]);
          changed = true;
        }
        if (!tensor.dims[d] && tensor.accumulated && known(tensor.uses[d])) {
          tensor.dims[d] = assumed(tensor, d);
          changed = true;
        }
        if (!tensor.dims[d] || !all_single(tensor.uses[d])) continue;
        for (const ExprId use : tensor.uses[d]) {
          std::optional<Range>& iterator = range(*single(use));
          if (iterator) continue;
          iterator = tensor.dims[d];
          changed = true;
        }
      }
    return changed;
  }

  bool known(const std::vector<ExprId>& uses) {
    for (const ExprId use : uses)
      for (const std::uint32_t slot : program_.arena.iterators(use))
        if (!range(slot)) return false;
    return true;
  }

  // Given a dimension's extent, the greatest range of the one iterator that is unknown in its indices.
  bool follow_windows() {
    if (!numeric_) return false;
    std::map<std::size_t, std::int64_t> found;  // by root slot
    for (TensorFacts& tensor : tensors_)
      for (std::size_t d = 0; d < tensor.dims.size(); ++d) {
        if (!tensor.dims[d]) continue;
        std::set<std::size_t> unknown;
        for (const ExprId use : tensor.uses[d])
          for (const std::uint32_t slot : program_.arena.iterators(use))
            if (!range(slot)) unknown.insert(root(iterators_[slot]));
        if (unknown.size() != 1) continue;
        const std::int64_t extent = greatest_range(tensor, d, *unknown.begin());
        if (extent == 0) continue;
        const auto [place, is_new] = found.emplace(*unknown.begin(), extent);
        if (!is_new) place->second = std::min(place->second, extent);
      }
    for (const auto& [slot, extent] : found) iterators_[slot].range = from_zero(extent);
    return !found.empty();
  }

  std::int64_t greatest_range(const TensorFacts& tensor, std::size_t d, std::size_t slot) {
    const Extent dim = numbers(*tensor.dims[d]);
    const auto fits = [&](std::int64_t extent) -> std::optional<bool> {
      iterators_[slot].range = from_zero(extent);
      const std::optional<Extent> needed = needed_extent(tensor.uses[d]);
      iterators_[slot].range.reset();
      if (!needed) return std::nullopt;
      return needed->end <= dim.end;
    };
    if (fits(1) == false)
      fail<ShapeError>(
          kParse, "dimension {} of '{}' has size {}, which is less than the indices need even when '{}' is 1",
          d, tensor.name, dim.end - dim.begin, iterators_[slot].name);
    std::int64_t yes = 1, no = 2;
    for (;; yes = no, no *= 2) {
      const std::optional<bool> ok = no <= kMaxExtent ? fits(no) : std::nullopt;
      if (!ok) return 0;  // the extent does not bound this iterator
      if (!*ok) break;
    }
    while (no - yes > 1) {
      const std::int64_t middle = yes + (no - yes) / 2;
      const std::optional<bool> ok = fits(middle);
      if (!ok) return 0;
      (*ok ? yes : no) = middle;
    }
    return yes;
  }

  // [0, greatest + 1 - p) with p = max(0, -least), over all uses.
  std::optional<Extent> needed_extent(const std::vector<ExprId>& uses) {
    std::optional<Interval> all;
    const RangeOf range_of = [&](std::uint32_t slot) { return numbers(*range(slot)); };
    for (const ExprId use : uses) {
      const std::optional<Interval> one = exact_bounds(program_, use, range_of);
      if (!one) return std::nullopt;
      if (!all) all = one;
      all->least = std::min(all->least, one->least);
      all->greatest = std::max(all->greatest, one->greatest);
    }
    if (!all) return std::nullopt;
    return Extent{0, all->greatest + 1 - std::max<std::int64_t>(0, -all->least)};
  }

  // Last resort: an intermediate is as large as those who read it want.
  bool follow_consumers() {
    for (TensorFacts& tensor : tensors_)
      for (std::size_t d = 0; d < tensor.dims.size(); ++d) {
        if (tensor.dims[d] || tensor.traversal.empty() || tensor.accumulated || tensor.uses[d].empty())
          continue;
        if (range(tensor.traversal[d]) || !known(tensor.uses[d])) continue;
        range(tensor.traversal[d]) = assumed(tensor, d);
        return true;
      }
    return false;
  }

  Range assumed(const TensorFacts& tensor, std::size_t d) {
    const std::vector<ExprId>& uses = tensor.uses[d];
    if (uses.empty())
      fail<ShapeError>(kParse, "'{}' is never read, so that its shape is unknown: give its shape",
                       tensor.name);
    if (!numeric_) {
      const std::optional<Range> first = single(uses[0]) ? range(*single(uses[0])) : std::nullopt;
      for (const ExprId use : uses)
        if (!first || !single(use) || range(*single(use)) != first ||
            program_.arena.constant(0) != first->begin)
          fail<ShapeError>(
              kParse,
              "the size of dimension {} of '{}' does not follow from single iterators: declare it, "
              "as in `input {}[N, ...]`",
              d, tensor.name, tensor.name);
      return *first;
    }
    const std::optional<Extent> needed = needed_extent(uses);
    if (!needed)
      fail<ShapeError>(
          kParse,
          "the indices of dimension {} of '{}' are too intricate to find its size: give the shape "
          "of '{}'",
          d, tensor.name, tensor.name);
    if (needed->end < 1)
      fail<ShapeError>(
          kParse,
          "the indices of dimension {} of '{}' lie outside any tensor (the padding rule gives size {}): "
          "give the shape of '{}'",
          d, tensor.name, needed->end, tensor.name);
    return from_zero(needed->end);
  }

  void require_iterators() {
    std::vector<std::string> missing;
    for (const IteratorFacts& iterator : iterators_)
      if (!iterators_[root(iterator)].range &&
          std::find(missing.begin(), missing.end(), iterator.name) == missing.end())
        missing.push_back(iterator.name);
    if (missing.empty()) return;
    std::vector<std::string> inputs;
    for (const TensorFacts& tensor : tensors_)
      if (tensor.traversal.empty() && !tensor.accumulated && !tensor.given && !tensor.dims.empty())
        inputs.push_back(tensor.name);
    fail<ShapeError>(
        kParse, "the size of {} is not given and does not follow from the rest: give {}=... in sizes{}",
        fmt::join(missing, ", "), fmt::join(missing, "=..., "),
        inputs.empty() ? std::string() : fmt::format(", or shapes of {}", fmt::join(inputs, ", ")));
  }

  // Where a dimension is indexed by single iterators only, its size and theirs are one number.
  void check(const TensorFacts& tensor, std::size_t d) {
    if (tensor.accumulated || tensor.uses[d].empty() || !all_single(tensor.uses[d])) return;
    const Extent dim = numbers(*tensor.dims[d]);
    std::int64_t greatest = 0;
    std::string name;
    for (const ExprId use : tensor.uses[d]) {
      const std::uint32_t slot = *single(use);
      if (iterators_[root(iterators_[slot])].fixed) return;
      const std::int64_t end = numbers(*range(slot)).end;
      if (end > greatest) name = iterators_[slot].name;
      greatest = std::max(greatest, end);
    }
    if (greatest != dim.end)
      fail<ShapeError>(
          kParse,
          "'{}' has size {}, but it indexes dimension {} of '{}', which has size {}; to read a part "
          "of a dimension or beyond it, state the range in the text, as in `{}: {}`",
          name, greatest, d, tensor.name, dim.end - dim.begin, name, greatest);
  }

  Program& program_;
  std::vector<IteratorFacts>& iterators_;
  std::vector<TensorFacts>& tensors_;
  bool numeric_;
};

}  // namespace

std::optional<Interval> exact_bounds(const Program& program, ExprId index, const RangeOf& range) {
  return Bounds(program, range).of(index);
}

void infer(Program& program, std::vector<IteratorFacts>& iterators, std::vector<TensorFacts>& tensors) {
  Inference(program, iterators, tensors).run();
}

}  // namespace syno::program::detail
