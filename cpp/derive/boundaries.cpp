// Ranges without what is zero, and with more of it: margins of padding, each side for itself.
#include <algorithm>
#include <limits>

#include "derive/finite.hpp"
#include "derive/forms.hpp"
#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive {

namespace {

constexpr std::int64_t kShortSum = 16;  ///< extent up to which terms that are zero may come to one
constexpr std::int64_t kSmall = 8;      ///< points that a range may always get

/// Half open; all integers where nothing is known.
struct Part {
  std::int64_t begin = -kFar, end = kFar;
  static constexpr std::int64_t kFar = std::int64_t{1} << 60;
  bool empty() const { return begin >= end; }
  static Part both(Part a, Part b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }
  static Part either(Part a, Part b) {
    if (a.empty() || b.empty()) return a.empty() ? b : a;
    return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
  }
};

/// Where along one iterator a body may be other than 0, whatever the other iterators are.
class NonZero {
 public:
  NonZero(const Program& program, const symbolic::Context& context, std::uint32_t slot)
      : program_(program), context_(context), slot_(slot) {}

  Part of(ScalarId id) {
    const Scalar scalar = program_.scalar(id);
    switch (scalar.kind) {
      case ScalarKind::Literal:
        return scalar.literal == Rational(0) ? Part{0, 0} : Part{};
      case ScalarKind::Read:
        return scalar.fill == Rational(0) ? of_read(scalar) : Part{};
      case ScalarKind::Select:
        return Part::either(of(scalar.b), of(scalar.c));
      case ScalarKind::Unary:
        return zero_at_zero(scalar.function) ? of(scalar.a) : Part{};
      case ScalarKind::Binary:
        if (scalar.function == Function::Multiply) return Part::both(of(scalar.a), of(scalar.b));
        if (scalar.function == Function::Divide) return of(scalar.a);
        if (scalar.function == Function::Add || scalar.function == Function::Subtract)
          return Part::either(of(scalar.a), of(scalar.b));
        return {};
      default:
        return {};
    }
  }

 private:
  static bool zero_at_zero(Function f) {
    return f == Function::Negate || f == Function::Relu || f == Function::Abs || f == Function::Tanh ||
           f == Function::Erf || f == Function::Gelu || f == Function::Sin || f == Function::Atan ||
           program::rounds(f);
  }

  /// form in [begin, end).
  struct Condition {
    Affine form;
    std::int64_t begin = 0, end = 0;
  };

  /// An index without its guards, which become conditions.
  Affine unguarded(ExprId index, std::vector<Condition>& conditions) {
    Affine whole;
    const Affine form = symbolic::affine_form(program_.arena, index);
    whole.constant = form.constant;
    for (const auto& [atom, coefficient] : form.terms) {
      const symbolic::Expr& node = program_.arena[atom];
      Affine part;
      if (node.op == Op::Inside) {
        part = unguarded(node.a, conditions);
        conditions.push_back({part, 0, symbolic::integer_of(program_.arena, node.size)});
      } else {
        part.terms.emplace_back(atom, 1);
      }
      whole = symbolic::add(whole, symbolic::multiply(part, coefficient));
    }
    return whole;
  }

  Part of_read(const Scalar& read) {
    std::vector<Condition> conditions;
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      const auto [begin, end] = range_of(program_, program_.tensor(read.tensor).dims[d]);
      conditions.push_back({unguarded(read.indices[d], conditions), begin, end});
    }
    Part part;
    for (const Condition& condition : conditions) part = Part::both(part, where_possible(condition));
    return part;
  }

  /// c * i + rest in [begin, end) for some rest.
  Part where_possible(const Condition& condition) {
    std::int64_t c = 0, least = condition.begin - condition.form.constant,
                 greatest = condition.end - 1 - condition.form.constant;
    for (const auto& [atom, coefficient] : condition.form.terms) {
      if (symbolic::slot_of(program_.arena, atom) == slot_) {
        c = coefficient;
        continue;
      }
      if (depends_on(program_, atom, slot_)) return {};
      const symbolic::Interval reach = symbolic::bounds(program_.arena, atom, context_, 0);
      const std::int64_t a = checked_multiply(reach.least, coefficient),
                         b = checked_multiply(reach.greatest, coefficient);
      least = checked_subtract(least, std::max(a, b));
      greatest = checked_subtract(greatest, std::min(a, b));
    }
    if (c == 0) return {};
    if (c > 0) return {-floor_divide(-least, c), floor_divide(greatest, c) + 1};
    return {-floor_divide(greatest, -c), floor_divide(-least, -c) + 1};
  }

  const Program& program_;
  const symbolic::Context& context_;
  std::uint32_t slot_;
};

/// How the results of a scope are read.
struct Readings {
  bool filled = false;      ///< some read may go outside and does not take 0 there
  std::vector<Part> reach;  ///< by dimension: all indices there are
};

