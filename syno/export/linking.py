"""Objects to shared libraries by the system's C compiler, and what a caller must know to run one."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from syno.errors import FormatError
from syno.kernel import Kernel

_TIMEOUT_S = 120


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
    def of(cls, kernel: Kernel) -> Interface:
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

    enabled = {word[1:] for word in _core.host_cpu().features.split(",") if word.startswith("+")}
    return [linux for llvm, linux in INSTRUCTIONS.items() if llvm in enabled]


def c_compiler() -> str | None:
    """The C compiler: `CC`, else the first of cc, gcc and clang that is installed."""
    given = os.environ.get("CC")
    return next((c for c in (given, "cc", "gcc", "clang") if c and shutil.which(c)), None)


def run_compiler(compiler: str, arguments: list[str], directory: Path) -> None:
    """Runs the compiler; FormatError with its first complaint."""
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


def link_library(kernel: Kernel, library: Path) -> None:
    """Writes the kernel's object as a shared library. Raises FormatError without a C compiler."""
    compiler = c_compiler()
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
