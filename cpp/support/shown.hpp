// support/shown.hpp — what a caller wrote, as a message may hold it.
#pragma once

#include <string>
#include <string_view>

namespace syno {

/// On one line, valid UTF-8, its middle left out beyond `most` bytes.
std::string shown(std::string_view text, std::size_t most = 80);

/// A message as it leaves the engine: valid UTF-8, its middle left out beyond 4,000 bytes.
std::string shown_message(std::string_view message);

}  // namespace syno
