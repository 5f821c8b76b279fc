// program/permute.hpp — the same computation of an input whose dimensions the caller keeps in another order.
#pragma once

#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

/// Dimension d of the input becomes dimension order[d] of what it was: what the caller passes is its tensor
/// with the dimensions in that order (NHWC for NCHW is 0, 2, 3, 1). Labels of scopes that read it are
/// dropped. UnknownName where there is no such input, ShapeError where `order` is no permutation of its
/// dimensions.
Program with_input_permuted(Program program, const std::string& input, const std::vector<std::size_t>& order);

}  // namespace syno::program
