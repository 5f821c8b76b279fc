#include "machine/nest_facts.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "machine/block_access.hpp"
#include "nest/affine.hpp"

namespace syno::machine {

namespace {

using namespace syno::nest;
using program::Function;

/// Of a division or a root, beyond one instruction: how many others could be done meanwhile. Measured, to one
/// digit.
double cost_of(Function function) {
  switch (function) {
    case Function::Divide:
    case Function::Atan:
      return 4;
    case Function::Fmod:
      return 15;
    case Function::Sqrt:
      return 7;
    case Function::Rsqrt:
      return 10;
    default:
      return 0;
  }
}

/// Further instructions of an elementary function: a polynomial of multiply-adds, whose coefficients wide
/// registers hold for several pieces.
double polynomial_of(Function function, bool wide) {
  switch (function) {
    case Function::Exp:
      return wide ? 11 : 17;
    case Function::Log:
    case Function::Tanh:
      return 25;
    case Function::Sigmoid:
      return wide ? 15 : 21;
    case Function::Erf:
      return wide ? 11 : 58;
    case Function::Gelu:
      return wide ? 14 : 63;
    case Function::Sin:
    case Function::Cos:
      return 60;
    case Function::Atan:
      return 20;
    case Function::Fmod:
      return 80;
    case Function::Power:
      return 200;
    default:
      return 0;
  }
}

/// Instructions beyond one, and beyond those of `costly` ones, of x to the power of a literal that code is
/// made of products for: exponents that are whole and small, and 0.5.
struct PowerCost {
  double more = 0, costly = 0;
};
std::optional<PowerCost> cost_of_power(double exponent) {
  constexpr double kMostProducts = 16;
  if (exponent == 0.5) return PowerCost{2, cost_of(Function::Sqrt)};
  if (exponent != std::floor(exponent) || std::abs(exponent) > kMostProducts) return std::nullopt;
  const auto n = static_cast<unsigned>(std::abs(exponent));
  const int products = n == 0 ? 0 : std::bit_width(n) - 1 + std::popcount(n) - 1;
  return PowerCost{std::max(0.0, products - 1.0), exponent < 0 ? cost_of(Function::Divide) : 0};
}

constexpr double kWiden = 1, kNarrow = 8;  ///< operations on a vector between bf16 in memory and f32

class Reader {
 public:
  Reader(const LoopNest& nest, std::int64_t vector_bytes)
      : nest_(nest),
        lanes_(std::max<std::int64_t>(1, vector_bytes / computed_bytes(nest))),
        wide_(vector_bytes >= 64) {}

  NestFacts run() {
    trips_.assign(nest_.next_slot + 1, 1);
    node(nest_.root);
    facts_.slot_count = static_cast<std::uint32_t>(trips_.size());
    return std::move(facts_);
  }

 private:
  bool has_loops(StatementId id) const {
    const Statement& s = nest_.statement(id);
    if (s.kind == StatementKind::For && s.loop != LoopKind::Unroll && s.loop != LoopKind::Vector) return true;
    return std::any_of(s.children.begin(), s.children.end(), [&](StatementId c) { return has_loops(c); });
  }

  std::size_t add(NestNode made) {
    facts_.nodes.push_back(std::move(made));
    return facts_.nodes.size() - 1;
  }

  double enter(const Statement& loop) {
    const Interval begin = forms_.bounds(forms_.form(nest_.arena, loop.begin));
    const Interval end = forms_.bounds(forms_.form(nest_.arena, loop.end));
    const double trips = std::max(0.0, (static_cast<double>(end.least - begin.least) +
                                        static_cast<double>(end.greatest - begin.greatest)) /
                                           2);
    forms_.bind(loop.slot, {begin.least, std::max(begin.least, end.greatest - 1)});
    if (loop.slot >= trips_.size()) trips_.resize(loop.slot + 1, 1);
    trips_[loop.slot] = trips;
    return trips;
  }

