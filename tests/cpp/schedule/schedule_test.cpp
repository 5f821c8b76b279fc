// Schedules print and parse back, as text and as JSON.
#include "schedule/schedule.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "schedule/decisions.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

Schedule example() {
  return {Dtype::F64,
          {{"stage", "y", {}, {}, "x", {"x_s"}},
           {"split", "y", {"h"}, {8}, "", {}},
           {"reorder", "y", {"h_o", "c", "h_i"}, {}, "", {}},
           {"layout", "", {}, {1, 4, 2}, "x_s", {"split"}}}};
}

TEST(ScheduleText, RoundTrips) {
  EXPECT_EQ(parse_schedule(to_text(example())), example());
  EXPECT_EQ(schedule_from_json(to_json(example())), example());
}

TEST(ScheduleText, SaysWhatIsWrong) {
  EXPECT_THROW(parse_schedule("split y"), ParseError);
  EXPECT_THROW(parse_schedule("schedule f16\n"), UnknownName);
  EXPECT_THROW(parse_schedule("schedule f32\nsplit\n"), ParseError);
  EXPECT_THROW(parse_schedule("schedule f32\nsplit y numbers=a\n"), ParseError);
  EXPECT_THROW(parse_schedule("schedule f32\nsplit y number=1\n"), ParseError);
  auto json = to_json(example());
  json["trace"][1]["numbers"][0] = "8";
  try {
    schedule_from_json(json);
    FAIL() << "a text was taken for a number";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find("/trace/1/numbers/0"), std::string::npos) << error.what();
  }
  json = to_json(example());
  json["version"] = 99;
  EXPECT_THROW(schedule_from_json(json), FormatError);
  EXPECT_THROW(schedule_from_json(nlohmann::json::array()), FormatError);
}

}  // namespace
}  // namespace syno::schedule
