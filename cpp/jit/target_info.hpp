// jit/target_info.hpp — what each architecture has for kernels, and how LLVM names it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "machine/cpu.hpp"

namespace syno::jit {

using machine::Architecture;
using machine::TargetInfo;

/// `features`: by LLVM's names; those that others imply may be missing. `scalable_bits`: of SVE, where known.
TargetInfo target_info(Architecture architecture, const std::map<std::string, bool>& features,
                       int scalable_bits);

/// A row an architecture: how LLVM names what machine code is made of.
struct MachineNames {
  Architecture architecture;
  std::string_view triple;                         ///< as callers write it
  std::vector<std::string_view> vector_registers;  ///< prefixes, before a number
  std::vector<std::string_view> kept_registers;    ///< among those: the caller's, saved by who uses them
  std::vector<std::string_view> spills;  ///< opcodes that are for nothing else, whatever address they take
  std::string_view stack_pointer;
  std::vector<std::string_view> multiply_adds;    ///< prefixes of opcodes
  std::string_view instruction_selection;         ///< a pass
  std::vector<std::string_view> unneeded_passes;  ///< beside those that no architecture needs
};
const MachineNames& machine_names(Architecture architecture);
const std::vector<MachineNames>& all_machine_names();

}  // namespace syno::jit
