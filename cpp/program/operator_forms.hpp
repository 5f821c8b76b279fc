// program/operator_forms.hpp — listed terms: taking a set of them apart, and its form without names.
#pragma once

#include <cstdint>
#include <vector>

#include "program/operator_terms.hpp"

namespace syno::program::detail {

/// One coordinate of every term: its value, or the number of the element it is.
struct Column {
  PlaceKind kind = PlaceKind::Ordered;
  std::uint32_t read = 0;
  std::uint32_t dim = 0;     ///< 0 for a weight
  std::uint32_t family = 0;  ///< columns of one family share their elements
  std::vector<std::int64_t> values;
};

/// Different terms, each with the number of times it occurs.
struct TermSet {
  std::vector<Column> columns;
  std::vector<std::int64_t> multiplicity;
  std::size_t size() const { return multiplicity.size(); }
};

/// Makes terms different and divides their multiplicities by the common divisor, which it returns. Weights
/// with a single element tell nothing and go.
std::int64_t normalize(TermSet& terms);

/// Elements of a weight that occur in the same surroundings come in equal numbers of copies: keeps one of
/// each and returns (read, copies). A weight that is summed for itself is such copies, wherever it was
/// written.
std::vector<std::pair<std::uint32_t, std::int64_t>> divide_copies(TermSet& terms);

/// The finest parts whose product the set is. A weight may have a part in several.
std::vector<TermSet> parts_of(TermSet terms);

/// The same for two sets exactly when a renaming of elements maps one to the other (limits:
/// operator_terms.hpp).
Hash128 form_of(const TermSet& terms, const Naming& naming);

}  // namespace syno::program::detail
