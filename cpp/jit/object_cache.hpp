// jit/object_cache.hpp — compiled objects on disk, by a key of everything that can change them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "support/hash.hpp"

namespace syno::jit {

/// An object with what is needed to call it.
struct CompiledObject {
  std::string symbol;
  std::string bytes;                                 ///< ELF
  std::int64_t shared_bytes = 0, private_bytes = 0;  ///< workspace
  std::int64_t code_bytes = 0;
  int spills = 0;
};

/// One file a key, `<32 hex digits>.kernel`: key text, object and checksum. Written under another name, then
/// renamed. An entry that is damaged, or of another key text, is none. Directories that cannot be written are
/// read only; that is said once.
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
