#include "synth/tree.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/error.hpp"
#include "synth/scout.hpp"
#include "synth/tree_impl.hpp"

namespace syno::synth {
namespace {

constexpr std::size_t kWalkPatience = 300;     ///< states that the walk from a new child may look at
constexpr std::size_t kAskPatience = 300'000;  ///< ... and those after one another that meet no operator
constexpr std::size_t kScouted = 32;           ///< operators of few steps to know before the search begins
/// Share of choices at a node that look at more than what known operators begin with.
constexpr double kElsewhere = 0.3;

/// UCB1-tuned (Auer, Cesa-Bianchi, Fischer 2002, §4).
double upper_bound(const Score& score, double total, int pending, const TreeOptions& options) {
  const double count = score.count + pending;
  if (count == 0) return std::numeric_limits<double>::infinity();
  const double log_total = std::log(std::max(total, 2.0));
  const double spread = std::min(0.25, score.variance() + std::sqrt(2 * log_total / count));
  return score.mean() + options.exploration * std::sqrt(log_total / count * spread) -
         options.pending_penalty * pending;
}

}  // namespace

Tree::Impl::Impl(Spec spec_in, std::uint64_t seed_in, TreeOptions options_in)
    : spec(std::move(spec_in)),
      seed(seed_in),
      options(options_in),
      engine(spec),
      walker(engine),
      novelty(true) {
  nodes.emplace_back();
  nodes.back().body->state = engine.root();
  held = kNodeBytes + kBodyBytes;
  for (const Found& found : scout(spec, spec.budgets.max_steps, kScouted))
    remember_beginnings(found.graph.graph);
}

void Tree::Impl::remember_beginnings(const pgraph::PGraph& graph) {
  const State whole = prefix(engine, graph, graph.steps().size());
  std::uint64_t key = 0;
  for (std::size_t t = 0; t < whole.step_count; ++t) {
    key = Walker::next_key(key, engine.arc_of(whole, t));
    beginnings.insert(key);
  }
}

std::size_t Tree::Impl::bytes_of(const Body& body) {
  std::size_t hidden = 0;
  for (const Branch& branch : body.branches) hidden += branch.hidden.size();
  return kBodyBytes + kChoiceBytes * hidden + kArcBytes * body.rave.size();
}

/// Lists what may follow a node. Orders come from the engine, so that they are the same in every run.
void Tree::Impl::expand(Body& node) {
  if (node.expanded) return;
  node.expanded = true;
  const std::size_t before = bytes_of(node);
  const int steps_left = spec.budgets.max_steps - node.state.step_count;
  if (engine.finished(node.state)) {
    std::uint32_t completions = 0;
    engine.completions(node.state,
                       [&](const State&, std::span<const std::uint8_t>, const Work&) { ++completions; });
    for (std::uint32_t c = 0; c < completions; ++c) node.branches[kStop].hidden.push_back({Move(), c, c, 0});
  }
  if (steps_left > 0) {
    std::vector<Move> moves;
    engine.moves(node.state, moves, steps_left);
    State next;
    for (const Move& move : moves) {
      if (engine.take(node.state, move, steps_left - 1, next) != kAccepted) continue;
      node.branches[static_cast<std::size_t>(move.primitive)].hidden.push_back(
          {move, 0, engine.arc_of(next, next.step_count - 1U), Walker::state_key(engine, next)});
    }
  }
  held += bytes_of(node) - before;
}

std::size_t Tree::Impl::shown(const Body& node, std::size_t type, bool narrow) const {
  const auto& children = node.branches[type].children;
  return static_cast<std::size_t>(std::count_if(children.begin(), children.end(), [&](std::uint32_t c) {
    return !nodes[c].dead() && (!narrow || promising(type, nodes[c].choice));
  }));
}

bool Tree::Impl::hides(const Body& node, std::size_t type, bool narrow) const {
  const auto& hidden = node.branches[type].hidden;
  return std::any_of(hidden.begin(), hidden.end(),
                     [&](const Choice& choice) { return !narrow || promising(type, choice); });
}

bool Tree::Impl::alive(const Body& node, std::size_t type, bool narrow) const {
  return hides(node, type, narrow) || shown(node, type, narrow) > 0;
}

void Tree::Impl::bury(std::uint32_t at) {
  for (;;) {
    drop_body(at);
    const std::uint32_t parent = nodes[at].parent;
    if (parent == kNone || nodes[parent].dead()) return;
    for (std::size_t type = 0; type < kTypes; ++type) {
      if (alive(*nodes[parent].body, type)) return;
    }
    at = parent;
  }
}

void Tree::Impl::drop_body(std::uint32_t node) {
  held -= bytes_of(*nodes[node].body);
  nodes[node].body.reset();
}

std::size_t Tree::Impl::choose_type(const Node& node, bool narrow, Random& random) const {
  std::size_t best = kTypes;
  double best_value = -1e300;
  std::uint64_t ties = 0;
  const Body& body = *node.body;
  const double total = node.score.count + node.pending;
  for (std::size_t type = 0; type < kTypes; ++type) {
    if (!alive(body, type, narrow)) continue;
    const double value = upper_bound(body.type_score[type], total, body.type_pending[type], options);
    if (value > best_value) {
      best_value = value;
      best = type;
      ties = 1;
    } else if (value == best_value && random.below(++ties) == 0) {
      best = type;
    }
  }
  return best;
}

double Tree::Impl::rave_value(const Body& node, std::uint64_t arc) const {
  // Optimistic while little is known: mean + deviation - 1/n.
  const auto value = [](const std::unordered_map<std::uint64_t, Score>& table,
                        std::uint64_t key) -> std::pair<double, double> {
    const auto found = table.find(key);
    if (found == table.end()) return {0.5, 0};
    const Score& score = found->second;
    return {score.mean() + std::sqrt(score.variance()) - 1 / score.count, score.count};
  };
  const auto [local, count] = value(node.rave, arc);
  const auto [global, unused] = value(rave, arc);
  const double beta = options.rave_equivalence / (options.rave_equivalence + count);
  return (1 - beta) * local + beta * global;
}

std::size_t Tree::Impl::choose_hidden(const Body& node, std::size_t type, bool narrow, Random& random) const {
  const auto& hidden = node.branches[type].hidden;
  const bool at_random = random.unit() < options.rave_random;
  std::size_t best = 0;
  double best_value = -1e300;
  std::uint64_t ties = 0;
  for (std::size_t h = 0; h < hidden.size(); ++h) {
    if (narrow && !promising(type, hidden[h])) continue;
    const double value = at_random ? 0 : rave_value(node, hidden[h].arc);
    if (value > best_value) {
      best_value = value;
      best = h;
      ties = 1;
    } else if (value == best_value && random.below(++ties) == 0) {
      best = h;
    }
  }
  return best;
}

std::uint32_t Tree::Impl::choose_child(const Body& node, std::size_t type, bool narrow) const {
  std::uint32_t best = kNone;
  double best_value = -1e300;
  const double total = node.type_score[type].count + node.type_pending[type];
  for (const std::uint32_t child : node.branches[type].children) {
    if (nodes[child].dead() || (narrow && !promising(type, nodes[child].choice))) continue;
    const double value = upper_bound(nodes[child].score, total, nodes[child].pending, options);
    if (best == kNone || value > best_value) {
      best_value = value;
      best = child;
    }
  }
  return best;
}

std::uint32_t Tree::Impl::add_node(std::uint32_t parent, std::size_t type, std::size_t hidden) {
  const auto id = static_cast<std::uint32_t>(nodes.size());
  Branch& branch = nodes[parent].body->branches[type];
  Node node;
  node.parent = parent;
  node.type = type;
  node.choice = branch.hidden[hidden];
  branch.hidden.erase(branch.hidden.begin() + static_cast<std::ptrdiff_t>(hidden));
  branch.children.push_back(id);
  const State& before = nodes[parent].body->state;
  if (type == kStop) {
    node.body->state = before;
  } else {
    engine.apply(before, node.choice.move, node.body->state);
  }
  nodes.push_back(std::move(node));
  held += kNodeBytes + kBodyBytes - kChoiceBytes;
  return id;
}

std::optional<Tree::Impl::Record> Tree::Impl::try_once(Random random) {
  std::uint32_t at = 0;
  for (;;) {
    // A node is expanded when it gets its first child.
    if (at != 0 && !nodes[at].body->expanded && full())
      return walk_from(at, nodes[at].body->state, std::nullopt, random);
    expand(*nodes[at].body);
    const Body& node = *nodes[at].body;
    bool narrow = random.unit() >= kElsewhere;
    std::size_t type = narrow ? choose_type(nodes[at], narrow, random) : kTypes;
    if (type == kTypes) {
      narrow = false;
      type = choose_type(nodes[at], narrow, random);
    }
    if (type == kTypes) {
      bury(at);
      return std::nullopt;
    }
    const std::size_t children = shown(node, type, narrow);
    const double visits = node.type_score[type].count + node.type_pending[type];
    const auto target =
        static_cast<std::size_t>(std::max(1.0, std::floor(std::pow(visits + 1, options.widening))));
    if (hides(node, type, narrow) && children < target) {
      const std::size_t hidden = choose_hidden(node, type, narrow, random);
      // A whole operator is a node in any case: it is handed out once.
      if (type != kStop && at != 0 && full()) {
        State next;
        engine.apply(node.state, node.branches[type].hidden[hidden].move, next);
        return walk_from(at, next, Hidden{type, hidden}, random);
      }
      at = add_node(at, type, hidden);
      break;
    }
    at = choose_child(node, type, narrow);
    if (nodes[at].type == kStop) {  // its one operator was handed out before
      bury(at);
      return std::nullopt;
    }
  }
  const State state = nodes[at].body->state;
  return nodes[at].type == kStop ? hand_out(at, state, nodes[at].choice.completion)
                                 : walk_from(at, state, std::nullopt, random);
}

std::optional<Tree::Impl::Record> Tree::Impl::hand_out(std::uint32_t at, const State& state,
                                                       std::uint32_t completion) {
  std::optional<pgraph::CompleteGraph> graph;
  std::uint32_t number = 0;
  engine.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work&) {
    if (number++ == completion) graph = engine.to_graph(s, position);
  });
  if (!graph || !novelty.is_new(*graph)) {
    bury(at);
    return std::nullopt;
  }
  Record record{0, std::move(*graph), at, {}, std::nullopt, false};
  for (std::size_t t = 0; t < state.step_count; ++t) record.arcs.push_back(engine.arc_of(state, t));
  return record;
}

