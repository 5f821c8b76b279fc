// Loops that decide what terms there are: how many count, and that a constructed nest adds up no others.
#include "construct/phases.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "construct/machines.hpp"
#include "construct/tiling.hpp"
#include "program/builders.hpp"
#include "schedule/decisions.hpp"
#include "schedule/fixture.hpp"
#include "schedule/terms.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

using nest::Dtype;

program::ConvAttributes transposed(const std::vector<std::int64_t>& taps,
                                   const std::vector<std::int64_t>& strides, std::int64_t channels,
                                   std::int64_t size, std::int64_t groups = 1) {
  program::ConvAttributes a;
  a.groups = groups;
  a.in_channels = a.out_channels = channels;
  a.kernel = taps;
  a.stride = strides;
  a.in_size.assign(taps.size(), size);
  a.dilation.assign(taps.size(), 1);
  for (std::size_t i = 0; i < taps.size(); ++i) {
    a.pad_begin.push_back((taps[i] - 1) / 2);
    a.pad_end.push_back((taps[i] - 1) / 2);
    a.output_padding.push_back(strides[i] - 1);
  }
  return a;
}

/// Of ceil(taps / stride) taps that each phase goes through, as many are inside as there are taps for all.
double part_of(const std::vector<std::int64_t>& taps, const std::vector<std::int64_t>& strides) {
  double part = 1;
  for (std::size_t i = 0; i < taps.size(); ++i)
    part *= static_cast<double>(taps[i]) /
            static_cast<double>(strides[i] * ((taps[i] + strides[i] - 1) / strides[i]));
  return part;
}

struct Taps {
  std::vector<std::int64_t> taps, strides;
};
void PrintTo(const Taps& taken, std::ostream* out) {
  for (std::size_t i = 0; i < taken.taps.size(); ++i)
    *out << (i ? " x " : "") << taken.taps[i] << "/" << taken.strides[i];
}

class Transposed : public ::testing::TestWithParam<Taps> {};

TEST_P(Transposed, TermsThatCountAreTheTapsThereAre) {
  const auto p = program::conv_transposed(transposed(GetParam().taps, GetParam().strides, 4, 6));
  Construction c = prepared(p, Dtype::F32, {}, {"w"}, {}, Phases::Apart);
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s) {
    if (c.plan.program.scopes[s].sums.empty()) continue;
    const ScopeFacts facts = analyse(c.plan, s);
    EXPECT_DOUBLE_EQ(facts.counted, part_of(GetParam().taps, GetParam().strides))
        << program::to_text(c.plan.program);
  }
}

/// All sketches of it, tiles of one phase, on two CPUs: the meaning stays, and a schedule without `skip` and
/// `peel` adds up as many terms more as there are taps outside.
TEST_P(Transposed, NestsAddUpNoOthers) {
  const double part = part_of(GetParam().taps, GetParam().strides);
  const std::int64_t size = GetParam().taps.size() > 2 ? 3 : 5;
  const auto p = program::conv_transposed(transposed(GetParam().taps, GetParam().strides, 16, size));
  int exact = 0;
  for (const std::int64_t bits : {256, 512}) {
    Target target;
    target.vector_bits = bits;
    if (bits == 256) target.vector_registers = 16;
    for (const std::size_t which : {0, 1, 2, 3}) {
      const Chooser chooser = [which](const Question& question) {
        const std::size_t sketch = std::min(which, question.sketches.size() - 1);
        Choosing choice{sketch, question.sketches[sketch].counted};
        const auto rows = question.sketches[sketch].tiling(choice.numbers).rows;
        if (!rows.empty() && question.facts.extents[rows[0]] <= 4) choice.numbers.rows = 1;  // phases
        return choice;
      };
      const Finished made = construct_with(p, Dtype::F32, target, chooser, {"w"}, {}, Phases::Apart);
      SCOPED_TRACE(to_text(made.schedule));
      const LoopNest nest = apply(p, made.schedule);
      Random random(3);
      expect_same(p, nest, random_arguments(p, random), to_text(nest));
      if (HasFatalFailure()) return;
      Schedule all = made.schedule;
      std::erase_if(all.trace, [](const Decision& decision) { return decision.name == "skip"; });
      if (all.trace.size() == made.schedule.trace.size()) continue;
      const double added =
          static_cast<double>(Terms(nest).added) / static_cast<double>(Terms(apply(p, all)).added);
      EXPECT_LE(added, part + 1e-9) << to_text(nest);
      ++exact;
    }
  }
  if (part < 1) EXPECT_GT(exact, 0);
}

INSTANTIATE_TEST_SUITE_P(Windows, Transposed,
                         ::testing::Values(Taps{{3}, {2}}, Taps{{5}, {3}}, Taps{{4}, {2}},
                                           Taps{{3, 3}, {2, 2}}, Taps{{5, 5}, {3, 3}}, Taps{{6, 6}, {4, 4}},
                                           Taps{{3, 5}, {2, 4}}, Taps{{3, 3, 3}, {2, 2, 2}},
                                           Taps{{2, 2}, {3, 3}}));

/// Loops over phases whose iterations become nests of their own: channels are o = 4 * o_o + o_i.
std::vector<std::string> peeled(const Schedule& schedule) {
  std::vector<std::string> loops;
  for (const Decision& decision : schedule.trace)
    if (decision.name == "peel" && decision.loops.front().starts_with("o_i"))
      loops.push_back(decision.loops.front());
  return loops;
}

TEST(PeelPhases, LeavesAloneWhatDecidesNothingOrTooMuch) {
  const auto loops_of = [](const program::Program& p) {
    const Chooser first = [](const Question& question) {
      return fewest_cycles(question.construction, question.scope, question.sketches);
    };
    return peeled(construct_with(p, Dtype::F32, {}, first, {"w"}, {}, Phases::Apart).schedule);
  };
  EXPECT_EQ(loops_of(program::conv_transposed(transposed({3, 3}, {2, 2}, 32, 9))).size(), 2u);
  EXPECT_TRUE(loops_of(program::conv_transposed(transposed({4, 4}, {2, 2}, 32, 9))).empty())
      << "two taps for each phase";
  EXPECT_TRUE(loops_of(program::conv_transposed(transposed({7, 7}, {6, 6}, 32, 5))).empty()) << "36 nests";
}

}  // namespace
}  // namespace syno::construct
