// The innermost part of a scope: register tiles and their sums, transposition, sums in memory.
#include <algorithm>
#include <functional>
#include <limits>

#include "schedule/emission.hpp"
#include "support/error.hpp"

namespace syno::schedule {

using program::Reduction;
using program::ScalarId;
using program::TensorId;

namespace {

struct Identity {
  double value;
  StoreMode mode;
};

Identity identity_of(Reduction reduction) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case Reduction::Max:
      return {-infinity, StoreMode::Max};
    case Reduction::Min:
      return {infinity, StoreMode::Min};
    case Reduction::Product:
      return {1, StoreMode::Multiply};
    default:
      return {0, StoreMode::Add};
  }
}

/// What makes one result of two.
program::Function joining(Reduction reduction) {
  switch (reduction) {
    case Reduction::Max:
      return program::Function::Maximum;
    case Reduction::Min:
      return program::Function::Minimum;
    case Reduction::Product:
      return program::Function::Multiply;
    default:
      return program::Function::Add;
  }
}

}  // namespace

StatementId Emission::emit_core(std::size_t s, std::size_t k) {
  const program::Scope& scope = plan_.program.scopes[s];
  const bool accumulates = !scope.target.empty();
  if (!reduces(s) && !plan_.scopes[s].tile.empty()) return emit_transposed(s, k);
  if (!reduces(s))
    return write(s, accumulates ? StoreMode::Add : StoreMode::Assign,
                 [&] { return finished(s, body_value(s)); });

  const auto& order = plan_.scopes[s].order;
  const auto& tile = plan_.scopes[s].tile;
  const auto in_tile = [&](int loop) { return std::find(tile.begin(), tile.end(), loop) != tile.end(); };
  std::vector<int> traversal, lanes;
  for (std::size_t p = k; p < order.size(); ++p) {
    if (!leaf(s, order[p]).reduction)
      traversal.push_back(order[p]);
    else if (in_tile(order[p]))
      lanes.push_back(order[p]);
  }
  const auto [start, mode] = identity_of(scope.reduction);
  std::int64_t count = 1;
  std::vector<ExprId> live_counts;
  for (const auto& sum : scope.sums) {
    const auto [begin, end] = plan_.range(sum.range);
    if (const auto live = plan_.live_end(nest_.arena, sum.range))
      live_counts.push_back(nest_.arena.subtract(*live, nest_.arena.constant(begin)));
    else
      count *= end - begin;
  }
  const bool mean = scope.reduction == Reduction::Mean;
  const bool in_memory = tile.empty() && !traversal.empty();
  // A constant factor of every term is one of their sum.
  // 1 / count is one only where it is exact: else a mean of equal terms would not be the term.
  const bool divides = mean && (count & (count - 1)) != 0;
  double factor = mean && !divides ? 1.0 / static_cast<double>(count) : 1.0;
  ScalarId term_body = scope.body;
  if (!in_memory && (mean || scope.reduction == Reduction::Sum))
    term_body = without_factor(scope.body, factor);
  const auto scaled = [&](ValueId v) {
    if (factor != 1) v = nest_.binary(program::Function::Multiply, v, nest_.literal(factor));
    if (divides)
      v = nest_.binary(program::Function::Divide, v, nest_.index_value(nest_.arena.constant(count)));
    for (const ExprId live : live_counts)
      if (mean) v = nest_.binary(program::Function::Divide, v, nest_.index_value(live));
    return v;
  };

  if (in_memory) return accumulate_in_memory(s, k, traversal, start, mode, scaled);
  for (const int loop : tile)
    if (plan_.position(s, loop) < static_cast<int>(k))
      return refused(refuse(kWhere,
                            "loop '{}' of '{}' is part of the register tile but runs outside the reduction",
                            leaf(s, loop).name, plan_.program.tensor(scope.output).name));

  std::vector<int> all = traversal;
  all.insert(all.end(), lanes.begin(), lanes.end());
  // A vector loop stays innermost in the nests around the reduction, too.
  std::stable_partition(all.begin(), all.end(), [&](int l) { return leaf(s, l).kind != LoopKind::Vector; });
  const BufferId sums = accumulator(s, all, "acc");
  const auto at = [&](const std::vector<int>& loops) {
    std::vector<ExprId> indices;
    for (const int loop : loops) indices.push_back(tidy(nest_.arena.iterator(leaf(s, loop).slot)));
    return indices;
  };
  std::vector<StatementId> parts;
  parts.push_back(emit_over(s, all, 0, [&] { return nest_.store(sums, at(all), nest_.literal(start)); }));
  parts.push_back(emit_steps(s, k, [&] {
    Body body;
    const ValueId term = value(s, term_body, body);
    return nest_.store(sums, at(all), term, mode);
  }));
  BufferId result = sums;
  std::vector<int> written = traversal;
  if (!lanes.empty()) {
    fold_lanes(s, sums, all, lanes, mode, parts);
    result = accumulator(s, traversal, "sum");
    if (const auto loop = neighbours(s, traversal, lanes)) {
      written.erase(std::find(written.begin(), written.end(), *loop));
      written.push_back(*loop);
      kinds_ = {{{s, *loop}, LoopKind::Vector}};
    }
    parts.push_back(
        emit_over(s, written, 0, [&] { return nest_.store(result, at(traversal), nest_.literal(start)); }));
    const auto kinds = std::exchange(kinds_, {});
    // What is left of each result: one vector, or one element.
    std::vector<int> left;
    for (const int loop : all)
      if (!leaf(s, loop).reduction || leaf(s, loop).kind == LoopKind::Vector ||
          facts_[s].trips[static_cast<std::size_t>(loop)] == 1)
        left.push_back(loop);
    const auto folded = [&] {
      std::vector<ExprId> indices;
      for (const int loop : all)
        indices.push_back(std::find(left.begin(), left.end(), loop) == left.end()
                              ? nest_.arena.constant(0)
                              : tidy(nest_.arena.iterator(leaf(s, loop).slot)));
      return indices;
    };
    parts.push_back(emit_over(
        s, left, 0, [&] { return nest_.store(result, at(traversal), nest_.load(sums, folded()), mode); }));
    kinds_ = kinds;
  }
  parts.push_back(write_sums(s, k, written, [&] { return scaled(nest_.load(result, at(traversal))); }));
  kinds_.clear();
  StatementId made = nest_.sequence(std::move(parts));
  if (!lanes.empty()) made = nest_.allocate(result, made);
  return nest_.allocate(sums, made);
}

