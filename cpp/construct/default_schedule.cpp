// The default schedule of a prepared program: each scope by the strategy that counts the fewest cycles.
#include <algorithm>
#include <array>
#include <numeric>

#include "construct/construct.hpp"
#include "construct/tiled_fusion.hpp"
#include "construct/tiling.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"

namespace syno::construct {

namespace {

/// Loops that follow each other in every tensor become one.
Refused fuse_contiguous(Construction& c, const std::string& name, const ScopeFacts& facts) {
  SYNO_ACCEPT(c.apply(name, facts.splits));
  const std::vector<std::string> names = c.leaves(name);
  const std::vector<bool> switches = loops_that_switch(c.plan, c.index(name));
  std::string last = names[facts.traversal - 1];
  // By read: how its address moves with the next loop if that follows; 0 where it stays; none before the
  // first loop of more than one iteration.
  std::vector<std::optional<std::int64_t>> next(facts.reads.size());
  for (std::size_t i = facts.traversal; i-- > 0;) {
    for (std::size_t r = 0; r < facts.reads.size() && facts.extents[i] > 1; ++r) {
      const ReadFacts& read = facts.reads[r];
      const auto made_by = c.plan.producer(read.tensor);
      // An intermediate may get a wider pitch than its shape says.
      const bool plain = !made_by || c.plan.is_output(read.tensor);
      const std::int64_t step = read.depends[i] ? read.address[i] : 0;
      if (next[r]) {
        const bool moves = read.depends[i] || *next[r] != 0;
        const bool guards = std::any_of(read.guards.begin() + static_cast<std::ptrdiff_t>(i),
                                        read.guards.end(), [](bool guard) { return guard; });
        if (moves && (!plain || guards || !read.linear || step != *next[r])) return {};
      }
      next[r] = step * facts.extents[i];
    }
    if (i + 1 == facts.traversal) continue;
    // One loop of both would decide by a quotient of itself.
    if (switches[i] || switches[i + 1] || !c.may_fuse(name, names[i], last)) return {};
    SYNO_TAKE(fused, c.fuse(name, names[i], last));
    last = fused;
  }
  return {};
}

/// Takes a few rows at a time of what reads one result of a reduction a row, such as a softmax's greatest
/// element: adding up the lanes of one row takes long, and those of several go on side by side.
Refused take_several_rows(Construction& c, const std::string& name) {
  constexpr std::array<std::int64_t, 6> kRows = {4, 5, 6, 3, 7, 2};
  constexpr std::int64_t kBytes = 4, kWaste = 50;
  const std::size_t s = c.index(name);
  if (c.plan.scopes[s].frozen || !c.plan.program.scopes[s].target.empty()) return {};
  const ScopeFacts facts = analyse(c.plan, s, false);
  std::size_t row = facts.traversal;
  for (const ReadFacts& read : facts.reads) {
    const auto made_by = c.plan.producer(read.tensor);
    if (!made_by || c.plan.is_argument(read.tensor) || c.plan.program.scopes[*made_by].sums.empty()) continue;
    std::size_t last = facts.traversal;
    for (std::size_t i = 0; i < facts.traversal; ++i)
      if (read.depends[i] && facts.extents[i] > 1) last = i;
    if (last + 1 < facts.traversal) row = last;
  }
  if (row == facts.traversal) return {};
  std::int64_t elements = 1;
  for (std::size_t i = row + 1; i < facts.traversal; ++i) elements *= facts.extents[i];
  const std::int64_t rows = facts.extents[row];
  const bool piece = c.plan.scopes[s].attach_scope >= 0;
  if (piece && rows <= *std::max_element(kRows.begin(), kRows.end())) return {};  // they are taken together
  const std::string loop = c.leaves(name)[row];
  for (const bool whole : {true, false})
    for (const std::int64_t several : kRows) {
      const std::int64_t dead = (several - rows % several) % several;
      if (rows <= several || dead * (whole ? rows + 1 : kWaste) > rows) continue;
      if (3 * several * elements * kBytes > c.target.l1_bytes) continue;
      return c.add({"split", name, {loop}, {several}, "", {}});
    }
  return {};
}

/// Makes nests of their own of the pieces of loops in which it is known what is read: of tensors one behind
/// the other, each is copied by itself, and of a tensor with borders around it the middle asks for nothing.
Refused part_switches(Construction& c, const std::string& name) {
  constexpr std::size_t kMostNests = 64;
  const std::size_t s = c.index(name);
  if (c.plan.scopes[s].frozen || !c.plan.sizes.empty()) return {};
  std::size_t nests = 1;
  for (const std::string& loop : c.leaves(name)) {
    const int leaf = c.plan.leaf_named(s, loop);
    const std::vector<int>& tile = c.plan.scopes[s].tile;
    const PlannedLoop planned = c.plan.scopes[s].loops[static_cast<std::size_t>(leaf)];
    if (planned.kind != LoopKind::Serial || planned.reduction ||
        std::find(tile.begin(), tile.end(), leaf) != tile.end())
      continue;
    std::vector<std::int64_t> cuts = switch_cuts(c.plan, s, loop, kMostNests);
    cuts.insert(cuts.end(), planned.cuts.begin(), planned.cuts.end());
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    if (cuts == planned.cuts || nests * (cuts.size() + 1) > kMostNests) continue;
    nests *= cuts.size() + 1;
    SYNO_ACCEPT(c.add({"peel", name, {loop}, std::move(cuts), "", {}}));
  }
  return {};
}

Refused write_pointwise(Construction& c, const std::string& name) {
  const std::size_t s = c.index(name);
  const ScopeFacts facts = analyse(c.plan, s);
  if (facts.traversal == 0) return {};
  SYNO_TAKE(across, write_across(c, name));
  if (!across) {
    if (c.plan.program.scopes[s].target.empty() && !facts.reduces && !c.plan.scopes[s].frozen)
      SYNO_ACCEPT(fuse_contiguous(c, name, facts));
    if (!facts.reduces) {
      SYNO_ACCEPT(take_several_rows(c, name));
      SYNO_ACCEPT(c.vectorize_copy(name));
      SYNO_ACCEPT(part_switches(c, name));
    }
  }
  c.parallel_outermost(name);
  return {};
}

}  // namespace

std::vector<std::int64_t> counting_to(std::int64_t last) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(std::max<std::int64_t>(last, 0)));
  std::iota(values.begin(), values.end(), std::int64_t{1});
  return values;
}