std::optional<Tree::Impl::Record> Tree::Impl::walk_from(std::uint32_t at, const State& state,
                                                        std::optional<Hidden> child, const Random& random) {
  const WalkOptions walk{
      .min_steps = 0, .max_steps = spec.budgets.max_steps, .patience = kWalkPatience, .charge_known = true};
  const auto is_new = [&](const Found& found) { return novelty.is_new(found.graph); };
  const Outcome outcome = walker.walk(state, walk, random.fork("walk"), barren, is_new);
  looked += walker.looked();
  for (const Barren& fact : walker.learnt()) barren.add(fact);
  if (outcome == Outcome::Found) {
    Record record{0, walker.found().graph, at, {}, std::nullopt, false};
    for (std::size_t t = 0; t < walker.met().step_count; ++t)
      record.arcs.push_back(engine.arc_of(walker.met(), t));
    return record;
  }
  if (outcome == Outcome::Barren) {
    // That a child leads nowhere is kept in any case: a dead node takes little.
    bury(child ? add_node(at, child->type, child->place) : at);
  } else {
    ++nodes[at].fruitless;
    count_fruitless(at);
  }
  return std::nullopt;
}

void Tree::Impl::count_fruitless(std::uint32_t leaf, std::uint32_t times) {
  for (std::uint32_t at = leaf; at != kNone; at = nodes[at].parent) {
    const std::uint32_t parent = nodes[at].parent;
    nodes[at].score.count += times;
    if (parent != kNone && !nodes[parent].dead())
      nodes[parent].body->type_score[nodes[at].type].count += times;
  }
}

