#include "jit/profiling.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <llvm/ExecutionEngine/Orc/DebugObjectManagerPlugin.h>
#include <llvm/ExecutionEngine/Orc/EPCDebugObjectRegistrar.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderGDB.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>

namespace syno::jit {

namespace {

namespace orc = llvm::orc;

bool wanted(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

/// A regular file of this user that has no other name.
bool is_own(const struct stat& status) {
  return S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && status.st_nlink == 1;
}

/// Opens a file that nobody else made: everybody may write to /tmp, so that links are not followed. Of what
/// lies under the name, only a file of this user is taken (`append`) or makes way: another process's, or
/// another writer's of names in this one.
std::FILE* own_file(const std::string& path, bool append) {
  constexpr int kOpen = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int more = append ? O_APPEND : 0;
  int number = ::open(path.c_str(), kOpen | more | O_CREAT | O_EXCL, 0600);
  if (number < 0 && errno == EEXIST) {
    struct stat status{};
    if (append) {
      number = ::open(path.c_str(), kOpen | more);
    } else if (::lstat(path.c_str(), &status) == 0 && is_own(status) && ::unlink(path.c_str()) == 0) {
      number = ::open(path.c_str(), kOpen | O_CREAT | O_EXCL, 0600);
    }
  }
  struct stat opened{};
  if (number >= 0 && (::fstat(number, &opened) != 0 || !is_own(opened))) {
    ::close(number);
    number = -1;
  }
  if (number < 0) return nullptr;
  std::FILE* file = ::fdopen(number, append ? "a" : "w+");
  if (file == nullptr) ::close(number);
  return file;
}

/// Where perf looks names up: one line a function (linux: tools/perf/Documentation/jit-interface.txt), and
/// the code itself, for annotation (jitdump-specification.txt beside it).
class PerfFiles {
 public:
  PerfFiles() {
    const char* directory = std::getenv("JITDUMPDIR");
    const std::string dump = fmt::format(
        "{}/jit-{}.dump", directory != nullptr && *directory != '\0' ? directory : "/tmp", ::getpid());
    map_ = own_file(fmt::format("/tmp/perf-{}.map", ::getpid()), true);
    dump_ = own_file(dump, false);
    if (dump_ == nullptr) return;
    constexpr std::uint32_t kMagic = 0x4A695444, kVersion = 1, kHeaderBytes = 40, kX86 = 62;
    put(kMagic);
    put(kVersion);
    put(kHeaderBytes);
    put(kX86);
    put(std::uint32_t{0});
    put(static_cast<std::uint32_t>(::getpid()));
    put(now());
    put(std::uint64_t{0});
    std::fflush(dump_);
    // perf finds the file by this mapping of it.
    ::mmap(nullptr, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), PROT_READ | PROT_EXEC, MAP_PRIVATE,
           ::fileno(dump_), 0);
  }
  /// Files that cannot be written leave names out of a profile; nothing else depends on them.
  void add(std::uint64_t address, std::string_view name, std::string_view code) {
    const std::lock_guard lock(mutex_);
    if (map_ != nullptr) {
      fmt::print(map_, "{:x} {:x} {}\n", address, code.size(), name);
      std::fflush(map_);
    }
    if (dump_ == nullptr) return;
    constexpr std::uint32_t kCodeLoad = 0, kRecordBytes = 56;
    put(kCodeLoad);
    put(static_cast<std::uint32_t>(kRecordBytes + name.size() + 1 + code.size()));
    put(now());
    put(static_cast<std::uint32_t>(::getpid()));
    put(static_cast<std::uint32_t>(::gettid()));
    put(address);
    put(address);
    put(std::uint64_t{code.size()});
    put(count_++);
    std::fwrite(name.data(), 1, name.size(), dump_);
    std::fputc('\0', dump_);
    std::fwrite(code.data(), 1, code.size(), dump_);
    std::fflush(dump_);
  }

 private:
  template <class T>
  void put(T value) {
    std::fwrite(&value, sizeof value, 1, dump_);
  }
  static std::uint64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
  }
  std::mutex mutex_;
  std::FILE* map_ = nullptr;
  std::FILE* dump_ = nullptr;
  std::uint64_t count_ = 0;
};

class PerfPlugin : public orc::ObjectLinkingLayer::Plugin {
 public:
  void modifyPassConfig(orc::MaterializationResponsibility&, llvm::jitlink::LinkGraph&,
                        llvm::jitlink::PassConfiguration& passes) override {
    // A call within the object names no symbol, so that the linker would forget the callee's.
    passes.PrePrunePasses.emplace_back([](llvm::jitlink::LinkGraph& graph) {
      for (llvm::jitlink::Symbol* symbol : graph.defined_symbols())
        if (symbol->isCallable()) symbol->setLive(true);
      return llvm::Error::success();
    });
    passes.PostFixupPasses.emplace_back([this](llvm::jitlink::LinkGraph& graph) {
      for (const llvm::jitlink::Symbol* symbol : graph.defined_symbols()) {
        if (!symbol->hasName() || !symbol->isCallable()) continue;
        const llvm::ArrayRef<char> code = symbol->getSymbolContent();
        files_.add(symbol->getAddress().getValue(), std::string_view(symbol->getName()),
                   {code.data(), code.size()});
      }
      return llvm::Error::success();
    });
  }
  llvm::Error notifyFailed(orc::MaterializationResponsibility&) override { return llvm::Error::success(); }
  llvm::Error notifyRemovingResources(orc::JITDylib&, orc::ResourceKey) override {
    return llvm::Error::success();
  }
  void notifyTransferringResources(orc::JITDylib&, orc::ResourceKey, orc::ResourceKey) override {}

 private:
  PerfFiles files_;
};

}  // namespace

void announce_kernels(orc::LLJIT& jit) {
  auto& layer = static_cast<orc::ObjectLinkingLayer&>(jit.getObjLinkingLayer());
  orc::ExecutionSession& session = jit.getExecutionSession();
  if (wanted("SYNO_PERF")) layer.addPlugin(std::make_unique<PerfPlugin>());
  if (wanted("SYNO_GDB"))
    layer.addPlugin(std::make_unique<orc::DebugObjectManagerPlugin>(
        session,
        std::make_unique<orc::EPCDebugObjectRegistrar>(
            session, orc::ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderGDBWrapper)),
        false, true));
}

}  // namespace syno::jit
