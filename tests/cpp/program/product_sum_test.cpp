// Sums of products a row at a time are what folding their terms one by one gives.
#include "program/product_sum.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "program/evaluator.hpp"
#include "program/text.hpp"
#include "support/random.hpp"

namespace syno::program {
namespace {

using detail::Elements;
using detail::Evaluator;
using detail::Numbers;
using detail::ProductSum;
using detail::Tracked;

using Data = std::vector<std::vector<double>>;

/// Elements one at a time, ...
struct OneByOne {
  const Data& data;
  Tracked operator()(std::uint32_t tensor, std::int64_t offset) const {
    return detail::TrackedNumbers::loaded(data[tensor][static_cast<std::size_t>(offset)]);
  }
};

/// ... and with the memory that they lie in.
struct InMemory : OneByOne {
  Elements elements(std::uint32_t tensor, bool) const {
    bool finite = true;
    for (const double value : data[tensor]) finite = finite && std::isfinite(value);
    return {data[tensor].data(), finite, nullptr, nullptr};
  }
};

/// The same where elements of some tensors are computed, one of them in a table of which a part is known:
/// each has a range, and now and then rests on a comparison.
struct Computed {
  const Data& data;
  std::uint32_t first;  ///< of those that are computed
  bool in_tables;
  std::vector<std::vector<Tracked>> tables{};
  std::vector<std::vector<std::uint8_t>> known{};

  Computed(const Data& all, std::uint32_t from, bool tabled) : data(all), first(from), in_tables(tabled) {
    for (std::uint32_t t = 0; t < data.size(); ++t) {
      tables.emplace_back();
      known.emplace_back();
      for (std::size_t e = 0; e < data[t].size(); ++e) {
        tables.back().push_back(element(t, e));
        known.back().push_back(e % 3 == 0 ? 0 : 1);
      }
    }
  }
  Tracked element(std::uint32_t tensor, std::size_t e) const {
    Tracked made = detail::TrackedNumbers::loaded(data[tensor][e]);
    if (tensor < first || !std::isfinite(made.value)) return made;
    made.low -= 1e-3 * std::abs(made.value) * static_cast<double>(e % 4);
    made.high += 2e-3 * std::abs(made.value) * static_cast<double>(e % 5);
    made.absolute *= 1.5;
    made.guessed = e % 31 == 30;
    made.nan = e % 61 == 60;
    return made;
  }
  Tracked operator()(std::uint32_t tensor, std::int64_t offset) const {
    return element(tensor, static_cast<std::size_t>(offset));
  }
  Elements elements(std::uint32_t tensor, bool) const {
    if (tensor >= first)
      return in_tables ? Elements{nullptr, false, tables[tensor].data(), known[tensor].data()} : Elements{};
    return InMemory{{data}}.elements(tensor, true);
  }
};

/// Elements one at a time of the same.
struct ComputedOneByOne {
  const Computed& of;
  Tracked operator()(std::uint32_t tensor, std::int64_t offset) const { return of(tensor, offset); }
};

std::string number(Random& random, std::int64_t least, std::int64_t greatest) {
  return std::to_string(
      least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(greatest - least + 1))));
}

/// An index along some of the iterators, with any steps, also backwards; now and then behind a guard.
std::string random_index(Random& random, const std::vector<std::string>& iterators) {
  std::string index = number(random, -2, 3);
  for (const std::string& iterator : iterators)
    if (random.below(2) == 0) index += " + " + number(random, -3, 3) + "*" + iterator;
  // What divides or guards moves along the points, and along all of the sum's iterators but the last.
  const auto some = [&] { return iterators[random.below(iterators.size() - 1)]; };
  if (random.below(4) == 0) index += " + (" + some() + " + " + number(random, 0, 3) + ") / 2";
  if (random.below(4) == 0)
    index += " - inside((2*" + some() + " + " + some() + ") % 3, " + number(random, 2, 3) + ")";
  return random.below(4) == 0 && index.find('/') == std::string::npos && index.find('%') == std::string::npos
             ? "inside(" + index + ", " + number(random, 1, 9) + ")"
             : index;
}

struct ProductSumCase {
  Program program;
  Data data;
};

