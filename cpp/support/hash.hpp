// support/hash.hpp — 128-bit hashes that are the same on every machine (XXH3).
// std::hash is never used where a hash is stored, compared across runs or decides an order.
#pragma once

#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace syno {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
};

Hash128 hash_bytes(const void* data, std::size_t size, std::uint64_t seed = 0);
inline Hash128 hash_text(std::string_view text) { return hash_bytes(text.data(), text.size()); }

std::string to_hex(Hash128 hash);  ///< 32 lower-case hexadecimal digits
std::optional<Hash128> parse_hash(std::string_view hex);

/// Collects a byte-exact serialisation, then hashes it. Integers are written little-endian with their
/// own width, texts with their length, so that two different sequences never give the same bytes.
class Hasher {
 public:
  template <class T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  Hasher& add(T value) {
    append(&value, sizeof(T));
    return *this;
  }
  Hasher& add(std::string_view text);
  Hasher& add(Hash128 hash) { return add(hash.high).add(hash.low); }
  Hash128 finish() const {
    return more_.empty() ? hash_bytes(few_, size_) : hash_bytes(more_.data(), more_.size());
  }
  void clear() {
    size_ = 0;
    more_.clear();
  }

 private:
  void append(const void* bytes, std::size_t size) {
    if (more_.empty() && size_ + size <= sizeof(few_)) {
      std::memcpy(few_ + size_, bytes, size);
      size_ += size;
    } else {
      spill(bytes, size);
    }
  }
  void spill(const void* bytes, std::size_t size);

  unsigned char few_[240];  ///< most hashes are of few bytes: no allocation for them
  std::size_t size_ = 0;
  std::vector<unsigned char> more_;  ///< all of them, once there are more
};

/// For unordered containers in memory only: nothing may depend on their iteration order.
struct HashKey {
  std::size_t operator()(const Hash128& hash) const { return static_cast<std::size_t>(hash.low); }
};

}  // namespace syno
