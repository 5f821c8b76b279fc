// Random nests that verify: generator of cases for the code generator.
#pragma once

#include <algorithm>
#include <array>

#include "nests.hpp"

namespace syno::jit::testing_nests {

using nest::BufferId;
using nest::Condition;
using nest::LoopKind;
using nest::StatementId;
using nest::StoreMode;
using nest::ValueId;
using program::Function;
using symbolic::ExprId;

/// A nest over one output: every dimension split or not, loops in any order and of any kind, a reduction in
/// memory, in a register tile or in a temporary, loads at random index maps with guards.
class RandomNest {
 public:
  RandomNest(std::uint64_t seed, Dtype dtype) : random_(seed), dtype_(dtype) {}

  LoopNest make() {
    nest_.name = "random_nest";
    const std::size_t rank = 1 + random_.below(3);
    const std::int64_t largest = rank == 1 ? 90 : rank == 2 ? 30 : 9;
    std::vector<std::int64_t> extents;
    for (std::size_t d = 0; d < rank; ++d) extents.push_back(1 + below(largest));
    for (int i = 0; i < 2; ++i) {
      nest::Buffer input;
      input.name = i == 0 ? "a" : "b";
      input.dtype = dtype_;
      for (std::uint64_t d = 0; d < 1 + random_.below(2); ++d) input.extents.push_back(1 + below(24));
      input.strides = nest::row_major_strides(input.extents);
      if (chance(4))
        for (std::int64_t& stride : input.strides) stride *= chance(2) ? 2 : -1;
      inputs_.push_back(nest_.add(input));
    }
    nest::Buffer output;
    output.name = "y";
    output.dtype = dtype_;
    output.kind = BufferKind::Output;
    output.extents = extents;
    output_ = nest_.add(output);
    for (std::size_t d = 0; d < rank; ++d) dims_.push_back(split(d, extents[d]));
    reduction_ = chance(3) ? 0 : 1 + below(7);
    mode_ = std::array{StoreMode::Add, StoreMode::Add, StoreMode::Max, StoreMode::Min,
                       StoreMode::Multiply}[random_.below(5)];
    nest_.root = outer_loops();
    return std::move(nest_);
  }