  std::size_t node(StatementId id) {
    const Statement& s = nest_.statement(id);
    if (!has_loops(id)) return block(id);
    NestNode made;
    if (s.kind == StatementKind::For) {  // an unrolled loop over loops is a loop in all that matters here
      made.kind = NestNode::Kind::Loop;
      made.slot = s.slot;
      made.trips = enter(s);
      made.parallel = s.loop == LoopKind::Parallel;
      path_.push_back(s.slot);
      made.children.push_back(sequence(s.children));
      path_.pop_back();
      forms_.unbind(s.slot);
      return add(std::move(made));
    }
    const std::size_t inside = sequence(s.children);
    if (s.kind != StatementKind::If) return inside;
    made.kind = NestNode::Kind::Loop;  // that runs less than once
    made.slot = static_cast<std::uint32_t>(trips_.size());
    made.trips = share(s.conditions, {}).part;
    trips_.push_back(made.trips);
    made.children.push_back(inside);
    return add(std::move(made));
  }

  /// The part of the iterations around in which conditions hold (1 where that is long to tell), and how many
  /// of the repeats must look, code being made for each: what stays in the innermost loop is decided before
  /// it.
  struct Share {
    double part = 1, looks = 0;
  };
  Share share(const std::vector<nest::Condition>& conditions, const std::vector<Repeat>& around) {
    constexpr std::int64_t kMost = 1024;
    Share made;
    std::vector<std::int64_t> values(trips_.size());
    for (const nest::Condition& condition : conditions) {
      std::vector<std::pair<std::uint32_t, Interval>> ranges;  // the repeats last
      std::int64_t count = 1, loops = 1;
      for (const bool repeats : {false, true})
        for (const std::uint32_t slot : nest_.arena.iterators(condition.expr)) {
          const bool repeat = std::any_of(around.begin(), around.end(),
                                          [slot = slot](const Repeat& r) { return r.slot == slot; });
          if (repeat != repeats || count > kMost) continue;
          ranges.emplace_back(slot, forms_.bounds(forms_.slot_form(slot)));
          count *= std::min(ranges.back().second.greatest - ranges.back().second.least + 1, kMost + 1);
          if (!repeats) loops = count;
        }
      if (count > kMost) continue;
      const auto slots = nest_.arena.iterators(condition.expr);
      const bool asked = std::any_of(slots.begin(), slots.end(), [&](std::uint32_t slot) {
        return path_.empty() || slot == path_.back() ||
               std::any_of(around.begin(), around.end(), [&](const Repeat& r) { return r.slot == slot; });
      });
      std::int64_t held = 0, of_repeat = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t rest = i;
        for (const auto& [slot, range] : ranges) {
          const std::int64_t trips = range.greatest - range.least + 1;
          values[slot] = range.least + rest % trips;
          rest /= trips;
        }
        const std::int64_t at = *symbolic::evaluate(nest_.arena, condition.expr, sizes_, 0, values);
        of_repeat += condition.begin <= at && at < condition.end;
        if ((i + 1) % loops != 0) continue;
        made.looks += asked && of_repeat > 0 && of_repeat < loops;
        held += std::exchange(of_repeat, 0);
      }
      made.part *= static_cast<double>(held) / static_cast<double>(count);
    }
    return made;
  }

  /// Whether conditions let whole vectors in or none: no lane moves what is asked about.
  bool decided(const std::vector<nest::Condition>& conditions, const std::vector<Repeat>& around) const {
    return std::all_of(conditions.begin(), conditions.end(), [&](const nest::Condition& condition) {
      const auto slots = nest_.arena.iterators(condition.expr);
      return std::none_of(around.begin(), around.end(), [&](const Repeat& repeat) {
        return repeat.vector && std::find(slots.begin(), slots.end(), repeat.slot) != slots.end();
      });
    });
  }

  /// Neighbours without loops are one block.
  std::size_t sequence(const std::vector<StatementId>& children) {
    NestNode made;
    made.kind = NestNode::Kind::Sequence;
    for (const StatementId child : children) made.children.push_back(node(child));
    if (made.children.size() == 1) return made.children[0];
    return add(std::move(made));
  }

  std::size_t block(StatementId id) {
    NestNode made;
    std::vector<Repeat> around;
    sums_.clear();
    started_.clear();
    operands_ = 0;
    statement(id, made, around);
    double sums = 0;
    for (const auto& [buffer, vectors] : sums_) sums += vectors;
    made.work.registers = sums > 0 ? sums + operands_ + 1 : 0;
    if (made.work.held > 0) made.work.held += sums + 1;
    return add(std::move(made));
  }

