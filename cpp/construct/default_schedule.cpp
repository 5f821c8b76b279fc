// The default schedule: inline what is cheap, leave out terms that are zero, then write each scope by the
// strategy that counts the fewest cycles.
#include <algorithm>
#include <array>
#include <numeric>

#include "construct/construct.hpp"
#include "construct/tiled_fusion.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"

namespace syno::construct {

namespace {

using program::Function;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;

/// Iterations of scalar work below which starting threads costs more than it gives.
constexpr double kParallelWork = 60'000;

bool transcendental(Function function) {
  constexpr std::array kCheap = {
      Function::Negate,   Function::Relu,     Function::Abs,     Function::Add,  Function::Subtract,
      Function::Multiply, Function::Maximum,  Function::Minimum, Function::Less, Function::LessEqual,
      Function::Equal,    Function::NotEqual, Function::And,     Function::Or,   Function::Floor,
      Function::Ceil,     Function::Round,    Function::Trunc};
  return std::find(kCheap.begin(), kCheap.end(), function) == kCheap.end();
}

}  // namespace

bool expensive(const program::Program& program, ScalarId id) {
  return program::any_scalar(program, id, [](const Scalar& scalar) {
    const bool call = scalar.kind == ScalarKind::Unary || scalar.kind == ScalarKind::Binary;
    return call && transcendental(scalar.function);
  });
}

namespace {

/// An elementary function that a reduction and another scope have in common takes longer to compute twice
/// than to keep, where what is kept stays in a near cache.
void share_functions(Construction& c) {
  const auto elements = [&](const std::vector<program::Iterator>& iterators) {
    double product = 1;
    for (const auto& iterator : iterators) {
      const auto [begin, end] = c.plan.range(iterator.range);
      product *= static_cast<double>(end - begin);
    }
    return product;
  };
  const auto worth = [&](std::size_t s, std::size_t other, const derive::Shared& shared) {
    const program::Scope &sum = c.plan.program.scopes[s], &user = c.plan.program.scopes[other];
    const auto summed = [&](ExprId place) {
      const auto slot = c.plan.program.arena.iterators(place).front();
      return std::any_of(sum.sums.begin(), sum.sums.end(), [&](const auto& i) { return i.slot == slot; });
    };
    if (std::none_of(shared.places.begin(), shared.places.end(), summed)) return false;
    // Computed for one iteration of the loops around both at a time.
    std::size_t around = 0;
    while (user.sums.empty() && around < shared.points.size() && !summed(shared.places[around]) &&
           shared.points[around].slot == user.traversal[around].slot)
      ++around;
    const auto first = shared.points.begin();
    const double piece = elements({first + static_cast<std::ptrdiff_t>(around), shared.points.end()});
    const std::int64_t cache = around > 0 ? c.target.l2_bytes : c.target.l1_bytes;
    return piece * static_cast<double>(byte_size(c.plan.dtype)) * 2 <= static_cast<double>(cache);
  };
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s) {
    const auto shares = [&] {
      return c.plan.program.scopes[s].sums.empty() ? std::vector<derive::Site>{}
                                                   : sites_of(c.plan, "share", s);
    };
    auto found = shares();
    for (std::size_t other = 0; other < c.plan.scopes.size() && !found.empty(); ++other) {
      const auto& name = c.plan.program.tensor(c.plan.program.scopes[other].output).name;
      const auto site =
          std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.other == name; });
      if (site == found.end() || !worth(s, other, *derive::find_shared(c.plan.program, s, other))) continue;
      c.add(schedule::decision_for("share", *site));
      found = shares();
    }
  }
}

/// Whether a scope does nothing but write the results of short sums with another dimension innermost. Lanes
/// of the sums run along what their operands have innermost, as the producer's order says; turned while they
/// are copied they cost less than operands read across.
bool turns_short_sums(Plan& plan, std::size_t s, program::TensorId tensor) {
  constexpr double kShort = 16;
  const program::Scope &copy = plan.program.scopes[s], &sum = plan.program.scopes[*plan.producer(tensor)];
  const Scalar& read = plan.program.scalar(copy.body);
  if (read.kind != ScalarKind::Read || copy.traversal.empty() || plan.scopes[s].epilogue) return false;
  double terms = 1;
  for (const auto& iterator : sum.sums) {
    const auto [begin, end] = plan.range(iterator.range);
    terms *= static_cast<double>(end - begin);
  }
  const auto innermost = plan.program.arena.iterator(copy.traversal.back().slot);
  return terms < kShort && read.indices.back() != innermost;
}

