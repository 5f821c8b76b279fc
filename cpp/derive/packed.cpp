#include "derive/packed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive::packed {

namespace {

/// Reads the indices of a scope into terms.
class Packer {
 public:
  Packer(const Program& program, const Scope& scope) : program_(program), scope_(scope) {}

  Packed operator()() {
    packed_.space.emplace();
    State& state = packed_.space->given;
    if (!scope_.target.empty()) return refuse("it accumulates");
    if (scope_.reduction != program::Reduction::None && scope_.reduction != program::Reduction::Sum)
      return refuse("it does not add up");
    if (scope_.traversal.size() + scope_.sums.size() > 14) return refuse("it has more than 14 iterators");
    for (const auto* list : {&scope_.traversal, &scope_.sums}) {
      for (const Iterator& iterator : *list) {
        const auto [begin, end] = range_of(program_, iterator.range);
        if (begin >= end || end - begin >= kGreatest) return refuse("a range is empty or too long");
        if (list == &scope_.traversal) {
          packed_.space->names.push_back(iterator.name);
          state.place[static_cast<std::size_t>(state.iterators)] =
              packed_.space->places.variable(static_cast<std::uint32_t>(state.traversals++), end - begin);
        } else {  // without an end: it may be lengthened
          state.place[static_cast<std::size_t>(state.iterators)] =
              packed_.space->places.variable(static_cast<std::uint32_t>(state.iterators), kGreatest);
        }
        slots_.push_back(iterator.slot);
        begins_.push_back(begin);
        state.extent[static_cast<std::size_t>(state.iterators++)] = static_cast<std::int32_t>(end - begin);
      }
    }
    const auto factors = program::factors_of(program_, scope_.body);
    if (factors.size() > 4) return refuse("it multiplies more than four tensors");
    for (const ScalarId id : factors) {
      const Scalar& factor = program_.scalar(id);
      if (factor.kind != ScalarKind::Read) return refuse("a factor is no element of a tensor");
      if (factor.fill != Rational(0)) return refuse("outside of a tensor it reads something else than 0");
      if (!operand(state, factor)) return std::move(packed_);
    }
    for (int t = 0; t < state.terms; ++t) {
      const std::int32_t stride = std::abs(state.term[static_cast<std::size_t>(t)].coefficient);
      auto& strides = packed_.space->strides;
      if (stride > 1 && stride <= 16 && std::find(strides.begin(), strides.end(), stride) == strides.end())
        strides.push_back(stride);
    }
    std::sort(packed_.space->strides.begin(), packed_.space->strides.end());
    canonicalise(state, packed_.space->places);
    return std::move(packed_);
  }

 private:
  Packed refuse(std::string reason) {
    packed_.space.reset();
    packed_.reason = std::move(reason);
    return std::move(packed_);
  }

  bool operand(State& state, const Scalar& read) {
    Space& space = *packed_.space;
    const Tensor& tensor = program_.tensor(read.tensor);
    const auto number = static_cast<std::int16_t>(space.operands.size());
    space.operands.push_back(read.tensor);
    space.operand_names.push_back(tensor.name);
    auto& begins = space.begins.emplace_back();
    auto& shape = space.shapes.emplace_back();
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      const auto [begin, end] = range_of(program_, tensor.dims[d]);
      begins.push_back(begin);
      shape.push_back(end - begin);
      if (state.dims == 14 || begin >= end || end - begin >= kGreatest) {
        refuse("its tensors have too many or too long dimensions");
        return false;
      }
      Dim& dim = state.dim[static_cast<std::size_t>(state.dims++)];
      dim.operand = number;
      dim.source = static_cast<std::int16_t>(d);
      dim.extent = static_cast<std::int32_t>(end - begin);
      dim.first = static_cast<std::int16_t>(state.terms);
      const auto form = symbolic::affine_form(program_.arena, read.indices[d]);
      std::int64_t constant = form.constant - begin;
      for (const auto& [atom, coefficient] : form.terms) {
        std::optional<Term> term = digit(atom);
        if (!term || state.terms == 32 || std::abs(coefficient) >= kGreatest) {
          refuse(
              fmt::format("an index of '{}' is not made of iterators and digits of iterators", tensor.name));
          return false;
        }
        const std::int64_t from = begins_[static_cast<std::size_t>(term->iterator)];
        if (from != 0 && (term->over != 1 || term->modulo != 0)) {
          refuse("digits of an iterator that does not begin at 0");
          return false;
        }
        constant += coefficient * from;
        term->coefficient = static_cast<std::int32_t>(coefficient);
        state.term[static_cast<std::size_t>(state.terms++)] = *term;
        ++dim.count;
      }
      if (std::abs(constant) >= kGreatest) {
        refuse("an index is too large");
        return false;
      }
      dim.constant = static_cast<std::int32_t>(constant);
    }
    return true;
  }

  std::optional<Term> digit(ExprId id) const {
    const symbolic::Expr& node = program_.arena[id];
    if (node.op == Op::Iterator) {
      const auto at = std::find(slots_.begin(), slots_.end(), static_cast<std::uint32_t>(node.a));
      if (at == slots_.end()) return {};
      return Term{1, 1, 0, static_cast<std::int32_t>(at - slots_.begin())};
    }
    if (node.op != Op::Divide && node.op != Op::Modulo) return {};
    std::optional<Term> of = digit(node.a);
    const std::int64_t by = symbolic::integer_of(program_.arena, node.size);
    if (!of || by >= kGreatest || of->over * by >= kGreatest) return {};
    const auto number = static_cast<std::int32_t>(by);
    if (of->modulo != 0 && of->modulo % number != 0) return {};
    if (node.op == Op::Modulo) {
      of->modulo = number;
    } else {
      of->over *= number;
      if (of->modulo != 0) of->modulo /= number;
    }
    return of;
  }

  const Program& program_;
  const Scope& scope_;
  std::vector<std::uint32_t> slots_;
  std::vector<std::int64_t> begins_;
  Packed packed_;
};

}  // namespace

Packed pack(const Program& program, std::size_t scope) { return Packer(program, program.scopes[scope])(); }

std::string_view name_of(Rule rule) {
  static constexpr std::array<std::string_view, kRules> kNames{
      "split_sum", "substitute", "merge", "split_iterator", "tighten", "relax", "relayout"};
  return kNames[static_cast<std::size_t>(rule)];
}

}  // namespace syno::derive::packed
