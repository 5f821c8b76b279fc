#include "graph/views.hpp"

#include <algorithm>

#include "program/evaluator.hpp"
#include "program/scalars.hpp"
#include "symbolic/affine.hpp"
#include "symbolic/simplify.hpp"

namespace syno::graph {

namespace {

using program::Scalar;
using program::ScalarKind;
using program::Scope;
using symbolic::ExprId;

constexpr std::int64_t kMostEnumerated = std::int64_t{1} << 20;

/// Whether an output is a run of its input, and from which element on.
struct Answer {
  enum class Kind { No, Yes, Unknown } kind = Kind::Unknown;
  std::int64_t begin = 0;
};

/// The one read that a program consists of.
const Scalar* sole_read(const Program& program) {
  if (program.scopes.size() != 1 || program.inputs().size() != 1 || !program.concrete()) return nullptr;
  const Scope& scope = program.scopes[0];
  if (scope.reduction != program::Reduction::None || !scope.target.empty()) return nullptr;
  const Scalar& body = program.scalar(scope.body);
  if (body.kind != ScalarKind::Read || body.tensor != program.inputs()[0]) return nullptr;
  return &body;
}

/// Calls `use(offset in the input)` for each element of the output in row-major order, with nothing where
/// the read is outside; until it says false.
template <class Use>
void over_elements(const Program& program, Use&& use) {
  const Scope& scope = program.scopes[0];
  program::detail::Evaluator<double> evaluator(program, scope);
  const auto& code = evaluator.code();
  std::vector<std::int64_t> point(code.begin), extents(code.extent);
  do {
    evaluator.move_to(point.data());
    std::optional<std::int64_t> place;
    evaluator.value([&](std::uint32_t, std::int64_t offset) {
      place = offset;
      return 0.0;
    });
    if (!use(place)) return;
  } while (program::detail::advance(point, code.begin, extents));
}

/// Simplified indices of the read over the iterators, in an arena of their own.
struct Indices {
  symbolic::Arena arena;
  symbolic::Context context;
  std::vector<ExprId> all;
  bool inside = true;  ///< each is sure to be within the input

  Indices(const Program& program, const Scalar& read) : arena(program.arena), context(context_of(program)) {
    symbolic::Simplifier simplify(arena, context);
    const auto& dims = program.tensor(read.tensor).dims;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      all.push_back(simplify(read.indices[d]));
      const auto extent = program::extent_of(program, dims[d], 0);
      const auto reach = symbolic::bounds(arena, all[d], context, 0);
      inside =
          inside && !arena.has_inside(all[d]) && reach.least >= extent.begin && reach.greatest < extent.end;
    }
  }
};

std::int64_t elements_of(const Program& program, program::TensorId tensor) {
  return program::checked_product("graph", program::shape_of(program, tensor));
}

Answer proven_run(const Program& program, const Scalar& read) {
  using enum Answer::Kind;
  Indices indices(program, read);
  if (!indices.inside) return {Unknown};
  auto& arena = indices.arena;
  const auto linear = [&](const std::vector<ExprId>& at, const std::vector<std::int64_t>& shape) {
    ExprId sum = arena.constant(0);
    std::int64_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d])
      sum = arena.add(sum, arena.multiply(at[d], stride));
    return sum;
  };
  std::vector<ExprId> place;
  for (const program::Iterator& iterator : program.scopes[0].traversal)
    place.push_back(arena.iterator(iterator.slot));
  const ExprId apart = arena.subtract(linear(indices.all, program::shape_of(program, read.tensor)),
                                      linear(place, program::shape_of(program, program.scopes[0].output)));
  const ExprId simple = symbolic::simplify(arena, apart, indices.context);
  if (arena[simple].op == symbolic::Op::Constant) return {Yes, arena[simple].value};
  // An affine form in which iterators of several values are left is not the same everywhere.
  if (!symbolic::is_affine(arena, simple)) return {Unknown};
  for (const std::uint32_t slot : arena.iterators(simple)) {
    const auto extent = program::extent_of(program, indices.context.range(slot), 0);
    if (extent.end - extent.begin < 2) return {Unknown};
  }
  return {No};
}

}  // namespace

bool only_reads(const Program& program) {
  const Scalar* read = sole_read(program);
  if (read == nullptr) return false;
  if (Indices(program, *read).inside) return true;
  if (elements_of(program, program.scopes[0].output) > kMostEnumerated) return false;
  bool all = true;
  over_elements(program, [&](const std::optional<std::int64_t>& place) { return all = place.has_value(); });
  return all;
}

