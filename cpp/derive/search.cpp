#include "derive/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "derive/folded.hpp"
#include "derive/roughness.hpp"
#include "derive/tools.hpp"
#include "equality/keys.hpp"
#include "lower/compacted.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/thread_pool.hpp"

namespace syno::derive {

namespace {

using Clock = std::chrono::steady_clock;

// What one step may add to: programs beyond are no better for anyone who has to read or compile them.
constexpr std::size_t kMostScopes = 24;
constexpr int kWatchEvery = 32;  // applications, looked at together
// A program must be guessed to be so much faster for each step more that leads to it; else steps that change
// nothing, such as one iterator in two, would be tried behind one another for ever.
constexpr double kOfAStep = 0.03;
// And for each one that is guessed the same and that was looked at before: most of those differ by steps that
// change nothing.
constexpr double kOfTheSame = 0.1;
// And for each one with the same inexact steps: a transposed convolution that is multiplied by its values as
// it is must not keep those waiting that have its phases apart first, and are twice as fast in the end.
constexpr double kOfItsKind = 0.02;
constexpr int kTurns = 4;  // in one of so many the program that the least effort leads to is next
// An exact step after which a program is guessed to take so much of the time is no effort: there is no reason
// not to take it.
constexpr double kPays = 0.8;
// Of programs no rougher than each power of two, so many at least are given back.
constexpr int kOfAnAccuracy = 4;
// Errors over roughness differ by about so much from one computation to the next: programs that are smoother
// than the limit by that are accurate for certain, and every other of the most promising is one of them.
constexpr double kCertain = 6;

/// Seconds that can be hoped for, by any steps and by those to programs that are accurate for certain.
struct Hoped {
  double all = 0, certain = 0;
};

/// A program by how it came to be; the program itself is made again when its turn comes.
struct Node {
  std::size_t parent = 0;
  const Rewrite* row = nullptr;
  Site site;
  int depth = 0;
  int effort = 0;  ///< steps to it that do not pay by themselves
  bool exact = true;
  double roughness = 1;
  Hash128 made;  ///< the sum of its steps' hashes: the same for the same steps, in whatever order
  Hash128 kind;  ///< of those that are inexact
  Estimate estimate;
  Hoped hoped;
  Hash128 key;
  std::shared_ptr<const Program> from;  ///< the parent's, until this one is made
};

/// What one step makes of a program, and what is guessed of it.
struct Child {
  const Rewrite* row = nullptr;
  Site site;
  bool costly = false;
  Hash128 key;
  double roughness = 1;
  Estimate estimate;
  Hoped hoped;
};

/// Of the row and the numbers of a step, not of its place.
Hash128 hash_of(const Rewrite& row, const Site& site) {
  Hasher out;
  out.add(row.name);
  for (const std::int64_t number : site.numbers) out.add(number);
  return out.finish();
}

Hash128 sum(Hash128 a, Hash128 b) { return {a.high + b.high, a.low + b.low}; }

class Search {
 public:
  Search(const Program& program, const SearchOptions& options, const Watch& watch)
      : options_(options),
        watch_(watch),
        began_(Clock::now()),
        threads_(static_cast<std::size_t>(std::max(options.threads, 1))) {
    program::verify(program);
    if (!program.concrete())
      fail<VerifyError>(kWhere, "a program of several sizes is derived at one valuation: at() gives it");
    for (const std::string& name : options.rows) rewrite_named(name);
    for (const Rewrite& row : rewrites()) {
      const bool named = options.rows.empty() ||
                         std::find(options.rows.begin(), options.rows.end(), row.name) != options.rows.end();
      if (named && (row.exact || options.reassociating)) (row.finishes ? last_ : rows_).push_back(&row);
    }
    given_ = tidy(program);
    constants_before_ = constant_bytes(given_, options.constants).before;
  }

