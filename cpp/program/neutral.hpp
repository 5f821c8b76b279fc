// program/neutral.hpp — programs under names that say nothing of where they come from: what is found out
// about one serves all that differ by the names of their tensors alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

/// A concrete program whose tensors are named by their part in it. Its *core* is the scope with most points,
/// the first of them: it computes `core` of `a0`, `a1`, ..., in the order in which its body reads them. The
/// other tensors are `t0`, `t1`, ..., in the order of the program.
struct Neutral {
  Program program;
  std::vector<std::string> names;  ///< by tensor: the name that was given
  /// The core alone, of inputs with those names: equal for programs whose cores compute the same, whatever
  /// stands before and after. A rewrite of it applies to the whole program, too. None where there are no
  /// scopes, or where the core reads a tensor whose indices start elsewhere than at 0.
  std::optional<Program> core;
};
/// Of another scope as the core, by its output, where one is given. ShapeError for a symbolic program;
/// UnknownName: no scope writes such a tensor.
Neutral neutral(const Program& program, const std::optional<std::string>& core = std::nullopt);

/// The scopes with at least `share` of all points, most first, by their outputs.
std::vector<std::string> heaviest(const Program& program, double share);

/// The same program with other names for some tensors. One that keeps its name and would share it with a
/// renamed tensor gets a number behind it. UnknownName: there is no such tensor; ShapeError: two tensors
/// would have one name, or the text form cannot hold it.
Program renamed(const Program& program, const std::map<std::string, std::string>& names);

}  // namespace syno::program
