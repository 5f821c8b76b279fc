// Writes a tiling: the loops of a register tile and those around it, the copies of what it reads, its
// borders.
#include "construct/tiling.hpp"

#include <algorithm>
#include <tuple>

#include "construct/caches.hpp"
#include "construct/in_place.hpp"
#include "construct/phases.hpp"

namespace syno::construct {

namespace {

bool holds(const std::vector<std::size_t>& loops, std::size_t loop) {
  return std::find(loops.begin(), loops.end(), loop) != loops.end();
}

class TilingWriter {
 public:
  TilingWriter(Construction& c, const std::string& scope, const ScopeFacts& facts, const Tiling& tiling)
      : c_(c), scope_(scope), facts_(facts), tiling_(tiling) {}

  Refused write() {
    SYNO_TAKE(staged, stage_result(c_, scope_, facts_, tiling_));
    staged_ = staged;
    c_.plan.need_domain(c_.index(name_));
    SYNO_ACCEPT(fill_further());
    SYNO_ACCEPT(c_.apply(name_, facts_.splits));
    SYNO_ACCEPT(stage_operands());
    loops_ = c_.leaves(name_);
    SYNO_ACCEPT(make_tile());
    SYNO_ACCEPT(make_order());
    SYNO_ACCEPT(c_.add({"reorder", name_, order_, {}, "", {}}));
    if (!filling_.empty()) {
      SYNO_TAKE(filled, c_.fuse(name_, filling_, tile_.back()));
      tile_.back() = filled;
    }
    if (c_.extent(name_, tile_.back()) > 1)
      SYNO_ACCEPT(c_.add({"vectorize", name_, {tile_.back()}, {}, "", {}}));
    SYNO_ACCEPT(c_.add({"register_tile", name_, tile_, {}, "", {}}));
    SYNO_ACCEPT(peel());
    for (const std::string& loop : repeated_)
      if (c_.extent(name_, loop) > 1) SYNO_ACCEPT(c_.add({"unroll", name_, {loop}, {}, "", {}}));
    if (tiling_.ahead) SYNO_ACCEPT(peel_phases(c_, name_));
    c_.parallel_outermost(name_);
    if (tiling_.turned) SYNO_ACCEPT(turn_result(c_, name_, facts_, tiling_));
    SYNO_ACCEPT(write_copies());
    if (!tiling_.ahead) return {};
    SYNO_ACCEPT(skip_outside(c_, name_, in_place_));
    return prefetch_far(c_, name_);
  }

 private:
  /// A loop over tiles of so many iterations; none where one tile has all of them.
  struct Tiles {
    std::string loop;
    bool incomplete = false;
    bool rows = false;
  };

  Refused fill_further() {
    if (!tiling_.filling) return {};
    const std::int64_t extent = facts_.extents[*tiling_.filling], whole = up(extent, tiling_.filled);
    if (whole == extent) return {};
    return c_.add({"relax", name_, {c_.leaves(name_)[facts_.iterators[*tiling_.filling]]}, {whole}, "", {}});
  }

  Refused stage_operands() {
    copies_.resize(tiling_.operands.size());
    for (std::size_t r = 0; r < copies_.size(); ++r) {
      const OperandTiling& operand = tiling_.operands[r];
      if (operand.way == Way::InPlace) continue;
      if (operand.spared)
        if (const auto made = in_place(c_, name_, facts_, facts_.reads[r], tiling_.rows.back(),
                                       tiling_.row_size, tiling_.width / c_.lanes)) {
          if (row_cuts_.empty()) row_cuts_ = made->cuts;
          in_place_ = true;
          continue;
        }
      SYNO_TAKE(copy, c_.stage_read(name_, facts_.reads[r], operand.suffix));
      copies_[r] = copy;
    }
    return {};
  }

  /// One loop of several.
  OrRefusal<std::string> fused(const std::vector<std::size_t>& loops) {
    std::string made = loops_[loops.back()];
    for (std::size_t i = loops.size() - 1; i-- > 0;) {
      SYNO_ACCEPT(bring_beside(loops_[loops[i]], made));
      SYNO_TAKE(both, c_.fuse(name_, loops_[loops[i]], made));
      made = both;
    }
    return made;
  }

  /// Puts a loop right around another one.
  Refused bring_beside(const std::string& outer, const std::string& inner) {
    std::vector<std::string> order = c_.leaves(name_);
    const auto at = std::find(order.begin(), order.end(), outer);
    if (at + 1 != order.end() && *(at + 1) == inner) return {};
    order.erase(at);
    order.insert(std::find(order.begin(), order.end(), inner), outer);
    return c_.add({"reorder", name_, std::move(order), {}, "", {}});
  }

