#include "jit/codegen.hpp"

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <array>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "jit/emitter.hpp"
#include "jit/machine_code.hpp"
#include "jit/needed_passes.hpp"
#include "support/error.hpp"
#include "support/fork_gate.hpp"

namespace syno::jit {

namespace {

void initialise_targets() {
  static const bool done = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86Disassembler();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    LLVMInitializeAArch64Disassembler();
    // Strength reduction of loops takes half of the time that larger kernels take to compile, and gives
    // nothing: addresses are written as a pointer plus a constant already.
    // Tiles of matrices would be given registers first, by a run of their own.
    const std::array arguments{"syno", "-disable-lsr", "-x86-tile-ra=false"};
    llvm::cl::ParseCommandLineOptions(static_cast<int>(arguments.size()), arguments.data(), "",
                                      &llvm::nulls());
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

const llvm::Target& target_of(const Cpu& cpu) {
  initialise_targets();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(cpu.triple, error);
  if (target == nullptr) fail<KernelError>("compile", "no code generator for {}: {}", cpu.triple, error);
  return *target;
}

namespace {

std::unique_ptr<llvm::TargetMachine> target_machine(const Cpu& cpu) {
  llvm::TargetOptions options;
  std::unique_ptr<llvm::TargetMachine> machine(
      target_of(cpu).createTargetMachine(cpu.triple, cpu.name, cpu.features, options, llvm::Reloc::PIC_,
                                         llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less, true));
  if (!machine) fail<KernelError>("compile", "the code generator refuses CPU {} ({})", cpu.name, cpu.triple);
  return machine;
}

/// A code generator for one CPU. What it knows of a CPU (which instructions there are, and how each type is
/// handled) takes milliseconds to work out, so idle ones are kept; one at a time uses each.
class Generator {
 public:
  explicit Generator(const Cpu& cpu) : key_(cpu.triple + '\n' + cpu.name + '\n' + cpu.features) {
    Idle& all = idle();
    {
      const std::lock_guard lock(all.mutex);
      if (auto& kept = all.machines[key_]; !kept.empty()) {
        machine_ = std::move(kept.back());
        kept.pop_back();
      }
    }
    if (!machine_) machine_ = target_machine(cpu);
  }
  ~Generator() {
    Idle& all = idle();
    const std::lock_guard lock(all.mutex);
    all.machines[key_].push_back(std::move(machine_));
  }
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  llvm::TargetMachine& operator*() const { return *machine_; }

 private:
  struct Idle {
    std::mutex mutex;
    std::map<std::string, std::vector<std::unique_ptr<llvm::TargetMachine>>> machines;
  };
  static Idle& idle() {
    static auto* const made = new Idle;  // used until the last thread ends
    return *made;
  }
  std::string key_;
  std::unique_ptr<llvm::TargetMachine> machine_;
};

std::string generate(llvm::Module& module, llvm::TargetMachine& machine, const Cpu& cpu,
                     llvm::CodeGenFileType kind) {
  module.setDataLayout(machine.createDataLayout());
#ifndef NDEBUG
  std::string wrong;
  llvm::raw_string_ostream wrong_stream(wrong);
  if (llvm::verifyModule(module, &wrong_stream))
    broken_invariant(__FILE__, __LINE__, "verifyModule", wrong.c_str());
#endif
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  std::exception_ptr interrupted;
  NeededPasses needed(passes, cpu.info.architecture, interrupted);
  if (machine.addPassesToEmitFile(needed, out, nullptr, kind))
    fail<KernelError>("compile", "the code generator cannot write this kind of file");
  passes.run(module);
  if (interrupted) std::rethrow_exception(interrupted);
  return {bytes.begin(), bytes.end()};
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string llvm_version() { return LLVM_VERSION_STRING; }

namespace {

/// Code of one form, and whether the other form of its unrolled sums could need less of the stack.
std::pair<CompiledObject, bool> compile_form(const nest::LoopNest& nest, const Cpu& cpu,
                                             const std::string& symbol, Reload reload,
                                             CompileReport& report) {
  auto start = std::chrono::steady_clock::now();
  llvm::LLVMContext context;
  EmittedModule emitted = emit(nest, cpu, symbol, context, reload);
  report.build_ms += milliseconds_since(start);
  start = std::chrono::steady_clock::now();
  const Generator machine(cpu);
  CompiledObject object;
  object.symbol = symbol;
  object.bytes = generate(*emitted.module, *machine, cpu, llvm::CodeGenFileType::ObjectFile);
  object.shared_bytes = emitted.shared_bytes;
  object.private_bytes = emitted.private_bytes;
  report.codegen_ms += milliseconds_since(start);
  const MachineCode code = read_machine_code(object.bytes, *machine, false);
  object.spills = code.spills;
  object.hot_spills = code.hot_spills;
  object.code_bytes = code.code_bytes;
  const bool other = object.spills > 0 && emitted.shares;
  return {std::move(object), other};
}

/// The form with fewer vectors on the stack: what registers are needed for shows only when they are given
/// out.
std::pair<CompiledObject, Reload> compile_better_form(const nest::LoopNest& nest, const Cpu& cpu,
                                                      const std::string& symbol, CompileReport& report) {
  auto [object, shares] = compile_form(nest, cpu, symbol, Reload::WhereCrowded, report);
  if (shares) {
    CompiledObject again = compile_form(nest, cpu, symbol, Reload::Always, report).first;
    if (again.hot_spills < object.hot_spills) return {std::move(again), Reload::Always};
  }
  return {std::move(object), Reload::WhereCrowded};
}

Reload better_form(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol) {
  CompileReport ignored;
  return compile_better_form(nest, cpu, symbol, ignored).second;
}

}  // namespace

CompiledObject compile_object(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol,
                              CompileReport& report) {
  const ForkSection section;  // LLVM has locks of its own
  report.build_ms = report.codegen_ms = 0;
  return compile_better_form(nest, cpu, symbol, report).first;
}

std::vector<LoopCode> innermost_loops(const std::string& object, const Cpu& cpu) {
  const ForkSection section;  // LLVM has locks of its own
  const Generator machine(cpu);
  return read_machine_code(object, *machine, true).innermost_loops;
}

std::vector<std::string> unneeded_passes_not_met(const Cpu& cpu) {
  const ForkSection section;
  const Generator machine(cpu);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  std::exception_ptr interrupted;
  NeededPasses needed(passes, cpu.info.architecture, interrupted);
  (*machine).addPassesToEmitFile(needed, out, nullptr, llvm::CodeGenFileType::ObjectFile);
  return needed.not_met();
}

std::string ir_text(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol) {
  const ForkSection section;  // LLVM has locks of its own
  llvm::LLVMContext context;
  const EmittedModule emitted = emit(nest, cpu, symbol, context, better_form(nest, cpu, symbol));
  std::string text;
  llvm::raw_string_ostream out(text);
  emitted.module->print(out, nullptr);
  return text;
}

std::string assembly_text(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol) {
  const ForkSection section;  // LLVM has locks of its own
  llvm::LLVMContext context;
  const EmittedModule emitted = emit(nest, cpu, symbol, context, better_form(nest, cpu, symbol));
  const Generator machine(cpu);
  return generate(*emitted.module, *machine, cpu, llvm::CodeGenFileType::AssemblyFile);
}

}  // namespace syno::jit
