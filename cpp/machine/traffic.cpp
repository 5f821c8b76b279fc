#include "machine/traffic.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "machine/tile_cost.hpp"

namespace syno::machine {

namespace {

/// A cache is full of other things, too, and of lines that only partly count.
constexpr double kFill = 0.8;
constexpr double kPage = 4096;       ///< bytes; prefetchers stop at its end
constexpr double kOverlapped = 25;   ///< misses that are under way at once
constexpr double kOutOfOrder = 0.5;  ///< of a miss, where lines of a page come out of order
constexpr double kStreams = 8;       ///< that a prefetcher follows
constexpr double kUnfollowed = 2;    ///< lines of a short stream that come before it does

/// The bytes by which a step of a loop moves an access, and its trips; no bytes where it does not.
std::pair<double, double> moved_by(const Access& access, std::uint32_t loop) {
  double step = 0, trips = 1;
  for (const AddressTerm& term : access.terms)
    for (const auto& [slot, count] : term.loops)
      if (slot == loop) {
        step += static_cast<double>(std::abs(term.coefficient * access.element_bytes));
        trips = count;
      }
  return {step, trips};
}

}  // namespace

Traffic::Traffic(const nest::LoopNest& nest, const NestFacts& facts, const Machine& machine,
                 const PredictOptions& options)
    : nest_(nest),
      facts_(facts),
      machine_(machine),
      options_(options),
      caches_(machine.levels.size() - 1),
      inside_(facts.slot_count, false),
      steps_(facts.accesses.size()),
      unforeseen_(facts.accesses.size(), 0),
      pieces_(facts.accesses.size(), 0),
      asked_(nest.buffers.size(), false),
      far_(nest.buffers.size(), false),
      earlier_(facts.accesses.size()),
      present_(facts.accesses.size(), false) {
  add_unit(machine.levels[0].line_bytes);
  for (std::size_t l = 0; l < caches_; ++l) add_near(machine.levels[l].usable(), &machine.levels[l]);
  const Tlb& tlb = machine.tlb;
  double bytes = 0;
  for (std::size_t b = 0; b < nest.buffers.size(); ++b) bytes += units_[0].of_buffer[b] * units_[0].bytes;
  if (tlb.pages > 0 && bytes > kFill * static_cast<double>(tlb.pages * tlb.page_bytes)) {
    add_unit(tlb.page_bytes);
    add_near(tlb.pages * tlb.page_bytes, nullptr);
  }
  for (std::size_t a = 0; a < earlier_.size(); ++a) share(a);
  for (const nest::Statement& statement : nest.statements)
    if (statement.kind == nest::StatementKind::Prefetch)
      asked_[static_cast<std::size_t>(statement.buffer)] = true;
  for (std::size_t b = 0; options.near && b < nest.buffers.size(); ++b)
    far_[b] =
        nest.buffers[b].kind == nest::BufferKind::Input &&
        std::find(options.near->begin(), options.near->end(), nest.buffers[b].name) == options.near->end();
}

void Traffic::add_unit(std::int64_t bytes) {
  Unit unit{static_cast<double>(bytes), {}, std::vector<double>(facts_.accesses.size(), 0), {}};
  unit.fresh = unit.touched;
  for (const nest::Buffer& buffer : nest_.buffers) {
    double elements = 1;
    for (std::size_t d = 0; d < buffer.extents.size(); ++d)
      elements +=
          std::abs((static_cast<double>(buffer.extents[d]) - 1) * static_cast<double>(buffer.strides[d]));
    unit.of_buffer.push_back(1 + elements * static_cast<double>(nest::byte_size(buffer.dtype)) / unit.bytes);
  }
  units_.push_back(std::move(unit));
}

/// Of the unit that was added last.
void Traffic::add_near(std::int64_t bytes, const MemoryLevel* cache) {
  near_.push_back({units_.size() - 1, kFill * static_cast<double>(bytes), cache,
                   std::vector<double>(facts_.accesses.size(), 0)});
}

/// Which accesses before it an access may share memory with.
void Traffic::share(std::size_t a) {
  for (std::size_t b = 0; b < a; ++b) {
    if (facts_.accesses[a].buffer != facts_.accesses[b].buffer) continue;
    if (move_alike(facts_.accesses[a], facts_.accesses[b]))
      earlier_[a].push_back({b, true});
    else if (!apart(facts_.accesses[a], facts_.accesses[b]))
      earlier_[a].push_back({b, false});
  }
}

// --- What an access touches.

double Traffic::term_width(const AddressTerm& term) const {
  double width = term.repeats;
  for (const auto& [slot, trips] : term.loops)
    if (inside_[slot]) width *= trips;
  return std::min(width, term.width);
}

/// How an access moves while the loops in `inside_` run.
Steps Traffic::steps_of(const Access& access) const {
  Steps made;
  for (const AddressTerm& term : access.terms)
    made.add(std::abs(static_cast<double>(term.coefficient)), term_width(term));
  return made;
}

/// Distinct lines, or pages, of an access that moves so, no more than its buffer has.
double Traffic::distinct(const Unit& unit, const Access& access, const Steps& steps, double* pieces) {
  const double elements = unit.bytes / static_cast<double>(access.element_bytes);
  return std::min(lines_of(steps, elements, pieces), unit.of_buffer[buffer(access)]);
}

double Traffic::lines(const Access& access, double* pieces) const {
  return distinct(units_[0], access, steps_of(access), pieces);
}

/// Distinct lines, or pages, of two accesses that move alike.
double Traffic::together(const Unit& unit, std::size_t before, std::size_t access) const {
  Steps steps = steps_[before];
  if (!join(steps, steps_[access], facts_.accesses[access].least - facts_.accesses[before].least))
    return std::numeric_limits<double>::infinity();
  return distinct(unit, facts_.accesses[access], steps);
}

/// The lines, and pages, of each access that none before it among these touches.
void Traffic::find_fresh(const Accesses& accesses) {
  for (const std::size_t a : accesses) present_[a] = true;
  for (Unit& unit : units_)
    for (const std::size_t a : accesses) {
      double fresh = unit.touched[a];
      for (const Earlier& earlier : earlier_[a]) {
        if (!present_[earlier.access] || fresh == 0) continue;
        const double before = unit.touched[earlier.access];
        const double of_both =
            earlier.alike ? together(unit, earlier.access, a) : std::max(unit.touched[a], before);
        fresh = std::min(fresh, std::max(0.0, of_both - before));
      }
      unit.fresh[a] = fresh;
    }
  for (const std::size_t a : accesses) present_[a] = false;
}

/// Of the lines an access brings in, the share that no prefetcher foresees: those that begin a piece of
/// their own, on another page or out of order within one.
double Traffic::unforeseen(const Access& access) const {
  double pieces = 1;
  const double touched = lines(access, &pieces);
  const double piece = touched / pieces;
  for (std::size_t i = path_.size(); i-- > 0;) {  // the innermost loop that moves it
    const auto [step, trips] = moved_by(access, path_[i]);
    if (step == 0) continue;
    if (step >= kPage) return 1 / piece;
    // Several pieces that each go on in order are streams, if they last.
    const auto line = static_cast<double>(machine_.levels[0].line_bytes);
    const bool goes_on = step <= 2 * piece * line;
    if (goes_on && (pieces <= 2 || (pieces <= kStreams && trips * step >= kPage))) return 0;
    if (goes_on && pieces <= kStreams)
      return std::min(kOutOfOrder / piece, kUnfollowed * line / (trips * step));
    return kOutOfOrder / piece;
  }
  return 0;
}

/// Of the lines an access brings in, the share that the first cache waits for: all of them where they lie in
/// pieces that are too short and too far apart to be followed.
double Traffic::short_piece(const Access& access) const {
  double pieces = 1;
  const auto line = static_cast<double>(machine_.levels[0].line_bytes);
  double run = lines(access, &pieces) / pieces * line;
  for (std::size_t i = path_.size(); i-- > 0;) {
    const auto [step, trips] = moved_by(access, path_[i]);
    if (step == 0) continue;
    if (step > run + line) return followed(run / line, step) ? 0 : 1;
    run += step * (trips - 1);
  }
  return 0;
}

// --- What stays near.

/// Lines that fall on so few places of a cache that its ways do not hold them.
bool Traffic::conflicts(const Access& access, const MemoryLevel& level) const {
  if (level.ways == 0) return false;
  const std::int64_t way = level.bytes / level.ways;
  for (const AddressTerm& term : access.terms) {
    const double width = term_width(term);
    const std::int64_t step = std::abs(term.coefficient) * access.element_bytes;
    if (width <= level.ways || step < level.line_bytes) continue;
    const auto apart = static_cast<double>(std::max(std::gcd(step, way), level.line_bytes));
    if (width * apart > static_cast<double>(level.ways * way)) return true;
  }
  return false;
}

bool Traffic::fits(const Accesses& accesses, std::size_t level) {
  const Near& here = near_[level];
  const Unit& unit = units_[here.unit];
  double bytes = 0;
  by_buffer_.assign(nest_.buffers.size(), 0);
  for (const std::size_t a : accesses) {
    by_buffer_[buffer_of(a)] += unit.fresh[a];
    if (here.cache != nullptr && conflicts(facts_.accesses[a], *here.cache)) return false;
  }
  for (std::size_t b = 0; b < by_buffer_.size(); ++b) {
    if (by_buffer_[b] == 0) continue;
    bytes += std::min(by_buffer_[b] * unit.bytes, buffer_bytes(b) + unit.bytes);
    if (bytes > here.capacity) return false;
  }
  return true;
}

double Traffic::buffer_bytes(std::size_t index) const {
  const nest::Buffer& buffer = nest_.buffers[index];
  double bytes = static_cast<double>(nest::byte_size(buffer.dtype));
  for (const auto extent : buffer.extents) bytes *= static_cast<double>(extent);
  return bytes;
}

// --- Nodes, from the innermost ones outwards.

void Traffic::block(const Accesses& accesses) {
  for (const std::size_t a : accesses) {
    const Access& access = facts_.accesses[a];
    steps_[a] = steps_of(access);
    for (Unit& unit : units_) unit.touched[a] = distinct(unit, access, steps_[a]);
    pieces_[a] = short_piece(access);
    unforeseen_[a] = asked(a) ? 0 : unforeseen(access);
  }
  find_fresh(accesses);
  for (Near& level : near_)
    for (const std::size_t a : accesses) level.into[a] = units_[level.unit].fresh[a];
}

void Traffic::sequence(const Accesses& accesses) {
  find_fresh(accesses);
  for (std::size_t l = 0; l < near_.size(); ++l) {
    if (!fits(accesses, l)) continue;
    std::vector<double>& into = near_[l].into;
    const std::vector<double>& fresh = units_[near_[l].unit].fresh;
    for (const std::size_t a : accesses) into[a] = std::min(into[a], fresh[a]);
  }
}

void Traffic::enter(const NestNode& loop) {
  path_.push_back(loop.slot);
  inside_[loop.slot] = false;  // a copy of this loop that came before may have left it
}

void Traffic::leave(const NestNode& loop, const Accesses& accesses) {
  path_.pop_back();
  body_fits_.clear();
  for (std::size_t l = 0; l < near_.size(); ++l) body_fits_.push_back(fits(accesses, l));
  inside_[loop.slot] = true;
  for (const std::size_t a : accesses) {
    steps_[a] = steps_of(facts_.accesses[a]);
    for (Unit& unit : units_)
      unit.touched[a] = std::min(distinct(unit, facts_.accesses[a], steps_[a]),
                                 unit.touched[a] * std::max(1.0, loop.trips));
  }
  find_fresh(accesses);
  for (std::size_t l = 0; l < near_.size(); ++l) {
    const bool all_fits = fits(accesses, l), kept = body_fits_[l] || all_fits;
    const Unit& unit = units_[near_[l].unit];
    for (const std::size_t a : accesses) {
      const double repeated = near_[l].into[a] * loop.trips;
      near_[l].into[a] = kept ? std::min(repeated, all_fits ? unit.fresh[a] : unit.touched[a]) : repeated;
    }
  }
}

void Traffic::call_again(const Accesses& accesses) {
  const auto stays = [&](std::size_t a) { return !far_[buffer_of(a)]; };
  Accesses near;
  std::copy_if(accesses.begin(), accesses.end(), std::back_inserter(near), stays);
  for (std::size_t l = 0; l < near_.size(); ++l) {
    const bool held = fits(near, l);
    for (const std::size_t a : accesses)
      if (stays(a) ? held : l < caches_ && l >= options_.far) near_[l].into[a] = 0;
  }
}

// --- What it comes to.

double Traffic::moved_s(const Accesses& accesses, std::size_t level, double& moved) const {
  const MemoryLevel& from = machine_.levels[level];
  const auto line = static_cast<double>(from.line_bytes);
  double seconds = 0;
  for (const std::size_t a : accesses) {
    const double farther = level < caches_ ? near_[level].into[a] : 0;
    const double bytes = std::max(0.0, near_[level - 1].into[a] - farther) * line;
    moved += bytes;
    seconds += bytes * 1e-9 / (facts_.accesses[a].write ? from.write_gbs : from.read_gbs);
    seconds += bytes / line * unforeseen_[a] * from.latency_ns * 1e-9 / kOverlapped;
  }
  return seconds;
}

double Traffic::waiting_s(const Accesses& accesses) const {
  double pieces = 0;
  for (const std::size_t a : accesses) pieces += near_[0].into[a] * pieces_[a];
  return pieces * machine_.access_cycles.near_piece * 1e-9 / machine_.ghz;
}

double Traffic::page_walks(const Accesses& accesses) const {
  double walks = 0;
  if (caches_ < near_.size())
    for (const std::size_t a : accesses) walks += near_[caches_].into[a];
  return walks;
}

}  // namespace syno::machine
