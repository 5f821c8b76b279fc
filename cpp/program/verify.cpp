#include "program/verify.hpp"

#include <algorithm>
#include <set>

#include "program/names.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

constexpr std::string_view kVerify = "verify";

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program) {}

  void run() {
    check_tensors();
    written_.assign(program_.tensors.size(), false);
    used_slots_.assign(program_.next_slot, false);
    for (const Scope& scope : program_.scopes) check_scope(scope);
    check_outputs();
  }

 private:
  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    throw VerifyError(kVerify, place_ + fmt::format(format, std::forward<Args>(args)...));
  }

  void check_tensors() {
    std::set<std::string_view> names;
    for (const Tensor& tensor : program_.tensors) {
      place_ = fmt::format("tensor '{}': ", tensor.name);
      if (!is_identifier(tensor.name) || is_reserved(tensor.name))
        wrong(
            "its name is not one the text form can hold; use letters, digits and '_', and none of its words");
      if (!names.insert(tensor.name).second) wrong("two tensors have this name");
      for (std::size_t d = 0; d < tensor.dims.size(); ++d) check_range(tensor.dims[d], "dimension", d);
      const bool passed = tensor.role != Role::Computed;
      for (std::size_t v = 0; v < program_.sizes.valuation_count(); ++v) {
        for (std::size_t d = 0; passed && d < tensor.dims.size(); ++d)
          if (const Extent extent = extent_of(program_, tensor.dims[d], v); extent.begin != 0)
            wrong("dimension {} starts at {}, but what the caller passes starts at 0", d, extent.begin);
        if (tensor.role != Role::Constant) continue;
        const std::int64_t elements = checked_product(kVerify, shape_of(program_, tensor_id(tensor), v));
        if (elements != static_cast<std::int64_t>(tensor.literal.size()))
          wrong("its shape {} has {} elements, but {} values are given", shape_text(tensor_id(tensor), v),
                elements, tensor.literal.size());
      }
      if (tensor.role != Role::Constant && !tensor.literal.empty())
        wrong("only a constant has literal values");
    }
  }

  void check_scope(const Scope& scope) {
    place_ = "a scope: ";
    check_tensor_id(scope.output);
    const Tensor& output = program_.tensor(scope.output);
    place_ = fmt::format("scope of '{}': ", output.name);
    if (output.role != Role::Computed) wrong("it writes a tensor that is passed in or constant");
    if (written_[static_cast<std::size_t>(scope.output)]) wrong("the tensor is written twice");

    slots_.assign(program_.next_slot, kForeign);
    for (const Iterator& iterator : scope.traversal) check_iterator(iterator, kTraversal);
    for (const Iterator& iterator : scope.sums) check_iterator(iterator, kSum);
    if (scope.reduction == Reduction::None && !scope.sums.empty())
      wrong("it has summation iterators ('{}') but no reduction", scope.sums[0].name);

    if (scope.target.empty()) {
      check_output_shape(scope, output);
    } else {
      if (scope.target.size() != output.dims.size())
        wrong("the target has {} indices, but the tensor has {} dimensions", scope.target.size(),
              output.dims.size());
      for (const ExprId index : scope.target) check_index(index, kTraversal, "target");
      for (std::size_t v = 0; v < program_.sizes.valuation_count(); ++v)
        for (const Range& dim : output.dims)
          if (extent_of(program_, dim, v).begin != 0) wrong("an accumulated tensor must start at 0");
    }
    check_body(scope);
    written_[static_cast<std::size_t>(scope.output)] = true;
  }

  void check_iterator(const Iterator& iterator, char kind) {
    if (iterator.slot >= program_.next_slot)
      wrong("iterator '{}' has slot {}, but the program has only {}", iterator.name, iterator.slot,
            program_.next_slot);
    if (used_slots_[iterator.slot])
      wrong("iterator '{}' shares slot {} with another iterator", iterator.name, iterator.slot);
    used_slots_[iterator.slot] = true;
    slots_[iterator.slot] = kind;
    check_range(iterator.range, "iterator", iterator.name);
  }

  template <class Which>
  void check_range(const Range& range, std::string_view what, const Which& which) {
    for (const ExprId bound : {range.begin, range.end}) {
      check_expr_id(bound);
      if (!program_.arena.iterators(bound).empty())
        wrong("the range of {} {} holds an iterator", what, which);
      if (has_guard(bound))
        wrong("the range of {} {} has a guard (`inside`), which only a read can have", what, which);
      check_sizes(bound);
    }
    for (std::size_t v = 0; v < program_.sizes.valuation_count(); ++v)
      if (const Extent extent = extent_of(program_, range, v); extent.begin >= extent.end)
        wrong("the range {}..{} of {} {} is empty{}", extent.begin, extent.end, what, which, at_valuation(v));
  }

  void check_output_shape(const Scope& scope, const Tensor& output) {
    if (scope.traversal.size() != output.dims.size())
      wrong("it has {} traversal iterators, but the tensor has {} dimensions", scope.traversal.size(),
            output.dims.size());
    for (std::size_t d = 0; d < output.dims.size(); ++d)
      for (std::size_t v = 0; v < program_.sizes.valuation_count(); ++v) {
        const Extent dim = extent_of(program_, output.dims[d], v);
        const Extent range = extent_of(program_, scope.traversal[d].range, v);
        if (dim.begin != range.begin || dim.end != range.end)
          wrong("iterator '{}' runs over {}..{}, but dimension {} of the tensor is {}..{}{}",
                scope.traversal[d].name, range.begin, range.end, d, dim.begin, dim.end, at_valuation(v));
      }
  }

  void check_body(const Scope& scope) {
    if (static_cast<std::size_t>(scope.body) >= program_.scalars.size())
      wrong("its body is scalar {}, but the program has {}", static_cast<std::size_t>(scope.body),
            program_.scalars.size());
    check_operand_order(scope.body);
    for (const ScalarId id : scalars_of(program_, scope.body)) {
      const Scalar& scalar = program_.scalar(id);
      if (scalar.kind == ScalarKind::Index) check_index(scalar.index, kSum, "index value");
      if (scalar.kind == ScalarKind::Index && has_guard(scalar.index))
        wrong("an index used as a number has a guard (`inside`), which only a read can have");
      if (scalar.kind == ScalarKind::Unary && !is_unary(scalar.function))
        wrong("'{}' takes two operands but is used with one", name_of(scalar.function));
      if (scalar.kind == ScalarKind::Binary && is_unary(scalar.function))
        wrong("'{}' takes one operand but is used with two", name_of(scalar.function));
      if (scalar.kind == ScalarKind::Read) check_read(scalar);
    }
  }

  // scalars_of() asserts the order of operands, so it is checked before: ids go down, hence no cycle.
  void check_operand_order(ScalarId body) const {
    for (std::size_t i = 0; i <= static_cast<std::size_t>(body); ++i) {
      over_operands(program_.scalars[i], [&](ScalarId operand) {
        if (static_cast<std::size_t>(operand) >= i)
          wrong("scalar {} uses an operand that does not precede it", i);
      });
    }
  }

  void check_read(const Scalar& read) {
    check_tensor_id(read.tensor);
    const Tensor& tensor = program_.tensor(read.tensor);
    if (tensor.role == Role::Computed && !written_[static_cast<std::size_t>(read.tensor)])
      wrong("it reads '{}' before that is written", tensor.name);
    if (read.indices.size() != tensor.dims.size())
      wrong("it reads '{}' with {} indices, but that has {} dimensions", tensor.name, read.indices.size(),
            tensor.dims.size());
    for (std::size_t d = 0; d < read.indices.size(); ++d)
      check_index(read.indices[d], kSum, fmt::format("index {} of '{}'", d, tensor.name));
  }

  /// `reach`: kTraversal admits traversal iterators only, kSum both kinds.
  void check_index(ExprId index, char reach, std::string_view what) {
    check_expr_id(index);
    for (const std::uint32_t slot : program_.arena.iterators(index)) {
      if (slot >= slots_.size() || slots_[slot] == kForeign)
        wrong("{} uses an iterator of another scope", what);
      if (slots_[slot] > reach) wrong("{} uses a summation iterator", what);
    }
    check_sizes(index);
  }

  void check_expr_id(ExprId id) const {
    if (static_cast<std::size_t>(id) >= program_.arena.node_count())
      wrong("it uses expression {}, but the program has {}", static_cast<std::size_t>(id),
            program_.arena.node_count());
  }

  bool has_guard(ExprId id) const {
    const symbolic::Expr& node = program_.arena[id];
    if (node.op == symbolic::Op::Inside) return true;
    return has_child(node.op) && (has_guard(node.a) || (node.op == symbolic::Op::Add && has_guard(node.b)));
  }

  static bool has_child(symbolic::Op op) {
    return op != symbolic::Op::Iterator && op != symbolic::Op::Constant && op != symbolic::Op::SizeValue;
  }

  void check_sizes(ExprId id) {
    if (!sized_.insert(static_cast<std::uint32_t>(id)).second) return;
    const symbolic::Expr& node = program_.arena[id];
    const bool sized = node.op != symbolic::Op::Iterator && node.op != symbolic::Op::Constant &&
                       node.op != symbolic::Op::Add;
    if (sized) {
      const Size& size = program_.arena[node.size];
      for (std::size_t v = 0; v < program_.sizes.valuation_count(); ++v) {
        const Rational value = program_.sizes.value(size, v);
        if (!value.integral() || value.num() < 1)
          wrong("size {} is {}{}, but a size must be a positive integer", program_.sizes.to_text(size),
                value.to_text(), at_valuation(v));
      }
    }
    if (has_child(node.op)) check_sizes(node.a);
    if (node.op == symbolic::Op::Add) check_sizes(node.b);
  }

  void check_outputs() {
    place_ = "outputs: ";
    if (program_.outputs.empty()) wrong("the program has none");
    std::set<TensorId> seen;
    for (const TensorId id : program_.outputs) {
      check_tensor_id(id);
      if (program_.tensor(id).role != Role::Computed || !written_[static_cast<std::size_t>(id)])
        wrong("'{}' is never written", program_.tensor(id).name);
      if (!seen.insert(id).second) wrong("'{}' is returned twice", program_.tensor(id).name);
    }
    for (std::size_t i = 0; i < written_.size(); ++i)
      if (program_.tensors[i].role == Role::Computed && !written_[i])
        wrong("'{}' is never written", program_.tensors[i].name);
  }

  void check_tensor_id(TensorId id) const {
    if (static_cast<std::size_t>(id) >= program_.tensors.size())
      wrong("it names tensor {}, but the program has {}", static_cast<std::size_t>(id),
            program_.tensors.size());
  }

  TensorId tensor_id(const Tensor& tensor) const {
    return TensorId{static_cast<std::uint32_t>(&tensor - program_.tensors.data())};
  }
  std::string shape_text(TensorId id, std::size_t v) const {
    return fmt::format("[{}]", fmt::join(shape_of(program_, id, v), ", "));
  }
  std::string at_valuation(std::size_t v) const {
    if (program_.concrete()) return "";
    std::vector<std::string> values;
    for (std::size_t i = 0; i < program_.sizes.variables().size(); ++i)
      values.push_back(
          fmt::format("{}={}", program_.sizes.variables()[i].name, program_.sizes.valuation(v)[i]));
    return fmt::format(" at {}", fmt::join(values, ", "));
  }

  // What a slot is in the scope under check; the order matters to check_index.
  static constexpr char kTraversal = 1, kSum = 2, kForeign = 3;

  const Program& program_;
  std::string place_;
  std::vector<bool> written_;
  std::vector<bool> used_slots_;
  std::vector<char> slots_;
  std::set<std::uint32_t> sized_;  // expressions whose sizes are checked
};

