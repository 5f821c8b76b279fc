"""Objects to shared libraries by the system's C compiler, and what a caller must know to run one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import FormatError
from syno.kernels.kernel import Kernel

if TYPE_CHECKING:
    from syno.kernels.targets import KernelObject, Target

_TIMEOUT_S = 120

#: The emulator of each architecture that is not this machine's, where it is installed (Debian: qemu-user).
_EMULATORS = {"aarch64": "qemu-aarch64", "x86_64": "qemu-x86_64"}


@dataclass(frozen=True)
class Toolchain:
    """What C programs for a target are made and tried with."""

    compiler: str | None
    """None: there is none here."""
    run: tuple[str, ...] | None
    """Words before a program's name that run it here; None: it cannot be run."""
    static: bool = False
    """Whether programs must bring their libraries along."""

    @classmethod
    def of(cls, target: Target | None) -> Toolchain:
        """For the kernels of this process, or for a target."""
        if target is None:
            return cls(c_compiler(), ())
        architecture = target.cpu.triple.split("-")[0]
        if target.cpu.runs_here:
            # Which instructions this machine lacks shows when they are run.
            return cls(c_compiler(), () if target.name == "generic" else None)
        emulator = shutil.which(_EMULATORS[architecture])
        sve = target.cpu.scalable_bits
        model = f"max,sve{sve}=on" if sve else "max"
        compiler = f"{architecture}-linux-gnu-gcc"
        return cls(
            compiler if shutil.which(compiler) else None,
            (emulator, "-cpu", model) if emulator else None,
            static=True,
        )

    def check(self, directory: Path, objects: list[str]) -> tuple[str, str]:
        """Compiles `main.c` with objects and runs it, as far as the tools are here: how, in words, and what it
        printed.

        Raises:
            FormatError: the compiler or the program fails.
        """
        if self.compiler is None:
            return "", ""
        # GCC 12's vectorisation for AArch64 fails on some main; nothing in it needs to be fast.
        level = ["-static", "-O1"] if self.static else ["-O2"]
        words = f"compiled by {self.compiler}"
        try:
            run_compiler(
                self.compiler,
                [*level, "main.c", *objects, "-lm", "-o", "main"],
                directory,
            )
            if self.run is None:
                return words, ""
            done = subprocess.run(
                [*self.run, "./main"],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FormatError(f"[export] the exported C program did not end: {error}") from error
        finally:
            (directory / "main").unlink(missing_ok=True)
        if self.run and done.returncode == -signal.SIGILL:
            return f"{words} (not run: {Path(self.run[0]).name} lacks one of its instructions)", ""
        if done.returncode != 0:
            said = (done.stdout.strip() or done.stderr.strip())[-500:]
            raise FormatError(f"[export] the exported C program disagrees: {said}")
        by = f" by {Path(self.run[0]).name}" if self.run else ""
        return f"{words} and run{by}", done.stdout


#: What every exported main begins with where vectors lie in SVE registers.
SVE_LENGTH = """\
#include <stdio.h>
#include <sys/prctl.h>

/* The kernel is for SVE registers of exactly {bits} bits; wider ones are narrowed for this thread. */
static int vectors_fit(void) {{
  const int length = prctl(PR_SVE_SET_VL, {bits} / 8);
  if (length >= 0 && (length & PR_SVE_VL_LEN_MASK) == {bits} / 8) return 1;
  fprintf(stderr, "this CPU has no SVE registers of {bits} bits\\n");
  return 0;
}}
"""


def vector_check(target: Target | None) -> tuple[str, str]:
    """C before main, and its first statement: what a program must see to about the CPU."""
    bits = target.cpu.scalable_bits if target is not None else 0
    if not bits:
        return "", ""
    return SVE_LENGTH.format(bits=bits), "  if (!vectors_fit()) return 3;\n"


@dataclass(frozen=True)
class Interface:
    """How a kernel's machine code is called; see `op.h` of a C export.

    `void symbol(void* const* arguments, void* workspace, parallel, pool)` with a null `parallel`
    computes in the caller. `arguments` are row-major buffers, inputs then outputs; `workspace` is
    64-byte aligned memory of `workspace_bytes`.
    """

    symbol: str
    workspace_bytes: int
    dtype: str
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, kernel: Kernel | KernelObject) -> Interface:
        operator, shapes = kernel.operator, kernel.shapes
        return cls(
            symbol=kernel.symbol,
            workspace_bytes=kernel.workspace_bytes,
            dtype=kernel.dtype,
            inputs=tuple((name, shapes[name]) for name in operator.inputs),
            outputs=tuple((name, shapes[name]) for name in operator.outputs),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


#: Instruction sets as LLVM names them, and as Linux lists them in /proc/cpuinfo: those that kernels may be made of.
INSTRUCTIONS = {
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "popcnt": "popcnt",
    "avx": "avx",
    "f16c": "f16c",
    "avx2": "avx2",
    "fma": "fma",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "lzcnt": "abm",
    "movbe": "movbe",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512bw": "avx512bw",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512ifma": "avx512ifma",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avxvnni": "avx_vnni",
}


def instructions() -> list[str]:
    """The instruction sets that kernels of this process may use, in Linux's names."""
    from syno import _core

    enabled = set(_core.host_cpu().enabled)
    return [linux for llvm, linux in INSTRUCTIONS.items() if llvm in enabled]


def c_compiler() -> str | None:
    """The C compiler: `CC`, else the first of cc, gcc and clang that is installed."""
    given = os.environ.get("CC")
    return next((c for c in (given, "cc", "gcc", "clang") if c and shutil.which(c)), None)


def run_archiver(arguments: list[str], directory: Path) -> None:
    """Puts objects into a static library, the first argument; FormatError where there is no ar."""
    run_compiler(os.environ.get("AR") or "ar", ["rcsD", *arguments], directory)


def run_compiler(compiler: str, arguments: list[str], directory: Path) -> None:
    """Runs the compiler, or another tool; FormatError with its first complaint."""
    try:
        done = subprocess.run(
            [compiler, *arguments],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FormatError(f"[export] {compiler} did not run: {error}") from error
    if done.returncode != 0:
        complaint = (done.stderr.strip() or "no message").splitlines()[0]
        raise FormatError(f"[export] {compiler} {' '.join(arguments)} failed: {complaint}")


def link_library(kernel: Kernel | KernelObject, library: Path, compiler: str | None = None) -> None:
    """Writes the kernel's object as a shared library; by default with this machine's compiler.

    Raises:
        FormatError: there is none.
    """
    compiler = compiler or c_compiler()
    if compiler is None:
        raise FormatError(
            "[export] no C compiler (cc, gcc or clang) is installed to link kernels with: "
            "apt-get install gcc libc6-dev"
        )
    library.parent.mkdir(parents=True, exist_ok=True)
    source = library.with_suffix(".o")
    source.write_bytes(kernel.object_bytes())
    try:
        run_compiler(
            compiler, ["-shared", "-nostartfiles", "-o", library.name, source.name], library.parent
        )
    finally:
        source.unlink(missing_ok=True)
