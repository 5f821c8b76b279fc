// program/unbound.hpp — names in a text that nothing binds, and which of them may stand for numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "program/syntax.hpp"

namespace syno::program::syntax {

/// A name that no left side and no reduction binds where it stands, and no `size` statement declares, is the
/// number given for it, where nothing else can be meant:
///  - in the bounds of a range, as a factor of an iterator, as a divisor or modulus, with a power;
///  - as a quotient of numbers beside an iterator, `x[h + r - k/2]`, or as a number in a body;
///  - as a summand, `x[s*h + s]`, where another place of the text shows that it is no iterator;
///  - everywhere, written `size(k)`.
/// `y[i,j] = a[i,k] * b[k,j]` has k where iterators stand: somebody forgot `sum[k]`. Such a name, and one
/// that is an iterator anywhere in the text, must be bound. ParseError names the first that is not.
void require_bound_names(std::string_view text, const Text& tree,
                         const std::map<std::string, std::int64_t, std::less<>>& values);

/// Where names would have to be written `size(k)` for the text to be read without its `size` statements.
std::vector<Token> names_to_mark(std::string_view text, const Text& tree);

}  // namespace syno::program::syntax
