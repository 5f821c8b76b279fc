// program/names.hpp — which names the text form can hold, and those that iterators get in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

/// Letters, digits and underscores, not starting with a digit.
bool is_identifier(std::string_view name);

/// Words of the text form that no tensor may be called: reductions, functions written like a call, `fill`...
bool is_reserved(std::string_view name);

/// Gives the iterators of a scope their names in text, by slot: one each, none that of a size, all of them
/// words that the language can hold. `names` is as long as the program has slots.
void name_iterators(const Program& program, const Scope& scope, std::vector<std::string>& names);

}  // namespace syno::program
