#include "jit/target_info.hpp"

#include "support/error.hpp"

namespace syno::jit {

TargetInfo target_info(Architecture architecture, const std::map<std::string, bool>& features,
                       int scalable_bits) {
  const auto has = [&](const std::string& name) {
    const auto found = features.find(name);
    return found != features.end() && found->second;
  };
  TargetInfo info;
  info.architecture = architecture;
  switch (architecture) {
    case Architecture::X86_64: {
      // A CPU's list leaves out what its entries imply: avx512f, avx; of Alder Lake avx2, too.
      const bool wide = has("avx512vl") && has("avx512dq") && has("avx512bw");
      info.vector_bits = wide ? 512 : has("avx") || has("avx2") || has("fma") ? 256 : 128;
      info.vector_registers = wide ? 32 : 16;
      info.scales_by_exponent = info.looks_up_lanes = wide;
      break;
    }
    case Architecture::AArch64:
      // SVE of 128 bits gives masks, which LLVM uses for itself; all else is NEON's.
      info.scalable_bits = has("sve") && scalable_bits > 128 ? scalable_bits : 0;
      info.vector_bits = info.scalable_bits > 0 ? info.scalable_bits : 128;
      info.vector_registers = 32;
      info.orders_with_nan = info.interleaves = true;
      info.shuffles_one_vector = info.scalable_bits > 0;
      break;
  }
  return info;
}

const std::vector<MachineNames>& all_machine_names() {
  static const std::vector<MachineNames> rows{
      {.architecture = Architecture::X86_64,
       .triple = "x86_64-linux-gnu",
       .vector_registers = {"XMM", "YMM", "ZMM"},
       .kept_registers = {},
       .spills = {},
       .stack_pointer = "RSP",
       .multiply_adds = {"VFMADD", "VFMSUB", "VFNMADD", "VFNMSUB"},
       .instruction_selection = "x86-isel",
       .unneeded_passes =
           {
               // Kernels have no dynamic stack, calls with arguments on it, or frames that offsets do not
               // reach, ...
               "x86argumentstackrebase",
               "x86-cf-opt",
               "localstackalloc",
               "indirectbr-expand",
               "pseudo-probe-inserter",
               // ... tiles of matrices, ...
               "lower-amx-intrinsics",
               "lower-amx-type",
               "tilepreconfig",
               "lowertilecopy",
               // ... hardening against attackers.
               "x86-slh",
               "x86-seses",
               "x86-lvi-load",
               "x86-lvi-ret",
               "x86-return-thunks",
               // What these improve is written well already.
               "x86-partial-reduction",
               "x86-domain-reassignment",
               "x86-avoid-SFB",
               "x86-cmov-conversion",
               "x86-fixup-setcc",
               "x86-optimize-LEAs",
               "lrshrink",
           }},
      {.architecture = Architecture::AArch64,
       .triple = "aarch64-linux-gnu",
       .vector_registers = {"Z", "Q", "D", "S"},
       .kept_registers = {"D8", "D9", "D10", "D11", "D12", "D13", "D14", "D15"},
       .spills = {"LDR_ZXI", "STR_ZXI"},
       .stack_pointer = "SP",
       .multiply_adds = {"FMLA", "FMLS", "FMAD", "FMSB", "FNMAD", "FNMSB", "FNMLA", "FNMLS", "FMSUB",
                         "FNMSUB"},
       .instruction_selection = "aarch64-isel",
       .unneeded_passes =
           {
               // Kernels have no tagged memory, streaming mode, signed pointers, tables of jumps, ...
               "aarch64-globals-tagging",
               "aarch64-stack-tagging",
               "aarch64-stack-tagging-pre-ra",
               "aarch64-sme-abi",
               "aarch64-ptrauth",
               "aarch64-branch-targets",
               "aarch64-jump-tables",
               "aarch64-local-dynamic-tls-cleanup",
               // ... hardening against attackers, ...
               "aarch64-sls-hardening",
               "aarch64-speculation-hardening",
               // ... code that could be shorter, globals that would share an address.
               "machine-outliner",
               "global-merge",
               "aarch64-promote-const",
               // Prefetches are statements of a loop nest.
               "loop-data-prefetch",
               "aarch64-falkor-hwpf-fix",
               "aarch64-falkor-hwpf-fix-late",
           }},
  };
  return rows;
}

const MachineNames& machine_names(Architecture architecture) {
  for (const MachineNames& row : all_machine_names())
    if (row.architecture == architecture) return row;
  SYNO_ASSERT(false, "every architecture has a row");
  return all_machine_names().front();
}

}  // namespace syno::jit
