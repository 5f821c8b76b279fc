#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "emit/emit.hpp"
#include "program/scalars.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"

namespace syno::emit {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n')
      result += "\\l";
    else
      result += c;
  }
  return result;
}

std::string shape_text(const program::Program& program, const program::Tensor& tensor) {
  const auto names = [](std::uint32_t) { return std::string("?"); };  // ranges hold no iterators
  std::vector<std::string> dims;
  for (const program::Range& dim : tensor.dims) {
    const auto text = [&](symbolic::ExprId e) {
      return symbolic::to_text(program.arena, e, program.sizes, names);
    };
    const std::string begin = text(dim.begin), end = text(dim.end);
    dims.push_back(begin == "0" ? end : begin + ".." + end);
  }
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::string list(const program::Program& program, const std::vector<program::Iterator>& iterators) {
  const auto names = [](std::uint32_t) { return std::string("?"); };
  std::vector<std::string> texts;
  for (const program::Iterator& i : iterators) {
    texts.push_back(i.name + ": " + symbolic::to_text(program.arena, i.range.end, program.sizes, names));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string_view word(program::Reduction reduction) {
  switch (reduction) {
    case program::Reduction::None:
      return "map";
    case program::Reduction::Sum:
      return "sum";
    case program::Reduction::Max:
      return "max";
    case program::Reduction::Min:
      return "min";
    case program::Reduction::Product:
      return "prod";
    case program::Reduction::Mean:
      return "mean";
  }
  return "";
}

}  // namespace

std::string to_graphviz(const program::Program& program) {
  program::verify(program);
  std::string text = "digraph program {\n  rankdir=TB;\n  node [fontname=\"Helvetica\", fontsize=11];\n";
  const std::set<program::TensorId> outputs(program.outputs.begin(), program.outputs.end());
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const program::Tensor& tensor = program.tensors[t];
    std::string colour = "#f2f2f2";
    if (tensor.role == program::Role::Input) colour = "#cfe2f3";
    if (tensor.role == program::Role::Weight) colour = "#fff2cc";
    if (tensor.role == program::Role::Constant) colour = "#eadcf4";
    if (outputs.contains(static_cast<program::TensorId>(t))) colour = "#d9ead3";
    text += fmt::format("  t{} [shape=box, style=\"filled,rounded\", fillcolor=\"{}\", label=\"{} {}\"];\n",
                        t, colour, escaped(tensor.name), escaped(shape_text(program, tensor)));
  }
  for (std::size_t s = 0; s < program.scopes.size(); ++s) {
    const program::Scope& scope = program.scopes[s];
    std::string label = fmt::format("for {}", list(program, scope.traversal));
    if (!scope.sums.empty())
      label += fmt::format("\n{} over {}", word(scope.reduction), list(program, scope.sums));
    if (!scope.target.empty()) label += "\naccumulates";
    text += fmt::format("  s{} [shape=ellipse, label=\"{}\"];\n", s, escaped(label));
    std::set<program::TensorId> read;
    program::over_reads(program, scope.body,
                        [&](program::ScalarId, const program::Scalar& each) { read.insert(each.tensor); });
    for (const program::TensorId id : read)
      text += fmt::format("  t{} -> s{};\n", static_cast<std::size_t>(id), s);
    text += fmt::format("  s{} -> t{};\n", s, static_cast<std::size_t>(scope.output));
  }
  return text + "}\n";
}

}  // namespace syno::emit
