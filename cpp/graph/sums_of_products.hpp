// graph/sums_of_products.hpp — what a program multiplies and sums, index by index: what templates of layouts
// (ALT §5.1) are made from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::graph {

/// One index of a factor: constant + sum of coefficient * iterator.
struct FactorIndex {
  struct Term {
    std::string iterator;
    std::int64_t coefficient = 0;  ///< 0: moves the index in another way
  };
  std::vector<Term> terms;
  std::int64_t constant = 0;
  bool affine = true;  ///< else what it is besides its terms is not said
};

struct Factor {
  program::TensorId tensor{};
  std::vector<FactorIndex> indices;
};

struct NamedRange {
  std::string iterator;
  std::int64_t begin = 0, end = 0;
};

/// A scope that sums products of two elements, or more.
struct SumOfProducts {
  program::TensorId output{};
  std::vector<NamedRange> traversal, sums;
  std::vector<Factor> factors;
};

/// In the order of the scopes; what accumulates is none.
std::vector<SumOfProducts> sums_of_products(const program::Program& concrete);

}  // namespace syno::graph
