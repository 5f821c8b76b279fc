// emit/python_names.hpp — names that Python code may use, and tuples of them.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace syno::emit {

/// A name for `wanted` that is an identifier, no keyword and in neither set; joins `used`.
std::string python_name(std::string_view wanted, std::set<std::string>& used);

/// The text of a tuple of such expressions.
std::string tuple(const std::vector<std::string>& items);

}  // namespace syno::emit
