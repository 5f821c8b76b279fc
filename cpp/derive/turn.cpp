// Results that are computed for the place they are read for: y[w] = sum[c] x[c,(w+1)%7] * k[c,(w+1)%7] is a
// row t[u] = sum[c] x[c,u] * k[c,u] that is turned while it is copied, y[w] = t[(w+1)%7]. What is summed up
// then lies as it is read.
#include <algorithm>
#include <optional>

#include "derive/tools.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive {

namespace {

/// Places within blocks of `block` are read `shift` further, around the end of the block.
struct Turn {
  std::int64_t block = 0, shift = 0;
  bool operator==(const Turn&) const = default;
};

/// What all parts of the expressions of a body say about one iterator of the traversal.
class Turns {
 public:
  Turns(const Program& program, std::uint32_t slot) : program_(program), slot_(slot) {}

  void visit(ScalarId id) {
    const Scalar& scalar = program_.scalar(id);
    turns_ = false;
    program::over_indices(scalar, [&](ExprId index) { visit(index); });
    if (scalar.kind == ScalarKind::Read) reads_ += turns_;
    program::over_operands(scalar, [&](ScalarId operand) { visit(operand); });
  }

  /// The turn that all reads agree on, where several share it.
  std::optional<Turn> found(std::int64_t extent) const {
    if (other_ || reads_ < 2 || !turn_ || extent % turn_->block != 0) return std::nullopt;
    if (whole_ && *whole_ != turn_->block) return std::nullopt;
    return turn_;
  }

 private:
  bool depends(ExprId e) const {
    const auto slots = program_.arena.iterators(e);
    return std::find(slots.begin(), slots.end(), slot_) != slots.end();
  }
  /// The constant in `iterator + constant`.
  std::optional<std::int64_t> further(ExprId e) const {
    const auto form = symbolic::affine_form(program_.arena, e);
    const bool alone = form.terms.size() == 1 && form.terms[0].second == 1 &&
                       symbolic::slot_of(program_.arena, form.terms[0].first) == slot_;
    if (alone) return form.constant;
    return std::nullopt;
  }
  void visit(ExprId e) {
    if (other_ || !depends(e)) return;
    const symbolic::Expr& node = program_.arena[e];
    const auto by = [&] { return program_.arena[node.size].factor().num(); };
    if (node.op == Op::Iterator) {
      other_ = true;
    } else if (const auto shift = node.op == Op::Modulo ? further(node.a) : std::nullopt) {
      const Turn turn{by(), (*shift % by() + by()) % by()};
      other_ = turn.shift == 0 || (turn_ && !(*turn_ == turn));
      turn_ = turn;
      turns_ = true;
    } else if (node.op == Op::Divide && program_.arena[node.a].op == Op::Iterator) {
      other_ = whole_ && *whole_ != by();
      whole_ = by();
    } else {
      visit(node.a);
      if (node.op == Op::Add) visit(node.b);
    }
  }

  const Program& program_;
  std::uint32_t slot_;
  bool other_ = false;  ///< something else is read
  std::optional<Turn> turn_;
  std::optional<std::int64_t> whole_;  ///< of `w / whole`
  bool turns_ = false;                 ///< the read that is visited
  int reads_ = 0;                      ///< that turn
};

std::optional<Turn> turn_of(const Program& program, std::size_t at, std::size_t iterator) {
  const Scope& scope = program.scopes[at];
  const auto [begin, end] = range_of(program, scope.traversal[iterator].range);
  if (begin != 0 || scope.sums.empty() || !scope.target.empty()) return std::nullopt;
  Turns turns(program, scope.traversal[iterator].slot);
  turns.visit(scope.body);
  return turns.found(end);
}

}  // namespace

std::vector<Site> find_turns(const Program& program, std::size_t scope) {
  std::vector<Site> found;
  const auto& traversal = program.scopes[scope].traversal;
  for (std::size_t i = 0; i < traversal.size(); ++i)
    if (turn_of(program, scope, i))
      found.push_back({name_of(program, program.scopes[scope]), traversal[i].name, {}, {}});
  return found;
}

void turn(Program& program, const Site& site) {
  auto& arena = program.arena;
  const std::size_t at = scope_named(program, site.scope);
  const auto& traversal = program.scopes[at].traversal;
  const auto named = std::find_if(traversal.begin(), traversal.end(),
                                  [&](const Iterator& i) { return i.name == site.iterator; });
  if (named == traversal.end())
    fail<ScheduleError>(kWhere, "'{}' has no loop '{}' in its traversal", site.scope, site.iterator);
  const auto which = static_cast<std::size_t>(named - traversal.begin());
  const auto found = turn_of(program, at, which);
  if (!found)
    fail<ScheduleError>(kWhere,
                        "the reads of '{}' do not agree on (i + a) % m, m a divisor of the extent, wherever "
                        "they move with '{}', or only one of them does",
                        site.scope, site.iterator);
  const std::uint32_t slot = named->slot;
  const symbolic::Size block(found->block);
  const bool one = range_of(program, named->range).second == found->block;
  const ExprId place = arena.iterator(slot);
  const ExprId within = one ? place : arena.modulo(place, block);
  const ExprId turned = arena.modulo(arena.add(place, arena.constant(found->shift)), block);

  // The result is copied out from where it was turned to.
  Scope sums = program.scopes[at];
  Tensor tensor = program.tensor(sums.output);
  tensor.name = name_for(program, site, site.scope + "_turned");
  tensor.role = program::Role::Computed;
  const TensorId straight_one = program.add_tensor(std::move(tensor));
  Scope copy;
  copy.output = sums.output;
  std::vector<ExprId> indices;
  for (const Iterator& iterator : sums.traversal) {
    copy.traversal.push_back(program.new_iterator(iterator.name, iterator.range));
    indices.push_back(arena.iterator(copy.traversal.back().slot));
  }
  const std::uint32_t written = copy.traversal[which].slot;
  sums.output = straight_one;
  const auto straight = [&](ExprId e) {
    return arena.rewrite(e, [&](ExprId part) -> std::optional<ExprId> {
      const symbolic::Expr& node = arena[part];
      if (node.op != Op::Modulo || arena[node.a].op != Op::Add || !(arena[node.size] == block))
        return std::nullopt;
      const auto slots = arena.iterators(node.a);
      if (slots.size() != 1 || slots[0] != slot) return std::nullopt;
      return within;
    });
  };
  sums.body =
      program::rebuild(program, sums.body, [](ScalarId) { return std::optional<ScalarId>(); }, straight);
  indices[which] = arena.substitute(
      one ? turned : arena.add(arena.multiply(arena.divide(place, block), found->block), turned),
      [&](std::uint32_t s) { return arena.iterator(s == slot ? written : s); });
  copy.body = program.read(straight_one, std::move(indices));
  program.scopes[at] = std::move(sums);
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(copy));
}

}  // namespace syno::derive