/// A loop of results that lie one behind the other where they are written, no more than lanes of the sum:
/// they are one vector, in which the sums of lanes meet.
std::optional<int> Emission::neighbours(std::size_t s, const std::vector<int>& traversal,
                                        const std::vector<int>& lanes) {
  const program::Scope& scope = plan_.program.scopes[s];
  const nest::Buffer& buffer = nest_.buffer(buffer_of_[raw(scope.output)]);
  const auto& outputs = facts_[s].outputs;
  if (!scope.target.empty() || outputs.empty() || !plan_.tensors[raw(scope.output)].layout.empty() ||
      (!buffer.strides.empty() && buffer.strides.back() != 1))
    return std::nullopt;
  const auto trips = [&](int loop) { return facts_[s].trips[static_cast<std::size_t>(loop)]; };
  std::int64_t most = 0;
  for (const int loop : lanes)
    if (leaf(s, loop).kind == LoopKind::Vector) most = trips(loop);
  for (const int loop : traversal) {
    if (trips(loop) < 2 || trips(loop) > most || leaf(s, loop).kind == LoopKind::Vector) continue;
    const std::uint32_t slot = leaf(s, loop).slot;
    bool apart = false;
    for (std::size_t d = 0; d < outputs.size() && !apart; ++d) {
      const AffineForm at = forms_.form(nest_.arena, outputs[d]);
      const AffineForm first = forms_.substitute(at, slot, 0), second = forms_.substitute(at, slot, 1);
      apart = first.terms != second.terms ||
              second.constant - first.constant != (d + 1 == outputs.size() ? 1 : 0);
    }
    if (!apart) return loop;
  }
  return std::nullopt;
}

std::pair<ExprId, std::int64_t> Emission::part_of_sum(std::size_t s, std::size_t core) {
  AffineForm part;
  std::int64_t last = 0;
  for (std::size_t p = 0; p < core; ++p) {
    const int loop = plan_.scopes[s].order[p];
    if (!leaf(s, loop).reduction) continue;
    part = nest::add(part, forms_.form(nest_.arena, nest_.arena.iterator(leaf(s, loop).slot)));
    last += facts_[s].trips[static_cast<std::size_t>(loop)] - 1;
  }
  return {to_expr(nest_.arena, forms_, part), last};
}

