// program/names.hpp — which names the text form can hold.
#pragma once

#include <string_view>

namespace syno::program {

/// Letters, digits and underscores, not starting with a digit.
bool is_identifier(std::string_view name);

/// Words of the text form that no tensor may be called: reductions, functions written like a call, `fill`...
bool is_reserved(std::string_view name);

}  // namespace syno::program