  void statement(StatementId id, NestNode& block, std::vector<Repeat>& around) {
    const Statement& s = nest_.statement(id);
    switch (s.kind) {
      case StatementKind::For: {
        const double trips = enter(s);
        around.push_back({s.slot, static_cast<std::int64_t>(trips), s.loop == LoopKind::Vector});
        for (const StatementId child : s.children) statement(child, block, around);
        around.pop_back();
        forms_.unbind(s.slot);
        return;
      }
      case StatementKind::Store:
        store(s, block, around);
        return;
      case StatementKind::If:
        if (decided(s.conditions, around)) {
          const Share let = share(s.conditions, around);
          block.work.conditions += let.looks;
          const double outer = std::exchange(part_, part_ * let.part);
          for (const StatementId child : s.children) statement(child, block, around);
          part_ = outer;
          return;
        }
        block.work.masks += vectors(around);
        [[fallthrough]];
      default:
        for (const StatementId child : s.children) statement(child, block, around);
    }
  }

  double vectors(const Repeat& repeat) const { return vectors_of(repeat, lanes_); }
  /// How many vectors all repeats together are.
  double vectors(const std::vector<Repeat>& around) const {
    double product = part_;
    for (const Repeat& repeat : around) product *= vectors(repeat);
    return product;
  }

  Place place(const std::vector<Repeat>& around) { return {forms_, lanes_, trips_, path_, around, target_}; }

  void value(ValueId id, NestNode& block, const std::vector<Repeat>& around, bool& multiplies) {
    if (!seen_.insert(static_cast<std::uint32_t>(id)).second) return;
    const Value& v = nest_.value(id);
    const double count = vectors(around);
    switch (v.kind) {
      case ValueKind::Load: {
        const Buffer& buffer = nest_.buffer(v.buffer);
        if (buffer.kind == BufferKind::Register) return;
        Access access;
        access.buffer = v.buffer;
        access.element_bytes = static_cast<std::int64_t>(byte_size(buffer.dtype));
        access.guarded = !v.guards.empty();
        const Place here = place(around);
        Address at = address_of(nest_, buffer, v.indices, here);
        const Moved m = moved(at, here);
        block.work.vector_loads += m.vectors;
        block.work.held += m.held;
        block.work.loaded_again += m.again;
        block.work.scalar_loads += m.scalars;
        block.work.gathers += m.elements;
        block.work.picks += m.shuffles;
        if (buffer.dtype == Dtype::BF16) block.work.fma += kWiden * (m.vectors + m.scalars + m.elements);
        if (m.vectors > 0) operands_ = std::max(operands_, live(at, here));
        block.work.crossing_loads += m.vectors * crossing(at, here);
        for (const nest::Condition& guard : v.guards) masks(guard, around, m.most(), block.work);
        block.accesses.push_back(facts_.accesses.size());
        access.least = at.least;
        access.terms = std::move(at.terms);
        facts_.accesses.push_back(std::move(access));
        return;
      }
      case ValueKind::Unary: {
        value(v.a, block, around, multiplies);
        const double more = polynomial_of(v.function, wide_), costly = cost_of(v.function);
        const double times = more + costly > 0 ? executions(v.a, around) : count;
        block.work.fma += times * (1 + more);
        block.work.flops += count_elements(around);
        block.work.costly += times * costly;
        return;
      }
      case ValueKind::Binary: {
        value(v.a, block, around, multiplies);
        value(v.b, block, around, multiplies);
        if (v.function == Function::Multiply && multiplies) {
          multiplies = false;  // joined with the addition of the store
          return;
        }
        // By what is the same in all lanes, a division is a product with its reciprocal.
        double more = polynomial_of(v.function, wide_), costly = cost_of(v.function);
        if (const nest::Value& exponent = nest_.value(v.b);
            v.function == Function::Power && exponent.kind == ValueKind::Literal)
          if (const auto power = cost_of_power(exponent.literal)) {
            more = power->more;
            costly = power->costly;
          }
        const double times =
            more + costly > 0 ? executions(v.function == Function::Divide ? v.b : id, around) : count;
        (orders(v) ? block.work.maxima : block.work.fma) += count;
        block.work.fma += times * more;
        block.work.flops += count_elements(around);
        block.work.costly += times * costly;
        return;
      }
      case ValueKind::Select:
        value(v.a, block, around, multiplies);
        value(v.b, block, around, multiplies);
        value(v.c, block, around, multiplies);
        block.work.fma += count;
        return;
      default:
        return;
    }
  }
  void slots_of(ValueId id, std::set<std::uint32_t>& slots) {
    const Value& v = nest_.value(id);
    const auto add = [&](ExprId e) {
      for (const auto& [atom, coefficient] : forms_.form(nest_.arena, e).terms) {
        std::vector<std::uint32_t> found;
        machine::slots_of(forms_, atom, found);
        slots.insert(found.begin(), found.end());
      }
    };
    if (v.kind == ValueKind::Index) add(v.index);
    for (const ExprId index : v.indices) add(index);
    for (const nest::Condition& guard : v.guards) add(guard.expr);
    const int operands = v.kind == ValueKind::Unary ? 1 : v.kind == ValueKind::Binary ? 2 : 0;
    if (v.kind == ValueKind::Select) slots_of(v.c, slots);
    if (operands > 0 || v.kind == ValueKind::Select) slots_of(v.a, slots);
    if (operands > 1 || v.kind == ValueKind::Select) slots_of(v.b, slots);
  }
  /// Whether it is the larger or smaller of two numbers either of which may be none.
  bool orders(const Value& v) const {
    return (v.function == Function::Maximum || v.function == Function::Minimum) &&
           nest_.value(v.a).kind != ValueKind::Literal && nest_.value(v.b).kind != ValueKind::Literal;
  }
  /// How often what takes long is computed: once for all lanes that it is the same in, and before the
  /// innermost loop if that does not change it.
  double executions(ValueId id, const std::vector<Repeat>& around) {
    std::set<std::uint32_t> slots;
    slots_of(id, slots);
    double count = 1;
    bool lanes = false;
    for (const Repeat& repeat : around)
      if (slots.count(repeat.slot) != 0) {
        count *= vectors(repeat);
        lanes = lanes || repeat.vector;
      }
    const bool changes = path_.empty() || slots.count(path_.back()) != 0;
    return lanes || changes ? count : 0;
  }

