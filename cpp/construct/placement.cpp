// Where a scope is computed: whole, before its consumers, or piece by piece inside a loop of theirs, so that
// what it writes is read while it is in the nearest cache. What softmax, normalisation and attention are made
// of.
#include <algorithm>
#include <limits>

#include "construct/construct.hpp"
#include "construct/tiled_fusion.hpp"
#include "support/error.hpp"

namespace syno::construct {

namespace {

constexpr double kRepeated = 1.02;      ///< work done in pieces over work done once that is no loss
constexpr double kRepeatedCopy = 1.08;  ///< the same for a copy, whose pieces stay in a nearer cache
constexpr double kSlower = 1.05;        ///< cycles by count
constexpr double kFewResults = 8;       ///< of reductions that are worth computing side by side
constexpr std::int64_t kRun = 8;  ///< elements that lie together, which a piece of a copy does not cut up

/// A scope some consumers are computed in, and the innermost of its loops that is around all of them.
struct Host {
  std::size_t scope = 0;
  int innermost = 0;  ///< position
};

/// The scopes around `scope`, itself first.
std::vector<Host> around(const Plan& plan, std::size_t scope) {
  std::vector<Host> path{{scope, static_cast<int>(plan.scopes[scope].order.size()) - 1}};
  for (std::size_t at = scope; plan.scopes[at].attach_scope >= 0;) {
    const auto outer = static_cast<std::size_t>(plan.scopes[at].attach_scope);
    path.push_back({outer, plan.position(outer, plan.scopes[at].attach_loop)});
    at = outer;
  }
  return path;
}

/// The scopes all consumers are computed in, the nearest first.
std::vector<Host> common_hosts(const Plan& plan, const std::vector<std::size_t>& consumers) {
  std::vector<Host> hosts = around(plan, consumers[0]);
  for (std::size_t i = 1; i < consumers.size(); ++i) {
    const std::vector<Host> others = around(plan, consumers[i]);
    std::vector<Host> both;
    for (Host host : hosts)
      for (const Host& other : others)
        if (other.scope == host.scope) {
          host.innermost = std::min(host.innermost, other.innermost);
          both.push_back(host);
        }
    hosts = std::move(both);
  }
  return hosts;
}

/// How often the body of a loop runs, the loops around its scope included.
double times(const Plan& plan, std::size_t scope, int position) {
  double product = 1;
  for (const Host& host : around(plan, scope)) {
    const int last = host.scope == scope ? position : host.innermost;
    for (int p = 0; p <= last; ++p) {
      const auto loop = static_cast<std::size_t>(plan.scopes[host.scope].order[static_cast<std::size_t>(p)]);
      product *= static_cast<double>(plan.scopes[host.scope].loops[loop].extent);
    }
  }
  return product;
}

/// A scope as it would be computed somewhere: what is tried leaves the plan as it was.
class Trial {
 public:
  Trial(Construction& c, const std::string& name)
      : c_(c), name_(name), scope_(c.index(name)), attempt_(c.plan) {}

  void whole() {
    attempt_.undo();
    c_.plan.need_domain(scope_);
  }

  /// Says whether it can be computed there.
  bool at(const Decision& compute_at) {
    attempt_.undo();
    return !try_decide(c_.plan, compute_at) && !c_.plan.try_domain(scope_);
  }

  double points() const {
    double points = 1;
    for (const int loop : c_.plan.scopes[scope_].order)
      points *= static_cast<double>(c_.plan.scopes[scope_].loops[static_cast<std::size_t>(loop)].extent);
    return points;
  }

  Work work() {
    if (!c_.known) return counted();
    const Hash128 piece = piece_of(c_.plan, scope_);
    if (const auto known = c_.known->work(piece)) return *known;
    const Work work = counted();
    c_.known->put(piece, work);
    return work;
  }

