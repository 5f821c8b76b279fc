// support/json.hpp — JSON that strangers wrote: read within a budget, quoted in errors without echoing it
// all.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno {

inline constexpr std::size_t kMaxJsonBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonDigits = 400;

/// FormatError(where) where a text is longer, deeper or has longer numbers than any of our files.
void check_json_budget(std::string_view where, std::string_view text);

/// The document; FormatError(where) where it is none or beyond the budget.
template <class Json = nlohmann::json>
Json parse_json(std::string_view where, std::string_view text) {
  check_json_budget(where, text);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail<FormatError>(where, "not a JSON document: {}", error.what());
  }
}

/// A value in an error: what it is, and the value itself where that is short.
template <class Json>
std::string described(const Json& value) {
  if (value.is_object()) return value.empty() ? "an empty object" : "an object";
  if (value.is_array()) return value.empty() ? "an empty list" : fmt::format("a list of {}", value.size());
  return shown(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace syno