  Found run() {
    Node first;
    const std::set<TensorId> before = once(given_);
    first.estimate = estimate(given_, options_.rates, before);
    first.hoped = hoped(given_, before, first.estimate.seconds, 1);
    first.key = equality::structural_key(given_);
    first.from = std::make_shared<const Program>(given_);
    depths_[first.key] = 0;
    found_.states = 1;
    best_ = first.estimate.seconds;
    nodes_.push_back(std::move(first));
    queue(0);
    while (!done()) {
      const std::size_t next = pop();
      if (next == kNone) break;
      expand(next);
    }
    return finished();
  }

 private:
  using Ranked = std::pair<double, std::size_t>;  // by cost, then by age
  using Queue = std::priority_queue<Ranked, std::vector<Ranked>, std::greater<>>;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  /// Inputs stay as they are even where a step made one superfluous.
  static Program tidy(const Program& program) {
    const auto inputs = program.inputs();
    return lower::compacted(program, {inputs.begin(), inputs.end()});
  }

  std::set<TensorId> once(const Program& program) const { return before_calls(program, options_.constants); }

  /// Seconds of a call if every scope had the fewest points that steps from here leave, each iterator taken
  /// once. A transposed convolution whose iterators are just cut into phases costs no less than before, but
  /// its phases are windows now. By steps that lead to no rougher programs than are looked at, and than are
  /// accurate for certain.
  Hoped hoped(const Program& program, const std::set<TensorId>& once, double seconds,
              double roughness) const {
    struct Leaving {
      double part = 1, growth = 1;
      const Site* site = nullptr;
    };
    std::vector<double> left(program.scopes.size(), 1), certain = left;
    bool any = false;
    for (const Rewrite* row : rows_)
      for (std::size_t s = 0; row->leaves && s < program.scopes.size(); ++s) {
        const std::vector<Site> found = row->find(program, s);
        std::vector<Leaving> best;
        for (const Site& site : found)
          best.push_back({row->leaves(program, s, site), row->roughens ? row->roughens(site) : 1, &site});
        std::stable_sort(best.begin(), best.end(),
                         [](const Leaving& a, const Leaving& b) { return a.part < b.part; });
        const auto take = [&](double& of_scope, double most) {
          std::set<std::string_view> taken;
          for (const auto& [part, growth, site] : best) {
            if (most > 0 && roughness * growth > most) continue;
            if (taken.contains(site->iterator) || taken.contains(site->other)) continue;
            taken.insert({site->iterator, site->other});
            of_scope *= part;
            any = true;
          }
        };
        take(left[s], options_.roughness);
        take(certain[s], options_.roughness / kCertain);
      }
    if (!any) return {seconds, seconds};
    const auto with = [&](const std::vector<double>& parts) {
      return std::sqrt(seconds * estimate(program, options_.rates, once, parts).seconds);
    };
    const double all = with(left);
    return {all, certain == left ? all : with(certain)};
  }

  void queue(std::size_t node) {
    const int depth = nodes_[node].depth;
    const double cost = nodes_[node].estimate.seconds;
    promising_.emplace(ranked(node, cost), node);
    if (kCertain * nodes_[node].roughness <= options_.roughness)
      accurate_.emplace(ranked(node, nodes_[node].hoped.certain), node);
    hopeful_.emplace(ranked(node, nodes_[node].hoped.all), node);
    const auto effort = static_cast<std::size_t>(nodes_[node].effort);
    if (near_.size() <= effort) near_.resize(effort + 1);
    near_[effort].emplace(cost, node);
    found_.deepest = std::max(found_.deepest, depth);
  }

  double ranked(std::size_t node, double seconds) const {
    const auto same = looked_at_.find(guess_of(node));
    const int before = same == looked_at_.end() ? 0 : same->second;
    const auto kind = kinds_.find(nodes_[node].kind);
    const int alike = kind == kinds_.end() ? 0 : kind->second;
    return seconds * (1 + kOfAStep * nodes_[node].depth + kOfTheSame * before + kOfItsKind * alike);
  }

