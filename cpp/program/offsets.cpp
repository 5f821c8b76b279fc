#include "program/offsets.hpp"

#include <algorithm>
#include <limits>

#include "program/scalars.hpp"
#include "support/error.hpp"
#include "symbolic/simplify.hpp"

namespace syno::program {

namespace {

/// Where the reads of one dimension begin; none where one of them may be outside.
struct Begin {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  bool inside = true;
};

bool is_input(const Program& program, TensorId id) {
  const Role role = program.tensor(id).role;
  return role == Role::Input || role == Role::Weight;
}

/// Calls `use` with each read of an input that some scope needs.
template <class Use>
void over_reads(Program& program, Use&& use) {
  std::vector<bool> seen(program.scalars.size(), false);
  for (const Scope& scope : program.scopes)
    for (const ScalarId id : scalars_of(program, scope.body)) {
      const auto at = static_cast<std::size_t>(id);
      Scalar& scalar = program.scalars[at];
      if (seen[at] || scalar.kind != ScalarKind::Read || !is_input(program, scalar.tensor)) continue;
      seen[at] = true;
      use(scalar);
    }
}

}  // namespace

LeastOffsets with_least_offsets(const Program& program) {
  if (!program.concrete())
    fail<ShapeError>("offsets", "the program has sizes that are not numbers; take one valuation");
  LeastOffsets made{program, {}};
  const symbolic::Context context = context_of(program);
  std::vector<std::vector<Begin>> begins(program.tensors.size());
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    begins[t].resize(program.tensors[t].dims.size());
    made.taken.emplace_back(program.tensors[t].dims.size(), 0);
  }
  over_reads(made.program, [&](const Scalar& read) {
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      Begin& begin = begins[static_cast<std::size_t>(read.tensor)][d];
      if (program.arena.has_inside(read.indices[d])) {
        begin.inside = false;
        continue;
      }
      const auto reach = symbolic::bounds(program.arena, read.indices[d], context, 0);
      const Extent extent = extent_of(program, program.tensor(read.tensor).dims[d], 0);
      begin.inside = begin.inside && extent.begin == 0 && reach.least >= 0 && reach.greatest < extent.end;
      begin.least = std::min(begin.least, reach.least);
    }
  });
  symbolic::Simplifier simplify(made.program.arena, context);
  over_reads(made.program, [&](Scalar& read) {
    const auto tensor = static_cast<std::size_t>(read.tensor);
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      const Begin& begin = begins[tensor][d];
      std::int64_t& taken = made.taken[tensor][d];
      taken = begin.inside ? begin.least : 0;
      if (d + 1 == read.indices.size()) taken -= taken % kElementsOfALine;
      if (taken > 0)
        read.indices[d] =
            simplify(made.program.arena.subtract(read.indices[d], made.program.arena.constant(taken)));
    }
  });
  return made;
}

}  // namespace syno::program
