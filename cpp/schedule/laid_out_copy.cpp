// Copies of arguments that lie otherwise than the caller's memory, and the decision to make them.
#include <algorithm>
#include <charconv>

#include "program/names.hpp"
#include "program/scalars.hpp"
#include "schedule/decisions.hpp"
#include "schedule/laid_out.hpp"
#include "support/error.hpp"

namespace syno::schedule {

namespace {

using program::Program;
using program::Role;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using program::TensorId;

constexpr const char* kLaidOutCopy = "layout";

bool is_output(const Program& program, TensorId tensor) {
  return std::find(program.outputs.begin(), program.outputs.end(), tensor) != program.outputs.end();
}

/// to[i...] = from[i...], over the same indices.
Scope copying(Program& program, TensorId from, TensorId to) {
  Scope scope;
  scope.output = to;
  std::vector<ExprId> at;
  const auto dims = program.tensor(from).dims;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    scope.traversal.push_back(program.new_iterator(fmt::format("i{}", d), dims[d]));
    at.push_back(program.arena.iterator(scope.traversal.back().slot));
  }
  scope.body = program.read(from, std::move(at));
  return scope;
}

}  // namespace

Program laid_out_copied(Program program, TensorId tensor, const Layout& layout, std::string_view copy) {
  const auto known = static_cast<std::size_t>(tensor) < program.tensors.size();
  const bool output = known && is_output(program, tensor);
  const bool input =
      known && (program.tensor(tensor).role == Role::Input || program.tensor(tensor).role == Role::Weight);
  if (!output && !input) return laid_out(std::move(program), tensor, layout);
  if (copy.empty() || program::fresh_tensor_name(program, std::string(copy)) != copy)
    fail<ScheduleError>(kLaidOutCopy, "a copy of '{}' cannot be called '{}': there is such a tensor",
                        program.tensor(tensor).name, copy);
  program::Tensor made = program.tensor(tensor);
  made.name = copy;
  made.role = Role::Computed;
  const TensorId lies = program.add_tensor(std::move(made));
  const auto other = [&](ScalarId id) -> std::optional<ScalarId> {
    const Scalar read = program.scalar(id);
    if (read.kind != ScalarKind::Read || read.tensor != tensor) return std::nullopt;
    return program.read(lies, read.indices, read.fill);
  };
  std::size_t place = 0;  // where the copy is made: before its readers, after its writer
  for (std::size_t s = 0; s < program.scopes.size(); ++s) {
    program.scopes[s].body = program::rebuild(program, program.scopes[s].body, other);
    if (program.scopes[s].output != tensor) continue;
    program.scopes[s].output = lies;
    place = s + 1;
  }
  Scope scope = output ? copying(program, lies, tensor) : copying(program, tensor, lies);
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(place), std::move(scope));
  return laid_out(std::move(program), lies, layout);
}

namespace {

/// `split:3,reorder:5` and all their numbers: one after the other.
OrRefusal<Layout> layout_of(const Decision& decision) {
  Layout layout;
  auto next = decision.numbers.begin();
  for (const std::string& word : decision.words) {
    const std::size_t colon = word.find(':');
    std::int64_t count = 0;
    if (colon != std::string::npos) {
      const char* end = word.data() + word.size();
      const auto read = std::from_chars(word.data() + colon + 1, end, count);
      if (read.ec != std::errc() || read.ptr != end) count = 0;
    }
    if (count < 1 || count > decision.numbers.end() - next)
      return refuse(kLaidOutCopy,
                    "lay_out needs a primitive and how many of the numbers are its, 'split:3', not '{}' "
                    "with {} left",
                    word, decision.numbers.end() - next);
    LayoutStep step;
    SYNO_TAKE(primitive, find_layout_primitive(std::string_view(word).substr(0, colon)));
    step.kind = primitive->kind;
    step.numbers.assign(next, next + count);
    next += count;
    if (step.kind != LayoutKind::Reorder) {
      if (step.numbers[0] < 0) return refuse(kLaidOutCopy, "{}: a dimension is at least 0", word);
      step.dim = static_cast<std::size_t>(step.numbers[0]);
      step.numbers.erase(step.numbers.begin());
    }
    layout.push_back(std::move(step));
  }
  if (next != decision.numbers.end() || layout.empty())
    return refuse(kLaidOutCopy, "lay_out has {} numbers that belong to none of its {} primitives",
                  decision.numbers.end() - next, layout.size());
  return layout;
}

}  // namespace

Decision lay_out_decision(std::string_view tensor, const Layout& layout, std::string_view copy) {
  Decision made{"lay_out", std::string(copy), {}, {}, std::string(tensor), {}};
  for (const LayoutStep& step : layout) {
    const bool dim = step.kind != LayoutKind::Reorder;
    made.words.push_back(
        fmt::format("{}:{}", layout_primitive(step.kind).name, step.numbers.size() + (dim ? 1 : 0)));
    if (dim) made.numbers.push_back(static_cast<std::int64_t>(step.dim));
    made.numbers.insert(made.numbers.end(), step.numbers.begin(), step.numbers.end());
  }
  return made;
}

Refused lay_out(Plan& plan, const Decision& decision) {
  SYNO_TAKE(tensor, plan.find_tensor(decision.tensor));
  SYNO_TAKE(layout, layout_of(decision));
  for (std::size_t s = 0; s < plan.scopes.size(); ++s)
    if (!untouched(plan, s) || plan.scopes[s].epilogue)
      return refuse(kLaidOutCopy, "decisions about '{}' came before; lay tensors out first",
                    plan.program.tensor(plan.program.scopes[s].output).name);
  for (std::size_t t = 0; t < plan.tensors.size(); ++t)
    if (!plan.tensors[t].strides.empty() || !plan.tensors[t].layout.empty())
      return refuse(kLaidOutCopy, "decisions about '{}' came before; lay tensors out first",
                    plan.program.tensors[t].name);
  if (!plan.sizes.empty())
    return refuse(kLaidOutCopy,
                  "a program for a range of sizes keeps its layouts: '{}' would need one a size",
                  decision.tensor);
  plan.replace(Plan(laid_out_copied(plan.program, tensor, layout, decision.scope), plan.dtype));
  return {};
}

}  // namespace syno::schedule
