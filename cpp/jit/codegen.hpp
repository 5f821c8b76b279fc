// jit/codegen.hpp — LLVM IR -> machine code, and machine code -> memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/kernel.hpp"
#include "jit/object_cache.hpp"
#include "jit/runtime.hpp"
#include "jit/target_info.hpp"

namespace llvm {
class Target;
}

namespace syno::jit {

/// Emits and compiles. Runs no IR optimisation: the emitter's IR needs none. `report` gets the times.
CompiledObject compile_object(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol,
                              CompileReport& report);
std::string ir_text(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol);
std::string assembly_text(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol);

/// What generates code for a CPU. KernelError where this LLVM has nothing for it.
const llvm::Target& target_of(const Cpu& cpu);

/// Vectors of multiply-adds that the CPU starts in a cycle, as LLVM's model of it says; 0 where it says
/// nothing.
double fma_ports(const Cpu& cpu);

/// Names of passes that are left out and that the code generator for this CPU does not have: of another LLVM.
std::vector<std::string> unneeded_passes_not_met(const Cpu& cpu);

std::string llvm_version();

/// Code in memory until destroyed. Only listed functions (memcpy, memset, memmove) are visible to it.
class LoadedCode {
 public:
  explicit LoadedCode(const CompiledObject& object);
  ~LoadedCode();
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;
  KernelFunction* function() const { return function_; }

 private:
  struct Tracker;
  std::unique_ptr<Tracker> tracker_;
  KernelFunction* function_ = nullptr;
};

}  // namespace syno::jit
