// Where a tiling's results go: where they lie, or into a tile, or a tensor, of an order of its own, which is
// copied out.
#include <algorithm>

#include "construct/tiling.hpp"

namespace syno::construct {

namespace {

OrRefusal<Staged> stage(Construction& c, const std::string& scope, const char* suffix) {
  const std::string heavy = program::fresh_tensor_name(c.plan.program, scope + suffix);
  SYNO_ACCEPT(c.add({"stage", scope, {}, {}, scope, {heavy}}));
  return Staged{heavy, {}, 0};
}

/// Rows run over the pitch of a copy: the caller's memory, and what an epilogue reads beside, know nothing of
/// the dead iterations between two rows. As many rows as a tile has at a time, else all of a batch's.
OrRefusal<Staged> stage_rows(Construction& c, const std::string& scope, const ScopeFacts& facts,
                             const Tiling& tiling) {
  SYNO_TAKE(staged, stage(c, scope, "_tile"));
  SYNO_ACCEPT(c.apply(scope, facts.splits));
  const std::vector<std::string> names = c.leaves(scope);
  const std::size_t first = tiling.lanes.front(),
                    before = tiling.rows.empty() ? first : std::min(tiling.rows.front(), first);
  std::int64_t batch = 1;
  for (std::size_t i = 0; i < before; ++i) batch *= facts.extents[i];
  std::string around;
  if (!tiling.rows.empty() && tiling.rows.front() == before) {
    const std::int64_t rows = facts.extents[before];
    if (rows % tiling.row_size == 0 && rows > tiling.row_size) {
      SYNO_TAKE(parts, c.split(scope, names[before], tiling.row_size));
      around = parts.first;
    }
  }
  if (around.empty() && batch > 1) around = names[before - 1];
  SYNO_ACCEPT(c.vectorize_innermost(scope));
  if (!around.empty()) SYNO_ACCEPT(c.add({"compute_at", staged.heavy, {around}, {}, scope, {}}));
  if (!around.empty() && batch > 1) {
    staged.loop = names[before - 1];
    staged.depth = before;
  }
  c.parallel_outermost(scope, around.empty() ? 0 : facts.points());
  return staged;
}

/// Whether the lanes of a group, which are a part of their iterator, are cut into such blocks as all lanes
/// are where there are no groups: a panel then serves all rows. Rows that are all computed together anyway
/// need that only where the panels of a group do not stay near.
bool cut_in_groups(const ScopeFacts& facts, const Tiling& tiling, bool rows_innermost) {
  if (!rows_innermost && !tiling.far_groups) return false;
  const std::size_t along = tiling.lanes.back(), iterator = facts.iterators[along];
  const auto parts =
      std::count(facts.iterators.begin(),
                 facts.iterators.begin() + static_cast<std::ptrdiff_t>(facts.traversal), iterator);
  const bool innermost = along + 1 == facts.traversal || facts.iterators[along + 1] != iterator;
  return parts == 2 && innermost && facts.iterators[tiling.rows.back()] != iterator &&
         facts.extents[along] % tiling.width == 0;
}

/// The output is copied from a tile that has the lanes innermost, a tile's width of them at a time. Parts of
/// other split iterators stay together.
OrRefusal<Staged> stage_turned(Construction& c, const std::string& scope, const ScopeFacts& facts,
                               const Tiling& tiling) {
  SYNO_TAKE(staged, stage(c, scope, "_tile"));
  const std::vector<std::string> names = c.leaves(scope);
  const std::size_t along = facts.iterators[tiling.lanes.back()], rows = facts.iterators[tiling.rows.back()];
  std::vector<bool> whole(names.size(), false);
  for (std::size_t i = 0; i < facts.traversal; ++i)
    if (facts.split(i)) whole[facts.iterators[i]] = true;
  const auto with_rows = [&](std::size_t i) {
    return i == rows || whole[i] || i == facts.iterators[tiling.rows.front()];
  };
  std::vector<std::string> order, outside;
  // Rows that lie innermost are copied out a tile at a time, if a panel is not to serve all of them. Where
  // other dimensions lie further in, all that follows the lanes is copied out together, so that it is written
  // in the order it lies.
  const bool rows_innermost = rows + 1 == names.size() && !whole[rows] && !tiling.all_rows;
  std::string inner = names[along], place;
  if (whole[along] && cut_in_groups(facts, tiling, rows_innermost)) {
    SYNO_TAKE(parts, c.split(scope, inner, facts.extents[tiling.lanes.back()]));
    outside.push_back(parts.first);
    inner = parts.second;
    whole[along] = false;
  }
  if (!whole[along] && c.extent(scope, inner) > tiling.width) {
    SYNO_TAKE(parts, c.split(scope, inner, tiling.width));
    outside.push_back(parts.first);
    inner = parts.second;
  }
  std::vector<std::string> inside, behind;  // of the copied piece: up to the lanes, and behind them
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i == along)
      inside.push_back(inner);
    else if (with_rows(i))
      (i < along ? inside : behind).push_back(names[i]);
    else if (i < along)
      order.push_back(names[i]);
    else
      (rows_innermost ? outside : behind).push_back(names[i]);
  }
  order.insert(order.end(), outside.begin(), outside.end());
  if (!order.empty()) place = order.back();
  order.insert(order.end(), inside.begin(), inside.end());
  order.insert(order.end(), behind.begin(), behind.end());
  SYNO_ACCEPT(c.add({"reorder", scope, order, {}, "", {}}));
  std::string last = behind.empty() ? inside.back() : behind.back();
  for (std::size_t i = behind.size(); i-- > 1;) {
    SYNO_TAKE(fused, c.fuse(scope, behind[i - 1], last));
    last = fused;
  }
  SYNO_ACCEPT(c.vectorize_copy(scope, inner));
  if (!place.empty()) SYNO_ACCEPT(c.add({"compute_at", staged.heavy, {place}, {}, scope, {}}));
  c.parallel_outermost(scope, place.empty() ? 0 : facts.points());
  return staged;
}

