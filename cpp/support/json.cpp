#include "support/json.hpp"

#include <cctype>

namespace syno {

void check_json_budget(std::string_view where, std::string_view text) {
  if (text.size() > kMaxJsonBytes)
    fail<FormatError>(where, "has {} bytes; at most {} are read", text.size(), kMaxJsonBytes);
  std::size_t depth = 0, digits = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
      continue;
    }
    quoted = c == '"';
    digits = std::isdigit(static_cast<unsigned char>(c)) ? digits + 1 : 0;
    if (digits > kMaxJsonDigits)
      fail<FormatError>(where, "has a number of more than {} digits at byte {}", kMaxJsonDigits, i);
    if ((c == '[' || c == '{') && ++depth > kMaxJsonDepth)
      fail<FormatError>(where, "is nested deeper than {} at byte {}", kMaxJsonDepth, i);
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
}

}  // namespace syno
