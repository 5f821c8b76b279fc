// Copies in blocks: what a register tile takes of an operand in one step lies together, and steps follow each
// other in the order they are taken.
#include <algorithm>
#include <numeric>

#include "construct/construct.hpp"

namespace syno::construct {

namespace {

/// A dimension of a copy, or what is left of it: which of every so many elements, and which of these.
struct Piece {
  std::size_t dim = 0;
  std::size_t position = 0;  ///< of the innermost loop that moves it
  std::int64_t phases = 1;   ///< of the dimension: as many elements apart are those that inner loops take
  bool phase = false;        ///< it says which
};

/// How many elements apart inner loops go through a dimension of a copy, while loops around them say where
/// they begin; 1 where it is not so, or what says which of these would be more than loops.
std::int64_t phases_of(Construction& c, const std::string& copy, std::size_t dim, const ReadFacts& read,
                       const std::vector<std::size_t>& loops, const std::string& reader) {
  const auto& coefficients = read.copy.coefficients[dim];
  std::int64_t apart = 0;
  std::size_t moved = loops.size();  // the innermost loop, and those in a run from there that go so far
  for (std::size_t at = loops.size(); at-- > 0;) {
    const std::int64_t step = std::abs(coefficients[loops[at]]);
    if (step == 0) continue;
    if (apart != 0 && step < apart) break;
    apart = apart == 0 ? step : std::gcd(apart, step);
    moved = at;
  }
  if (apart < 2 || moved == loops.size()) return 1;
  const std::size_t s = c.index(reader);
  c.plan.need_domain(s);
  const auto tensor = c.plan.program.scopes[c.index(copy)].output;
  for (const program::ScalarId id : c.plan.reads(s)) {
    const program::Scalar scalar = c.plan.program.scalar(id);
    if (scalar.tensor != tensor) continue;
    AffineForms forms = c.plan.bound_forms();
    std::vector<symbolic::Condition> ignored;
    const symbolic::ExprId index =
        c.plan.over_loops(s, symbolic::without_inside(c.plan.program.arena, scalar.indices[dim], ignored));
    const AffineForm form = forms.form(c.plan.program.arena, index);
    for (const AffineForm& part : {forms.quotient(form, apart), forms.remainder(form, apart)})
      for (const auto& [atom, step] : part.terms)
        if (forms.atom(atom).kind != nest::Atom::Kind::Slot) return 1;
    if (forms.remainder(form, apart).is_constant()) return 1;
  }
  return apart;
}

}  // namespace

Refused write_blocks(Construction& c, const std::string& copy, const Blocks& blocks, const ReadFacts& read,
                     const std::vector<std::size_t>& moving, const std::string& reader) {
  const std::size_t s = c.index(copy);
  c.plan.need_domain(s);
  const auto tensor = c.plan.program.scopes[s].output;
  const std::size_t dim = blocks.dim, rank = read.copy.extents.size();
  std::vector<std::string> loops, order;
  for (std::size_t d = 0; d < rank; ++d) loops.push_back(c.plan.scopes[s].loops[d].name);
  const std::vector<std::int64_t> extents = c.plan.storage(tensor);
  const std::int64_t extent = extents[dim];
  const bool parts = blocks.part > 0 && blocks.part < extent;
  const std::int64_t part = parts ? blocks.part : extent;
  const std::int64_t count = (part + blocks.width - 1) / blocks.width;
  const auto layout = [&](std::vector<std::int64_t> numbers, const char* word) {
    return c.add({"layout", copy, {}, std::move(numbers), copy, {word}});
  };
  // The others in the order of the innermost loops that move them, outer ones first.
  std::vector<Piece> others;
  for (std::size_t d = 0; d < rank; ++d) {
    if (d == dim) continue;
    const std::int64_t phases = phases_of(c, copy, d, read, moving, reader);
    Piece whole{d, 0, phases, false}, which{d, 0, phases, true};
    for (std::size_t at = 0; at < moving.size(); ++at)
      if (const std::int64_t step = read.copy.coefficients[d][moving[at]]; step != 0)
        (step % phases == 0 ? whole : which).position = at;
    if (phases > 1) others.push_back(which);
    others.push_back(whole);
  }
  // Where each of them is by now: splits put dimensions behind those before them.
  std::vector<std::int64_t> place(rank);
  std::iota(place.begin(), place.end(), std::int64_t{0});
  const auto split = [&](std::size_t d, std::int64_t outer, std::int64_t inner) -> Refused {
    SYNO_ACCEPT(layout({place[d], outer, inner}, "split"));
    for (std::size_t later = d + 1; later < rank; ++later) ++place[later];
    return {};
  };
  for (const Piece& piece : others)
    if (piece.phase) {
      const std::int64_t whole = (extents[piece.dim] + piece.phases - 1) / piece.phases;
      if (whole * piece.phases > extents[piece.dim])
        SYNO_ACCEPT(layout({place[piece.dim], 0, whole * piece.phases - extents[piece.dim]}, "pad"));
      SYNO_ACCEPT(split(piece.dim, whole, piece.phases));
    }
  std::vector<std::int64_t> permutation;
  if (parts) {
    SYNO_ACCEPT(split(dim, extent / part, part));
    permutation.push_back(place[dim]++);
  }
  if (count * blocks.width > part) SYNO_ACCEPT(layout({place[dim], 0, count * blocks.width - part}, "pad"));
  SYNO_ACCEPT(split(dim, count, blocks.width));
  std::stable_sort(others.begin(), others.end(),
                   [](const Piece& a, const Piece& b) { return a.position < b.position; });
  const auto within_blocks = std::find_if(
      others.begin(), others.end(), [&](const Piece& piece) { return piece.position >= blocks.outside; });
  const auto put = [&](auto first, auto last) {
    for (; first != last; ++first) permutation.push_back(place[first->dim] + (first->phase ? 1 : 0));
  };
  put(others.begin(), within_blocks);
  permutation.push_back(place[dim]);
  put(within_blocks, others.end());
  permutation.push_back(place[dim] + 1);
  SYNO_ACCEPT(layout(permutation, "reorder"));
  // What follows the blocks in memory, and each other in the copy, stays one run: blocks of it are
  // transposed.
  std::string run;
  std::size_t first = rank;
  for (std::size_t at = others.size(); first > dim + 1;) {
    if (first == rank)
      at = static_cast<std::size_t>(
          std::find_if(others.begin(), others.end(), [&](const Piece& x) { return x.dim == rank - 1; }) -
          others.begin());
    else if (at == 0 || others[--at].dim != first - 1)
      break;
    if (others[at].phases > 1) break;
    --first;
    if (run.empty()) {
      run = loops[first];
      continue;
    }
    SYNO_TAKE(fused, c.fuse(copy, loops[first], run));
    run = fused;
  }
  std::string within = loops[dim];
  const auto outside = [&](std::int64_t size) -> Refused {
    SYNO_TAKE(pieces, c.split(copy, within, size));
    order.push_back(pieces.first);
    within = pieces.second;
    return {};
  };
  if (parts) SYNO_ACCEPT(outside(part));
  if (part > blocks.width) SYNO_ACCEPT(outside(blocks.width));
  for (std::size_t d = 0; d < first; ++d)
    if (d != dim) order.push_back(loops[d]);
  if (!run.empty()) order.push_back(run);
  order.push_back(within);
  SYNO_ACCEPT(c.add({"reorder", copy, order, {}, "", {}}));
  SYNO_ACCEPT(c.vectorize_copy(copy));
  c.parallel_outermost(copy);
  return {};
}

}  // namespace syno::construct
