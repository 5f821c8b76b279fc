#include "jit/needed_passes.hpp"

#include <llvm/IR/BasicBlock.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Instructions.h>
#include <llvm/Pass.h>
#include <llvm/PassInfo.h>
#include <llvm/PassRegistry.h>

#include <array>

#include "support/fork_gate.hpp"
#include "support/interrupt.hpp"

namespace syno::jit {

namespace {

/// On any architecture; TargetInfo's rows have the others.
constexpr std::array<std::string_view, 41> kUnneeded{
    // Kernels have no integers wider than 64 bits, atomics, calls of library functions, garbage collection,
    // exceptions, thread-local variables, indirect branches, overlapping stack slots, ...
    "expand-large-div-rem",
    "expand-large-fp-convert",
    "atomic-expand",
    "mergeicmps",
    "expand-memcmp",
    "replace-with-veclib",
    "partially-inline-libcalls",
    "expandvp",
    "lower-constant-intrinsics",
    "gc-lowering",
    "shadow-stack-gc-lowering",
    "gc-analysis",
    "fixup-statepoint-caller-saved",
    "stackmap-liveness",
    "dwarf-eh-prepare",
    "funclet-layout",
    "tlshoist",
    "callbrprepare",
    "stack-coloring",
    "init-undef",
    "rename-independent-subregs",
    // ... hardening against attackers, instrumentation, profiles, debug information.
    "safe-stack",
    "stack-protector",
    "kcfi",
    "fentry-insert",
    "xray-instrumentation",
    "patchable-function",
    "post-inline-ee-instrument",
    "machine-sanmd",
    "regallocscoringpass",
    "stack-frame-layout",
    "removeredundantdebugvalues",
    "livedebugvalues",
    // What these improve is written well already: addresses are near their uses as pointers plus constants,
    // blocks follow one another, nothing is computed twice, loops have no branches worth a conversion.
    "codegenprepare",
    "consthoist",
    "unreachableblockelim",
    "early-tailduplication",
    "early-ifcvt",
    "opt-phis",
    "machine-combiner",
    "machine-cse",
};

/// LLVM cannot be left in the middle, not by an exception either.
class HearInterruptions final : public llvm::FunctionPass {
 public:
  explicit HearInterruptions(std::exception_ptr& interrupted) : FunctionPass(id), interrupted_(interrupted) {}
  bool runOnFunction(llvm::Function& function) override {
    if (!interrupted_) {
      const OutsideForkSections outside;  // the interpreter's lock is taken
      try {
        check_interruption();
      } catch (...) {
        interrupted_ = std::current_exception();
      }
    }
    if (!interrupted_) return false;
    function.dropAllReferences();
    while (!function.empty()) function.back().eraseFromParent();
    llvm::ReturnInst::Create(function.getContext(),
                             llvm::BasicBlock::Create(function.getContext(), "", &function));
    return true;
  }
  llvm::StringRef getPassName() const override { return "Hear interruptions"; }

 private:
  inline static char id = 0;
  std::exception_ptr& interrupted_;
};

}  // namespace

NeededPasses::NeededPasses(llvm::legacy::PassManagerBase& needed, Architecture architecture,
                           std::exception_ptr& interrupted)
    : needed_(needed),
      interrupted_(interrupted),
      selection_(machine_names(architecture).instruction_selection) {
  unneeded_.insert(kUnneeded.begin(), kUnneeded.end());
  const auto& own = machine_names(architecture).unneeded_passes;
  unneeded_.insert(own.begin(), own.end());
}

void NeededPasses::add(llvm::Pass* pass) {
  const llvm::PassInfo* info = llvm::PassRegistry::getPassRegistry()->getPassInfo(pass->getPassID());
  const std::string_view name = info != nullptr ? std::string_view(info->getPassArgument()) : "";
  if (name == selection_) needed_.add(new HearInterruptions(interrupted_));
  if (const auto found = unneeded_.find(name); found != unneeded_.end()) {
    met_.insert(*found);
    delete pass;  // as the other manager would at its end
    return;
  }
  needed_.add(pass);
}

std::vector<std::string> NeededPasses::not_met() const {
  std::vector<std::string> names;
  for (const std::string_view name : unneeded_)
    if (!met_.contains(name)) names.emplace_back(name);
  return names;
}

}  // namespace syno::jit
