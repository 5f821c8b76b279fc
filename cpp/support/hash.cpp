#include "support/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

namespace syno {

Hash128 hash_bytes(const void* data, std::size_t size, std::uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(data, size, seed);
  return {hash.high64, hash.low64};
}

std::string to_hex(Hash128 hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

std::optional<Hash128> parse_hash(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  std::uint64_t words[2] = {0, 0};
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = hex[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    words[i / 16] = words[i / 16] * 16 + static_cast<std::uint64_t>(digit);
  }
  return Hash128{words[0], words[1]};
}

Hasher& Hasher::add(std::string_view text) {
  add(static_cast<std::uint64_t>(text.size()));
  if (!text.empty()) append(text.data(), text.size());  // an empty one may be nowhere
  return *this;
}

void Hasher::spill(const void* bytes, std::size_t size) {
  if (more_.empty()) more_.assign(few_, few_ + size_);
  const auto* begin = static_cast<const unsigned char*>(bytes);
  more_.insert(more_.end(), begin, begin + size);
}

}  // namespace syno
