// Decisions that rewrite the program: staged copies, inlining and epilogues.
#include <algorithm>
#include <functional>

#include "program/scalars.hpp"
#include "schedule/decisions.hpp"
#include "schedule/gather.hpp"
#include "support/error.hpp"

namespace syno::schedule {

using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;

bool untouched(const Plan& plan, std::size_t scope) {
  const ScopePlan& s = plan.scopes[scope];
  if (s.total || s.prepacked || s.frozen || s.attach_scope >= 0) return false;
  if (s.loops.size() != (s.has_domain ? plan.iterator_count(scope) : 0)) return false;
  return s.tile.empty() && std::all_of(s.loops.begin(), s.loops.end(), [](const PlannedLoop& loop) {
           return loop.kind == LoopKind::Serial && loop.cuts.empty() && loop.live == loop.extent;
         });
}

namespace {

constexpr const char* kRewrites = "schedule";
using Moves = std::vector<std::pair<std::uint32_t, ExprId>>;  ///< iterators, and what takes their place

Refused stage_write(Plan& plan, std::size_t at, const std::string& name) {
  Program& program = plan.program;
  const program::Scope scope = program.scopes[at];
  if (!scope.target.empty()) return refuse(kRewrites, "'{}' accumulates; its result cannot be staged", name);
  const program::Tensor written = program.tensor(scope.output);
  if (plan.scopes[at].total) return refuse(kRewrites, "'{}' is a staged copy already", written.name);
  if (plan.scopes[at].frozen || plan.scopes[at].attach_scope >= 0 ||
      plan.scopes[at].loops.size() != (plan.scopes[at].has_domain ? plan.iterator_count(at) : 0))
    return refuse(kRewrites, "decisions about '{}' came before; stage what it writes first", written.name);
  program::Tensor copy = written;
  copy.name = name;
  copy.role = program::Role::Computed;
  const program::TensorId staged = program.add_tensor(std::move(copy));
  plan.tensors.emplace_back();
  program::Scope out;
  out.output = scope.output;
  std::vector<ExprId> indices;
  Moves values;
  for (const auto& iterator : scope.traversal) {
    out.traversal.push_back(program.new_iterator(iterator.name, iterator.range));
    indices.push_back(program.arena.iterator(out.traversal.back().slot));
    values.emplace_back(iterator.slot, indices.back());
  }
  out.body = program.read(staged, std::move(indices));
  ScopePlan written_later;
  // The epilogue goes with what is written last: the copy.
  if (const auto& epilogue = plan.scopes[at].epilogue) {
    written_later.epilogue = {program::with_iterators(program, epilogue->body, values), epilogue->value};
  }
  plan.change_program(at).output = staged;
  plan.change(at) = ScopePlan{};
  plan.insert_scope(at + 1, std::move(out), std::move(written_later));
  if (plan.is_argument(scope.output)) SYNO_ACCEPT(plan.try_domain(at + 1));
  return {};
}

}  // namespace

Refused stage(Plan& plan, const Decision& decision) {
  Program& program = plan.program;
  SYNO_TAKE(at, plan.find_scope(decision.scope));
  SYNO_TAKE(source, plan.find_tensor(decision.tensor));
  const std::string name = program::fresh_tensor_name(
      program, decision.words.empty() ? decision.tensor + "_s" : decision.words[0]);
  if (!decision.words.empty() && name != decision.words[0])
    return refuse(kRewrites, "there is a tensor '{}' already", decision.words[0]);
  if (source == program.scopes[at].output) return stage_write(plan, at, name);
  // How far the loops of a tensor's scope run follows from its readers, of which the copy will be one.
  if (const auto made_by = plan.producer(source);
      made_by && !plan.makes_all(*made_by) &&
      (plan.scopes[*made_by].has_domain || plan.scopes[*made_by].attach_scope >= 0))
    return refuse(kRewrites, "'{}' has its place already; stage it before deciding about it",
                  decision.tensor);
  const auto reads = plan.reads_of(at, source);
  if (reads.empty()) return refuse(kRewrites, "'{}' does not read '{}'", decision.scope, decision.tensor);
  std::size_t which = 0;
  if (!decision.numbers.empty()) {
    if (decision.numbers[0] < 0 || decision.numbers[0] >= static_cast<std::int64_t>(reads.size()))
      return refuse(kRewrites, "'{}' reads '{}' at {} places; there is no number {}", decision.scope,
                    decision.tensor, reads.size(), decision.numbers[0]);
    which = static_cast<std::size_t>(decision.numbers[0]);
  } else if (reads.size() > 1) {
    return refuse(kRewrites, "'{}' reads '{}' at {} places; give the number of one", decision.scope,
                  decision.tensor, reads.size());
  }
  const Scalar read = program.scalar(reads[which]);

  // How far loops run decides which indices are linear, whatever was asked about them before.
  const auto readers = plan.consumers(program.scopes[at].output);
  if (std::all_of(readers.begin(), readers.end(),
                  [&](std::size_t reader) { return plan.scopes[reader].has_domain; }))
    SYNO_ACCEPT(plan.try_domain(at));

  program::Tensor copy;
  copy.name = name;
  copy.role = program::Role::Computed;
  program::Scope filling;
  if (plan.scopes[at].attach_scope >= 0)
    SYNO_ACCEPT(plan.try_domain(at));  // what is linear in a piece may not be in all
  const IsLinear linear = linear_over_loops(plan, at);
  const std::vector<ExprId> parts = gathered_parts(program.arena, read.indices, linear);
  std::vector<ExprId> places;
  for (std::size_t d = 0; d < parts.size(); ++d) {
    const program::Range unknown{program.arena.constant(0), program.arena.constant(1)};
    filling.traversal.push_back(program.new_iterator(fmt::format("i{}", d), unknown));
    copy.dims.push_back(unknown);
    places.push_back(program.arena.iterator(filling.traversal.back().slot));
  }
  std::vector<ExprId> from = gathered_from(program.arena, read.indices, linear, parts, places);
  const program::TensorId staged = program.add_tensor(std::move(copy));
  plan.tensors.emplace_back();
  filling.output = staged;
  filling.body = program.read(source, std::move(from), read.fill);
  const ScalarId direct = program.read(staged, parts, read.fill);
  plan.change_program(at).body =
      program::rebuild(program, program.scopes[at].body, [&](ScalarId id) -> std::optional<ScalarId> {
        const Scalar& scalar = program.scalar(id);
        if (scalar.kind == ScalarKind::Read && scalar.tensor == read.tensor &&
            scalar.indices == read.indices && scalar.fill == read.fill)
          return direct;
        return std::nullopt;
      });
  ScopePlan made;
  made.total = true;
  plan.insert_scope(at, std::move(filling), std::move(made));
  return {};
}

namespace {

/// The row may change the scope: nothing was decided about it.
Refused check_untouched(const Plan& plan, std::size_t scope, bool epilogue = false) {
  if (!untouched(plan, scope) || (plan.scopes[scope].epilogue && !epilogue))
    return refuse(kRewrites, "decisions about '{}' came before; rewrite it first",
                  plan.program.tensor(plan.program.scopes[scope].output).name);
  return {};
}

Refused need_loop(const Decision& decision) {
  if (decision.loops.size() != 1)
    return refuse(kRewrites, "{} needs one loop, not {}", decision.name, decision.loops.size());
  return {};
}

derive::Site site_of(const Decision& decision) {
  return {decision.scope, decision.loops.empty() ? "" : decision.loops[0], decision.tensor,
          decision.words.empty() ? "" : decision.words[0], decision.numbers};
}

}  // namespace

Decision decision_for(std::string_view rewrite, const derive::Site& site) {
  Decision made{std::string(rewrite), site.scope, {}, site.numbers, site.other, {}};
  if (!site.iterator.empty()) made.loops = {site.iterator};
  if (!site.made.empty()) made.words = {site.made};
  return made;
}

std::vector<derive::Site> sites_of(const Plan& plan, std::string_view rewrite, std::size_t scope) {
  const bool composes = rewrite == "factor";  // the product becomes part of the epilogue
  const auto open = [&](std::size_t s) {
    return untouched(plan, s) && (composes || !plan.scopes[s].epilogue);
  };
  if (!open(scope)) return {};
  std::vector<derive::Site> found = derive::rewrite_named(rewrite).find(plan.program, scope);
  std::erase_if(found, [&](const derive::Site& site) {
    return !site.other.empty() && !open(plan.scope_named(site.other));
  });
  return found;
}

Refused solve(Plan& plan, const Decision& decision) {
  SYNO_ACCEPT(need_loop(decision));
  SYNO_TAKE(at, plan.find_scope(decision.scope));
  SYNO_ACCEPT(check_untouched(plan, at));
  plan.rewrite(derive::rewrite_named("solve"), site_of(decision));
  return {};
}

Refused tighten(Plan& plan, const Decision& decision) {
  SYNO_ACCEPT(need_loop(decision));
  SYNO_TAKE(at, plan.find_scope(decision.scope));
  SYNO_ACCEPT(check_untouched(plan, at));
  plan.rewrite(derive::rewrite_named("tighten"), site_of(decision));
  return {};
}

Refused turn(Plan& plan, const Decision& decision) {
  SYNO_ACCEPT(need_loop(decision));
  SYNO_TAKE(at, plan.find_scope(decision.scope));
  SYNO_ACCEPT(check_untouched(plan, at));
  plan.rewrite(derive::rewrite_named("turn"), site_of(decision));
  return {};
}

Refused polyphase(Plan& plan, const Decision& decision) {
  SYNO_TAKE(at, plan.find_scope(decision.scope));
  SYNO_ACCEPT(check_untouched(plan, at));
  // Who reads it reads blocks and phases now: how far a copy reaches must be known.
  for (const std::size_t reader : plan.consumers(plan.program.scopes[at].output))
    SYNO_ACCEPT(check_untouched(plan, reader, true));
  plan.rewrite(derive::rewrite_named("polyphase"), site_of(decision));
  return {};
}

Refused innermost(Plan& plan, const Decision& decision) {
  SYNO_TAKE(at, plan.find_scope(decision.scope));
  if (!plan.is_argument(plan.program.scopes[at].output))
    return refuse(kRewrites, "'{}' is no output; name the output that is made of it", decision.scope);
  // Several results change places, and whoever reads them.
  for (std::size_t s = 0; s < plan.scopes.size(); ++s) SYNO_ACCEPT(check_untouched(plan, s));
  if (decision.numbers.empty())
    plan.rewrite(derive::rewrite_named("innermost"), site_of(decision));
  else  // which are best depends on sizes; told, it is done at all of them
    plan.rewrite([&](Program& program) { derive::move_innermost(program, at, decision.numbers); });
  return {};
}

Refused share(Plan& plan, const Decision& decision) {
  for (const std::string& name : {decision.scope, decision.tensor}) {
    SYNO_TAKE(at, plan.find_scope(name));
    SYNO_ACCEPT(check_untouched(plan, at));
  }
  plan.rewrite(derive::rewrite_named("share"), site_of(decision));
  return {};
}

Refused inline_scope(Plan& plan, const Decision& decision) {
  Program& program = plan.program;
  SYNO_TAKE(at, plan.find_scope(decision.scope));
  const program::Scope producer = program.scopes[at];
  if (plan.is_argument(producer.output))
    return refuse(kRewrites, "'{}' is an output; it must be written", decision.scope);
  if (!producer.sums.empty() || !producer.target.empty())
    return refuse(kRewrites, "'{}' reduces or accumulates; every read of it would repeat that",
                  decision.scope);
  if (plan.scopes[at].has_domain || plan.scopes[at].attach_scope >= 0)
    return refuse(kRewrites, "decisions about '{}' came before; inline it first", decision.scope);
  const auto readers = plan.consumers(producer.output);
  bool plain = !plan.scopes[at].total && !plan.scopes[at].epilogue;
  for (const std::size_t reader : readers) {
    const ScopePlan& s = plan.scopes[reader];
    if (s.frozen)
      return refuse(kRewrites, "'{}' already has a producer placed by its loops; inline '{}' before",
                    program.tensor(program.scopes[reader].output).name, decision.scope);
    plain = plain && !s.epilogue && !(s.total && !s.has_domain);
  }
  if (plain) {
    plan.rewrite(derive::rewrite_named("inline"), site_of(decision));
    plan.drop_unused_scalars();
    return {};
  }
  // Epilogues, and copies that may be read anywhere, are the plan's affair.
  derive::Inlined inlined{producer, producer.body, plan.scopes[at].total};
  if (const auto& epilogue = plan.scopes[at].epilogue)
    inlined.written = program::rebuild(program, epilogue->body, [&](ScalarId id) {
      return id == epilogue->value ? std::optional(producer.body) : std::nullopt;
    });
  std::vector<std::pair<ScalarId, ScalarId>> made;  // all before one is changed: any may be refused
  for (const std::size_t reader : readers) {
    const std::string& name = program.tensor(program.scopes[reader].output).name;
    // How far a staged copy reaches is known once its consumers are decided.
    inlined.guarded = plan.scopes[reader].total && !plan.scopes[reader].has_domain;
    const auto& epilogue = plan.scopes[reader].epilogue;
    made.emplace_back(with_inlined(program, inlined, program.scopes[reader].body, name),
                      epilogue ? with_inlined(program, inlined, epilogue->body, name) : ScalarId{});
  }
  for (std::size_t i = 0; i < readers.size(); ++i) {
    plan.change_program(readers[i]).body = made[i].first;
    if (auto& epilogue = plan.change(readers[i]).epilogue) epilogue->body = made[i].second;
  }
  plan.erase_scope(at);
  plan.drop_unused_scalars();
  return {};
}

std::optional<std::string> epilogue_obstacle(Plan& plan, std::size_t at, program::TensorId tensor) {
  const Program& program = plan.program;
  const program::Scope& consumer = program.scopes[at];
  const std::string& name = program.tensor(tensor).name;
  const std::string& own = program.tensor(consumer.output).name;
  const auto made_by = plan.producer(tensor);
  if (!made_by) return fmt::format("'{}' is not computed", name);
  const program::Scope& producer = program.scopes[*made_by];
  if (producer.reduction == program::Reduction::None || producer.sums.empty() || !producer.target.empty())
    return fmt::format("'{}' is no plain reduction", name);
  if (!consumer.sums.empty() || !consumer.target.empty())
    return fmt::format("'{}' reduces or accumulates itself", own);
  if (plan.is_argument(tensor)) return fmt::format("'{}' is an output; it must be written itself", name);
  for (const std::size_t scope : {at, *made_by})
    if (!untouched(plan, scope) || (scope == at && plan.scopes[at].epilogue))
      return fmt::format("decisions about '{}' came before", scope == at ? own : name);
  const auto readers = plan.consumers(tensor);
  if (readers != std::vector<std::size_t>{at})
    return fmt::format("'{}' is read by other scopes than '{}', too", name, own);
  const auto reads = plan.reads_of(at, tensor);
  if (reads.size() != 1) return fmt::format("'{}' reads '{}' at {} places", own, name, reads.size());
  // Each dimension moves with an iterator of its own, and every iterator with a dimension.
  const Scalar& read = program.scalar(reads[0]);
  AffineForms forms = plan.bound_forms();
  std::vector<std::uint32_t> seen;
  for (std::size_t i = 0; i < plan.iterator_count(at); ++i) {
    const auto [begin, end] = plan.range(plan.iterator(at, i).range);
    forms.bind(plan.iterator(at, i).slot, {begin, end - 1});
  }
  for (std::size_t d = 0; d < read.indices.size(); ++d) {
    if (program.arena.has_inside(read.indices[d]))
      return fmt::format("'{}' reads '{}' under a condition", own, name);
    const AffineForm form = forms.form(program.arena, read.indices[d]);
    const auto [begin, end] = plan.range(program.tensor(tensor).dims[d]);
    const Interval range = forms.bounds(form);
    if (range.least < begin || range.greatest >= end)
      return fmt::format("'{}' reads '{}' outside its dimension {}", own, name, d);
    if (form.is_constant()) continue;
    const Atom* atom = form.terms.size() == 1 ? &forms.atom(form.terms[0].first) : nullptr;
    if (!atom || atom->kind != Atom::Kind::Slot || form.terms[0].second != 1 ||
        std::find(seen.begin(), seen.end(), atom->slot) != seen.end())
      return fmt::format("dimension {} of '{}' is no iterator of its own of '{}'", d, name, own);
    seen.push_back(atom->slot);
  }
  for (const auto& iterator : consumer.traversal) {
    const auto [begin, end] = plan.range(iterator.range);
    if (end - begin > 1 && std::find(seen.begin(), seen.end(), iterator.slot) == seen.end())
      return fmt::format("'{}' takes the elements of '{}' again for each '{}'", own, name, iterator.name);
  }
  return std::nullopt;
}

namespace {

/// Makes the scope `at` the epilogue of the reduction it reads `tensor` from.
void put_into_epilogue(Plan& plan, std::size_t at, program::TensorId tensor) {
  Program& program = plan.program;
  const std::size_t made_by = *plan.producer(tensor);
  const program::Scope producer = program.scopes[made_by];
  const ScalarId place = plan.reads_of(at, tensor)[0];
  Moves values;
  for (std::size_t d = 0; d < producer.traversal.size(); ++d)
    values.emplace_back(producer.traversal[d].slot, program.scalar(place).indices[d]);

  // A chain: the outer epilogue is made of what the inner one makes.
  const auto inner = plan.scopes[made_by].epilogue;
  const ScalarId value = inner ? inner->value : program.literal(0);
  const ScalarId result = inner ? program::with_iterators(program, inner->body, values) : value;
  const ScalarId body =
      program::rebuild(program, program.scopes[at].body, [&](ScalarId id) -> std::optional<ScalarId> {
        const Scalar& scalar = program.scalar(id);
        return scalar.kind == ScalarKind::Read && scalar.tensor == tensor ? std::optional(result)
                                                                          : std::nullopt;
      });
  program::Scope& joint = plan.change_program(at);
  joint.body = program::with_iterators(program, producer.body, values);
  joint.sums = producer.sums;
  joint.reduction = producer.reduction;
  ScopePlan& made = plan.change(at) = ScopePlan{};
  made.epilogue = {body, value};
  plan.erase_scope(made_by);
}

}  // namespace

Refused fuse_epilogue(Plan& plan, const Decision& decision) {
  SYNO_TAKE(at, plan.find_scope(decision.scope));
  SYNO_TAKE(tensor, plan.find_tensor(decision.tensor));
  if (const auto obstacle = epilogue_obstacle(plan, at, tensor)) return refuse(kRewrites, "{}", *obstacle);
  put_into_epilogue(plan, at, tensor);
  SYNO_TAKE(joint, plan.find_scope(decision.scope));
  if (plan.is_argument(plan.program.scopes[joint].output)) SYNO_ACCEPT(plan.try_domain(joint));
  return {};
}

Refused factor(Plan& plan, const Decision& decision) {
  SYNO_TAKE(at, plan.find_scope(decision.scope));
  SYNO_ACCEPT(check_untouched(plan, at, true));
  const ScopePlan before = plan.scopes[at];
  const std::uint32_t slots = plan.program.next_slot;
  plan.rewrite(derive::rewrite_named("factor"), site_of(decision));
  // The product is made in registers, and what was the epilogue is made of it.
  SYNO_TAKE(product, plan.find_scope(decision.scope));
  put_into_epilogue(plan, product, plan.program.scopes[product - 1].output);
  SYNO_TAKE(joint, plan.find_scope(decision.scope));
  Epilogue made = *plan.scopes[joint].epilogue;
  if (const auto& outer = before.epilogue)
    made.body = program::rebuild(plan.program, outer->body, [&](ScalarId id) {
      return id == outer->value ? std::optional(made.body) : std::nullopt;
    });
  ScopePlan& both = plan.change(joint) = before;
  both.epilogue = made;
  plan.program.next_slot = slots;  // the iterators of the sum alone are nobody's now
  return {};
}

}  // namespace syno::schedule
