// jit/content_digest.hpp — a digest of very many bytes that nobody finds a second content for.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace syno::jit {

/// BLAKE3 of what it was given, some bytes at a time: by vectors it is faster than SHA-256 by its own
/// instructions.
class ContentDigest {
 public:
  ContentDigest();
  ~ContentDigest();
  void update(std::string_view bytes);
  /// Of everything so far: 64 hexadecimal digits.
  std::string digits() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Bytes of each digest of `part_digests`: as many as no two contents are found for.
inline constexpr std::size_t part_digest_size = 16;

/// The first bytes of BLAKE3 of each `size` bytes, one after the other; the last part may be shorter.
std::string part_digests(std::string_view bytes, std::size_t size);

}  // namespace syno::jit