  /// Masks of a guard of `loads` loads. Which iterations it lets in is known when code is made, or before the
  /// innermost loop that stays one, if that does not move it; otherwise each of its values is compared once,
  /// however many loads share it.
  void masks(const nest::Condition& guard, const std::vector<Repeat>& around, double loads, Work& work) {
    std::vector<Part> parts;
    double others = 1;
    bool known = true, lanes = false;
    for (const auto& [atom, coefficient] : forms_.joined(forms_.form(nest_.arena, guard.expr)).terms) {
      std::vector<std::uint32_t> slots;
      machine::slots_of(forms_, atom, slots);
      double repeats = 1;
      for (const std::uint32_t slot : slots) {
        const auto repeat =
            std::find_if(around.begin(), around.end(), [&](const Repeat& r) { return r.slot == slot; });
        if (repeat == around.end())
          known = known && (path_.empty() || slot != path_.back());
        else
          repeats *= vectors(*repeat);
        lanes = lanes || (repeat != around.end() && repeat->vector);
      }
      if (forms_.atom(atom).kind == Atom::Kind::Slot)
        parts.push_back({std::abs(coefficient), repeats});
      else
        others *= repeats;
    }
    if (known)
      work.known_masks += loads;
    else
      (lanes ? work.masks : work.conditions) += others * distinct(std::move(parts));
  }

  double count_elements(const std::vector<Repeat>& around) const {
    double count = part_;
    for (const Repeat& repeat : around) count *= static_cast<double>(repeat.trips);
    return count;
  }

  /// Lanes that meet in one element. Two vectors become one that holds half as many lanes of each, until
  /// there is one; then its halves are added to each other until a lane of each is left.
  void fold(const Address& at, const std::vector<Repeat>& around, Work& work) const {
    double results = 1;
    std::int64_t lanes = 0;
    for (const Repeat& repeat : around) {
      results *= vectors(repeat);
      if (repeat.vector && !at.moves(repeat.slot)) lanes = std::min(repeat.trips, lanes_);
    }
    if (lanes < 2) return;
    const double width = std::exp2(std::ceil(std::log2(static_cast<double>(lanes))));
    const double together = std::min(width, results), joined = together - 1,
                 halved = std::max(0.0, std::log2(width / together));
    work.fma += results / together * (joined + halved);
    work.picks += results / together * (2 * joined + halved);
  }

