#include "jit/content_digest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm-c/blake3.h>

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

}  // namespace syno::jit
