#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "emit/emit.hpp"
#include "emit/index_text.hpp"
#include "emit/indices.hpp"
#include "emit/python_names.hpp"
#include "program/text.hpp"
#include "support/error.hpp"

namespace syno::emit {
namespace {

using program::Function;
using program::Program;
using program::Reduction;
using program::Role;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using program::TensorId;
using symbolic::Expr;
using symbolic::Op;

class TeWriter {
 public:
  TeWriter(const Program& program, std::string dtype)
      : p_(program), indices_(program), dtype_(std::move(dtype)) {
    for (const program::Tensor& tensor : p_.tensors) names_.push_back(python_name(tensor.name, used_));
  }

  std::string write() {
    text_ = "from tvm import te\n\n# " + one_line(program::to_short_text(p_)) + "\n\n";
    text_ += fmt::format("DTYPE = \"{}\"\n", dtype_);
    text_ += "CONSTANTS = {  # placeholders after the inputs: shape and values\n";
    for (std::size_t t = 0; t < p_.tensors.size(); ++t) {
      if (p_.tensors[t].role != Role::Constant) continue;
      std::vector<std::string> values;
      for (const Rational& value : p_.tensors[t].literal) values.push_back(plain(value));
      text_ += fmt::format("    \"{}\": ({}, [{}]),\n", names_[t], shape(id(t)), fmt::join(values, ", "));
    }
    text_ +=
        "}\n\n\ndef _product(value, axis):\n"
        "    return te.comm_reducer(lambda a, b: a * b, lambda t: te.const(1, dtype=t))(value, "
        "axis=axis)\n\n\n"
        "def build():\n";
    std::vector<std::string> inputs, outputs;
    for (const bool constants : {false, true}) {
      for (std::size_t t = 0; t < p_.tensors.size(); ++t) {
        const Role role = p_.tensors[t].role;
        if (role == Role::Computed || (role == Role::Constant) != constants) continue;
        line(fmt::format("{} = te.placeholder({}, dtype=DTYPE, name=\"{}\")", names_[t], shape(id(t)),
                         names_[t]));
        inputs.push_back(names_[t]);
      }
    }
    for (const Scope& scope : p_.scopes) write_scope(scope);
    for (const TensorId output : p_.outputs) outputs.push_back(name(output));
    line(fmt::format("return [{}], [{}]", fmt::join(inputs, ", "), fmt::join(outputs, ", ")));
    return std::move(text_);
  }

 private:
  static TensorId id(std::size_t t) { return static_cast<TensorId>(t); }
  static std::string one_line(std::string text) {
    for (char& c : text) {
      if (c == '\n') c = ';';
    }
    while (!text.empty() && text.back() == ';') text.pop_back();
    return text;
  }
  void line(const std::string& text, int depth = 1) {
    text_ += std::string(4 * static_cast<std::size_t>(depth), ' ') + text + "\n";
  }
  const std::string& name(TensorId tensor) const { return names_[static_cast<std::size_t>(tensor)]; }
  std::string shape(TensorId tensor) const {
    std::vector<std::string> extents;
    for (const std::int64_t extent : program::shape_of(p_, tensor)) extents.push_back(std::to_string(extent));
    return tuple(extents);
  }

  static std::string plain(Rational value) {
    if (!value.finite()) return value.num() > 0 ? "float(\"inf\")" : "float(\"-inf\")";
    return fmt::format("{}", value.to_double());
  }
  static std::string number(Rational value) {
    if (!value.finite())
      return value.num() > 0 ? "te.const(float(\"inf\"), DTYPE)" : "te.const(float(\"-inf\"), DTYPE)";
    return fmt::format("te.const({}, DTYPE)", plain(value));
  }

  IndexLanguage language() const {
    return {[this](Slot slot) { return iterators_.at(slot); }, "te.floordiv({}, {})", "te.floormod({}, {})"};
  }
  std::string index(ExprId root) { return index_text(indices_.arena(), root, language()); }
  void guards(ExprId root, std::vector<std::string>& all) {
    guard_texts(indices_.arena(), root, language(), all);
  }
  void bounds(TensorId tensor, std::size_t d, ExprId at, std::vector<std::string>& all) {
    const program::Extent extent = program::extent_of(p_, p_.tensor(tensor).dims[d], 0);
    guards(at, all);
    const symbolic::Interval reach = indices_.bounds(at);
    if (reach.least < extent.begin) all.push_back(fmt::format("{} >= {}", index(at), extent.begin));
    if (reach.greatest >= extent.end) all.push_back(fmt::format("{} < {}", index(at), extent.end));
  }

