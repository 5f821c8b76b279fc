// support/refusal.hpp — why something does not apply, as a value: what a search expects now and then. The
// sentence is made when somebody reads it, and an Error when nobody expected it.
#pragma once

#include <fmt/args.h>
#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "support/error.hpp"

namespace syno {

class [[nodiscard]] Refusal {
 public:
  using Argument = std::variant<std::int64_t, std::string>;
  /// Of which class an error would be.
  enum class Kind : std::uint8_t { Schedule, Shape, Unknown, Verify };

  /// `format` with these arguments says why; it is a literal.
  Refusal(std::string_view where, std::string_view format, std::vector<Argument> arguments,
          Kind kind = Kind::Schedule)
      : kind_(kind), where_(where), format_(format), arguments_(std::move(arguments)) {}
  /// What an error says that was thrown where nothing could be returned.
  static Refusal of(const Error& error);

  Kind kind() const { return kind_; }
  std::string_view where() const { return where_; }  ///< the level that refuses
  const std::vector<Argument>& arguments() const { return arguments_; }
  std::string reason() const;       ///< the sentence
  [[noreturn]] void raise() const;  ///< throws it as the error of a caller's mistake
  std::string_view row;             ///< of decisions: the one that was refused; empty: none

 private:
  Kind kind_;
  std::string where_;
  std::string_view format_;
  std::vector<Argument> arguments_;
};

/// What can be refused: nothing where it was done.
using Refused = std::optional<Refusal>;

/// A refusal; its text is `fmt::format(format, arguments...)`.
template <class... Args>
Refusal refuse(std::string_view where, fmt::format_string<const Args&...> format, const Args&... arguments) {
  [[maybe_unused]] const auto argument = [](const auto& value) -> Refusal::Argument {
    if constexpr (std::integral<std::decay_t<decltype(value)>>)
      return static_cast<std::int64_t>(value);
    else
      return std::string(value);
  };
  const fmt::string_view text = format;
  return Refusal(where, {text.data(), text.size()}, {argument(arguments)...});
}
/// Of a name that is none of the valid ones.
inline Refusal refuse_unknown(std::string_view where, std::string sentence,
                              Refusal::Kind kind = Refusal::Kind::Schedule) {
  return Refusal(where, "{}", {std::move(sentence)}, kind);
}

/// A value, or why there is none.
template <class T>
class [[nodiscard]] OrRefusal {
 public:
  OrRefusal(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  OrRefusal(Refusal refusal) : held_(std::in_place_index<1>, std::move(refusal)) {}
  explicit operator bool() const { return held_.index() == 0; }
  T& operator*() { return std::get<0>(held_); }
  const T& operator*() const { return std::get<0>(held_); }
  const Refusal& refusal() const { return std::get<1>(held_); }
  /// The value; its refusal is an error.
  T or_raise() && {
    if (!*this) refusal().raise();
    return std::move(**this);
  }

 private:
  std::variant<T, Refusal> held_;
};

inline void raise_if(const Refused& refused) {
  if (refused) refused->raise();
}

}  // namespace syno

/// Returns what refuses from the function around; goes on where nothing does.
#define SYNO_ACCEPT(...) \
  if (auto syno_refused = (__VA_ARGS__); syno_refused) return *std::move(syno_refused)
/// `name` is the value of an OrRefusal; its refusal is returned from the function around.
#define SYNO_TAKE(name, ...)                                  \
  auto name##_or_refused = (__VA_ARGS__);                     \
  if (!name##_or_refused) return name##_or_refused.refusal(); \
  auto& name = *name##_or_refused
