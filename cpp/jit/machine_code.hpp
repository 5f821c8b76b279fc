// jit/machine_code.hpp — what the instructions of an object are: vectors put on the stack, and the loops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jit/kernel.hpp"

namespace llvm {
class TargetMachine;
}

namespace syno::jit {

struct MachineCode {
  std::int64_t code_bytes = 0;
  int spills = 0;                         ///< stack stores and reloads of vector registers
  double hot_spills = 0;                  ///< the same, each level of loops outside the deepest a 32nd
  std::vector<LoopCode> innermost_loops;  ///< where asked for
};

/// Disassembles an ELF object of the machine's architecture.
MachineCode read_machine_code(const std::string& object, const llvm::TargetMachine& machine, bool with_loops);

}  // namespace syno::jit
