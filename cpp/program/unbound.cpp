#include "program/unbound.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "support/error.hpp"
#include "symbolic/expr.hpp"

namespace syno::program::syntax {
namespace {

using symbolic::Arena;
using symbolic::Expr;
using symbolic::ExprId;
using symbolic::Op;
using symbolic::Size;

/// What a place says of a name: it can only be a size; it may be one; or an iterator is at home there.
enum class UseKind : std::uint8_t { Size, Number, LikeIterator };

struct Use {
  Token name;
  UseKind kind = UseKind::Number;
  const ScopeStatement* statement = nullptr;
};

/// What an index expression says of the names that nothing binds in it.
class IndexUses {
 public:
  IndexUses(std::string_view text, const IndexText& index, const std::set<std::string_view>& bound,
            const std::vector<std::string_view>& unbound)
      : kinds_(unbound.size(), UseKind::Number), names_(unbound) {
    std::vector<symbolic::Variable> variables;
    for (const std::string_view name : unbound)
      variables.push_back({std::string(name), symbolic::VariableKind::Coefficient});
    const auto is = [](const auto& names, std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const std::string source = spelled(text, index, [&](const IndexName& name) -> std::optional<std::string> {
      const bool stays = !name.marked && (is(bound, name.token.text) || is(unbound, name.token.text));
      if (stays) return std::nullopt;
      return "2";  // some number
    });
    try {
      const symbolic::Sizes sizes(std::move(variables), {});
      const ExprId root = parse_expr(arena_, source, sizes, [&](std::string_view name) {
        return is(bound, name) ? std::optional<std::uint32_t>(0) : std::nullopt;
      });
      look_at(root, arena_.has_iterator(root));
    } catch (const SpecError&) {  // more names than a table of sizes holds
      kinds_.assign(kinds_.size(), UseKind::LikeIterator);
    } catch (const Error&) {  // what reads the expression will say what is wrong with it
    }
  }

  UseKind of(std::string_view name) const {
    return kinds_[static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin())];
  }

 private:
  void note(const Size& size, UseKind kind) {
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      if (size.exponent(i) == 0 || kinds_[i] == UseKind::Size) continue;
      if (kind != UseKind::Number) kinds_[i] = kind;
    }
  }

  /// Iterators have no powers and are not divided without being rounded.
  bool no_iterator_in(const Size& size) const {
    if (!size.factor().integral()) return true;
    for (std::size_t i = 0; i < kinds_.size(); ++i)
      if (size.exponent(i) < 0 || size.exponent(i) > 1) return true;
    return false;
  }

  /// `summand`: whether an iterator could stand in the place of `id`.
  void look_at(ExprId id, bool beside_iterator, bool summand = true) {
    const Expr node = arena_[id];
    const Size size = arena_[node.size];
    const bool moves = arena_.has_iterator(node.a);
    switch (node.op) {
      case Op::Iterator:
      case Op::Constant:
        return;
      case Op::SizeValue:
        note(size, no_iterator_in(size) ? UseKind::Size : summand ? UseKind::LikeIterator : UseKind::Number);
        return;
      case Op::Add:
        look_at(node.a, beside_iterator, summand);
        look_at(node.b, beside_iterator, summand);
        return;
      case Op::Multiply:
        note(size, moves || no_iterator_in(size) ? UseKind::Size : UseKind::LikeIterator);
        look_at(node.a, beside_iterator, summand);
        return;
      case Op::Divide:
      case Op::Modulo:
        note(size, UseKind::Size);
        look_at(node.a, beside_iterator, moves || !beside_iterator);
        return;
      case Op::Inside:
        note(size, UseKind::Size);
        look_at(node.a, beside_iterator, summand);
        return;
    }
  }

  Arena arena_;
  std::vector<UseKind> kinds_;
  const std::vector<std::string_view>& names_;
};

/// Every use of a name that nothing binds, and all names of iterators.
class NameUses {
 public:
  NameUses(std::string_view text, const Text& tree) : text_(text) {
    for (const SizeStatement& statement : tree.sizes)
      for (const Token& name : statement.names) declared_.insert(name.text);
    for (const TensorStatement& tensor : tree.tensors)
      for (const RangeText& range : tensor.dims) in_range(range);
    for (const ScopeStatement& scope : tree.scopes) look_at(scope);
  }

  const std::vector<Use>& uses() const { return uses_; }
  /// Whether the name has to be bound where it stands.
  bool must_be_bound(const Use& use) const {
    const std::string_view name = use.name.text;
    return iterators_.contains(name) || (like_iterators_.contains(name) && !sizes_.contains(name));
  }