  /// The part of a loop that is in the tile; `tiles` is the one over tiles.
  OrRefusal<std::string> cut(const std::string& loop, std::int64_t size, Tiles& tiles) {
    const std::int64_t extent = c_.extent(name_, loop);
    if (extent <= size) return loop;
    SYNO_TAKE(parts, c_.split(name_, loop, size));
    tiles.loop = parts.first;
    tiles.incomplete = extent % size != 0;
    return parts.second;
  }

  Refused make_tile() {
    const std::size_t lanes = tiling_.lanes.size();
    for (std::size_t i = tiling_.pitch.size(); i-- > 1;)
      if (tiling_.pitch[i] > facts_.extents[tiling_.lanes[i]])
        SYNO_ACCEPT(c_.add({"relax", name_, {loops_[tiling_.lanes[i]]}, {tiling_.pitch[i]}, "", {}}));
    SYNO_TAKE(lane, fused(tiling_.lanes));
    if (lanes > 1) bases_.push_back({lane, tiling_.lanes});
    for (const auto* side : {&tiling_.rows, &tiling_.columns}) {
      if (side->empty()) continue;
      const bool rows = side == &tiling_.rows;
      SYNO_TAKE(loop, fused(*side));
      if (side->size() > 1) bases_.push_back({loop, *side});
      if (tiling_.filling && holds(*side, *tiling_.filling)) {
        SYNO_TAKE(around, cut_filling(loop));
        loop = around;
      }
      Tiles& tiles = rows ? row_tiles_ : column_tiles_;
      SYNO_TAKE(inside, cut(loop, rows ? tiling_.row_size : tiling_.column_size, tiles));
      tile_.push_back(inside);
      tiles.rows = rows;
    }
    if (tiling_.columns_first) std::swap(tile_[0], tile_[1]);
    Tiles vectors;
    SYNO_TAKE(inside, cut(lane, tiling_.width, lane_tiles_));
    SYNO_TAKE(vector, cut(inside, c_.lanes, vectors));
    if (!vectors.loop.empty()) tile_.push_back(vectors.loop);
    tile_.push_back(vector);
    return {};
  }

  /// The part of a loop that is around the vectors it fills.
  OrRefusal<std::string> cut_filling(const std::string& loop) {
    Tiles around;
    SYNO_TAKE(inside, cut(loop, tiling_.filled, around));
    filling_ = inside;
    return around.loop;
  }

  Refused make_order() {
    for (std::size_t i = 0; i < tiling_.around.size(); ++i) {
      if (i == tiling_.behind) parts_behind_ = order_.size();
      const Around& around = tiling_.around[i];
      switch (around.of) {
        case Around::Of::Loop:
          add_loop(around.loop);
          break;
        case Around::Of::Rows:
          add_tiles(row_tiles_);
          break;
        case Around::Of::Columns:
          add_tiles(column_tiles_);
          break;
        case Around::Of::Lanes:
          add_tiles(lane_tiles_);
          break;
        case Around::Of::Sums:
          add_sums();
          break;
      }
    }
    const std::size_t outside = order_.size();
    if (tiling_.sliding.empty()) {
      order_.insert(order_.end(), tile_.begin(), tile_.end());
    } else {
      order_.push_back(tile_.front());
      repeated_.push_back(tile_.front());
      for (const std::size_t loop : tiling_.sliding) {
        order_.push_back(loops_[loop]);
        repeated_.push_back(loops_[loop]);
      }
      order_.insert(order_.end(), tile_.begin() + 1, tile_.end());
    }
    if (!filling_.empty()) order_.insert(order_.end() - 1, filling_);
    for (std::size_t i = 0; i < facts_.extents.size(); ++i)
      if (std::none_of(bases_.begin(), bases_.end(), [&](const BaseLoop& b) { return holds(b.loops, i); }))
        bases_.push_back({loops_[i], {i}});
    return cut_into_blocks(c_, name_, bases_, tiling_.blocks, order_, outside);
  }

  Refused add_loop(std::size_t loop) {
    if (loop == tiling_.filling) {
      SYNO_TAKE(around, cut_filling(loops_[loop]));
      if (!around.empty()) order_.push_back(around);
      return {};
    }
    order_.push_back(loops_[loop]);
    if (tiling_.cut_borders && facts_.extents[loop] > 1) peeled_.push_back({loops_[loop]});
    return {};
  }

  void add_tiles(const Tiles& tiles) {
    if (tiles.loop.empty()) return;
    order_.push_back(tiles.loop);
    peeled_.push_back(tiles);
  }

