// Program + trace -> loop nest: the decisions build a plan, which is emitted in one pass.
#include <algorithm>
#include <cctype>
#include <map>

#include "schedule/decisions.hpp"
#include "schedule/emission.hpp"
#include "schedule/plan.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::schedule {

OrRefusal<LoopNest> try_emit(Plan plan) { return Emission(std::move(plan)).run(); }

LoopNest emit(Plan plan) { return try_emit(std::move(plan)).or_raise(); }

namespace {

using Extents = std::map<std::string, Shape>;

/// What is prepacked, by name; no extents are known yet.
Extents prepacked_of(const Plan& plan) {
  Extents packed;
  for (std::size_t s = 0; s < plan.scopes.size(); ++s)
    if (plan.scopes[s].prepacked) packed[plan.program.tensor(plan.program.scopes[s].output).name];
  return packed;
}

/// The extents that a nest gave what is prepacked.
Extents extents_in(const LoopNest& nest, Extents packed) {
  for (const Buffer& buffer : nest.buffers)
    if (const auto found = packed.find(buffer.name); found != packed.end()) found->second = buffer.extents;
  return packed;
}

/// The nests of what is prepacked and of a call, which agree on how much room the one needs to write and the
/// other to read. It is nearly always the writer that needs most: then each is made once.
OrRefusal<PrepackedNests> two_nests(const Plan& plan, const Extents& packed, bool both) {
  SYNO_TAKE(prepack, Emission(plan, Emission::Part::Prepack, packed).run());
  const Extents written = extents_in(prepack, packed);
  SYNO_TAKE(call, Emission(plan, Emission::Part::Call, written).run());
  const Extents room = extents_in(call, written);
  if (room != written) {
    SYNO_TAKE(wider_call, Emission(plan, Emission::Part::Call, room).run());
    call = std::move(wider_call);
    if (both) {
      SYNO_TAKE(wider_prepack, Emission(plan, Emission::Part::Prepack, room).run());
      prepack = std::move(wider_prepack);
    }
  }
  return PrepackedNests{std::move(prepack), std::move(call)};
}

}  // namespace

OrRefusal<LoopNest> try_emit_call(const Plan& plan) {
  const Extents packed = prepacked_of(plan);
  if (packed.empty()) return try_emit(plan);
  SYNO_TAKE(nests, two_nests(plan, packed, false));
  return std::move(nests.call);
}

LoopNest emit_call(const Plan& plan) { return try_emit_call(plan).or_raise(); }

namespace {

/// Sizes are in their ranges what the program was made for.
void check_sizes(const program::Program& program, const std::vector<nest::Parameter>& sizes) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  for (const nest::Parameter& size : sizes) {
    const bool name = !size.name.empty() && !std::isdigit(static_cast<unsigned char>(size.name[0])) &&
                      std::all_of(size.name.begin(), size.name.end(), [](char c) {
                        return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
                      });
    if (!name) fail<ShapeError>("apply", "a size is called '{}', which is no name", size.name);
    if (size.least < 1 || size.greatest < size.least || size.greatest > kLargest)
      fail<ShapeError>("apply", "the size {} is from {} to {}; sizes are from 1 to 2^30", size.name,
                       size.least, size.greatest);
    for (const nest::Parameter& other : sizes)
      if (&other != &size && other.name == size.name)
        fail<ShapeError>("apply", "two sizes are called {}", size.name);
  }
  const auto check = [&](const program::Range& range) {
    const symbolic::Live& live = range.live;
    if (live.parameter == 0 || sizes.empty()) return;
    if (live.parameter > sizes.size())
      fail<ShapeError>("apply", "the program has {} sizes; {} were given", live.parameter, sizes.size());
    const nest::Parameter& size = sizes[live.parameter - 1];
    const auto begin = symbolic::evaluate(program.arena, range.begin, program.sizes, 0, {});
    const auto end = symbolic::evaluate(program.arena, range.end, program.sizes, 0, {});
    const std::int64_t least = floor_divide(live.times * size.least + live.plus, live.by),
                       greatest = floor_divide(live.times * size.greatest + live.plus, live.by);
    if (!begin || !end || least < *begin || greatest > *end)
      fail<ShapeError>("apply", "where {} is from {} to {} an extent ends at {} to {}, outside of [{}, {}]",
                       size.name, size.least, size.greatest, least, greatest, begin.value_or(0),
                       end.value_or(0));
  };
  for (const program::Tensor& tensor : program.tensors)
    for (const program::Range& range : tensor.dims) check(range);
  for (const program::Scope& scope : program.scopes) {
    for (const program::Iterator& iterator : scope.traversal) check(iterator.range);
    for (const program::Iterator& iterator : scope.sums) check(iterator.range);
  }
}

OrRefusal<Plan> replay(const program::Program& concrete, const Schedule& schedule,
                       const std::vector<nest::Parameter>& sizes) {
  if (!sizes.empty()) check_sizes(concrete, sizes);
  Plan plan(concrete, schedule.dtype, sizes);
  for (std::size_t i = 0; i < schedule.trace.size(); ++i) {
    const Decision& decision = schedule.trace[i];
    if (const Refused refused = try_decide(plan, decision)) {
      const bool unknown = refused->kind() == Refusal::Kind::Unknown;
      return Refusal(fmt::format("decision {} ({} of '{}')", i, decision.name, decision.scope), "[{}] {}",
                     {std::string(refused->where()), refused->reason()},
                     unknown ? Refusal::Kind::Unknown : Refusal::Kind::Schedule);
    }
  }
  return plan;
}

}  // namespace

bool fuses_growing(const program::Program& concrete, const Schedule& schedule) {
  const Plan plan = replay(concrete, schedule, {}).or_raise();
  for (std::size_t s = 0; s < plan.scopes.size(); ++s) {
    const auto& loops = plan.scopes[s].loops;
    for (const PlannedLoop& loop : loops)
      if (loop.first >= 0 && loops[static_cast<std::size_t>(loop.first)].extent > 1 &&
          plan.grows(s, loop.second))
        return true;
  }
  return false;
}

LoopNest apply(const program::Program& concrete, const Schedule& schedule) {
  return apply(concrete, schedule, {});
}

LoopNest apply(const program::Program& concrete, const Schedule& schedule,
               const std::vector<nest::Parameter>& sizes) {
  return emit(replay(concrete, schedule, sizes).or_raise());
}

std::optional<PrepackedNests> apply_prepacked(const program::Program& concrete, const Schedule& schedule,
                                              const std::vector<nest::Parameter>& sizes) {
  const Plan plan = replay(concrete, schedule, sizes).or_raise();
  const Extents packed = prepacked_of(plan);
  if (packed.empty()) return std::nullopt;
  PrepackedNests nests = two_nests(plan, packed, true).or_raise();
  nests.prepack.name += "_prepack";
  return nests;
}

OrRefusal<LoopNest> try_apply_call(const program::Program& concrete, const Schedule& schedule) {
  SYNO_TAKE(plan, replay(concrete, schedule, {}));
  return try_emit_call(plan);
}

}  // namespace syno::schedule
