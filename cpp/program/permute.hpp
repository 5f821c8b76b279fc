// program/permute.hpp — the same computation of tensors whose dimensions the caller keeps in another order.
#pragma once

#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

/// Dimension d of an input or output becomes dimension order[d] of what it was: what the caller passes is its
/// tensor with the dimensions in that order (NHWC for NCHW is 0, 2, 3, 1). Labels of scopes that read or
/// write it are dropped. UnknownName where no input or output has this name, ShapeError where `order` is no
/// permutation of its dimensions.
Program with_permuted(Program program, const std::string& tensor, const std::vector<std::size_t>& order);

}  // namespace syno::program