  Refused add_sums() {
    std::vector<std::string> around, repeated;
    for (std::size_t i = facts_.traversal; i < facts_.extents.size(); ++i) {
      if (holds(tiling_.lanes, i) || holds(tiling_.sliding, i)) continue;
      if (holds(tiling_.unrolled, i)) {
        repeated.push_back(loops_[i]);
      } else if (tiling_.blocked && tiling_.blocked->first == i) {
        Tiles blocks;
        SYNO_TAKE(block, cut(loops_[i], tiling_.blocked->second, blocks));
        repeated.push_back(block);
        if (blocks.loop.empty()) continue;
        around.push_back(blocks.loop);
        peeled_.push_back(blocks);
      } else {
        around.push_back(loops_[i]);
      }
    }
    SYNO_TAKE(parts, in_parts(c_, name_, around, tiling_.steps));
    put_around(c_, name_, order_, parts_behind_, parts);
    order_.insert(order_.end(), parts.inside.begin(), parts.inside.end());
    order_.insert(order_.end(), repeated.begin(), repeated.end());
    repeated_.insert(repeated_.end(), repeated.begin(), repeated.end());
    incomplete_ = parts.incomplete;
    return {};
  }

  Refused peel(const Tiles& tiles) {
    const std::string& loop = tiles.loop;
    if (tiling_.cut_borders)
      return c_.peel(name_, loop, border_cuts(c_.plan, c_.index(name_), loop), tiles.incomplete);
    if (tiles.rows && !row_cuts_.empty() && c_.outermost_part(name_, loop) == loop)
      return c_.peel(name_, loop, row_cuts_, tiles.incomplete);
    return tiles.incomplete ? c_.peel_rest(name_, loop)
                            : Refused{};  // borders of blocks keep their conditions
  }

  Refused peel() {
    for (const Tiles& tiles : peeled_) SYNO_ACCEPT(peel(tiles));
    if (!incomplete_.empty()) SYNO_ACCEPT(c_.peel_rest(name_, incomplete_));
    if (!tiling_.blocks.empty()) SYNO_ACCEPT(c_.peel_blocks(name_, loops_));
    std::erase_if(repeated_, [&](const std::string& loop) { return c_.outermost_part(name_, loop) != loop; });
    return {};
  }

  Refused write_copies() {
    for (std::size_t r = 0; r < copies_.size(); ++r) {
      const std::string& copy = copies_[r];
      if (copy.empty()) continue;
      const OperandTiling& operand = tiling_.operands[r];
      SYNO_ACCEPT(place(copy, operand, facts_.reads[r].constant));
      SYNO_ACCEPT(write_copy(copy, operand, facts_.reads[r]));
      if (operand.way != Way::Panels) SYNO_ACCEPT(c_.prepack(copy, facts_.reads[r].tensor));
    }
    return {};
  }

  Refused write_copy(const std::string& copy, const OperandTiling& operand, const ReadFacts& read) {
    switch (operand.way) {
      case Way::InPlace:
        break;
      case Way::Panels:
        return c_.vectorize_innermost(copy);
      case Way::Blocks:
        return write_blocks(c_, copy, operand.blocks, read, operand.sequence, name_);
      case Way::Rows:
        return write_row_copy(c_, copy, operand.rows, tiling_.pitch, operand.panel);
      case Way::Ordered:
        return write_permuted(c_, copy, operand.permutation);
    }
    return {};
  }

  /// Where a copy is made.
  Refused place(const std::string& copy, const OperandTiling& operand, bool constant) {
    const auto at = [&](const std::string& loop, const std::string& scope) {
      return c_.add({"compute_at", copy, {loop}, {}, scope, {}});
    };
    if (operand.at_lane_tiles) return at(c_.outermost_part(name_, lane_tiles_.loop), name_);
    if (operand.depth > 0 && name_ == scope_)
      return at(c_.outermost_part(name_, loops_[operand.depth - 1]), name_);
    if (operand.depth > 0 && operand.depth == staged_.depth) return at(staged_.loop, scope_);
    return constant && operand.way != Way::Rows ? Refused{} : place_beside(c_, copy, name_);
  }

  Construction& c_;
  const std::string& scope_;
  Staged staged_;
  const std::string& name_ = staged_.heavy;
  const ScopeFacts& facts_;
  const Tiling& tiling_;
  std::vector<std::string> loops_, copies_;  // by loop and by read
  std::vector<BaseLoop> bases_;
  std::vector<std::string> tile_, order_, repeated_;
  std::size_t parts_behind_ = 0;
  std::string filling_, incomplete_;
  Tiles row_tiles_, column_tiles_, lane_tiles_;
  std::vector<Tiles> peeled_;
  std::vector<std::int64_t> row_cuts_;  // where a tile of rows reads what it reads in place guarded otherwise
  bool in_place_ = false;
};

}  // namespace

Refused write_tiling(Construction& c, const std::string& scope, const ScopeFacts& facts,
                     const Tiling& tiling) {
  return TilingWriter(c, scope, facts, tiling).write();
}

}  // namespace syno::construct
