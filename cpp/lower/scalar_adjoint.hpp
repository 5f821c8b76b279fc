// lower/scalar_adjoint.hpp — derivatives of scalar bodies.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "program/program.hpp"

namespace syno::lower {

/// For every Read below `body` of a tensor in `wanted`: seed * d(body)/d(read), as a new scalar over the same
/// iterators. Reads that the body does not depend on differentiably are left out.
std::vector<std::pair<program::ScalarId, program::ScalarId>> scalar_adjoints(
    program::Program& program, program::ScalarId body, program::ScalarId seed,
    const std::set<program::TensorId>& wanted);

/// a * b without multiplications by a literal one.
program::ScalarId product_of(program::Program& program, program::ScalarId a, program::ScalarId b);

}  // namespace syno::lower
