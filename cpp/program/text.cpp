// From the syntax tree to a program: scopes for nested reductions, names to iterators, tensors and sizes.
#include "program/text.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "program/infer.hpp"
#include "program/syntax.hpp"
#include "program/unbound.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

using namespace syntax;
using detail::IteratorFacts;
using detail::TensorFacts;

constexpr std::string_view kParseText = "parse";
constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;

using Environment = std::vector<std::pair<std::string, std::uint32_t>>;  // names in scope, innermost last

std::optional<std::uint32_t> find_slot(const Environment& environment, std::string_view name) {
  for (auto it = environment.rbegin(); it != environment.rend(); ++it)
    if (it->first == name) return it->second;
  return std::nullopt;
}

class Builder {
 public:
  Builder(std::string_view text, const ParseOptions& options)
      : text_(text), options_(options), tree_(parse_text(text)) {
    for (const Token& token : tokenize(text))
      if (token.kind == TokenKind::Name) names_in_text_.emplace(token.text);
  }

  Program run() {
    check_options();
    require_bound_names(text_, tree_, options_.sizes);
    declare_sizes();
    for (const ScopeStatement& scope : tree_.scopes) outputs_to_come_.insert(std::string(scope.output.text));
    for (const TensorStatement& tensor : tree_.tensors) declare_tensor(tensor);
    for (const ScopeStatement& scope : tree_.scopes) add_statement(scope);
    apply_shapes();
    check_unused_options();
    infer(program_, iterators_, tensors_);
    assign_roles();
    return assemble();
  }

 private:
  // --- options and sizes ---

  void check_options() const {
    for (const auto& [name, value] : options_.sizes)
      if (value < 1 || value > kMaxSize)
        fail<ShapeError>(kParseText, "size {}={} is not between 1 and 2^40", name, value);
    for (const auto& [name, shape] : options_.shapes)
      for (const std::int64_t extent : shape)
        if (extent < 1 || extent > kMaxSize)
          fail<ShapeError>(kParseText, "shape [{}] of '{}': {} is not between 1 and 2^40",
                           fmt::join(shape, ", "), name, extent);
    if (options_.no_weights && (!options_.weights.empty() || !options_.data.empty()))
      fail<SpecError>(kParseText, "no_weights is set, but weights or data are named");
  }