/// What is computed from each complete result of a reduction is computed in its registers. Where that is done
/// the scope before it is the next one: it alone has changed, and it reduces now.
void fuse_epilogues(Construction& c) {
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s)
    for (const ScalarId id : c.plan.reads(s)) {
      const program::TensorId tensor = c.plan.program.scalar(id).tensor;
      if (epilogue_obstacle(c.plan, s, tensor) || turns_short_sums(c.plan, s, tensor)) continue;
      const auto name = [&](program::TensorId t) { return c.plan.program.tensor(t).name; };
      c.add({"epilogue", name(c.plan.program.scopes[s].output), {}, {}, name(tensor), {}});
      --s;  // the reduction that went into it was a scope before it
      break;
    }
}

/// What all terms of a sum are multiplied by is multiplied with its result.
void take_out_factors(Construction& c) {
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s)
    for (const derive::Site& site : sites_of(c.plan, "factor", s))
      c.add(schedule::decision_for("factor", site));
}

/// Sums run over what a remainder lets in, where one says so.
void solve_sums(Construction& c) {
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s)
    for (auto sums = sites_of(c.plan, "solve", s); !sums.empty(); sums = sites_of(c.plan, "solve", s))
      c.add(schedule::decision_for("solve", sums.front()));
}

/// Sums run over what lies inside of what they read: of a window that reaches past the image on both sides,
/// its middle is left, and only those weights are read.
void tighten_sums(Construction& c) {
  const auto of_sum = [&](std::size_t s) -> std::optional<derive::Site> {
    const auto& sums = c.plan.program.scopes[s].sums;
    if (sums.empty()) return std::nullopt;
    const std::vector<derive::Site> sites = sites_of(c.plan, "tighten", s);
    const auto found = std::find_if(sites.begin(), sites.end(), [&](const derive::Site& site) {
      return std::any_of(sums.begin(), sums.end(),
                         [&](const auto& sum) { return sum.name == site.iterator; });
    });
    return found == sites.end() ? std::nullopt : std::optional(*found);
  };
  // One at a time: a sum that runs over less may leave less to another one.
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s)
    while (const auto site = of_sum(s)) c.add(schedule::decision_for("tighten", *site));
}

/// Whether something is computed by its place in a block.
bool has_phases(const Construction& c) {
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s)
    if (!sites_of(c.plan, "polyphase", s).empty()) return true;
  return false;
}

/// What is computed by its place in a block becomes channels of their own: a transposed convolution of few
/// channels is a dense one of many.
void separate_phases(Construction& c) {
  for (std::size_t s = c.plan.scopes.size(); s-- > 0;)
    for (const derive::Site& site : sites_of(c.plan, "polyphase", s))
      c.add(schedule::decision_for("polyphase", site));
  inline_cheap_scopes(c);  // what put results in their places, into who reads them
}

/// Loops that follow each other in every tensor become one.
void fuse_contiguous(Construction& c, const std::string& name, const ScopeFacts& facts) {
  c.apply(name, facts.splits);
  const std::vector<std::string> names = c.leaves(name);
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
        if (moves && (!plain || read.guarded || !read.linear || step != *next[r])) return;
      }
      next[r] = step * facts.extents[i];
    }
    if (i + 1 < facts.traversal) last = c.fuse(name, names[i], last);
  }
}

/// Takes a few rows at a time of what reads one result of a reduction a row, such as a softmax's greatest
/// element: adding up the lanes of one row takes long, and those of several go on side by side.
void take_several_rows(Construction& c, const std::string& name) {
  constexpr std::array<std::int64_t, 6> kRows = {4, 5, 6, 3, 7, 2};
  constexpr std::int64_t kBytes = 4, kWaste = 50;
  const std::size_t s = c.index(name);
  if (c.plan.scopes[s].frozen || !c.plan.program.scopes[s].target.empty()) return;
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
  if (row == facts.traversal) return;
  std::int64_t elements = 1;
  for (std::size_t i = row + 1; i < facts.traversal; ++i) elements *= facts.extents[i];
  const std::int64_t rows = facts.extents[row];
  const bool piece = c.plan.scopes[s].attach_scope >= 0;
  if (piece && rows <= *std::max_element(kRows.begin(), kRows.end())) return;  // they are taken together
  const std::string loop = c.leaves(name)[row];
  for (const bool whole : {true, false})
    for (const std::int64_t several : kRows) {
      const std::int64_t dead = (several - rows % several) % several;
      if (rows <= several || dead * (whole ? rows + 1 : kWaste) > rows) continue;
      if (3 * several * elements * kBytes > c.target.l1_bytes) continue;
      c.split(name, loop, several);
      return;
    }
}

