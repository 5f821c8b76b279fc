#include "lower/index_inverse.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "support/checked.hpp"
#include "support/error.hpp"
#include "symbolic/congruence.hpp"
#include "symbolic/simplify.hpp"

namespace syno::lower {

using symbolic::Arena;
using symbolic::Expr;
using symbolic::Op;
using symbolic::Size;

Iterators::Iterators(program::Program& program) : program_(program), iterators_(program.next_slot) {
  for (const program::Scope& scope : program.scopes) {
    for (const auto* list : {&scope.traversal, &scope.sums}) {
      for (const program::Iterator& iterator : *list) iterators_[iterator.slot] = iterator;
    }
  }
}

Slot Iterators::add(std::string name, Range range) {
  iterators_.push_back(program_.new_iterator(std::move(name), range));
  return iterators_.back().slot;
}

Slot Iterators::add(std::string name, std::int64_t begin, std::int64_t end) {
  return add(std::move(name), Range{arena().constant(begin), arena().constant(end)});
}

symbolic::Context Iterators::context() {
  symbolic::Context context;
  context.sizes = &program_.sizes;
  context.range = [this](Slot slot) { return iterators_.at(slot).range; };
  return context;
}

ExprId Iterators::simplified(ExprId root) { return symbolic::simplify(arena(), root, context()); }
symbolic::Interval Iterators::bounds(ExprId root) { return symbolic::bounds(arena(), root, context(), 0); }

bool Iterators::within(ExprId root, Range range) {
  const symbolic::Context about = context();
  for (std::size_t v = 0; v < program_.sizes.valuation_count(); ++v) {
    const program::Extent wanted = program::extent_of(program_, range, v);
    const symbolic::Interval reach = symbolic::bounds(arena(), root, about, v);
    if (reach.least < wanted.begin || reach.greatest >= wanted.end) return false;
  }
  return true;
}

std::int64_t Iterators::begin(Slot slot) {
  return program::extent_of(program_, iterators_[slot].range, 0).begin;
}
std::int64_t Iterators::extent(Slot slot) {
  const program::Extent extent = program::extent_of(program_, iterators_[slot].range, 0);
  return extent.end - extent.begin;
}

namespace {

class Solver {
 public:
  Solver(Iterators& iterators, const std::vector<Slot>& space)
      : iterators_(iterators), arena_(iterators.arena()) {
    for (const Slot slot : space) open_.insert(slot);
    space_ = space;
  }

  std::optional<Inverse> solve(std::vector<ExprId> indices, const std::vector<ExprId>& element) {
    std::vector<Equation> equations;
    for (std::size_t d = 0; d < indices.size(); ++d) equations.push_back({indices[d], element[d]});
    join_pairs(equations);
    // Plain iterators first, so that sums see which of theirs are known already.
    std::stable_sort(equations.begin(), equations.end(),
                     [&](const Equation& a, const Equation& b) { return weight(a.index) < weight(b.index); });
    for (const Equation& equation : equations) {
      if (!solve(equation.index, equation.value) || failed_) return std::nullopt;
    }
    for (const Slot slot : space_) {
      if (!open_.contains(slot)) continue;
      result_.free.push_back(slot);
    }
    for (const Slot slot : fresh_) {
      if (open_.contains(slot)) result_.free.push_back(slot);
    }
    // Copies of the free iterators: a scope's own.
    std::map<Slot, ExprId> renamed;
    for (Slot& slot : result_.free) {
      const program::Iterator old = iterators_[slot];
      if (iterators_.concrete() && iterators_.extent(slot) == 1) {
        renamed[slot] = arena_.constant(iterators_.begin(slot));
        slot = kNoSlot;
        continue;
      }
      const Slot copy = iterators_.add(old.name, old.range);
      renamed[slot] = arena_.iterator(copy);
      slot = copy;
    }
    std::erase(result_.free, kNoSlot);
    const auto final = [&](ExprId root) {
      root = arena_.substitute(expanded(root), [&](Slot slot) {
        const auto name = renamed.find(slot);
        return name != renamed.end() ? name->second : arena_.iterator(slot);
      });
      return iterators_.simplified(without_guards(root));
    };
    for (const Slot slot : space_) result_.points[slot] = final(arena_.iterator(slot));
    for (RangeCondition& condition : conditions_) {
      condition.value = final(condition.value);
      if (iterators_.within(condition.value, condition.range)) continue;
      const bool known =
          std::any_of(result_.conditions.begin(), result_.conditions.end(), [&](const RangeCondition& other) {
            return other.value == condition.value && other.range == condition.range;
          });
      if (!known) result_.conditions.push_back(condition);
    }
    return std::move(result_);
  }

