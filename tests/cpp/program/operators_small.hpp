// tests/data/operators_small.json: the 132 operators with 2 to 5 primitives that the code published with the
// Syno paper (github.com/tsinghua-ideal/Syno) finds for ResNet-18, as programs. Format: `loops` [iterator,
// size] in output order, `sums` [iterator, size], `reads` [tensor, [index, ...]]; the output is the sum of
// the products.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program/keys.hpp"
#include "program/text.hpp"

namespace syno::program::testing {

inline nlohmann::json operators_small() {
  std::ifstream file(SYNO_TEST_DATA "/operators_small.json");
  return nlohmann::json::parse(file);
}

/// The seven different layers of ResNet-18 at 224x224, batch 128.
inline std::string resnet18_sizes() {
  return "size N, C_in, C_out, H : primary = (128, 64, 64, 56), (128, 64, 128, 28), (128, 128, 128, 28), "
         "(128, 128, 256, 14), (128, 256, 256, 14), (128, 256, 512, 7), (128, 512, 512, 7)\n"
         "size k_1, k_2, s, g : coefficient = (3, 7, 2, 32), (3, 7, 2, 32), (3, 7, 2, 32), (3, 7, 2, 32), "
         "(3, 7, 2, 32), (3, 7, 2, 32), (3, 7, 2, 32)\n";
}

/// The extent of a weight's index, which the data leaves to the reader: % gives its divisor, / divides.
inline std::string index_extent(std::string index, const nlohmann::json& iterators) {
  if (index.front() == '(') index = index.substr(1, index.size() - 2);
  int depth = 0;
  for (std::size_t i = index.size(); i-- > 0;) {
    if (index[i] == ')') ++depth;
    if (index[i] == '(') --depth;
    if (depth == 0 && index[i] == '%') return index.substr(i + 2);
    if (depth == 0 && index[i] == '/') {
      return index_extent(index.substr(0, i - 1), iterators) + " / (" + index.substr(i + 2) + ")";
    }
  }
  for (const auto& iterator : iterators) {
    if (iterator[0] == index) return iterator[1];
  }
  throw std::runtime_error("no extent for " + index);
}

inline std::string operator_text(const nlohmann::json& entry, const std::string& sizes = resnet18_sizes()) {
  const auto ranged = [](const nlohmann::json& iterators) {
    std::vector<std::string> result;
    for (const auto& iterator : iterators) {
      result.push_back(fmt::format("{}: {}", std::string(iterator[0]), std::string(iterator[1])));
    }
    return fmt::format("{}", fmt::join(result, ", "));
  };
  nlohmann::json iterators = entry["loops"];
  for (const auto& sum : entry["sums"]) iterators.push_back(sum);
  std::string declared = "input x[N, C_in, H, H]";
  std::vector<std::string> factors;
  for (const auto& read : entry["reads"]) {
    const std::string tensor = read[0];
    std::vector<std::string> indices, extents;
    for (const auto& index : read[1]) {
      indices.push_back(index);
      if (tensor != "x") extents.push_back(index_extent(index, iterators));
    }
    if (tensor != "x") declared += fmt::format("; weight {}[{}]", tensor, fmt::join(extents, ", "));
    factors.push_back(fmt::format("{}[{}]", tensor, fmt::join(indices, ", ")));
  }
  return fmt::format("{}{}\ny[{}] = sum[{}] {}\nreturn y\n", sizes, declared, ranged(entry["loops"]),
                     ranged(entry["sums"]), fmt::join(factors, " * "));
}

/// x's and y's channels may be permuted.
inline std::vector<UnorderedDim> channels(const Program& program) {
  return {{*program.find_tensor("x"), 1}, {*program.find_tensor("y"), 1}};
}

}  // namespace syno::program::testing
