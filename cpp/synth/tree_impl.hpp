// synth/tree_impl.hpp — the nodes and statistics behind Tree; tree.cpp searches, tree_json.cpp stores.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "synth/duplicates.hpp"
#include "synth/tree.hpp"
#include "synth/walk.hpp"

namespace syno::synth {

/// Count, sum and sum of squares of rewards.
struct Score {
  double count = 0;
  double sum = 0;
  double squares = 0;
  void add(double reward) {
    ++count;
    sum += reward;
    squares += reward * reward;
  }
  double mean() const { return count > 0 ? sum / count : 0; }
  double variance() const { return count > 0 ? std::max(0.0, squares / count - mean() * mean()) : 0; }
};

struct Tree::Impl {
  static constexpr std::size_t kStop =
      pgraph::kPrimitiveCount;  ///< the type of the choice "this is the operator"
  static constexpr std::size_t kTypes = kStop + 1;
  static constexpr std::uint32_t kNone = 0xffffffffU;

  struct Choice {
    Move move;                     ///< not for kStop
    std::uint32_t completion = 0;  ///< kStop: which assignment to the input
    std::uint64_t arc = 0;
    std::uint64_t key = 0;  ///< of the partial operator it leads to
  };
  struct Branch {  ///< one type of a node
    std::vector<std::uint32_t> children;
    std::vector<Choice> hidden;  ///< not shown yet, in the engine's order
  };
  /// What a node has as long as there may be something new below.
  struct Body {
    State state;
    bool expanded = false;  ///< branches are filled: it has children, or had
    std::array<Branch, kTypes> branches;
    std::array<Score, kTypes> type_score;
    std::array<int, kTypes> type_pending{};
    std::unordered_map<std::uint64_t, Score> rave;  ///< by arc, over operators met below this node
  };
  struct Node {
    std::uint32_t parent = kNone;
    std::size_t type = 0;
    Choice choice;
    std::uint32_t fruitless = 0;  ///< walks from here that gave up: each counts as an operator of reward 0
    int pending = 0;
    Score score;
    std::unique_ptr<Body> body = std::make_unique<Body>();  ///< none: dead
    bool dead() const { return body == nullptr; }
  };
  // Counted the same on every machine.
  static constexpr std::size_t kNodeBytes = 128;
  static constexpr std::size_t kBodyBytes = 2560;
  static constexpr std::size_t kChoiceBytes = 48;
  static constexpr std::size_t kArcBytes = 64;
  static std::size_t bytes_of(const Body& body);
  struct Record {
    std::uint64_t number = 0;
    pgraph::CompleteGraph graph;
    std::uint32_t leaf = 0;
    std::vector<std::uint64_t> arcs;
    std::optional<double> reward;  ///< as told
    bool folded = false;
  };

  Impl(Spec spec_in, std::uint64_t seed_in, TreeOptions options_in);

  void expand(Body& body);
  /// One descent: down the tree, one new child, one walk. Nothing when it met no new operator.
  std::optional<Record> try_once(Random random);
  std::uint32_t add_node(std::uint32_t parent, std::size_t type, std::size_t hidden);
  bool full() const { return static_cast<double>(held) >= 1e6 * spec.budgets.max_tree_mb; }
  /// A child of a node that is not shown yet.
  struct Hidden {
    std::size_t type = 0;
    std::size_t place = 0;
  };
  /// A walk to an operator: from a node, or from what one of its hidden children is.
  std::optional<Record> walk_from(std::uint32_t at, const State& state, std::optional<Hidden> child,
                                  const Random& random);
  std::optional<Record> hand_out(std::uint32_t at, const State& state, std::uint32_t completion);
  // `narrow`: only what is promising().
  std::size_t choose_type(const Node& node, bool narrow, Random& random) const;
  std::size_t choose_hidden(const Body& node, std::size_t type, bool narrow, Random& random) const;
  std::uint32_t choose_child(const Body& node, std::size_t type, bool narrow) const;
  std::size_t shown(const Body& node, std::size_t type, bool narrow) const;  ///< children that are not dead
  bool hides(const Body& node, std::size_t type, bool narrow) const;         ///< children not shown yet
  bool alive(const Body& node, std::size_t type, bool narrow = false) const;
  /// A known operator begins with the steps up to this choice.
  bool promising(std::size_t type, const Choice& choice) const {
    return type == kStop || beginnings.contains(choice.key);
  }
  void remember_beginnings(const pgraph::PGraph& graph);
  void bury(std::uint32_t node);
  void drop_body(std::uint32_t node);
  double rave_value(const Body& node, std::uint64_t arc) const;
  void count_pending(std::uint32_t leaf, int by);
  void count_fruitless(std::uint32_t leaf, std::uint32_t times = 1);
  void fold_ready();
  void fold(Record& record);

  Spec spec;
  std::uint64_t seed;
  TreeOptions options;
  Engine engine;
  Walker walker;
  BarrenTable barren;  ///< only saves time: what it holds is charged as if it were searched
  std::unordered_set<std::uint64_t> beginnings;  ///< of operators of few steps and of those handed out
  Novelty novelty;
  std::vector<Node> nodes;
  std::size_t held = 0;         ///< bytes of the nodes
  std::vector<Record> records;  ///< by ticket number
  std::size_t folded = 0;       ///< records folded so far: always a prefix
  std::uint64_t attempts = 0;   ///< draws so far; each has its own random stream
  std::size_t looked = 0;       ///< partial operators that walks looked at since the last operator
  std::unordered_map<std::uint64_t, Score> rave;
};

}  // namespace syno::synth
