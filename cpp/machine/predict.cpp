#include "machine/predict.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "machine/footprint.hpp"
#include "machine/nest_facts.hpp"
#include "machine/tile_cost.hpp"

namespace syno::machine {

namespace {

using nest::BufferKind;

/// A cache is full of other things, too, and of lines that only partly count.
constexpr double kFill = 0.8;
constexpr double kLoopCycles = 0.2;    ///< of an iteration, beside its body
constexpr double kEnterCycles = 1;     ///< of a loop: its bounds
constexpr double kMissCycles = 10;     ///< of a branch that ends a loop longer than predictors remember
constexpr double kRemembered = 24;     ///< iterations
constexpr double kParallelS = 1.5e-6;  ///< to hand work to other threads and wait for them
constexpr double kKnownMask = 0.2;     ///< of a load: its mask is moved to a register
constexpr double kCondition = 1;       ///< that all lanes share: a comparison, and a choice of where to load
constexpr double kPage = 4096;         ///< bytes; prefetchers stop at its end
constexpr double kOverlapped = 25;     ///< misses that are under way at once
constexpr double kOutOfOrder = 0.5;    ///< of a miss, where lines of a page come out of order
constexpr double kStreams = 8;         ///< that a prefetcher follows
constexpr double kUnfollowed = 2;      ///< lines of a short stream that come before it does
/// Of a walk through page tables, what is not hidden by what is computed, or by other walks. From 102
/// measured schedules of two products on a Xeon.
constexpr double kWalked = 0.5;
constexpr double kSpill = 3;           ///< cycles of a value that no register holds, stored and loaded again
constexpr double kHidden = 0.85;       ///< of the shorter of computing and moving, that the longer one hides
constexpr double kLargestBlock = 256;  ///< multiply-adds; beyond it the code generator spills
constexpr double kLookAhead = 200;     ///< instructions
constexpr double kStarted = 4;         ///< of them in a cycle
/// Cycles: of what takes less, one part is moved while another is computed.
constexpr double kSoonOver = 2000;
/// Of what one block leaves idle, the share that the blocks around it use while the core looks ahead. From
/// 5,700 measured schedules of 142 products and convolutions on a Zen 5 (AVX-512): 0.5 to 1 rank alike.
constexpr double kOverlapping = 0.7;

struct Cycles {
  double fma = 0, loads = 0, stores = 0, latency = 0, spills = 0, overhead = 0;
  double total = 0;
  void add(const Cycles& other, double times) {
    fma += other.fma * times;
    loads += other.loads * times;
    stores += other.stores * times;
    latency += other.latency * times;
    spills += other.spills * times;
    overhead += other.overhead * times;
    total += other.total * times;
  }
};

class Model {
 public:
  Model(const nest::LoopNest& nest, const Machine& machine, const PredictOptions& options)
      : nest_(nest),
        machine_(machine),
        options_(options),
        facts_(facts_of(nest, machine.vector_bits / 8)),
        caches_(machine.levels.size() - 1),
        inside_(facts_.slot_count, false),
        steps_(facts_.accesses.size()),
        surprises_(facts_.accesses.size(), 0),
        pieces_(facts_.accesses.size(), 0),
        asked_(nest.buffers.size(), false),
        far_(nest.buffers.size(), false),
        earlier_(facts_.accesses.size()),
        present_(facts_.accesses.size(), false) {
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
          nest.buffers[b].kind == BufferKind::Input &&
          std::find(options.near->begin(), options.near->end(), nest.buffers[b].name) == options.near->end();
  }