 private:
  struct Equation {
    ExprId index, value;
  };
  struct Unknown {
    Slot slot;
    std::int64_t factor;
  };

  /// With what is bound in place of the iterators.
  ExprId expanded(ExprId root) {
    for (int round = 0;; ++round) {
      SYNO_ASSERT(round < 1000, "no iterator is bound to itself");
      const ExprId next = arena_.substitute(root, [&](Slot slot) {
        const auto bound = bound_.find(slot);
        return bound != bound_.end() ? bound->second : arena_.iterator(slot);
      });
      if (next == root) return root;
      root = next;
    }
  }

  /// Every guard met is a condition of the result, so that expressions need not repeat it.
  ExprId without_guards(ExprId root) {
    if (!arena_.has_inside(root)) return root;
    const auto inner = [&](ExprId child) { return without_guards(child); };
    return arena_[root].op == Op::Inside ? inner(arena_[root].a) : arena_.over(root, inner);
  }

  /// How late an equation is solved: sums after single terms.
  std::size_t weight(ExprId index) const { return arena_.iterators(index).size(); }

  std::optional<std::int64_t> number(symbolic::SizeId size) const {
    if (!is_integer(arena_, size)) return std::nullopt;
    return integer_of(arena_, size);
  }

  /// a / B = v and a % B = w are a = B*v + w.
  void join_pairs(std::vector<Equation>& equations) {
    for (bool joined = true; joined;) {
      joined = false;
      for (std::size_t minor = 0; minor < equations.size() && !joined; ++minor) {
        const Expr remainder = arena_[equations[minor].index];
        if (remainder.op != Op::Modulo) continue;
        const Size block = arena_[remainder.size];
        const Expr inner = arena_[remainder.a];
        for (std::size_t major = 0; major < equations.size() && !joined; ++major) {
          const Expr quotient = arena_[equations[major].index];
          if (quotient.op != Op::Divide) continue;
          const bool direct = quotient.a == remainder.a && arena_[quotient.size] == block;
          const bool chained = inner.op == Op::Divide && quotient.a == inner.a &&
                               arena_[quotient.size] == arena_[inner.size] * block;
          if (!direct && !chained) continue;
          require(equations[minor].value, Range{arena_.constant(0), arena_.size(block)});
          const ExprId value =
              arena_.add(arena_.multiply(equations[major].value, block), equations[minor].value);
          equations[major] = {remainder.a, value};
          equations.erase(equations.begin() + static_cast<std::ptrdiff_t>(minor));
          joined = true;
        }
      }
    }
  }

  bool unknown(ExprId id) const {
    const auto slots = arena_.iterators(id);
    return std::any_of(slots.begin(), slots.end(), [&](Slot slot) { return open_.contains(slot); });
  }

  void require(ExprId value, Range range) { conditions_.push_back({value, range}); }
  void require(ExprId value, std::int64_t begin, std::int64_t end) {
    require(value, Range{arena_.constant(begin), arena_.constant(end)});
  }

  void bind(Slot slot, ExprId value) {
    const auto held = arena_.iterators(expanded(value));
    if (std::find(held.begin(), held.end(), slot) != held.end()) failed_ = true;  // known only through itself
    if (failed_) return;
    open_.erase(slot);
    bound_[slot] = value;
    require(value, iterators_[slot].range);
  }

  Slot fresh(const std::string& name, std::int64_t begin, std::int64_t end) {
    const Slot slot = iterators_.add(name, begin, end);
    open_.insert(slot);
    fresh_.push_back(slot);
    return slot;
  }

  /// value = factor * result; requires divisibility.
  ExprId divided(ExprId value, std::int64_t factor) {
    if (factor < 0) return divided(arena_.multiply(value, -1), -factor);
    if (factor == 1) return value;
    require(arena_.modulo(value, Size(factor)), 0, 1);
    return arena_.divide(value, Size(factor));
  }

