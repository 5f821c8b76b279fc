// What makes a loop nest well formed: structure, ranges of indices, registers and races.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "nest/affine.hpp"
#include "nest/loop_nest.hpp"
#include "support/error.hpp"

namespace syno::nest {
namespace {

constexpr std::int64_t kMostCopies = std::int64_t{1}
                                     << 17;  // by unrolled loops: code that is compiled in minutes
constexpr std::size_t kMostLoops = 100;
constexpr std::size_t kMostAllocations = 4096;  // around each other: text is indented, passes go down

class Verifier {
 public:
  explicit Verifier(const LoopNest& nest)
      : nest_(nest), written_(nest.buffers.size(), false), alive_(nest.buffers.size(), false) {}

  void run() {
    if (nest_.name.empty() || std::isdigit(static_cast<unsigned char>(nest_.name[0])) ||
        !std::all_of(nest_.name.begin(), nest_.name.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }))
      wrong("the name is no C identifier");
    for (const Parameter& made : nest_.parameters) parameter(made);
    for (std::size_t i = 0; i < nest_.buffers.size(); ++i) buffer(i);
    if (static_cast<std::size_t>(nest_.root) >= nest_.statements.size()) wrong("the root is no statement");
    statement(nest_.root);
    for (std::size_t i = 0; i < nest_.buffers.size(); ++i) {
      const Buffer& out = nest_.buffers[i];
      if (out.kind == BufferKind::Output && !written_[i] && elements(out) != 0)
        wrong("nothing writes the output `{}`", out.name);
    }
  }

 private:
  struct Loop {
    std::uint32_t slot;
    std::string name;
    LoopKind kind;
  };

  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    std::string where;
    for (const Loop& loop : loops_) where += (where.empty() ? " (in loops " : ", ") + loop.name;
    fail<ScheduleError>(fmt::format("loop nest {}", nest_.name), "{}{}",
                        fmt::format(format, std::forward<Args>(args)...), where.empty() ? "" : where + ")");
  }

  static std::int64_t elements(const Buffer& buffer) {
    std::int64_t count = 1;
    for (const std::int64_t extent : buffer.extents)
      if (__builtin_mul_overflow(count, extent, &count)) return -1;
    return count;
  }

  void parameter(const Parameter& made) {
    for (const Parameter& other : nest_.parameters)
      if (&other != &made && (other.name == made.name || other.slot == made.slot))
        wrong("two parameters are called `{}`, or share variable number {}", made.name, made.slot);
    if (made.slot >= nest_.next_slot)
      wrong("parameter `{}` has variable number {} of {}", made.name, made.slot, nest_.next_slot);
    if (made.least < 1 || made.greatest < made.least)
      wrong("parameter `{}` is from {} to {}; sizes begin at 1", made.name, made.least, made.greatest);
    forms_.bind_parameter(made.slot, {made.least, made.greatest});
  }

  void live_extents(const Buffer& made) {
    if (made.live.empty()) return;
    if (made.kind != BufferKind::Input && made.kind != BufferKind::Output)
      wrong("`{}` has extents known at run time; only arguments may", made.name);
    if (made.live.size() != made.extents.size())
      wrong("`{}` has {} extents but {} of them at run time", made.name, made.extents.size(),
            made.live.size());
    for (std::size_t d = 0; d < made.live.size(); ++d) {
      const Interval range = forms_.bounds(form(made.live[d]));
      if (range.least < 0 || range.greatest > made.extents[d])
        wrong("extent {} of `{}`, {}, can be anything in [{}, {}], outside [0, {}]", d, made.name,
              text(made.live[d]), range.least, range.greatest, made.extents[d]);
    }
    if (made.strides != row_major_strides(made.extents))
      wrong("`{}` has strides and extents known at run time; such arguments are row-major", made.name);
  }

