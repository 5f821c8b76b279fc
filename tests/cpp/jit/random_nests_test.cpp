// Property: any nest that verifies computes natively what it computes in the interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "random_nest.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

class RandomNests : public ::testing::TestWithParam<int> {};

TEST_P(RandomNests, ComputeWhatTheInterpreterDoes) {
  static const std::vector<Cpu> cpus{host_cpu(), cpu_named("x86-64-v3"), cpu_named("generic")};
  int made = 0;
  for (int i = 0; i < 30; ++i) {
    const auto seed = static_cast<std::uint64_t>(GetParam() * 1000 + i);
    const Dtype dtype = i % 3 == 2 ? Dtype::F64 : i % 3 == 1 && i % 2 ? Dtype::BF16 : Dtype::F32;
    const LoopNest nest = RandomNest(seed, dtype).make();
    const std::string text = nest::to_text(nest);
    ASSERT_EQ(nest::to_text(nest::parse_loop_nest(text)), text);
    expect_as_interpreted(nest, seed, &cpus[static_cast<std::size_t>(i / 5) % 3 * (i % 2)], 1 + i % 3);
    if (::testing::Test::HasFatalFailure()) return;
    ++made;
  }
  EXPECT_EQ(made, 30);
}

/// SYNO_FUZZ=n runs n times as many.
int batches() {
  const char* times = std::getenv("SYNO_FUZZ");
  return 5 * (times == nullptr ? 1 : std::max(1, std::atoi(times)));
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomNests, ::testing::Range(0, batches()));

}  // namespace
}  // namespace syno::jit
