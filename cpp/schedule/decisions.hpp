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
#include "support/refusal.hpp"

namespace syno::schedule {

/// One kind of decision. `apply` changes the plan, or says why not and may leave it changed in part: what
/// try_decide() undoes.
struct DecisionRow {
  std::string_view name;
  std::string_view arguments;  ///< which fields of the Decision it reads, for people
  std::string_view meaning;
  Refused (*apply)(Plan& plan, const Decision& decision);
};

/// The rows, in the order people learn them.
std::span<const DecisionRow> decisions();
/// Decides, or says why that does not apply: then the plan is as it was. For who expects that now and then.
Refused try_decide(Plan& plan, const Decision& decision);
/// The same where a refusal is somebody's mistake: ScheduleError; UnknownName lists the decisions there are.
void decide(Plan& plan, const Decision& decision);

// The rows that change the program rather than the loops (schedule/rewrites.cpp).
Refused stage(Plan& plan, const Decision& decision);
Refused fuse_epilogue(Plan& plan, const Decision& decision);
Refused solve(Plan& plan, const Decision& decision);
Refused tighten(Plan& plan, const Decision& decision);
Refused turn(Plan& plan, const Decision& decision);
Refused polyphase(Plan& plan, const Decision& decision);
Refused innermost(Plan& plan, const Decision& decision);
Refused factor(Plan& plan, const Decision& decision);
Refused share(Plan& plan, const Decision& decision);
Refused inline_scope(Plan& plan, const Decision& decision);

// schedule/laid_out_copy.cpp
Refused lay_out(Plan& plan, const Decision& decision);
/// The decision that makes laid_out_copied(program, tensor, layout, copy) of a program.
Decision lay_out_decision(std::string_view tensor, const Layout& layout, std::string_view copy);

/// Why `scope` cannot be the epilogue of the reduction that computes `tensor`; nothing where it can: it reads
/// each of its elements once, at the place where it writes, and nobody else reads them.
std::optional<std::string> epilogue_obstacle(Plan& plan, std::size_t scope, program::TensorId tensor);

/// Where a row of rewrites applies to a scope as the plan is: the sites that it finds, about whose scopes
/// nothing was decided yet.
std::vector<derive::Site> sites_of(const Plan& plan, std::string_view rewrite, std::size_t scope);
/// The decision to apply it there.
Decision decision_for(std::string_view rewrite, const derive::Site& site);
/// Nothing was decided about a scope but where it lies, if it is an output.
bool untouched(const Plan& plan, std::size_t scope);
}  // namespace syno::schedule
