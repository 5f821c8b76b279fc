// program/interpret_inputs.hpp — what is asked of a program and its inputs before it is interpreted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "program/interpret.hpp"

namespace syno::program::detail {

inline constexpr std::string_view kInterpret = "interpret";

/// ShapeError, VerifyError or UnknownName where the program is not concrete or well-formed, or the inputs are
/// not those that it has.
template <class T>
void check_inputs(const Program& program, const std::map<std::string, Values<T>>& inputs);

/// How many elements a tensor has; ShapeError where the memory for so many, of `bytes` each, is not there.
std::size_t element_count(const Program& program, TensorId tensor, std::size_t bytes);

}  // namespace syno::program::detail
