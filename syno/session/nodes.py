"""What a machine is, as far as it decides digits or refuses work: versions, instruction sets, its class."""

from __future__ import annotations

import functools
import os
import platform
import socket
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import msgspec

#: Instructions that libraries and kernels choose their code by; of two CPUs that agree in them, and in their maker, the
#: same code runs.
_INSTRUCTIONS = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512dq", "avx512bw", "avx512vl"),
    *("avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "fphp", "asimdhp", "bf16", "i8mm", "sve", "sve2"),
)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. ``numeric`` is its :func:`numeric_class`; ``problem`` says why it cannot do the session's work."""

    host: str
    python: str
    syno: str
    torch: str
    numeric: str
    cpu: str
    cores: int
    problem: str = ""


@functools.lru_cache(maxsize=1)
def numeric_class() -> str:
    """What a training's digits depend on beside program, data and seed: architecture, maker and instructions of the CPU,
    and the version of torch. The same text, the same digits."""
    maker, flags = _cpu()
    words = [platform.machine() or "unknown", maker]
    words += [name for name in _INSTRUCTIONS if name in flags]
    words += [f"SYNO_CPU={cpu}"] if (cpu := os.environ.get("SYNO_CPU")) else []
    return " ".join([*(word for word in words if word), f"torch-{version('torch')}"])


def _cpu() -> tuple[str, set[str]]:
    maker, flags = "", set[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "", flags
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("vendor_id", "CPU implementer") and not maker:
            maker = value.strip()
        elif name.strip() in ("flags", "Features") and not flags:
            flags = set(value.split())
    return maker, flags


@functools.lru_cache(maxsize=8)
def version(package: str) -> str:
    """Of an installed package; ``"none"`` where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        if package != "syno":
            return "none"
        import syno  # a checkout

        return str(syno.__version__)


def facts(problem: str = "") -> Facts:
    """This machine's."""
    from syno.support.machine import cpu_model, usable_cores

    return Facts(
        host=socket.gethostname(),
        python=platform.python_version(),
        syno=version("syno"),
        torch=version("torch"),
        numeric=numeric_class(),
        cpu=cpu_model(),
        cores=usable_cores(),
        problem=problem,
    )


def why_unfit(node: Facts, head: Facts) -> str:
    """Why a machine cannot work for a session of ``head``, in a sentence; empty where it can."""
    if _minor(node.python) != _minor(head.python):
        return f"{node.host} has Python {node.python}, the head {head.python}: install Python {_minor(head.python)} there"
    if node.syno != head.syno:
        return f"{node.host} has syno {node.syno}, the head {head.syno}: install syno {head.syno} there"
    return f"{node.host}: {node.problem}" if node.problem else ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def chosen_class(nodes: Sequence[Facts], before: str) -> str:
    """The numeric class that trainings run in: as before in this session, else this machine's where a node has it, else
    that of most cores; ``before`` where no node is of it."""
    classes = [node.numeric for node in nodes]
    if before or not classes:
        return before
    own = numeric_class()
    if own in classes:
        return own
    cores = {name: sum(n.cores for n in nodes if n.numeric == name) for name in classes}
    return min(cores, key=lambda name: (-cores[name], name))


def class_difference(one: str, other: str) -> str:
    """What of two numeric classes differs."""
    own, its = one.split(), other.split()
    only = [" ".join(w for w in words if w not in rest) for words, rest in ((own, its), (its, own))]
    return f"{only[0] or 'nothing more'} against {only[1] or 'nothing more'}"
