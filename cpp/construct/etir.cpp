#include "construct/etir.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "support/interrupt.hpp"

namespace syno::construct {

namespace {

/// Of a cache that blocks may use: associativity and whatever else is there take the rest.
constexpr double kUsable = 0.75;

double ceil_divide(double a, double b) { return std::ceil(a / b - 1e-9); }

/// The steps that a tile of the farthest cache stands for: the most that are not above it; 0, all, where it
/// is larger than any part.
std::int64_t nearest_part(const std::vector<std::int64_t>& parts, std::int64_t tile) {
  if (tile > parts.back()) return 0;
  std::int64_t nearest = parts[std::min<std::size_t>(1, parts.size() - 1)];
  for (const std::int64_t part : parts)
    if (part > 0 && part <= tile) nearest = part;
  return nearest;
}

}  // namespace

std::string_view name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::Tile:
      return "tile";
    case ActionKind::InvTile:
      return "invTile";
    case ActionKind::Cache:
      return "cache";
    case ActionKind::SetVThread:
      return "setVThread";
  }
  return "?";
}

EtirGraph::EtirGraph(const ScopeFacts& facts, const Sketch& sketch, const Machine& machine,
                     std::int64_t element_bytes, const BenefitOptions& options)
    : facts_(facts),
      sketch_(sketch),
      machine_(machine),
      bytes_(static_cast<double>(element_bytes)),
      line_(static_cast<double>(machine.levels[0].line_bytes) / static_cast<double>(element_bytes)),
      lanes_(std::max<std::int64_t>(1, machine.lanes(std::max<std::int64_t>(4, element_bytes)))),
      options_(options) {
  capacities_.push_back(static_cast<double>(machine.vector_registers));
  // The two caches nearest to the core: one beyond them is shared, and where data comes from.
  for (std::size_t l = 0; l + 1 < machine.levels.size() && capacities_.size() < 3; ++l)
    capacities_.push_back(kUsable * static_cast<double>(machine.levels[l].usable()));
  std::vector<bool> taken(facts.extents.size(), false);
  for (std::size_t c = 0; c < sketch.choices.size(); ++c) {
    const Choice& choice = sketch.choices[c];
    if (choice.loops.empty()) continue;
    EtirDim dim;
    dim.name = choice.name;
    dim.loops = choice.loops;
    for (const std::size_t loop : choice.loops) {
      dim.extent *= facts.extents[loop];
      dim.reduction = dim.reduction || loop >= facts.traversal;
      taken[loop] = true;
    }
    // Vectors, and sums of lanes, are interleaved; rows and columns are tiles.
    const bool interleaved = choice.name == "vectors" || choice.name == "chains";
    // Steps of the reduction are a tile of caches alone.
    dim.parts = choice.name == "steps";
    if (dim.parts)
      dim.name = "k";
    else
      (interleaved ? dim.thread_choice : dim.tile_choice) = static_cast<int>(c);
    dim.unit = interleaved ? std::min(lanes_, dim.extent) : 1;
    dims_.push_back(std::move(dim));
  }
  for (std::size_t i = 0; i < facts.extents.size(); ++i) {
    if (taken[i] || facts.extents[i] == 1) continue;
    EtirDim dim;
    dim.name = fmt::format("{}{}", i < facts.traversal ? "i" : "k", i);
    dim.extent = facts.extents[i];
    dim.reduction = i >= facts.traversal;
    dim.loops = {i};
    dims_.push_back(std::move(dim));
  }
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    steps_.emplace_back();
    for (std::size_t level = 0; level < capacities_.size(); ++level)
      steps_.back().push_back(steps_of(d, level));
  }
}

Etir EtirGraph::start() const {
  Etir state;
  state.level = capacities_.size() - 1;
  state.vthreads.assign(dims_.size(), 1);
  for (const EtirDim& dim : dims_) state.tiles.emplace_back(capacities_.size(), dim.unit);
  return state;
}

std::int64_t EtirGraph::register_tile(const Etir& state, std::size_t dim) const {
  return std::min(dims_[dim].extent, state.tiles[dim][0] * state.vthreads[dim]);
}