std::optional<std::int64_t> run_of(const Program& program) {
  const Scalar* read = sole_read(program);
  if (read == nullptr) return std::nullopt;
  const std::int64_t elements = elements_of(program, program.scopes[0].output);
  if (elements == 0)
    return elements_of(program, read->tensor) == 0 ? std::optional<std::int64_t>(0) : std::nullopt;
  const Answer proven = proven_run(program, *read);
  if (proven.kind == Answer::Kind::Yes) return proven.begin;
  if (proven.kind == Answer::Kind::No || elements > kMostEnumerated) return std::nullopt;
  std::optional<std::int64_t> begin, next;
  over_elements(program, [&](const std::optional<std::int64_t>& place) {
    if (!begin) begin = next = place;
    const bool follows = place && place == next;
    if (!follows) return begin.reset(), false;
    next = *next + 1;
    return true;
  });
  return begin;
}

bool is_view(const Program& program) {
  const Scalar* read = sole_read(program);
  return read != nullptr &&
         elements_of(program, program.scopes[0].output) == elements_of(program, read->tensor) &&
         run_of(program).has_value();
}

bool is_copy(const Program& program) {
  const Scalar* read = sole_read(program);
  return read != nullptr &&
         program::shape_of(program, read->tensor) == program::shape_of(program, program.scopes[0].output) &&
         is_view(program);
}

namespace {

/// `i < 5` of an iterator of the output: its dimension, and the number.
std::optional<std::pair<std::size_t, std::int64_t>> bound_of(const Program& program, symbolic::Arena& arena,
                                                             const Scalar& condition) {
  if (condition.kind != ScalarKind::Binary || condition.function != program::Function::Less)
    return std::nullopt;
  const Scalar& left = program.scalar(condition.a);
  const Scalar& right = program.scalar(condition.b);
  if (left.kind != ScalarKind::Index || right.kind != ScalarKind::Literal || right.literal.den() != 1)
    return std::nullopt;
  const auto& traversal = program.scopes[0].traversal;
  for (std::size_t d = 0; d < traversal.size(); ++d)
    if (left.index == arena.iterator(traversal[d].slot)) return std::pair(d, right.literal.num());
  return std::nullopt;
}

}  // namespace

std::vector<std::int64_t> joined_parts(const Program& program) {
  const auto inputs = program.inputs();
  if (program.scopes.size() != 1 || inputs.size() < 2 || !program.concrete()) return {};
  const Scope& scope = program.scopes[0];
  if (scope.reduction != program::Reduction::None || !scope.target.empty()) return {};
  const auto shape = program::shape_of(program, scope.output);
  symbolic::Arena arena = program.arena;
  const symbolic::Context context = context_of(program);
  std::vector<std::int64_t> found(inputs.size(), -1);
  std::optional<std::size_t> along;
  std::int64_t begin = 0;
  for (program::ScalarId at = scope.body;;) {
    const Scalar& here = program.scalar(at);
    const bool last = here.kind != ScalarKind::Select;
    if (!last) {
      const auto bound = bound_of(program, arena, program.scalar(here.a));
      if (!bound || along.value_or(bound->first) != bound->first) return {};
      along = bound->first;
      at = here.b;
    }
    if (!along) return {};
    const Scalar& read = program.scalar(at);
    const auto input = std::find(inputs.begin(), inputs.end(), read.tensor) - inputs.begin();
    if (read.kind != ScalarKind::Read || input == std::ssize(inputs) ||
        found[static_cast<std::size_t>(input)] >= 0)
      return {};
    auto part = program::shape_of(program, read.tensor);
    if (part.size() != shape.size()) return {};
    const std::int64_t end = begin + part[*along];
    if (!last && bound_of(program, arena, program.scalar(here.a))->second != end) return {};
    part[*along] = shape[*along];
    if (part != shape) return {};
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const ExprId place =
          arena.add(arena.iterator(scope.traversal[d].slot), arena.constant(d == *along ? -begin : 0));
      const ExprId apart = symbolic::simplify(arena, arena.subtract(read.indices[d], place), context);
      if (apart != arena.constant(0)) return {};
    }
    found[static_cast<std::size_t>(input)] = begin;
    begin = end;
    if (last) break;
    at = here.c;
  }
  if (begin != shape[*along] || std::find(found.begin(), found.end(), -1) != found.end()) return {};
  std::int64_t inner = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d < *along && shape[d] != 1) return {};
    if (d > *along) inner *= shape[d];
  }
  for (std::int64_t& each : found) each *= inner;
  return found;
}

std::vector<std::string> constant_nodes(const Graph& graph) {
  std::vector<bool> constant(graph.tensors().size());
  for (std::size_t t = 0; t < constant.size(); ++t) constant[t] = graph.tensors()[t].role == Role::Weight;
  std::vector<std::string> found;
  for (const Node& node : graph.nodes()) {
    const bool all = std::all_of(node.inputs.begin(), node.inputs.end(),
                                 [&](TensorId input) { return constant[static_cast<std::size_t>(input)]; });
    if (!all || is_random(node)) continue;
    found.push_back(node.name);
    for (const TensorId output : node.outputs) constant[static_cast<std::size_t>(output)] = true;
  }
  return found;
}

}  // namespace syno::graph