OrRefusal<Staged> stage_whole(Construction& c, const std::string& scope, const ScopeFacts& facts,
                              const Tiling& tiling) {
  SYNO_TAKE(staged, stage(c, scope, "_tile"));
  SYNO_ACCEPT(c.apply(scope, facts.splits));
  SYNO_ACCEPT(c.vectorize_copy(scope, c.leaves(scope)[tiling.lanes.back()]));
  c.parallel_outermost(scope);
  return staged;
}

/// Results are complete one by one: what takes long is better done to vectors of them.
OrRefusal<Staged> stage_sums(Construction& c, const std::string& scope) {
  SYNO_TAKE(staged, stage(c, scope, "_sums"));
  SYNO_ACCEPT(c.vectorize_innermost(scope));
  c.parallel_outermost(scope);
  return staged;
}

}  // namespace

OrRefusal<Staged> stage_result(Construction& c, const std::string& scope, const ScopeFacts& facts,
                               const Tiling& tiling) {
  switch (tiling.result) {
    case Result::InPlace:
      break;
    case Result::Rows:
      return stage_rows(c, scope, facts, tiling);
    case Result::Turned:
      return stage_turned(c, scope, facts, tiling);
    case Result::Whole:
      return stage_whole(c, scope, facts, tiling);
    case Result::Finished:
      return stage_sums(c, scope);
  }
  return Staged{scope, {}, 0};
}

Refused turn_result(Construction& c, const std::string& scope, const ScopeFacts& facts,
                    const Tiling& tiling) {
  std::vector<std::int64_t> permutation;
  const auto last = [&](std::size_t dimension) {
    permutation.push_back(static_cast<std::int64_t>(dimension));
  };
  if (tiling.result == Result::Turned) {
    const std::size_t along = facts.iterators[tiling.lanes.back()];
    const std::size_t rank = c.plan.program.scopes[c.index(scope)].traversal.size();
    for (std::size_t d = 0; d < rank; ++d)
      if (d != along) last(d);
    last(along);
    return c.add({"layout", scope, {}, permutation, scope, {"reorder"}});
  }
  for (std::size_t end = facts.traversal; end > 0;) {  // every loop gets a dimension of its own
    const std::size_t iterator = facts.iterators[end - 1];
    std::size_t first = end;
    while (first > 0 && facts.iterators[first - 1] == iterator) --first;
    if (end - first > 1) {
      std::vector<std::int64_t> parts{static_cast<std::int64_t>(iterator)};
      for (std::size_t i = first; i < end; ++i) parts.push_back(facts.extents[i]);
      SYNO_ACCEPT(c.add({"layout", scope, {}, parts, scope, {"split"}}));
    }
    end = first;
  }
  for (std::size_t i = 0; i < facts.traversal; ++i)
    if (i != tiling.lanes.back() && i != tiling.filling) last(i);
  if (tiling.filling) last(*tiling.filling);
  last(tiling.lanes.back());
  return c.add({"layout", scope, {}, permutation, scope, {"reorder"}});
}

}  // namespace syno::construct
