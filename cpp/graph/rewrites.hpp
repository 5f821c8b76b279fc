// graph/rewrites.hpp — rewrites of graphs that keep what they compute: each a row that says where it applies
// and what it makes there.
//
// Of a = transpose(x), b = transpose(a), where the second one undoes the first, `transposes` makes b =
// copy(x), `same` lets what read b read x, and `dead` drops a and b.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.hpp"

namespace syno::graph {

/// Where a row applies, by the names of nodes, so that it can stand in a trace.
struct GraphSite {
  std::string node;   ///< the one that goes or changes
  std::string other;  ///< a second one that the row is about, if any
  bool operator==(const GraphSite&) const = default;
};

struct GraphRewrite {
  std::string_view name;
  std::string_view statement;  ///< what it makes of what
  std::vector<GraphSite> (*find)(const Graph& graph);
  /// ScheduleError where find() does not give the site. Inputs, weights and how many outputs there are and in
  /// which order stay; an output may come to be another tensor of the same values.
  Graph (*apply)(const Graph& graph, const GraphSite& site);
  bool reassociates = false;  ///< exact over the reals alone
  bool by_choice = false;     ///< made where it pays, and not by cleaned()
};

/// The rows, by name: common, dead, joins, same, scales, transposes.
std::span<const GraphRewrite> graph_rewrites();
const GraphRewrite& graph_rewrite_named(std::string_view name);  ///< UnknownName lists them

/// What is left when none of the rows applies any more, but for those that reassociate or are made by choice;
/// in one pass.
Graph cleaned(const Graph& graph);

}  // namespace syno::graph