InlineVector<std::int64_t, 10> EtirGraph::loop_tiles(const Etir& state, std::size_t level) const {
  InlineVector<std::int64_t, 10> tiles(facts_.extents.size(), 1);
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    std::int64_t rest = level == 0 ? register_tile(state, d) : state.tiles[d][level];
    for (std::size_t i = dims_[d].loops.size(); i-- > 0;) {  // the innermost loop is filled first
      const std::size_t loop = dims_[d].loops[i];
      tiles[loop] = std::min(rest, facts_.extents[loop]);
      rest = (rest + facts_.extents[loop] - 1) / facts_.extents[loop];
    }
  }
  return tiles;
}

EtirGraph::Bytes EtirGraph::bytes(const Etir& state, std::size_t level) const {
  const auto tiles = loop_tiles(state, level);
  double inputs = 0;  // elements
  for (const auto& read : facts_.reads) {
    const BoxFacts& box = read.box;
    double points = 1, reached = 1;  // of the box, and of the loops that move the read
    for (std::size_t i = 0; i < tiles.size(); ++i)
      if (read.depends[i]) reached *= static_cast<double>(tiles[i]);
    for (std::size_t d = 0; d < box.extents.size(); ++d) {
      double extent = 1;
      for (std::size_t i = 0; i < tiles.size(); ++i)
        extent += static_cast<double>(std::abs(box.coefficients[d][i]) * (tiles[i] - 1));
      extent = std::min(box.linear[d] ? extent : reached, static_cast<double>(box.extents[d]));
      const bool innermost = d + 1 == box.extents.size();
      points *= innermost && level > 0 && !state.packed ? ceil_divide(extent, line_) * line_ : extent;
    }
    inputs += points;
  }
  double visits = 1, outputs = 1, output = 1;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const double count = ceil_divide(static_cast<double>(facts_.extents[i]), static_cast<double>(tiles[i]));
    visits *= count;
    if (i >= facts_.traversal) continue;
    outputs *= count;
    output *= static_cast<double>(tiles[i]);
  }
  // Sums stay in registers until they are whole: results are written once.
  return {(inputs + output) * bytes_, (inputs * visits + output * outputs) * bytes_};
}

double EtirGraph::footprint(const Etir& state, std::size_t level) const {
  return bytes(state, level).footprint;
}
double EtirGraph::traffic(const Etir& state, std::size_t level) const { return bytes(state, level).traffic; }

double EtirGraph::accumulators(const Etir& state) const {
  double count = 1;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    if (dims_[d].tile_choice >= 0) count *= static_cast<double>(register_tile(state, d));
    if (dims_[d].thread_choice >= 0) count *= static_cast<double>(state.vthreads[d]);
  }
  return count;
}

bool EtirGraph::fits(const Etir& state, std::size_t level) const {
  if (level > 0) return footprint(state, level) <= capacities_[level];
  return sketch_.fits(numbers(state));
}

std::vector<std::int64_t> EtirGraph::steps_of(std::size_t dim, std::size_t level) const {
  const EtirDim& d = dims_[dim];
  if (level == 0) {
    if (d.tile_choice >= 0) return sketch_.choices[static_cast<std::size_t>(d.tile_choice)].values;
    return {d.unit};
  }
  std::vector<std::int64_t> values;
  for (std::int64_t value = d.unit; value < d.extent; value *= 2) values.push_back(value);
  values.push_back(d.extent);
  return values;
}

Etir EtirGraph::apply(const Etir& state, const Action& action) const {
  Etir next = state;
  switch (action.kind) {
    case ActionKind::Tile:
    case ActionKind::InvTile:
      next.tiles[action.dim][state.level] = action.value;
      break;
    case ActionKind::Cache:
      next.level = state.level - 1;
      next.packed = state.packed || action.value == 1;
      break;
    case ActionKind::SetVThread:
      next.vthreads[action.dim] = action.value;
      break;
  }
  return next;
}

double EtirGraph::benefit_of_tile(const Bytes& before, const Bytes& after) const {
  const double less_traffic = before.traffic / after.traffic;
  const double more_footprint = after.footprint / before.footprint;
  return options_.printed ? less_traffic * more_footprint : less_traffic / more_footprint;
}

