// The count of cycles over tilings: lines that are touched and moved beside those that are there and that
// simulated caches miss, what a tile computes beside its multiply-adds, and numbers beside all others.
#include "construct/tiling_cost.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "construct/caches.hpp"
#include "machine/cache_simulation.hpp"
#include "schedule/fixture.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

/// A read of a row-major tensor by three loops, each of which moves one or two of its dimensions.
BoxFacts random_box(Random& random, const std::vector<std::int64_t>& extents) {
  BoxFacts box;
  const std::size_t rank = 1 + random.below(3);
  for (std::size_t d = 0; d < rank; ++d) {
    box.coefficients.emplace_back(extents.size(), 0);
    std::int64_t span = 1;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (random.below(2) == 0) continue;
      box.coefficients[d][i] = 1;
      span += extents[i] - 1;
    }
    box.linear.push_back(true);
    box.extents.push_back(span);
    box.whole.push_back(span + static_cast<std::int64_t>(random.below(2) * random.below(40)));
  }
  return box;
}

/// The lines and the pieces that a box of so many iterations really touches, from an address that begins a
/// line.
Touched counted(const BoxFacts& box, const std::vector<std::int64_t>& iterations, std::int64_t bytes) {
  std::set<std::int64_t> places;
  std::vector<std::int64_t> at(iterations.size(), 0);
  for (bool more = true; more;) {
    std::int64_t address = 0;
    for (std::size_t d = 0; d < box.whole.size(); ++d) {
      std::int64_t index = 0;
      for (std::size_t i = 0; i < at.size(); ++i) index += box.coefficients[d][i] * at[i];
      address = address * box.whole[d] + index;
    }
    places.insert(address);
    more = false;
    for (std::size_t i = at.size(); !more && i-- > 0;) {
      more = ++at[i] < iterations[i];
      if (!more) at[i] = 0;
    }
  }
  Touched found;
  std::set<std::int64_t> lines;
  std::int64_t before = -2;
  std::optional<std::int64_t> piece;
  for (const std::int64_t place : places) {
    lines.insert(place * bytes / static_cast<std::int64_t>(kLine));
    if (place != before + 1) {
      const double apart = piece ? static_cast<double>((place - *piece) * bytes) : 0;
      if (found.pieces == 1 || (found.pieces > 1 && apart < found.apart)) found.apart = apart;
      found.pieces += 1;
      piece = place;
    }
    before = place;
  }
  found.lines = static_cast<double>(lines.size());
  return found;
}

TEST(Touched, LinesOfABoxAreThoseItTouches) {
  Random random(31);
  for (int trial = 0; trial < 400; ++trial) {
    const std::vector<std::int64_t> extents{1 + static_cast<std::int64_t>(random.below(6)),
                                            1 + static_cast<std::int64_t>(random.below(9)),
                                            1 + static_cast<std::int64_t>(random.below(40))};
    const BoxFacts box = random_box(random, extents);
    std::vector<std::int64_t> iterations;
    for (const std::int64_t extent : extents)
      iterations.push_back(1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(extent))));
    // One loop that moves two dimensions touches a diagonal of their box: less than is counted.
    bool diagonal = false;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      int moved = 0;
      for (const auto& dimension : box.coefficients) moved += dimension[i] != 0;
      diagonal = diagonal || moved > 1;
    }
    const Touched real = counted(box, iterations, 4), found = touched(box, iterations, 4);
    if (diagonal) {
      EXPECT_GE(found.lines + found.pieces, real.lines);
      continue;
    }
    EXPECT_LE(real.pieces, found.pieces) << trial;
    EXPECT_LE(std::abs(found.lines - real.lines), found.pieces) << trial;
    if (real.pieces == found.pieces) EXPECT_EQ(real.apart, found.apart) << trial;
  }
}

/// Caches whose sets push nothing out: 4 KiB and 64 KiB.
machine::Machine two_caches() {
  machine::Machine machine;
  machine.levels = {{"L1", 4 << 10, 1, 64, 64, 1, 200, 100},
                    {"L2", 64 << 10, 1, 64, 1024, 5, 100, 100},
                    {"memory", 1 << 30, 1, 64, 0, 100, 20, 20}};
  return machine;
}

