// Blocks transposed in registers: every shape of block, in every dtype, on every CPU.
#include <gtest/gtest.h>

#include "jit/kernel.hpp"
#include "program/text.hpp"
#include "schedule/schedule.hpp"

namespace syno::jit {
namespace {

using nest::Dtype;

struct Block {
  std::int64_t rows, columns;
};
void PrintTo(const Block& value, std::ostream* out) { *out << value.rows << "x" << value.columns; }

class EveryBlock : public ::testing::TestWithParam<Block> {};

TEST_P(EveryBlock, IsTransposed) {
  const auto [rows, columns] = GetParam();
  const auto program = program::parse("y[i,j] = 2 * x[j,i]", {.sizes = {{"i", 19}, {"j", 37}}});
  const Cpu generic = cpu_named("generic"), v3 = cpu_named("x86-64-v3");
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16})
    for (const Cpu* cpu : {&host_cpu(), &v3, &generic}) {
      schedule::Schedule made;
      made.dtype = dtype;
      made.trace = {{"split", "y", {"i"}, {rows}, "", {}},
                    {"split", "y", {"j"}, {columns}, "", {}},
                    {"reorder", "y", {"i_o", "j_o", "i_i", "j_i"}, {}, "", {}},
                    {"transpose", "y", {"i_i", "j_i"}, {}, "", {}},
                    {"peel", "y", {"i_o"}, {}, "", {}},
                    {"peel", "y", {"j_o"}, {}, "", {}}};
      CompileOptions options;
      options.cpu = cpu;
      const auto kernel = compile(schedule::apply(program, made), options);
      const Verification result = verify(*kernel, program, 3);
      EXPECT_TRUE(result.passed) << nest::name_of(dtype) << " on " << cpu->name << ": " << result.detail
                                 << "\n"
                                 << nest::to_text(kernel->nest());
    }
}

INSTANTIATE_TEST_SUITE_P(Blocks, EveryBlock,
                         ::testing::Values(Block{1, 1}, Block{2, 8}, Block{3, 5}, Block{4, 16}, Block{8, 8},
                                           Block{16, 4}, Block{16, 16}, Block{5, 17}, Block{19, 32}));

}  // namespace
}  // namespace syno::jit
