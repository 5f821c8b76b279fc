#include "lower/stages.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "support/error.hpp"
#include "symbolic/simplify.hpp"

namespace syno::lower {
namespace {

using pgraph::Primitive;
using program::ExprId;
using program::Function;
using program::Program;
using program::Role;
using program::ScalarId;
using program::Size;
using program::TensorId;

/// A tensor and the coordinates that index it.
struct Source {
  TensorId tensor{};
  std::vector<std::size_t> dims;
};

class Writer {
 public:
  explicit Writer(const Coordinates& coordinates) : coordinates_(coordinates) {
    const pgraph::Signature& signature = coordinates.graph->graph.signature();
    program_.sizes = signature.sizes;
    data_ = {add_tensor("x", Role::Input, coordinates.inputs), coordinates.inputs};
    // Tensors in the order of a call: the data, then the weights.
    tensors_.resize(coordinates.factors.size());
    for (std::size_t k = 1; k <= signature.further.size(); ++k) {
      const auto factor =
          std::find_if(coordinates.factors.begin(), coordinates.factors.end(),
                       [&](const Factor& f) { return !f.clip && coordinates.step(f.step).source == k; });
      SYNO_ASSERT(factor != coordinates.factors.end(), "a complete pGraph reads every input");
      tensors_[static_cast<std::size_t>(factor - coordinates.factors.begin())] =
          add_tensor("x" + std::to_string(k + 1), Role::Input, factor->coordinates);
    }
    std::size_t weight = 0;
    for (std::size_t f = 0; f < coordinates.factors.size(); ++f) {
      const Factor& factor = coordinates.factors[f];
      if (factor.clip || coordinates.step(factor.step).source != 0) continue;
      tensors_[f] = add_tensor("w" + std::to_string(++weight), Role::Weight, factor.coordinates);
    }
  }

  Program write(const std::vector<StagePlan>& stages) {
    for (std::size_t i = 0; i < stages.size(); ++i) {
      std::vector<Source> products;
      for (const StagePlan::Group& group : stages[i].groups) {
        const TensorId product = add_tensor("v" + std::to_string(++groups_), Role::Computed, group.dims);
        write_scope(product, group.dims, group.sums, {}, group.factors);
        products.push_back({product, group.dims});
      }
      products.insert(products.begin(), data_);
      const bool last = i + 1 == stages.size();
      const TensorId result =
          add_tensor(last ? "y" : "t" + std::to_string(i + 1), Role::Computed, stages[i].dims);
      write_scope(result, stages[i].dims, stages[i].sums, products, stages[i].factors);
      data_ = {result, stages[i].dims};
    }
    program_.outputs = {data_.tensor};
    return std::move(program_);
  }

 private:
  TensorId add_tensor(std::string name, Role role, const std::vector<std::size_t>& dims) {
    program::Tensor tensor{std::move(name), role, {}, {}};
    for (const std::size_t c : dims) tensor.dims.push_back(program_.range_of(coordinates_.all[c].extent));
    return program_.add_tensor(std::move(tensor));
  }

  void write_scope(TensorId output, const std::vector<std::size_t>& dims,
                   const std::vector<std::size_t>& sums, const std::vector<Source>& sources,
                   const std::vector<std::size_t>& factors) {
    program::Scope scope;
    scope.output = output;
    expressions_.assign(coordinates_.all.size(), std::nullopt);
    names_.clear();
    for (const std::size_t c : dims) scope.traversal.push_back(iterator(c));
    for (const std::size_t c : sums) scope.sums.push_back(iterator(c));
    if (!sums.empty()) scope.reduction = program::Reduction::Sum;

    std::vector<ScalarId> product;
    for (const Source& source : sources) product.push_back(read(source.tensor, source.dims));
    std::vector<ScalarId> conditions;
    for (const std::size_t f : factors) {
      const Factor& factor = coordinates_.factors[f];
      if (factor.clip)
        clip(factor, conditions);
      else
        product.push_back(read(tensors_[f], factor.coordinates));
    }
    ScalarId body = product.empty() ? program_.literal(1) : product.front();
    for (std::size_t i = 1; i < product.size(); ++i)
      body = program_.binary(Function::Multiply, body, product[i]);
    if (!conditions.empty()) {
      ScalarId all = conditions.front();
      for (std::size_t i = 1; i < conditions.size(); ++i)
        all = program_.binary(Function::And, all, conditions[i]);
      body = program_.select(all, body, program_.literal(0));
    }
    scope.body = body;
    program_.scopes.push_back(std::move(scope));
  }