/// A target whose count of what moves is lines of the first cache alone.
Target counting_lines() {
  Target target = two_caches().target(1);
  target.fma_per_cycle = 1;
  target.near_piece_cycles = 0;
  target.line_cycles = {1, 0, 0};
  return target;
}

program::Program product(std::int64_t m, std::int64_t n, std::int64_t k, bool turned) {
  return program::parse(turned ? "y[m,n] = sum[k] a[m,k] * b[n,k]" : "y[m,n] = sum[k] a[m,k] * b[k,n]",
                        {.sizes = {{"m", m}, {"n", n}, {"k", k}}, .shapes = {}, .weights = {}, .data = {}});
}

program::Program random_program(Random& random) {
  if (random.below(2) == 0)
    return product(draw(random, 8, 60), draw(random, 16, 90), draw(random, 20, 120), random.below(3) == 0);
  return program::parse("y[o,h,w] = sum[c,r] k[o,c,r] * x[c,h,w+r]", {.sizes = {{"o", draw(random, 4, 24)},
                                                                                {"h", draw(random, 2, 8)},
                                                                                {"w", draw(random, 16, 60)},
                                                                                {"c", draw(random, 4, 24)},
                                                                                {"r", draw(random, 1, 3)}},
                                                                      .shapes = {},
                                                                      .weights = {},
                                                                      .data = {}});
}

/// Numbers by lot that registers hold.
std::optional<Numbers> by_lot(const Sketch& sketch, Random& random) {
  Numbers numbers = sketch.counted;
  for (const Choice& open : sketch.choices)
    numbers.*open.number = open.values[random.below(open.values.size())];
  return sketch.fits(numbers) ? std::optional(numbers) : std::nullopt;
}