void write_pointwise(Construction& c, const std::string& name) {
  const std::size_t s = c.index(name);
  const ScopeFacts facts = analyse(c.plan, s);
  if (facts.traversal == 0) return;
  if (write_across(c, name)) return c.parallel_outermost(name);
  if (c.plan.program.scopes[s].target.empty() && !facts.reduces && !c.plan.scopes[s].frozen)
    fuse_contiguous(c, name, facts);
  if (!facts.reduces) {
    take_several_rows(c, name);
    c.vectorize_copy(name);
  }
  c.parallel_outermost(name);
}

/// Results are computed in the order in which what differs from place to place lies. Constants are laid out
/// as they are needed anyway.
void turn_places(Construction& c) {
  for (std::size_t s = c.plan.program.scopes.size(); s-- > 0;) {
    const auto reads = c.plan.reads(s);
    const auto loops = sites_of(c.plan, "turn", s);
    if (loops.empty() || std::any_of(reads.begin(), reads.end(), [&](ScalarId read) {
          return c.constant(c.plan.program.scalar(read).tensor);
        }))
      continue;
    c.add(schedule::decision_for("turn", loops.front()));
  }
}

}  // namespace

Construction::Construction(const program::Program& concrete, Dtype dtype, const Target& machine,
                           std::vector<std::string> constant_names, const Strides& strides)
    : plan(concrete, dtype), target(machine), constants(std::move(constant_names)) {
  for (const auto& name : constants) {
    const auto tensor = plan.tensor_named(name);
    if (plan.program.tensor(tensor).role == program::Role::Computed)
      fail<ScheduleError>("construct", "'{}' is computed; only inputs can be constant over calls", name);
  }
  schedule.dtype = dtype;
  lanes = std::max<std::int64_t>(1, machine.vector_bits / (dtype == Dtype::F64 ? 64 : 32));
  for (const auto& [name, numbers] : strides) add({"strides", "", {}, numbers, name, {}});
}

void Construction::add(Decision decision) {
  decide(plan, decision);
  schedule.trace.push_back(std::move(decision));
}

std::pair<std::string, std::string> Construction::split(const std::string& scope, const std::string& loop,
                                                        std::int64_t factor) {
  add({"split", scope, {loop}, {factor}, "", {}});
  const auto& loops = plan.scopes[index(scope)].loops;
  return {loops[loops.size() - 2].name, loops.back().name};
}

std::string Construction::fuse(const std::string& scope, const std::string& a, const std::string& b) {
  add({"fuse", scope, {a, b}, {}, "", {}});
  return plan.scopes[index(scope)].loops.back().name;
}

void Construction::apply(const std::string& scope, const Splits& splits) {
  for (const auto& [loop, factor] : splits) {
    const auto names = leaves(scope);
    if (std::find(names.begin(), names.end(), loop) != names.end())
      split(scope, loop, std::min(factor, extent(scope, loop)));  // a piece may be less than a block
  }
}

bool Construction::constant(program::TensorId tensor) const {
  const auto& name = plan.program.tensor(tensor).name;
  return std::find(constants.begin(), constants.end(), name) != constants.end();
}

std::string Construction::stage_read(const std::string& scope, const ReadFacts& read,
                                     const std::string& suffix) {
  const std::string& source = plan.program.tensor(read.tensor).name;
  const std::string copy = program::fresh_tensor_name(plan.program, source + suffix);
  const auto reads = plan.reads_of(index(scope), read.tensor);
  const auto which = std::find(reads.begin(), reads.end(), read.id) - reads.begin();
  add({"stage", scope, {}, {which}, source, {copy}});
  // Loops that run further than the analysed ones, as a tile's do, may leave t[i / 18, i % 18] a copy by i
  // alone.
  const auto staged = plan.program.find_tensor(copy);
  const std::size_t rank = plan.program.tensor(*staged).dims.size();
  if (rank != read.copy.extents.size())
    fail<ScheduleError>("construct", "a copy of '{}' for '{}' has {} dimensions where {} were analysed",
                        source, scope, rank, read.copy.extents.size());
  return copy;
}

void Construction::prepack(const std::string& copy, program::TensorId source) {
  if (constant(source)) add({"prepack", copy, {}, {}, "", {}});
}

std::vector<std::string> Construction::leaves(const std::string& scope) {
  const std::size_t s = index(scope);
  plan.need_domain(s);
  const ScopePlan& current = plan.scopes[s];
  std::vector<std::string> names;
  for (const int loop : current.order) names.push_back(current.loops[static_cast<std::size_t>(loop)].name);
  return names;
}

