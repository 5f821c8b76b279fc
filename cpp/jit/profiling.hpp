// jit/profiling.hpp — tells profilers and debuggers which code is which kernel.
#pragma once

namespace llvm::orc {
class LLJIT;
}

namespace syno::jit {

/// Announces every kernel that is loaded from now on, as the environment asks:
///  - SYNO_PERF=1: /tmp/perf-PID.map, from which `perf report` takes names, and a jitdump under JITDUMPDIR
///    (or /tmp) for `perf record -k 1`, `perf inject --jit` and `perf annotate`.
///  - SYNO_GDB=1: to gdb, which then knows the functions by name.
/// A kernel is the function `kernel_OUTPUT_KEY`; bodies of its parallel loops are `kernel_OUTPUT_KEY.LOOP`.
void announce_kernels(llvm::orc::LLJIT& jit);

}  // namespace syno::jit