double EtirGraph::benefit_of_cache(const Etir& state, bool pack) const {
  // Level l is filled from machine level l (main memory beyond the last cache); registers from L1.
  const MemoryLevel& low = machine_.levels[std::min(state.level, machine_.levels.size() - 1)];
  const MemoryLevel& high = machine_.levels[state.level - 1];
  const double bytes = footprint(state, state.level);
  double benefit = (low.latency_ns + bytes / low.read_gbs) / (high.latency_ns + bytes / high.read_gbs);
  if (pack) {
    // A copied panel has no partly used lines and none that fall on one another; the copy is paid once.
    Etir packed = state;
    packed.packed = true;
    benefit *= footprint(state, state.level) / footprint(packed, state.level);
  }
  return benefit;
}

double EtirGraph::benefit_of_vthreads(const Etir& before, const Etir& after, std::size_t dim) const {
  // Formula (3), from the present number instead of from one, so that it depends on the state alone.
  const double width = static_cast<double>(dims_[dim].unit), x = static_cast<double>(dims_[dim].extent);
  const auto threads = [&](const Etir& s) { return static_cast<double>(s.vthreads[dim]); };
  const double banks = ceil_divide(x, threads(before) * width) / ceil_divide(x, threads(after) * width);
  const double needed = machine_.fma_latency_cycles * machine_.fma_pipes();
  const double chains = ceil_divide(needed, accumulators(before)) / ceil_divide(needed, accumulators(after));
  return after.vthreads[dim] > before.vthreads[dim] ? std::max(banks, chains) : std::min(banks, chains);
}

std::vector<EtirGraph::Edge> EtirGraph::edges(const Etir& state, double t, bool annealing) const {
  interruption_point();
  std::vector<Edge> found;
  found.reserve(4 * dims_.size() + 2);
  const Bytes before = bytes(state, state.level);
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const auto& values = steps_[d][state.level];
    const auto at = std::find(values.begin(), values.end(), state.tiles[d][state.level]) - values.begin();
    for (const int direction : {1, -1}) {
      if (direction < 0 && !options_.inverse) continue;
      const auto to = at + direction;
      if (to < 0 || to >= static_cast<std::ptrdiff_t>(values.size())) continue;
      Action action{direction > 0 ? ActionKind::Tile : ActionKind::InvTile, d,
                    values[static_cast<std::size_t>(to)]};
      const Etir next = apply(state, action);
      const Bytes next_bytes = bytes(next, state.level);
      const bool fitting =
          state.level > 0 ? next_bytes.footprint <= capacities_[state.level] : fits(next, state.level);
      if (direction > 0 && !fitting) continue;
      found.push_back({action, benefit_of_tile(before, next_bytes)});
    }
    if (state.level > 0 || !options_.vthreads || dims_[d].thread_choice < 0) continue;
    const auto& threads = sketch_.choices[static_cast<std::size_t>(dims_[d].thread_choice)].values;
    const auto now = std::find(threads.begin(), threads.end(), state.vthreads[d]) - threads.begin();
    for (const int direction : {1, -1}) {
      const auto to = now + direction;
      if (to < 0 || to >= static_cast<std::ptrdiff_t>(threads.size())) continue;
      Action action{ActionKind::SetVThread, d, threads[static_cast<std::size_t>(to)]};
      const Etir next = apply(state, action);
      if (!fits(next, 0)) continue;
      found.push_back({action, benefit_of_vthreads(state, next, d)});
    }
  }
  if (state.level > 0) {
    const double more = annealing ? 3 / (1 + std::exp(-(std::log(5.0) / 10) * (t - 10))) : 1;
    found.push_back({{ActionKind::Cache, 0, 0}, more * benefit_of_cache(state, false)});
    const bool packs = std::any_of(sketch_.choices.begin(), sketch_.choices.end(),
                                   [](const Choice& c) { return c.name == "packed"; });
    if (packs && !state.packed)
      found.push_back({{ActionKind::Cache, 0, 1}, more * benefit_of_cache(state, true)});
  }
  return found;
}

