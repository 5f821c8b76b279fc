// Program + trace -> loop nest: the decisions build a plan, which is emitted in one pass.
#include <map>

#include "schedule/decisions.hpp"
#include "schedule/emission.hpp"
#include "schedule/plan.hpp"
#include "support/error.hpp"

namespace syno::schedule {

LoopNest emit(Plan plan) { return Emission(std::move(plan)).run(); }

namespace {

/// By name of what is prepacked: how much room its readers and writers need together.
std::map<std::string, Shape> prepacked_extents(const Plan& plan) {
  std::map<std::string, Shape> packed;
  for (std::size_t s = 0; s < plan.scopes.size(); ++s)
    if (plan.scopes[s].prepacked) packed[plan.program.tensor(plan.program.scopes[s].output).name];
  if (packed.empty()) return packed;
  for (const Buffer& buffer : emit(plan).buffers)
    if (const auto found = packed.find(buffer.name); found != packed.end()) found->second = buffer.extents;
  return packed;
}

}  // namespace

LoopNest emit_call(const Plan& plan) {
  const std::map<std::string, Shape> packed = prepacked_extents(plan);
  return packed.empty() ? emit(plan) : Emission(plan, Emission::Part::Call, packed).run();
}

namespace {

Plan replay(const program::Program& concrete, const Schedule& schedule) {
  Plan plan(concrete, schedule.dtype);
  for (std::size_t i = 0; i < schedule.trace.size(); ++i) {
    const Decision& decision = schedule.trace[i];
    const std::string where = fmt::format("decision {} ({} of '{}')", i, decision.name, decision.scope);
    try {
      decide(plan, decision);
    } catch (const UnknownName& error) {
      throw UnknownName(where, error.what());
    } catch (const Error& error) {
      throw ScheduleError(where, error.what());
    }
  }
  return plan;
}

}  // namespace

LoopNest apply(const program::Program& concrete, const Schedule& schedule) {
  return emit(replay(concrete, schedule));
}

std::optional<PrepackedNests> apply_prepacked(const program::Program& concrete, const Schedule& schedule) {
  const Plan plan = replay(concrete, schedule);
  const std::map<std::string, Shape> packed = prepacked_extents(plan);
  if (packed.empty()) return std::nullopt;
  PrepackedNests nests{Emission(plan, Emission::Part::Prepack, packed).run(),
                       Emission(plan, Emission::Part::Call, packed).run()};
  nests.prepack.name += "_prepack";
  return nests;
}

}  // namespace syno::schedule
