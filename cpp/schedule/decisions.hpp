// schedule/decisions.hpp — the decisions a schedule may hold: a table of named rows over a plan.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/plan.hpp"
#include "schedule/schedule.hpp"

namespace syno::schedule {

/// One kind of decision. `apply` changes the plan, or throws ScheduleError and leaves the plan unusable.
struct DecisionRow {
  std::string_view name;
  std::string_view arguments;  ///< which fields of the Decision it reads, for people
  std::string_view meaning;
  void (*apply)(Plan& plan, const Decision& decision);
};

/// The rows, in the order people learn them.
std::span<const DecisionRow> decisions();
void decide(Plan& plan, const Decision& decision);  ///< UnknownName lists the valid ones

// The rows that rewrite the program rather than the loops (schedule/rewrites.cpp, schedule/solve.cpp,
// schedule/turns.cpp, schedule/factors.cpp).
void stage(Plan& plan, const Decision& decision);
void inline_scope(Plan& plan, const Decision& decision);
void fuse_epilogue(Plan& plan, const Decision& decision);

/// Why `scope` cannot be the epilogue of the reduction that computes `tensor`; nothing where it can: it reads
/// each of its elements once, at the place where it writes, and nobody else reads them.
std::optional<std::string> epilogue_obstacle(Plan& plan, std::size_t scope, program::TensorId tensor);
void solve(Plan& plan, const Decision& decision);
void turn(Plan& plan, const Decision& decision);
void take_out_factors(Plan& plan, const Decision& decision);

/// Whether a scope is a sum whose terms all have a factor in common that its summation does not move.
bool has_common_factor(const Plan& plan, std::size_t scope);

/// The sums of a scope that solve() takes, by name: a remainder of a factor's index decides about them.
std::vector<std::string> solvable(const Plan& plan, std::size_t scope);
/// The loops of a scope that turn() takes, by name: several reads move with them by one `(i + a) % m`.
std::vector<std::string> turnable(const Plan& plan, std::size_t scope);
/// Nothing was decided about a scope but where it lies, if it is an output.
bool untouched(const Plan& plan, std::size_t scope);
/// Rebuilds a body, replacing what `replacement` gives another scalar for and moving the indices of the rest.
program::ScalarId rebuild(
    program::Program& program, program::ScalarId id,
    const std::function<std::optional<program::ScalarId>(program::ScalarId)>& replacement,
    const std::function<ExprId(ExprId)>& move = {});

}  // namespace syno::schedule