ProductSumCase random_case(std::uint64_t seed) {
  Random random(seed);
  std::string text = "input x[7, 9]; input k[5, 6]; y[i: 3, j: 4] = ";
  text += random.below(3) == 0 ? "mean" : "sum";
  std::vector<std::string> iterators = {"i", "j"};
  std::string loops;
  for (std::uint64_t n = 1 + random.below(3), l = 0; l < n; ++l) {
    iterators.push_back(std::string(1, static_cast<char>('p' + l)));
    loops += (l > 0 ? ", " : "") + iterators.back() + ": " +
             (random.below(4) == 0 ? number(random, -3, -1) + ".." + number(random, 1, 20)
                                   : number(random, 1, 25));
  }
  const auto read = [&](const std::string& name) {
    return name + "[" + random_index(random, iterators) + ", " + random_index(random, iterators) + "]";
  };
  text += "[" + loops + "] " + read("x");
  const std::uint64_t kind = random.below(4);
  if (kind > 0) text += " * " + read(kind == 1 ? "x" : "k");
  ProductSumCase made{parse(text), {}};
  for (std::size_t t = 0; t < made.program.tensors.size(); ++t) {
    std::vector<double>& values = made.data.emplace_back();
    std::int64_t count = 1;
    for (const std::int64_t extent : shape_of(made.program, TensorId{static_cast<std::uint32_t>(t)}))
      count *= extent;
    const std::uint64_t odd = random.below(6);
    for (std::int64_t e = 0; e < count; ++e) {
      double value = static_cast<double>(random.below(2001)) / 1000.0 - 1.0;
      if (odd == 0) value *= 1e25;  // squares of it leave single precision
      if (odd == 1) value *= 1e-25;
      if (odd == 2 && random.below(40) == 0)
        value = random.below(2) == 0 ? INFINITY : std::numeric_limits<double>::quiet_NaN();
      values.push_back(value);
    }
  }
  return made;
}

bool near(double a, double b, double size) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= 1e-12 * size;
}

bool same(const Tracked& got, const Tracked& wanted) {
  const double size = std::isfinite(wanted.size) ? wanted.size : 1e300;
  return near(got.value, wanted.value, size) && near(got.absolute, wanted.absolute, size) &&
         near(got.low, wanted.low, size) && near(got.high, wanted.high, size) &&
         near(got.size, wanted.size, size) && got.nan == wanted.nan && got.guessed == wanted.guessed;
}

TEST(ProductSum, IsWhatFoldingTermByTermGives) {
  EXPECT_TRUE(rc::check("rows of products == terms one by one", [](std::uint64_t start) {
    for (std::uint64_t n = 0; n < 6; ++n) {
      const ProductSumCase random = random_case(Random(start).fork(n)());
      for (const Precision& precision : {Precision{}, single_precision()}) {
        const Scope& scope = random.program.scopes[0];
        Evaluator<Tracked> rows(random.program, scope, Numbers<Tracked>(precision));
        Evaluator<Tracked> terms(random.program, scope, Numbers<Tracked>(precision));
        RC_ASSERT(ProductSum::of(rows.code()).has_value());
        for (std::int64_t i = 0; i < 3; ++i)
          for (std::int64_t j = 0; j < 4; ++j) {
            const std::int64_t at[] = {i, j};
            rows.move_to(at);
            terms.move_to(at);
            RC_ASSERT(same(rows.value(InMemory{{random.data}}), terms.value(OneByOne{random.data})));
            for (const std::uint32_t first : {0U, 1U})
              for (const bool in_tables : {false, true}) {
                const Computed some(random.data, first, in_tables);
                RC_ASSERT(same(rows.value(some), terms.value(ComputedOneByOne{some})));
              }
          }
      }
    }
  }));
}

/// A row of elements at a time, of tensors in memory, or computed and in planes.
struct InPlanes : Computed {
  const Precision& precision;
  mutable std::vector<std::unique_ptr<detail::Planes>> planes_of{};
  InPlanes(const Data& all, std::uint32_t from, const Precision& of)
      : Computed(all, from, false), precision(of) {
    planes_of.resize(all.size());
  }
  const detail::Planes* planes(std::uint32_t tensor, std::int64_t first, std::int64_t step,
                               std::int64_t count) const {
    auto& made = planes_of[tensor];
    if (!made) made = std::make_unique<detail::Planes>(data[tensor].size());
    for (std::int64_t k = 0; k < count; ++k) {
      const auto at = static_cast<std::size_t>(first + k * step);
      made->put(first + k * step, element(tensor, at), precision);
      if (made->state[at] == detail::Planes::Unusual) return nullptr;
    }
    return made.get();
  }
};