 private:
  Work counted() {
    schedule::Attempt counting(c_.plan);
    const Facts shared = facts_of(c_, name_);
    const ScopeFacts& facts = *shared;
    Work work;
    for (std::size_t i = 0; i < facts.traversal; ++i) work.results *= static_cast<double>(facts.extents[i]);
    for (std::size_t i = 0; !facts.reads.empty() && i < facts.extents.size(); ++i)
      if (facts.reads[0].address[i] == 1) work.run = std::max(work.run, facts.extents[i]);
    const Sketches sketches = sketches_of(c_, name_, shared);
    if (!sketches.empty()) {
      work.cycles = std::numeric_limits<double>::infinity();
      for (const Sketch& sketch : sketches) work.cycles = std::min(work.cycles, sketch.cycles);
    }
    return work;
  }

  Construction& c_;
  const std::string& name_;
  std::size_t scope_;
  schedule::Attempt attempt_;
};

std::optional<Decision> placement_within(Construction& c, const std::string& name, double repeated) {
  const std::size_t s = c.index(name);
  const auto tensor = c.plan.program.scopes[s].output;
  if (c.plan.scopes[s].has_domain || c.plan.scopes[s].attach_scope >= 0 || c.plan.makes_all(s))
    return std::nullopt;
  const auto consumers = c.plan.consumers(tensor);
  if (consumers.empty()) return std::nullopt;
  for (const std::size_t consumer : consumers)
    if (!c.plan.scopes[consumer].has_domain) return std::nullopt;
  std::optional<Work> whole;
  std::optional<Decision> one;  // a place for one result of a reduction at a time
  Trial trial(c, name);
  trial.whole();
  const double points = trial.points();
  for (const Host& host : common_hosts(c.plan, consumers)) {
    const ScopePlan& plan = c.plan.scopes[host.scope];
    const std::string& host_name = c.plan.program.tensor(c.plan.program.scopes[host.scope].output).name;
    const int core = static_cast<int>(c.plan.core(host.scope));
    for (int k = std::min(host.innermost, core - 1); k >= 0; --k) {
      const int index = plan.order[static_cast<std::size_t>(k)];
      const PlannedLoop& loop = plan.loops[static_cast<std::size_t>(index)];
      const bool tiled = std::find(plan.tile.begin(), plan.tile.end(), index) != plan.tile.end();
      if (tiled || loop.kind == LoopKind::Vector || loop.kind == LoopKind::Unroll || !loop.cuts.empty())
        continue;
      const double pieces = times(c.plan, host.scope, k);
      if (pieces < 2) continue;
      const Decision decision{"compute_at", name, {loop.name}, {}, host_name, {}};
      if (!trial.at(decision) || trial.points() * pieces > repeated * points) continue;
      const Work piece = trial.work();
      if (!whole) {
        trial.whole();
        whole = trial.work();
      }
      if (piece.cycles * pieces > kSlower * whole->cycles) continue;
      if (c.plan.scopes[s].total && piece.run < std::min(whole->run, kRun)) continue;
      const bool reduces = !c.plan.program.scopes[s].sums.empty();
      if (reduces && piece.results == 1 && !one) {
        one = decision;
        continue;
      }
      return one && piece.results > kFewResults ? one : decision;
    }
  }
  return one;
}

}  // namespace

std::optional<Decision> placement(Construction& c, const std::string& name) {
  auto decision = placement_within(c, name, kRepeated);
  if (decision && in_tiles(c, *decision)) return decision;
  if (auto inside = placement_in_tiles(c, name)) return inside;
  return decision;
}

Refused place_beside(Construction& c, const std::string& copy, const std::string& scope) {
  const std::size_t s = c.index(scope);
  const ScopePlan& plan = c.plan.scopes[s];
  const bool parts =
      std::any_of(plan.order.begin(), plan.order.begin() + static_cast<std::ptrdiff_t>(c.plan.core(s)),
                  [&](int loop) { return plan.loops[static_cast<std::size_t>(loop)].reduction; });
  if (plan.attach_scope < 0 && !parts) return {};
  auto decision = placement_within(c, copy, kRepeatedCopy);
  if (!decision || !in_tiles(c, *decision))
    if (auto inside = placement_in_tiles(c, copy)) decision = std::move(inside);
  return decision ? c.add(std::move(*decision)) : Refused{};
}

}  // namespace syno::construct
