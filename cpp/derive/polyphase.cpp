// Results that are computed by their place in a block, as transposed convolutions and gradients of strided
// ones have them: y[o,h] = sum[c,r] x[c,(h+1)/2 - r] * w[c,o,2*r + (h+1)%2] is a dense convolution of as many
// channels again, t[z,q] = sum[c,r] x[c,q-r] * w[c,z/2,2*r + z%2] with z = 2*o + (h+1)%2 and q = (h+1)/2,
// whose results are put where they belong. (In signal processing: the polyphase form of an interpolation.)
#include <algorithm>
#include <optional>

#include "derive/forms.hpp"
#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/checked.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive {

namespace {

/// i + shift = modulus * q + p.
struct Phase {
  std::size_t iterator = 0;  ///< of the traversal
  std::int64_t modulus = 1, shift = 0;
};

/// The one remainder (i + a) % m that indices have of an iterator, where something moves with the block (i +
/// a) / m alone: else both are digits of one row.
std::optional<Phase> phase_of(const Program& program, const Scope& scope, std::size_t at) {
  const auto& arena = program.arena;
  const std::uint32_t slot = scope.traversal[at].slot;
  const auto [begin, end] = range_of(program, scope.traversal[at].range);
  if (begin != 0) return std::nullopt;
  std::optional<Phase> found;
  bool several = false, by_block = false;
  for (const ScalarId id : program::scalars_of(program, scope.body)) {
    bool quotient = false, remainder = false;
    program::over_indices(program.scalar(id), [&](ExprId index) {
      over_nodes(arena, index, [&](const symbolic::Expr& node) {
        if (node.op != Op::Modulo && node.op != Op::Divide) return;
        const auto form = symbolic::affine_form(arena, node.a);
        if (symbolic::coefficient_of(arena, node.a, slot).value_or(0) == 0) return;
        quotient = quotient || node.op == Op::Divide;
        if (node.op == Op::Divide) return;
        remainder = true;
        if (form.terms.size() != 1 || form.terms[0].second != 1) return;
        const std::int64_t m = arena[node.size].factor().num();
        const Phase phase{at, m, (form.constant % m + m) % m};
        several = several || (found && (found->modulus != m || found->shift != phase.shift));
        found = phase;
      });
    });
    by_block = by_block || (quotient && !remainder);
  }
  if (several || !by_block || !found || found->modulus < 2 || end <= found->modulus) return std::nullopt;
  return found;
}

std::vector<Phase> phases_of(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  std::vector<Phase> phases;
  // Points beside y, of incomplete blocks, are computed and not read.
  if (scope.sums.empty() || !scope.target.empty() || !total(program, scope.body)) return phases;
  for (std::size_t i = 0; i < scope.traversal.size(); ++i)
    if (const auto phase = phase_of(program, scope, i)) phases.push_back(*phase);
  return phases;
}

/// Whether the same reads move with both: then they are one row of channels.
bool move_together(const Program& program, ScalarId body, std::uint32_t a, std::uint32_t b) {
  bool together = true;
  for (const ScalarId id : program::scalars_of(program, body)) {
    const Scalar& scalar = program.scalar(id);
    if (scalar.kind != ScalarKind::Read && scalar.kind != ScalarKind::Index) continue;
    bool by_a = false, by_b = false;
    program::over_indices(scalar, [&](ExprId index) {
      by_a = by_a || depends_on(program, index, a);
      by_b = by_b || depends_on(program, index, b);
    });
    together = together && by_a == by_b;
  }
  return together;
}

}  // namespace

std::vector<Site> find_polyphases(const Program& program, std::size_t scope) {
  if (phases_of(program, scope).empty()) return {};
  return {{name_of(program, program.scopes[scope]), {}, {}, {}}};
}

void polyphase(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("polyphase"), site);
  auto& arena = program.arena;
  const Scope scope = program.scopes[at];
  const std::vector<Phase> phases = phases_of(program, at);
  const std::string name = derived_name(program, site, "phases");

  // All phases are one iterator z, the last phase its lowest digit, before the first of the blocks.
  std::int64_t count = 1;
  for (const Phase& phase : phases) count = checked_multiply(count, phase.modulus);
  const Iterator z = program.new_iterator(fresh_iterator_name(scope, "z"), make_range(program, 0, count));
  Moved moved{scope.traversal, scope.body, {}};
  for (const Iterator& iterator : scope.traversal) moved.places.push_back(arena.iterator(iterator.slot));
  std::vector<std::pair<std::uint32_t, ExprId>> values;
  ExprId place = arena.constant(0);
  std::int64_t below = count;
  for (const Phase& phase : phases) {
    const Iterator& i = scope.traversal[phase.iterator];
    const symbolic::Size modulus(phase.modulus);
    const std::int64_t last = range_of(program, i.range).second - 1 + phase.shift;
    const Iterator block = program.new_iterator(i.name, make_range(program, 0, last / phase.modulus + 1));
    below /= phase.modulus;
    const ExprId digit = arena.modulo(arena.divide(arena.iterator(z.slot), symbolic::Size(below)), modulus);
    const ExprId shifted = arena.add(arena.multiply(arena.iterator(block.slot), phase.modulus), digit);
    values.emplace_back(i.slot, arena.subtract(shifted, arena.constant(phase.shift)));
    const ExprId from = arena.add(arena.iterator(i.slot), arena.constant(phase.shift));
    place = arena.add(place, arena.multiply(arena.modulo(from, modulus), below));
    moved.traversal[phase.iterator] = block;
    moved.places[phase.iterator] = arena.divide(from, modulus);
  }
  moved.body = program::with_iterators(program, scope.body, values);
  const auto first = static_cast<std::ptrdiff_t>(phases.front().iterator);
  moved.traversal.insert(moved.traversal.begin() + first, z);
  moved.places.insert(moved.places.begin() + first, place);
  move_scope(program, at, std::move(moved), name);

  // With the channels before them they are one row of channels.
  const Scope& made = program.scopes[scope_named(program, name)];
  if (first == 0) return;
  const Iterator &channel = made.traversal[static_cast<std::size_t>(first) - 1],
                 &phase = made.traversal[static_cast<std::size_t>(first)];
  if (!named_once(made, channel) || !move_together(program, made.body, channel.slot, phase.slot)) return;
  const std::string apart = program::fresh_tensor_name(program, name + "_apart");
  program.tensors[static_cast<std::size_t>(made.output)].name = apart;
  merge_iterators(program, {apart, channel.name, phase.name, name});
}

}  // namespace syno::derive
