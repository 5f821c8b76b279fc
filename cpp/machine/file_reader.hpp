// machine/file_reader.hpp — reads machine files strictly: every key once, every value checked.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/error.hpp"

namespace syno::machine {

[[noreturn]] inline void wrong(const std::string& path, const std::string& what) {
  fail<FormatError>("machine", "{} {}", path, what);
}

/// An object of a machine file. FormatError names the path of what is missing, unknown, of another type or
/// out of bounds.
class FileReader {
 public:
  FileReader(const nlohmann::json& json, std::string path) : json_(json), path_(std::move(path)) {
    if (!json.is_object()) wrong(path_.empty() ? "/" : path_, "is not an object");
  }
  const nlohmann::json& at(const char* key) {
    known_.emplace_back(key);
    if (!json_.contains(key)) wrong(path_ + "/" + key, "is missing");
    return json_[key];
  }
  std::string text(const char* key) {
    const auto& value = at(key);
    if (!value.is_string()) wrong(path_ + "/" + key, "is not a text");
    return value.get<std::string>();
  }
  std::string optional_text(const char* key) {
    known_.emplace_back(key);
    return json_.contains(key) ? text(key) : "";
  }
  bool truth(const char* key) {
    const auto& value = at(key);
    if (!value.is_boolean()) wrong(path_ + "/" + key, "is neither true nor false");
    return value.get<bool>();
  }
  template <class T = std::int64_t>
  T integer(const char* key, T least, T most) {
    const auto& value = at(key);
    if (!value.is_number_integer()) wrong(path_ + "/" + key, "is not an integer");
    const bool small = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
    const std::int64_t number = small ? INT64_MAX : value.get<std::int64_t>();
    if (number < least || number > most)
      wrong(path_ + "/" + key, fmt::format("is {}; it must be in [{}, {}]", number, least, most));
    return static_cast<T>(number);
  }
  template <class T = std::int64_t>
  T optional_integer(const char* key, T least, T most, T otherwise) {
    known_.emplace_back(key);
    return json_.contains(key) ? integer<T>(key, least, most) : otherwise;
  }
  double positive(const char* key) {
    const auto& value = at(key);
    if (!value.is_number()) wrong(path_ + "/" + key, "is not a number");
    const auto number = value.get<double>();
    if (!(number > 0) || number > 1e9)
      wrong(path_ + "/" + key, fmt::format("is {}; it must be in (0, 1e9]", number));
    return number;
  }
  const nlohmann::json* optional(const char* key) {
    known_.emplace_back(key);
    return json_.contains(key) ? &json_[key] : nullptr;
  }
  double optional_positive(const char* key, double otherwise) {
    known_.emplace_back(key);
    return json_.contains(key) ? positive(key) : otherwise;
  }
  /// The head of a file: its format and a version that is known.
  void head(const char* wanted, int newest) {
    if (const auto format = text("format"); format != wanted)
      wrong(path_ + "/format", fmt::format("is '{}', not '{}'", format, wanted));
    if (const auto version = integer<std::int64_t>("version", 1, INT64_MAX); version > newest)
      wrong(path_ + "/version", fmt::format("is {}, newer than {}; use a newer syno", version, newest));
  }
  void nothing_else() const {
    for (const auto& [key, value] : json_.items())
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        wrong(path_ + "/" + key, fmt::format("is unknown; there are: {}", fmt::join(known_, ", ")));
  }

 private:
  const nlohmann::json& json_;
  std::string path_;
  std::vector<std::string> known_;
};

}  // namespace syno::machine
