// graph/merging.hpp — pairs of nodes merged one after the other, each in a time that depends on the two and
// on what stands between them, not on how large the graph is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/graph.hpp"
#include "graph/merged_node.hpp"

namespace syno::graph {

/// A graph on its way. Nodes are called by numbers: those of the graph by their places, merged ones from
/// there on; the two that are merged are gone. What comes of it is what merged() makes, pair by pair.
class Merging {
 public:
  using Number = std::size_t;
  /// A node, and another one that reads what it computes.
  using Pair = std::pair<Number, Number>;

  /// ScheduleError where a tensor has a layout: they are chosen for nodes that are merged already.
  explicit Merging(Graph graph);

  /// The first pair that was not refused: first those whose producer is to go first, then all; in the order
  /// of the readers, and for one reader in the order of what it reads.
  std::optional<Pair> next();
  void refuse(Pair pair) { refused_.insert(pair); }
  void goes_first(Number producer);

  /// The node that the two would be, in a graph of its own, which begins with the tensors that it reads; or
  /// why they cannot be one.
  std::variant<Graph, std::string> alone(Pair pair) const;
  /// Makes them one; its number.
  std::variant<Number, std::string> merge(Pair pair);
  /// Equal for pairs whose merged nodes are equal but for names, where both have equal programs: which of
  /// their tensors are the same, what these are to the graph, and who else reads them.
  std::vector<std::int64_t> wiring(Pair pair) const;

  const Graph& original() const { return graph_; }
  const Node& node(Number number) const;  ///< ShapeError where there is none of that number
  std::optional<Number> find_node(std::string_view name) const;
  Graph graph() const;  ///< with what was merged until now

 private:
  /// What is between two nodes, in the order of the graph, and needs what the first computes.
  struct Between {
    std::vector<Number> behind;
    std::string reason;  ///< why the second one needs some of them
  };
  std::optional<Pair> first_that_goes_first() const;
  void require_alive(Number number) const;
  Between between(Pair pair) const;
  MergedNode made_of(Pair pair) const;
  std::string name_for(Pair pair) const;

  Graph graph_;
  std::vector<Node> nodes_;                      ///< by number
  std::vector<std::size_t> positions_;           ///< by number; none: kGone
  std::vector<Number> order_;                    ///< each reads what is there before; kGone: a hole
  std::vector<std::optional<Number>> producer_;  ///< by tensor
  std::vector<std::set<Number>> readers_;        ///< by tensor
  std::vector<bool> returned_;                   ///< by tensor
  std::map<std::string, Number, std::less<>> names_;
  std::set<Pair> refused_;
  std::set<Number> first_,
      open_first_;        ///< producers that go first; those with pairs that may not be refused
  std::size_t open_ = 0;  ///< all pairs of readers before it are refused
};

}  // namespace syno::graph
