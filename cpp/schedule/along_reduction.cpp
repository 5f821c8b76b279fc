#include "schedule/construct.hpp"
namespace syno::schedule {
std::optional<Strategy> along_reduction(Construction&, const std::string&) { return std::nullopt; }
std::optional<Strategy> along_channels(Construction&, const std::string&) { return std::nullopt; }
}  // namespace syno::schedule
