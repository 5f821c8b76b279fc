// jit/needed_passes.hpp — which of the code generator's passes kernels need.
#pragma once

#include <llvm/IR/LegacyPassManager.h>

#include <exception>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "jit/target_info.hpp"

namespace syno::jit {

/// Takes the code generator's passes for another pass manager and leaves out those that have nothing to do in
/// a kernel: each costs time for every function, and they are half of all. Passes go by the names they are
/// registered under (those of `llc -stop-after=`); one without such a name runs.
class NeededPasses final : public llvm::legacy::PassManagerBase {
 public:
  /// `interrupted`: gets what an interruption throws, which is looked for before each function; the rest are
  /// then emptied, so that what is generated is of no use.
  NeededPasses(llvm::legacy::PassManagerBase& needed, Architecture architecture,
               std::exception_ptr& interrupted);
  void add(llvm::Pass* pass) override;
  /// Names to leave out that no pass had so far.
  std::vector<std::string> not_met() const;

 private:
  llvm::legacy::PassManagerBase& needed_;
  std::exception_ptr& interrupted_;
  std::string_view selection_;  ///< of instructions: before it, interruptions are heard
  std::set<std::string_view> unneeded_, met_;
};

}  // namespace syno::jit
