// Objects into memory: ORC with JITLink, a resource tracker a kernel, no symbols of the process.
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>

#include <cstring>

#include "jit/codegen.hpp"
#include "jit/profiling.hpp"
#include "support/error.hpp"
#include "support/fork_gate.hpp"

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
  announce_kernels(jit);
  if (auto error = jit.getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols))))
    fail_with("the linker cannot start", std::move(error));
  return std::move(*made);
}

/// Never destroyed: kernels may outlive any order of destruction at exit.
orc::LLJIT& the_jit() {
  static orc::LLJIT* jit = make_jit().release();
  return *jit;
}

}  // namespace

struct LoadedCode::Tracker {
  orc::ResourceTrackerSP resources;
};

LoadedCode::LoadedCode(const CompiledObject& object) : tracker_(std::make_unique<Tracker>()) {
  const ForkSection section;
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
}

LoadedCode::~LoadedCode() {
  const ForkSection section;
  if (auto error = tracker_->resources->remove()) llvm::consumeError(std::move(error));
}

}  // namespace syno::jit
