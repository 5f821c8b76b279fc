// tests/data/operators_small.json: the 132 operators with 2 to 5 primitives that the code published with the
// Syno paper (github.com/tsinghua-ideal/Syno) finds for ResNet-18; operators_deeper.json: 64 of those with 6
// and 7, whose weights overlap most. Format: `loops` [iterator, size] in output order, `sums` [iterator,
// size], `reads` [tensor, [index, ...]]; the output is the sum of the products.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "equality/keys.hpp"
#include "program/text.hpp"

namespace syno::equality::testing {

using namespace program;

using Named = std::vector<std::pair<std::string, std::string>>;

/// An operator as text in parts, easy to rewrite: iterators with sizes, reads with (index, extent of the
/// dimension).
struct OperatorText {
  struct Read {
    std::string tensor;
    Named dims;
  };
  std::string sizes;
  Named loops, sums;
  std::vector<Read> reads;

  std::string text() const {
    const auto ranged = [](const Named& iterators) {
      std::vector<std::string> result;
      for (const auto& [name, size] : iterators) result.push_back(name + ": " + size);
      return fmt::format("{}", fmt::join(result, ", "));
    };
    std::string declared;
    std::vector<std::string> factors, names;
    for (const Read& read : reads) {
      std::vector<std::string> indices, extents;
      for (const auto& [index, extent] : read.dims) {
        indices.push_back(index);
        extents.push_back(extent);
      }
      if (std::find(names.begin(), names.end(), read.tensor) == names.end()) {
        declared += fmt::format("{} {}[{}]\n", read.tensor.starts_with("x") ? "input" : "weight", read.tensor,
                                fmt::join(extents, ", "));
        names.push_back(read.tensor);
      }
      factors.push_back(fmt::format("{}[{}]", read.tensor, fmt::join(indices, ", ")));
    }
    const std::string sum = sums.empty() ? "" : fmt::format("sum[{}] ", ranged(sums));
    return fmt::format("{}{}y[{}] = {}{}\nreturn y\n", sizes, declared, ranged(loops), sum,
                       fmt::join(factors, " * "));
  }
  Program program() const { return parse(text()); }
};

/// The extent of a weight's index, which the data leaves to the reader: `%` gives its divisor, `/` divides.
inline std::string index_extent(std::string index, const Named& iterators) {
  if (index.front() == '(') index = index.substr(1, index.size() - 2);
  int depth = 0;
  for (std::size_t i = index.size(); i-- > 0;) {
    if (index[i] == ')') ++depth;
    if (index[i] == '(') --depth;
    if (depth == 0 && index[i] == '%') return index.substr(i + 2);
    if (depth == 0 && index[i] == '/') {
      return index_extent(index.substr(0, i - 1), iterators) + "*(" + index.substr(i + 2) + ")^-1";
    }
  }
  for (const auto& [name, size] : iterators) {
    if (name == index) return size;
  }
  throw std::runtime_error("no extent for " + index);
}

/// The seven different layers of ResNet-18 at 224x224, batch 128.
inline std::string resnet18_sizes() {
  return "size N, C_in, C_out, H : primary = (128, 64, 64, 56), (128, 64, 128, 28), (128, 128, 128, 28), "
         "(128, 128, 256, 14), (128, 256, 256, 14), (128, 256, 512, 7), (128, 512, 512, 7)\n"
         "size k_1, k_2, s, g : coefficient = (3, 7, 2, 32), (3, 7, 2, 32), (3, 7, 2, 32), (3, 7, 2, 32), "
         "(3, 7, 2, 32), (3, 7, 2, 32), (3, 7, 2, 32)\n";
}

inline std::vector<OperatorText> operators_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<OperatorText> result;
  for (const auto& entry : nlohmann::json::parse(file)) {
    OperatorText text;
    text.sizes = resnet18_sizes();
    for (const auto& loop : entry["loops"]) text.loops.emplace_back(loop[0], loop[1]);
    for (const auto& sum : entry["sums"]) text.sums.emplace_back(sum[0], sum[1]);
    Named iterators = text.loops;
    iterators.insert(iterators.end(), text.sums.begin(), text.sums.end());
    for (const auto& read : entry["reads"]) {
      OperatorText::Read out{read[0], {}};
      const char* const input[] = {"N", "C_in", "H", "H"};
      for (std::size_t d = 0; d < read[1].size(); ++d) {
        const std::string index = read[1][d];
        out.dims.emplace_back(index, out.tensor == "x" ? input[d] : index_extent(index, iterators));
      }
      text.reads.push_back(std::move(out));
    }
    result.push_back(std::move(text));
  }
  return result;
}

inline std::vector<OperatorText> operators_small() {
  return operators_in(SYNO_TEST_DATA "/operators_small.json");
}
inline std::vector<OperatorText> operators_deeper() {
  return operators_in(SYNO_TEST_DATA "/operators_deeper.json");
}

/// x's and y's channels may be permuted.
inline std::vector<UnorderedDim> channels(const Program& program) {
  return {{*program.find_tensor("x"), 1}, {*program.find_tensor("y"), 1}};
}

}  // namespace syno::equality::testing
