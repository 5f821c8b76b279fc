// The default schedule keeps the meaning of every program, and has the shape that fast kernels have.
#include <gtest/gtest.h>

#include <algorithm>

#include "fixture.hpp"
#include "schedule/decisions.hpp"
#include "schedule/schedule.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

class EveryDefault : public testing::TestWithParam<Template> {};

TEST_P(EveryDefault, KeepsTheMeaning) {
  Random random(31);
  for (int trial = 0; trial < 12; ++trial) {
    const auto p = instance(GetParam(), random);
    for (const Target target : {Target{}, Target{256, 16, 2}, Target{128, 16, 1}}) {
      const Schedule schedule = default_schedule(p, trial % 3 == 2 ? Dtype::F64 : Dtype::F32, target);
      const LoopNest nest = apply(p, schedule);
      ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
      expect_same(p, nest, random_arguments(p, random), to_text(schedule));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryDefault, DependsOnProgramAndTargetOnly) {
  Random random(37);
  const auto p = instance(GetParam(), random);
  EXPECT_EQ(default_schedule(p, Dtype::F32, Target{}), default_schedule(p, Dtype::F32, Target{}));
}

INSTANTIATE_TEST_SUITE_P(Programs, EveryDefault, testing::ValuesIn(templates()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace syno::schedule
