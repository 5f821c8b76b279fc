#include "support/memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "support/error.hpp"

namespace syno {
namespace {

constexpr std::int64_t kLeast = std::int64_t{256} << 20;
// Below this a request is not worth reading files for: it is taken, and the system says whether it can.
constexpr std::int64_t kSmall = std::int64_t{32} << 20;

std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream in(path);
  std::int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

std::optional<std::int64_t> available_in_machine() {
  std::ifstream in("/proc/meminfo");
  for (std::string word; in >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "MemAvailable:" && in >> kilobytes) return kilobytes << 10;
  }
  return std::nullopt;
}

std::string human(double bytes) {
  if (bytes >= 0x1p50) return fmt::format("{:.0f} TiB", bytes / 0x1p40);
  if (bytes >= 0x1p30) return fmt::format("{:.1f} GiB", bytes / 0x1p30);
  return fmt::format("{:.0f} MiB", bytes / 0x1p20);
}

}  // namespace

std::int64_t available_memory() {
  std::int64_t available = available_in_machine().value_or(std::numeric_limits<std::int64_t>::max());
  for (const auto& [limit, used] :
       {std::pair{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    const auto most = number_in(limit), now = number_in(used);
    if (most && now) available = std::min(available, std::max<std::int64_t>(*most - *now, 0));
  }
  return std::max(available, kLeast);
}

void require_memory(std::string_view where, std::string_view what, std::int64_t count, std::int64_t bytes) {
  std::int64_t wanted = 0;
  const bool fits = !__builtin_mul_overflow(count, bytes, &wanted);
  if (fits && wanted <= kSmall) return;
  const std::int64_t available = available_memory();
  if (fits && wanted <= available) return;
  fail<ShapeError>(where,
                   "{}: {} elements of {} bytes take {}, but {} of memory are available; use smaller sizes",
                   what, count, bytes, human(static_cast<double>(count) * static_cast<double>(bytes)),
                   human(static_cast<double>(available)));
}

}  // namespace syno
