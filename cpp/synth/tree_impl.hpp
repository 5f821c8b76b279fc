// synth/tree_impl.hpp — the nodes and statistics behind Tree; tree.cpp searches, tree_json.cpp stores.
#pragma once

#include <algorithm>
#include <array>
#include <map>
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
  struct Node {
    std::uint32_t parent = kNone;
    std::size_t type = 0;
    Choice choice;
    State state;
    bool expanded = false;   ///< branches are filled
    bool dead = false;       ///< nothing new below
    bool fruitless = false;  ///< the walk from here gave up: counts as an operator of reward 0
    int pending = 0;
    Score score;
    std::array<Branch, kTypes> branches;
    std::array<Score, kTypes> type_score;
    std::array<int, kTypes> type_pending{};
    std::unordered_map<std::uint64_t, Score> rave;  ///< by arc, over operators met below this node
  };
  struct Record {
    std::uint64_t number = 0;
    pgraph::CompleteGraph graph;
    std::uint32_t leaf = 0;
    std::vector<std::uint64_t> arcs;
    std::optional<double> reward;  ///< as told
    bool folded = false;
  };

  Impl(Spec spec_in, std::uint64_t seed_in, TreeOptions options_in);

  void expand(Node& node);
  /// One descent: down the tree, one new child, one walk. Nothing when it met no new operator.
  std::optional<Record> try_once(Random random);
  std::uint32_t add_node(std::uint32_t parent, std::size_t type, std::size_t hidden);
  // `narrow`: only what is promising().
  std::size_t choose_type(const Node& node, bool narrow, Random& random) const;
  std::size_t choose_hidden(const Node& node, std::size_t type, bool narrow, Random& random) const;
  std::uint32_t choose_child(const Node& node, std::size_t type, bool narrow) const;
  std::size_t shown(const Node& node, std::size_t type, bool narrow) const;  ///< children that are not dead
  bool hides(const Node& node, std::size_t type, bool narrow) const;         ///< children not shown yet
  bool alive(const Node& node, std::size_t type, bool narrow = false) const;
  /// A known operator begins with the steps up to this choice.
  bool promising(std::size_t type, const Choice& choice) const {
    return type == kStop || beginnings.contains(choice.key);
  }
  void remember_beginnings(const pgraph::PGraph& graph);
  void bury(std::uint32_t node);
  double rave_value(const Node& node, std::uint64_t arc) const;
  void count_pending(std::uint32_t leaf, int by);
  void count_fruitless(std::uint32_t leaf);
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
  std::vector<Record> records;  ///< by ticket number
  std::size_t folded = 0;       ///< records folded so far: always a prefix
  std::uint64_t attempts = 0;   ///< draws so far; each has its own random stream
  std::size_t looked = 0;       ///< partial operators that walks looked at since the last operator
  std::unordered_map<std::uint64_t, Score> rave;
};

}  // namespace syno::synth