void Tree::Impl::count_pending(std::uint32_t leaf, int by) {
  for (std::uint32_t at = leaf; at != kNone; at = nodes[at].parent) {
    nodes[at].pending += by;
    const std::uint32_t parent = nodes[at].parent;
    if (parent != kNone && !nodes[parent].dead()) nodes[parent].body->type_pending[nodes[at].type] += by;
  }
}

void Tree::Impl::fold(Record& record) {
  record.folded = true;
  count_pending(record.leaf, -1);
  const double reward = *record.reward;
  for (const std::uint64_t arc : record.arcs) rave[arc].add(reward);
  for (std::uint32_t at = record.leaf; at != kNone; at = nodes[at].parent) {
    Node& node = nodes[at];
    node.score.add(reward);
    if (!node.dead()) {
      const std::size_t before = node.body->rave.size();
      for (const std::uint64_t arc : record.arcs) node.body->rave[arc].add(reward);
      held += kArcBytes * (node.body->rave.size() - before);
    }
    if (node.parent != kNone && !nodes[node.parent].dead())
      nodes[node.parent].body->type_score[node.type].add(reward);
  }
}

void Tree::Impl::fold_ready() {
  while (folded < records.size() && records[folded].reward) fold(records[folded++]);
}

Tree::Tree(Spec spec, std::uint64_t seed, TreeOptions options)
    : impl_(std::make_unique<Impl>(std::move(spec), seed, options)) {}
