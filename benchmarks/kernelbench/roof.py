"""What a machine needs at least for a case."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelbench.cases import Case
from kernelbench.results import Settings
from syno.kernels.kernel import DTYPES
from syno.operators.operator import Operator


@dataclass(frozen=True)
class Roof:
    us: float
    read_us: float  # as if all bytes were read
    bound: str  # "compute", or the memory level that holds all bytes
    flops: float  # 2 a multiply-add
    bytes: float


def roof(case: Case, settings: Settings) -> Roof:
    """What the machine needs at least: its multiply-adds, or its bytes from the level that holds them all.

    A store reads its line before it writes it, so bytes that are written are counted by what writing and copying
    were measured to take, not by what reading takes.
    """
    operator, machine = case.operator, settings.machine
    element = DTYPES[case.dtype].itemsize
    flops = 2.0 * operator.flops
    sizes = {n: math.prod(shape) for n, shape in operator.shapes.items()}
    written = float(element * sum(sizes[name] for name in operator.outputs))
    read = float(element * sum(sizes.values())) - written
    if case.training:
        gradients = _derivative_flops(operator)
        flops += 2.0 * gradients
        read, written = read + written, read + written  # what was written is read by the gradients
    moved = read + written
    compute = flops / peak_gflops(case, settings) * 1e-3
    level = next((lv for lv in machine.levels if lv.bytes >= moved), machine.levels[-1])
    sharing = 1 if level.shared_by > 1 or level is machine.levels[-1] else settings.threads
    memory = level.seconds(read, written) / sharing * 1e6
    all_read = moved / (level.read_gbs * sharing) * 1e-3
    bound = "compute" if compute >= memory else str(level.name)
    return Roof(max(compute, memory), max(compute, all_read), bound, flops, moved)


def peak_gflops(case: Case, settings: Settings) -> float:
    """Of the multiply-adds that kernels use: bfloat16 is computed with in float32."""
    computed = max(4, DTYPES[case.dtype].itemsize)
    return float(settings.machine.peak_gflops(computed)) * settings.threads


def _derivative_flops(operator: Operator) -> int:
    return sum(
        Operator.from_program(operator.program.derivative(name)).flops for name in operator.inputs
    )
