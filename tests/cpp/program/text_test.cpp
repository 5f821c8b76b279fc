#include "program/text.hpp"

#include <gtest/gtest.h>

#include "program/verify.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

TEST(ShortForm, AConvolutionFollowsFromItsIterators) {
  ParseOptions options;
  options.sizes = {{"n", 1}, {"o", 64}, {"c", 32}, {"h", 56}, {"w", 28}, {"r", 3}, {"s", 5}};
  const Program p = parse("y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-2] * k[o,c,r,s]", options);
  EXPECT_EQ(shape_of(p, *p.find_tensor("x")), (std::vector<std::int64_t>{1, 32, 56, 28}));
  EXPECT_EQ(shape_of(p, *p.find_tensor("k")), (std::vector<std::int64_t>{64, 32, 3, 5}));
  EXPECT_EQ(p.tensor(*p.find_tensor("x")).role, Role::Input);
  EXPECT_EQ(p.tensor(*p.find_tensor("k")).role, Role::Weight);
  EXPECT_EQ(to_short_text(p), "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-2] * k[o,c,r,s]");
  EXPECT_EQ(to_text(p), to_text(parse(to_text(p)))) << to_text(p);
}

}  // namespace
}  // namespace syno::program