std::int64_t Construction::extent(const std::string& scope, const std::string& loop) const {
  const std::size_t s = index(scope);
  return plan.scopes[s].loops[static_cast<std::size_t>(plan.leaf_named(s, loop))].extent;
}

void Construction::vectorize_innermost(const std::string& scope) {
  const std::size_t s = index(scope);
  plan.need_domain(s);
  const auto innermost = [&] {
    return plan.scopes[s].loops[static_cast<std::size_t>(plan.scopes[s].order.back())];
  };
  if (plan.scopes[s].order.empty()) return;
  const PlannedLoop loop = innermost();
  if (loop.extent == 1 || loop.kind != LoopKind::Serial) return;
  const ScopePlan before = plan.scopes[s];
  const std::uint32_t slots = plan.program.next_slot;
  const std::size_t length = schedule.trace.size();
  try {
    std::string lane = loop.name;
    if (loop.extent > lanes) {
      const auto [outer, inner] = split(scope, loop.name, lanes);
      lane = inner;
      add({"vectorize", scope, {lane}, {}, "", {}});
      peel_lanes(scope, outer, inner, loop.extent % lanes != 0);
    } else {
      add({"vectorize", scope, {lane}, {}, "", {}});
    }
  } catch (const ScheduleError&) {  // iterations that meet in one element stay a loop
    plan.scopes[s] = before;
    plan.program.next_slot = slots;
    schedule.trace.resize(length);
  }
}

void Construction::parallel_outermost(const std::string& scope, std::int64_t inside) {
  const std::size_t s = index(scope);
  plan.need_domain(s);
  const ScopePlan& current = plan.scopes[s];
  if (current.attach_scope >= 0) return;
  double work = 1;
  for (const int loop : current.order)
    work *= static_cast<double>(current.loops[static_cast<std::size_t>(loop)].extent);
  if (work + static_cast<double>(inside) < kParallelWork) return;
  for (const int index : current.order) {
    const PlannedLoop& loop = current.loops[static_cast<std::size_t>(index)];
    if (loop.extent == 1) continue;
    if (loop.reduction || loop.kind != LoopKind::Serial) return;
    const ScopePlan before = current;
    try {
      add({"parallel", scope, {loop.name}, {}, "", {}});
    } catch (const ScheduleError&) {
      plan.scopes[s] = before;
    }
    return;
  }
}

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

Sketches sketches_of(Construction& c, const std::string& scope, const ScopeFacts& facts) {
  Sketches sketches;
  if (!has_sketches(c, scope)) return sketches;
  along_output(c, scope, facts, sketches);
  along_channels(c, scope, facts, sketches);
  along_reduction(c, scope, facts, sketches);
  along_window(c, scope, facts, sketches);
  along_image(c, scope, facts, sketches);
  along_places(c, scope, facts, sketches);
  return sketches;
}

