// The operator key against brute force: small random operators are equal when some permutation of channels
// and some renaming of weight elements maps the terms of one to those of the other. Every permutation is
// tried here, on terms listed by evaluating each index at each point; nothing is shared with how the key is
// made.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "operators_small.hpp"
#include "support/random.hpp"
#include "symbolic/expr.hpp"

namespace syno::equality {

using namespace program;

namespace {

using testing::channels;
using testing::Named;
using testing::OperatorText;

constexpr std::int64_t kOut = 2, kIn = 4, kRows = 4, kTaps = 2;

/// y[n, o, h, w] with one batch and one column: o and c unordered, h ordered, r a tap.
OperatorText random_operator(Random& random, std::size_t weights) {
  static const std::vector<std::string> channel = {"c",
                                                   "(c + 1) % 4",
                                                   "3 - c",
                                                   "c / 2 * 2 + (c % 2 + 1) % 2",
                                                   "c % 2 * 2 + c / 2",
                                                   "o * 2 + c % 2",
                                                   "c / 2 * 2 + o",
                                                   "(c + o) % 4",
                                                   "c / 2 * 2 + r",
                                                   "(c + 2*r) % 4",
                                                   "(c + r) % 4"};
  static const std::vector<std::string> row = {"h",
                                               "h",
                                               "(h + 1) % 4",
                                               "(h + 2) % 4",
                                               "h / 2 * 2 + (h % 2 + 1) % 2",
                                               "(h / 2 + 1) % 2 * 2 + h % 2",
                                               "h % 2 * 2 + h / 2",
                                               "h + r - 1",
                                               "inside(h + r - 1, 4)",
                                               "h + r",
                                               "inside(h + r, 4)",
                                               "h + 2*r - 2",
                                               "(h + r) % 4",
                                               "h - h % 2 + r",
                                               "h / 2 * 2 + r",
                                               "h + 1",
                                               "h + 4*r",
                                               "(h + c) % 4"};
  struct Index {
    const char* index;
    const char* extent;
  };
  static const std::vector<Index> indices = {{"o", "2"},           {"c", "4"},           {"r", "2"},
                                             {"h", "4"},           {"h % 2", "2"},       {"h / 2", "2"},
                                             {"3 - c", "4"},       {"(c + 1) % 4", "4"}, {"1 - r", "2"},
                                             {"c % 2", "2"},       {"c / 2", "2"},       {"c * 2 + r", "8"},
                                             {"o * 4 + c", "8"},   {"(o + c) % 2", "2"}, {"r * 2 + o", "4"},
                                             {"(o + r) % 2", "2"}, {"h + r", "5"},       {"0", "1"}};
  OperatorText text;
  text.loops = {{"n", "1"}, {"o", "2"}, {"h", "4"}, {"w", "1"}};
  text.sums = {{"c", "4"}, {"r", "2"}};
  text.reads.push_back({"x",
                        {{"n", "1"},
                         {channel[random.below(channel.size())], "4"},
                         {row[random.below(row.size())], "4"},
                         {"w", "1"}}});
  for (std::size_t w = 0; w < weights; ++w) {
    OperatorText::Read read{"w" + std::to_string(w + 1), {}};
    for (std::size_t d = 0; d < 1 + random.below(3); ++d) {
      const Index& index = indices[random.below(indices.size())];
      read.dims.emplace_back(index.index, index.extent);
    }
    text.reads.push_back(std::move(read));
  }
  return text;
}

struct Term {
  std::int64_t out_channel, out_row, in_channel, in_row;
  std::array<std::int64_t, 2> element;  ///< of each weight; its flat index
};

std::vector<Term> terms_of(const Program& program) {
  const Scope& scope = program.scopes.front();
  std::vector<const Scalar*> reads;
  for (const Scalar& scalar : program.scalars) {
    if (scalar.kind == ScalarKind::Read) reads.push_back(&scalar);
  }
  std::map<std::string, std::uint32_t> slot;
  for (const auto* iterators : {&scope.traversal, &scope.sums}) {
    for (const Iterator& iterator : *iterators) slot[iterator.name] = iterator.slot;
  }
  std::vector<Term> terms;
  std::vector<std::int64_t> point(program.next_slot, 0);
  for (std::int64_t o = 0; o < kOut; ++o) {
    for (std::int64_t h = 0; h < kRows; ++h) {
      for (std::int64_t c = 0; c < kIn; ++c) {
        for (std::int64_t r = 0; r < kTaps; ++r) {
          point[slot["o"]] = o, point[slot["h"]] = h, point[slot["c"]] = c, point[slot["r"]] = r;
          Term term{o, h, 0, 0, {0, 0}};
          bool alive = true;
          for (const Scalar* read : reads) {
            const Tensor& tensor = program.tensor(read->tensor);
            const auto shape = shape_of(program, read->tensor);
            std::vector<std::int64_t> index;
            for (std::size_t d = 0; d < shape.size(); ++d) {
              const auto value = evaluate(program.arena, read->indices[d], program.sizes, 0, point);
              alive &= value && *value >= 0 && *value < shape[d];
              index.push_back(value.value_or(0));
            }
            if (tensor.name == "x") {
              term.in_channel = index[1], term.in_row = index[2];
            } else {
              std::int64_t flat = 0;
              for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
              term.element[tensor.name == "w2" ? 1 : 0] = flat;
            }
          }
          if (alive) terms.push_back(term);
        }
      }
    }
  }
  return terms;
}

using Canonical = std::vector<std::vector<std::int64_t>>;

/// With the names of the first weight's elements given: the classes of the second as the sets of terms they
/// are in, sorted; their names do not occur.
Canonical by_class(const std::vector<Term>& terms, std::size_t by,
                   const std::map<std::int64_t, std::int64_t>* other, const std::vector<std::int64_t>& out,
                   const std::vector<std::int64_t>& in) {
  std::map<std::int64_t, std::vector<std::int64_t>> classes;
  for (const Term& t : terms) {
    std::int64_t code = ((out[static_cast<std::size_t>(t.out_channel)] * 8 + t.out_row) * 8 +
                         in[static_cast<std::size_t>(t.in_channel)]) *
                            8 +
                        t.in_row;
    if (other) code = code * 64 + other->at(t.element[1 - by]);
    classes[t.element[by]].push_back(code);
  }
  Canonical result;
  for (auto& [element, codes] : classes) {
    std::sort(codes.begin(), codes.end());
    result.push_back(std::move(codes));
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// The least form over all permutations of channels, names of weight elements, and orders of weights.
Canonical brute_force(const std::vector<Term>& terms, std::size_t weights) {
  std::optional<Canonical> least;
  std::vector<std::int64_t> out(kOut), in(kIn);
  std::iota(out.begin(), out.end(), 0);
  do {
    std::iota(in.begin(), in.end(), 0);
    do {
      for (std::size_t by = 0; by < weights; ++by) {
        if (weights == 1) {
          const Canonical form = by_class(terms, by, nullptr, out, in);
          if (!least || form < *least) least = form;
          continue;
        }
        std::set<std::int64_t> elements;
        for (const Term& t : terms) elements.insert(t.element[1 - by]);
        std::vector<std::int64_t> names(elements.size());
        std::iota(names.begin(), names.end(), 0);
        do {
          std::map<std::int64_t, std::int64_t> named;
          for (const std::int64_t element : elements) named[element] = names[named.size()];
          const Canonical form = by_class(terms, by, &named, out, in);
          if (!least || form < *least) least = form;
        } while (std::next_permutation(names.begin(), names.end()));
      }
    } while (std::next_permutation(in.begin(), in.end()));
  } while (std::next_permutation(out.begin(), out.end()));
  return *least;
}

/// Keys are equal exactly when the least forms are.
void compare(std::size_t weights, std::size_t count, std::size_t most_elements) {
  Random random(weights);
  OperatorKeyCache cache;
  std::map<Canonical, std::pair<Hash128, std::string>> by_form;
  std::map<Hash128, std::pair<Canonical, std::string>> by_key;
  std::size_t compared = 0, repeated = 0;
  while (compared < count) {
    const OperatorText text = random_operator(random, weights);
    const Program program = text.program();
    const std::vector<Term> terms = terms_of(program);
    if (weights == 2) {  // every naming of a weight's elements is tried: few of them
      std::array<std::set<std::int64_t>, 2> elements;
      for (const Term& t : terms) {
        for (const std::size_t w : {0u, 1u}) elements[w].insert(t.element[w]);
      }
      if (elements[0].size() > most_elements || elements[1].size() > most_elements) continue;
    }
    if (terms.empty()) continue;
    ++compared;
    const Canonical form = brute_force(terms, weights);
    const Hash128 key = operator_key(program, channels(program), &cache);
    const auto [same_form, new_form] = by_form.try_emplace(form, key, text.text());
    repeated += !new_form;
    EXPECT_EQ(same_form->second.first, key) << "equal operators, different keys:\n"
                                            << text.text() << same_form->second.second;
    const auto [same_key, new_key] = by_key.try_emplace(key, form, text.text());
    EXPECT_EQ(same_key->second.first, form) << "different operators, equal keys:\n"
                                            << text.text() << same_key->second.second;
    if (::testing::Test::HasFailure() && compared > 20) break;
  }
  EXPECT_GT(repeated, count / 30) << "too few of the operators were equal to test that keys agree";
  EXPECT_GT(by_form.size(), count / 5) << "too few of the operators were different to test that keys differ";
}

TEST(OperatorKeyAgainstBruteForce, OneWeight) { compare(1, 4000, 0); }
TEST(OperatorKeyAgainstBruteForce, TwoWeights) { compare(2, 600, 4); }

}  // namespace
}  // namespace syno::equality
