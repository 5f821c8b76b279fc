// emit/triton_index.hpp — index arithmetic on tiles: integers that vary along some axes of a tile, each
// computed once and over no more axes than it depends on, before the loop over terms where it does not depend
// on them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "emit/indices.hpp"

namespace syno::emit {

/// Axes of a tile.
enum Axis : unsigned { kRow = 0, kColumn = 1, kDepth = 2 };

/// A piece of text that stands for numbers: which axes they vary along, and whether they change in the loop.
struct TileText {
  std::string text;
  unsigned axes = 0;  ///< bits by Axis
  bool looped = false;
};

/// How the axes of a tile lie in a tensor of two dimensions or of one: what is written behind a vector along
/// each; null where an axis is walked one by one, and what varies along it is a scalar.
using Frame = std::array<const char*, 3>;
inline bool is_scalar(unsigned axes, const Frame& frame) {
  for (unsigned axis = 0; axis < 3; ++axis)
    if ((axes & 1u << axis) != 0 && frame[axis] != nullptr) return false;
  return true;
}

class TileIndices {
 public:
  TileIndices(Indices& indices, std::set<std::string> used) : indices_(indices), used_(std::move(used)) {}

  /// Statements before the loop over terms, in it, and behind it.
  std::vector<std::string> before, inside, after;
  /// From now on, what is new is written behind the loop.
  void finish() { finishing_ = true; }

  /// A name that nothing else in the kernel has.
  std::string fresh(std::string_view wanted);
  /// A variable of that value; the same text is computed once.
  TileText assign(const TileText& value, std::string_view wanted = "i");

  /// Where a tile lies in a group of iterators: the positions are `base` + `lanes`, which are 0 to
  /// `each` - 1, and `base`, the same for all lanes, is a multiple of `each`. Without lanes it is `base`.
  struct Position {
    TileText all, base, lanes;
    std::int64_t each = 1;
  };
  /// The iterators of a group, outermost first, from their position in it. An iterator that all lanes share
  /// is computed once, and one that `base` does not move is computed before the loop.
  void walk(const std::vector<Slot>& group, const Position& position);
  /// A group's number of positions.
  std::int64_t extent(const std::vector<Slot>& group) const;

  TileText index(ExprId root, const Frame& frame);
  /// An element's place in row-major memory; adds what must hold for it to be inside.
  TileText offset(const std::vector<ExprId>& at, const std::vector<program::Extent>& dims, const Frame& frame,
                  std::vector<TileText>& conditions);
  /// Integer operations that an element's place takes, about.
  double operations(const std::vector<ExprId>& at, const std::vector<program::Extent>& dims);

 private:
  TileText digit_of(const Position& position, std::int64_t step, std::int64_t extent, bool outermost);
  TileText atom(ExprId id, const Frame& frame);
  void guards(ExprId root, const Frame& frame, std::vector<TileText>& conditions);

  Indices& indices_;
  std::set<std::string> used_;
  std::map<std::string, TileText, std::less<>> known_;
  std::map<Slot, TileText> iterators_;
  bool finishing_ = false;
};

}  // namespace syno::emit
