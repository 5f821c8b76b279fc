// schedule/schedule.hpp — schedules: traces of decisions that turn a concrete program into a loop nest.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "program/program.hpp"
#include "schedule/names.hpp"
#include "support/refusal.hpp"

namespace syno::schedule {

/// One decision, by name with named arguments; replaying a trace is deterministic. Records store traces,
/// never artefacts. Structure (which loops, in which order: the sketch) is separate from numbers (tile
/// sizes), so that a sketch fits another shape (ETO). The decisions and their arguments are rows of one table
/// (schedule/decisions.cpp): split, fuse, reorder, relax, unroll, vectorize, transpose, parallel,
/// register_tile, peel, stage (a copy of what is read or written), prepack (before calls), prefetch, skip
/// (terms that read padding), lay_out (a tensor for the whole program, before all else), layout (of a copy),
/// strides (of an argument), compute_at, solve (a remainder), turn (a rotation), polyphase (places in
/// blocks), innermost (another dimension of what results are made of), inline, epilogue, share (what scopes
/// have in common), factor (out of a sum). Decisions about a consumer's loops come before those about what is
/// computed for it: they say how much of it there is.
struct Decision {
  std::string name;
  std::string scope;                  ///< output tensor of the scope it applies to
  std::vector<std::string> loops;     ///< loop or iterator names
  std::vector<std::int64_t> numbers;  ///< tile sizes, factors
  std::string tensor;                 ///< stage, layout: which tensor
  std::vector<std::string> words;     ///< further named choices
  bool operator==(const Decision&) const = default;
};

struct Schedule {
  Dtype dtype = Dtype::F32;
  std::vector<Decision> trace;
  bool operator==(const Schedule&) const = default;
};

/// Applies the trace; the empty one gives the plain loops. ScheduleError names the decision, its index in the
/// trace and why it does not apply.
LoopNest apply(const program::Program& concrete, const Schedule& schedule);

/// The same of a program with live ends (schedule/live.hpp): one nest for all values of these sizes, which
/// are its parameters. The trace is one for the largest.
LoopNest apply(const program::Program& concrete, const Schedule& schedule,
               const std::vector<nest::Parameter>& sizes);

/// Whether a schedule makes one loop of several of a scope, of which an inner one has a live end (of such a
/// program): where a call's sizes are less, that loop runs as often all the same, and asks each time.
bool fuses_growing(const program::Program& concrete, const Schedule& schedule);

/// Two nests that together are apply()'s: the first one computes what a trace calls `prepack`, from constant
/// inputs, once; the second one takes it as further inputs, after the inputs it still reads itself. Buffers
/// of the same name are the same. Nothing where the trace prepacks nothing.
struct PrepackedNests {
  LoopNest prepack, call;
};
std::optional<PrepackedNests> apply_prepacked(const program::Program& concrete, const Schedule& schedule,
                                              const std::vector<nest::Parameter>& sizes = {});
/// The nest of a call, where copies of constants are made before; or why the trace does not apply.
OrRefusal<LoopNest> try_apply_call(const program::Program& concrete, const Schedule& schedule);

/// One decision a line: `split y loops=h numbers=8`; parse_schedule(to_text(s)) is s.
std::string to_text(const Schedule& schedule);
std::string to_text(const Decision& decision);
Schedule parse_schedule(std::string_view text);  ///< ParseError with the line
nlohmann::json to_json(const Schedule& schedule);
Schedule schedule_from_json(const nlohmann::json& json);  ///< FormatError with the path of what is wrong

}  // namespace syno::schedule