  std::string read(const Scalar& scalar) {
    std::vector<std::string> at, conditions;
    for (std::size_t d = 0; d < scalar.indices.size(); ++d) {
      bounds(scalar.tensor, d, scalar.indices[d], conditions);
      const std::int64_t begin = program::extent_of(p_, p_.tensor(scalar.tensor).dims[d], 0).begin;
      at.push_back(begin == 0 ? index(scalar.indices[d])
                              : fmt::format("{} - ({})", index(scalar.indices[d]), begin));
    }
    const std::string text = fmt::format("{}({})", name(scalar.tensor), fmt::join(at, ", "));
    if (conditions.empty()) return text;
    return fmt::format("te.if_then_else(te.all({}), {}, {})", fmt::join(conditions, ", "), text,
                       number(scalar.fill));
  }

  static std::string truth(const std::string& condition) {
    return fmt::format("te.if_then_else({}, te.const(1.0, DTYPE), te.const(0.0, DTYPE))", condition);
  }
  static std::string differs(const std::string& a, const std::string& b) {
    return fmt::format("te.any({0} < {1}, {0} > {1})", a, b);
  }
  static std::string unary(Function function, const std::string& a) {
    switch (function) {
      case Function::Negate:
        return fmt::format("te.const(-1.0, DTYPE) * {}", a);
      case Function::Rsqrt:
        return fmt::format("te.const(1.0, DTYPE) / te.sqrt({})", a);
      case Function::Relu:
        return fmt::format("te.if_then_else({0} < 0, te.const(0.0, DTYPE), {0})", a);
      case Function::Gelu:
        return fmt::format(
            "te.const(0.5, DTYPE) * {0} * (te.const(1.0, DTYPE) + "
            "te.erf({0} * te.const(0.7071067811865476, DTYPE)))",
            a);
      case Function::Round:
        return fmt::format("te.nearbyint({})", a);
      default:
        return fmt::format("te.{}({})", program::name_of(function), a);
    }
  }
  static std::string binary(Function function, const std::string& a, const std::string& b) {
    const std::string zero = "te.const(0.0, DTYPE)";
    switch (function) {
      case Function::Maximum:
        return fmt::format("te.if_then_else(te.any({0} > {1}, te.isnan({0})), {0}, {1})", a, b);
      case Function::Minimum:
        return fmt::format("te.if_then_else(te.any({0} < {1}, te.isnan({0})), {0}, {1})", a, b);
      case Function::Power:
        return fmt::format("te.power({}, {})", a, b);
      case Function::Fmod:
        fail<KernelError>("to_te", "an fmod: TVM has no exact remainder; write it with floor or trunc");
      case Function::And:
        return truth(fmt::format("te.all({}, {})", differs(a, zero), differs(b, zero)));
      case Function::Or:
        return truth(fmt::format("te.any({}, {})", differs(a, zero), differs(b, zero)));
      case Function::Less:
        return truth(fmt::format("{} < {}", a, b));
      case Function::LessEqual:
        return truth(fmt::format("{} <= {}", a, b));
      case Function::Equal:
        return truth(fmt::format("te.all({0} <= {1}, {0} >= {1})", a, b));
      case Function::NotEqual:
        return truth(differs(a, b));
      default:
        return fmt::format("{} {} {}", a, program::name_of(function), b);
    }
  }

  /// Lines that compute the body; the name of its value.
  std::string body(const Scope& scope) {
    std::map<ScalarId, std::string> values;
    std::size_t count = 0;
    for (const ScalarId scalar_id : program::scalars_of(p_, scope.body)) {
      const Scalar& scalar = p_.scalar(scalar_id);
      std::string text;
      switch (scalar.kind) {
        case ScalarKind::Literal:
          text = number(scalar.literal);
          break;
        case ScalarKind::Index:
          text = fmt::format("te.const(0.0, DTYPE) + {}", index(scalar.index));
          break;
        case ScalarKind::Read:
          text = read(scalar);
          break;
        case ScalarKind::Unary:
          text = unary(scalar.function, values.at(scalar.a));
          break;
        case ScalarKind::Binary:
          text = binary(scalar.function, values.at(scalar.a), values.at(scalar.b));
          break;
        case ScalarKind::Select:
          text =
              fmt::format("te.if_then_else({}, {}, {})", differs(values.at(scalar.a), "te.const(0.0, DTYPE)"),
                          values.at(scalar.b), values.at(scalar.c));
          break;
      }
      const std::string variable = fmt::format("_v{}", ++count);
      line(fmt::format("{} = {}", variable, text), 2);
      values[scalar_id] = variable;
    }
    return values.at(scope.body);
  }

  std::string axis(const program::Iterator& i) {
    const program::Extent extent = program::extent_of(p_, i.range, 0);
    const std::string variable = fmt::format("_r{}", ++axes_);
    line(fmt::format("{} = te.reduce_axis(({}, {}), name=\"{}{}\")", variable, extent.begin, extent.end,
                     i.name, axes_));
    iterators_[i.slot] = variable;
    return variable;
  }

