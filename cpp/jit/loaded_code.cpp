// Objects into memory: ORC with JITLink, a resource tracker a kernel, no symbols of the process.
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "jit/codegen.hpp"
#include "support/error.hpp"

namespace syno::jit {

namespace {

namespace orc = llvm::orc;

[[noreturn]] void fail_with(const char* doing, llvm::Error error) {
  fail<KernelError>("load", "{}: {}", doing, llvm::toString(std::move(error)));
}

std::unique_ptr<orc::LLJIT> make_jit() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  // The host's own triple and CPU play no part: only finished objects are added.
  orc::JITTargetMachineBuilder machine{llvm::Triple(host_cpu().triple)};
  auto made = orc::LLJITBuilder()
                  .setJITTargetMachineBuilder(std::move(machine))
                  .setLinkProcessSymbolsByDefault(false)
                  .setPlatformSetUp(orc::setUpInactivePlatform)
                  .setObjectLinkingLayerCreator(
                      [](orc::ExecutionSession& session,
                         const llvm::Triple&) -> llvm::Expected<std::unique_ptr<orc::ObjectLayer>> {
                        return std::make_unique<orc::ObjectLinkingLayer>(
                            session, session.getExecutorProcessControl().getMemMgr());
                      })
                  .create();
  if (!made) fail_with("the linker cannot start", made.takeError());
  orc::LLJIT& jit = **made;
  orc::SymbolMap symbols;
  const auto add = [&](const char* name, void* address) {
    symbols[jit.mangleAndIntern(name)] = {orc::ExecutorAddr::fromPtr(address),
                                          llvm::JITSymbolFlags::Exported};
  };
  add("memcpy", reinterpret_cast<void*>(&std::memcpy));
  add("memset", reinterpret_cast<void*>(&std::memset));
  add("memmove", reinterpret_cast<void*>(&std::memmove));
  if (auto error = jit.getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols))))
    fail_with("the linker cannot start", std::move(error));
  return std::move(*made);
}

/// Never destroyed: kernels may outlive any order of destruction at exit.
orc::LLJIT& the_jit() {
  static orc::LLJIT* jit = make_jit().release();
  return *jit;
}

/// With SYNO_PERF set, `perf report` shows kernels by name.
void tell_perf(const CompiledObject& object, const void* address) {
  static const bool wanted = std::getenv("SYNO_PERF") != nullptr;
  if (!wanted) return;
  const std::string path = fmt::format("/tmp/perf-{}.map", ::getpid());
  if (std::FILE* file = std::fopen(path.c_str(), "a")) {
    const std::string line = fmt::format("{:x} {:x} {}\n", reinterpret_cast<std::uintptr_t>(address),
                                         object.code_bytes, object.symbol);
    std::fwrite(line.data(), 1, line.size(), file);
    std::fclose(file);
  }
}

}  // namespace

struct LoadedCode::Tracker {
  orc::ResourceTrackerSP resources;
};

LoadedCode::LoadedCode(const CompiledObject& object) : tracker_(std::make_unique<Tracker>()) {
  const CompileGuard guard;
  orc::LLJIT& jit = the_jit();
  tracker_->resources = jit.getMainJITDylib().createResourceTracker();
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object.bytes, object.symbol);
  if (auto error = jit.addObjectFile(tracker_->resources, std::move(buffer)))
    fail_with("the object cannot be added", std::move(error));
  auto address = jit.lookup(object.symbol);
  if (!address) {
    llvm::cantFail(tracker_->resources->remove());
    fail_with("the object cannot be linked", address.takeError());
  }
  function_ = address->toPtr<KernelFunction*>();
  tell_perf(object, reinterpret_cast<const void*>(function_));
}

LoadedCode::~LoadedCode() {
  const CompileGuard guard;
  if (auto error = tracker_->resources->remove()) llvm::consumeError(std::move(error));
}

}  // namespace syno::jit
