// schedule/inlining.hpp — how large bodies become when scopes take the place of their reads.
#pragma once

#include <cstdint>

#include "program/program.hpp"
#include "schedule/names.hpp"

namespace syno::schedule {

/// Nodes of a body and of the indices in it, each as often as it is written: bodies are trees. Where there
/// are more than `most` of them, `most + 1`; no more than that are visited.
std::int64_t nodes_of(const program::Program& program, program::ScalarId body, std::int64_t most);

/// How often a body reads a tensor, each read as often as it is written.
std::int64_t reads_written(const program::Program& program, program::ScalarId body, program::TensorId tensor);

}  // namespace syno::schedule
