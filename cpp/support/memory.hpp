// support/memory.hpp — what a caller's sizes ask of memory, refused in a sentence before it is taken.
#pragma once

#include <cstdint>
#include <string_view>

namespace syno {

/// Bytes that can still be taken: of the machine, and of the control group where that has a limit.
/// At least 256 MiB, so that a machine that looks full is asked.
std::int64_t available_memory();

/// ShapeError(where) where `count` elements of `bytes` each, called `what` in the sentence, are more than is
/// available. Both are at least 0; their product may leave 64 bits.
void require_memory(std::string_view where, std::string_view what, std::int64_t count, std::int64_t bytes);

}  // namespace syno
