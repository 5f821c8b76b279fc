#include "emit/triton_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "emit/python_names.hpp"
#include "support/checked.hpp"

namespace syno::emit {

using symbolic::Expr;
using symbolic::Op;

namespace {

/// A name or a number.
bool is_word(const std::string& text) {
  const auto part = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  if (text.starts_with("(-")) return std::all_of(text.begin() + 2, text.end() - 1, part);
  return std::all_of(text.begin(), text.end(), part);
}

std::string number(std::int64_t value) {
  return value < 0 ? fmt::format("({})", value) : std::to_string(value);
}

/// The integer that a text made by number() is.
std::optional<std::int64_t> constant_of(const TileText& value) {
  const std::string& text = value.text;
  if (std::isdigit(static_cast<unsigned char>(text[0]))) return std::stoll(text);
  if (text.starts_with("(-")) return std::stoll(text.substr(1));
  return std::nullopt;
}

/// `value relation bound`, of tensors also where the value is a number.
TileText compared(const TileText& value, const char* relation, std::int64_t bound) {
  const std::string left =
      constant_of(value) ? fmt::format("tl.full([], {}, tl.int64)", value.text) : value.text;
  return {fmt::format("{} {} {}", left, relation, number(bound)), value.axes, value.looped};
}

}  // namespace

std::string TileIndices::fresh(std::string_view wanted) {
  std::string name = python_name(wanted, used_);
  if (name == wanted) return name;
  for (int i = 2;; ++i) {
    used_.erase(name);
    const std::string next = fmt::format("{}{}", wanted, i);
    name = python_name(next, used_);
    if (name == next) return name;
  }
}

TileText TileIndices::assign(const TileText& value, std::string_view wanted) {
  if (is_word(value.text)) return value;
  // Vectors along two axes may have the same text.
  const std::string key = fmt::format("{}|{}", value.axes, value.text);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  TileText variable = value;
  variable.text = fresh(wanted);
  auto& lines = finishing_ ? after : value.looped ? inside : before;
  lines.push_back(fmt::format("{} = {}", variable.text, value.text));
  known_.emplace(key, variable);
  return variable;
}

std::int64_t TileIndices::extent(const std::vector<Slot>& group) const {
  std::int64_t all = 1;
  for (const Slot slot : group) all = checked_multiply(all, indices_.extent(slot));
  return all;
}

void TileIndices::walk(const std::vector<Slot>& group, const Position& position) {
  std::int64_t stride = 1;
  std::vector<std::pair<Slot, std::int64_t>> placed;
  for (std::size_t i = group.size(); i-- > 0;) {
    placed.emplace_back(group[i], stride);
    stride *= std::max<std::int64_t>(1, indices_.extent(group[i]));
  }
  bool outermost = true;
  for (std::size_t i = placed.size(); i-- > 0;) {
    const auto [slot, step] = placed[i];
    const std::int64_t begin = indices_.range(slot).begin, extent = indices_.extent(slot);
    if (extent <= 1) {
      iterators_[slot] = {number(begin), 0, false};
      continue;
    }
    TileText digit = digit_of(position, step, extent, outermost);
    if (begin != 0) digit.text += fmt::format(" + {}", number(begin));
    outermost = false;
    iterators_[slot] = assign(digit);
  }
}

TileText TileIndices::digit_of(const Position& position, std::int64_t step, std::int64_t extent,
                               bool outermost) {
  const auto divided = [&](TileText of) {
    if (step > 1) of.text = fmt::format("{} // {}", of.text, step);
    return of;
  };
  const std::int64_t each = position.each, window = checked_multiply(step, extent);
  if (each > 1 && step % each == 0) {  // all lanes have the same
    TileText digit = divided(position.base);
    if (!outermost) digit.text = fmt::format("{} % {}", digit.text, extent);
    return digit;
  }
  if (each > 1 && !outermost && each % window == 0) {  // the base has none of it
    TileText digit = divided(position.lanes);
    if (each != window) digit.text = fmt::format("{} % {}", digit.text, extent);
    return digit;
  }
  if (each > 1 && !outermost && window % each == 0) {  // lanes do not reach beyond the iterator
    // What is left of the base, written so that the compiler sees that it stays a multiple.
    const TileText base = assign({fmt::format("{0} - {0} // {1} * {1}", position.base.text, window),
                                  position.base.axes, position.base.looped});
    TileText digit = assign({fmt::format("{} + {}", base.text, position.lanes.text), position.lanes.axes,
                             base.looped || position.lanes.looped});
    return divided(digit);
  }
  TileText digit = divided(position.all);
  if (!outermost) digit.text = fmt::format("{} % {}", digit.text, extent);
  return digit;
}

TileText TileIndices::atom(ExprId id, const Frame& frame) {
  const Expr node = indices_.arena()[id];
  switch (node.op) {
    case Op::Iterator: {
      TileText found = iterators_.at(static_cast<Slot>(node.a));
      for (const Axis axis : {kRow, kColumn, kDepth})
        if (found.axes == 1u << axis && frame[axis] != nullptr && *frame[axis] != 0) {
          found.text += frame[axis];
          return assign(found);
        }
      return found;
    }
    case Op::Divide:
    case Op::Modulo: {
      const std::int64_t size = symbolic::integer_of(indices_.arena(), node.size);
      TileText a = index(node.a, frame);
      if (const auto value = constant_of(a)) {
        const std::int64_t quotient = *value / size - (*value % size < 0);
        return {number(node.op == Op::Divide ? quotient : *value - quotient * size), 0, false};
      }
      // Triton rounds towards zero: make what is divided positive first.
      const std::int64_t least = indices_.bounds(node.a).least;
      const std::int64_t turns = least < 0 ? (size - 1 - least) / size : 0;
      if (turns > 0)
        a = assign({fmt::format("{} + {}", a.text, checked_multiply(turns, size)), a.axes, a.looped});
      std::string text = fmt::format("{} {} {}", a.text, node.op == Op::Divide ? "//" : "%", size);
      if (turns > 0 && node.op == Op::Divide) text += fmt::format(" - {}", turns);
      return assign({text, a.axes, a.looped});
    }
    case Op::Inside:
      return index(node.a, frame);
    case Op::Constant:
      return {number(node.value), 0, false};
    case Op::SizeValue:
      return {number(symbolic::integer_of(indices_.arena(), node.size)), 0, false};
    default:
      return index(id, frame);
  }
}

TileText TileIndices::index(ExprId root, const Frame& frame) {
  const auto form = indices_.affine(root);
  std::int64_t constant = form.constant;
  // Terms that vary alike are added first, so that sums over more axes are made of few.
  std::map<std::pair<bool, unsigned>, std::string> groups;
  for (const auto& [id, coefficient] : form.terms) {
    if (coefficient == 0) continue;
    const TileText part = atom(id, frame);
    if (const auto value = constant_of(part)) {
      constant = checked_add(constant, checked_multiply(coefficient, *value));
      continue;
    }
    std::string& sum = groups[{part.looped, part.axes}];
    const std::string term =
        coefficient == 1 ? part.text : fmt::format("{} * {}", part.text, number(coefficient));
    sum = sum.empty() ? term : fmt::format("{} + {}", sum, term);
  }
  if (groups.empty()) return {number(constant), 0, false};
  TileText total;
  for (auto& [kind, sum] : groups) {
    if (constant != 0 && total.text.empty()) sum += fmt::format(" + {}", number(constant));
    const TileText part = assign({sum, kind.second, kind.first});
    if (total.text.empty()) {
      total = part;
      continue;
    }
    total = assign(
        {fmt::format("{} + {}", total.text, part.text), total.axes | part.axes, total.looped || part.looped});
  }
  return total;
}

void TileIndices::guards(ExprId root, const Frame& frame, std::vector<TileText>& conditions) {
  if (!indices_.arena().has_inside(root)) return;
  const Expr node = indices_.arena()[root];
  guards(node.a, frame, conditions);
  if (node.op == Op::Add) guards(node.b, frame, conditions);
  if (node.op != Op::Inside) return;
  const std::int64_t size = symbolic::integer_of(indices_.arena(), node.size);
  const symbolic::Interval reach = indices_.bounds(node.a);
  const TileText value = index(node.a, frame);
  if (reach.least < 0) conditions.push_back(assign(compared(value, ">=", 0), "c"));
  if (reach.greatest >= size) conditions.push_back(assign(compared(value, "<", size), "c"));
}

TileText TileIndices::offset(const std::vector<ExprId>& at, const std::vector<program::Extent>& dims,
                             const Frame& frame, std::vector<TileText>& conditions) {
  std::int64_t stride = 1;
  ExprId place = indices_.arena().constant(0);
  for (std::size_t d = dims.size(); d-- > 0;) {
    guards(at[d], frame, conditions);
    const symbolic::Interval reach = indices_.bounds(at[d]);
    if (reach.least < dims[d].begin || reach.greatest >= dims[d].end) {
      const TileText value = index(at[d], frame);
      if (reach.least < dims[d].begin)
        conditions.push_back(assign(compared(value, ">=", dims[d].begin), "c"));
      if (reach.greatest >= dims[d].end) conditions.push_back(assign(compared(value, "<", dims[d].end), "c"));
    }
    const ExprId from_zero = indices_.arena().add(at[d], indices_.arena().constant(-dims[d].begin));
    place = indices_.arena().add(place, indices_.arena().multiply(from_zero, stride));
    stride = checked_multiply(stride, dims[d].end - dims[d].begin);
  }
  return index(place, frame);
}

double TileIndices::operations(const std::vector<ExprId>& at, const std::vector<program::Extent>& dims) {
  double count = 2;  // the sum with the pointer, the load itself
  const auto divisions = [&](ExprId root, const auto& self) -> double {
    const Expr node = indices_.arena()[root];
    if (node.op == Op::Divide || node.op == Op::Modulo) return 6 + self(node.a, self);
    if (node.op == Op::Add) return self(node.a, self) + self(node.b, self);
    if (node.op == Op::Multiply || node.op == Op::Inside) return self(node.a, self);
    return 0;
  };
  for (std::size_t d = 0; d < at.size(); ++d) {
    const symbolic::Interval reach = indices_.bounds(at[d]);
    count += 2 * (reach.least < dims[d].begin) + 2 * (reach.greatest >= dims[d].end);
    if (indices_.arena().has_inside(at[d])) count += 4;
    count += divisions(at[d], divisions);
  }
  return count;
}

}  // namespace syno::emit