  void declare_sizes() {
    std::vector<symbolic::Variable> variables;
    std::vector<std::vector<std::int64_t>> valuations;
    bool with_values = false, without_values = false;
    for (const SizeStatement& size : tree_.sizes) {
      for (std::size_t i = 0; i < size.names.size(); ++i) {
        const std::string name(size.names[i].text);
        for (const symbolic::Variable& other : variables)
          if (other.name == name)
            parse_error(text_, size.names[i].position, fmt::format("size '{}' is declared twice", name));
        if (variables.size() == symbolic::kMaxVariables)
          parse_error(text_, size.names[i].position,
                      fmt::format("a program has at most {} sizes", symbolic::kMaxVariables));
        variables.push_back({name, size.kind});
      }
      (size.values.empty() ? without_values : with_values) = true;
    }
    if (with_values && without_values)
      parse_error(text_, tree_.sizes[0].position, "some sizes have values and some have none");
    if (with_values) {
      valuations.resize(tree_.sizes[0].values.size());
      for (const SizeStatement& size : tree_.sizes) {
        if (size.values.size() != valuations.size())
          parse_error(
              text_, size.position,
              fmt::format("{} valuations here, but {} before", size.values.size(), valuations.size()));
        for (std::size_t v = 0; v < valuations.size(); ++v)
          valuations[v].insert(valuations[v].end(), size.values[v].begin(), size.values[v].end());
      }
    }
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const auto given = options_.sizes.find(variables[i].name);
      if (given == options_.sizes.end()) continue;
      used_sizes_.insert(variables[i].name);
      for (const auto& row : valuations)
        if (row[i] != given->second)
          fail<ShapeError>(kParseText, "size {} is {} in the text, but {} was given", variables[i].name,
                           row[i], given->second);
    }
    if (!variables.empty() && !with_values) {
      std::vector<std::int64_t> row;
      for (const symbolic::Variable& variable : variables)
        if (const auto given = options_.sizes.find(variable.name); given != options_.sizes.end())
          row.push_back(given->second);
      if (row.size() == variables.size()) valuations.push_back(std::move(row));
    }
    if (!variables.empty()) program_.sizes = Sizes(std::move(variables), std::move(valuations));
  }

  std::optional<std::int64_t> size_option(std::string_view name) {
    const auto found = options_.sizes.find(name);
    if (found == options_.sizes.end()) return std::nullopt;
    used_sizes_.insert(found->first);
    return found->second;
  }

  // --- index expressions ---

  ExprId expression(const IndexText& index, const Environment& environment) {
    // Names that stand for numbers given as options are replaced by them; the rest is for parse_expr.
    const std::string source =
        spelled(text_, index, [&](const IndexName& name) -> std::optional<std::string> {
          const std::string_view word = name.token.text;
          if (!name.marked && find_slot(environment, word)) return std::nullopt;
          if (program_.sizes.find(word)) {
            if (!name.marked) return std::nullopt;
            if (find_slot(environment, word)) hidden_size(name.token);
            return std::string(word);
          }
          const std::optional<std::int64_t> value = size_option(word);
          if (!value && name.marked) no_value(name.token);
          if (!value) unknown_index_name(name.token, environment);
          return std::to_string(*value);
        });
    try {
      return symbolic::parse_expr(program_.arena, source, program_.sizes,
                                  [&](std::string_view name) { return find_slot(environment, name); });
    } catch (const ParseError& error) {
      parse_error(text_, index.place.begin, first_line(error.what()));
    }
  }

  static std::string first_line(std::string_view message) {
    if (const std::size_t bracket = message.find("] "); bracket != std::string_view::npos)
      message.remove_prefix(bracket + 2);
    const std::size_t line = message.find('\n');
    return std::string(message.substr(0, line)) +
           (line == std::string_view::npos
                ? ""
                : ", in `" +
                      std::string(trim(message.substr(line + 1, message.find('\n', line + 1) - line - 1))) +
                      "`");
  }
  static std::string_view trim(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    return text;
  }

  [[noreturn]] void no_value(const Token& name) const {
    parse_error(text_, name.position,
                fmt::format("`size({0})` has no value: give {0}=... in sizes", name.text));
  }
  [[noreturn]] void hidden_size(const Token& name) const {
    parse_error(
        text_, name.position,
        fmt::format("size '{0}' is hidden here by an iterator of its name: call the iterator otherwise",
                    name.text));
  }

  [[noreturn]] void unknown_index_name(const Token& name, const Environment& environment) const {
    std::vector<std::string> names;
    for (const auto& [iterator, slot] : environment) names.push_back(iterator);
    parse_error(
        text_, name.position,
        fmt::format(
            "'{}' is neither an iterator here ({}) nor a size: put it on the left side or in the brackets of "
            "a reduction, or give {}=... in sizes",
            name.text, names.empty() ? "there are none" : fmt::format("{}", fmt::join(names, ", ")),
            name.text));
  }

  Range range(const RangeText& text) {
    const ExprId begin = text.begin ? expression(*text.begin, {}) : program_.arena.constant(0);
    return {begin, expression(text.end, {})};
  }

  // --- tensors ---

  struct TensorDraft {
    std::optional<Role> role;  // none until assign_roles()
    std::vector<Rational> literal;
  };

  std::optional<std::size_t> find_tensor(std::string_view name) const {
    const auto found = tensor_ids_.find(name);
    return found == tensor_ids_.end() ? std::nullopt : std::optional(found->second);
  }

  std::size_t add_tensor(std::string name, std::size_t rank, std::optional<Role> role) {
    TensorFacts facts;
    tensor_ids_.emplace(name, tensors_.size());
    facts.name = std::move(name);
    facts.dims.resize(rank);
    facts.uses.resize(rank);
    tensors_.push_back(std::move(facts));
    drafts_.push_back({role, {}});
    return tensors_.size() - 1;
  }

  void declare_tensor(const TensorStatement& statement) {
    if (find_tensor(statement.name.text) || outputs_to_come_.contains(std::string(statement.name.text)))
      parse_error(text_, statement.name.position,
                  fmt::format("tensor '{}' is defined twice", statement.name.text));
    const std::size_t id =
        add_tensor(std::string(statement.name.text), statement.dims.size(), statement.role);
    for (std::size_t d = 0; d < statement.dims.size(); ++d) tensors_[id].dims[d] = range(statement.dims[d]);
    tensors_[id].given = true;
    drafts_[id].literal = statement.literal;
  }

  // --- scopes ---

  std::uint32_t add_iterator(std::string name) {
    const auto slot = static_cast<std::uint32_t>(iterators_.size());
    iterators_.push_back({std::move(name), std::nullopt, false, slot});
    return slot;
  }

  std::uint32_t add_iterator(const Binding& binding) {
    const std::uint32_t slot = add_iterator(std::string(binding.name.text));
    const std::optional<std::int64_t> given = size_option(binding.name.text);
    if (binding.range) {
      iterators_[slot].range = range(*binding.range);
      iterators_[slot].fixed = true;
    } else if (given) {
      iterators_[slot].range = Range{program_.arena.constant(0), program_.arena.constant(*given)};
    }
    return slot;
  }

  void add_statement(const ScopeStatement& statement) {
    const std::string name(statement.output.text);
    if (const auto known = find_tensor(name))
      parse_error(text_, statement.output.position,
                  fmt::format("'{}' is {}", name,
                              outputs_to_come_.contains(name) ? "written twice"
                                                              : "an input, because it is read before this"));
    nested_.clear();
    Scope scope;
    Environment environment;
    std::vector<std::uint32_t> traversal;
    const auto bind = [&](std::uint32_t slot) {
      traversal.push_back(slot);
      environment.emplace_back(iterators_[slot].name, slot);
    };
    for (const Binding& binding : statement.traversal) bind(add_iterator(binding));
    if (statement.accumulates && !statement.dims)
      for (const IndexText& index : statement.target)
        for (const IndexName& name_here : index.names)
          if (!name_here.marked && !find_slot(environment, name_here.token.text) &&
              !program_.sizes.find(name_here.token.text)) {
            Binding binding;
            binding.name = name_here.token;
            bind(add_iterator(binding));
          }
    std::vector<ExprId> target;
    for (const IndexText& index : statement.target) target.push_back(expression(index, environment));

    build_scope(*statement.body, std::move(scope), traversal, environment, name);

    const std::size_t rank = statement.accumulates ? target.size() : traversal.size();
    if (statement.dims && statement.dims->size() != rank)
      parse_error(text_, statement.output.position,
                  fmt::format("'{}' has {} dimensions, but its target has {} indices", name,
                              statement.dims->size(), rank));
    if (statement.accumulates && rank == 0)
      parse_error(text_, statement.output.position,
                  "a tensor without dimensions cannot be accumulated: use `= sum[...]`");
    const std::size_t id = add_tensor(name, rank, Role::Computed);
    tensors_[id].traversal = traversal;
    tensors_[id].accumulated = statement.accumulates;
    for (std::size_t d = 0; d < target.size(); ++d) tensors_[id].uses[d].push_back(target[d]);
    for (std::size_t d = 0; statement.dims && d < rank; ++d)
      tensors_[id].dims[d] = range((*statement.dims)[d]);
    scopes_.back().target = std::move(target);
    scopes_.back().output = TensorId{static_cast<std::uint32_t>(id)};
  }

  // Appends the scope for `body`; the caller sets its output.
  void build_scope(const Node& body, Scope scope, const std::vector<std::uint32_t>& traversal,
                   Environment environment, const std::string& name) {
    const Node* value = &body;
    std::vector<std::uint32_t> sums;
    if (body.kind == NodeKind::Reduce) {
      scope.reduction = body.reduction;
      for (const Binding& binding : body.sums) {
        sums.push_back(add_iterator(binding));
        environment.emplace_back(std::string(binding.name.text), sums.back());
      }
      value = body.operands[0].get();
    }
    scope.body = scalar(*value, environment, name);
    for (const std::uint32_t slot : traversal) scope.traversal.push_back({iterators_[slot].name, slot, {}});
    for (const std::uint32_t slot : sums) scope.sums.push_back({iterators_[slot].name, slot, {}});
    scopes_.push_back(std::move(scope));
  }

  ScalarId scalar(const Node& node, const Environment& environment, const std::string& output) {
    switch (node.kind) {
      case NodeKind::Literal:
        return program_.literal(node.literal);
      case NodeKind::Index:
        return program_.index_value(expression(node.indices[0], environment));
      case NodeKind::Name:
        return number(node, environment);
      case NodeKind::Read:
        return read(node, environment);
      case NodeKind::Reduce:
        return nested(node, environment, output);
      default:
        break;
    }
    std::vector<ScalarId> operands;
    for (const NodePtr& operand : node.operands) operands.push_back(scalar(*operand, environment, output));
    if (node.kind == NodeKind::Unary) return program_.unary(node.function, operands[0]);
    if (node.kind == NodeKind::Binary) return program_.binary(node.function, operands[0], operands[1]);
    return program_.select(operands[0], operands[1], operands[2]);
  }

  ScalarId number(const Node& node, const Environment& environment) {
    const auto slot = find_slot(environment, node.name.text);
    if (slot && !node.marked) return program_.index_value(program_.arena.iterator(*slot));
    if (const auto variable = program_.sizes.find(node.name.text))
      return program_.index_value(program_.arena.size(Size::variable(*variable)));
    if (const auto value = size_option(node.name.text)) return program_.literal(*value);
    if (node.marked) no_value(node.name);
    const bool tensor = find_tensor(node.name.text).has_value();
    if (tensor)
      parse_error(text_, node.position,
                  fmt::format("'{}' is a tensor: read it as `{}[...]`", node.name.text, node.name.text));
    parse_error(
        text_, node.position,
        fmt::format("'{0}' is neither an iterator here nor a size; to read a tensor, write `{0}[...]`",
                    node.name.text));
  }

  ScalarId read(const Node& node, const Environment& environment) {
    const std::string name(node.name.text);
    std::optional<std::size_t> id = find_tensor(name);
    if (!id && outputs_to_come_.contains(name))
      parse_error(text_, node.position, fmt::format("'{}' is read before it is written", name));
    if (!id) id = add_tensor(name, node.indices.size(), std::nullopt);
    if (tensors_[*id].dims.size() != node.indices.size())
      parse_error(text_, node.position,
                  fmt::format("'{}' has {} dimensions, but is read here with {} indices", name,
                              tensors_[*id].dims.size(), node.indices.size()));
    std::vector<ExprId> indices;
    for (const IndexText& index : node.indices) {
      indices.push_back(expression(index, environment));
      tensors_[*id].uses[indices.size() - 1].push_back(indices.back());
    }
    return program_.read(TensorId{static_cast<std::uint32_t>(*id)}, std::move(indices), node.fill);
  }

  // A reduction inside an expression: a scope with one element for every value of the iterators it uses; the
  // same scope again where the statement has written it before.
  ScalarId nested(const Node& node, const Environment& environment, const std::string& output) {
    std::set<std::string, std::less<>> used;
    std::vector<std::string> bound;
    free_names(node, bound, used);
    std::vector<std::uint32_t> slots;
    std::vector<ExprId> indices;
    for (const auto& [name, slot] : environment) {
      if (!used.contains(name) || find_slot(environment, name) != slot) continue;
      slots.push_back(slot);
      indices.push_back(program_.arena.iterator(slot));
    }
    for (const Nested& before : nested_)
      if (before.slots == slots && same_meaning(*before.node, node))
        return program_.read(before.tensor, std::move(indices));
    std::vector<std::uint32_t> traversal;
    Environment inner;
    for (const std::uint32_t slot : slots) {
      std::string iterator = iterators_[slot].name;
      traversal.push_back(add_iterator(iterator));
      iterators_.back().same_as = slot;
      inner.emplace_back(std::move(iterator), traversal.back());
    }
    const std::string name = fresh_name(output);
    build_scope(node, {}, traversal, inner, output);
    const std::size_t id = add_tensor(name, traversal.size(), Role::Computed);
    tensors_[id].traversal = traversal;
    for (std::size_t d = 0; d < indices.size(); ++d) tensors_[id].uses[d].push_back(indices[d]);
    const TensorId tensor{static_cast<std::uint32_t>(id)};
    scopes_.back().output = tensor;
    nested_.push_back({&node, std::move(slots), tensor});
    return program_.read(tensor, std::move(indices));
  }

  // Whether two expressions are written alike, white space apart, and so mean the same where their free names
  // do.
  bool same_meaning(const Node& a, const Node& b) const {
    const auto spelled = [&](const IndexText& x, const IndexText& y) {
      return without_space(x.place) == without_space(y.place);
    };
    const auto bound = [&](const Binding& x, const Binding& y) {
      if (x.name.text != y.name.text || x.range.has_value() != y.range.has_value()) return false;
      if (!x.range) return true;
      if (x.range->begin.has_value() != y.range->begin.has_value()) return false;
      return spelled(x.range->end, y.range->end) &&
             (!x.range->begin || spelled(*x.range->begin, *y.range->begin));
    };
    return a.kind == b.kind && a.literal == b.literal && a.name.text == b.name.text && a.marked == b.marked &&
           a.fill == b.fill && a.function == b.function && a.reduction == b.reduction &&
           std::equal(a.indices.begin(), a.indices.end(), b.indices.begin(), b.indices.end(), spelled) &&
           std::equal(a.sums.begin(), a.sums.end(), b.sums.begin(), b.sums.end(), bound) &&
           std::equal(a.operands.begin(), a.operands.end(), b.operands.begin(), b.operands.end(),
                      [&](const NodePtr& x, const NodePtr& y) { return same_meaning(*x, *y); });
  }

  std::string without_space(const Place& place) const {
    std::string spelling(text_.substr(place.begin, place.end - place.begin));
    std::erase_if(spelling, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
    return spelling;
  }

  static void free_names(const Node& node, std::vector<std::string>& bound,
                         std::set<std::string, std::less<>>& used) {
    const auto use = [&](const Token& name) {
      if (std::find(bound.begin(), bound.end(), name.text) == bound.end()) used.emplace(name.text);
    };
    const std::size_t before = bound.size();
    for (const Binding& binding : node.sums) bound.emplace_back(binding.name.text);
    if (node.kind == NodeKind::Name && !node.marked) use(node.name);
    for (const IndexText& index : node.indices)
      for (const IndexName& name : index.names)
        if (!name.marked) use(name.token);
    for (const NodePtr& operand : node.operands) free_names(*operand, bound, used);
    bound.resize(before);
  }

  std::string fresh_name(const std::string& output) {
    std::size_t number = 1;
    while (names_in_text_.contains(fmt::format("{}_{}", output, number))) ++number;
    const std::string name = fmt::format("{}_{}", output, number);
    names_in_text_.insert(name);
    return name;
  }

  // --- shapes, roles, assembly ---

  void apply_shapes() {
    for (const auto& [name, shape] : options_.shapes) {
      const std::optional<std::size_t> id = find_tensor(name);
      if (!id || (drafts_[*id].role == Role::Computed && !tensors_[*id].accumulated)) {
        if (id)
          fail<ShapeError>(kParseText,
                           "the shape of '{}' follows from the ranges of its iterators and cannot be given",
                           name);
        throw UnknownName(kParseText, unknown_name("input", name, names_of_inputs()));
      }
      TensorFacts& tensor = tensors_[*id];
      if (tensor.dims.size() != shape.size())
        fail<ShapeError>(kParseText, "shape [{}] has {} dimensions, but '{}' is read with {} indices",
                         fmt::join(shape, ", "), shape.size(), name, tensor.dims.size());
      for (std::size_t d = 0; d < shape.size(); ++d) {
        const Range range{program_.arena.constant(0), program_.arena.constant(shape[d])};
        if (tensor.dims[d] && tensor.dims[d] != range)
          fail<ShapeError>(kParseText,
                           "dimension {} of '{}' is declared in the text with another size than the {} given",
                           d, name, shape[d]);
        tensor.dims[d] = range;
      }
      tensor.given = true;
    }
  }

  std::vector<std::string> names_of_inputs() const {
    std::vector<std::string> names;
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      if (drafts_[t].role != Role::Computed && drafts_[t].role != Role::Constant)
        names.push_back(tensors_[t].name);
    return names;
  }

  void check_unused_options() const {
    std::vector<std::string> names;
    for (const IteratorFacts& iterator : iterators_) names.push_back(iterator.name);
    for (const symbolic::Variable& variable : program_.sizes.variables()) names.push_back(variable.name);
    for (const auto& [name, value] : options_.sizes)
      if (!used_sizes_.contains(name))
        throw UnknownName(kParseText, unknown_name("iterator or size", name, names));
  }

  void assign_roles() {
    const std::vector<std::string> names = names_of_inputs();
    const auto named = [&](const std::vector<std::string>& list, const std::string& name) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    for (const auto* list : {&options_.weights, &options_.data})
      for (const std::string& name : *list) {
        if (!named(names, name)) throw UnknownName(kParseText, unknown_name("input", name, names));
        const Role role = list == &options_.data ? Role::Input : Role::Weight;
        const std::optional<Role> declared = drafts_[*find_tensor(name)].role;
        if ((declared && declared != role) || (named(options_.weights, name) && named(options_.data, name)))
          fail<SpecError>(kParseText, "'{}' cannot be both data and a weight", name);
      }
    bool first = true;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      if (drafts_[t].role) {
        first = first && drafts_[t].role != Role::Input;
        continue;
      }
      const std::string& name = tensors_[t].name;
      bool weight = !first;
      if (options_.no_weights)
        weight = false;
      else if (named(options_.weights, name))
        weight = true;
      else if (named(options_.data, name))
        weight = false;
      else if (!options_.data.empty())
        weight = true;
      else if (!options_.weights.empty())
        weight = false;
      drafts_[t].role = weight ? Role::Weight : Role::Input;
      first = false;
    }
  }

  Program assemble() {
    program_.next_slot = static_cast<std::uint32_t>(iterators_.size());
    std::vector<TensorId> ids(tensors_.size());
    const auto rank = [&](std::size_t t) {
      return drafts_[t].role == Role::Computed ? 2 : drafts_[t].role == Role::Constant ? 1 : 0;
    };
    for (int wanted = 0; wanted < 3; ++wanted)
      for (std::size_t t = 0; t < tensors_.size(); ++t) {
        if (rank(t) != wanted) continue;
        Tensor tensor{tensors_[t].name, *drafts_[t].role, {}, std::move(drafts_[t].literal)};
        for (const std::optional<Range>& dim : tensors_[t].dims) tensor.dims.push_back(*dim);
        ids[t] = program_.add_tensor(std::move(tensor));
      }
    for (Scalar& scalar : program_.scalars)
      if (scalar.kind == ScalarKind::Read) scalar.tensor = ids[static_cast<std::size_t>(scalar.tensor)];
    for (Scope& scope : scopes_) {
      scope.output = ids[static_cast<std::size_t>(scope.output)];
      for (auto* iterators : {&scope.traversal, &scope.sums})
        for (Iterator& iterator : *iterators) iterator.range = *iterators_[iterator.slot].range;
    }
    program_.scopes = std::move(scopes_);
    for (const Token& output : tree_.outputs) {
      const auto id = program_.find_tensor(output.text);
      if (!id)
        parse_error(text_, output.position, fmt::format("there is no tensor '{}' to return", output.text));
      if (program_.tensor(*id).role != Role::Computed)
        parse_error(text_, output.position,
                    fmt::format("'{}' is not computed, so it cannot be returned", output.text));
      program_.outputs.push_back(*id);
    }
    if (program_.outputs.empty()) program_.outputs.push_back(program_.scopes.back().output);
    verify(program_);
    return std::move(program_);
  }

  struct Nested {
    const Node* node;
    std::vector<std::uint32_t> slots;  // of the iterators it uses, in the order of its dimensions
    TensorId tensor;
  };

  std::string_view text_;
  std::vector<Nested> nested_;  // the reductions inside the statement's expressions so far
  const ParseOptions& options_;
  Text tree_;
  Program program_;
  std::vector<IteratorFacts> iterators_;  // by slot
  std::vector<TensorFacts> tensors_;
  std::map<std::string, std::size_t, std::less<>> tensor_ids_;  // by name
  std::vector<TensorDraft> drafts_;                             // beside tensors_
  std::vector<Scope> scopes_;
  std::set<std::string, std::less<>> outputs_to_come_;  // names that statements write
  std::set<std::string, std::less<>> used_sizes_;
  std::set<std::string, std::less<>> names_in_text_;  // those that a new tensor may not have
};

}  // namespace

Program parse(std::string_view text, const ParseOptions& options) { return Builder(text, options).run(); }

}  // namespace syno::program
