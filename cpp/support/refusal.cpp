#include "support/refusal.hpp"

namespace syno {

Refusal Refusal::of(const Error& error) {
  const auto kind = dynamic_cast<const UnknownName*>(&error)   ? Kind::Unknown
                    : dynamic_cast<const ShapeError*>(&error)  ? Kind::Shape
                    : dynamic_cast<const VerifyError*>(&error) ? Kind::Verify
                                                               : Kind::Schedule;
  const std::string_view text = error.what();  // `[where] message`
  const std::size_t end = text.find("] ");
  return Refusal(text.substr(1, end - 1), "{}", {std::string(text.substr(end + 2))}, kind);
}

std::string Refusal::reason() const {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const Argument& argument : arguments_)
    std::visit([&](const auto& value) { store.push_back(value); }, argument);
  return fmt::vformat(fmt::string_view(format_.data(), format_.size()), store);
}

void Refusal::raise() const {
  switch (kind_) {
    case Kind::Shape:
      throw ShapeError(where_, reason());
    case Kind::Unknown:
      throw UnknownName(where_, reason());
    case Kind::Verify:
      throw VerifyError(where_, reason());
    case Kind::Schedule:
      break;
  }
  throw ScheduleError(where_, reason());
}

}  // namespace syno
