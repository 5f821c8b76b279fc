#include "program/neutral.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <string>

#include "naive.hpp"
#include "program/interpret.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_program.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

using testing::random_inputs;
using testing::same;

std::map<std::string, std::string> given_by_neutral(const Neutral& made) {
  std::map<std::string, std::string> names;
  for (std::size_t t = 0; t < made.names.size(); ++t) names[made.program.tensors[t].name] = made.names[t];
  return names;
}

Program with_other_names(const Program& program, Random& random) {
  std::map<std::string, std::string> names;
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (random.below(4) != 0) names[program.tensors[t].name] = "other" + std::to_string(1000 - t);
  return renamed(program, names);
}

TEST(Neutral, SaysTheSameOfProgramsThatDiffersByNames) {
  EXPECT_TRUE(rc::check("names do not matter, and come back", [](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 10; ++i) {
      Random random = Random(start).fork(i);
      const Program p = at(testing::ProgramGenerator(random())(), 0);
      const Program other = with_other_names(p, random);
      const Neutral a = neutral(p), b = neutral(other);
      RC_ASSERT(to_text(a.program) == to_text(b.program));
      RC_ASSERT(a.core.has_value() == b.core.has_value());
      if (a.core) {
        RC_ASSERT(to_text(*a.core) == to_text(*b.core));
        verify(*a.core);
        const Program again = neutral(*a.core).program;
        RC_ASSERT(to_text(again) == to_text(*a.core));
      }
      verify(a.program);
      RC_ASSERT(to_text(renamed(a.program, given_by_neutral(a))) == to_text(p));
      // Inputs stay in order, so that values by place are the same.
      const auto inputs = random_inputs(p, start);
      std::map<std::string, Values<double>> moved;
      for (std::size_t t = 0; t < p.tensors.size(); ++t)
        if (const auto found = inputs.find(p.tensors[t].name); found != inputs.end())
          moved[a.program.tensors[t].name] = found->second;
      const auto wanted = interpret(p, inputs), got = interpret(a.program, moved);
      RC_ASSERT(p.outputs.size() == a.program.outputs.size());
      RC_ASSERT(wanted.size() == got.size());
      for (const TensorId output : p.outputs) {
        const auto& values = wanted.at(p.tensor(output).name).data;
        const auto& here = got.at(a.program.tensor(output).name).data;
        RC_ASSERT(values.size() == here.size());
        for (std::size_t v = 0; v < values.size(); ++v) RC_ASSERT(same(here[v], values[v]));
      }
    }
  }));
}

TEST(Neutral, KnowsTheCoreWhateverStandsAround) {
  const std::string conv = "y[o,i] = sum[c,r] x[c,i+r-1] * k[o,c,r]";
  const ParseOptions sizes{{{"o", 4}, {"i", 8}, {"c", 4}, {"r", 3}}, {}, {}, {}, false};
  const Neutral plain = neutral(parse(conv, sizes));
  const Neutral followed = neutral(parse(conv + "; z[o,i] = relu(y[o,i] + b[o])", sizes));
  EXPECT_EQ(to_text(*plain.core), to_text(*followed.core));
  const Neutral scaled = neutral(parse("x[c,i] = 2 * v[c,i]; " + conv + "; z[o,i] = y[o,i]", sizes));
  EXPECT_EQ(to_text(*plain.core), to_text(*scaled.core));
  EXPECT_NE(to_text(plain.program), to_text(followed.program));
  const ParseOptions longer{{{"o", 4}, {"i", 9}, {"c", 4}, {"r", 3}}, {}, {}, {}, false};
  EXPECT_NE(to_text(*plain.core), to_text(*neutral(parse(conv, longer)).core));
  EXPECT_NE(to_text(*plain.core),
            to_text(*neutral(parse("y[o,i] = sum[c,r] x[c,i+r] * k[o,c,r]", sizes)).core));
}

TEST(Neutral, RefusesSymbolicPrograms) {
  EXPECT_THROW(neutral(parse("size N : primary = 4; input x[N]; y[i: N] = relu(x[i])")), ShapeError);
}

TEST(Renamed, GivesOtherTensorsWayAndRefusesWhatTextCannotHold) {
  const Program p = parse("y[i] = relu(x[i]); z[i] = y[i] + 1", {{{"i", 4}}, {}, {}, {}, false});
  const Program made = renamed(p, {{"x", "y"}});
  EXPECT_EQ(made.tensors[0].name, "y");
  EXPECT_TRUE(made.find_tensor("y_2"));
  EXPECT_NO_THROW(verify(made));
  const Program exchanged = renamed(p, {{"x", "y"}, {"y", "x"}});
  EXPECT_EQ(to_text(renamed(exchanged, {{"x", "y"}, {"y", "x"}})), to_text(p));
  EXPECT_THROW(renamed(p, {{"w", "v"}}), UnknownName);
  EXPECT_THROW(renamed(p, {{"x", "sum"}}), ShapeError);
  EXPECT_THROW(renamed(p, {{"x", "a b"}}), ShapeError);
  EXPECT_THROW(renamed(p, {{"x", "v"}, {"y", "v"}}), ShapeError);
}

TEST(Neutral, HasTheCoreThatIsAskedFor) {
  const Program p =
      parse("s[i,j] = sum[k] q[i,k] * v[j,k]; e[i,j] = exp(s[i,j]); y[i,l] = sum[j] e[i,j] * w[j,l]",
            {{{"i", 8}, {"j", 9}, {"k", 10}, {"l", 11}}, {}, {}, {}, false});
  EXPECT_EQ(heaviest(p, 0.1), (std::vector<std::string>{"y", "s"})) << "792 points, 720, and 72";
  EXPECT_EQ(heaviest(p, 0.5), std::vector<std::string>{"y"});
  EXPECT_EQ(heaviest(p, 0.0).size(), 3U);
  EXPECT_EQ(to_short_text(*neutral(p).core), "core[i,l] = sum[j] a0[i,j] * a1[j,l]");
  const Neutral other = neutral(p, "s");
  EXPECT_EQ(to_short_text(*other.core), "core[i,j] = sum[k] a0[i,k] * a1[j,k]");
  EXPECT_EQ(to_text(renamed(other.program, given_by_neutral(other))), to_text(p));
  EXPECT_THROW(neutral(p, "q"), UnknownName);
}

}  // namespace
}  // namespace syno::program