Numbers EtirGraph::numbers(const Etir& state) const {
  Numbers made;
  for (const Choice& choice : sketch_.choices)
    made.*choice.number = choice.values.empty() ? 1 : choice.values.front();
  double row_share = 1, column_share = 1;
  std::int64_t part = 0;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const EtirDim& dim = dims_[d];
    if (dim.tile_choice >= 0)
      made.*sketch_.choices[static_cast<std::size_t>(dim.tile_choice)].number = state.tiles[d][0];
    if (dim.thread_choice >= 0)
      made.*sketch_.choices[static_cast<std::size_t>(dim.thread_choice)].number = state.vthreads[d];
    const double share = static_cast<double>(state.tiles[d].back()) / static_cast<double>(dim.extent);
    if (dim.name == "rows") row_share = share;
    if (dim.name == "vectors") column_share = share;
    if (dim.parts) part = state.tiles[d].back();
  }
  // The block of the farthest cache says what stays there while the other operand passes by.
  for (const Choice& choice : sketch_.choices) {
    if (choice.name == "vectors_outer") made.vectors_outer = row_share >= column_share ? 1 : 0;
    if (choice.name == "packed") made.packed = state.packed ? 1 : 0;
    if (choice.name == "steps") made.steps = nearest_part(choice.values, part);
  }
  return made;
}

bool EtirGraph::cuts(const std::vector<std::size_t>& loops) const {
  return std::find(sketch_.blocks.begin(), sketch_.blocks.end(), loops) != sketch_.blocks.end();
}

std::vector<std::int64_t> EtirGraph::spread(const EtirDim& dim, std::int64_t tile) const {
  std::vector<std::int64_t> tiles(dim.loops.size(), 1);
  for (std::size_t i = dim.loops.size(); i-- > 0;) {
    const std::int64_t extent = facts_.extents[dim.loops[i]];
    tiles[i] = tile >= extent ? extent : even_part(extent, tile);
    tile /= tiles[i];
    if (tile <= 1 || tiles[i] < extent) break;
  }
  return tiles;
}

Etir EtirGraph::settled(const Etir& state) const {
  Etir made = state;
  made.level = 0;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const EtirDim& dim = dims_[d];
    const bool apart = dim.parts && std::all_of(dim.loops.begin(), dim.loops.end(), [&](std::size_t loop) {
                         return facts_.extents[loop] == 1 || cuts({loop});
                       });
    const std::int64_t below = register_tile(state, d);
    std::int64_t around = dim.extent;  // of the level that was settled last, the farther one
    for (std::size_t level = capacities_.size(); level-- > 1;) {
      std::int64_t tile = std::min(around, std::max(below, state.tiles[d][level]));
      if (dim.parts && level + 1 == capacities_.size()) {  // as numbers() has it
        const auto steps = std::find_if(sketch_.choices.begin(), sketch_.choices.end(),
                                        [](const Choice& choice) { return choice.name == "steps"; });
        tile = nearest_part(steps->values, state.tiles[d][level]);
        if (tile == 0) tile = dim.extent;
      }
      if (dim.parts && apart && tile < around) {
        const auto loops = spread(dim, tile);
        tile = 1;
        for (const std::int64_t part : loops) tile *= part;
      } else if (dim.parts || !cuts(dim.loops)) {
        tile = dim.extent;
      } else if (tile < around) {
        const std::int64_t count = (around + below - 1) / below;
        tile = std::min(around, below * even_part(count, std::max<std::int64_t>(1, tile / below)));
      }
      if (dim.reduction && tile <= below) tile = around;  // sums would be kept at each step
      made.tiles[d][level] = around = tile;
    }
  }
  return made;
}

std::vector<CacheTiles> EtirGraph::blocks(const Etir& settled) const {
  std::vector<CacheTiles> made;
  bool any = false;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const EtirDim& dim = dims_[d];
    const std::size_t first = made.size();
    if (dim.parts)
      for (const std::size_t loop : dim.loops) made.push_back({{loop}, {}});
    else if (cuts(dim.loops))
      made.push_back({dim.loops, {}});
    for (std::size_t level = capacities_.size(); level-- > 1 && made.size() > first;) {
      const std::int64_t tile = settled.tiles[d][level];
      // Parts of the reduction alone are a number of the sketch.
      const bool part = dim.parts && level + 1 == capacities_.size();
      any = any || (!part && register_tile(settled, d) < tile &&
                    tile < (level + 1 < capacities_.size() ? settled.tiles[d][level + 1] : dim.extent));
      const auto loops = dim.parts ? spread(dim, tile) : std::vector<std::int64_t>{tile};
      for (std::size_t i = 0; i < loops.size(); ++i) made[first + i].tiles.push_back(loops[i]);
    }
  }
  if (!any) made.clear();
  return made;
}