 private:
  void look_at(const ScopeStatement& scope) {
    statement_ = &scope;
    bound_.clear();
    for (const Binding& binding : scope.traversal) bind(binding);
    if (scope.accumulates && !scope.dims)
      for (const IndexText& index : scope.target)
        for (const IndexName& name : index.names)
          if (!name.marked && !declared_.contains(name.token.text)) bind({name.token, std::nullopt});
    for (const IndexText& index : scope.target) in_index(index);
    for (std::size_t d = 0; scope.dims && d < scope.dims->size(); ++d) in_range((*scope.dims)[d]);
    look_at(*scope.body);
  }

  void look_at(const Node& node) {
    const std::size_t before = bound_.size();
    for (const Binding& binding : node.sums) bind(binding);
    if (node.kind == NodeKind::Name && !node.marked && !knows(node.name.text))
      note({node.name, UseKind::Number, statement_});
    for (const IndexText& index : node.indices) in_index(index);
    for (const NodePtr& operand : node.operands) look_at(*operand);
    bound_.resize(before);
  }

  void bind(const Binding& binding) {
    if (binding.range) in_range(*binding.range);
    bound_.push_back(binding.name.text);
    iterators_.insert(binding.name.text);
  }

  void note(const Use& use) {
    if (use.kind == UseKind::Size) sizes_.insert(use.name.text);
    if (use.kind == UseKind::LikeIterator) like_iterators_.insert(use.name.text);
    uses_.push_back(use);
  }

  bool knows(std::string_view name) const {
    return declared_.contains(name) || std::find(bound_.begin(), bound_.end(), name) != bound_.end();
  }

  void in_range(const RangeText& range) {
    for (const IndexText* index : {range.begin ? &*range.begin : nullptr, &range.end})
      for (std::size_t i = 0; index && i < index->names.size(); ++i)
        sizes_.insert(index->names[i].token.text);
  }

  void in_index(const IndexText& index) {
    std::vector<std::string_view> unbound;
    for (const IndexName& name : index.names)
      if (!name.marked && !knows(name.token.text) &&
          std::find(unbound.begin(), unbound.end(), name.token.text) == unbound.end())
        unbound.push_back(name.token.text);
    if (unbound.empty()) return;
    const IndexUses found(text_, index, {bound_.begin(), bound_.end()}, unbound);
    for (const IndexName& name : index.names)
      if (!name.marked && !knows(name.token.text)) note({name.token, found.of(name.token.text), statement_});
  }

  std::string_view text_;
  std::set<std::string_view> declared_, iterators_;
  std::set<std::string_view> sizes_;  ///< names that stand where no iterator can
  std::set<std::string_view> like_iterators_;
  std::vector<std::string_view> bound_;
  std::vector<Use> uses_;
  const ScopeStatement* statement_ = nullptr;
};

/// The reduction of a body that binds the name, if any: the use stands outside of it.
const Node* reduction_over(const Node& node, std::string_view name) {
  for (const Binding& binding : node.sums)
    if (binding.name.text == name) return &node;
  for (const NodePtr& operand : node.operands)
    if (const Node* found = reduction_over(*operand, name)) return found;
  return nullptr;
}

}  // namespace

void require_bound_names(std::string_view text, const Text& tree,
                         const std::map<std::string, std::int64_t, std::less<>>& values) {
  const NameUses names(text, tree);
  for (const Use& use : names.uses()) {
    if (!names.must_be_bound(use)) continue;
    const std::string_view name = use.name.text;
    const Node* reduction = reduction_over(*use.statement->body, name);
    const std::string advice =
        reduction
            ? fmt::format("`{0}[{1}]` takes only the product on its right; did you mean `{0}[{1}] (...)`?",
                          word_of(reduction->reduction), name)
            : fmt::format("did you mean `sum[{0}] ...`, or {0} on the left side?", name);
    const auto value = values.find(name);
    const std::string number =
        value == values.end()
            ? fmt::format("The number {0} is written `size({0})`", name)
            : fmt::format("The number {0} = {1} is written `size({0})`", name, value->second);
    parse_error(text, use.name.position,
                fmt::format("'{}' is bound by no reduction here: {} {}", name, advice, number));
  }
}

std::vector<Token> names_to_mark(std::string_view text, const Text& tree) {
  const NameUses names(text, tree);
  std::vector<Token> result;
  for (const Use& use : names.uses())
    if (names.must_be_bound(use)) result.push_back(use.name);
  std::sort(result.begin(), result.end(),
            [](const Token& a, const Token& b) { return a.position < b.position; });
  return result;
}

}  // namespace syno::program::syntax