  bool solve(ExprId index, ExprId value) {
    const auto form = affine_form(arena_, iterators_.simplified(expanded(index)));
    value = arena_.subtract(value, arena_.constant(form.constant));
    std::vector<std::pair<ExprId, std::int64_t>> terms;
    for (const auto& [atom, factor] : form.terms) {
      if (factor == 0) {  // there for its guards only
        guards(atom);
      } else if (unknown(atom)) {
        terms.emplace_back(atom, factor);
      } else {
        value = arena_.subtract(value, arena_.multiply(atom, factor));
        guards(atom);
      }
    }
    if (terms.empty()) {
      require(value, 0, 1);
      return true;
    }
    if (terms.size() == 1) {
      return solve_atom(terms[0].first, divided(value, terms[0].second));
    }
    return iterators_.concrete() ? solve_sum(terms, value) : solve_symbolic_sum(terms, value);
  }

  /// A term's guards hold where the read counts.
  void guards(ExprId id) {
    if (!arena_.has_inside(id)) return;
    const Expr node = arena_[id];
    if (node.op == Op::Inside)
      require(node.a, Range{arena_.constant(0), arena_.size(Size(arena_[node.size]))});
    guards(node.a);
    if (node.op == Op::Add) guards(node.b);
  }

  bool solve_atom(ExprId atom, ExprId value) {
    const Expr node = arena_[atom];
    if (node.op == Op::Iterator) {
      bind(static_cast<Slot>(node.a), value);
      return true;
    }
    const Size size = arena_[node.size];
    const Range in_size{arena_.constant(0), arena_.size(size)};
    if (node.op == Op::Inside) {
      require(value, in_size);
      return solve(node.a, value);
    }
    if (node.op == Op::Multiply) {  // by a symbolic size
      const Size factor = Size(node.value < 0 ? -node.value : node.value) * size;
      if (node.value < 0) value = arena_.multiply(value, -1);
      require(arena_.modulo(value, factor), 0, 1);
      return solve(node.a, arena_.divide(value, factor));
    }
    if (!iterators_.concrete()) return symbolic_rotation(node, value, in_size);
    const std::int64_t n = *number(node.size);
    if (node.op == Op::Divide) {
      const Slot rest = fresh("q", 0, n);
      return solve(node.a, arena_.add(arena_.multiply(value, n), arena_.iterator(rest)));
    }
    SYNO_ASSERT(node.op == Op::Modulo,
                "an atom is an iterator, a guard, a multiple, a quotient or a remainder");
    require(value, in_size);
    const symbolic::Interval reach = iterators_.bounds(node.a);
    if (reach.greatest - reach.least < n) {
      const ExprId turned = arena_.modulo(arena_.add(value, arena_.constant(-reach.least)), size);
      return solve(node.a, arena_.add(turned, arena_.constant(reach.least)));
    }
    // Where what is still open takes fewer values than there are remainders, each remainder is of one of
    // them.
    const Split split = split_known(node.a);
    const symbolic::Interval open = iterators_.bounds(split.unknown);
    if (open.greatest - open.least < n) {
      const ExprId from = arena_.add(split.known, arena_.constant(open.least));
      const ExprId turned = arena_.modulo(arena_.subtract(value, from), size);
      return solve(node.a, arena_.add(turned, from));
    }
    const Slot turn = fresh("q", floor_divide(reach.least, n), floor_divide(reach.greatest, n) + 1);
    return solve(node.a, arena_.add(value, arena_.multiply(arena_.iterator(turn), n)));
  }

  struct Split {
    ExprId known, unknown;
  };
  /// The terms of an index that hold nothing open, and the others; guards apart.
  Split split_known(ExprId index) {
    const auto form = affine_form(arena_, iterators_.simplified(without_guards(expanded(index))));
    Split split{arena_.constant(form.constant), arena_.constant(0)};
    for (const auto& [atom, factor] : form.terms) {
      ExprId& side = unknown(atom) ? split.unknown : split.known;
      side = arena_.add(side, arena_.multiply(atom, factor));
    }
    return split;
  }

  /// (i + c) % N with i in [0, N).
  bool symbolic_rotation(const Expr& node, ExprId value, Range in_size) {
    if (node.op != Op::Modulo) return false;
    const auto form = affine_form(arena_, node.a);
    if (form.terms.size() != 1 || form.terms[0].second != 1) return false;
    const ExprId inner = form.terms[0].first;
    if (!iterators_.within(inner, in_size)) return false;
    require(value, in_size);
    return solve(inner,
                 arena_.modulo(arena_.add(value, arena_.constant(-form.constant)), Size(arena_[node.size])));
  }