  void store(const Statement& s, NestNode& block, const std::vector<Repeat>& around) {
    const Buffer& buffer = nest_.buffer(s.buffer);
    const bool adds = s.mode != StoreMode::Assign;
    const Value& root = nest_.value(s.value);
    bool multiplies =
        s.mode == StoreMode::Add && root.kind == ValueKind::Binary && root.function == Function::Multiply;
    const bool fused = multiplies;
    seen_.clear();
    Address at = address_of(nest_, buffer, s.indices, place(around));
    target_ = buffer.kind == BufferKind::Register ? &at : nullptr;
    value(s.value, block, around, multiplies);
    const double count = vectors(around);
    if (adds) {
      const bool ordered = s.mode == StoreMode::Max || s.mode == StoreMode::Min;
      (ordered ? block.work.maxima : block.work.fma) += count;
      block.work.flops += count_elements(around) * (fused ? 2 : 1);
      fold(at, around, block.work);
    }
    if (buffer.kind == BufferKind::Register) {
      double distinct = 1;
      for (const Repeat& repeat : around)
        if (at.moves(repeat.slot)) distinct *= vectors(repeat);
      if (adds) {
        block.work.chain = std::max(block.work.chain, count / std::max(distinct, 1.0));
        block.work.carried = block.work.carried || started_.count(s.buffer) == 0;
      } else {
        started_.insert(s.buffer);
      }
      auto found =
          std::find_if(sums_.begin(), sums_.end(), [&](const auto& sum) { return sum.first == s.buffer; });
      if (found == sums_.end()) sums_.emplace_back(s.buffer, distinct);
      return;
    }
    Access access;
    access.buffer = s.buffer;
    access.element_bytes = static_cast<std::int64_t>(byte_size(buffer.dtype));
    const Moved m = moved(at, place(around));
    if (adds) {  // through memory: loaded, added to and stored; the next one waits
      block.work.vector_loads += m.vectors;
      block.work.scalar_loads += m.scalars;
      block.work.gathers += m.elements;
    }
    if (buffer.dtype == Dtype::BF16) {
      block.work.fma += kNarrow * (m.vectors + m.scalars + m.elements);
      if (adds) block.work.fma += kWiden * (m.vectors + m.scalars + m.elements);
    }
    block.work.crossing_stores += m.vectors * crossing(at, place(around));
    const bool narrow = std::any_of(around.begin(), around.end(), [&](const Repeat& repeat) {
      return repeat.vector && at.moves(repeat.slot) && 2 * repeat.trips <= lanes_;
    });
    (narrow ? block.work.narrow_stores : block.work.vector_stores) += m.vectors;
    block.work.narrow_stores += m.scalars;
    block.work.scatters += m.elements;
    access.write = true;
    access.least = at.least;
    access.terms = std::move(at.terms);
    block.accesses.push_back(facts_.accesses.size());
    facts_.accesses.push_back(std::move(access));
  }

  const LoopNest& nest_;
  std::int64_t lanes_;  ///< of a vector of the type that is computed in
  bool wide_;           ///< vectors of 512 bits
  AffineForms forms_;
  const symbolic::Sizes sizes_;
  NestFacts facts_;
  double part_ = 1;                  ///< of a block's repeats that conditions let in
  std::vector<double> trips_;        ///< by slot, of the loops around
  std::vector<std::uint32_t> path_;  ///< slots of the loops around a block, outermost first
  std::set<std::uint32_t> seen_;
  std::vector<std::pair<BufferId, double>> sums_;
  std::set<BufferId> started_;  ///< sums that begin in the block
  double operands_ = 0;
  const Address* target_ = nullptr;  ///< of the sum that is being added to, where registers hold it
};

}  // namespace

std::int64_t computed_bytes(const LoopNest& nest) {
  const bool wide = std::any_of(nest.buffers.begin(), nest.buffers.end(),
                                [](const Buffer& buffer) { return buffer.dtype == Dtype::F64; });
  return wide ? 8 : 4;  // bfloat16 is computed in float32
}

NestFacts facts_of(const LoopNest& nest, std::int64_t vector_bytes) {
  return Reader(nest, vector_bytes).run();
}

}  // namespace syno::machine