Sketches sketches_of(Construction& c, const std::string& scope) {
  return has_sketches(c, scope) ? sketches_of(c, scope, analyse(c.plan, c.index(scope))) : Sketches{};
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

Finished finished(const Construction& c) {
  Finished made{c.schedule, emit_call(c.plan), false};
  verify(made.nest);  // some rules speak only once all loops are known
  return made;
}

/// Beyond so many scopes a copy of the plan for each of them, and for each place it might be computed at,
/// would take longer than all else: plans are kept now and then, and scopes are computed whole.
constexpr std::size_t kManyScopes = 128, kKeptEvery = 64;

constexpr std::size_t kMostIntermediate = 3000;  // results in memory; the nest has one allocation in another

void require_few(const program::Program& program) {
  const std::size_t results = program.scopes.size() - std::min(program.scopes.size(), program.outputs.size());
  if (results > kMostIntermediate)
    fail<ScheduleError>("construct",
                        "{} intermediate results would lie in memory at once, more than {}: make several "
                        "programs of this one",
                        results, kMostIntermediate);
}

/// The way back to before a scope was written: from a plan that was kept, by the decisions since.
class WayBack {
 public:
  explicit WayBack(std::size_t every) : every_(every) {}

  void mark(const Construction& c) {
    marked_ = c.schedule.trace.size();
    if (marks_++ % every_ != 0) return;
    kept_ = c.plan;
    kept_at_ = marked_;
  }
  void go(Construction& c) const {
    c.schedule.trace.resize(marked_);
    c.plan = *kept_;
    for (std::size_t i = kept_at_; i < marked_; ++i) decide(c.plan, c.schedule.trace[i]);
  }

 private:
  std::size_t every_, marks_ = 0, marked_ = 0, kept_at_ = 0;
  std::optional<Plan> kept_;
};

/// Writes the first `count` of these scopes. Consumers first: their loops say how much of a producer is
/// needed.
void write_scopes(Construction& c, const std::vector<std::string>& names, std::size_t count,
                  const Chooser* chooser, bool in_pieces, const TiledFusions& fusions) {
  const bool many = names.size() > kManyScopes;
  in_pieces = in_pieces && !many;
  WayBack back(many ? kKeptEvery : 1);
  for (std::size_t i = count; i-- > 0;) {
    const std::string& name = names[i];
    const auto tiled = std::find_if(fusions.begin(), fusions.end(),
                                    [&](const TiledFusion& fusion) { return fusion.last == name; });
    if (tiled != fusions.end()) {
      write_tiles(c, *tiled);
      continue;
    }
    if (in_pieces)
      if (auto decision = placement(c, name)) c.add(std::move(*decision));
    if (chooser == nullptr || !has_sketches(c, name)) {
      write_pointwise(c, name);
      continue;
    }
    const ScopeFacts facts = analyse(c.plan, c.index(name));
    Sketches sketches = sketches_of(c, name, facts);
    back.mark(c);
    const auto write = [&](const Choosing& choice) {
      if (choice.sketch >= sketches.size())
        fail<ScheduleError>("construct", "'{}' has {} sketches; the policy chose number {}, counted from 0",
                            name, sketches.size(), choice.sketch);
      try {
        sketches[choice.sketch].write(c, choice.numbers);
        return true;
      } catch (const ScheduleError&) {  // a combination no row allows
        back.go(c);
        return false;
      }
    };
    const auto finish = [&](const Choosing& choice) -> std::optional<Finished> {
      if (choice.sketch >= sketches.size()) return std::nullopt;
      try {
        Construction rest = c;
        sketches[choice.sketch].write(rest, choice.numbers);
        const Chooser rest_counted = counted;
        write_scopes(rest, names, i, &rest_counted, in_pieces, fusions);
        return finished(rest);
      } catch (const ScheduleError&) {
        return std::nullopt;
      }
    };
    bool written = !sketches.empty() && write((*chooser)({c, name, facts, sketches, finish}));
    while (!written && !sketches.empty()) {
      const Choosing next = fewest_cycles(c, name, sketches);
      written = write(next);
      sketches.erase(sketches.begin() + static_cast<std::ptrdiff_t>(next.sketch));
    }
    if (!written) write_pointwise(c, name);
  }
}

}  // namespace

Construction prepared(const program::Program& concrete, Dtype dtype, const Target& target,
                      const std::vector<std::string>& constants, const Strides& strides, Phases phases,
                      bool* separable) {
  Construction c(concrete, dtype, target, constants, strides);
  inline_cheap_scopes(c);
  share_functions(c);
  solve_sums(c);
  tighten_sums(c);
  const bool phased = has_phases(c);
  if (separable != nullptr) *separable = phased;
  if (phased && phases == Phases::Apart) separate_phases(c);
  turn_places(c);
  fuse_epilogues(c);
  take_out_factors(c);
  require_few(c.plan.program);
  return c;
}

Finished construct_from(const Construction& prepared, const Chooser& chooser, const TiledFusions& fusions) {
  Construction c = prepared;
  stage_tiles(c, fusions);
  const Construction inlined = c;
  const std::vector<std::string> names = scope_names(c);
  const Chooser by_count = counted;
  const Chooser plain = [](const Question& question) {
    Sketches direct = question.sketches;
    for (auto& sketch : direct)
      if (!sketch.name.starts_with("along_output")) sketch.cycles *= 1e9;
    return fewest_cycles(question.construction, question.scope, direct);
  };
  struct Attempt {
    const Chooser* chooser;
    bool in_pieces;
  };
  for (const auto& [chosen, in_pieces] : {Attempt{&chooser, true}, Attempt{&chooser, false},
                                          Attempt{&by_count, false}, Attempt{&plain, false}}) {
    write_scopes(c, names, names.size(), chosen, in_pieces, fusions);
    try {
      return finished(c);
    } catch (const ScheduleError&) {
      c = inlined;
    }
  }
  write_scopes(c, names, names.size(), nullptr, false, fusions);
  return finished(c);
}

Finished construct_with(const program::Program& concrete, Dtype dtype, const Target& target,
                        const Chooser& chooser, const std::vector<std::string>& constants,
                        const Strides& strides, Phases phases, const TiledFusions& fusions) {
  bool separable = false;
  const Construction c = prepared(concrete, dtype, target, constants, strides, phases, &separable);
  Finished made = construct_from(c, chooser, fusions);
  made.separable = separable;
  return made;
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