  /// What is guessed of a program, up to how sums are rounded.
  std::pair<std::int64_t, std::int64_t> guess_of(std::size_t node) const {
    constexpr double kSteps = 1e6, kLeast = 1e-30;  // a program without scopes costs nothing
    return {std::llround(kSteps * std::log(std::max(nodes_[node].estimate.seconds, kLeast))),
            std::llround(kSteps * std::log(std::max(nodes_[node].hoped.all, kLeast)))};
  }

  /// In turns the most promising program, the one from which most can be hoped for, and the best one of those
  /// that the least effort leads to, so that a step that pays only with the next one is not left behind.
  std::size_t pop() {
    turn_ = (turn_ + 1) % kTurns;
    if (turn_ == 0)
      if (const auto node = popped(accurate_, [](const Node& n) { return n.hoped.certain; }); node != kNone)
        return node;
    if (turn_ % 2 == 0) return popped(promising_, [](const Node& node) { return node.estimate.seconds; });
    if (turn_ + 1 < kTurns) return popped(hopeful_, [](const Node& node) { return node.hoped.all; });
    for (Queue& queue : near_)
      if (const std::size_t node = popped(queue, {}); node != kNone) return node;
    return kNone;
  }

  /// `seconds`: what a queue is ordered by, which grows as the same is looked at again; none: it stays.
  std::size_t popped(Queue& queue, const std::function<double(const Node&)>& seconds) {
    while (!queue.empty()) {
      const auto [rank, node] = queue.top();
      queue.pop();
      if (!nodes_[node].from) continue;  // another queue had it before
      const double now = seconds ? ranked(node, seconds(nodes_[node])) : rank;
      if (now > rank) {
        queue.emplace(now, node);
        continue;
      }
      if (seconds) ++looked_at_[guess_of(node)];
      if (seconds) ++kinds_[nodes_[node].kind];
      return node;
    }
    return kNone;
  }

  bool done() {
    if (options_.states > 0 && found_.states >= options_.states) found_.ended = Ended::States;
    if (found_.ended != Ended::Exhausted) return true;
    if (++since_ < kWatchEvery) return false;
    since_ = 0;
    const double seconds = elapsed();
    if (options_.seconds > 0 && seconds >= options_.seconds) found_.ended = Ended::Seconds;
    if (watch_ && !watch_({found_.states, seconds, best_})) found_.ended = Ended::Stopped;
    return found_.ended != Ended::Exhausted;
  }

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  std::shared_ptr<const Program> made(Node& node) {
    std::shared_ptr<const Program> from = std::move(node.from);
    node.from.reset();
    if (!node.row) return from;
    Program program = *from;
    derive::apply(*node.row, program, node.site);
    return std::make_shared<const Program>(tidy(program));
  }

  void expand(std::size_t at) {
    const int depth = nodes_[at].depth;
    if (options_.depth > 0 && depth >= options_.depth) return;
    const std::shared_ptr<const Program> program = made(nodes_[at]);
    children_.clear();
    for (const Rewrite* row : rows_)
      for (Site& site : sites(*row, *program)) {
        children_.emplace_back();
        children_.back().row = row;
        children_.back().site = std::move(site);
      }
    for (std::size_t begin = 0; begin < children_.size(); begin += kWatchEvery) {
      if (done()) return;
      const std::size_t count = std::min(children_.size() - begin, std::size_t{kWatchEvery});
      threads_.for_each(count, [&](std::size_t i) { look_at(at, *program, children_[begin + i]); });
      for (std::size_t i = 0; i < count; ++i) {
        if (i > 0 && done()) return;
        add(at, program, children_[begin + i]);
      }
    }
  }

  /// Several at a time: nothing here changes.
  void look_at(std::size_t parent, const Program& from, Child& child) const {
    Program program = from;
    derive::apply(*child.row, program, child.site);
    program = tidy(program);
    child.key = equality::structural_key(program);
    if (seen_before(child.key, nodes_[parent].depth + 1)) return;
    const std::set<TensorId> before = once(program);
    child.estimate = estimate(program, options_.rates, before);
    child.costly = program.scopes.size() > kMostScopes || too_large(program) ||
                   child.estimate.seconds > options_.cost_growth * nodes_.front().estimate.seconds;
    if (child.costly) return;
    child.roughness = child.row->exact ? nodes_[parent].roughness : roughness(program);
    if (!too_rough(child)) child.hoped = hoped(program, before, child.estimate.seconds, child.roughness);
  }

