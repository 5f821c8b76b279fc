// A tiling in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "construct/tiling.hpp"

namespace syno::construct {

namespace {

class TilingText {
 public:
  TilingText(const Tiling& tiling, const ScopeFacts& facts) : tiling_(tiling), facts_(facts) {}

  std::string text() const {
    std::string text = fmt::format("tile    {}\naround  {}\n", tile(), around());
    for (std::size_t r = 0; r < tiling_.operands.size(); ++r)
      if (tiling_.operands[r].way != Way::InPlace)
        text += fmt::format("{:7} {}\n", facts_.reads[r].name, operand(tiling_.operands[r]));
    for (const CacheTiles& tiles : tiling_.blocks)
      text += fmt::format("blocks  {} x {}\n", names(tiles.loops), fmt::join(tiles.tiles, ", "));
    const std::string moved = result();
    return moved.empty() ? text : text + fmt::format("result  {}\n", moved);
  }

 private:
  std::string names(const std::vector<std::size_t>& loops) const {
    std::vector<std::string> made;
    for (const std::size_t loop : loops) made.push_back(facts_.names[loop]);
    return fmt::format("{}", fmt::join(made, " "));
  }

  std::string tile() const {
    std::vector<std::string> sides;
    const auto side = [&](const std::vector<std::size_t>& loops, std::int64_t size) {
      if (!loops.empty()) sides.push_back(fmt::format("{} x {}", names(loops), size));
    };
    if (tiling_.columns_first) side(tiling_.columns, tiling_.column_size);
    side(tiling_.rows, tiling_.row_size);
    if (!tiling_.columns_first) side(tiling_.columns, tiling_.column_size);
    std::string lanes;
    if (tiling_.filling) lanes = fmt::format("{} x {} with ", facts_.names[*tiling_.filling], tiling_.filled);
    lanes += names(tiling_.lanes);
    for (std::size_t i = 1; i < tiling_.pitch.size(); ++i)
      if (tiling_.pitch[i] != facts_.extents[tiling_.lanes[i]])
        lanes += fmt::format(", {} to {}", facts_.names[tiling_.lanes[i]], tiling_.pitch[i]);
    sides.push_back(fmt::format("{} x {} in vectors", lanes, tiling_.width));
    return fmt::format("{}", fmt::join(sides, "; "));
  }

  std::string around() const {
    std::vector<std::string> loops;
    for (const Around& each : tiling_.around) {
      switch (each.of) {
        case Around::Of::Loop:
          loops.push_back(facts_.names[each.loop]);
          break;
        case Around::Of::Rows:
          tiles(tiling_.rows, loops);
          break;
        case Around::Of::Columns:
          tiles(tiling_.columns, loops);
          break;
        case Around::Of::Lanes:
          tiles(tiling_.lanes, loops);
          break;
        case Around::Of::Sums:
          loops.push_back(sums());
          break;
      }
    }
    std::erase(loops, "");
    return fmt::format("{}", fmt::join(loops, "; "));
  }

  void tiles(const std::vector<std::size_t>& loops, std::vector<std::string>& to) const {
    if (!loops.empty()) to.push_back("tiles of " + names(loops));
  }

  std::string sums() const {
    const auto in = [](const std::vector<std::size_t>& loops, std::size_t i) {
      return std::find(loops.begin(), loops.end(), i) != loops.end();
    };
    std::vector<std::string> around, repeated, sliding;
    for (std::size_t i = facts_.traversal; i < facts_.extents.size(); ++i) {
      if (in(tiling_.lanes, i)) continue;
      const std::string& name = facts_.names[i];
      if (in(tiling_.sliding, i))
        sliding.push_back(name);
      else if (in(tiling_.unrolled, i))
        repeated.push_back(name);
      else if (tiling_.blocked && tiling_.blocked->first == i)
        around.push_back(fmt::format("{} by {} unrolled", name, tiling_.blocked->second));
      else
        around.push_back(name);
    }
    std::vector<std::string> parts;
    if (tiling_.steps > 0) parts.push_back(fmt::format("parts of {} steps", tiling_.steps));
    if (!around.empty()) parts.push_back(fmt::format("{}", fmt::join(around, " ")));
    if (!repeated.empty()) parts.push_back(fmt::format("{} unrolled", fmt::join(repeated, " ")));
    if (!sliding.empty())
      parts.push_back(fmt::format("{} unrolled inside the rows", fmt::join(sliding, " ")));
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  std::string operand(const OperandTiling& operand) const {
    std::string text;
    switch (operand.way) {
      case Way::InPlace:
        break;
      case Way::Panels:
        text = "a copy";
        break;
      case Way::Blocks:
        text = fmt::format("a copy in blocks of {}", operand.blocks.width);
        break;
      case Way::Rows:
        text = fmt::format("a padded copy along {}", names(tiling_.lanes));
        if (operand.panel > 0) text += fmt::format(" in panels of {}", operand.panel);
        break;
      case Way::Ordered:
        text = fmt::format("a copy of dimensions {}", fmt::join(operand.permutation, " "));
        break;
    }
    if (operand.spared) text += " where a tile cannot read it in place";
    if (operand.at_lane_tiles) text += fmt::format(", for each tile of {}", names(tiling_.lanes));
    if (operand.depth > 0) {
      std::vector<std::size_t> outer(operand.depth);
      for (std::size_t i = 0; i < operand.depth; ++i) outer[i] = i;
      text += fmt::format(", for each {}", names(outer));
    }
    return text;
  }

  std::string result() const {
    switch (tiling_.result) {
      case Result::InPlace:
        return tiling_.turned ? "lies with the lanes innermost" : "";
      case Result::Rows:
        return "copied out row by row";
      case Result::Turned:
        return "copied out from tiles with the lanes innermost";
      case Result::Whole:
        return "copied out as a whole, with the lanes innermost before";
      case Result::Finished:
        return "finished vector by vector";
    }
    return "";
  }

  const Tiling& tiling_;
  const ScopeFacts& facts_;
};

}  // namespace

std::string to_text(const Tiling& tiling, const ScopeFacts& facts) {
  return TilingText(tiling, facts).text();
}

}  // namespace syno::construct