  Prediction run() {
    Prediction made;
    Part all = part(facts_.root(), options_.threads);
    const std::size_t levels = machine_.levels.size();
    // Called again and again: what all of it fits stays where it is.
    if (!options_.cold) {
      const auto stays = [&](std::size_t a) { return !far_[buffer_of(a)]; };
      std::vector<std::size_t> near;
      std::copy_if(all.accesses.begin(), all.accesses.end(), std::back_inserter(near), stays);
      for (std::size_t l = 0; l < near_.size(); ++l) {
        const bool held = fits(near, l);
        for (const std::size_t a : all.accesses)
          if (stays(a) ? held : l < caches_ && l >= options_.far) near_[l].into[a] = 0;
      }
    }
    made.moved_bytes.assign(levels, 0);
    made.memory_s.assign(levels, 0);
    const double cycle = 1e-9 / machine_.ghz;
    for (const Phase& phase : all.phases) {
      double moving = 0;
      for (std::size_t l = 1; l < levels; ++l) {
        const double seconds = moved_s(phase, l, made.moved_bytes[l]) / sharing(l, phase.speed_up);
        made.memory_s[l] += seconds;
        moving += seconds;
      }
      const double computing = phase.cycles * cycle / phase.speed_up;
      made.compute_s += computing;
      made.seconds += std::max(computing, moving) + (1 - kHidden) * std::min(computing, moving);
    }
    const double memory = std::accumulate(made.memory_s.begin(), made.memory_s.end(), 0.0);
    double pieces = 0;
    for (const std::size_t a : all.accesses) pieces += near_[0].into[a] * pieces_[a];
    made.waiting_s = machine_.access_cycles.near_piece * pieces * cycle / all.speed_up;
    if (caches_ < near_.size())
      for (const std::size_t a : all.accesses) made.page_walks += near_[caches_].into[a];
    made.walking_s = kWalked * made.page_walks * machine_.tlb.walk_ns * 1e-9 / all.speed_up;
    made.overhead_s = all.cycles.overhead * cycle / all.speed_up + all.starts * kParallelS;
    made.flops = all.flops;
    made.seconds += made.overhead_s + made.waiting_s + made.walking_s;
    const double peak = machine_.peak_gflops(computed_bytes(nest_)) * 1e9 * all.speed_up;
    made.fraction_of_peak = made.seconds > 0 ? made.flops / peak / made.seconds : 0;
    made.bottleneck = bottleneck(made, all.cycles, memory);
    cycles_ = all.cycles;
    speed_up_ = all.speed_up;
    return made;
  }

  double largest_block() const {
    double largest = 0;
    for (const NestNode& node : facts_.nodes)
      if (node.kind == NestNode::Kind::Block) largest = std::max(largest, node.work.fma);
    return largest;
  }

  Cycles cycles_;
  double speed_up_ = 1;

 private:
  /// What memory is counted in: lines of caches, pages of the TLB.
  struct Unit {
    double bytes = 0;
    std::vector<double> of_buffer;  ///< by buffer: as far as its strides go
    /// By access, of one execution of the node looked at last around it; and those that no access before it
    /// among the node's touches: find_fresh()'s.
    std::vector<double> touched, fresh;
  };

  /// What keeps units near: a cache, or the TLB.
  struct Near {
    std::size_t unit = 0;
    double capacity = 0;                 ///< bytes
    const MemoryLevel* cache = nullptr;  ///< none: the TLB
    std::vector<double> into;  ///< by access, of the node looked at last around it: what it brings in
  };

  /// What is computed while something is moved: the end of one phase waits for what it reads, while the next
  /// one computes nothing yet.
  struct Phase {
    double cycles = 0;  ///< without overhead
    double speed_up = 1;
    std::vector<std::size_t> accesses;
  };

  struct Part {
    Cycles cycles;
    double flops = 0, starts = 0, speed_up = 1;
    std::vector<std::size_t> accesses;
    std::vector<Phase> phases;
  };

  /// Seconds for which a level gives what a phase reads and takes what it writes, on one thread; adds its
  /// bytes.
  double moved_s(const Phase& phase, std::size_t level, double& moved) const {
    const MemoryLevel& from = machine_.levels[level];
    const auto line = static_cast<double>(from.line_bytes);
    double seconds = 0;
    for (const std::size_t a : phase.accesses) {
      const double farther = level < caches_ ? near_[level].into[a] : 0;
      const double bytes = std::max(0.0, near_[level - 1].into[a] - farther) * line;
      moved += bytes;
      seconds += bytes * 1e-9 / (facts_.accesses[a].write ? from.write_gbs : from.read_gbs);
      seconds += bytes / line * surprises_[a] * from.latency_ns * 1e-9 / kOverlapped;
    }
    return seconds;
  }