  /// Where more can be reached than from where it was seen: with a limit on steps, from nearer.
  bool seen_before(Hash128 key, int depth) const {
    const auto seen = depths_.find(key);
    return seen != depths_.end() && (options_.depth == 0 || seen->second <= depth);
  }

  bool too_rough(const Child& child) const {
    return options_.roughness > 0 && child.roughness > options_.roughness;
  }

  void add(std::size_t parent, const std::shared_ptr<const Program>& from, Child& child) {
    ++found_.applications;
    const int depth = nodes_[parent].depth + 1;
    if (seen_before(child.key, depth)) {
      ++found_.repeats;
      return;
    }
    const auto [seen, added] = depths_.try_emplace(child.key, depth);
    seen->second = depth;
    if (added) ++found_.states;
    if (child.costly || too_rough(child)) {
      ++(child.costly ? found_.costly : found_.rough);
      return;
    }
    const Rewrite& row = *child.row;
    Node node;
    node.depth = depth;
    node.key = child.key;
    node.estimate = child.estimate;
    node.roughness = child.roughness;
    node.hoped = child.hoped;
    node.parent = parent;
    node.row = &row;
    node.site = std::move(child.site);
    node.exact = nodes_[parent].exact && row.exact;
    const bool pays = row.exact && node.estimate.seconds < kPays * nodes_[parent].estimate.seconds;
    node.effort = nodes_[parent].effort + (pays ? 0 : 1);
    const Hash128 step = hash_of(row, node.site);
    node.made = sum(nodes_[parent].made, step);
    node.kind = row.exact ? nodes_[parent].kind : sum(nodes_[parent].kind, step);
    node.from = from;
    best_ = std::min(best_, node.estimate.seconds);
    nodes_.push_back(std::move(node));
    queue(nodes_.size() - 1);
    keep(nodes_.size() - 1);
  }

  bool too_large(const Program& program) const {
    if (options_.constants.empty() || constants_before_ == 0) return false;
    const auto after = constant_bytes(program, options_.constants).after;
    return static_cast<double>(after) > options_.growth * static_cast<double>(constants_before_);
  }

  /// How many of `chosen`, the given program left out, are about as accurate as that one or more so.
  long accurate_ones(const std::vector<std::size_t>& chosen, std::size_t node) const {
    const auto level = [&](std::size_t n) { return std::floor(std::log2(nodes_[n].roughness)); };
    return std::count_if(chosen.begin() + 1, chosen.end(),
                         [&](std::size_t other) { return level(other) <= level(node); });
  }

  /// Whether further steps than those to one of `chosen` gain nothing.
  bool in_vain(std::size_t node, const std::vector<std::size_t>& chosen) const {
    const std::vector<std::string> made = made_by(node);
    return std::any_of(chosen.begin(), chosen.end(), [&](std::size_t other) {
      const std::vector<std::string> less = made_by(other);
      const Estimate &a = nodes_[other].estimate, &b = nodes_[node].estimate;
      return a.seconds <= b.seconds * (1 + 1e-9) && a.multiply_adds <= b.multiply_adds &&
             std::includes(made.begin(), made.end(), less.begin(), less.end());
    });
  }

  /// The rows and numbers of the steps to a program, in alphabetical order.
  std::vector<std::string> made_by(std::size_t node) const {
    std::vector<std::string> made;
    for (std::size_t n = node; nodes_[n].row; n = nodes_[n].parent) {
      std::string step(nodes_[n].row->name);
      for (const std::int64_t number : nodes_[n].site.numbers) step += ' ' + std::to_string(number);
      made.push_back(std::move(step));
    }
    std::sort(made.begin(), made.end());
    return made;
  }

