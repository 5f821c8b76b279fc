#include "jit/codegen.hpp"

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ObjectFile.h>
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
#include "jit/needed_passes.hpp"
#include "support/error.hpp"
#include "support/fork_gate.hpp"

namespace syno::jit {

namespace {

void initialise_target() {
  static const bool done = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetDisassembler();
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

const llvm::Target& target_of(const Cpu& cpu) {
  initialise_target();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(cpu.triple, error);
  if (target == nullptr) fail<KernelError>("compile", "no code generator for {}: {}", cpu.triple, error);
  return *target;
}

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

std::string generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind) {
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
  NeededPasses needed(passes, interrupted);
  if (machine.addPassesToEmitFile(needed, out, nullptr, kind))
    fail<KernelError>("compile", "the code generator cannot write this kind of file");
  passes.run(module);
  if (interrupted) std::rethrow_exception(interrupted);
  return {bytes.begin(), bytes.end()};
}

/// Stack stores and reloads of vector registers in the code of an ELF object, by disassembling it.
int count_spills(const std::string& object, const llvm::TargetMachine& machine, std::int64_t* code_bytes) {
  *code_bytes = 0;
  // What the machine knows of its CPU takes milliseconds to work out again.
  const llvm::MCRegisterInfo* registers = machine.getMCRegisterInfo();
  const llvm::MCSubtargetInfo* subtarget = machine.getMCSubtargetInfo();
  llvm::MCContext context(machine.getTargetTriple(), machine.getMCAsmInfo(), registers, subtarget);
  const std::unique_ptr<llvm::MCDisassembler> disassembler(
      machine.getTarget().createMCDisassembler(*subtarget, context));
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!file) {
    llvm::consumeError(file.takeError());
    return 0;
  }
  std::vector<bool> vector(registers->getNumRegs()), stack(registers->getNumRegs());
  for (unsigned r = 1; r < registers->getNumRegs(); ++r) {
    const llvm::StringRef name = registers->getName(r);
    vector[r] = name.starts_with("XMM") || name.starts_with("YMM") || name.starts_with("ZMM");
    stack[r] = name == "RSP";
  }
  const llvm::MCInstrInfo* instructions = machine.getMCInstrInfo();
  int loads = 0, stores = 0;
  for (const llvm::object::SectionRef& section : (*file)->sections()) {
    if (!section.isText()) continue;
    auto contents = section.getContents();
    if (!contents) {
      llvm::consumeError(contents.takeError());
      continue;
    }
    *code_bytes += static_cast<std::int64_t>(contents->size());
    if (!disassembler) continue;
    const llvm::ArrayRef<std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(contents->data()),
                                             contents->size());
    std::uint64_t size = 0;
    for (std::uint64_t at = 0; at < bytes.size(); at += std::max<std::uint64_t>(size, 1)) {
      llvm::MCInst instruction;
      if (disassembler->getInstruction(instruction, size, bytes.slice(at), at, llvm::nulls()) !=
          llvm::MCDisassembler::Success)
        continue;
      bool on_stack = false, with_vector = false;
      for (const llvm::MCOperand& operand : instruction) {
        if (!operand.isReg()) continue;
        on_stack = on_stack || stack[operand.getReg()];
        with_vector = with_vector || vector[operand.getReg()];
      }
      if (!on_stack || !with_vector) continue;
      ++(instructions->get(instruction.getOpcode()).mayLoad() ? loads : stores);
    }
  }
  // Stores that nothing reloads are the context of a parallel loop, two words at a time.
  return loads == 0 ? 0 : loads + stores;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string llvm_version() { return LLVM_VERSION_STRING; }

CompiledObject compile_object(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol,
                              CompileReport& report) {
  const ForkSection section;  // LLVM has locks of its own
  auto start = std::chrono::steady_clock::now();
  llvm::LLVMContext context;
  EmittedModule emitted = emit(nest, cpu, symbol, context);
  report.build_ms = milliseconds_since(start);
  start = std::chrono::steady_clock::now();
  const Generator machine(cpu);
  CompiledObject object;
  object.symbol = symbol;
  object.bytes = generate(*emitted.module, *machine, llvm::CodeGenFileType::ObjectFile);
  object.shared_bytes = emitted.shared_bytes;
  object.private_bytes = emitted.private_bytes;
  report.codegen_ms = milliseconds_since(start);
  object.spills = count_spills(object.bytes, *machine, &object.code_bytes);
  return object;
}

std::string ir_text(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol) {
  const ForkSection section;  // LLVM has locks of its own
  llvm::LLVMContext context;
  const EmittedModule emitted = emit(nest, cpu, symbol, context);
  std::string text;
  llvm::raw_string_ostream out(text);
  emitted.module->print(out, nullptr);
  return text;
}

std::string assembly_text(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol) {
  const ForkSection section;  // LLVM has locks of its own
  llvm::LLVMContext context;
  const EmittedModule emitted = emit(nest, cpu, symbol, context);
  const Generator machine(cpu);
  return generate(*emitted.module, *machine, llvm::CodeGenFileType::AssemblyFile);
}

}  // namespace syno::jit