TEST(TilingCost, MovesTheLinesThatCachesMiss) {
  Random random(33);
  std::vector<double> errors;
  for (int trial = 0; trial < 250; ++trial) {
    const program::Program p = random_program(random);
    Construction c(p, Dtype::F32, counting_lines());
    const Sketches sketches = sketches_of(c, "y");
    const Sketch& sketch = sketches[random.below(sketches.size())];
    const auto numbers = by_lot(sketch, random);
    if (!numbers) continue;
    const Tiling tiling = sketch.tiling(*numbers);
    const bool copies = std::any_of(tiling.operands.begin(), tiling.operands.end(),
                                    [](const OperandTiling& operand) { return operand.way != Way::InPlace; });
    const double counted = sketch.count(*numbers).moving;
    if (copies || tiling.result != Result::InPlace || counted == 0) continue;
    Draft draft(c);
    if (sketch.write(c, *numbers)) continue;
    const auto nest = try_emit_call(c.plan);
    ASSERT_TRUE(nest) << nest.refusal().reason();
    double results = 1, sums = 1;  // those are not counted: each part reads and writes them
    for (std::size_t i = 0; i < sketch.facts->extents.size(); ++i)
      (i < sketch.facts->traversal ? results : sums) *= static_cast<double>(sketch.facts->extents[i]);
    const double parts = numbers->steps > 0 ? std::max(1.0, sums / static_cast<double>(numbers->steps)) : 1;
    const auto missed = static_cast<double>(simulate_caches(*nest, two_caches()).misses[0]);
    errors.push_back(std::log(std::max(1.0, missed - parts * results / 16) / counted));
  }
  ASSERT_GT(errors.size(), 60U);
  std::sort(errors.begin(), errors.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  EXPECT_LT(std::abs(errors[errors.size() / 2]), 0.25);
  EXPECT_LT(std::abs(errors[errors.size() * 9 / 10]), 0.9);
}

TEST(TilingCost, ATileTakesItsMultiplyAddsOrItsLoads) {
  Construction c(product(60, 96, 200, false), Dtype::F32, Target{});
  const Sketches sketches = sketches_of(c, "y");
  const auto output = std::find_if(sketches.begin(), sketches.end(), [](const Sketch& sketch) {
    return sketch.name.starts_with("along_output");
  });
  ASSERT_NE(output, sketches.end());
  const auto computing = [&](std::int64_t rows, std::int64_t vectors) {
    Numbers numbers;
    numbers.rows = rows;
    numbers.vectors = vectors;
    return output->count(numbers).computing;
  };
  const double multiply_adds = 60 * 6 * 200;
  EXPECT_GE(computing(10, 2), multiply_adds);
  EXPECT_LE(computing(10, 2), 1.15 * multiply_adds);  // ends of tiles and loops beside them
  EXPECT_GE(computing(1, 6), 1.1 * multiply_adds);    // seven loads for six multiply-adds
  EXPECT_GE(computing(1, 1), 3.9 * multiply_adds);    // a sum waits for itself
  EXPECT_GT(computing(7, 2), computing(10, 2));       // four rows are left
}

TEST(TilingCost, PartsOfASumKeepWhatTheyAddUp) {
  Construction c(product(64, 256, 4096, false), Dtype::F32, Target{});
  for (const Sketch& sketch : sketches_of(c, "y")) {
    Numbers parts = sketch.counted;
    const bool has = std::any_of(sketch.choices.begin(), sketch.choices.end(),
                                 [](const Choice& choice) { return choice.name == "steps"; });
    if (!has) continue;
    parts.steps = 0;
    const CycleCount whole = sketch.count(parts);
    double before = whole.copying;
    for (const std::int64_t steps : {2048, 512, 64}) {
      parts.steps = steps;
      EXPECT_GT(sketch.count(parts).copying, before) << sketch.name << steps;
      before = sketch.count(parts).copying;
    }
    parts.steps = 512;
    if (sketch.name == "along_output/1") EXPECT_LT(sketch.count(parts).moving, whole.moving);
  }
}

TEST(TilingCost, RowsAPageApartPushEachOtherOut) {
  const auto moving = [](std::int64_t columns) {
    Construction c(product(96, columns, 128, false), Dtype::F32, Target{});
    for (const Sketch& sketch : sketches_of(c, "y")) {
      if (sketch.name != "along_output/1") continue;
      Numbers numbers;
      numbers.rows = 6;
      numbers.vectors = 1;
      numbers.vectors_outer = 1;
      return sketch.count(numbers).moving / static_cast<double>(columns);
    }
    return 0.0;
  };
  EXPECT_GT(moving(1024), 1.5 * moving(1040));
}

TEST(TilingCost, VectorsThatBeginInTheMiddleOfABlockAreGathered) {
  const auto p = program::parse(
      "y[o,w] = sum[c,r] k[o,c,r] * x[c,w+r-1]",
      {.sizes = {{"o", 128}, {"w", 1024}, {"c", 128}, {"r", 3}}, .shapes = {}, .weights = {}, .data = {}});
  Construction c(p, Dtype::F32, Target{});
  const auto computing = [&](const std::string& name) {
    for (const Sketch& sketch : sketches_of(c, "y")) {
      if (sketch.name != name) continue;
      Numbers numbers;
      numbers.rows = 6;
      numbers.vectors = 2;
      return sketch.count(numbers).computing;
    }
    return 0.0;
  };
  ASSERT_GT(computing("along_channels/0"), 0);
  EXPECT_GT(computing("along_channels/1"), 2 * computing("along_channels/0"));
}

TEST(TilingCost, CountingFindsNearlyTheLeast) {
  Random random(35);
  double logs = 0;
  int sketched = 0;
  for (int trial = 0; trial < 12; ++trial) {
    Construction c(random_program(random), Dtype::F32, counting_lines());
    for (const Sketch& sketch : sketches_of(c, "y")) {
      double least = std::numeric_limits<double>::infinity();
      Numbers numbers;
      const auto all = [&](const auto& self, std::size_t choice) -> void {
        if (choice == sketch.choices.size()) {
          least = std::min(least, sketch.estimate(numbers));
          return;
        }
        for (const std::int64_t value : sketch.choices[choice].values) {
          numbers.*sketch.choices[choice].number = value;
          self(self, choice + 1);
        }
      };
      all(all, 0);
      EXPECT_LE(sketch.cycles, 1.3 * least) << sketch.name;
      logs += std::log(sketch.cycles / least);
      ++sketched;
    }
  }
  ASSERT_GT(sketched, 30);
  EXPECT_LE(logs / sketched, 0.02);
}

}  // namespace
}  // namespace syno::construct