std::int64_t Emission::bytes_between_parts(std::size_t s, std::size_t core) const {
  auto bytes = static_cast<std::int64_t>(byte_size(plan_.dtype));
  const auto& order = plan_.scopes[s].order;
  for (std::size_t p = order.size(); p-- > 0;) {
    if (!leaf(s, order[p]).reduction)
      bytes *= facts_[s].trips[static_cast<std::size_t>(order[p])];
    else if (p < core)
      break;
  }
  return bytes;
}

StatementId Emission::write_sums(std::size_t s, std::size_t core, const std::vector<int>& traversal,
                                 const std::function<ValueId()>& sums) {
  const program::Scope& scope = plan_.program.scopes[s];
  if (!scope.target.empty())
    return emit_over(s, traversal, 0, [&] { return write(s, StoreMode::Add, sums); });
  for (std::size_t p = 0; p < core; ++p)
    if (const int loop = plan_.scopes[s].order[p]; leaf(s, loop).reduction)
      if (auto reason = check_part(s, loop)) return refused(*std::move(reason));
  const std::pair<ExprId, std::int64_t> cut = part_of_sum(s, core);
  const ExprId part = cut.first;
  const std::int64_t last = cut.second;
  const auto joined = [&] {
    const ValueId before =
        nest_.load(buffer_of_[raw(scope.output)], place(scope.output, facts_[s].outputs), {}, 0);
    return nest_.binary(joining(scope.reduction), before, sums());
  };
  // Parts from `begin` to `end`.
  const auto parts = [&](std::int64_t begin, std::int64_t end, const std::function<ValueId()>& make) {
    std::vector<Condition> conditions;
    if (!within(part, begin, end)) conditions.push_back({part, begin, end});
    return where(std::move(conditions), [&] {
      return emit_over(s, traversal, 0, [&] { return write(s, StoreMode::Assign, make); });
    });
  };
  const std::int64_t whole = plan_.scopes[s].epilogue ? last : last + 1;
  std::vector<StatementId> made;
  made.push_back(parts(0, 1, [&] { return last == 0 ? finished(s, sums()) : sums(); }));
  if (whole > 1) made.push_back(parts(1, whole, joined));
  if (last > 0 && whole == last) made.push_back(parts(last, last + 1, [&] { return finished(s, joined()); }));
  return nest_.sequence(std::move(made));
}

Refused Emission::check_part(std::size_t s, int loop) const {
  const TensorId output = plan_.program.scopes[s].output;
  const std::string& name = plan_.program.tensor(output).name;
  SYNO_ASSERT(facts_[s].trips[static_cast<std::size_t>(loop)] > 0, "a sum has terms");
  if (nest_.buffer(buffer_of_[raw(output)]).dtype == Dtype::BF16)
    return refuse(kWhere, "parts of '{}' would be summed up in bf16; stage it", name);
  return {};
}

StatementId Emission::emit_transposed(std::size_t s, std::size_t k) {
  const auto& order = plan_.scopes[s].order;
  const auto& tile = plan_.scopes[s].tile;
  if (order.size() - k != tile.size() ||
      !std::is_permutation(tile.begin(), tile.end(), order.begin() + static_cast<std::ptrdiff_t>(k)))
    return refused(refuse(kWhere, "the loops '{}' and '{}' of '{}' are transposed but not the innermost ones",
                          leaf(s, tile[0]).name, leaf(s, tile[1]).name,
                          plan_.program.tensor(plan_.program.scopes[s].output).name));
  const int read = tile[0], written = tile[1];
  const BufferId block = accumulator(s, tile, "block");
  const auto at = [&] {
    std::vector<ExprId> indices;
    for (const int loop : tile) indices.push_back(tidy(nest_.arena.iterator(leaf(s, loop).slot)));
    return indices;
  };
  const auto over = [&](int outer, int lanes, const std::function<StatementId()>& body) {
    kinds_ = {{{s, outer}, LoopKind::Unroll}, {{s, lanes}, LoopKind::Vector}};
    const StatementId made = emit_over(s, {outer, lanes}, 0, body);
    kinds_.clear();
    return made;
  };
  std::vector<StatementId> parts;
  parts.push_back(over(written, read, [&] { return nest_.store(block, at(), body_value(s)); }));
  parts.push_back(over(read, written, [&] {
    return write(s, StoreMode::Assign, [&] { return finished(s, nest_.load(block, at())); });
  }));
  return nest_.allocate(block, nest_.sequence(std::move(parts)));
}