  /// `target[traversal] = reduction of the body`, as a function and the te.compute over it.
  void compute(const std::string& result, const Scope& scope, const std::string& result_shape) {
    iterators_.clear();
    std::vector<std::string> parameters, axes;
    for (const program::Iterator& i : scope.sums) axes.push_back(axis(i));
    for (const program::Iterator& i : scope.traversal) {
      const std::string parameter = fmt::format("_i{}", parameters.size());
      const std::int64_t begin = program::extent_of(p_, i.range, 0).begin;
      iterators_[i.slot] = begin == 0 ? parameter : fmt::format("({} + ({}))", parameter, begin);
      parameters.push_back(parameter);
    }
    line(fmt::format("def _{}({}):", result, fmt::join(parameters, ", ")));
    std::string value = body(scope);
    const std::string over = fmt::format("{}, axis=[{}]", value, fmt::join(axes, ", "));
    std::int64_t terms = 1;
    if (!axes.empty()) {
      switch (scope.reduction) {
        case Reduction::Max:
          value = fmt::format("te.max({})", over);
          break;
        case Reduction::Min:
          value = fmt::format("te.min({})", over);
          break;
        case Reduction::Product:
          value = fmt::format("_product({}, [{}])", value, fmt::join(axes, ", "));
          break;
        default:
          value = fmt::format("te.sum({})", over);
          break;
      }
      for (const program::Iterator& i : scope.sums) {
        const program::Extent extent = program::extent_of(p_, i.range, 0);
        terms *= extent.end - extent.begin;
      }
    }
    line("return " + value, 2);
    const bool mean = scope.reduction == Reduction::Mean && !axes.empty();
    const std::string total = mean ? python_name(result + "_total", used_) : result;
    line(fmt::format("{0} = te.compute({1}, _{2}, name=\"{0}\")", total, result_shape, result));
    if (mean) {
      line(fmt::format("{0} = te.compute({1}, lambda *i: {2}(*i) / te.const({3}, DTYPE), name=\"{0}\")",
                       result, result_shape, total, terms));
    }
  }

  void write_scope(const Scope& scope) {
    if (scope.target.empty()) return compute(name(scope.output), scope, shape(scope.output));
    // What every traversal point adds, then for every element the sum over the points that add to it.
    const std::string parts = python_name(name(scope.output) + "_parts", used_);
    std::vector<std::string> extents;
    for (const program::Iterator& i : scope.traversal)
      extents.push_back(std::to_string(indices_.extent(i.slot)));
    compute(parts, scope, tuple(extents));
    iterators_.clear();
    std::vector<std::string> axes, at, parameters, conditions;
    for (const program::Iterator& i : scope.traversal) {
      axes.push_back(axis(i));
      const std::int64_t begin = program::extent_of(p_, i.range, 0).begin;
      at.push_back(begin == 0 ? axes.back() : fmt::format("{} - ({})", axes.back(), begin));
    }
    for (std::size_t d = 0; d < scope.target.size(); ++d) {
      parameters.push_back(fmt::format("_i{}", d));
      const std::int64_t begin = program::extent_of(p_, p_.tensor(scope.output).dims[d], 0).begin;
      guards(scope.target[d], conditions);
      const std::string place = index(scope.target[d]);
      conditions.push_back(fmt::format("{} <= {} + ({})", place, parameters.back(), begin));
      conditions.push_back(fmt::format("{} >= {} + ({})", place, parameters.back(), begin));
    }
    std::string value = fmt::format("{}({})", parts, fmt::join(at, ", "));
    if (!conditions.empty()) {
      value = fmt::format("te.if_then_else(te.all({}), {}, te.const(0.0, DTYPE))",
                          fmt::join(conditions, ", "), value);
    }
    line(fmt::format("def _{}({}):", name(scope.output), fmt::join(parameters, ", ")));
    line(axes.empty() ? "return " + value
                      : fmt::format("return te.sum({}, axis=[{}])", value, fmt::join(axes, ", ")),
         2);
    line(fmt::format("{0} = te.compute({1}, _{0}, name=\"{0}\")", name(scope.output), shape(scope.output)));
  }

  const Program& p_;
  Indices indices_;
  std::string dtype_;
  std::set<std::string> used_;
  std::vector<std::string> names_;  ///< by TensorId
  std::map<Slot, std::string> iterators_;
  std::string text_;
  std::size_t axes_ = 0;
};

}  // namespace

std::string to_te(const Program& source, const std::string& dtype) {
  static const std::set<std::string> kTypes = {"float16", "bfloat16", "float32", "float64"};
  if (!kTypes.contains(dtype)) {
    throw UnknownName("to_te", unknown_name("dtype", dtype, {kTypes.begin(), kTypes.end()}));
  }
  const Program program = concrete("to_te", source);
  return TeWriter(program, dtype).write();
}

}  // namespace syno::emit