  void buffer(std::size_t index) {
    const Buffer& made = nest_.buffers[index];
    for (std::size_t j = 0; j < index; ++j)
      if (nest_.buffers[j].name == made.name) wrong("two buffers are called `{}`", made.name);
    if (made.strides.size() != made.extents.size())
      wrong("`{}` has {} extents but {} strides", made.name, made.extents.size(), made.strides.size());
    for (const std::int64_t extent : made.extents)
      if (extent < 0) wrong("`{}` has the extent {}", made.name, extent);
    live_extents(made);
    const std::int64_t count = elements(made);
    if (count < 0 || count > (std::int64_t{1} << 46)) wrong("`{}` has more than 2^46 elements", made.name);
    const bool argument = made.kind == BufferKind::Input || made.kind == BufferKind::Output;
    std::int64_t reach = 0;
    for (std::size_t d = 0; d < made.extents.size(); ++d) {
      std::int64_t part = 0;
      const std::int64_t last = std::max<std::int64_t>(made.extents[d] - 1, 0);
      if (made.strides[d] == INT64_MIN || __builtin_mul_overflow(std::abs(made.strides[d]), last, &part) ||
          __builtin_add_overflow(reach, part, &reach) || reach > (std::int64_t{1} << 46))
        wrong("`{}` with strides [{}] reaches further than 2^46 elements", made.name,
              fmt::join(made.strides, ", "));
    }
    if (!argument && made.strides != row_major_strides(made.extents))
      wrong("`{}` has strides of its own; only arguments may", made.name);
    if (made.kind == BufferKind::Constant && static_cast<std::int64_t>(made.literal.size()) != count)
      wrong("constant `{}` has {} values for {} elements", made.name, made.literal.size(), count);
    if (made.kind == BufferKind::Register && count > 4096)
      wrong("register buffer `{}` has {} elements; at most 4096 fit", made.name, count);
    alive_[index] = argument || made.kind == BufferKind::Constant;
    written_[index] = made.kind == BufferKind::Input || made.kind == BufferKind::Constant;
  }

  std::string text(ExprId id) const {
    return symbolic::to_text(nest_.arena, id, symbolic::Sizes(), [&](std::uint32_t slot) {
      for (const Loop& loop : loops_)
        if (loop.slot == slot) return loop.name;
      for (const Parameter& parameter : nest_.parameters)
        if (parameter.slot == slot) return parameter.name;
      return fmt::format("_{}", slot);
    });
  }

  AffineForm form(ExprId id) {
    for (const std::uint32_t slot : nest_.arena.iterators(id))
      if (!forms_.bound(slot))
        wrong("an index uses loop variable number {} outside its loop: {}", slot, text(id));
    return forms_.form(nest_.arena, id);
  }

  void statement(StatementId id) {
    const Statement& made = nest_.statement(id);
    switch (made.kind) {
      case StatementKind::Sequence:
        for (const StatementId child : made.children) {
          if (child >= id) wrong("a statement comes before its parts");
          statement(child);
        }
        return;
      case StatementKind::For:
        return loop(made);
      case StatementKind::If: {
        const std::size_t facts = forms_.fact_count();
        assume(made.conditions);
        only_child(made);
        forms_.pop_facts(facts);
        return;
      }
      case StatementKind::Allocate: {
        const std::uint32_t index = check_buffer(made.buffer);
        const Buffer& allocated = nest_.buffers[index];
        if (allocated.kind != BufferKind::Temporary && allocated.kind != BufferKind::Register)
          wrong("`{}` is allocated but is neither temporary nor register", allocated.name);
        if (alive_[index]) wrong("`{}` is allocated inside its own allocation", allocated.name);
        if (allocations_ == kMostAllocations)
          wrong("more than {} allocations stand inside each other", kMostAllocations);
        ++allocations_;
        alive_[index] = true;
        written_[index] = false;
        allocated_within_[index] = loops_.size();
        only_child(made);
        alive_[index] = false;
        --allocations_;
        return;
      }
      case StatementKind::Prefetch:
        return prefetch(made);
      case StatementKind::Store:
        return store(made);
    }
  }

  void only_child(const Statement& made) {
    if (made.children.size() != 1) wrong("a statement has {} bodies instead of one", made.children.size());
    statement(made.children[0]);
  }

  void assume(const std::vector<Condition>& conditions) {
    // Twice: what a later condition says may simplify the index of an earlier one.
    for (int pass = 0; pass < 2; ++pass)
      for (const Condition& condition : conditions)
        forms_.push_fact(form(condition.expr), {condition.begin, condition.end - 1});
  }

