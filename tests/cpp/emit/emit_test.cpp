// What the emitters refuse, and the forms they choose. That the texts compute the right values is checked
// where they run: tests/python/test_emit.py.
#include "emit/emit.hpp"

#include <gtest/gtest.h>

#include "program/text.hpp"
#include "support/error.hpp"

namespace syno {
namespace {

program::Program parsed(const std::string& text, std::map<std::string, std::int64_t, std::less<>> sizes) {
  program::ParseOptions options;
  options.sizes = std::move(sizes);
  return program::parse(text, options);
}

TEST(Emit, AsksForAValuationWhereThereAreSeveral) {
  const auto program = program::parse("size n : primary = 3, 4\ninput x[n]\ny[i: n] = x[i] * x[i]\nreturn y");
  EXPECT_THROW(emit::to_pytorch(program), ShapeError);
  EXPECT_THROW(emit::to_te(program), ShapeError);
  EXPECT_THROW(emit::to_c(program), ShapeError);
  EXPECT_NO_THROW(emit::to_graphviz(program));
  EXPECT_NO_THROW(emit::to_c(program::at(program, 1)));
}

TEST(Emit, RefusesNamesThatAreNone) {
  const auto program = parsed("y[i] = exp(x[i])", {{"i", 3}});
  for (const char* name : {"", "1st", "a b", "x;y"}) {
    EXPECT_THROW(emit::to_pytorch(program, name), ShapeError) << name;
    EXPECT_THROW(emit::to_c(program, {.function = name}), ShapeError) << name;
  }
  EXPECT_THROW(emit::to_c(program, {.function = "main"}), ShapeError);
  EXPECT_THROW(emit::to_te(program, "int8"), UnknownName);
}

TEST(Emit, WritesConvolutionsAsConvolutions) {
  const auto text =
      emit::to_pytorch(parsed("y[n,g,o,h,w] = sum[c,r] x[n,2*g+c,2*h+3*r-3,w] * k[g,o,c,r]",
                              {{"n", 2}, {"g", 3}, {"o", 4}, {"c", 2}, {"h", 5}, {"w", 4}, {"r", 3}}));
  EXPECT_NE(text.find("F.conv2d("), std::string::npos) << text;
  EXPECT_NE(text.find("stride=(2, 1)"), std::string::npos) << text;
  EXPECT_NE(text.find("dilation=(3, 1)"), std::string::npos) << text;
  EXPECT_NE(text.find("groups=3"), std::string::npos) << text;
}

TEST(Emit, TakesWindowsThatStayInTheResultAfterTheSum) {
  const auto text = emit::to_pytorch(parsed("y[n,o,r,h,w] = sum[c] x[n,c,h,w+r-1] * k[o,c,r]",
                                            {{"n", 2}, {"o", 4}, {"c", 3}, {"h", 4}, {"w", 6}, {"r", 3}}));
  EXPECT_EQ(text.find("unfold"), std::string::npos) << text;
}

TEST(Emit, LeavesTheBatchOpenOnlyWhereItPassesThrough) {
  const auto pointwise = emit::to_pytorch(parsed("y[n,i] = x[n,i] * x[n,i]", {{"n", 2}, {"i", 3}}));
  EXPECT_NE(pointwise.find("batch = x.shape[0]"), std::string::npos) << pointwise;
  const auto mixed = emit::to_pytorch(parsed("y[n,i] = x[(n+1)%2,i] * x[n,i]", {{"n", 2}, {"i", 3}}));
  EXPECT_EQ(mixed.find("batch"), std::string::npos) << mixed;
}

TEST(Emit, IsTheSameTextEveryTime) {
  const auto program = parsed("y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", 3}, {"n", 4}, {"k", 5}});
  EXPECT_EQ(emit::to_pytorch(program), emit::to_pytorch(program));
  EXPECT_EQ(emit::to_c(program), emit::to_c(program));
  EXPECT_NE(emit::to_c(program, {.seed = 1}), emit::to_c(program, {.seed = 2}));
}

TEST(Emit, WritesLatexOfSymbolicSizes) {
  const auto program = program::parse(
      "size N, C : primary = (4, 8), (6, 8); size g : coefficient = 2, 2\n"
      "input x[N, C]; weight w[C*g^-1, N]\n"
      "y[i: N, c: C*g^-1] = sum[j: N] x[j, c*g + i % g] * w[c, j]\nreturn y");
  EXPECT_EQ(emit::to_latex(program),
            "y[i, c] = \\sum_{j} x[j, g c + \\left(i \\bmod g\\right)] \\cdot w[c, j]");
}

}  // namespace
}  // namespace syno
