// graph/elements.hpp — elements of 16 bits as types of their own, and rows of a table by index.
#pragma once

#include <cstdint>
#include <string_view>

#include "support/bfloat16.hpp"
#include "support/error.hpp"
#include "support/float16.hpp"

namespace syno::graph {

struct Brain {
  std::uint16_t bits;
  static float read(Brain value) { return from_bfloat16(value.bits); }
  static Brain write(float value) { return {to_bfloat16(value)}; }
};
struct Half {
  std::uint16_t bits;
  static float read(Half value) { return from_float16(value.bits); }
  static Half write(float value) { return {to_float16(value)}; }
};

/// The row that an index names; with `negative`, one below 0 counts from the end. ShapeError, saying `where`,
/// for one outside.
inline std::int64_t row_at(std::string_view where, std::int64_t index, std::int64_t rows, bool negative) {
  if (index < (negative ? -rows : 0) || index >= rows)
    fail<ShapeError>(where, "index {} is outside of {}..{}: the table has {} rows", index,
                     negative ? -rows : 0, rows, rows);
  return index < 0 ? index + rows : index;
}

}  // namespace syno::graph