  /// Phases of a sequence: those of one that is soon over are one, as a core and its prefetchers look so far
  /// ahead. What the nest asks for ahead comes while the longest one computes.
  void unite(Part& made, double apart) const {
    std::vector<Phase>& phases = made.phases;
    const double after = made.cycles.total - made.cycles.overhead;
    for (Phase& phase : phases) phase.cycles *= apart > 0 ? after / apart : 1;
    if (phases.size() < 2) return;
    if (after < kSoonOver) {
      Phase all = std::move(phases.front());
      double alone = all.cycles / all.speed_up;
      for (std::size_t p = 1; p < phases.size(); ++p) {
        all.cycles += phases[p].cycles;
        alone += phases[p].cycles / phases[p].speed_up;
        all.accesses.insert(all.accesses.end(), phases[p].accesses.begin(), phases[p].accesses.end());
      }
      if (alone > 0) all.speed_up = all.cycles / alone;
      phases.clear();
      phases.push_back(std::move(all));
      return;
    }
    Phase& longest = *std::max_element(phases.begin(), phases.end(), [](const Phase& a, const Phase& b) {
      return a.cycles / a.speed_up < b.cycles / b.speed_up;
    });
    std::vector<std::size_t> asked;
    for (Phase& phase : phases) {
      const auto other = std::stable_partition(phase.accesses.begin(), phase.accesses.end(),
                                               [&](std::size_t a) { return !asked_[buffer_of(a)]; });
      asked.insert(asked.end(), other, phase.accesses.end());
      phase.accesses.erase(other, phase.accesses.end());
    }
    longest.accesses.insert(longest.accesses.end(), asked.begin(), asked.end());
  }

  std::string bottleneck(const Prediction& made, const Cycles& cycles, double memory) const {
    if (made.waiting_s > std::max({made.compute_s, memory, made.overhead_s, made.walking_s}))
      return "short pieces";
    if (made.walking_s > std::max({made.compute_s, memory, made.overhead_s})) return "page walks";
    if (memory > made.compute_s && memory > made.overhead_s) {
      const auto worst = std::max_element(made.memory_s.begin(), made.memory_s.end()) - made.memory_s.begin();
      return machine_.levels[static_cast<std::size_t>(worst)].name;
    }
    if (made.overhead_s > made.compute_s) return "loop overhead";
    const std::array<std::pair<double, const char*>, 5> parts{{{cycles.fma, "multiply-adds"},
                                                               {cycles.loads, "loads"},
                                                               {cycles.stores, "stores"},
                                                               {cycles.latency, "latency of sums"},
                                                               {cycles.spills, "registers"}}};
    return std::max_element(parts.begin(), parts.end())->second;
  }

  void add_unit(std::int64_t bytes) {
    Unit unit{static_cast<double>(bytes), {}, std::vector<double>(facts_.accesses.size(), 0), {}};
    unit.fresh = unit.touched;
    for (const nest::Buffer& buffer : nest_.buffers) {
      double elements = 1;
      for (std::size_t d = 0; d < buffer.extents.size(); ++d)
        elements +=
            std::abs((static_cast<double>(buffer.extents[d]) - 1) * static_cast<double>(buffer.strides[d]));
      unit.of_buffer.push_back(1 +
                               elements * static_cast<double>(nest::byte_size(buffer.dtype)) / unit.bytes);
    }
    units_.push_back(std::move(unit));
  }

  /// Of the unit that was added last.
  void add_near(std::int64_t bytes, const MemoryLevel* cache) {
    near_.push_back({units_.size() - 1, kFill * static_cast<double>(bytes), cache,
                     std::vector<double>(facts_.accesses.size(), 0)});
  }

  /// Several threads have a private level each and share the rate of main memory.
  double sharing(std::size_t level, double speed_up) const {
    return level + 1 == machine_.levels.size() ? std::min(speed_up, 1.3) : speed_up;
  }

