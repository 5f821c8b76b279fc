#include "support/build_id.hpp"

#include <gtest/gtest.h>

namespace syno {
namespace {

TEST(BuildId, IsThatOfThisProgram) {
  EXPECT_GE(build_id().size(), 16u);
  EXPECT_EQ(build_id().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(&build_id(), &build_id());
}

}  // namespace
}  // namespace syno