  void loop(const Statement& made) {
    for (const Parameter& parameter : nest_.parameters)
      if (parameter.name == made.name || parameter.slot == made.slot)
        wrong("loop `{}` is called as a parameter is, or shares its variable number {}", made.name,
              made.slot);
    for (const Loop& outer : loops_) {
      if (outer.name == made.name) wrong("two nested loops are called `{}`", made.name);
      if (outer.slot == made.slot) wrong("two nested loops share variable number {}", made.slot);
      if (outer.kind == LoopKind::Vector && made.loop == LoopKind::Vector)
        wrong("vector loop `{}` is inside vector loop `{}`", made.name, outer.name);
      if (outer.kind == LoopKind::Vector && made.loop == LoopKind::Parallel)
        wrong("parallel loop `{}` is inside vector loop `{}`", made.name, outer.name);
    }
    if (made.slot >= nest_.next_slot)
      wrong("loop `{}` has variable number {} of {}", made.name, made.slot, nest_.next_slot);
    const AffineForm begin = form(made.begin), end = form(made.end);
    const bool constant = begin.is_constant() && end.is_constant();
    if (!constant && (made.loop == LoopKind::Unroll || made.loop == LoopKind::Vector))
      wrong("loop `{}` is {} but its bounds are not constant", made.name,
            made.loop == LoopKind::Unroll ? "unrolled" : "a vector loop");
    std::int64_t trips = 0;
    if (constant && __builtin_sub_overflow(end.constant, begin.constant, &trips))
      wrong("loop `{}` runs from {} to {}", made.name, begin.constant, end.constant);
    if (made.loop == LoopKind::Unroll && trips > 1024)
      wrong("loop `{}` is unrolled {} times; at most 1024", made.name, trips);
    const Interval range{forms_.bounds(begin).least, forms_.bounds(end).greatest - 1};
    if (range.greatest < range.least) return;  // never runs
    const std::int64_t outer_copies = copies_;
    if (made.loop == LoopKind::Unroll) copies_ *= std::max<std::int64_t>(trips, 1);
    if (copies_ > kMostCopies)
      wrong("the loops unrolled around each other up to `{}` make {} copies of what is inside; at most {}",
            made.name, copies_, kMostCopies);
    if (loops_.size() == kMostLoops) wrong("more than {} loops stand inside each other", kMostLoops);
    loops_.push_back({made.slot, made.name, made.loop});
    forms_.bind(made.slot, range);
    const std::size_t facts = forms_.fact_count();
    if (!nest_.parameters.empty()) forms_.push_loop_facts(made.slot, begin, end);
    if (made.loop == LoopKind::Vector || made.loop == LoopKind::Parallel) check_races(made);
    only_child(made);
    forms_.pop_facts(facts);
    forms_.unbind(made.slot);
    loops_.pop_back();
    copies_ = outer_copies;
  }

  std::uint32_t check_buffer(BufferId id) const {
    if (raw(id) >= nest_.buffers.size()) wrong("buffer number {} does not exist", raw(id));
    return raw(id);
  }

  void access(BufferId id, const std::vector<ExprId>& indices, bool writes) {
    const std::uint32_t index = check_buffer(id);
    const Buffer& accessed = nest_.buffers[index];
    if (!alive_[index]) wrong("`{}` is used outside its allocation", accessed.name);
    if (indices.size() != accessed.extents.size())
      wrong("`{}` has {} dimensions but {} indices", accessed.name, accessed.extents.size(), indices.size());
    const bool happens = !forms_.contradictory();
    for (std::size_t d = 0; d < indices.size() && happens; ++d) {
      const AffineForm at = form(indices[d]);
      const Interval range = forms_.bounds(at);
      if (range.greatest < range.least) continue;  // under a condition that never holds
      // What is below the extent of a call is below the largest one.
      if (range.least < 0 ||
          (accessed.live.empty() ? range.greatest >= accessed.extents[d] : !below_live(accessed, d, at)))
        wrong(
            "index {} of `{}`, {}, can be anything in [{}, {}], outside [0, {}); guard it or pad the buffer",
            d, accessed.name, text(indices[d]), range.least, range.greatest,
            accessed.live.empty() ? fmt::format("{}", accessed.extents[d]) : text(accessed.live[d]));
      if (accessed.kind != BufferKind::Register) continue;
      for (const std::uint32_t slot : nest_.arena.iterators(indices[d]))
        for (const Loop& loop : loops_)
          if (loop.slot == slot && loop.kind != LoopKind::Unroll && loop.kind != LoopKind::Vector &&
              forms_.depends_on(at, slot))
            wrong("register buffer `{}` is indexed by loop `{}`, which is neither unrolled nor a vector loop",
                  accessed.name, loop.name);
    }
    if (accessed.kind == BufferKind::Register) {
      for (std::size_t l = allocated_within_[index]; l < loops_.size(); ++l)
        if (loops_[l].kind == LoopKind::Parallel)
          wrong("register buffer `{}` is used inside the parallel loop `{}` it is allocated around",
                accessed.name, loops_[l].name);
    }
    if (writes) {
      if (accessed.kind == BufferKind::Input || accessed.kind == BufferKind::Constant)
        wrong("`{}` is written but is an {}", accessed.name,
              accessed.kind == BufferKind::Input ? "input" : "constant");
      written_[index] = true;
    } else if (!written_[index]) {
      wrong("`{}` is read before anything writes it", accessed.name);
    }
  }

  /// Whether an index is below its buffer's extent, which a call says.
  bool below_live(const Buffer& accessed, std::size_t d, const AffineForm& at) {
    return forms_.bounds(add(at, multiply(form(accessed.live[d]), -1))).greatest < 0;
  }

