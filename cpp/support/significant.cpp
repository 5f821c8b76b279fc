#include "support/significant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace syno {

std::string significant(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return fmt::format("{:g}", value);
  const int power = static_cast<int>(std::floor(std::log10(std::abs(value))));
  if (power < -9 || power >= 15) return fmt::format("{:.{}e}", value, digits - 1);
  return fmt::format("{:.{}f}", value, std::max(0, digits - 1 - power));
}

}  // namespace syno
