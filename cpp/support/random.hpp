// support/random.hpp — random streams that are the same on every machine and for every number of threads.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "support/checked.hpp"
#include "support/hash.hpp"
#include "support/mix.hpp"

namespace syno {

/// A SplitMix64 stream (Steele, Lea, Flood, OOPSLA 2014). `fork` derives an independent stream from a
/// name or number, so that work split over threads draws the same numbers however it is split.
class Random {
 public:
  using result_type = std::uint64_t;
  explicit Random(std::uint64_t seed) : state_(seed) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return split_mix(state_ += kGoldenGamma); }

  /// Uniform in [0, n); n > 0. Without modulo bias (Lemire 2019).
  std::uint64_t below(std::uint64_t n) {
    for (;;) {
      const auto product = static_cast<UInt128>((*this)()) * n;
      if (static_cast<std::uint64_t>(product) >= (0 - n) % n)
        return static_cast<std::uint64_t>(product >> 64);
    }
  }
  double unit() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }  ///< uniform in [0, 1)

  Random fork(std::uint64_t number) const {
    const std::uint64_t words[2] = {state_, number};
    return Random(hash_bytes(words, sizeof words).low);
  }
  Random fork(std::string_view name) const { return fork(hash_text(name).low); }

 private:
  std::uint64_t state_;
};

}  // namespace syno