  void value(ValueId id) {
    if (static_cast<std::size_t>(id) >= nest_.values.size())
      wrong("value number {} does not exist", static_cast<std::uint32_t>(id));
    const Value& made = nest_.value(id);
    const auto part = [&](ValueId child) {
      if (child >= id) wrong("a value comes before its operands");
      value(child);
    };
    switch (made.kind) {
      case ValueKind::Literal:
        return;
      case ValueKind::Index:
        form(made.index);
        return;
      case ValueKind::Load: {
        const std::size_t facts = forms_.fact_count();
        assume(made.guards);
        access(made.buffer, made.indices, false);
        forms_.pop_facts(facts);
        return;
      }
      case ValueKind::Unary:
        return part(made.a);
      case ValueKind::Binary:
        part(made.a), part(made.b);
        return;
      case ValueKind::Select:
        part(made.a), part(made.b), part(made.c);
        return;
    }
  }

  void store(const Statement& made) {
    value(made.value);
    if (made.mode != StoreMode::Assign && !written_[check_buffer(made.buffer)] &&
        nest_.buffer(made.buffer).kind != BufferKind::Input)
      wrong("`{}` is accumulated into before anything writes it", nest_.buffer(made.buffer).name);
    access(made.buffer, made.indices, true);
  }

  void prefetch(const Statement& made) {
    const Buffer& asked = nest_.buffers[check_buffer(made.buffer)];
    if (asked.kind == BufferKind::Register) wrong("`{}` is prefetched but lies in registers", asked.name);
    if (!alive_[raw(made.buffer)]) wrong("`{}` is prefetched outside its allocation", asked.name);
    if (made.indices.size() != asked.extents.size())
      wrong("`{}` has {} dimensions but {} indices", asked.name, asked.extents.size(), made.indices.size());
    for (const ExprId index : made.indices) form(index);
    for (const Loop& loop : loops_)
      if (loop.kind == LoopKind::Vector)
        wrong("`{}` is prefetched by each lane of the vector loop `{}`", asked.name, loop.name);
  }

  // ---- races

  struct Access {
    BufferId buffer;
    const std::vector<ExprId>* indices;
    bool writes;
    StoreMode mode;
  };

  void collect(ValueId id, std::vector<Access>& found) const {
    const Value& made = nest_.value(id);
    if (made.kind == ValueKind::Load) found.push_back({made.buffer, &made.indices, false, StoreMode::Assign});
    if (made.kind == ValueKind::Unary || made.kind == ValueKind::Binary || made.kind == ValueKind::Select)
      collect(made.a, found);
    if (made.kind == ValueKind::Binary || made.kind == ValueKind::Select) collect(made.b, found);
    if (made.kind == ValueKind::Select) collect(made.c, found);
  }
  void collect(StatementId id, std::vector<Access>& found, std::set<BufferId>& own) const {
    const Statement& made = nest_.statement(id);
    if (made.kind == StatementKind::Store) {
      collect(made.value, found);
      found.push_back({made.buffer, &made.indices, true, made.mode});
    }
    if (made.kind == StatementKind::Allocate) own.insert(made.buffer);
    for (const StatementId child : made.children) collect(child, found, own);
  }

  /// Two iterations race when they can touch one element and one of them writes it. What is seen: a write
  /// whose indices do not hold the loop variable at all. A vector loop may reduce into such an element as
  /// long as nothing inside reads it.
  void check_races(const Statement& made) {
    const Interval range = forms_.bounds(forms_.slot_form(made.slot));
    if (range.least == range.greatest) return;
    std::vector<Access> found;
    std::set<BufferId> own;
    collect(made.children[0], found, own);
    for (const Access& write : found) {
      if (!write.writes || own.count(write.buffer)) continue;
      const auto holds_variable = [&](const std::vector<ExprId>& indices) {
        return std::any_of(indices.begin(), indices.end(), [&](ExprId index) {
          const auto slots = nest_.arena.iterators(index);
          return std::find(slots.begin(), slots.end(), made.slot) != slots.end();
        });
      };
      if (holds_variable(*write.indices)) continue;
      const std::string& name = nest_.buffer(write.buffer).name;
      if (made.loop == LoopKind::Parallel)
        wrong("every iteration of the parallel loop `{}` writes the same element of `{}`", made.name, name);
      if (write.mode == StoreMode::Assign)
        wrong("every lane of the vector loop `{}` assigns the same element of `{}`", made.name, name);
      for (const Access& other : found)
        if (!other.writes && other.buffer == write.buffer)
          wrong("the vector loop `{}` reduces into `{}` and reads it", made.name, name);
    }
  }

  const LoopNest& nest_;
  AffineForms forms_;
  std::vector<bool> written_, alive_;
  std::map<std::uint32_t, std::size_t> allocated_within_;
  std::vector<Loop> loops_;
  std::size_t allocations_ = 0;
  std::int64_t copies_ = 1;  ///< that unrolling the loops around makes
};

}  // namespace

void verify(const LoopNest& nest) { Verifier(nest).run(); }

}  // namespace syno::nest
