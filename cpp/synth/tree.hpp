// synth/tree.hpp — Monte Carlo tree search over partial operators, asked and told in batches (Syno §7.2).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pgraph/pgraph.hpp"
#include "synth/spec.hpp"

namespace syno::synth {

struct TreeOptions {
  double exploration = 1.0;      ///< factor of the UCB term; rewards lie in [0, 1]
  double widening = 0.8;         ///< a node visited T times shows T^widening of its children
  double rave_random = 0.3;      ///< share of children shown at random instead of by RAVE
  double rave_equivalence = 3;   ///< visits at which a node's own RAVE counts as much as the tree's
  double pending_penalty = 0.3;  ///< taken from a child's score for each of its operators under evaluation
  bool operator==(const TreeOptions&) const = default;
};

/// Nodes have two levels: first the primitive, then the concrete step; UCB1-tuned chooses at both. Children
/// show one by one (progressive widening), best RAVE first: the mean reward of operators that contain the
/// step anywhere, below this node and in the whole tree. From a new child a random walk finds an operator.
///
/// Operators are handed out as numbered tickets; rewards fold in the order of tickets, however they arrive.
/// Nodes hold Budgets::max_tree_mb at most, by a count that is the same everywhere; what is known to hold
/// nothing new is given up at once. A full tree keeps every node and statistic and goes on without new ones:
/// from where it ends, walks find operators, and their rewards count there. Beside it each operator handed
/// out takes some kilobytes.
///
/// What ask() returns depends on the seed, on the numbers asked for and on the rewards folded, on nothing
/// else.
class Tree {
 public:
  Tree(Spec spec, std::uint64_t seed, TreeOptions options = {});
  ~Tree();
  Tree(Tree&&) noexcept;
  Tree& operator=(Tree&&) noexcept;

  struct Ticket {
    std::uint64_t number = 0;
    pgraph::CompleteGraph graph;
  };
  /// Up to `count` operators that were never handed out; fewer when the space is exhausted.
  std::vector<Ticket> ask(std::size_t count);
  /// The reward of a ticket, in [0, 1] (failed: 0). SpecError for a ticket that is not open or a reward
  /// outside.
  void tell(std::uint64_t ticket, double reward);
  std::vector<Ticket> pending() const;  ///< handed out, not yet told

  struct Result {
    Ticket ticket;
    double reward = 0;
  };
  std::vector<Result> results() const;  ///< told, in the order of tickets
  std::size_t node_count() const;
  std::size_t bytes() const;  ///< of the nodes, as the limit counts them

  /// Everything that ask() depends on; from_json() gives the same tree. FormatError for a damaged text or one
  /// of another version, SpecError for another spec's.
  std::string to_json() const;
  static Tree from_json(const Spec& spec, std::string_view json);

 private:
  struct Impl;
  explicit Tree(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace syno::synth
