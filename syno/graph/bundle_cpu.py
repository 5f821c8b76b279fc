"""For which CPU the machine code of a bundle is, and whether this one can run it."""

from __future__ import annotations

import os
from pathlib import Path

from syno import _core
from syno.errors import KernelError
from syno.graph.bundle import MadeFor

#: Instruction sets that code of tensor programs may use, as LLVM names them: what else a CPU has does not matter.
_OF_VECTORS = frozenset(
    [
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "sse4a",
        "popcnt",
        "avx",
        "f16c",
        "avx2",
        "fma",
        "fma4",
        "xop",
        "tbm",
        "bmi",
        "bmi2",
        "lzcnt",
        "movbe",
        "gfni",
        "avxvnni",
        "avxifma",
        "avxneconvert",
        "avxvnniint8",
        "avxvnniint16",
        "avx512f",
        "avx512cd",
        "avx512dq",
        "avx512bw",
        "avx512vl",
        "avx512vnni",
        "avx512vbmi",
        "avx512vbmi2",
        "avx512ifma",
        "avx512bf16",
        "avx512fp16",
        "avx512bitalg",
        "avx512vpopcntdq",
        "neon",
        "fp-armv8",
        "fullfp16",
        "fp16",
        "bf16",
        "dotprod",
        "i8mm",
        "lse",
        "rdm",
        "sve",
        "sve2",
        "sme",
    ]
)


def made_for(cpu: _core.Cpu) -> MadeFor:
    """What a CPU must have to run code that was made for this one."""
    needs = [name for name in cpu.enabled if name in _OF_VECTORS]
    return MadeFor(cpu.triple, cpu.name, cpu.vector_bits, cpu.scalable_bits, needs)


def require_cpu(folder: Path, wanted: MadeFor) -> None:
    """Refuses a bundle for another CPU; where `SYNO_CPU` names one, for another than that, too.

    Raises:
        KernelError: what this CPU lacks.
    """
    named = [_core.host_cpu()] if os.environ.get("SYNO_CPU") else []
    for cpu in (*named, _core.cpu_named("host")):
        missing = [name for name in wanted.needs if name not in cpu.enabled]
        here = f"this CPU ({cpu.name})"
        if wanted.triple.split("-")[0] != cpu.triple.split("-")[0]:
            lack = f"{here} is one of {cpu.triple.split('-')[0]}"
        elif missing:
            lack = f"{here} has no {', '.join(missing)}"
        elif wanted.vector_bits > cpu.vector_bits:
            lack = (
                f"{here} computes with vectors of {cpu.vector_bits} bits, not {wanted.vector_bits}"
            )
        elif wanted.scalable_bits not in (0, cpu.scalable_bits):
            lack = (
                f"{here} has SVE registers of {cpu.scalable_bits} bits, not {wanted.scalable_bits}"
            )
        else:
            continue
        raise KernelError(
            f"[bundle] {folder} holds machine code for {described(wanted)}; {lack}: export the model again on a machine "
            "like this one"
        )


def described(cpu: MadeFor) -> str:
    """For people."""
    vectors = [name for name in cpu.needs if name.startswith(("avx", "fma", "sve", "neon"))]
    return f"{cpu.name} ({', '.join(vectors)})" if vectors else cpu.name