void Emission::fold_lanes(std::size_t s, BufferId sums, const std::vector<int>& all,
                          const std::vector<int>& lanes, StoreMode mode, std::vector<StatementId>& parts) {
  std::vector<int> scalars, vectors;  // loops that are left
  for (const int loop : all) (leaf(s, loop).kind == LoopKind::Vector ? vectors : scalars).push_back(loop);
  for (const int loop : lanes) {
    // One iteration says how many a loop inside it has: it stays around the others.
    if (leaf(s, loop).kind == LoopKind::Vector || facts_[s].trips[static_cast<std::size_t>(loop)] == 1)
      continue;
    scalars.erase(std::find(scalars.begin(), scalars.end(), loop));
    parts.push_back(emit_over(s, scalars, 0, [&] {
      std::vector<StatementId> steps;
      for (std::int64_t count = facts_[s].trips[static_cast<std::size_t>(loop)]; count > 1;) {
        const std::int64_t half = (count + 1) / 2;
        const std::uint32_t slot = nest_.new_slot();
        const ExprId variable = nest_.arena.iterator(slot);
        const StatementId body = emit_over(s, vectors, 0, [&] {
          std::vector<ExprId> low, high;
          for (const int other : all) {
            const bool folded = other != loop && leaf(s, other).kind != LoopKind::Vector &&
                                std::find(scalars.begin(), scalars.end(), other) == scalars.end();
            const ExprId index = other == loop ? variable
                                 : folded      ? nest_.arena.constant(0)
                                               : tidy(nest_.arena.iterator(leaf(s, other).slot));
            low.push_back(index);
            high.push_back(other == loop ? nest_.arena.add(variable, nest_.arena.constant(half)) : index);
          }
          const ValueId added = nest_.load(sums, std::move(high));
          return nest_.store(sums, std::move(low), added, mode);
        });
        steps.push_back(nest_.loop(fmt::format("fold{}", slot), slot, count - half, LoopKind::Unroll, body));
        count = half;
      }
      return nest_.sequence(std::move(steps));
    }));
  }
}

BufferId Emission::accumulator(std::size_t s, const std::vector<int>& loops, const char* word) {
  Buffer buffer;
  const std::string& tensor = plan_.program.tensor(plan_.program.scopes[s].output).name;
  buffer.name = fmt::format("{}_{}", tensor, word);
  const auto taken = [&] {
    return std::any_of(nest_.buffers.begin(), nest_.buffers.end(),
                       [&](const Buffer& other) { return other.name == buffer.name; });
  };
  for (int i = 2; taken(); ++i) buffer.name = fmt::format("{}_{}{}", tensor, word, i);
  buffer.kind = BufferKind::Register;
  buffer.dtype = register_dtype();
  for (const int loop : loops) buffer.extents.push_back(facts_[s].trips[static_cast<std::size_t>(loop)]);
  return nest_.add(std::move(buffer));
}

StatementId Emission::accumulate_in_memory(std::size_t s, std::size_t k, const std::vector<int>& traversal,
                                           double start, StoreMode mode,
                                           const std::function<ValueId(ValueId)>& scaled) {
  const program::Scope& scope = plan_.program.scopes[s];
  const bool accumulates = !scope.target.empty();
  const std::string& name = plan_.program.tensor(scope.output).name;
  if (nest_.buffer(buffer_of_[raw(scope.output)]).dtype == Dtype::BF16)
    return refused(refuse(kWhere, "'{}' would sum up in bf16; give it a register tile or stage it", name));
  if (plan_.scopes[s].epilogue)
    return refused(
        refuse(kWhere, "'{}' has an epilogue, which takes its results from a register tile", name));
  if (accumulates && mode != StoreMode::Add)
    return refused(refuse(
        kWhere, "'{}' accumulates reductions other than sums; its traversal loops stay outside", name));
  if (accumulates)
    return emit_reduction(s, k,
                          [&] { return write(s, StoreMode::Add, [&] { return scaled(body_value(s)); }); });
  std::vector<StatementId> parts;
  parts.push_back(emit_over(
      s, traversal, 0, [&] { return write(s, StoreMode::Assign, [&] { return nest_.literal(start); }); }));
  parts.push_back(emit_steps(s, k, [&] { return write(s, mode, [&] { return body_value(s); }); }));
  if (scope.reduction == Reduction::Mean)
    parts.push_back(emit_over(s, traversal, 0, [&] { return rewrite(s, scaled); }));
  return nest_.sequence(std::move(parts));
}

}  // namespace syno::schedule
