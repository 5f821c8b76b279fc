// The text form of pGraphs. A header names the language and its version, then one fact a line:
//
//     syno-pgraph 1
//     variable C_in primary
//     valuation 64 64 56
//     output n:N c:C_out* h:H
//     input n:N c:C_in* h:H
//     fixed 0=0
//     c4 = reduce C_in
//     weight w1 = share c4 match c1
//     input = c0 c4 c2
//
// A `*` marks an unordered dimension. Coordinates c0.. are the output's dimensions; results are numbered in
// order. A further input, x2 and so on, has its own `input` line, which its own `fixed` line may follow, a
// step `data x2 = share c4 match c1` that brings it in, and a line `x2 = c0 c4 c1` at the end.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "pgraph/pgraph.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::pgraph {
namespace {

constexpr std::string_view kHeader = "syno-pgraph 1";

// More than any search takes: what lowers, names and hashes pGraphs looks at every order of equal Reduces.
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxDims = 8;
constexpr std::size_t kMaxFurther = 3;
constexpr std::size_t kMaxSteps = 32;
constexpr std::ptrdiff_t kMaxReduces = 8;

std::string name(CoordinateId id) { return fmt::format("c{}", static_cast<std::uint32_t>(id)); }

std::string names(const std::vector<CoordinateId>& ids) {
  std::vector<std::string> texts;
  for (const CoordinateId id : ids) texts.push_back(name(id));
  return fmt::format("{}", fmt::join(texts, " "));
}

std::string dims_text(const std::vector<Dim>& dims, const Sizes& sizes) {
  std::string text;
  for (const Dim& dim : dims) {
    text += fmt::format(" {}:{}{}", dim.name, sizes.to_text(dim.extent), dim.unordered ? "*" : "");
  }
  return text;
}

std::string step_text(const Sizes& sizes, const Step& step, std::size_t first_result, std::size_t weight) {
  const auto at = [&](std::size_t operand) { return name(step.operands[operand]); };
  const std::string result = fmt::format("c{}", first_result);
  switch (step.primitive) {
    case Primitive::Reduce:
      return fmt::format("{} = reduce {}", result, sizes.to_text(step.size));
    case Primitive::Merge:
      return fmt::format("{} c{} = merge {} block {}", result, first_result + 1, at(0),
                         sizes.to_text(step.size));
    case Primitive::Split:
      return fmt::format("{} = split {} {}", result, at(0), at(1));
    case Primitive::Shift:
      return fmt::format("{} = shift {} by {}", result, at(0), step.amount);
    case Primitive::Stride:
      return fmt::format("{} = stride {} by {}", result, at(0), sizes.to_text(step.size));
    case Primitive::Unfold:
      return fmt::format("{} = unfold {} window {}", result, at(0), at(1));
    case Primitive::Expand:
      return fmt::format("expand {}", at(0));
    case Primitive::Contraction: {
      std::string text =
          step.source == 0 ? fmt::format("weight w{} =", weight) : fmt::format("data x{} =", step.source + 1);
      if (!step.operands.empty()) text += " share " + names(step.operands);
      if (!step.matched.empty()) text += " match " + names(step.matched);
      return text;
    }
  }
  return {};
}

/// Parses one line at a time; every complaint names the line.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::pair<PGraph, std::optional<Assignment>> parse() {
    if (text_.size() > kMaxBytes)
      fail<ParseError>("pgraph", "the text has {} bytes; at most {} are read", text_.size(), kMaxBytes);
    if (!next_line() || line_ != kHeader) {
      wrong("expected the header '{}'", kHeader);
    }
    while (next_line()) {
      words_ = split_words(line_);
      const bool assigns = words_[0] == "input" || words_[0].starts_with('x') || words_[0].starts_with('c');
      if (words_.size() > 1 && assigns && has_equals()) {
        graph_statement();
      } else if (words_[0] == "expand" || words_[0] == "weight" || words_[0] == "data") {
        graph_statement();
      } else {
        signature_statement();
      }
    }
    start_graph();
    return {std::move(*graph_), std::move(assignment_)};
  }

 private:
  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail<ParseError>("pgraph", "line {}: {} in '{}'", number_,
                     shown(fmt::format(format, std::forward<Args>(args)...), 400), shown(line_));
  }

  bool next_line() {
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      line_ = text_.substr(at_, end - at_);
      at_ = end + 1;
      ++number_;
      while (!line_.empty() && (line_.back() == ' ' || line_.back() == '\r')) line_.remove_suffix(1);
      if (!line_.empty() && !line_.starts_with('#')) return true;
    }
    line_ = {};
    return false;
  }
  static std::vector<std::string_view> split_words(std::string_view line) {
    std::vector<std::string_view> words;
    for (std::size_t at = 0; at < line.size();) {
      const std::size_t end = std::min(line.find(' ', at), line.size());
      if (end > at) words.push_back(line.substr(at, end - at));
      at = end + 1;
    }
    return words;
  }
  bool has_equals() const { return std::find(words_.begin(), words_.end(), "=") != words_.end(); }

  template <class Integer>
  Integer integer(std::string_view text) const {
    Integer value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      wrong("expected an integer, not '{}',", text);
    return value;
  }
  CoordinateId coordinate(std::string_view text) const {
    if (!text.starts_with('c')) wrong("expected a coordinate such as c3, not '{}',", text);
    return static_cast<CoordinateId>(integer<std::uint32_t>(text.substr(1)));
  }
  Size size(std::string_view text) const {
    try {
      return sizes_.parse(text);
    } catch (const Error& error) {
      wrong("{}", error.what());
    }
  }

  void signature_statement() {
    if (graph_) wrong("the signature must come before the first step, but '{}' stands", words_[0]);
    const std::string_view keyword = words_[0];
    if (keyword == "variable") {
      if (words_.size() != 3 || (words_[2] != "primary" && words_[2] != "coefficient")) {
        wrong("expected 'variable <name> primary' or 'variable <name> coefficient'");
      }
      variables_.push_back({std::string(words_[1]), words_[2] == "primary"
                                                        ? symbolic::VariableKind::Primary
                                                        : symbolic::VariableKind::Coefficient});
    } else if (keyword == "valuation") {
      std::vector<std::int64_t> row;
      for (std::size_t i = 1; i < words_.size(); ++i) row.push_back(integer<std::int64_t>(words_[i]));
      valuations_.push_back(std::move(row));
    } else if (keyword == "output" || keyword == "input") {
      try {
        sizes_ = Sizes(variables_, valuations_);
      } catch (const Error& error) {
        wrong("{}", error.what());
      }
      if (keyword == "input" && inputs_++ > 0) signature_.further.emplace_back();
      auto& dims = keyword == "output" ? signature_.output
                   : inputs_ == 1      ? signature_.input
                                       : signature_.further.back().dims;
      for (std::size_t i = 1; i < words_.size(); ++i) dims.push_back(dim(words_[i]));
      if (dims.size() > kMaxDims)
        wrong("there are {} dimensions; at most {} are read,", dims.size(), kMaxDims);
      if (signature_.further.size() > kMaxFurther)
        wrong("there are {} further inputs; at most {} are read,", signature_.further.size(), kMaxFurther);
    } else if (keyword == "fixed") {
      FixedPairs& fixed = signature_.further.empty() ? signature_.fixed : signature_.further.back().fixed;
      for (std::size_t i = 1; i < words_.size(); ++i) {
        const std::size_t equals = words_[i].find('=');
        if (equals == std::string_view::npos)
          wrong("expected <output dim>=<input dim>, not '{}',", words_[i]);
        fixed.emplace_back(integer<std::size_t>(words_[i].substr(0, equals)),
                           integer<std::size_t>(words_[i].substr(equals + 1)));
      }
    } else {
      wrong("unknown statement '{}'", keyword);
    }
  }
  Dim dim(std::string_view word) const {
    const std::size_t colon = word.find(':');
    if (colon == std::string_view::npos) wrong("expected <name>:<extent>, not '{}',", word);
    Dim result{std::string(word.substr(0, colon)), Size(), word.ends_with('*')};
    std::string_view extent = word.substr(colon + 1);
    if (result.unordered) extent.remove_suffix(1);
    result.extent = size(extent);
    return result;
  }

  void start_graph() {
    if (graph_) return;
    signature_.sizes = sizes_;
    graph_.emplace(signature_);
  }

  void graph_statement() {
    start_graph();
    if (words_[0] == "input" || words_[0].starts_with('x')) return assign();
    const auto& steps = graph_->steps();
    if (steps.size() == kMaxSteps) wrong("there are more than {} steps", kMaxSteps);
    if (assignment_) wrong("no step may follow the line that assigns the input, but '{}' stands", words_[0]);
    const std::size_t before = graph_->coordinate_count();
    const Step parsed = step();
    const auto reduces = std::count_if(
        steps.begin(), steps.end(), [](const Step& taken) { return taken.primitive == Primitive::Reduce; });
    if (parsed.primitive == Primitive::Reduce && reduces == kMaxReduces)
      wrong("there are more than {} reductions", kMaxReduces);
    auto next = graph_->apply(parsed);
    if (const auto* illegal = std::get_if<Illegal>(&next)) wrong("{}", illegal->reason);
    graph_ = std::get<PGraph>(std::move(next));
    const std::string canonical = step_text(sizes_, parsed, before, graph_->weights().size());
    if (split_words(canonical).front() != words_[0]) {
      wrong("the results must be numbered in order: expected '{}'", canonical);
    }
  }

  /// `input = c0 c4 c2`, then `x2 = ...`, in order.
  void assign() {
    const std::string next =
        assignment_ ? fmt::format("x{}", assignment_->further.size() + 2) : std::string("input");
    if (words_[0] != next) wrong("expected '{} = ...' to come next, not '{}',", next, words_[0]);
    std::vector<CoordinateId>& dims =
        assignment_ ? assignment_->further.emplace_back() : assignment_.emplace().input;
    for (std::size_t i = 2; i < words_.size(); ++i) dims.push_back(coordinate(words_[i]));
  }

  Step step() const {
    Step result;
    if (words_[0] == "expand") {
      expect(words_.size() == 2, "expand <coordinate>");
      result.primitive = Primitive::Expand;
      result.operands = {coordinate(words_[1])};
      return result;
    }
    if (words_[0] == "weight" || words_[0] == "data") return contraction();
    const std::size_t equals =
        static_cast<std::size_t>(std::find(words_.begin(), words_.end(), "=") - words_.begin());
    const std::vector<std::string_view> right(words_.begin() + static_cast<std::ptrdiff_t>(equals) + 1,
                                              words_.end());
    if (right.empty()) wrong("expected a primitive after '='");
    const auto primitive = primitive_named(right[0]);
    if (!primitive) wrong("unknown primitive '{}'", right[0]);
    result.primitive = *primitive;
    switch (*primitive) {
      case Primitive::Reduce:
        expect(right.size() == 2, "reduce <extent>");
        result.size = size(right[1]);
        break;
      case Primitive::Merge:
        expect(right.size() == 4 && right[2] == "block", "merge <coordinate> block <size>");
        result.operands = {coordinate(right[1])};
        result.size = size(right[3]);
        break;
      case Primitive::Split:
        expect(right.size() == 3, "split <coordinate> <coordinate>");
        result.operands = {coordinate(right[1]), coordinate(right[2])};
        break;
      case Primitive::Shift:
        expect(right.size() == 4 && right[2] == "by", "shift <coordinate> by <places>");
        result.operands = {coordinate(right[1])};
        result.amount = integer<int>(right[3]);
        break;
      case Primitive::Stride:
        expect(right.size() == 4 && right[2] == "by", "stride <coordinate> by <size>");
        result.operands = {coordinate(right[1])};
        result.size = size(right[3]);
        break;
      case Primitive::Unfold:
        expect(right.size() == 4 && right[2] == "window", "unfold <coordinate> window <coordinate>");
        result.operands = {coordinate(right[1]), coordinate(right[3])};
        break;
      case Primitive::Expand:
      case Primitive::Contraction:
        wrong("'{}' yields no coordinate", right[0]);
    }
    return result;
  }
  Step contraction() const {
    Step result;
    result.primitive = Primitive::Contraction;
    expect(words_.size() > 3 && words_[2] == "=", "weight <name> = share <coordinates> match <coordinates>");
    if (words_[0] == "data") {
      const auto number = words_[1].starts_with('x') ? integer<std::size_t>(words_[1].substr(1)) : 0;
      expect(number >= 2, "data x<number from 2> = share <coordinates> match <coordinates>");
      result.source = number - 1;
    }
    std::vector<CoordinateId>* list = nullptr;
    for (std::size_t i = 3; i < words_.size(); ++i) {
      if (words_[i] == "share" || words_[i] == "match") {
        list = words_[i] == "share" ? &result.operands : &result.matched;
      } else {
        expect(list != nullptr, "weight <name> = share <coordinates> match <coordinates>");
        list->push_back(coordinate(words_[i]));
      }
    }
    return result;
  }
  void expect(bool condition, std::string_view form) const {
    if (!condition) wrong("expected '{}'", form);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t number_ = 0;
  std::string_view line_;
  std::vector<std::string_view> words_;
  std::vector<symbolic::Variable> variables_;
  std::vector<std::vector<std::int64_t>> valuations_;
  Sizes sizes_;
  Signature signature_;
  std::size_t inputs_ = 0;  ///< `input` lines of the signature so far
  std::optional<PGraph> graph_;
  std::optional<Assignment> assignment_;
};

}  // namespace