TEST(ProductRun, IsWhatFoldingTermByTermGives) {
  std::int64_t at_once = 0;
  EXPECT_TRUE(rc::check("rows of elements == terms one by one", [&](std::uint64_t start) {
    for (std::uint64_t n = 0; n < 12; ++n) {
      const ProductSumCase random = random_case(Random(start).fork(n)());
      for (const Precision& precision : {Precision{}, single_precision()}) {
        const Scope& scope = random.program.scopes[0];
        Evaluator<Tracked> rows(random.program, scope, Numbers<Tracked>(precision));
        Evaluator<Tracked> terms(random.program, scope, Numbers<Tracked>(precision));
        for (const std::size_t along : {0U, 1U}) {
          if (!rows.has_values(along)) continue;
          const std::int64_t extent = along == 0 ? 3 : 4;
          for (std::uint32_t first = 0; first <= 2; ++first)
            for (std::int64_t i = 0; i < (along == 0 ? 4 : 3); ++i)
              for (std::int64_t from = 0; from < extent; ++from) {
                const InPlanes some(random.data, first, precision);
                std::int64_t at[] = {along == 0 ? from : i, along == 0 ? i : from};
                rows.move_to(at);
                std::vector<Tracked> made;
                if (!rows.values(along, extent - from, some, made)) continue;
                RC_ASSERT(made.size() == static_cast<std::size_t>(extent - from));
                for (const Tracked& each : made) {
                  terms.move_to(at);
                  RC_ASSERT(same(each, terms.value(ComputedOneByOne{some})));
                  ++at[along];
                  ++at_once;
                }
              }
        }
      }
    }
  }));
  EXPECT_GT(at_once, 1000);
}

bool side_by_side(const std::string& text, std::size_t along) {
  const Program p = parse(text);
  return Evaluator<Tracked>(p, p.scopes.back(), Numbers<Tracked>(single_precision())).has_values(along);
}

TEST(ProductRun, IsForElementsThatReadNeighbours) {
  EXPECT_TRUE(side_by_side("input x[8]; input k[3]; y[i: 4] = sum[r: 3] x[i + r - 1] * k[r]", 0));
  EXPECT_TRUE(side_by_side("input x[8]; input k[3]; y[i: 4] = sum[r: 3] x[2*i + r] * k[r]", 0));
  // Every second, and every sixth element has indices of its own that are affine.
  EXPECT_TRUE(side_by_side(
      "input x[8]; input k[4]; y[i: 4] = sum[r: 2] x[(i + 1) / 2 - r] * k[2*r + (i + 1) % 2]", 0));
  EXPECT_TRUE(side_by_side("input x[8]; input k[3]; y[i: 9] = sum[r: 2] x[i / 2 + r] * k[i % 3]", 0));
  EXPECT_TRUE(side_by_side(
      "input x[5, 8]; input k[5, 4]; y[i: 16] = sum[c: 5, r: 4] x[c, (i + 1 - r) / 2 + inside((i + "
      "1 - r) % 2, 1)] * k[c, r]",
      0));
  EXPECT_FALSE(side_by_side("input x[8]; input k[3]; y[i: 9] = sum[r: 2] x[i / 4 + r] * k[i % 3]", 0));
  EXPECT_FALSE(side_by_side("input x[8, 9]; input k[9]; y[i: 4] = sum[r: 9] x[i, r] * k[r]", 0));  // apart
  EXPECT_FALSE(side_by_side("input x[8]; y[i: 4] = sum[r: 3] x[i + r]", 0));
  EXPECT_FALSE(side_by_side("input x[8]; input k[3]; y[i: 4] = max[r: 3] x[i + r] * k[r]", 0));
  EXPECT_FALSE(side_by_side("input x[8]; input k[3]; y[i: 4] = sum[r: 3] x[inside(i, 3) + r] * k[r]", 0));
}