  bool solve_symbolic_sum(const std::vector<std::pair<ExprId, std::int64_t>>& terms, ExprId value) {
    // B*i + j with j in [0, B).
    if (terms.size() == 2) {
      for (const std::size_t major : {std::size_t{0}, std::size_t{1}}) {
        const Expr node = arena_[terms[major].first];
        const auto& minor = terms[1 - major];
        if (node.op != Op::Multiply || node.value != 1 || terms[major].second != 1 || minor.second != 1)
          continue;
        const Size block = arena_[node.size];
        if (!iterators_.within(minor.first, Range{arena_.constant(0), arena_.size(block)})) continue;
        return solve(node.a, arena_.divide(value, block)) && solve(minor.first, arena_.modulo(value, block));
      }
    }
    for (const auto& [atom, factor] : terms) {
      const Slot slot = slot_of(arena_, atom);
      if (slot == kNoSlot || (factor != 1 && factor != -1)) continue;
      bool alone = true;  // the others must not hold it
      ExprId rest = value;
      for (const auto& [other, other_factor] : terms) {
        if (other == atom) continue;
        const auto slots = arena_.iterators(other);
        alone =
            alone && std::find(slots.begin(), slots.end(), slot) == slots.end() && !arena_.has_inside(other);
        rest = arena_.subtract(rest, arena_.multiply(other, other_factor));
      }
      if (!alone) continue;
      bind(slot, arena_.multiply(rest, factor));
      return true;
    }
    return false;
  }

  bool solve_sum(const std::vector<std::pair<ExprId, std::int64_t>>& terms, ExprId value) {
    // Quotients, remainders and guards become unknowns of their own, solved afterwards.
    std::vector<Unknown> unknowns;
    std::vector<std::pair<ExprId, Slot>> inner;
    for (const auto& [atom, factor] : terms) {
      const Slot slot = slot_of(arena_, atom);
      if (slot != kNoSlot) {
        unknowns.push_back({slot, factor});
        continue;
      }
      const symbolic::Interval reach = iterators_.bounds(atom);
      const Slot pseudo = iterators_.add("q", reach.least, reach.greatest + 1);
      open_.insert(pseudo);
      unknowns.push_back({pseudo, factor});
      inner.emplace_back(atom, pseudo);
    }
    solve_unknowns(std::move(unknowns), value);
    if (failed_) return false;
    // A quotient leaves open what a remainder of the same then says; the other way round each would leave a
    // condition.
    std::stable_partition(inner.begin(), inner.end(),
                          [&](const auto& each) { return arena_[each.first].op == Op::Divide; });
    for (const auto& [atom, pseudo] : inner) {
      // A pseudo unknown that stayed free is what its atom takes there: iterate over it only through the
      // atom.
      const bool free = open_.erase(pseudo) != 0;
      if (free) {
        const auto slots = arena_.iterators(atom);
        const bool untouched =
            std::all_of(slots.begin(), slots.end(), [&](Slot s) { return open_.contains(s); });
        if (untouched) {
          bound_[pseudo] = atom;
          guards(atom);
          continue;
        }
        return false;
      }
      if (!solve_atom(atom, bound_.at(pseudo))) return false;
    }
    return true;
  }

