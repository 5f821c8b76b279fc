// Loads whose lanes a guard turns off: all of them together read an array of fills, so that their address is
// never one that no page is at.
#include <gtest/gtest.h>

#include <regex>

#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

/// Rows above and below the image, lanes left and right of it.
constexpr const char* kWindow = R"(nest window
input x: {0}[5, 21]
output y: {0}[9, 21]
for i in 0..9
  for j in 0..21 vector
    y[i, j] = x[i - 2, j - 2] {{i - 2 in 0..5, j - 2 in 0..21 else {1}}}
)";

TEST(MaskedLoad, ComputesWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  std::uint64_t seed = 1;
  for (const char* dtype : {"f32", "f64", "bf16"})
    for (const char* fill : {"0", "1", "0.1", "-inf"})
      for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
        expect_as_interpreted(nest::parse_loop_nest(fmt::format(fmt::runtime(kWindow), dtype, fill)), seed++,
                              cpu, 1);
}

TEST(MaskedLoad, TakesAnotherAddressWhereAllLanesAreOff) {
  const Cpu cpu = cpu_named("x86-64-v4");
  CompileOptions options;
  options.cpu = &cpu;
  const auto kernel = compile(nest::parse_loop_nest(fmt::format(fmt::runtime(kWindow), "f32", "0")), options);
  const std::string text = kernel->llvm();
  const std::regex load(R"(call <\d+ x float> @llvm\.masked\.load\.\S+\(ptr (%\S+),)");
  std::size_t loads = 0;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), load); at != std::sregex_iterator(); ++at) {
    ++loads;
    EXPECT_NE(text.find((*at)[1].str() + " = select i1"), std::string::npos) << text;
  }
  EXPECT_GT(loads, 0u) << text;
}

}  // namespace
}  // namespace syno::jit
