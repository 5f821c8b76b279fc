"""``syno doctor``: what was found, and proof that kernels work here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from syno.support.fresh import python_command, python_environment

# Run in a child: an illegal instruction must be a line of the report, not the end of it.
_PROBE = """
import sys, syno
op = syno.Operator.parse(
    "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]", n=1, o=20, c=8, h=13, w=13, r=3, s=3
)
kernel = op.compile(dtype=sys.argv[1])
check = kernel.verify()
print(f"{check.max_rel_err:.2e}" if check.passed else "failed: " + check.detail)
sys.exit(0 if check.passed else 1)
"""


def _probe(dtype: str, cpu: str | None) -> dict[str, Any]:
    environment = python_environment()
    if cpu:
        environment["SYNO_CPU"] = cpu
    try:
        done = subprocess.run(
            python_command(_PROBE, dtype),
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "detail": "no answer within 120 s"}
    text = done.stdout.strip() or done.stderr.strip().splitlines()[-1:] or [""]
    detail = text if isinstance(text, str) else text[0]
    if done.returncode < 0:
        detail = f"killed by signal {-done.returncode}"
    return {"ok": done.returncode == 0, "detail": detail}


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def examine(*, measure: bool = False) -> dict[str, Any]:
    """Everything ``syno doctor`` shows; ``usable`` is false when a kernel could not be built or is wrong.

    Args:
        measure: measure the machine's rates again, even if a file has them.
    """
    from syno import _core
    from syno.config import cache_directory
    from syno.kernels.kernel import DTYPES
    from syno.machines.model import describe, machine_file, machine_model
    from syno.support.machine import describe_machine

    cpu, directory = _core.host_cpu(), cache_directory()
    kernels = {dtype: _probe(dtype, None) for dtype in DTYPES}
    for name in ("x86-64-v3", "generic"):
        kernels[f"float32 on {name}"] = _probe("float32", name)
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "cpu": {"name": cpu.name, "vector_bits": cpu.vector_bits, "features": cpu.features},
        "llvm": _core.llvm_version(),
        "cache_directory": str(directory or ""),
        "cache_writable": directory is not None and _writable(directory),
        "kernels": kernels,
        "machine_file": str(machine_file() or ""),
        "machine_model": describe(machine_model(measure=True, fresh=measure)),
    }
    try:
        import torch

        report["torch"] = {
            "version": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "cuda": torch.cuda.is_available(),
        }
    except ImportError:
        report["torch"] = None
    report["usable"] = all(kernels[dtype]["ok"] for dtype in DTYPES)
    return report