  Cycles block(const Work& work) const {
    Cycles made;
    const double vector_bytes = machine_.vector_bits / 8.0;
    const double per_cycle = machine_.ghz;
    const double load = vector_bytes * per_cycle / machine_.levels[0].read_gbs;
    const double store = vector_bytes * per_cycle / machine_.levels[0].write_gbs;
    const AccessCycles& cycles = machine_.access_cycles;
    made.fma = (work.fma + work.costly) / machine_.fma_pipes() + work.maxima * cycles.maximum;
    const double again = work.held > machine_.vector_registers ? work.loaded_again : 0;
    const double crossing = work.crossing_loads * (1 + again / std::max(1.0, work.vector_loads));
    made.loads = (work.vector_loads + again) * load + crossing * cycles.unaligned +
                 work.scalar_loads * cycles.broadcast + work.picks * cycles.picked +
                 work.gathers * cycles.gathered + work.masks * cycles.masked + work.known_masks * kKnownMask +
                 work.conditions * kCondition;
    // A store that crosses lines is two, as a load is.
    made.stores = (work.vector_stores + work.crossing_stores * cycles.unaligned / load) * store +
                  work.narrow_stores * cycles.narrow_store + work.scatters * cycles.scattered;
    made.latency = work.chain * machine_.fma_latency_cycles;
    if (!work.carried) {  // the next execution does not wait: as many as the core looks ahead run at once
      const double instructions = work.fma + work.maxima + work.vector_loads + work.scalar_loads +
                                  work.vector_stores + work.narrow_stores;
      made.latency /= std::max(1.0, kLookAhead / std::max(1.0, instructions));
    }
    const double excess = work.registers - machine_.vector_registers;
    if (excess > 0) made.spills = excess * kSpill;
    if (work.fma > kLargestBlock) made.spills += 0.1 * work.fma;
    made.total = std::max({made.fma, made.loads, made.stores, made.latency}) + made.spills;
    return made;
  }

  /// Parts that follow each other, each with its own bottleneck: the end of one is computed while the next
  /// one begins, as far as the core looks ahead.
  static void overlap(Cycles& sum, std::size_t parts) {
    const double busy = std::max({sum.fma, sum.loads, sum.stores}) + sum.spills + sum.overhead;
    const double ahead = kLookAhead / kStarted * static_cast<double>(parts);
    sum.total -= kOverlapping * std::clamp(sum.total - busy, 0.0, ahead);
  }

  double term_width(const AddressTerm& term) const {
    double width = term.repeats;
    for (const auto& [slot, trips] : term.loops)
      if (inside_[slot]) width *= trips;
    return std::min(width, term.width);
  }

  /// How an access moves while the loops in `inside_` run.
  Steps steps_of(const Access& access) const {
    Steps made;
    for (const AddressTerm& term : access.terms)
      made.add(std::abs(static_cast<double>(term.coefficient)), term_width(term));
    return made;
  }

  /// Distinct lines, or pages, of an access that moves so, no more than its buffer has.
  static double distinct(const Unit& unit, const Access& access, const Steps& steps,
                         double* pieces = nullptr) {
    const double elements = unit.bytes / static_cast<double>(access.element_bytes);
    return std::min(lines_of(steps, elements, pieces), unit.of_buffer[buffer(access)]);
  }
  double lines(const Access& access, double* pieces = nullptr) const {
    return distinct(units_[0], access, steps_of(access), pieces);
  }

  /// An access before another one, to the same buffer.
  struct Earlier {
    std::size_t access = 0;
    bool alike = false;  ///< it moves by the same steps; else they are not known to be apart
  };

  /// Which accesses before it an access may share memory with.
  void share(std::size_t a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (facts_.accesses[a].buffer != facts_.accesses[b].buffer) continue;
      if (move_alike(facts_.accesses[a], facts_.accesses[b]))
        earlier_[a].push_back({b, true});
      else if (!apart(facts_.accesses[a], facts_.accesses[b]))
        earlier_[a].push_back({b, false});
    }
  }

  /// Distinct lines, or pages, of two accesses that move alike.
  double together(const Unit& unit, std::size_t before, std::size_t access) const {
    Steps steps = steps_[before];
    if (!join(steps, steps_[access], facts_.accesses[access].least - facts_.accesses[before].least))
      return std::numeric_limits<double>::infinity();
    return distinct(unit, facts_.accesses[access], steps);
  }

