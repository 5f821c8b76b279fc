// Every place of a temporary that is computed with holds a number that the kernel wrote.
#include "nest/unwritten.hpp"

#include <gtest/gtest.h>

#include "nest/loop_nest.hpp"
#include "nest/reads.hpp"

namespace syno::nest {
namespace {

using testing::Reads;

const char* const kPadded =
    "nest padded\n"
    "input x: f32[3, 10]\n"
    "output y: f32[3, 10]\n"
    "temporary t: f32[5, 16]\n"
    "register s: f32[16]\n"
    "for again in 0..2\n"
    "  allocate t\n"
    "    for i in 0..3\n"
    "      for l in 0..12 vector\n"
    "        if l in 0..10\n"
    "          t[i + 1, l + 2] = x[i, l]\n"
    "    for i in 0..3\n"
    "      allocate s\n"
    "        for l in 0..16 vector\n"
    "          s[l] = t[i, l] + t[i + 1, l] + t[i + 2, l]\n"
    "        for l in 0..10 vector\n"
    "          y[i, l] = s[l + 2]\n";

TEST(Unwritten, RoomOnEverySideOfWhatIsWrittenBecomesZeroAtEveryAllocation) {
  const LoopNest nest = parse_loop_nest(kPadded);
  verify(nest);
  EXPECT_GT(Reads(nest).unwritten, 0);
  const LoopNest filled = with_unwritten_zero(nest);
  verify(filled);
  const Reads reads(filled);
  EXPECT_EQ(reads.unwritten, 0) << to_text(filled);
  EXPECT_EQ(reads.stores - Reads(nest).stores, 2 * (5 * 16 - 3 * 10)) << "each place once";
}

TEST(Unwritten, PlacesThatAConditionKeepsAStoreFromBecomeZero) {
  const LoopNest nest = parse_loop_nest(
      "nest tiles\n"
      "input x: f32[20]\n"
      "output y: f32[24]\n"
      "temporary t: f32[3, 8]\n"
      "for k in 0..2\n"
      "  allocate t\n"
      "    for i in 0..3\n"
      "      for l in 0..8 vector\n"
      "        if k in 0..1\n"
      "          if 8 * i + l in 0..20\n"
      "            t[i, l] = x[8 * i + l] {8 * i + l in 0..20 else 0}\n"
      "        if k in 1..2\n"
      "          if 8 * i + l in 0..20\n"
      "            t[i, l] = 1\n"
      "    for i in 0..3\n"
      "      for l in 0..8 vector\n"
      "        y[8 * i + l] = t[i, l]\n");
  verify(nest);
  EXPECT_EQ(Reads(nest).unwritten, 8);
  const LoopNest filled = with_unwritten_zero(nest);
  verify(filled);
  EXPECT_EQ(Reads(filled).unwritten, 0) << to_text(filled);
  EXPECT_EQ(Reads(filled).stores - Reads(nest).stores, 2 * 4) << "of one tile, the places behind the end";
}

TEST(Unwritten, WhatIsWrittenIsLeftAsItIs) {
  const LoopNest nest = parse_loop_nest(
      "nest whole\ninput x: f32[20]\noutput y: f32[20]\ntemporary t: f32[32]\nallocate t\n"
      "  for l in 0..16 vector\n    t[l] = x[l]\n  for l in 0..4 vector\n    t[l + 16] = x[l + 16]\n"
      "  for l in 0..20 vector\n    y[l] = t[l]\n");
  EXPECT_EQ(to_text(with_unwritten_zero(nest)), to_text(nest));
}

}  // namespace
}  // namespace syno::nest
