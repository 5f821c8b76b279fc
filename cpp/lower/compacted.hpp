// lower/compacted.hpp — programs without what nobody reads.
#pragma once

#include <set>

#include "program/program.hpp"

namespace syno::lower {

/// Only what the outputs need, and the tensors to be kept: inputs in the order in which they are, then the
/// rest. Iterators of a scope get names of their own.
program::Program compacted(const program::Program& program, const std::set<program::TensorId>& kept);

}  // namespace syno::lower