  program::Iterator iterator(std::size_t c) {
    const CoordinateInfo& info = coordinates_.all[c];
    std::string name = info.name;
    for (int i = 2; !names_.insert(name).second; ++i) name = info.name + std::to_string(i);
    program::Iterator result = program_.new_iterator(std::move(name), program_.range_of(info.extent));
    expressions_[c] = program_.arena.iterator(result.slot);
    ranges_[result.slot] = result.range;
    return result;
  }

  ScalarId read(TensorId tensor, const std::vector<std::size_t>& dims) {
    std::vector<ExprId> indices;
    for (const std::size_t c : dims) {
      ExprId index = simplified(expression(c));
      // A guard on a whole index repeats what the tensor's own extent says.
      const symbolic::Expr node = program_.arena[index];
      if (node.op == symbolic::Op::Inside &&
          program_.sizes.equal_values(program_.arena[node.size], coordinates_.all[c].extent)) {
        index = node.a;
      }
      indices.push_back(index);
    }
    return program_.read(tensor, std::move(indices));
  }

  void clip(const Factor& factor, std::vector<ScalarId>& conditions) {
    strip_guards(simplified(expression(coordinates_.results[factor.step].front())), conditions);
  }

  /// The expression without its guards, each of which becomes two conditions: index values carry no guards.
  ExprId strip_guards(ExprId root, std::vector<ScalarId>& conditions) {
    symbolic::Arena& arena = program_.arena;
    if (!arena.has_inside(root)) return root;
    const symbolic::Expr node = arena[root];
    const auto inner = [&](ExprId child) { return strip_guards(child, conditions); };
    if (node.op != symbolic::Op::Inside) return arena.over(root, inner);
    const ExprId a = inner(node.a);
    const Size size = arena[node.size];
    const ScalarId place = program_.index_value(a);
    conditions.push_back(program_.binary(Function::LessEqual, program_.literal(0), place));
    conditions.push_back(program_.binary(Function::Less, place, program_.index_value(arena.size(size))));
    return a;
  }

  /// The coordinate over the iterators of the scope being written (Syno, Table 1, bottom to top).
  ExprId expression(std::size_t c) {
    if (expressions_[c]) return *expressions_[c];
    const CoordinateInfo& info = coordinates_.all[c];
    SYNO_ASSERT(info.origin, "an output dimension is an iterator of every stage that reads it");
    const pgraph::Step& step = coordinates_.step(*info.origin);
    const auto& operands = coordinates_.operands[*info.origin];
    SYNO_ASSERT(!operands.empty(), "a Reduce is an iterator until it is summed over");
    symbolic::Arena& arena = program_.arena;
    const ExprId i = expression(operands[0]);
    ExprId result{};
    switch (step.primitive) {
      case Primitive::Merge: {
        const bool quotient = coordinates_.results[*info.origin][0] == c;
        result = quotient ? arena.divide(i, step.size) : arena.modulo(i, step.size);
        break;
      }
      case Primitive::Split:
        result = arena.add(arena.multiply(i, coordinates_.all[operands[1]].extent), expression(operands[1]));
        break;
      case Primitive::Shift:
        result = arena.modulo(arena.add(i, arena.constant(step.amount)), info.extent);
        break;
      case Primitive::Stride:
        result = arena.multiply(i, step.size);
        break;
      case Primitive::Unfold: {
        const Size& window = coordinates_.all[operands[1]].extent;
        const ExprId centre = arena.divide(arena.size(window), Size(2));
        result = arena.inside(arena.subtract(arena.add(i, expression(operands[1])), centre), info.extent);
        break;
      }
      case Primitive::Reduce:
      case Primitive::Expand:
      case Primitive::Contraction:
        SYNO_ASSERT(false, "these yield no view of another coordinate");
    }
    expressions_[c] = result;
    return result;
  }

  ExprId simplified(ExprId expression) {
    symbolic::Context context;
    context.sizes = &program_.sizes;
    context.range = [this](std::uint32_t slot) { return ranges_.at(slot); };
    return symbolic::simplify(program_.arena, expression, context);
  }

  const Coordinates& coordinates_;
  Program program_;
  Source data_;
  std::vector<TensorId> tensors_;  ///< by factor; clips have none
  std::size_t groups_ = 0;
  std::vector<std::optional<ExprId>> expressions_;  ///< by coordinate, of the scope being written
  std::set<std::string> names_;                     ///< of the iterators of that scope
  std::map<std::uint32_t, program::Range> ranges_;
};

}  // namespace

Program write_stages(const Coordinates& coordinates, const std::vector<StagePlan>& stages) {
  return Writer(coordinates).write(stages);
}

}  // namespace syno::lower