namespace {

bool has_sketches(const Construction& c, const std::string& scope) {
  const program::Scope& s = c.plan.program.scopes[c.index(scope)];
  return s.reduction != program::Reduction::None && !s.sums.empty() && s.target.empty();
}

}  // namespace

Facts facts_of(Construction& c, const std::string& scope, bool blocks) {
  ScopeFacts facts = analyse(c.plan, c.index(scope), blocks);
  for (ReadFacts& read : facts.reads) read.constant = c.constant(read.tensor);
  return std::make_shared<const ScopeFacts>(std::move(facts));
}

Sketches sketches_of(Construction& c, const std::string& scope, const Facts& facts) {
  Sketches sketches;
  if (!has_sketches(c, scope)) return sketches;
  along_output(c, scope, facts, sketches);
  along_channels(c, scope, facts, sketches);
  along_reduction(c, scope, facts, sketches);
  along_window(c, scope, facts, sketches);
  along_image(c, scope, facts, sketches);
  along_places(c, scope, facts, sketches);
  // What is computed a piece at a time has its place: no result of it can be staged, and who counts what a
  // piece costs should not count on that.
  if (c.plan.scopes[c.index(scope)].attach_scope >= 0)
    std::erase_if(sketches, [](const Sketch& sketch) {
      return sketch.tiling(sketch.counted).result != Result::InPlace;
    });
  return sketches;
}

Sketches sketches_of(Construction& c, const std::string& scope) {
  if (!has_sketches(c, scope)) return {};
  return sketches_of(c, scope, facts_of(c, scope));
}

