// Schedules as text and JSON: what records store and people read.
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "schedule/schedule.hpp"
#include "support/error.hpp"
#include "support/json.hpp"

namespace syno::schedule {

namespace {

constexpr int kVersion = 1;

Dtype dtype_named(std::string_view name) {
  std::vector<std::string> valid;
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16}) {
    if (name_of(dtype) == name) return dtype;
    valid.emplace_back(name_of(dtype));
  }
  throw UnknownName("schedule", unknown_name("dtype", name, valid));
}

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    out.emplace_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return out;
}

}  // namespace

std::string to_text(const Decision& decision) {
  std::string line = fmt::format("{} {}", decision.name, decision.scope.empty() ? "-" : decision.scope);
  if (!decision.tensor.empty()) line += fmt::format(" tensor={}", decision.tensor);
  if (!decision.loops.empty()) line += fmt::format(" loops={}", fmt::join(decision.loops, ","));
  if (!decision.numbers.empty()) line += fmt::format(" numbers={}", fmt::join(decision.numbers, ","));
  if (!decision.words.empty()) line += fmt::format(" words={}", fmt::join(decision.words, ","));
  return line;
}

std::string to_text(const Schedule& schedule) {
  std::string text = fmt::format("schedule {}\n", name_of(schedule.dtype));
  for (const auto& decision : schedule.trace) text += to_text(decision) + "\n";
  return text;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word)) continue;
    if (number == 1) {
      if (word != "schedule" || !(words >> word))
        fail<ParseError>("schedule", "line 1 is '{}'; a schedule starts with `schedule <dtype>`", line);
      schedule.dtype = dtype_named(word);
      continue;
    }
    Decision decision;
    decision.name = word;
    if (!(words >> decision.scope))
      fail<ParseError>("schedule", "line {}: '{}' names no scope", number, line);
    if (decision.scope == "-") decision.scope.clear();
    while (words >> word) {
      const std::size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      const std::string rest = equals == std::string::npos ? "" : word.substr(equals + 1);
      if (key == "tensor") {
        decision.tensor = rest;
      } else if (key == "loops") {
        decision.loops = pieces(rest);
      } else if (key == "words") {
        decision.words = pieces(rest);
      } else if (key == "numbers") {
        for (const auto& piece : pieces(rest)) {
          std::int64_t value = 0;
          const auto [end, error] = std::from_chars(piece.data(), piece.data() + piece.size(), value);
          if (error != std::errc{} || end != piece.data() + piece.size())
            fail<ParseError>("schedule", "line {}: '{}' is no integer", number, piece);
          decision.numbers.push_back(value);
        }
      } else {
        fail<ParseError>("schedule", "line {}: '{}' is none of tensor=, loops=, numbers=, words=", number,
                         word);
      }
    }
    schedule.trace.push_back(std::move(decision));
  }
  return schedule;
}

nlohmann::json to_json(const Schedule& schedule) {
  nlohmann::json trace = nlohmann::json::array();
  for (const auto& decision : schedule.trace) {
    nlohmann::json row{{"name", decision.name}, {"scope", decision.scope}};
    if (!decision.loops.empty()) row["loops"] = decision.loops;
    if (!decision.numbers.empty()) row["numbers"] = decision.numbers;
    if (!decision.tensor.empty()) row["tensor"] = decision.tensor;
    if (!decision.words.empty()) row["words"] = decision.words;
    trace.push_back(std::move(row));
  }
  return {{"version", kVersion}, {"dtype", name_of(schedule.dtype)}, {"trace", std::move(trace)}};
}

namespace {

[[noreturn]] void wrong(const std::string& path, const char* wanted) {
  fail<FormatError>("schedule", "{} is not {}", path, wanted);
}

std::string text_at(const nlohmann::json& row, const char* key, const std::string& path) {
  if (!row.contains(key)) return {};
  if (!row[key].is_string()) wrong(path + "/" + key, "a text");
  return row[key].get<std::string>();
}

template <class T>
std::vector<T> list_at(const nlohmann::json& row, const char* key, const std::string& path) {
  std::vector<T> out;
  if (!row.contains(key)) return out;
  if (!row[key].is_array()) wrong(path + "/" + key, "a list");
  for (std::size_t i = 0; i < row[key].size(); ++i) {
    const auto& item = row[key][i];
    if constexpr (std::is_integral_v<T>) {
      const bool large = item.is_number_unsigned() && item.template get<std::uint64_t>() > INT64_MAX;
      if (!item.is_number_integer() || large)
        wrong(fmt::format("{}/{}/{}", path, key, i), "an integer of 64 bits");
    } else {
      if (!item.is_string()) wrong(fmt::format("{}/{}/{}", path, key, i), "a text");
    }
    out.push_back(item.template get<T>());
  }
  return out;
}

}  // namespace

Schedule schedule_from_json(const nlohmann::json& json) {
  if (!json.is_object()) wrong("/", "an object");
  if (!json.contains("version") || !json["version"].is_number_integer()) wrong("/version", "an integer");
  if (json["version"] != kVersion)
    fail<FormatError>("schedule", "/version is {}; this syno reads {}: use a newer one",
                      described(json["version"]), kVersion);
  Schedule schedule;
  const std::string dtype = text_at(json, "dtype", "");
  try {
    schedule.dtype = dtype_named(dtype);
  } catch (const UnknownName& error) {
    fail<FormatError>("schedule", "/dtype: {}", error.what());
  }
  if (!json.contains("trace") || !json["trace"].is_array()) wrong("/trace", "a list");
  for (std::size_t i = 0; i < json["trace"].size(); ++i) {
    const auto& row = json["trace"][i];
    const std::string path = fmt::format("/trace/{}", i);
    if (!row.is_object()) wrong(path, "an object");
    Decision decision;
    decision.name = text_at(row, "name", path);
    if (decision.name.empty()) wrong(path + "/name", "the name of a decision");
    decision.scope = text_at(row, "scope", path);
    decision.loops = list_at<std::string>(row, "loops", path);
    decision.numbers = list_at<std::int64_t>(row, "numbers", path);
    decision.tensor = text_at(row, "tensor", path);
    decision.words = list_at<std::string>(row, "words", path);
    schedule.trace.push_back(std::move(decision));
  }
  return schedule;
}

}  // namespace syno::schedule
