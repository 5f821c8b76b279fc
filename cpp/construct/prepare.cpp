// What is done to a program before its loops are decided: what is cheap inlined, terms that are zero left
// out, sums solved, results turned, dimensions moved, epilogues fused, factors taken out.
#include <algorithm>
#include <array>

#include "construct/construct.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"

namespace syno::construct {

namespace {

using program::Function;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;

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
      raise_if(c.add(schedule::decision_for("share", *site)));
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
      raise_if(c.add({"epilogue", name(c.plan.program.scopes[s].output), {}, {}, name(tensor), {}}));
      --s;  // the reduction that went into it was a scope before it
      break;
    }
}

/// What all terms of a sum are multiplied by is multiplied with its result.
void take_out_factors(Construction& c) {
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s)
    for (const derive::Site& site : sites_of(c.plan, "factor", s))
      raise_if(c.add(schedule::decision_for("factor", site)));
}

/// Sums run over what a remainder lets in, where one says so.
void solve_sums(Construction& c) {
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s)
    for (auto sums = sites_of(c.plan, "solve", s); !sums.empty(); sums = sites_of(c.plan, "solve", s))
      raise_if(c.add(schedule::decision_for("solve", sums.front())));
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
    while (const auto site = of_sum(s)) raise_if(c.add(schedule::decision_for("tighten", *site)));
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
      raise_if(c.add(schedule::decision_for("polyphase", site)));
  inline_cheap_scopes(c);  // what put results in their places, into who reads them
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
    raise_if(c.add(schedule::decision_for("turn", loops.front())));
  }
}

/// The outputs that are made of results with another dimension innermost than would suit their readers.
std::vector<derive::Site> movable(const Construction& c) {
  std::vector<derive::Site> found;
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s)
    for (derive::Site& site : sites_of(c.plan, "innermost", s)) found.push_back(std::move(site));
  return found;
}

/// Lays what outputs are made of out as readers move along it; which dimension that is holds for all sizes.
void move_innermost(Construction& c) {
  for (derive::Site site : movable(c)) {
    const std::size_t at = c.index(site.scope);
    if (sites_of(c.plan, "innermost", at).empty()) continue;  // moved with another output
    site.numbers = derive::innermost_dims(c.plan.program, at);
    raise_if(c.add(schedule::decision_for("innermost", site)));
  }
}

constexpr std::size_t kMostIntermediate = 3000;  // results in memory; the nest has one allocation in another

void require_few(const program::Program& program) {
  const std::size_t results = program.scopes.size() - std::min(program.scopes.size(), program.outputs.size());
  if (results > kMostIntermediate)
    fail<ScheduleError>("construct",
                        "{} intermediate results would lie in memory at once, more than {}: make several "
                        "programs of this one",
                        results, kMostIntermediate);
}

}  // namespace

Construction prepared(const program::Program& concrete, Dtype dtype, const Target& target,
                      const std::vector<std::string>& constants, const Strides& strides, Phases phases,
                      Innermost innermost) {
  Construction c(concrete, dtype, target, constants, strides);
  inline_cheap_scopes(c);
  share_functions(c);
  solve_sums(c);
  tighten_sums(c);
  c.separable = has_phases(c);
  if (c.separable && phases == Phases::Apart) separate_phases(c);
  turn_places(c);
  c.movable = !movable(c).empty();
  if (c.movable && innermost == Innermost::Moved) move_innermost(c);
  fuse_epilogues(c);
  take_out_factors(c);
  require_few(c.plan.program);
  return c;
}

}  // namespace syno::construct