std::string_view role_word(Role role) {
  switch (role) {
    case Role::Input:
      return "input";
    case Role::Weight:
      return "weight";
    case Role::Constant:
      return "constant";
    case Role::Computed:
      return "computed";
  }
  return "";
}

}  // namespace

void verify(const Program& program) { Verifier(program).run(); }

std::string describe_shapes(const Program& program) {
  std::string text;
  for (std::uint32_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    std::vector<std::string> shapes;
    for (std::size_t v = 0; v < program.sizes.valuation_count(); ++v) {
      std::vector<std::string> dims;
      for (const Range& dim : tensor.dims) {
        const Extent extent = extent_of(program, dim, v);
        dims.push_back(extent.begin == 0 ? fmt::format("{}", extent.end)
                                         : fmt::format("{}..{}", extent.begin, extent.end));
      }
      std::string shape = fmt::format("[{}]", fmt::join(dims, ", "));
      if (shapes.empty() || shapes.back() != shape) shapes.push_back(std::move(shape));
    }
    const bool output =
        std::find(program.outputs.begin(), program.outputs.end(), TensorId{t}) != program.outputs.end();
    text += fmt::format("{} {} {}\n", output ? "output" : role_word(tensor.role), tensor.name,
                        fmt::join(shapes, ", "));
  }
  return text;
}

}  // namespace syno::program