  /// sum of factor * unknown = value.
  void solve_unknowns(std::vector<Unknown> unknowns, ExprId value) {
    // Count from 0.
    for (const Unknown& u : unknowns) {
      value = arena_.subtract(value, arena_.constant(checked_multiply(u.factor, iterators_.begin(u.slot))));
    }
    struct Digit {  // slot = begin + digit of a composite
      Slot slot;
      std::int64_t extent;
    };
    struct Composite {
      std::vector<Digit> digits;  // the first is the most significant
      std::int64_t factor;
      std::int64_t extent;
    };
    std::vector<Composite> parts;
    for (const Unknown& u : unknowns) {
      parts.push_back({{{u.slot, iterators_.extent(u.slot)}}, u.factor, iterators_.extent(u.slot)});
    }
    // B*i + j with j over [0, B) walks as one.
    for (bool joined = true; joined;) {
      joined = false;
      for (std::size_t i = 0; i < parts.size() && !joined; ++i) {
        for (std::size_t j = 0; j < parts.size() && !joined; ++j) {
          if (i == j || parts[i].factor != parts[j].factor * parts[j].extent) continue;
          parts[i].digits.insert(parts[i].digits.end(), parts[j].digits.begin(), parts[j].digits.end());
          parts[i].factor = parts[j].factor;
          parts[i].extent *= parts[j].extent;
          parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(j));
          joined = true;
        }
      }
    }
    const auto place = [&](const Composite& part, ExprId at) {  // its digits
      if (part.digits.size() > 1) require(at, 0, part.extent);
      std::int64_t below = part.extent;
      for (const Digit& digit : part.digits) {
        below /= digit.extent;
        ExprId d = below == 1 ? at : arena_.divide(at, Size(below));
        if (&digit != &part.digits.front()) d = arena_.modulo(d, Size(digit.extent));
        bind(digit.slot, arena_.add(d, arena_.constant(iterators_.begin(digit.slot))));
      }
    };
    const auto walked = [&](const Composite& part) {  // its value from its iterators
      ExprId sum = arena_.constant(0);
      std::int64_t below = part.extent;
      for (const Digit& digit : part.digits) {
        below /= digit.extent;
        const ExprId from_zero =
            arena_.add(arena_.iterator(digit.slot), arena_.constant(-iterators_.begin(digit.slot)));
        sum = arena_.add(sum, arena_.multiply(from_zero, below));
      }
      return sum;
    };
    // Factors so far apart that a value has one representation only: digits of a mixed radix.
    std::sort(parts.begin(), parts.end(),
              [](const Composite& a, const Composite& b) { return std::abs(a.factor) > std::abs(b.factor); });
    bool unique =
        std::all_of(parts.begin(), parts.end(), [](const Composite& part) { return part.factor > 0; });
    std::int64_t span = 0;
    for (std::size_t i = parts.size(); i-- > 0 && unique;) {
      unique = parts[i].factor > span;
      span += parts[i].factor * (parts[i].extent - 1);
    }
    if (unique) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const bool last = i + 1 == parts.size();
        place(parts[i], last ? divided(value, parts[i].factor) : arena_.divide(value, Size(parts[i].factor)));
        if (!last) value = arena_.modulo(value, Size(parts[i].factor));
      }
      return;
    }
    // The longest is solved for; the others stay free.
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Composite& a, const Composite& b) { return a.extent > b.extent; });
    const Composite longest = parts.front();
    parts.erase(parts.begin());
    const std::int64_t stride = std::abs(longest.factor);
    // With a stride, one of the others is fixed modulo it: the one that leaves the least to check.
    std::optional<std::size_t> residue;
    for (std::size_t i = 0; i < parts.size() && stride > 1; ++i) {
      const auto common = [&](const Composite& part) { return std::gcd(part.factor, stride); };
      if (parts[i].factor % stride == 0) continue;
      if (!residue || common(parts[i]) < common(parts[*residue]) ||
          (common(parts[i]) == common(parts[*residue]) && parts[i].extent > parts[*residue].extent)) {
        residue = i;
      }
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (residue == i) continue;
      value = arena_.subtract(value, arena_.multiply(walked(parts[i]), parts[i].factor));
    }
    if (!residue) {
      place(longest, divided(value, longest.factor));
      return;
    }
    const Composite& minor = parts[*residue];
    const std::int64_t common = std::gcd(minor.factor, stride);
    const std::int64_t step = stride / common;
    const ExprId reduced = divided(value, common);
    // minor.factor / common * minor = reduced modulo step.
    const Slot turn = fresh(iterators_[minor.digits.back().slot].name, 0, (minor.extent + step - 1) / step);
    const auto [at, quotient] = symbolic::solve_congruence(
        arena_, minor.factor / common, arena_.multiply(reduced, -1), step, arena_.iterator(turn));
    const ExprId left = arena_.multiply(quotient, longest.factor > 0 ? -1 : 1);
    if (minor.digits.size() == 1) require(at, 0, minor.extent);
    place(minor, at);
    place(longest, left);
  }

  Iterators& iterators_;
  Arena& arena_;
  std::vector<Slot> space_, fresh_;
  std::set<Slot> open_;
  std::map<Slot, ExprId> bound_;
  std::vector<RangeCondition> conditions_;
  bool failed_ = false;
  Inverse result_;
};

}  // namespace

std::optional<Inverse> invert(Iterators& iterators, const std::vector<Slot>& space,
                              const std::vector<ExprId>& indices, const std::vector<ExprId>& element) {
  return Solver(iterators, space).solve(indices, element);
}

}  // namespace syno::lower
