#include "machine/cache_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"

namespace syno::machine {
namespace {

using nest::BufferId;
using nest::BufferKind;
using nest::LoopKind;
using nest::LoopNest;
using nest::Statement;
using nest::StatementId;
using nest::StatementKind;
using nest::StoreMode;
using nest::Value;
using nest::ValueId;
using nest::ValueKind;

constexpr std::int64_t kBegins = 4096;  ///< buffers, at multiples of it, or of larger pages

/// Lines by set, the last used first.
class Cache {
 public:
  explicit Cache(const MemoryLevel& level) {
    const std::int64_t lines = std::max<std::int64_t>(1, level.bytes / level.line_bytes);
    ways_ = static_cast<std::size_t>(level.ways > 0 ? std::min<std::int64_t>(level.ways, lines) : lines);
    sets_ = std::max<std::int64_t>(1, lines / static_cast<std::int64_t>(ways_));
    held_.assign(static_cast<std::size_t>(sets_) * ways_, -1);
  }

  /// Whether the line was there; it is now.
  bool take(std::int64_t line) {
    const auto set =
        held_.begin() + static_cast<std::ptrdiff_t>(line % sets_) * static_cast<std::ptrdiff_t>(ways_);
    const auto end = set + static_cast<std::ptrdiff_t>(ways_);
    auto found = std::find(set, end, line);
    const bool there = found != end;
    if (!there) found = end - 1;
    std::move_backward(set, found, found + 1);
    *set = line;
    return there;
  }

 private:
  std::int64_t sets_ = 1;
  std::size_t ways_ = 1;
  std::vector<std::int64_t> held_;
};

class Simulator {
 public:
  Simulator(const LoopNest& nest, const Machine& machine, const CacheOptions& options)
      : nest_(nest),
        line_(machine.levels.front().line_bytes),
        following_(options.lines_per_miss),
        variables_(nest.next_slot, 0),
        loads_(nest.values.size()),
        stores_(nest.statements.size()) {
    if (!nest.parameters.empty())
      fail<ShapeError>("simulate", "`{}` has sizes that are not given; pass the nest for some of them",
                       nest.name);
    for (std::size_t i = 0; i + 1 < machine.levels.size(); ++i) caches_.emplace_back(machine.levels[i]);
    traffic_.misses.assign(caches_.size(), 0);
    page_ = machine.tlb.page_bytes;
    if (machine.tlb.pages > 0) {
      MemoryLevel pages;
      pages.bytes = checked_multiply(machine.tlb.pages, page_);
      pages.line_bytes = page_;
      pages.ways = 0;
      tlb_.emplace(pages);
    }
    const std::int64_t multiple = std::max(kBegins, page_);
    std::int64_t at = multiple;
    for (const nest::Buffer& buffer : nest.buffers) {
      std::int64_t first = 0, last = 0;
      for (std::size_t d = 0; d < buffer.extents.size(); ++d) {
        const std::int64_t end =
            checked_multiply(std::max<std::int64_t>(0, buffer.extents[d] - 1), buffer.strides[d]);
        (end < 0 ? first : last) += end;
      }
      const auto width = static_cast<std::int64_t>(nest::byte_size(buffer.dtype));
      begins_.push_back(at - first * width);
      const std::int64_t bytes = checked_multiply(last - first + 1, width);
      at += (bytes + multiple - 1) / multiple * multiple;
    }
  }

  CacheTraffic run() {
    run(nest_.root);
    return std::move(traffic_);
  }

 private:
  /// What one place of the nest did last.
  struct Place {
    std::uint64_t iteration = 0;     ///< in which `seen` was noted
    std::vector<std::int64_t> seen;  ///< where the vectors, or numbers, of that iteration begin
    std::uint64_t vector = 0;        ///< to which `line` belongs
    std::int64_t line = 0;
    bool again = false;  ///< the vector was read, or written, in this iteration already
  };

  std::int64_t integer(nest::ExprId id) const { return nest::evaluate(nest_, id, variables_); }

  bool hold(const std::vector<nest::Condition>& conditions) const {
    return nest::hold(nest_, conditions, variables_);
  }

  std::int64_t address(BufferId id, const std::vector<nest::ExprId>& indices) const {
    const nest::Buffer& buffer = nest_.buffer(id);
    std::int64_t at = 0;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      const std::int64_t index = integer(indices[d]);
      if (index < 0 || index >= buffer.extents[d])
        fail<ScheduleError>("simulate", "index {} of `{}` in `{}` is {}, outside [0, {})", d, buffer.name,
                            nest_.name, index, buffer.extents[d]);
      at += index * buffer.strides[d];
    }
    return begins_[static_cast<std::uint32_t>(id)] +
           at * static_cast<std::int64_t>(nest::byte_size(buffer.dtype));
  }

