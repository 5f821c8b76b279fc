// program/syntax.hpp — what the text form of a program says, before names have a meaning: tokens and a syntax
// tree.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"

namespace syno::program::syntax {

/// Positions are byte offsets in the text; errors show the line with a caret under it.
struct Place {
  std::size_t begin = 0;
  std::size_t end = 0;
};

[[noreturn]] void parse_error(std::string_view text, std::size_t position, std::string_view message);

enum class TokenKind : std::uint8_t { Name, Number, Symbol, Newline, End };
struct Token {
  TokenKind kind = TokenKind::End;
  std::string_view text;
  std::size_t position = 0;
};
/// Comments (`#` to the end of the line) and newlines inside brackets are left out.
std::vector<Token> tokenize(std::string_view text);

/// An identifier in an index expression. `size(k)` is the number k, where `k` may be an iterator.
struct IndexName {
  Token token;
  Place place;  ///< of all that is written: `k` or `size(k)`
  bool marked = false;
};

/// An index expression, parsed later by symbolic::parse_expr; `names` are the identifiers in it.
struct IndexText {
  Place place;
  std::vector<IndexName> names;
};

struct RangeText {
  std::optional<IndexText> begin;  ///< none: 0
  IndexText end;
};

/// An iterator or dimension: `n`, `n: N` or `n: -1..H+1`.
struct Binding {
  Token name;
  std::optional<RangeText> range;
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

/// Literal, Read, Index (`index(e)`), Name (an iterator or size as a number), Unary, Binary, Select, Reduce.
enum class NodeKind : std::uint8_t { Literal, Read, Index, Name, Unary, Binary, Select, Reduce };
struct Node {
  NodeKind kind = NodeKind::Literal;
  std::size_t position = 0;
  std::size_t depth = 1;
  Rational literal;
  Token name;                      ///< Read: tensor; Name
  bool marked = false;             ///< Name: written `size(k)`
  std::vector<IndexText> indices;  ///< Read, Index
  Rational fill = 0;
  Function function = Function::Add;
  Reduction reduction = Reduction::None;
  std::vector<Binding> sums;  ///< Reduce
  std::vector<NodePtr> operands;
};

struct SizeStatement {
  std::vector<Token> names;
  symbolic::VariableKind kind = symbolic::VariableKind::Primary;
  std::vector<std::vector<std::int64_t>> values;
  std::size_t position = 0;
};

struct TensorStatement {
  Role role = Role::Input;
  Token name;
  std::vector<RangeText> dims;
  std::vector<Rational> literal;
};

struct ScopeStatement {
  Token output;
  std::vector<Binding> traversal;              ///< `y[n, h: H] =`
  bool accumulates = false;                    ///< `+=`
  std::optional<std::vector<RangeText>> dims;  ///< accumulating, full: `dx[N, H] : [n: N][...] +=`
  std::vector<IndexText> target;               ///< accumulating
  NodePtr body;
};

struct Text {
  std::vector<SizeStatement> sizes;
  std::vector<TensorStatement> tensors;
  std::vector<ScopeStatement> scopes;
  std::vector<Token> outputs;  ///< of `return`
};

/// The tree of a text; ParseError with a caret where it is not well formed.
Text parse_text(std::string_view text);

/// An index expression on one line, with what `instead` gives for a name put in the name's place.
std::string spelled(std::string_view text, const IndexText& index,
                    const std::function<std::optional<std::string>(const IndexName&)>& instead);

/// "sum", "prod", ...; "" for no reduction.
std::string_view word_of(Reduction reduction);

/// `12`, `0.5`, `1e-5` as exact numbers; nothing when 64 bits do not hold one.
std::optional<Rational> parse_decimal(std::string_view text);

}  // namespace syno::program::syntax
