// jit/needed_passes.hpp — which of the code generator's passes kernels need.
#pragma once

#include <llvm/IR/LegacyPassManager.h>

namespace syno::jit {

/// Takes the code generator's passes for another pass manager and leaves out those that have nothing to do in
/// a kernel: each costs time for every function, and they are half of all.
class NeededPasses final : public llvm::legacy::PassManagerBase {
 public:
  explicit NeededPasses(llvm::legacy::PassManagerBase& needed) : needed_(needed) {}
  void add(llvm::Pass* pass) override;

 private:
  llvm::legacy::PassManagerBase& needed_;
};

}  // namespace syno::jit