  void touch(std::int64_t line) {
    if (++touched_ % 65536 == 0) interruption_point();
    if (tlb_ && !tlb_->take(line * line_ / page_)) ++traffic_.page_walks;
    if (caches_.empty() || caches_[0].take(line)) return;
    ++traffic_.misses[0];
    further(line);
    for (std::int64_t i = 1; i < following_; ++i) {
      if (!caches_[0].take(line + i)) further(line + i);
    }
    caches_[0].take(line);
  }

  /// In the caches behind the first one.
  void further(std::int64_t line) {
    for (std::size_t i = 1; i < caches_.size(); ++i) {
      if (caches_[i].take(line)) return;
      ++traffic_.misses[i];
    }
  }

  /// Whether an instruction begins with it, which is counted.
  bool access(Place& place, std::int64_t& count, BufferId buffer, const std::vector<nest::ExprId>& indices) {
    const std::int64_t at = address(buffer, indices);
    bool begins = false;
    if (vector_ == 0 || place.vector != vector_) {  // a number, or the first lane of a vector that is there
      if (place.iteration != iteration_) place.seen.clear();
      place.iteration = iteration_;
      place.again = std::find(place.seen.begin(), place.seen.end(), at) != place.seen.end();
      place.vector = vector_;
      place.line = -1;
      begins = !place.again;
      if (begins) {
        place.seen.push_back(at);
        ++count;
      }
    }
    if (place.again || at / line_ == place.line) return begins;
    place.line = at / line_;
    touch(place.line);
    return begins;
  }

  void read(ValueId id) {
    const Value& node = nest_.value(id);
    switch (node.kind) {
      case ValueKind::Literal:
      case ValueKind::Index:
        return;
      case ValueKind::Load:
        if (nest_.buffer(node.buffer).kind != BufferKind::Register && hold(node.guards))
          access(loads_[static_cast<std::uint32_t>(id)], traffic_.loads, node.buffer, node.indices);
        return;
      case ValueKind::Unary:
        return read(node.a);
      case ValueKind::Binary:
        read(node.a);
        return read(node.b);
      case ValueKind::Select:  // both are computed, one is taken
        read(node.a);
        read(node.b);
        return read(node.c);
    }
  }

  void run(StatementId id) {
    const Statement& statement = nest_.statement(id);
    switch (statement.kind) {
      case StatementKind::Sequence:
        for (const StatementId child : statement.children) run(child);
        return;
      case StatementKind::For: {
        const std::int64_t end = integer(statement.end);
        const bool vector = statement.loop == LoopKind::Vector;
        if (vector) vector_ = ++vectors_;
        for (std::int64_t i = integer(statement.begin); i < end; ++i) {
          variables_[statement.slot] = i;
          if (!vector && statement.loop != LoopKind::Unroll) ++iteration_;
          run(statement.children[0]);
        }
        if (vector) vector_ = 0;
        if (!vector && statement.loop != LoopKind::Unroll) ++iteration_;
        return;
      }
      case StatementKind::If:
        if (hold(statement.conditions)) run(statement.children[0]);
        return;
      case StatementKind::Allocate:
        return run(statement.children[0]);
      case StatementKind::Prefetch:
        return;
      case StatementKind::Store: {
        read(statement.value);
        if (nest_.buffer(statement.buffer).kind == BufferKind::Register) return;
        const bool begins = access(stores_[static_cast<std::uint32_t>(id)], traffic_.stores, statement.buffer,
                                   statement.indices);
        if (begins && statement.mode != StoreMode::Assign) ++traffic_.loads;
        return;
      }
    }
  }

  const LoopNest& nest_;
  std::int64_t line_, following_;
  std::vector<std::int64_t> variables_, begins_;
  std::vector<Place> loads_, stores_;
  std::vector<Cache> caches_;
  std::optional<Cache> tlb_;
  std::int64_t page_ = 0;
  CacheTraffic traffic_;
  std::uint64_t iteration_ = 1, vector_ = 0, vectors_ = 0, touched_ = 0;
};

}  // namespace

CacheTraffic simulate_caches(const LoopNest& nest, const Machine& machine, const CacheOptions& options) {
  if (options.lines_per_miss < 1 || options.lines_per_miss > 1024)
    fail<ShapeError>("simulate", "a miss brings {} lines; it must bring 1 to 1024", options.lines_per_miss);
  return Simulator(nest, machine, options).run();
}

}  // namespace syno::machine