/// Of sums over what is computed, elements behind those that were asked for are made with them: the same
/// numbers, counted when somebody asks for them.
TEST(ProductRun, ElementsMadeAheadAreThoseAskedFor) {
  const Program p = parse(
      "input x[2, 3, 8, 9]; input k[4, 3, 3, 3]; a[n: 2, c: 3, h: 8, w: 9] = relu(x[n, c, h, w]);"
      "m[n: 2, o: 4, h: 8, w: 9] = sum[c: 3, r: 3, s: 3] a[n, c, h + r - 1, w + s - 1] * k[o, c, r, s];"
      "t[n: 2, o: 4, h: 8, w: 9] = m[n, o, h, w] * m[n, o, h, w]; y[o: 4] = sum[n: 2, h: 8, w: 9] t[n, o, h, "
      "w];"
      "return m, y");
  std::map<std::string, Values<double>> inputs;
  Random random(3);
  for (const TensorId id : p.inputs()) {
    Values<double> values{shape_of(p, id), {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : values.shape) count *= extent;
    for (std::int64_t e = 0; e < count; ++e)
      values.data.push_back(static_cast<double>(random.below(2001)) / 1000.0 - 1.0);
    inputs[p.tensor(id).name] = values;
  }
  PointReference all(p, inputs, {}), one(p, inputs, {});
  const auto exact = interpret(p, inputs);
  for (std::int64_t o = 0; o < 4; ++o) {
    const double before = all.spent_terms();
    const AllowedValues made = all.at("y", {{o}});
    EXPECT_NEAR(made.reference.values[0], exact.at("y").data[static_cast<std::size_t>(o)], 1e-12 * 144);
    // Sums over 144 places, each of 27 products, their squares, and a relu of each element that is read.
    EXPECT_GE(all.spent_terms() - before, 144 * 27);
    EXPECT_LE(all.spent_terms() - before, 144 * 27 + 144 + 144 + 432);
  }
  for (std::int64_t o = 0; o < 4; ++o)
    for (std::int64_t w = 0; w < 9; ++w) {
      const AllowedValues ahead = all.at("m", {{1, o, 5, w}}), alone = one.at("m", {{1, o, 5, w}});
      EXPECT_NEAR(ahead.reference.values[0], alone.reference.values[0], 1e-14 * 27);
      EXPECT_NEAR(ahead.reference.absolute_terms[0], alone.reference.absolute_terms[0], 1e-14 * 27);
      EXPECT_NEAR(ahead.allowed[0].low, alone.allowed[0].low, 1e-14 * 27);
      EXPECT_NEAR(ahead.allowed[0].high, alone.allowed[0].high, 1e-14 * 27);
    }
}

bool by_rows(const std::string& text) {
  const Program p = parse(text);
  return ProductSum::of(detail::ScopeCode(p, p.scopes.back())).has_value();
}

TEST(ProductSum, IsForSumsOfAtMostTwoElementsByAffineIndices) {
  EXPECT_TRUE(by_rows("input x[8]; y[i: 4] = sum[r: 3] x[2*i + r - 1]"));
  EXPECT_TRUE(by_rows("input x[8]; input k[3]; y[i: 4] = mean[r: 3] x[inside(i - r, 5)] * k[r]"));
  EXPECT_TRUE(by_rows("input x[8]; input k[3]; y[i: 4] = sum[r: 3] x[(i + 1) / 2 + r] * k[r - (i % 2)]"));
  EXPECT_FALSE(by_rows("input x[8]; y[i: 4] = sum[r: 3] x[i + inside(r, 2) + i / 2]"));
  // A transposed convolution: rows along c, whatever r does.
  EXPECT_TRUE(by_rows(
      "input x[5, 8]; input k[5, 4]; y[i: 16] = sum[c: 5, r: 4] x[c, (i + 1 - r) / 2 + inside((i + 1 - "
      "r) % 2, 1)] * k[c, r]"));
  EXPECT_FALSE(by_rows("input x[8]; input k[3]; y[i: 4] = max[r: 3] x[i + r] * k[r]"));
  EXPECT_FALSE(by_rows("input x[8]; input k[3]; y[i: 4] = sum[r: 3] x[i + r] * k[r] * 2"));
  EXPECT_FALSE(by_rows("input x[8]; input k[3]; y[i: 4] = sum[r: 3] (x[i + r] + k[r])"));
  EXPECT_FALSE(by_rows("input x[8]; input k[3]; y[i: 4] = sum[r: 3] x[(i + r) / 2] * k[r]"));
  EXPECT_FALSE(by_rows("input x[8]; y[i: 4] = sum[r: 3] x[i + r] fill 1"));
  EXPECT_FALSE(by_rows("input x[8]; y[i: 8] = x[i]"));
}

/// Where terms may overflow, one by one says where; what is 0 beside what is not finite is not a number.
TEST(ProductSum, GivesNothingWhereATermMayLeaveTheNumbers) {
  const Program p = parse("input x[4]; input k[4]; y[i: 1] = sum[r: 4] x[r - 1] * k[r]");
  Data data = {{1, 2, 3, 4}, {5, 6, 7, 8}, {}};
  Evaluator<Tracked> evaluator(p, p.scopes[0], Numbers<Tracked>(single_precision()));
  const std::int64_t at[] = {0};
  evaluator.move_to(at);
  EXPECT_EQ(evaluator.value(InMemory{{data}}).value, 1 * 6 + 2 * 7 + 3 * 8);
  data[1][0] = INFINITY;  // beside the place before the first element
  EXPECT_TRUE(std::isnan(evaluator.value(InMemory{{data}}).value));
  data[1] = {1, 3e38, 1, 1};  // within the error of the largest number
  EXPECT_EQ(evaluator.value(InMemory{{data}}).high, evaluator.value(OneByOne{data}).high);
}

}  // namespace
}  // namespace syno::program