Refused Sketch::write(Construction& c, const Numbers& numbers) const {
  return write_tiling(c, scope, *facts, tiling(numbers));
}

Choosing fewest_cycles(const Construction&, const std::string&, const Sketches& sketches) {
  Choosing best;
  for (std::size_t i = 1; i < sketches.size(); ++i)
    if (sketches[i].cycles < sketches[best.sketch].cycles) best.sketch = i;
  if (!sketches.empty()) best.numbers = sketches[best.sketch].counted;
  return best;
}

namespace {

std::vector<std::string> scope_names(const Construction& c) {
  std::vector<std::string> names;
  for (const auto& scope : c.plan.program.scopes) names.push_back(c.plan.program.tensor(scope.output).name);
  return names;
}

Choosing counted(const Question& question) {
  return fewest_cycles(question.construction, question.scope, question.sketches);
}

/// Some rules speak only once all loops are known.
OrRefusal<Finished> finished(const Construction& c) {
  SYNO_TAKE(nest, try_emit_call(c.plan));
  return Finished{c.schedule, std::move(nest), c.separable};
}

/// What is given back is verified; what is only looked at on the way to it need not be.
Finished verified(Finished made) {
  verify(made.nest);
  return made;
}

/// Beyond so many scopes trying each place where one might be computed would take longer than all else: they
/// are computed whole.
constexpr std::size_t kManyScopes = 128;

/// Who says how the reductions are written.
struct Chosen {
  const Chooser* chooser = nullptr;  ///< none: nobody, they are written plainly
  bool by_count = false;             ///< it counts cycles: what was written once is not thought about again
};

/// Writes the first `count` of some scopes. Consumers first: their loops say how much of a producer is
/// needed.
class Writer {
 public:
  Writer(Construction& c, const std::vector<std::string>& names, Chosen chosen, bool in_pieces,
         const TiledFusions& fusions)
      : c_(c),
        names_(names),
        chosen_(chosen),
        in_pieces_(in_pieces && names.size() <= kManyScopes),
        fusions_(fusions) {}

  Refused write(std::size_t count) {
    for (std::size_t i = count; i-- > 0;) {
      const std::string& name = names_[i];
      const auto tiled = std::find_if(fusions_.begin(), fusions_.end(),
                                      [&](const TiledFusion& fusion) { return fusion.last == name; });
      SYNO_ACCEPT(tiled != fusions_.end()        ? write_tiles(c_, *tiled)
                  : chosen_.by_count && c_.known ? write_as_before(i)
                                                 : write_anew(i));
    }
    return {};
  }

 private:
  Refused write_as_before(std::size_t i) {
    const std::string& name = names_[i];
    const auto situation = situation_of(c_, name, in_pieces_);
    if (const auto known = situation ? c_.known->decisions(*situation) : nullptr) {
      for (const Decision& decision : *known) SYNO_ACCEPT(c_.add(decision));
      c_.plan.need_domain(c_.index(name));
      return {};
    }
    const auto begin = static_cast<std::ptrdiff_t>(c_.schedule.trace.size());
    SYNO_ACCEPT(write_anew(i));
    c_.plan.need_domain(c_.index(name));
    if (situation)
      c_.known->put(*situation,
                    WrittenScopes::Decisions(c_.schedule.trace.begin() + begin, c_.schedule.trace.end()));
    return {};
  }