std::string to_text(const PGraph& graph, const Step& step) {
  return step_text(graph.signature().sizes, step, graph.coordinate_count(), graph.weights().size() + 1);
}

std::string to_text(const PGraph& graph) {
  const Signature& signature = graph.signature();
  const Sizes& sizes = signature.sizes;
  std::string text(kHeader);
  text += '\n';
  for (const auto& variable : sizes.variables()) {
    text += fmt::format("variable {} {}\n", variable.name,
                        variable.kind == symbolic::VariableKind::Primary ? "primary" : "coefficient");
  }
  if (!sizes.variables().empty()) {
    for (std::size_t i = 0; i < sizes.valuation_count(); ++i) {
      text += fmt::format("valuation {}\n", fmt::join(sizes.valuation(i), " "));
    }
  }
  text += "output" + dims_text(signature.output, sizes) + "\n";
  const auto add_input = [&](const std::vector<Dim>& dims, const FixedPairs& fixed) {
    text += "input" + dims_text(dims, sizes) + "\n";
    if (fixed.empty()) return;
    text += "fixed";
    for (const auto& [out, in] : fixed) text += fmt::format(" {}={}", out, in);
    text += '\n';
  };
  add_input(signature.input, signature.fixed);
  for (const FurtherInput& further : signature.further) add_input(further.dims, further.fixed);
  std::size_t result = signature.output.size();
  std::size_t weight = 0;
  for (std::size_t i = 0; i < graph.steps().size(); ++i) {
    const Step& step = graph.steps()[i];
    if (step.primitive == Primitive::Contraction && step.source == 0) ++weight;
    text += step_text(sizes, step, result, weight) + "\n";
    result += graph.results_of(i).size();
  }
  return text;
}

std::string to_text(const CompleteGraph& graph) {
  std::string text = to_text(graph.graph) + "input = " + names(graph.input) + "\n";
  for (std::size_t k = 0; k < graph.further.size(); ++k)
    text += fmt::format("x{} = {}\n", k + 2, names(graph.further[k]));
  return text;
}

PGraph parse_partial(std::string_view text) {
  auto [graph, assignment] = Parser(text).parse();
  if (assignment)
    fail<ParseError>("pgraph", "the text is of a finished operator; a partial pGraph has no 'input =' line");
  return std::move(graph);
}

CompleteGraph parse(std::string_view text) {
  auto [graph, assignment] = Parser(text).parse();
  if (!assignment) {
    fail<ParseError>("pgraph",
                     "the text ends without the line 'input = ...' that assigns the input's dimensions");
  }
  return complete(std::move(graph), std::move(assignment->input), std::move(assignment->further));
}

}  // namespace syno::pgraph