std::vector<CacheTiles> EtirGraph::parts(std::int64_t steps) const {
  std::vector<CacheTiles> made;
  for (const EtirDim& dim : dims_) {
    if (!dim.parts) continue;
    const auto tiles = spread(dim, steps);
    for (std::size_t i = 0; i < tiles.size(); ++i) made.push_back({{dim.loops[i]}, {tiles[i]}});
  }
  return made;
}

double EtirGraph::moving(const Etir& state) const {
  double seconds = 0;
  for (std::size_t level = 1; level < capacities_.size(); ++level) {
    if (!fits(state, level)) return std::numeric_limits<double>::infinity();
    seconds += traffic(state, level) / machine_.levels[std::min(level, machine_.levels.size() - 1)].read_gbs;
  }
  return seconds * 1e-9;
}

bool EtirGraph::overflows() const {
  Etir whole = start();
  for (std::size_t d = 0; d < dims_.size(); ++d) whole.tiles[d].back() = dims_[d].extent;
  return !fits(whole, capacities_.size() - 1);
}

std::vector<Etir> EtirGraph::all(std::size_t most) const {
  std::vector<Etir> found;
  std::vector<std::size_t> digits(sketch_.choices.size(), 0);
  const auto dim_named = [&](std::string_view name) {
    return std::find_if(dims_.begin(), dims_.end(), [&](const EtirDim& dim) { return dim.name == name; });
  };
  const auto rows = dim_named("rows"), vectors = dim_named("vectors");
  const auto set = [&](Etir& state, auto dim, std::int64_t tile) {
    if (dim != dims_.end()) state.tiles[static_cast<std::size_t>(dim - dims_.begin())].back() = tile;
  };
  for (bool more = true; more && found.size() < most;) {
    interruption_point();
    Etir state = start();
    state.level = 0;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      const EtirDim& dim = dims_[d];
      const auto value = [&](int choice) {
        const auto c = static_cast<std::size_t>(choice);
        const auto& values = sketch_.choices[c].values;
        return values.empty() ? std::int64_t{1} : values[digits[c]];
      };
      if (dim.tile_choice >= 0) state.tiles[d][0] = value(dim.tile_choice);
      if (dim.thread_choice >= 0) state.vthreads[d] = value(dim.thread_choice);
    }
    for (std::size_t c = 0; c < sketch_.choices.size(); ++c) {
      const Choice& choice = sketch_.choices[c];
      if (choice.values.empty()) continue;
      const std::int64_t value = choice.values[digits[c]];
      if (choice.name == "packed") state.packed = value != 0;
      if (choice.name == "steps") {
        const auto k = dim_named("k");
        set(state, k, value > 0 ? value : k->extent);
      }
      if (choice.name == "vectors_outer") {
        if (rows != dims_.end()) set(state, rows, value ? rows->extent : rows->unit);
        if (vectors != dims_.end()) set(state, vectors, value ? vectors->unit : vectors->extent);
      }
    }
    if (fits(state, 0)) found.push_back(std::move(state));
    more = false;
    for (std::size_t c = digits.size(); c-- > 0 && !more;) {
      more = ++digits[c] < sketch_.choices[c].values.size();
      if (!more) digits[c] = 0;
    }
  }
  return found;
}

std::string EtirGraph::to_text(const Etir& state) const {
  std::string text;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const auto& tiles = state.tiles[d];
    const auto outermost = std::make_reverse_iterator(tiles.end());
    text += fmt::format("{}{}[{}]", d ? " " : "", dims_[d].name,
                        fmt::join(outermost, outermost + static_cast<std::ptrdiff_t>(tiles.size()), ","));
    if (state.vthreads[d] > 1) text += fmt::format("x{}", state.vthreads[d]);
  }
  return text + (state.packed ? " packed" : "");
}

std::string EtirGraph::to_text(const Action& action) const {
  if (action.kind == ActionKind::Cache) return action.value ? "cache, packed" : "cache";
  return fmt::format("{} {} {}", name_of(action.kind), dims_[action.dim].name, action.value);
}

}  // namespace syno::construct
