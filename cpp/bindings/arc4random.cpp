// bindings/arc4random.cpp — LLVM, as Debian 12 builds it, draws the names of temporary files from arc4random,
// which glibc has since 2.36 only. With one of its own, hidden from everybody else, the extension runs on
// glibc 2.34.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() noexcept {
  std::uint32_t drawn = 0;
  // At most 256 bytes come whole, or not at all when a signal arrives first.
  for (int tries = 0; tries < 1000; ++tries)
    if (getrandom(&drawn, sizeof drawn, 0) == static_cast<ssize_t>(sizeof drawn)) return drawn;
  std::abort();  // no kernel since 3.17 gets here
}
