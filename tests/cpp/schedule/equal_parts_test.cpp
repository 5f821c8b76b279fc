// What a body says several times is computed once: a text names a remainder where it is compared, where its
// sign is, and where it is the result.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/fixture.hpp"

namespace syno::schedule {
namespace {

std::ptrdiff_t values_of(const LoopNest& nest, program::Function function) {
  return std::count_if(nest.values.begin(), nest.values.end(), [&](const Value& value) {
    return (value.kind == ValueKind::Unary || value.kind == ValueKind::Binary) && value.function == function;
  });
}

TEST(EqualParts, OfABodyAreOneValue) {
  Random random(5);
  const auto p = program::parse(
      "y[i] = select(fmod(x[i], z[i]) != 0 and (z[i] < 0) != (fmod(x[i], z[i]) < 0), fmod(x[i], z[i]) + "
      "z[i], "
      "fmod(x[i], z[i]))",
      {.sizes = {{"i", 37}}, .shapes = {}, .weights = {}, .data = {}});
  const LoopNest nest = apply(p, {Dtype::F32, {}});
  EXPECT_EQ(values_of(nest, program::Function::Fmod), 1);
  expect_same(p, nest, random_arguments(p, random), to_text(nest));
}

TEST(EqualParts, OfATermAndOfWhatItIsFinishedWithAreOneValue) {
  const auto p = program::parse(
      "t[i] = sum[k] exp(x[i,k]) * exp(x[i,k])\ny[i] = sqrt(t[i]) / (1 + sqrt(t[i]))\nreturn y",
      {.sizes = {{"i", 5}, {"k", 9}}, .shapes = {}, .weights = {}, .data = {}});
  const LoopNest nest = apply(p, {Dtype::F32, {}});
  EXPECT_EQ(values_of(nest, program::Function::Exp), 1);
  EXPECT_EQ(values_of(nest, program::Function::Sqrt), 1);
}

/// x[i] and x[i+1], or x of another fill, are no equal parts.
TEST(EqualParts, AreNoOthers) {
  Random random(6);
  const auto p = program::parse(
      "y[i] = exp(x[i]) + exp(x[i+1]) * exp((x[i+1] fill 2)) - fmod(x[i], 0.5) * fmod(x[i], 0.25)",
      {.sizes = {{"i", 37}}, .shapes = {{"x", {37}}}, .weights = {}, .data = {}});
  const LoopNest nest = apply(p, {Dtype::F32, {}});
  EXPECT_EQ(values_of(nest, program::Function::Exp), 3);
  EXPECT_EQ(values_of(nest, program::Function::Fmod), 2);
  expect_same(p, nest, random_arguments(p, random), to_text(nest));
}

}  // namespace
}  // namespace syno::schedule
