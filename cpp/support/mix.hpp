// support/mix.hpp — 64-bit mixers for keys and streams, the same on every machine.
#pragma once

#include <cstdint>

namespace syno {

inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ULL;  ///< 2^64 / golden ratio, odd

/// SplitMix64's finisher (Steele, Lea, Flood, OOPSLA 2014): a bijection in which every bit of the input
/// reaches every bit of the result.
constexpr std::uint64_t split_mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// A key of one more word, by one multiplication: for tables in memory.
constexpr std::uint64_t join_key(std::uint64_t key, std::uint64_t word) {
  key = (key ^ word) * kGoldenGamma;
  return key ^ key >> 29;
}

}  // namespace syno