  /// Of programs made alike the best one.
  void keep(std::size_t node) {
    const auto [best, added] = kept_.try_emplace(nodes_[node].made, node);
    if (!added && nodes_[node].estimate.seconds < nodes_[best->second].estimate.seconds) best->second = node;
  }

  Found finished() {
    std::vector<Ranked> ranked;
    for (const auto& [made, node] : kept_) ranked.emplace_back(nodes_[node].estimate.seconds, node);
    std::sort(ranked.begin(), ranked.end());
    found_.derivations.push_back(derivation(0));
    std::set<Hash128> given = {nodes_.front().key};
    finish(given);  // results may lie better without any other step
    std::vector<std::size_t> chosen = {0};
    const auto keep = static_cast<std::size_t>(std::max(options_.keep, 0));
    for (const auto& [seconds, node] : ranked) {
      if (keep == 0 || (chosen.size() > keep && accurate_ones(chosen, node) >= kOfAnAccuracy)) continue;
      if (!given.insert(nodes_[node].key).second || in_vain(node, chosen)) continue;
      chosen.push_back(node);
      found_.derivations.push_back(derivation(node));
      finish(given);
    }
    found_.seconds = elapsed();
    return std::move(found_);
  }

  /// Beside the derivation found last, the same with its results lying otherwise.
  void finish(std::set<Hash128>& given) {
    const Derivation found = found_.derivations.back();
    for (const Rewrite* row : last_)
      for (const Site& site : sites(*row, found.program)) {
        Derivation made = found;
        derive::apply(*row, made.program, site);
        made.program = tidy(made.program);
        made.key = equality::structural_key(made.program);
        made.steps.push_back({std::string(row->name), site});
        made.exact = found.exact && row->exact;
        if (given.insert(made.key).second) found_.derivations.push_back(std::move(made));
      }
  }

  Derivation derivation(std::size_t at) const {
    Derivation result;
    for (std::size_t n = at; nodes_[n].row; n = nodes_[n].parent)
      result.steps.push_back({std::string(nodes_[n].row->name), nodes_[n].site});
    std::reverse(result.steps.begin(), result.steps.end());
    result.program = given_;
    for (const Step& step : result.steps) {
      derive::apply(rewrite_named(step.row), result.program, step.site);
      result.program = tidy(result.program);
    }
    result.estimate = nodes_[at].estimate;
    result.exact = nodes_[at].exact;
    result.roughness = nodes_[at].roughness;
    result.key = nodes_[at].key;
    return result;
  }

  const SearchOptions& options_;
  const Watch& watch_;
  Clock::time_point began_;
  Program given_;
  std::int64_t constants_before_ = 0;
  std::vector<const Rewrite*> rows_, last_;
  std::vector<Node> nodes_;
  std::vector<Child> children_;  // of the node that is expanded
  ThreadPool threads_;
  Queue promising_, accurate_, hopeful_;
  std::vector<Queue> near_;  // by depth
  int turn_ = -1;
  std::map<std::pair<std::int64_t, std::int64_t>, int> looked_at_;  // by what is guessed
  std::map<Hash128, int> kinds_;
  std::map<Hash128, int> depths_;        // the least, of programs seen
  std::map<Hash128, std::size_t> kept_;  // by what made them
  Found found_;
  double best_ = 0;
  int since_ = kWatchEvery;
};

}  // namespace

std::string_view name_of(Ended ended) {
  switch (ended) {
    case Ended::Exhausted:
      return "exhausted";
    case Ended::Seconds:
      return "seconds";
    case Ended::States:
      return "states";
    case Ended::Stopped:
      return "stopped";
  }
  return "";
}

Found search(const Program& program, const SearchOptions& options, const Watch& watch) {
  std::optional<Unheard> unheard;  // who watches hears Ctrl-C, and what was found is kept
  if (watch) unheard.emplace();
  return Search(program, options, watch).run();
}

}  // namespace syno::derive
