#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCSchedule.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>

#include <memory>
#include <optional>
#include <string_view>

#include "jit/codegen.hpp"

namespace syno::jit {

namespace {

/// The instruction that multiplies and adds vectors of float32 as wide as the CPU's, by LLVM's name.
std::string_view multiply_add(const Cpu& cpu) {
  if (cpu.info.architecture == Architecture::AArch64)
    return cpu.info.scalable_bits > 0 ? "FMLA_ZPmZZ_S" : "FMLAv4f32";
  return cpu.info.vector_bits == 512 ? "VFMADD231PSZr" : cpu.info.vector_bits == 256 ? "VFMADD231PSYr" : "";
}

std::optional<unsigned> opcode_named(const llvm::MCInstrInfo& instructions, std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (unsigned i = 0; i < instructions.getNumOpcodes(); ++i)
    if (std::string_view(instructions.getName(i)) == name) return i;
  return std::nullopt;
}

/// CPUs that LLVM 19 has no model of, for which it takes that of the one before: ports for 512 bits.
/// "Software Optimization Guide for the AMD Zen5 Microarchitecture": two; LLVM's Zen 4 makes one of two
/// halves.
double without_model(const Cpu& cpu) { return cpu.name == "znver5" && cpu.info.vector_bits == 512 ? 2 : 0; }

}  // namespace

double fma_ports(const Cpu& cpu) {
  if (const double ports = without_model(cpu); ports > 0) return ports;
  const llvm::Target& target = target_of(cpu);
  const std::unique_ptr<llvm::MCSubtargetInfo> of(
      target.createMCSubtargetInfo(cpu.triple, cpu.name, cpu.features));
  const std::unique_ptr<llvm::MCInstrInfo> instructions(target.createMCInstrInfo());
  const auto opcode = opcode_named(*instructions, multiply_add(cpu));
  if (!of || !opcode || !of->getSchedModel().hasInstrSchedModel()) return 0;
  const llvm::MCSchedClassDesc* kind =
      of->getSchedModel().getSchedClassDesc(instructions->get(*opcode).getSchedClass());
  if (kind == nullptr || !kind->isValid() || kind->isVariant()) return 0;
  return 1 / llvm::MCSchedModel::getReciprocalThroughput(*of, *kind);
}

}  // namespace syno::jit
