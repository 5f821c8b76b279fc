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
      : c_(c),
        scope_(scope),
        staged_(stage_result(c, scope, facts, tiling)),
        name_(staged_.heavy),
        facts_(facts),
        tiling_(tiling) {}

  void write() {
    c_.plan.need_domain(c_.index(name_));
    fill_further();
    c_.apply(name_, facts_.splits);
    stage_operands();
    loops_ = c_.leaves(name_);
    make_tile();
    make_order();
    c_.add({"reorder", name_, order_, {}, "", {}});
    if (!filling_.empty()) tile_.back() = c_.fuse(name_, filling_, tile_.back());
    if (c_.extent(name_, tile_.back()) > 1) c_.add({"vectorize", name_, {tile_.back()}, {}, "", {}});
    c_.add({"register_tile", name_, tile_, {}, "", {}});
    peel();
    for (const std::string& loop : repeated_)
      if (c_.extent(name_, loop) > 1) c_.add({"unroll", name_, {loop}, {}, "", {}});
    if (tiling_.ahead) peel_phases(c_, name_);
    c_.parallel_outermost(name_);
    if (tiling_.turned) turn_result(c_, name_, facts_, tiling_);
    write_copies();
    if (!tiling_.ahead) return;
    skip_outside(c_, name_, in_place_);
    prefetch_far(c_, name_);
  }

 private:
  /// A loop over tiles of so many iterations; none where one tile has all of them.
  struct Tiles {
    std::string loop;
    bool incomplete = false;
    bool rows = false;
  };

  void fill_further() {
    if (!tiling_.filling) return;
    const std::int64_t extent = facts_.extents[*tiling_.filling], whole = up(extent, tiling_.filled);
    if (whole > extent)
      c_.add({"relax", name_, {c_.leaves(name_)[facts_.iterators[*tiling_.filling]]}, {whole}, "", {}});
  }

  void stage_operands() {
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
      copies_[r] = c_.stage_read(name_, facts_.reads[r], operand.suffix);
    }
  }

  /// One loop of several.
  std::string fused(const std::vector<std::size_t>& loops) {
    std::string made = loops_[loops.back()];
    for (std::size_t i = loops.size() - 1; i-- > 0;) made = c_.fuse(name_, loops_[loops[i]], made);
    return made;
  }

  /// The part of a loop that is in the tile; `tiles` is the one over tiles.
  std::string cut(const std::string& loop, std::int64_t size, Tiles& tiles) {
    const std::int64_t extent = c_.extent(name_, loop);
    if (extent <= size) return loop;
    const auto [outer, inner] = c_.split(name_, loop, size);
    tiles = {outer, extent % size != 0};
    return inner;
  }

  void make_tile() {
    const std::size_t lanes = tiling_.lanes.size();
    for (std::size_t i = tiling_.pitch.size(); i-- > 1;)
      if (tiling_.pitch[i] > facts_.extents[tiling_.lanes[i]])
        c_.add({"relax", name_, {loops_[tiling_.lanes[i]]}, {tiling_.pitch[i]}, "", {}});
    std::string lane = fused(tiling_.lanes);
    if (lanes > 1) bases_.push_back({lane, tiling_.lanes});
    for (const auto* side : {&tiling_.rows, &tiling_.columns}) {
      if (side->empty()) continue;
      const bool rows = side == &tiling_.rows;
      std::string loop = fused(*side);
      if (side->size() > 1) bases_.push_back({loop, *side});
      if (holds(*side, tiling_.filling.value_or(facts_.extents.size()))) loop = cut_filling(loop);
      Tiles& tiles = rows ? row_tiles_ : column_tiles_;
      tile_.push_back(cut(loop, rows ? tiling_.row_size : tiling_.column_size, tiles));
      tiles.rows = rows;
    }
    if (tiling_.columns_first) std::swap(tile_[0], tile_[1]);
    lane = cut(lane, tiling_.width, lane_tiles_);
    if (c_.extent(name_, lane) > c_.lanes) {
      const auto [outer, inner] = c_.split(name_, lane, c_.lanes);
      tile_.push_back(outer);
      lane = inner;
    }
    tile_.push_back(lane);
  }

  /// The part of a loop that is around the vectors it fills.
  std::string cut_filling(const std::string& loop) {
    filling_ = loop;
    if (c_.extent(name_, loop) == tiling_.filled) return {};
    const auto [outer, inner] = c_.split(name_, loop, tiling_.filled);
    filling_ = inner;
    return outer;
  }

  void make_order() {
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
    cut_into_blocks(c_, name_, bases_, tiling_.blocks, order_, outside);
  }

  void add_loop(std::size_t loop) {
    if (loop == tiling_.filling) {
      const std::string around = cut_filling(loops_[loop]);
      if (!around.empty()) order_.push_back(around);
      return;
    }
    order_.push_back(loops_[loop]);
    if (tiling_.cut_borders && facts_.extents[loop] > 1) peeled_.push_back({loops_[loop]});
  }

  void add_tiles(const Tiles& tiles) {
    if (tiles.loop.empty()) return;
    order_.push_back(tiles.loop);
    peeled_.push_back(tiles);
  }

  void add_sums() {
    std::vector<std::string> around, repeated;
    for (std::size_t i = facts_.traversal; i < facts_.extents.size(); ++i) {
      if (holds(tiling_.lanes, i) || holds(tiling_.sliding, i)) continue;
      if (holds(tiling_.unrolled, i)) {
        repeated.push_back(loops_[i]);
      } else if (tiling_.blocked && tiling_.blocked->first == i) {
        Tiles blocks;
        repeated.push_back(cut(loops_[i], tiling_.blocked->second, blocks));
        if (blocks.loop.empty()) continue;
        around.push_back(blocks.loop);
        peeled_.push_back(blocks);
      } else {
        around.push_back(loops_[i]);
      }
    }
    const ReductionLoops parts = in_parts(c_, name_, around, tiling_.steps);
    put_around(c_, name_, order_, parts_behind_, parts);
    order_.insert(order_.end(), parts.inside.begin(), parts.inside.end());
    order_.insert(order_.end(), repeated.begin(), repeated.end());
    repeated_.insert(repeated_.end(), repeated.begin(), repeated.end());
    incomplete_ = parts.incomplete;
  }

  void peel() {
    for (const Tiles& tiles : peeled_) {
      if (tiling_.cut_borders)
        c_.peel(name_, tiles.loop, border_cuts(c_.plan, c_.index(name_), tiles.loop), tiles.incomplete);
      else if (tiles.rows && !row_cuts_.empty() && c_.outermost_part(name_, tiles.loop) == tiles.loop)
        c_.peel(name_, tiles.loop, row_cuts_, tiles.incomplete);
      else if (tiles.incomplete)
        c_.peel_rest(name_, tiles.loop);  // of blocks: borders keep their conditions
    }
    if (!incomplete_.empty()) c_.peel_rest(name_, incomplete_);
    if (!tiling_.blocks.empty()) c_.peel_blocks(name_, loops_);
    std::erase_if(repeated_, [&](const std::string& loop) { return c_.outermost_part(name_, loop) != loop; });
  }

  void write_copies() {
    for (std::size_t r = 0; r < copies_.size(); ++r) {
      const std::string& copy = copies_[r];
      if (copy.empty()) continue;
      const OperandTiling& operand = tiling_.operands[r];
      place(copy, operand, c_.constant(facts_.reads[r].tensor));
      switch (operand.way) {
        case Way::InPlace:
          break;
        case Way::Panels:
          c_.vectorize_innermost(copy);
          break;
        case Way::Blocks:
          write_blocks(c_, copy, operand.blocks, facts_.reads[r], operand.sequence, name_);
          break;
        case Way::Rows:
          write_row_copy(c_, copy, operand.rows, tiling_.pitch, operand.panel);
          break;
        case Way::Ordered:
          write_permuted(c_, copy, operand.permutation);
          break;
      }
      if (operand.way != Way::Panels) c_.prepack(copy, facts_.reads[r].tensor);
    }
  }

  /// Where a copy is made.
  void place(const std::string& copy, const OperandTiling& operand, bool constant) {
    if (operand.at_lane_tiles)
      c_.add({"compute_at", copy, {c_.outermost_part(name_, lane_tiles_.loop)}, {}, name_, {}});
    else if (operand.depth > 0 && name_ == scope_)
      c_.add({"compute_at", copy, {c_.outermost_part(name_, loops_[operand.depth - 1])}, {}, name_, {}});
    else if (operand.depth > 0 && operand.depth == staged_.depth)
      c_.add({"compute_at", copy, {staged_.loop}, {}, scope_, {}});
    else if (!constant || operand.way == Way::Rows)
      place_beside(c_, copy, name_);
  }

  Construction& c_;
  const std::string& scope_;
  Staged staged_;
  const std::string& name_;
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

void write_tiling(Construction& c, const std::string& scope, const ScopeFacts& facts, const Tiling& tiling) {
  TilingWriter(c, scope, facts, tiling).write();
}

}  // namespace syno::construct
