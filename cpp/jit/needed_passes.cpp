#include "jit/needed_passes.hpp"

#include <llvm/IR/BasicBlock.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Instructions.h>
#include <llvm/Pass.h>

#include <string_view>
#include <unordered_set>

#include "support/fork_gate.hpp"
#include "support/interrupt.hpp"

namespace syno::jit {

namespace {

/// By the names they show. One that another LLVM calls otherwise runs, and finds nothing to do.
const std::unordered_set<std::string_view>& left_out() {
  static const std::unordered_set<std::string_view> names{
      // Kernels have no integers wider than 64 bits, atomics, calls of library functions, garbage collection,
      // exceptions, thread-local variables, indirect branches, dynamic or overlapping stack slots, ...
      "Expand large div/rem",
      "Expand large fp convert",
      "Expand Atomic instructions",
      "Merge contiguous icmps into a memcmp",
      "Expand memcmp() to load/stores",
      "Replace intrinsics with calls to vector library",
      "Partially inline calls to library functions",
      "Expand vector predication intrinsics",
      "Lower constant intrinsics",
      "Lower Garbage Collection Instructions",
      "Shadow Stack GC Lowering",
      "Analyze Machine Code For Garbage Collection",
      "Fixup Statepoint Caller Saved",
      "StackMap Liveness Analysis",
      "Exception handling preparation",
      "Contiguously Lay Out Funclets",
      "TLS Variable Hoist",
      "Local Dynamic TLS Access Clean-up",
      "Expand indirectbr instructions",
      "Prepare callbr",
      "X86 DynAlloca Expander",
      "Argument Stack Rebase",
      "Merge disjoint stack slots",
      "Local Stack Slot Allocation",
      "X86 PIC Global Base Reg Initialization",
      "X86 Optimize Call Frame",
      "X86 insert wait instruction",
      "Init Undef Pass",
      "Rename Disconnected Subregister Components",
      // ... tiles of matrices, ...
      "Lower AMX intrinsics",
      "Lower AMX type for load/store",
      "Tile Register Pre-configure",
      "Tile Register Configure",
      "X86 Lower Tile Copy",
      // ... hardening against attackers, instrumentation, profiles, debug information.
      "Safe Stack instrumentation pass",
      "Insert stack protectors",
      "X86 Windows Fixup Buffer Security Check",
      "X86 speculative load hardening",
      "X86 Speculative Execution Side Effect Suppression",
      "X86 Load Value Injection (LVI) Load Hardening",
      "X86 Load Value Injection (LVI) Ret-Hardening",
      "X86 Indirect Branch Tracking",
      "X86 Indirect Thunks",
      "X86 Return Thunks",
      "Insert KCFI indirect call checks",
      "Insert fentry calls",
      "Insert XRay ops",
      "Implement the 'patchable-function' attribute",
      "Instrument function entry/exit with calls to e.g. mcount() (post inlining)",
      "Machine Sanitizer Binary Metadata",
      "Pseudo Probe Inserter",
      "X86 Discriminate Memory Operands",
      "X86 Insert Cache Prefetches",
      "Register Allocation Pass Scoring",
      "Stack Frame Layout Analysis",
      "Remove Redundant DEBUG_VALUE analysis",
      "Live DEBUG_VALUE analysis",
      // What these improve is written well already: addresses are near their uses as pointers plus constants,
      // blocks follow one another, nothing is computed twice, loops have no branches worth a conversion.
      "CodeGen Prepare",
      "Constant Hoisting",
      "Remove unreachable blocks from the CFG",
      "X86 Partial Reduction",
      "X86 Domain Reassignment Pass",
      "X86 Avoid Store Forwarding Blocks",
      "X86 cmov Conversion",
      "X86 Fixup SetCC",
      "X86 LEA Optimize",
      "X86 Atom pad short functions",
      "Early Tail Duplication",
      "Early If-Conversion",
      "Optimize machine instruction PHIs",
      "Machine InstCombiner",
      "Machine Common Subexpression Elimination",
      "Live Range Shrink",
  };
  return names;
}

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

void NeededPasses::add(llvm::Pass* pass) {
  const llvm::StringRef name = pass->getPassName();
  if (name.ends_with("Instruction Selection")) needed_.add(new HearInterruptions(interrupted_));
  if (left_out().contains({name.data(), name.size()})) {
    delete pass;  // as the other manager would at its end
    return;
  }
  needed_.add(pass);
}

}  // namespace syno::jit
