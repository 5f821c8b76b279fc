#include "jit/content_digest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm-c/blake3.h>

#include <algorithm>
#include <array>

namespace syno::jit {

struct ContentDigest::State {
  llvm_blake3_hasher hasher;
};

ContentDigest::ContentDigest() : state_(std::make_unique<State>()) {
  llvm_blake3_hasher_init(&state_->hasher);
}

ContentDigest::~ContentDigest() = default;

void ContentDigest::update(std::string_view bytes) {
  llvm_blake3_hasher_update(&state_->hasher, bytes.data(), bytes.size());
}

std::string ContentDigest::digits() const {
  std::array<std::uint8_t, LLVM_BLAKE3_OUT_LEN> digest;
  llvm_blake3_hasher_finalize(&state_->hasher, digest.data(), digest.size());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

std::string part_digests(std::string_view bytes, std::size_t size) {
  std::string found((bytes.size() + size - 1) / size * part_digest_size, '\0');
  llvm_blake3_hasher hasher;
  for (std::size_t at = 0, to = 0; at < bytes.size(); at += size, to += part_digest_size) {
    const std::string_view part = bytes.substr(at, std::min(size, bytes.size() - at));
    llvm_blake3_hasher_init(&hasher);
    llvm_blake3_hasher_update(&hasher, part.data(), part.size());
    llvm_blake3_hasher_finalize(&hasher, reinterpret_cast<std::uint8_t*>(found.data() + to),
                                part_digest_size);
  }
  return found;
}

}  // namespace syno::jit