  Refused write_anew(std::size_t i) {
    const std::string& name = names_[i];
    if (in_pieces_)
      if (auto decision = placement(c_, name)) SYNO_ACCEPT(c_.add(std::move(*decision)));
    if (chosen_.chooser == nullptr || !has_sketches(c_, name)) return write_pointwise(c_, name);
    const Facts facts = facts_of(c_, name);
    Sketches sketches = sketches_of(c_, name, facts);
    const auto write = [&](const Choosing& choice) {
      if (choice.sketch >= sketches.size())
        fail<ScheduleError>("construct", "'{}' has {} sketches; the policy chose number {}, counted from 0",
                            name, sketches.size(), choice.sketch);
      Draft draft(c_);
      if (sketches[choice.sketch].write(c_, choice.numbers)) return false;  // a combination no row allows
      draft.keep();
      return true;
    };
    const auto finish = [&](const Choosing& choice) -> std::optional<Finished> {
      if (choice.sketch >= sketches.size()) return std::nullopt;
      const Draft rest(c_);
      if (sketches[choice.sketch].write(c_, choice.numbers)) return std::nullopt;
      const Chooser rest_counted = counted;
      if (Writer(c_, names_, {&rest_counted, true}, in_pieces_, fusions_).write(i)) return std::nullopt;
      auto made = finished(c_);
      return made ? std::optional(std::move(*made)) : std::nullopt;
    };
    bool written = !sketches.empty() && write((*chosen_.chooser)({c_, name, *facts, sketches, finish}));
    while (!written && !sketches.empty()) {
      const Choosing next = fewest_cycles(c_, name, sketches);
      written = write(next);
      sketches.erase(sketches.begin() + static_cast<std::ptrdiff_t>(next.sketch));
    }
    return written ? Refused{} : write_pointwise(c_, name);
  }

  Construction& c_;
  const std::vector<std::string>& names_;
  Chosen chosen_;
  bool in_pieces_;
  const TiledFusions& fusions_;
};

}  // namespace

namespace {

Finished constructed(const Construction& prepared, Chosen first, const TiledFusions& fusions) {
  Construction c = prepared;
  raise_if(stage_tiles(c, fusions));
  const std::vector<std::string> names = scope_names(c);
  const Chooser by_count = counted;
  const Chooser plain = [](const Question& question) {
    Sketches direct = question.sketches;
    for (auto& sketch : direct)
      if (!sketch.name.starts_with("along_output")) sketch.cycles *= 1e9;
    return fewest_cycles(question.construction, question.scope, direct);
  };
  struct Attempt {
    Chosen chosen;
    bool in_pieces;
  };
  for (const auto& [chosen, in_pieces] : {Attempt{first, true}, Attempt{first, false},
                                          Attempt{{&by_count, true}, false}, Attempt{{&plain}, false}}) {
    const Draft draft(c);
    raise_if(Writer(c, names, chosen, in_pieces, fusions).write(names.size()));
    if (auto made = finished(c)) return std::move(*made);
  }
  raise_if(Writer(c, names, {}, false, fusions).write(names.size()));
  return finished(c).or_raise();
}

}  // namespace

Finished construct_from(const Construction& prepared, const Chooser& chooser, const TiledFusions& fusions) {
  return verified(constructed(prepared, {&chooser, false}, fusions));
}

Finished counted_unverified(const Construction& prepared, const TiledFusions& fusions) {
  const Chooser by_count = counted;
  return constructed(prepared, {&by_count, true}, fusions);
}

Finished construct_counted(const Construction& prepared, const TiledFusions& fusions) {
  return verified(counted_unverified(prepared, fusions));
}

Finished construct_with(const program::Program& concrete, Dtype dtype, const Target& target,
                        const Chooser& chooser, const std::vector<std::string>& constants,
                        const Strides& strides, Phases phases, const TiledFusions& fusions,
                        Innermost innermost) {
  return construct_from(prepared(concrete, dtype, target, constants, strides, phases, innermost), chooser,
                        fusions);
}

Schedule construct(const program::Program& concrete, Dtype dtype, const Target& target, const Policy& policy,
                   const std::vector<std::string>& constants, const Strides& strides) {
  const Chooser chooser = [&](const Question& question) {
    return policy(question.construction, question.scope, question.sketches);
  };
  return construct_with(concrete, dtype, target, chooser, constants, strides).schedule;
}

Schedule default_schedule(const program::Program& concrete, Dtype dtype, const Target& target,
                          const std::vector<std::string>& constants) {
  return construct(concrete, dtype, target, fewest_cycles, constants);
}

}  // namespace syno::construct
