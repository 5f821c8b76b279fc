#include "jit/object_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <vector>

#include "jit/kernel.hpp"

namespace syno::jit {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMagic = "SYNOKRN1";
constexpr std::string_view kSuffix = ".kernel";

class Writer {
 public:
  void number(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    bytes_ += value;
  }
  std::string finish() {
    const Hash128 sum = hash_text(bytes_);
    number(static_cast<std::int64_t>(sum.high));
    number(static_cast<std::int64_t>(sum.low));
    return std::move(bytes_);
  }

 private:
  std::string bytes_{kMagic};
};

class Reader {
 public:
  /// False where magic or checksum are wrong.
  bool open(std::string_view bytes) {
    constexpr std::size_t kSum = 16;
    if (bytes.size() < kMagic.size() + kSum || !bytes.starts_with(kMagic)) return false;
    const std::string_view content = bytes.substr(0, bytes.size() - kSum);
    const Hash128 sum = hash_text(content);
    std::uint64_t stored[2];
    std::memcpy(stored, bytes.data() + content.size(), kSum);
    if (stored[0] != sum.high || stored[1] != sum.low) return false;
    rest_ = content.substr(kMagic.size());
    return true;
  }
  std::int64_t number() {
    std::int64_t value = 0;
    if (rest_.size() < sizeof value) return ok_ = false, 0;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string text() {
    const std::int64_t size = number();
    if (size < 0 || static_cast<std::size_t>(size) > rest_.size()) return ok_ = false, std::string();
    std::string value(rest_.substr(0, static_cast<std::size_t>(size)));
    rest_.remove_prefix(static_cast<std::size_t>(size));
    return value;
  }
  bool complete() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

fs::path path_of(const std::string& directory, const std::string& key_text) {
  return fs::path(directory) / (to_hex(hash_text(key_text)) + std::string(kSuffix));
}

std::atomic<void (*)(const std::string&)> warning_handler{nullptr};

}  // namespace

void set_warning_handler(void (*handler)(const std::string& message)) { warning_handler = handler; }

void warn_once(const std::string& about, const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> said;
  {
    const std::lock_guard lock(mutex);
    if (!said.insert(about).second) return;
  }
  if (const auto handler = warning_handler.load()) handler(message);
}

ObjectCache::ObjectCache(std::string directory, std::int64_t largest_bytes)
    : directory_(std::move(directory)), largest_bytes_(largest_bytes) {}

std::optional<CompiledObject> ObjectCache::find(const std::string& key_text) const {
  const fs::path path = path_of(directory_, key_text);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Reader reader;
  if (!reader.open(bytes)) {
    warn_once(path.string(),
              fmt::format("the cached kernel {} is damaged and will be compiled again", path.string()));
    return std::nullopt;
  }
  if (reader.text() != key_text) return std::nullopt;
  CompiledObject object;
  object.symbol = reader.text();
  object.bytes = reader.text();
  object.shared_bytes = reader.number();
  object.private_bytes = reader.number();
  object.code_bytes = reader.number();
  object.spills = static_cast<int>(reader.number());
  if (!reader.complete()) return std::nullopt;
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // recently used
  return object;
}

void ObjectCache::put(const std::string& key_text, const CompiledObject& object) const {
  static std::atomic<std::uint64_t> counter{0};
  Writer writer;
  writer.text(key_text);
  writer.text(object.symbol);
  writer.text(object.bytes);
  writer.number(object.shared_bytes);
  writer.number(object.private_bytes);
  writer.number(object.code_bytes);
  writer.number(object.spills);
  const std::string bytes = writer.finish();
  std::error_code error;
  fs::create_directories(directory_, error);
  const fs::path path = path_of(directory_, key_text);
  const std::uint64_t serial = counter++;
  const fs::path partial =
      fs::path(directory_) / fmt::format("{}.{}.{}.partial", path.stem().string(), ::getpid(), serial);
  {
    std::ofstream file(partial, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) {
      fs::remove(partial, error);
      warn_once(directory_,
                fmt::format("the kernel cache {} cannot be written; kernels are compiled in every "
                            "process (SYNO_CACHE names another directory)",
                            directory_));
      return;
    }
  }
  fs::rename(partial, path, error);
  if (error) fs::remove(partial, error);
  if (serial % 64 == 0) shrink();
}

void ObjectCache::shrink() const {
  struct Entry {
    fs::file_time_type used;
    std::string path;
    std::int64_t bytes;
  };
  std::vector<Entry> entries;
  std::int64_t total = 0;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(directory_, error)) {
    if (file.path().extension() != kSuffix) continue;
    std::error_code gone;  // another process may be removing it
    const auto size = static_cast<std::int64_t>(file.file_size(gone));
    const auto used = file.last_write_time(gone);
    if (gone) continue;
    entries.push_back({used, file.path().string(), size});
    total += size;
  }
  if (total <= largest_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  for (const Entry& entry : entries) {
    if (total <= largest_bytes_) return;
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
}

}  // namespace syno::jit