  /// The lines, and pages, of each access that none before it among these touches.
  void find_fresh(const std::vector<std::size_t>& accesses) {
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

  static std::size_t buffer(const Access& access) { return static_cast<std::size_t>(access.buffer); }
  std::size_t buffer_of(std::size_t access) const { return buffer(facts_.accesses[access]); }

  /// The bytes by which a step of a loop moves an access, and its trips; no bytes where it does not.
  static std::pair<double, double> moved_by(const Access& access, std::uint32_t loop) {
    double step = 0, trips = 1;
    for (const AddressTerm& term : access.terms)
      for (const auto& [slot, count] : term.loops)
        if (slot == loop) {
          step += static_cast<double>(std::abs(term.coefficient * access.element_bytes));
          trips = count;
        }
    return {step, trips};
  }

  /// Of the lines an access brings in, the share that no prefetcher foresees: those that begin a piece of
  /// their own, on another page or out of order within one.
  double surprises(const Access& access) const {
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

  /// Of the lines an access brings in, the share that begins a piece apart from the one before, short enough
  /// for the first cache to wait for it.
  double short_pieces(const Access& access) const {
    double pieces = 1;
    const auto line = static_cast<double>(machine_.levels[0].line_bytes);
    double run = lines(access, &pieces) / pieces * line;
    for (std::size_t i = path_.size(); i-- > 0;) {
      const auto [step, trips] = moved_by(access, path_[i]);
      if (step == 0) continue;
      if (step > run + line) break;
      run += step * (trips - 1);
    }
    return run < kFollowedLines * line ? line / run : 0;
  }

  /// Lines that fall on so few places of a cache that its ways do not hold them.
  bool conflicts(const Access& access, const MemoryLevel& level) const {
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

  bool fits(const std::vector<std::size_t>& accesses, std::size_t level) {
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
  double buffer_bytes(std::size_t index) const {
    const nest::Buffer& buffer = nest_.buffers[index];
    double bytes = static_cast<double>(nest::byte_size(buffer.dtype));
    for (const auto extent : buffer.extents) bytes *= static_cast<double>(extent);
    return bytes;
  }

  Part part(std::size_t index, int threads) {
    const NestNode& node = facts_.nodes[index];
    Part made;
    switch (node.kind) {
      case NestNode::Kind::Block: {
        made.cycles = block(node.work);
        made.flops = node.work.flops;
        made.accesses = node.accesses;
        made.phases.push_back({made.cycles.total, 1, node.accesses});
        for (const std::size_t a : node.accesses) {
          steps_[a] = steps_of(facts_.accesses[a]);
          for (Unit& unit : units_) unit.touched[a] = distinct(unit, facts_.accesses[a], steps_[a]);
          pieces_[a] = short_pieces(facts_.accesses[a]);
          surprises_[a] = asked_[buffer_of(a)] ? 0 : surprises(facts_.accesses[a]);
        }
        find_fresh(node.accesses);
        for (Near& level : near_)
          for (const std::size_t a : node.accesses) level.into[a] = units_[level.unit].fresh[a];
        return made;
      }
      case NestNode::Kind::Loop:
        return loop(node, threads);
      case NestNode::Kind::Sequence:
        break;
    }
    double weighted = 0;
    for (const std::size_t child : node.children) {
      Part next = part(child, threads);
      made.cycles.add(next.cycles, 1);
      weighted += next.cycles.total / next.speed_up;
      made.flops += next.flops;
      made.starts += next.starts;
      made.accesses.insert(made.accesses.end(), next.accesses.begin(), next.accesses.end());
      std::move(next.phases.begin(), next.phases.end(), std::back_inserter(made.phases));
    }
    made.speed_up = weighted > 0 ? made.cycles.total / weighted : 1;
    const double apart = made.cycles.total - made.cycles.overhead;
    overlap(made.cycles, node.children.size());
    unite(made, apart);
    // What an earlier child touched, and all of it fits, is still there.
    find_fresh(made.accesses);
    for (std::size_t l = 0; l < near_.size(); ++l) {
      if (!fits(made.accesses, l)) continue;
      std::vector<double>& into = near_[l].into;
      const std::vector<double>& fresh = units_[near_[l].unit].fresh;
      for (const std::size_t a : made.accesses) into[a] = std::min(into[a], fresh[a]);
    }
    return made;
  }

  Part loop(const NestNode& node, int threads) {
    const double trips = node.trips;
    if (trips <= 0) return {};  // as of a tail that the sizes of a call leave nothing
    double speed_up = 1;
    if (node.parallel && threads > 1 && trips > 1) speed_up = trips / std::ceil(trips / threads);
    path_.push_back(node.slot);
    inside_[node.slot] = false;  // a copy of this loop that came before may have left it
    Part body = part(node.children[0], speed_up > 1 ? 1 : threads);
    path_.pop_back();
    Part made;
    made.accesses = std::move(body.accesses);
    made.phases = std::move(body.phases);
    for (Phase& phase : made.phases) {
      phase.cycles *= trips;
      if (speed_up > 1) phase.speed_up = speed_up;
    }
    made.flops = body.flops * trips;
    made.starts = speed_up > 1 ? 1 : body.starts * trips;
    made.speed_up = speed_up > 1 ? speed_up : body.speed_up;
    made.cycles.add(body.cycles, trips);
    const double around = kLoopCycles * trips + kEnterCycles + (trips > kRemembered ? kMissCycles : 0);
    made.cycles.total += around;
    made.cycles.overhead += around;
    std::vector<bool> body_fits;
    for (std::size_t l = 0; l < near_.size(); ++l) body_fits.push_back(fits(made.accesses, l));
    inside_[node.slot] = true;
    for (const std::size_t a : made.accesses) {
      steps_[a] = steps_of(facts_.accesses[a]);
      for (Unit& unit : units_)
        unit.touched[a] =
            std::min(distinct(unit, facts_.accesses[a], steps_[a]), unit.touched[a] * std::max(1.0, trips));
    }
    find_fresh(made.accesses);
    for (std::size_t l = 0; l < near_.size(); ++l) {
      const bool all_fits = fits(made.accesses, l), kept = body_fits[l] || all_fits;
      const Unit& unit = units_[near_[l].unit];
      for (const std::size_t a : made.accesses) {
        const double repeated = near_[l].into[a] * trips;
        near_[l].into[a] = kept ? std::min(repeated, all_fits ? unit.fresh[a] : unit.touched[a]) : repeated;
      }
    }
    return made;
  }

  const nest::LoopNest& nest_;
  const Machine& machine_;
  PredictOptions options_;
  NestFacts facts_;
  std::size_t caches_;        ///< of near_, before the TLB
  std::vector<bool> inside_;  ///< by slot: the loops whose whole range is looked at
  /// By access: how it moves in one execution of the node looked at last around it.
  std::vector<Steps> steps_;
  std::vector<Unit> units_;
  std::vector<Near> near_;
  std::vector<double> by_buffer_;
  std::vector<std::uint32_t> path_;            ///< slots of the loops around, outermost first
  std::vector<double> surprises_;              ///< by access
  std::vector<double> pieces_;                 ///< by access
  std::vector<bool> asked_;                    ///< by buffer: the nest asks ahead for what it reads of it
  std::vector<bool> far_;                      ///< by buffer: it comes from that level at each call
  std::vector<std::vector<Earlier>> earlier_;  ///< by access
  std::vector<bool> present_;                  ///< by access: among those that are looked at
};

double logarithm(double value) { return std::log2(1 + std::max(0.0, value)); }

const std::vector<std::string_view> kFeatureNames{
    "flops",  "multiply_adds", "loads",  "stores", "latency",  "spills",   "overhead",
    "cycles", "near",          "middle", "far",    "speed_up", "fraction", "predicted_ns"};

}  // namespace

Prediction predict(const nest::LoopNest& nest, const Machine& machine, const PredictOptions& options) {
  return Model(nest, machine, options).run();
}

const std::vector<std::string_view>& feature_names() { return kFeatureNames; }

Scored score(const nest::LoopNest& nest, const Machine& machine, const PredictOptions& options) {
  Model model(nest, machine, options);
  Scored scored;
  scored.prediction = model.run();
  scored.largest_block = model.largest_block();
  const Prediction& made = scored.prediction;
  const Cycles& c = model.cycles_;
  const auto moved = [&](std::size_t level) {
    return level < made.moved_bytes.size() ? logarithm(made.moved_bytes[level]) : 0.0;
  };
  double far = 0;
  for (std::size_t l = 3; l < made.moved_bytes.size(); ++l) far += made.moved_bytes[l];
  scored.features = {logarithm(made.flops),
                     logarithm(c.fma),
                     logarithm(c.loads),
                     logarithm(c.stores),
                     logarithm(c.latency),
                     logarithm(c.spills),
                     logarithm(c.overhead),
                     logarithm(c.total),
                     moved(1),
                     moved(2),
                     logarithm(far),
                     model.speed_up_,
                     made.fraction_of_peak,
                     logarithm(made.seconds * 1e9)};
  return scored;
}

}  // namespace syno::machine
