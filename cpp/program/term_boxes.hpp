// program/term_boxes.hpp — which terms of a sum read inside of tensors: what lies outside is filled, and of a
// sum of many such terms, terms drawn at random may miss all that count.
#pragma once

#include <cstdint>
#include <vector>

#include "program/scope_code.hpp"

namespace syno::program::detail {

/// Values [begin, begin + extent) of each iterator of the sums, in their order.
struct TermBox {
  std::vector<std::int64_t> begin, extent;

  double size() const;
  bool contains(const std::int64_t* sums) const;
};

/// All terms.
TermBox all_terms(const ScopeCode& code);

/// For each access that may lie outside at this point of the traversal, the least box around its terms that
/// lie inside. None of an access whose terms are all outside, or may lie anywhere.
std::vector<TermBox> inner_boxes(const ScopeCode& code, const std::vector<std::int64_t>& iterators);

/// The least box around all.
TermBox hull(const std::vector<TermBox>& boxes);

}  // namespace syno::program::detail
