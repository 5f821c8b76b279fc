#include "jit/object_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <llvm-c/blake3.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <set>
#include <vector>

#include "jit/kernel.hpp"
#include "support/error.hpp"
#include "support/fork_gate.hpp"

namespace syno::jit {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kRecordMagic = "SYNOKRN3";
constexpr std::string_view kSuffix = ".kernel";
constexpr std::size_t kDigestBytes = LLVM_BLAKE3_OUT_LEN;
constexpr std::int64_t kLargestEntry = std::int64_t{256} << 20;
static_assert(std::tuple_size_v<CacheSecret> == LLVM_BLAKE3_KEY_LEN);

const CacheSecret* secret_of_this_process() {
  auto* made = new CacheSecret;
  for (std::size_t done = 0; done < made->size();) {
    const ssize_t got = ::getrandom(made->data() + done, made->size() - done, 0);
    if (got < 0 && errno != EINTR) fail<KernelError>("cache", "the system gives no random numbers");
    if (got > 0) done += static_cast<std::size_t>(got);
  }
  return made;
}

// A pointer that is never freed: readers need no lock, which a fork could leave locked.
std::atomic<const CacheSecret*> given_secret{nullptr};

const CacheSecret& secret() {
  if (const CacheSecret* given = given_secret.load()) return *given;
  static const CacheSecret* const own = secret_of_this_process();
  return *own;
}

std::string digest_bytes(std::string_view content) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init_keyed(&hasher, secret().data());
  llvm_blake3_hasher_update(&hasher, content.data(), content.size());
  std::string digest(kDigestBytes, '\0');
  llvm_blake3_hasher_finalize(&hasher, reinterpret_cast<std::uint8_t*>(digest.data()), digest.size());
  return digest;
}

