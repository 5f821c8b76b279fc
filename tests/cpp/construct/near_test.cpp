// What tiles bring into the first cache: counted lines beside those that are touched, and when an operand
// stays.
#include "construct/near.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>

#include "construct/caches.hpp"
#include "construct/construct.hpp"
#include "machine/cpu.hpp"
#include "support/random.hpp"

namespace syno::construct {
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
  for (const std::int64_t place : places) {
    lines.insert(place * bytes / static_cast<std::int64_t>(kLine));
    found.pieces += place != before + 1;
    before = place;
  }
  found.lines = static_cast<double>(lines.size());
  return found;
}

TEST(Near, LinesOfABoxAreThoseItTouches) {
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
  }
}

TEST(Near, APartHasTheStepsThatItsLoopsTake) {
  Random random(32);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::int64_t> extents;
    for (std::uint64_t i = 1 + random.below(4); i > 0; --i)
      extents.push_back(1 + static_cast<std::int64_t>(random.below(30)));
    const auto steps = static_cast<std::int64_t>(random.below(200));
    const auto part = iterations_of_part(extents, steps);
    if (steps == 0) {
      EXPECT_EQ(part, extents);
      continue;
    }
    std::int64_t taken = 1;
    bool within =
        true;  // loops outside of the one that is cut take one iteration, those inside all of theirs
    for (std::size_t i = extents.size(); i-- > 0;) {
      taken *= part[i];
      if (!within) EXPECT_EQ(part[i], 1);
      within = within && part[i] == extents[i];
    }
    EXPECT_LE(taken, steps);
    const auto all = std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
    if (steps >= all) EXPECT_EQ(part, extents);
  }
}

TEST(Near, AnOperandComesOnceWhereATileStays) {
  const machine::Target target{};  // 32 KiB
  const auto operands = [](double steps) {
    const Touched rows = run_of(6 * steps * 4), columns = run_of(16 * steps * 4),
                  all = run_of(64 * steps * 4);
    return std::array{NearOperand{rows, rows, true}, NearOperand{columns, all, false}};
  };
  const auto lines = [](double bytes) { return kNearLine * bytes / kLine; };
  // Four tiles share the rows; what they read of the columns is each one's own.
  EXPECT_DOUBLE_EQ(near_cycles(target, operands(128), 4, 10), 10 * lines((6 + 64) * 128 * 4.0));
  EXPECT_DOUBLE_EQ(near_cycles(target, operands(2304), 4, 10), 10 * lines(4 * (6 + 16) * 2304 * 4.0));
  // Short pieces apart from one another cost more than as many lines in a run.
  const Touched apart{256, 128};
  const std::array scattered{NearOperand{apart, apart, true}};
  EXPECT_GT(near_cycles(target, scattered, 1, 1), lines(256 * kLine));
}

}  // namespace
}  // namespace syno::construct
