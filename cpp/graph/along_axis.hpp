// graph/along_axis.hpp — elements along an axis of a table, one at each index: x[i, p[i, j], j].
#pragma once

#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "graph/builtins.hpp"
#include "graph/elements.hpp"
#include "support/inline_vector.hpp"
#include "support/json.hpp"

namespace syno::graph {

/// Where the elements lie. Rows of indices, along their last dimension, are gone through one after the other.
struct AlongAxis {
  std::int64_t extent = 0, stride = 1;  ///< of the table along the axis
  std::int64_t rows = 1, row = 1;       ///< of the indices
  std::int64_t step = 0;                ///< of the table from one index of a row to the next
  struct Outer {
    std::int64_t extent, stride;  ///< of the indices, and of the table: 0 along the axis
  };
  std::vector<Outer> outer;  ///< all dimensions but the last

  /// Calls `visit(index, place)` for each place of the indices and the table's element that it names.
  /// ShapeError, saying `where`, for an index outside.
  template <class Index, class Visit>
  void visit(std::string_view where, const Index* indices, bool negative, const Visit& visit) const {
    Place place(outer.size(), 0);
    std::int64_t first = 0;  // element of a row, in the table
    for (std::int64_t r = 0; r < rows; ++r, first = next(place, first)) {
      const Index* each = indices + r * row;
      const Signs signs = signs_of(each, negative ? -extent : 0);
      for (std::int64_t j = 0; signs.outside && j < row; ++j)
        row_at(where, static_cast<std::int64_t>(each[j]), extent, negative);  // says which
      const std::int64_t at = r * row;
      if (signs.negative)
        for (std::int64_t j = 0; j < row; ++j) {
          const auto index = static_cast<std::int64_t>(each[j]);
          visit(at + j, first + (index < 0 ? index + extent : index) * stride + j * step);
        }
      else if (stride == 1 && step == 0)  // a row of the table, without a multiplication
        for (std::int64_t j = 0; j < row; ++j) visit(at + j, first + static_cast<std::int64_t>(each[j]));
      else
        for (std::int64_t j = 0; j < row; ++j)
          visit(at + j, first + static_cast<std::int64_t>(each[j]) * stride + j * step);
    }
  }

 private:
  using Place = InlineVector<std::int64_t, 8>;  ///< a run allocates nothing
  /// Counts places of rows without dividing by extents.
  std::int64_t next(Place& place, std::int64_t first) const {
    for (std::size_t d = outer.size(); d-- > 0;) {
      first += outer[d].stride;
      if (++place[d] < outer[d].extent) break;
      first -= outer[d].extent * outer[d].stride;
      place[d] = 0;
    }
    return first;
  }

  struct Signs {
    bool outside = false, negative = false;  ///< some index is
  };
  /// Signs of differences instead of comparisons: several at once, and no branches.
  template <class Index>
  Signs signs_of(const Index* each, std::int64_t least) const {
    const auto below = static_cast<std::uint64_t>(least), last = static_cast<std::uint64_t>(extent - 1);
    std::uint64_t outside = 0, negative = 0;
    std::int64_t j = 0;
    if constexpr (std::is_same_v<Index, std::int64_t>) {
      using Two = std::uint64_t __attribute__((vector_size(16)));
      Two outsides{}, negatives{}, two;
      for (const Two belows{below, below}, lasts{last, last}; j + 2 <= row; j += 2) {
        std::memcpy(&two, each + j, sizeof two);
        outsides |= (two - belows) | (lasts - two);
        negatives |= two;
      }
      outside = outsides[0] | outsides[1];
      negative = negatives[0] | negatives[1];
    }
    for (; j < row; ++j) {
      const auto index = static_cast<std::uint64_t>(static_cast<std::int64_t>(each[j]));
      outside |= (index - below) | (last - index);
      negative |= index;
    }
    constexpr int kSign = 63;
    return {(outside >> kSign) != 0, (negative >> kSign) != 0};
  }
};

/// An axis of a tensor of so many dimensions, of which those below 0 count from the end. FormatError where it
/// is no integer, ShapeError where there is none such.
std::size_t axis_of(std::string_view where, const nlohmann::json& given, std::size_t rank);

/// The attribute `axis` of a table and indices of as many dimensions; none where it is not given. ShapeError
/// where they do not fit.
std::optional<AlongAxis> along_axis(std::string_view where, const nlohmann::json& attributes,
                                    const Shape& table, const Shape& indices);

}  // namespace syno::graph
