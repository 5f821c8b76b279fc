#include "lower/operator_key.hpp"

#include <algorithm>
#include <optional>

#include "equality/term_space.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::lower {
namespace {

using equality::RowValues;
using equality::TermNode;
using equality::TermSpace;
using pgraph::Primitive;

class GraphTerms {
 public:
  GraphTerms(const pgraph::CompleteGraph& complete, const symbolic::Sizes& sizes)
      : complete_(complete), sizes_(sizes), space_(std::min(equality::kTermRows, sizes.valuation_count())) {}

  /// Nothing where a size is no integer.
  std::optional<TermSpace> operator()() {
    const pgraph::PGraph& graph = complete_.graph;
    const pgraph::Signature& signature = graph.signature();
    nodes_.reserve(graph.coordinate_count());
    for (const pgraph::Dim& dim : signature.output) nodes_.push_back(space_.iterator(value_of(dim.extent)));
    for (std::size_t s = 0; s < graph.steps().size(); ++s) take(graph.steps()[s]);
    space_.read(0, false);
    for (std::size_t d = 0; d < signature.output.size(); ++d)
      space_.dimension(nodes_[d], signature.output[d].unordered);
    space_.read(0, false);
    for (std::size_t d = 0; d < signature.input.size(); ++d)
      space_.dimension(node(complete_.input[d]), signature.input[d].unordered);
    for (std::uint32_t k = 0; k < signature.further.size(); ++k) {
      space_.read(k + 1, false);
      const std::vector<pgraph::Dim>& dims = signature.further[k].dims;
      for (std::size_t d = 0; d < dims.size(); ++d)
        space_.dimension(node(complete_.further[k][d]), dims[d].unordered);
    }
    for (std::uint32_t w = 0; w < graph.weights().size(); ++w) {
      space_.read(w, true);
      for (const pgraph::CoordinateId id : graph.weights()[w]) space_.dimension(node(id), false);
    }
    if (!integral_) return std::nullopt;
    return std::move(space_);
  }

 private:
  TermNode node(pgraph::CoordinateId id) const { return nodes_[static_cast<std::uint32_t>(id)]; }
  RowValues extent_of(pgraph::CoordinateId id) { return value_of(complete_.graph.coordinate(id).extent); }

  RowValues value_of(const symbolic::Size& size) {
    RowValues result{};
    for (std::size_t row = 0; row < space_.rows(); ++row) {
      const auto values = sizes_.valuation(row);
      std::int64_t above = size.factor().num(), below = size.factor().den();
      for (std::size_t v = 0; v < values.size(); ++v) {
        const int exponent = size.exponent(v);
        for (int e = exponent; e > 0; --e) above = checked_multiply(above, values[v]);
        for (int e = exponent; e < 0; ++e) below = checked_multiply(below, values[v]);
      }
      integral_ = integral_ && above % below == 0;
      result[row] = std::max<std::int64_t>(above / below, 1);
    }
    return result;
  }

  void take(const pgraph::Step& step) {
    switch (step.primitive) {
      case Primitive::Reduce:
        nodes_.push_back(space_.iterator(value_of(step.size)));
        return;
      case Primitive::Merge: {
        const TermNode i = node(step.operands[0]);
        const RowValues block = value_of(step.size);
        nodes_.push_back(space_.divide(i, block));
        nodes_.push_back(space_.modulo(i, block));
        return;
      }
      case Primitive::Split: {
        const TermNode high = space_.scale(node(step.operands[0]), extent_of(step.operands[1]));
        nodes_.push_back(space_.add(high, node(step.operands[1])));
        return;
      }
      case Primitive::Shift: {
        RowValues amount{};
        amount.fill(step.amount);
        const TermNode moved = space_.add(node(step.operands[0]), space_.constant(amount));
        nodes_.push_back(space_.modulo(moved, extent_of(step.operands[0])));
        return;
      }
      case Primitive::Stride:
        nodes_.push_back(space_.scale(node(step.operands[0]), value_of(step.size)));
        return;
      case Primitive::Unfold: {
        RowValues offset = extent_of(step.operands[1]);
        for (std::int64_t& value : offset) value = -(value / 2);
        const TermNode sum = space_.add(node(step.operands[0]), node(step.operands[1]));
        nodes_.push_back(
            space_.inside(space_.add(sum, space_.constant(offset)), extent_of(step.operands[0])));
        return;
      }
      case Primitive::Expand:
      case Primitive::Contraction:
        return;
    }
    SYNO_ASSERT(false, "a step has a known primitive");
  }

  const pgraph::CompleteGraph& complete_;
  const symbolic::Sizes& sizes_;
  TermSpace space_;
  bool integral_ = true;
  std::vector<TermNode> nodes_;  ///< by coordinate
};

}  // namespace

Hash128 operator_key(const pgraph::CompleteGraph& graph, equality::OperatorKeyCache& cache) {
  const symbolic::Sizes& sizes = graph.graph.signature().sizes;
  std::optional<TermSpace> space = GraphTerms(graph, equality::small_sizes_of(sizes, cache))();
  if (!space) space = GraphTerms(graph, sizes)();  // at the first valuations themselves
  SYNO_ASSERT(space.has_value(), "sizes are integers at every valuation");
  return space->key(cache);
}

}  // namespace syno::lower
