// Specs without operators: the sentence names the limit, and with its advice there are operators.
#include "synth/empty.hpp"

#include <gtest/gtest.h>

#include "small_specs.hpp"
#include "synth/enumerate.hpp"

namespace syno::synth {
namespace {

/// One limit that empties the space, the words the sentence must hold, and the advice taken.
struct Emptied {
  const char* name;
  void (*change)(Spec&);
  const char* words;
  void (*advice)(Spec&);
};
void PrintTo(const Emptied& row, std::ostream* out) { *out << row.name; }

const std::vector<Emptied> kEmptied = {
    {"flops", [](Spec& s) { s.budgets.max_flops = 200; }, "max_flops is at least",
     [](Spec& s) { s.budgets.max_flops = 768; }},
    {"least_flops", [](Spec& s) { s.budgets.min_flops = 1e9; }, "min_flops is at most",
     [](Spec& s) { s.budgets.min_flops = 700; }},
    {"params", [](Spec& s) { s.budgets.max_params = 3; }, "max_params is at least",
     [](Spec& s) { s.budgets.max_params = 96; }},
    {"steps", [](Spec& s) { s.budgets.max_steps = 1; }, "max_steps is 2 (now 1)",
     [](Spec& s) { s.budgets.max_steps = 2; }},
    {"small_weights", [](Spec& s) { s.budgets.min_weight_params = 1e6; }, "min_weight_params is 1 (now",
     [](Spec& s) { s.budgets.min_weight_params = 1; }},
};

class EveryEmptySpace : public ::testing::TestWithParam<Emptied> {};

TEST_P(EveryEmptySpace, HasASentenceWhoseAdviceHelps) {
  Spec spec = testing::line_spec(2);
  GetParam().change(spec);
  ASSERT_TRUE(enumerate(spec).operators.empty());
  const auto sentence = why_empty(spec);
  ASSERT_TRUE(sentence.has_value());
  EXPECT_NE(sentence->find(GetParam().words), std::string::npos) << *sentence;
  GetParam().advice(spec);
  EXPECT_FALSE(enumerate(spec).operators.empty());
}
INSTANTIATE_TEST_SUITE_P(Table, EveryEmptySpace, ::testing::ValuesIn(kEmptied),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(WhyEmpty, SaysNothingOfASpaceThatIsNot) { EXPECT_EQ(why_empty(testing::line_spec(3)), std::nullopt); }

TEST(WhyEmpty, SaysHowDeepItLooked) {
  Spec spec = testing::line_spec(5);
  spec.budgets.max_flops = 200;
  spec.budgets.min_weight_params = 1e6;
  const auto sentence = why_empty(spec, 0, 1);
  ASSERT_TRUE(sentence.has_value());
  EXPECT_NE(sentence->find("no operator of at most 1 step, of 5 allowed"), std::string::npos) << *sentence;
  EXPECT_NE(sentence->find("as far as 1 step tell"), std::string::npos) << *sentence;
}

// All operators of twelve steps would take hours.
TEST(WhyEmpty, LooksNoFurtherThanItMay) {
  Spec spec = spec_named("conv");
  spec.budgets.max_steps = 12;
  spec.budgets.max_params = 1;
  const auto sentence = why_empty(spec, 0, 100'000);
  ASSERT_TRUE(sentence.has_value());
  EXPECT_NE(sentence->find("of 12 allowed"), std::string::npos) << *sentence;
  EXPECT_NE(sentence->find("max_params is at least"), std::string::npos) << *sentence;
}

TEST(WhyEmpty, SaysSoWhereNoSingleLimitIsToBlame) {
  Spec spec = testing::line_spec(2);
  spec.budgets.max_flops = 200;
  spec.budgets.min_weight_params = 1e6;
  const auto sentence = why_empty(spec);
  ASSERT_TRUE(sentence.has_value());
  EXPECT_NE(sentence->find("No single limit"), std::string::npos) << *sentence;
}

}  // namespace
}  // namespace syno::synth
