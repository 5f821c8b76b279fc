// jit/content_digest.hpp — a digest of very many bytes that nobody finds a second content for.
#pragma once

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

}  // namespace syno::jit