 private:
  struct Dim {
    std::int64_t extent = 1, tile = 1;
    LoopKind outer = LoopKind::Serial, inner = LoopKind::Serial;
    ExprId outer_variable{};
  };
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(n)));
  }
  bool chance(std::uint64_t n) { return random_.below(n) == 0; }

  Dim split(std::size_t d, std::int64_t extent) {
    Dim dim;
    dim.extent = extent;
    dim.tile = std::min<std::int64_t>(extent, 1 + below(chance(2) ? 6 : 34));
    dim.outer = chance(3) ? LoopKind::Parallel : LoopKind::Serial;
    dim.inner = !vector_used_ && chance(d == 0 ? 4 : 2) ? LoopKind::Vector
                : chance(2)                             ? LoopKind::Unroll
                                                        : LoopKind::Serial;
    if (dim.inner == LoopKind::Unroll) dim.tile = std::min<std::int64_t>(dim.tile, 6);
    vector_used_ = vector_used_ || dim.inner == LoopKind::Vector;
    return dim;
  }

  StatementId outer_loops() {
    std::vector<std::pair<std::uint32_t, std::size_t>> loops;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      const std::uint32_t slot = nest_.new_slot();
      dims_[d].outer_variable = nest_.arena.iterator(slot);
      loops.emplace_back(slot, d);
    }
    std::shuffle(loops.begin(), loops.end(), random_);
    StatementId body = tile();
    for (const auto& [slot, d] : loops) {
      const Dim& dim = dims_[d];
      body =
          nest_.loop("o" + std::to_string(d), slot, (dim.extent + dim.tile - 1) / dim.tile, dim.outer, body);
    }
    return body;
  }

  /// Loops over the inner parts of all dimensions around what `make` gives for the indices there.
  template <class Make>
  StatementId inner_loops(const std::string& prefix, bool guarded, const Make& make) {
    std::vector<std::pair<std::uint32_t, std::size_t>> loops;
    std::vector<ExprId> whole, local;
    std::vector<Condition> conditions;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      const std::uint32_t slot = nest_.new_slot();
      loops.emplace_back(slot, d);
      local.push_back(nest_.arena.iterator(slot));
      whole.push_back(
          nest_.arena.add(nest_.arena.multiply(dims_[d].outer_variable, dims_[d].tile), local.back()));
      if (dims_[d].extent % dims_[d].tile != 0) conditions.push_back({whole.back(), 0, dims_[d].extent});
    }
    StatementId body = make(whole, local);
    if (guarded) body = nest_.guard(conditions, body);
    std::shuffle(loops.begin(), loops.end(), random_);
    for (const auto& [slot, d] : loops)
      body = nest_.loop(prefix + std::to_string(d), slot, dims_[d].tile, dims_[d].inner, body);
    return body;
  }

  StatementId tile() {
    const double start = mode_ == StoreMode::Multiply ? 1 : mode_ == StoreMode::Add ? 0.5 : 0.125;
    if (reduction_ == 0)
      return inner_loops("i", true, [&](const auto& whole, const auto&) {
        return nest_.store(output_, whole, value(whole, 3));
      });
    const std::uint32_t slot = nest_.new_slot();
    const ExprId k = nest_.arena.iterator(slot);
    const LoopKind kind = chance(3) ? LoopKind::Unroll : LoopKind::Serial;
    std::int64_t tile_count = 1;
    bool constant = true;
    for (const Dim& dim : dims_) {
      tile_count *= dim.tile;
      constant = constant && dim.inner != LoopKind::Serial;
    }
    // In bf16 every step would be rounded.
    if (chance(3) && dtype_ != Dtype::BF16) {  // accumulate in the output
      const StatementId first = inner_loops("i", true, [&](const auto& whole, const auto&) {
        return nest_.store(output_, whole, nest_.literal(start));
      });
      const StatementId step = inner_loops("j", true, [&](const auto& whole, const auto&) {
        auto with_k = whole;
        with_k.push_back(k);
        return nest_.store(output_, whole, value(with_k, 2), mode_);
      });
      return nest_.sequence({first, nest_.loop("k", slot, reduction_, kind, step)});
    }
    if (chance(4)) {  // a register of every element of its own
      return inner_loops("i", true, [&](const auto& whole, const auto&) {
        nest::Buffer one;
        one.name = "s";
        one.dtype = dtype_ == Dtype::BF16 ? Dtype::F32 : dtype_;
        one.kind = BufferKind::Register;
        const BufferId sum = nest_.add(one);
        auto with_k = whole;
        with_k.push_back(k);
        const StatementId first = nest_.store(sum, {}, nest_.literal(start));
        const StatementId step = nest_.store(sum, {}, value(with_k, 2), mode_);
        const StatementId last = nest_.store(output_, whole, nest_.load(sum, {}));
        return nest_.allocate(sum,
                              nest_.sequence({first, nest_.loop("k", slot, reduction_, kind, step), last}));
      });
    }
    nest::Buffer accumulator;
    accumulator.name = "acc";
    accumulator.dtype = dtype_ == Dtype::BF16 ? Dtype::F32 : dtype_;
    accumulator.kind = constant && tile_count <= 256 ? BufferKind::Register : BufferKind::Temporary;
    for (const Dim& dim : dims_) accumulator.extents.push_back(dim.tile);
    const BufferId acc = nest_.add(accumulator);
    const StatementId first = inner_loops("i", false, [&](const auto&, const auto& local) {
      return nest_.store(acc, local, nest_.literal(start));
    });
    const StatementId step = inner_loops("j", chance(2), [&](const auto& whole, const auto& local) {
      auto with_k = whole;
      with_k.push_back(k);
      return nest_.store(acc, local, value(with_k, 2), mode_);
    });
    const StatementId last = inner_loops("w", true, [&](const auto& whole, const auto& local) {
      return nest_.store(output_, whole, nest_.load(acc, local));
    });
    return nest_.allocate(acc, nest_.sequence({first, nest_.loop("k", slot, reduction_, kind, step), last}));
  }

  ExprId index(const std::vector<ExprId>& variables) {
    ExprId sum = nest_.arena.constant(below(7) - 3);
    for (const ExprId variable : variables)
      if (chance(2)) sum = nest_.arena.add(sum, nest_.arena.multiply(variable, chance(2) ? 1 : below(6) - 2));
    if (chance(4)) sum = nest_.arena.divide(sum, symbolic::Size(1 + below(6)));
    if (chance(5)) sum = nest_.arena.modulo(sum, symbolic::Size(1 + below(9)));
    return sum;
  }

  ValueId load(const std::vector<ExprId>& variables) {
    const BufferId from = inputs_[random_.below(inputs_.size())];
    std::vector<ExprId> at;
    std::vector<Condition> guards;
    for (const std::int64_t extent : nest_.buffer(from).extents) {
      at.push_back(index(variables));
      guards.push_back({at.back(), 0, extent});
    }
    if (chance(3)) guards.push_back({index(variables), below(5) - 2, 3 + below(9)});
    return nest_.load(from, at, guards, chance(2) ? 0 : 0.75);
  }

  ValueId value(const std::vector<ExprId>& variables, int depth) {
    if (depth == 0 || chance(4)) {
      if (chance(6)) return nest_.literal(static_cast<double>(below(9)) / 4 - 1);
      if (chance(8))
        return nest_.binary(Function::Multiply, nest_.literal(0.03125), nest_.index_value(index(variables)));
      return load(variables);
    }
    const auto part = [&] { return value(variables, depth - 1); };
    switch (random_.below(8)) {
      case 0: {
        constexpr std::array kFunctions{Function::Negate,  Function::Tanh, Function::Erf,  Function::Abs,
                                        Function::Sigmoid, Function::Relu, Function::Gelu, Function::Sin,
                                        Function::Cos,     Function::Atan};
        return nest_.unary(kFunctions[random_.below(kFunctions.size())], part());
      }
      case 1: {
        const ValueId test = nest_.binary(Function::Less, load(variables), nest_.literal(0.25));
        const ValueId yes = part();
        return nest_.select(test, yes, part());
      }
      case 2: {
        const ValueId a = part();
        return nest_.binary(chance(2) ? Function::Maximum : Function::Minimum, a, part());
      }
      case 3: {
        const ValueId a = part();
        return nest_.binary(Function::Subtract, a, part());
      }
      case 4: {
        const ValueId a = part();
        return nest_.binary(Function::Add, a, part());
      }
      default: {
        const ValueId a = part();
        return nest_.binary(Function::Multiply, a, part());
      }
    }
  }

  Random random_;
  Dtype dtype_;
  LoopNest nest_;
  std::vector<BufferId> inputs_;
  BufferId output_{};
  std::vector<Dim> dims_;
  std::int64_t reduction_ = 0;
  StoreMode mode_ = StoreMode::Add;
  bool vector_used_ = false;
};

}  // namespace syno::jit::testing_nests
