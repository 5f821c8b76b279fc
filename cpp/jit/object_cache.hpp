// jit/object_cache.hpp — compiled objects on disk, by a key of everything that can change them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "support/hash.hpp"

namespace syno::jit {

/// An object with what is needed to call it.
struct CompiledObject {
  std::string symbol;
  std::string bytes;                                 ///< ELF
  std::int64_t shared_bytes = 0, private_bytes = 0;  ///< workspace
  std::int64_t code_bytes = 0;
  int spills = 0;
  double hot_spills = 0;
  std::string digest;  ///< of all the above and the key text: 64 hexadecimal digits, by the cache's secret
};

/// The secret under which entries are written and read: machine code that others put there is never run.
/// Until it is set, one of this process alone.
using CacheSecret = std::array<std::uint8_t, 32>;
void set_cache_secret(const CacheSecret& secret);

/// `object.digest` under the secret (BLAKE3, keyed).
std::string digest_of(const std::string& key_text, const CompiledObject& object);

/// Key (the file's name) of an entry as it lies on disk; "" where it is none under the secret.
std::string entry_key(std::string_view entry);
/// An entry of another secret, under this one; "" where it is no entry at all. For code that is trusted.
std::string adopt_entry(std::string_view entry);

/// One file a key, `<32 hex digits>.kernel`: key text, object and digest. Written under another name, then
/// renamed. An entry that is damaged, of another secret or of another key text is none, and whatever lies in
/// its place makes way for the next. Directories that cannot be written are read only; that is said once.
class ObjectCache {
 public:
  explicit ObjectCache(std::string directory, std::int64_t largest_bytes = std::int64_t{512} << 20);
  std::optional<CompiledObject> find(const std::string& key_text) const;
  void put(const std::string& key_text, const CompiledObject& object) const;

 private:
  void shrink() const;  ///< removes what was longest unused beyond largest_bytes
  std::string directory_;
  std::int64_t largest_bytes_;
};

void warn_once(const std::string& about, const std::string& message);

}  // namespace syno::jit
