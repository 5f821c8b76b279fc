// construct/tiling.hpp — how a reduction is tiled, as one value, and the one function that writes it. A
// sketch is such a value without its numbers. Loops are those of the scope's facts, by their places there.
//
//   y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s], facts' loops n o h w c r s
//   lanes h w (a row of x after the other), 64 of them in a tile; rows o, six of them; around: n, tiles of
//   lanes, tiles of rows, the sums; x from a padded copy for each n, k from a copy in blocks of six rows
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "construct/construct.hpp"

namespace syno::construct {

/// A loop around the register tile.
struct Around {
  enum class Of : std::uint8_t { Loop, Rows, Columns, Lanes, Sums } of = Of::Loop;
  std::size_t loop =
      0;  ///< Loop: which; Rows, Columns, Lanes: the one over tiles; Sums: all that do not stay inside
};

/// How an operand comes: read where it lies, broadcast or as vectors; as panels, so many lanes wide, of rows
/// that lie far apart; from a copy in blocks of the tile; from a padded copy whose rows lie along the lanes;
/// from a copy whose dimensions lie in another order.
enum class Way : std::uint8_t { InPlace, Panels, Blocks, Rows, Ordered };

struct OperandTiling {
  Way way = Way::InPlace;
  std::string suffix;                     ///< of the copy's name
  Blocks blocks;                          ///< Blocks
  std::vector<std::size_t> sequence;      ///< Blocks: the loops in the order in which they move the copy
  RowCopy rows;                           ///< Rows
  std::int64_t panel = 0;                 ///< Rows: of panels so wide; 0: whole rows
  std::vector<std::int64_t> permutation;  ///< Ordered
  bool spared = false;         ///< Ordered: only where a tile cannot read it as it lies, guards and all
  bool at_lane_tiles = false;  ///< the copy is made anew for each tile of lanes; else
  std::size_t depth = 0;       ///< for each iteration of so many outermost loops; else beside the scope
};

/// Where results go.
enum class Result : std::uint8_t {
  InPlace,   ///< where they lie
  Rows,      ///< into a tile with dead ends of rows, copied out row by row
  Turned,    ///< into a tile with the lanes innermost, transposed while it is copied out piece by piece
  Whole,     ///< into a tensor with the lanes innermost, copied out whole
  Finished,  ///< into sums, what is done with which takes vectors of them
};

struct Tiling {
  // The register tile: rows, columns, and vectors of lanes.
  std::vector<std::size_t> lanes;          ///< one loop is made of them, outermost first
  std::vector<std::int64_t> pitch;         ///< how far each of these runs; empty: their extents
  std::int64_t width = 1;                  ///< elements along the lanes in a tile
  std::optional<std::size_t> filling;      ///< a loop outside the lanes that fills vectors with them
  std::int64_t filled = 1;                 ///< its iterations in a vector
  std::vector<std::size_t> rows, columns;  ///< one loop is made of each
  std::int64_t row_size = 1, column_size = 1;
  bool columns_first = false;
  // The loops around it.
  std::vector<Around> around;  ///< outermost first
  std::size_t behind = 0;      ///< so many of these stand around parts of the sum, if it has parts
  std::int64_t steps = 0;      ///< of a part of the sum; 0: all
  std::vector<CacheTiles> blocks;
  // The sum.
  std::vector<std::size_t> unrolled;  ///< its loops that are repeated when code is made, inside the others
  std::vector<std::size_t> sliding;   ///< the same inside the rows, whose vectors they share
  std::optional<std::pair<std::size_t, std::int64_t>> blocked;  ///< blocks of which are repeated so
  // Operands and results.
  bool cut_borders = false;             ///< iterations that need guards are nests of their own
  std::vector<OperandTiling> operands;  ///< by read; fewer: the others are read where they lie
  Result result = Result::InPlace;
  bool turned = false;      ///< results lie with the lanes innermost
  bool all_rows = false;    ///< Turned: a piece has all rows, so that a panel of lanes serves them
  bool far_groups = false;  ///< Turned: the packed operand of all lanes does not stay in the second cache
  bool ahead = false;       ///< asks for what comes from far away, leaves out terms outside
};

/// A line each of the tile, the loops around it, the copies and the result, as
/// `tile o x 6, h w over 56 58 x 64`, `around n, tiles of h w, tiles of o, c r s`, `x a copy along h w for
/// each n`.
std::string to_text(const Tiling& tiling, const ScopeFacts& facts);

/// Writes a scope about which nothing but its place was decided. Says why not where no nest has such loops.
[[nodiscard]] Refused write_tiling(Construction& c, const std::string& scope, const ScopeFacts& facts,
                                   const Tiling& tiling);

/// The scope that computes what goes into `scope`, whose loops are written, and where copies may be made.
struct Staged {
  std::string heavy;      ///< `scope` itself where results are written where they lie
  std::string loop;       ///< of `scope`, around pieces: each may have copies of its own; or none
  std::size_t depth = 0;  ///< the outermost loops that are around it, itself among them
};
OrRefusal<Staged> stage_result(Construction& c, const std::string& scope, const ScopeFacts& facts,
                               const Tiling& tiling);
/// Lays a finished scope's results out with the lanes innermost.
[[nodiscard]] Refused turn_result(Construction& c, const std::string& scope, const ScopeFacts& facts,
                                  const Tiling& tiling);

}  // namespace syno::construct