Tree::Tree(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tree::~Tree() = default;
Tree::Tree(Tree&&) noexcept = default;
Tree& Tree::operator=(Tree&&) noexcept = default;

std::vector<Tree::Ticket> Tree::ask(std::size_t count) {
  Impl& tree = *impl_;
  const Random stream = Random(tree.seed).fork("tree");
  std::vector<Ticket> tickets;
  tree.looked = 0;
  while (tickets.size() < count && tree.looked < kAskPatience && !tree.nodes[0].dead()) {
    auto record = tree.try_once(stream.fork(tree.attempts++));
    ++tree.looked;
    if (!record) continue;
    tree.looked = 0;
    record->number = tree.records.size();
    tree.remember_beginnings(record->graph.graph);
    tree.count_pending(record->leaf, 1);
    tickets.push_back({record->number, record->graph});
    tree.records.push_back(std::move(*record));
  }
  return tickets;
}

void Tree::tell(std::uint64_t ticket, double reward) {
  Impl& tree = *impl_;
  if (ticket >= tree.records.size()) {
    fail<SpecError>("tree", "ticket {} was never handed out; {} were", ticket, tree.records.size());
  }
  if (tree.records[ticket].reward) {
    fail<SpecError>("tree", "ticket {} was told before, with reward {}", ticket,
                    *tree.records[ticket].reward);
  }
  if (!(reward >= 0 && reward <= 1)) {
    fail<SpecError>("tree", "the reward of ticket {} is {}; give a number from 0 to 1", ticket, reward);
  }
  tree.records[ticket].reward = reward;
  tree.fold_ready();
}

std::vector<Tree::Ticket> Tree::pending() const {
  std::vector<Ticket> result;
  for (const auto& record : impl_->records) {
    if (!record.reward) result.push_back({record.number, record.graph});
  }
  return result;
}

std::vector<Tree::Result> Tree::results() const {
  std::vector<Result> result;
  for (const auto& record : impl_->records) {
    if (record.reward) result.push_back({{record.number, record.graph}, *record.reward});
  }
  return result;
}

std::size_t Tree::node_count() const { return impl_->nodes.size(); }
std::size_t Tree::bytes() const { return impl_->held; }

}  // namespace syno::synth
