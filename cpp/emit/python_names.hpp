// emit/python_names.hpp — names that Python code may use.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace syno::emit {

/// A name for `wanted` that is an identifier, no keyword and in neither set; joins `used`.
std::string python_name(std::string_view wanted, std::set<std::string>& used);

}  // namespace syno::emit
