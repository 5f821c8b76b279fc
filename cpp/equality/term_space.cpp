#include "equality/term_space.hpp"

#include <algorithm>

#include "equality/term_counts.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::equality {

TermNode TermSpace::push(Node node) {
  nodes_.push_back(node);
  return static_cast<TermNode>(nodes_.size() - 1);
}

TermNode TermSpace::iterator(const RowValues& extent) {
  Node node{TermOp::Iterator, 0, 0, extent, {}, {}, 0};
  bool single = true;
  for (std::size_t r = 0; r < rows_; ++r) {
    node.most[r] = std::max<std::int64_t>(extent[r] - 1, 0);
    single &= extent[r] == 1;
  }
  if (single) return constant({});
  if (iterators_.size() == 64) fail<VerifyError>("operator_key", "an operator has at most 64 iterators");
  node.a = static_cast<TermNode>(iterators_.size());
  node.support = std::uint64_t{1} << node.a;
  iterators_.push_back(push(node));
  return iterators_.back();
}

TermNode TermSpace::constant(const RowValues& value) {
  return push({TermOp::Constant, 0, 0, value, value, value, 0});
}

TermNode TermSpace::add(TermNode a, TermNode b) {
  Node node{TermOp::Add, a, b, {}, {}, {}, nodes_[a].support | nodes_[b].support};
  for (std::size_t r = 0; r < rows_; ++r) {
    node.least[r] = checked_add(nodes_[a].least[r], nodes_[b].least[r]);
    node.most[r] = checked_add(nodes_[a].most[r], nodes_[b].most[r]);
  }
  return push(node);
}

TermNode TermSpace::scale(TermNode a, const RowValues& factor) {
  Node node{TermOp::Scale, a, 0, factor, {}, {}, nodes_[a].support};
  for (std::size_t r = 0; r < rows_; ++r) {
    const std::int64_t one = checked_multiply(nodes_[a].least[r], factor[r]);
    const std::int64_t other = checked_multiply(nodes_[a].most[r], factor[r]);
    node.least[r] = std::min(one, other);
    node.most[r] = std::max(one, other);
  }
  return push(node);
}

TermNode TermSpace::divide(TermNode a, const RowValues& divisor) {
  Node node{TermOp::Divide, a, 0, divisor, {}, {}, nodes_[a].support};
  for (std::size_t r = 0; r < rows_; ++r) {
    node.least[r] = floor_divide(nodes_[a].least[r], divisor[r]);
    node.most[r] = floor_divide(nodes_[a].most[r], divisor[r]);
  }
  return push(node);
}

TermNode TermSpace::modulo(TermNode a, const RowValues& divisor) {
  Node node{TermOp::Modulo, a, 0, divisor, {}, {}, nodes_[a].support};
  bool idle = true;
  for (std::size_t r = 0; r < rows_; ++r) {
    const bool within = nodes_[a].least[r] >= 0 && nodes_[a].most[r] < divisor[r];
    node.least[r] = within ? nodes_[a].least[r] : 0;
    node.most[r] = within ? nodes_[a].most[r] : divisor[r] - 1;
    idle &= within;
  }
  return idle ? a : push(node);
}

TermNode TermSpace::inside(TermNode a, const RowValues& extent) {
  Node node{TermOp::Inside, a, 0, extent, {}, {}, nodes_[a].support};
  bool idle = true;
  for (std::size_t r = 0; r < rows_; ++r) {
    node.least[r] = std::max<std::int64_t>(nodes_[a].least[r], 0);
    node.most[r] = std::min(nodes_[a].most[r], extent[r] - 1);
    idle &= nodes_[a].least[r] >= 0 && nodes_[a].most[r] < extent[r];
  }
  if (idle) return a;
  guards_.push_back(push(node));
  return guards_.back();
}

void TermSpace::read(std::uint32_t tensor, bool weight) { reads_.push_back({tensor, weight, 0}); }

void TermSpace::dimension(TermNode index, bool unordered) {
  SYNO_ASSERT(!reads_.empty(), "a dimension belongs to a read");
  const auto number = reads_.back().dimensions++;
  dimensions_.push_back({static_cast<std::uint32_t>(reads_.size() - 1), number, unordered, index});
}

void TermSpace::multiply(std::int64_t numerator, std::int64_t denominator, std::size_t row) {
  scale_[row] = multiply_mod(scale_[row], from_integer(numerator));
  if (denominator != 1) {  // by Fermat
    scale_[row] = multiply_mod(scale_[row], power_mod(from_integer(denominator), kPrime - 2));
  }
}

}  // namespace syno::equality
