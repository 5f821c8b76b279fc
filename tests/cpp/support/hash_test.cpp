// Hashes and random streams are values other machines must reproduce.
#include "support/hash.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/random.hpp"

namespace syno {
namespace {

TEST(Hash, IsTheSameOnEveryMachine) {
  EXPECT_EQ(to_hex(hash_text("")), "99aa06d3014798d86001c324468d497f")
      << "XXH3's published value of no input";
}

TEST(Hash, HexRoundTrips) {
  const Hash128 hash = hash_text("conv");
  EXPECT_EQ(parse_hash(to_hex(hash)), hash);
  EXPECT_EQ(parse_hash("xyz"), std::nullopt);
  EXPECT_EQ(parse_hash(std::string(32, 'g')), std::nullopt);
}

TEST(Hash, TextsKeepTheirLimits) {
  Hasher a, b;
  EXPECT_NE(a.add("ab").add("c").finish(), b.add("a").add("bc").finish());
  a.clear();
  b.clear();
  EXPECT_EQ(a.add(std::string_view()).finish(), b.add("").finish());
}

/// A hash is of the bytes alone, however many they are and in whatever pieces they come.
TEST(Hash, IsOfTheBytesInWhateverPieces) {
  Random random(11);
  Hasher hasher;
  for (int trial = 0; trial < 2000; ++trial) {
    hasher.clear();
    std::vector<unsigned char> bytes;
    const auto add = [&](auto value) {
      hasher.add(value);
      const auto* begin = reinterpret_cast<const unsigned char*>(&value);
      bytes.insert(bytes.end(), begin, begin + sizeof(value));
    };
    const std::uint64_t wanted = random.below(600);
    while (bytes.size() < wanted) {
      switch (random.below(4)) {
        case 0:
          add(static_cast<std::uint8_t>(random()));
          break;
        case 1:
          add(static_cast<std::int32_t>(random()));
          break;
        case 2:
          add(random());
          break;
        default: {
          const std::string text(random.below(300), static_cast<char>('a' + random.below(26)));
          const auto size = static_cast<std::uint64_t>(text.size());
          hasher.add(std::string_view(text));
          const auto* begin = reinterpret_cast<const unsigned char*>(&size);
          bytes.insert(bytes.end(), begin, begin + sizeof(size));
          bytes.insert(bytes.end(), text.begin(), text.end());
        }
      }
    }
    ASSERT_EQ(hasher.finish(), hash_bytes(bytes.data(), bytes.size())) << bytes.size() << " bytes";
  }
}

TEST(Random, IsTheSameOnEveryMachine) {
  Random random(1234567);  // Vigna's reference implementation of SplitMix64
  EXPECT_EQ(random(), 6457827717110365317ULL);
  EXPECT_EQ(random(), 3203168211198807973ULL);
}

TEST(Random, BelowIsUniformAndForksDiffer) {
  Random random(3);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[random.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  std::set<std::uint64_t> firsts;
  for (std::uint64_t i = 0; i < 100; ++i) firsts.insert(random.fork(i)());
  EXPECT_EQ(firsts.size(), 100u);
}

}  // namespace
}  // namespace syno
