// jit/needed_passes.hpp — which of the code generator's passes kernels need.
#pragma once

#include <llvm/IR/LegacyPassManager.h>

#include <exception>

namespace syno::jit {

/// Takes the code generator's passes for another pass manager and leaves out those that have nothing to do in
/// a kernel: each costs time for every function, and they are half of all.
class NeededPasses final : public llvm::legacy::PassManagerBase {
 public:
  /// `interrupted`: gets what an interruption throws, which is looked for before each function; the rest are
  /// then emptied, so that what is generated is of no use.
  NeededPasses(llvm::legacy::PassManagerBase& needed, std::exception_ptr& interrupted)
      : needed_(needed), interrupted_(interrupted) {}
  void add(llvm::Pass* pass) override;

 private:
  llvm::legacy::PassManagerBase& needed_;
  std::exception_ptr& interrupted_;
};

}  // namespace syno::jit