Readings readings_of(const Program& program, const Scope& scope, const symbolic::Context& context) {
  Readings found{false, std::vector<Part>(scope.traversal.size(), Part{0, 0})};
  for (const Scope& reader : program.scopes)
    for (const ScalarId id : program::reads_in(program, reader.body)) {
      const Scalar& read = program.scalar(id);
      if (read.tensor != scope.output) continue;
      bool outside = false;
      for (std::size_t d = 0; d < read.indices.size(); ++d) {
        const auto [begin, end] = range_of(program, scope.traversal[d].range);
        const symbolic::Interval reach = symbolic::bounds(program.arena, read.indices[d], context, 0);
        outside = outside || reach.least < begin || reach.greatest >= end ||
                  program.arena.has_inside(read.indices[d]);
        found.reach[d] = Part::either(found.reach[d], {reach.least, reach.greatest + 1});
      }
      found.filled = found.filled || (outside && !(read.fill == Rational(0)));
    }
  return found;
}

void set_range(Program& program, std::size_t at, const std::string& name, std::int64_t begin,
               std::int64_t end) {
  const program::Range range = make_range(program, begin, end);
  Scope& scope = program.scopes[at];
  for (Iterator& sum : scope.sums)
    if (sum.name == name) sum.range = range;
  for (std::size_t d = 0; d < scope.traversal.size(); ++d) {
    if (scope.traversal[d].name != name) continue;
    scope.traversal[d].range = range;
    program.tensors[static_cast<std::size_t>(scope.output)].dims[d] = range;
    // What was computed and is not any more is 0, and so is what is read outside.
    for (Scope& reader : program.scopes) {
      const TensorId tensor = scope.output;
      if (!program::reads_tensor(program, reader.body, tensor)) continue;
      reader.body = program::rebuild(program, reader.body, [&](ScalarId id) -> std::optional<ScalarId> {
        Scalar read = program.scalar(id);
        if (read.kind != ScalarKind::Read || read.tensor != tensor || read.fill == Rational(0))
          return std::nullopt;
        read.fill = 0;
        return program.add_scalar(std::move(read));
      });
    }
  }
}

}  // namespace

std::vector<Site> find_tightenings(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (!scope.target.empty() || !finite(program, scope.body)) return {};
  const symbolic::Context context = program::context_of(program);
  std::vector<Site> found;
  const auto consider = [&](const Iterator& i) {
    if (!named_once(scope, i)) return;
    const auto [begin, end] = range_of(program, i.range);
    const Part part = Part::both({begin, end}, NonZero(program, context, i.slot).of(scope.body));
    if (!part.empty() && (part.begin > begin || part.end < end))
      found.push_back({name_of(program, scope), i.name, {}, {}, {part.begin, part.end}});
  };
  if (!is_output(program, scope.output) && !readings_of(program, scope, context).filled)
    for (const Iterator& i : scope.traversal) consider(i);
  if (scope.reduction == program::Reduction::Sum)
    for (const Iterator& sum : scope.sums) consider(sum);
  return found;
}

void tighten(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("tighten"), site);
  set_range(program, at, site.iterator, site.numbers[0], site.numbers[1]);
  simplify_scope(program, at);
}

std::vector<Site> find_relaxations(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (!scope.target.empty() || !finite(program, scope.body)) return {};
  const symbolic::Context context = program::context_of(program);
  std::vector<Site> found;
  const auto add = [&](const Iterator& i, Part wider) {
    Site site{name_of(program, scope), i.name, {}, {}, {wider.begin, wider.end}};
    if (std::find(found.begin(), found.end(), site) == found.end()) found.push_back(std::move(site));
  };
  const auto consider = [&](const Iterator& i, const Part* read) {
    if (!named_once(scope, i)) return;
    const auto [begin, end] = range_of(program, i.range);
    const Part here{begin, end};
    const auto zero_outside = [&](Part wider) {
      const Part part = Part::both(wider, NonZero(program, context, i.slot).of(scope.body));
      return part.empty() || (part.begin >= begin && part.end <= end);
    };
    const auto allowed = [&](Part wider) {
      const bool unread =
          read != nullptr && Part::either(here, *read).begin == begin && Part::either(here, *read).end == end;
      return unread || zero_outside(wider);
    };
    if (read != nullptr) {
      const Part wider = Part::either(here, *read);
      const bool little = wider.end - wider.begin <= 2 * (end - begin) + kSmall;
      if ((wider.begin < begin || wider.end > end) && little && allowed(wider)) add(i, wider);
    }
    // Multiples of what lanes hold, and of the windows and tiles that short sums are made of.
    static const std::vector<std::int64_t> kLanes{8}, kWindows{2, 3, 4};
    if (read == nullptr && end - begin > kShortSum) return;
    for (const std::int64_t f : read == nullptr ? kWindows : kLanes) {
      const Part wider{begin, begin + (end - begin + f - 1) / f * f};
      const bool little = wider.end - begin <= 2 * (end - begin);
      if (wider.end > end && little && allowed(wider)) add(i, wider);
    }
  };
  if (!is_output(program, scope.output)) {
    const Readings readings = readings_of(program, scope, context);
    for (std::size_t d = 0; d < scope.traversal.size() && !readings.filled; ++d)
      consider(scope.traversal[d], &readings.reach[d]);
  }
  if (scope.reduction == program::Reduction::Sum)
    for (const Iterator& sum : scope.sums) consider(sum, nullptr);
  return found;
}

void relax(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("relax"), site);
  set_range(program, at, site.iterator, site.numbers[0], site.numbers[1]);
  simplify_scope(program, at);
}

}  // namespace syno::derive