/// Takes as long wherever two digests differ.
bool same_digest(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string hex(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

class Writer {
 public:
  void number(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    bytes_ += value;
  }
  std::string content() { return std::move(bytes_); }

 private:
  std::string bytes_{kRecordMagic};
};

class RecordReader {
 public:
  explicit RecordReader(std::string_view content) : rest_(content) {
    ok_ = rest_.starts_with(kRecordMagic);
    if (ok_) rest_.remove_prefix(kRecordMagic.size());
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

std::string content_of(const std::string& key_text, const CompiledObject& object) {
  Writer writer;
  writer.text(key_text);
  writer.text(object.symbol);
  writer.text(object.bytes);
  writer.number(object.shared_bytes);
  writer.number(object.private_bytes);
  writer.number(object.code_bytes);
  writer.number(object.spills);
  writer.number(std::bit_cast<std::int64_t>(object.hot_spills));
  return writer.content();
}

struct Entry {
  std::string key_text;
  CompiledObject object;
};

std::optional<Entry> parse(std::string_view content) {
  RecordReader reader(content);
  Entry entry;
  entry.key_text = reader.text();
  entry.object.symbol = reader.text();
  entry.object.bytes = reader.text();
  entry.object.shared_bytes = reader.number();
  entry.object.private_bytes = reader.number();
  entry.object.code_bytes = reader.number();
  entry.object.spills = static_cast<int>(reader.number());
  entry.object.hot_spills = std::bit_cast<double>(reader.number());
  if (!reader.complete()) return std::nullopt;
  return entry;
}

/// An entry under the secret.
std::optional<Entry> read_entry(std::string_view bytes) {
  if (bytes.size() < kDigestBytes) return std::nullopt;
  const std::string_view content = bytes.substr(0, bytes.size() - kDigestBytes);
  const std::string digest = digest_bytes(content);
  if (!same_digest(digest, bytes.substr(content.size()))) return std::nullopt;
  std::optional<Entry> entry = parse(content);
  if (entry) entry->object.digest = hex(digest);
  return entry;
}

struct OpenFile {
  int number;
  explicit OpenFile(int opened) : number(opened) {}
  ~OpenFile() {
    if (number >= 0) ::close(number);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
};

/// Content of a regular file. `there` says whether anything lies at the path: a directory, a link or a pipe,
/// which would be waited for, are no entries.
std::optional<std::string> read_file(const fs::path& path, bool& there) {
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  there = file.number >= 0 || (errno != ENOENT && errno != ENOTDIR);
  struct stat status{};
  if (file.number < 0 || ::fstat(file.number, &status) != 0) return std::nullopt;
  if (!S_ISREG(status.st_mode) || status.st_size > kLargestEntry) return std::nullopt;
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.number, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

/// A new file; what lies there under its name, a link too, makes way.
bool write_file(const fs::path& path, std::string_view bytes) {
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  int opened = ::open(path.c_str(), kNew, 0666);
  if (opened < 0 && errno == EEXIST && ::unlink(path.c_str()) == 0) opened = ::open(path.c_str(), kNew, 0666);
  const OpenFile file(opened);
  if (file.number < 0) return false;
  while (!bytes.empty()) {
    const ssize_t put = ::write(file.number, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

fs::path path_of(const std::string& directory, const std::string& key_text) {
  return fs::path(directory) / (to_hex(hash_text(key_text)) + std::string(kSuffix));
}

std::atomic<void (*)(const std::string&)> warning_handler{nullptr};

}  // namespace

void set_warning_handler(void (*handler)(const std::string& message)) { warning_handler = handler; }

void warn_once(const std::string& about, const std::string& message) {
  const ForkSection section;
  static std::mutex mutex;
  static std::set<std::string> said;
  {
    const std::lock_guard lock(mutex);
    if (!said.insert(about).second) return;
  }
  if (const auto handler = warning_handler.load()) outside_fork_sections([=] { handler(message); });
}

void set_cache_secret(const CacheSecret& secret) {
  const ForkSection section;
  static std::mutex mutex;
  // Another thread may be reading the one before: none goes.
  static auto* const given = new std::deque<CacheSecret>();
  const std::lock_guard lock(mutex);
  if (given->empty() || given->back() != secret) given_secret = &given->emplace_back(secret);
}

std::string digest_of(const std::string& key_text, const CompiledObject& object) {
  return hex(digest_bytes(content_of(key_text, object)));
}

std::string entry_key(std::string_view entry) {
  const std::optional<Entry> read = read_entry(entry);
  return read ? to_hex(hash_text(read->key_text)) : std::string();
}

std::string adopt_entry(std::string_view entry) {
  if (entry.size() < kDigestBytes) return {};
  std::string bytes(entry.substr(0, entry.size() - kDigestBytes));
  if (!parse(bytes)) return {};
  bytes += digest_bytes(bytes);
  return bytes;
}

ObjectCache::ObjectCache(std::string directory, std::int64_t largest_bytes)
    : directory_(std::move(directory)), largest_bytes_(largest_bytes) {}

std::optional<CompiledObject> ObjectCache::find(const std::string& key_text) const {
  const fs::path path = path_of(directory_, key_text);
  bool there = false;
  const std::optional<std::string> bytes = read_file(path, there);
  if (!there) return std::nullopt;
  std::optional<Entry> entry;
  if (bytes) entry = read_entry(*bytes);
  if (!entry) {
    warn_once(path.string(),
              fmt::format("the cached kernel {} is damaged, or not from here, and will be compiled again",
                          path.string()));
    return std::nullopt;
  }
  if (entry->key_text != key_text) return std::nullopt;
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // recently used
  return std::move(entry->object);
}

void ObjectCache::put(const std::string& key_text, const CompiledObject& object) const {
  static std::atomic<std::uint64_t> counter{0};
  std::string bytes = content_of(key_text, object);
  bytes += digest_bytes(bytes);
  std::error_code error;
  fs::create_directories(directory_, error);
  const fs::path path = path_of(directory_, key_text);
  const std::uint64_t serial = counter++;
  const fs::path partial =
      fs::path(directory_) / fmt::format("{}.{}.{}.partial", path.stem().string(), ::getpid(), serial);
  if (!write_file(partial, bytes)) {
    fs::remove(partial, error);
    warn_once(directory_, fmt::format("the kernel cache {} cannot be written; kernels are compiled in every "
                                      "process (SYNO_CACHE names another directory)",
                                      directory_));
    return;
  }
  fs::rename(partial, path, error);
  if (error) {  // a directory lies there
    std::error_code gone;
    if (fs::is_directory(fs::symlink_status(path, gone))) {
      fs::remove_all(path, gone);
      fs::rename(partial, path, error);
    }
  }
  if (error) fs::remove(partial, error);
  if (serial % 64 == 0) shrink();
}

void ObjectCache::shrink() const {
  struct File {
    fs::file_time_type used;
    std::string path;
    std::int64_t bytes;
  };
  constexpr std::array<std::string_view, 4> kKinds = {kSuffix, ".schedule", ".verified", ".joined"};
  constexpr std::array<std::string_view, 2> kUnfinished = {".partial", ".part"};
  const fs::file_time_type long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::vector<File> entries;
  std::int64_t total = 0;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(directory_, error)) {
    const std::string kind = file.path().extension().string();
    const bool unfinished = std::find(kUnfinished.begin(), kUnfinished.end(), kind) != kUnfinished.end();
    if (!unfinished && std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) continue;
    std::error_code gone;  // another process may be removing it
    const auto size = static_cast<std::int64_t>(file.file_size(gone));
    const auto used = file.last_write_time(gone);
    if (gone) continue;
    if (unfinished) {  // its process was killed
      if (used < long_ago) fs::remove(file.path(), gone);
      continue;
    }
    entries.push_back({used, file.path().string(), size});
    total += size;
  }
  if (total <= largest_bytes_) return;
  std::sort(entries.begin(), entries.end(),
            [](const File& a, const File& b) { return std::tie(a.used, a.path) < std::tie(b.used, b.path); });
  for (const File& entry : entries) {
    if (total <= largest_bytes_) return;
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
}

}  // namespace syno::jit
