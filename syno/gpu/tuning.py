"""Tiles chosen by measuring: of each kernel of a text, those candidates that are predicted to be fast are timed on the GPU."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from syno import _core
from syno.errors import KernelError, told
from syno.gpu.texts import loaded
from syno.support.notebook import Printed
from syno.support.numbers import significant

_log = logging.getLogger("syno.gpu")

#: A text of other tiles: for each scope, which candidate in the order of predicted times.
Writer = Callable[[Sequence[int]], _core.TritonText]
#: Seconds of each kernel of a text, in order.
Measure = Callable[[_core.TritonText], Sequence[float]]

#: Cycles that the device is kept busy while launches queue up behind, so that events enclose nothing but kernels.
_BUSY_CYCLES = 1_500_000


@dataclass(frozen=True)
class TunedKernel:
    """A kernel before and after."""

    part: str
    """``"forward"`` or ``"gradients"``."""
    kernel: _core.TritonKernel
    """The one that was chosen."""
    rank: int
    """Its place in the order of predicted times, from 0."""
    seconds: float
    first_seconds: float
    """Of the one that is predicted to be the fastest, of those that ran."""
    measured: int
    """Candidates that ran; others did not fit the GPU."""


@dataclass(frozen=True)
class TritonTuning(Printed):
    """What :meth:`TritonOperator.tune` measured, a kernel a line."""

    kernels: tuple[TunedKernel, ...]
    where: str

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.kernels)

    @property
    def first_seconds(self) -> float:
        return sum(each.first_seconds for each in self.kernels)

    def __str__(self) -> str:
        lines = [f"on {self.where}: {significant(1e6 * self.first_seconds)} us before, "]
        lines[0] += f"{significant(1e6 * self.seconds)} us after"
        for each in self.kernels:
            change = f"{significant(1e6 * each.first_seconds):>8} -> {significant(1e6 * each.seconds):>8} us"
            lines.append(f"{each.part:9} {change}  {each.kernel}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {
                "part": each.part,
                "kernel": repr(each.kernel),
                "rank": each.rank,
                "us": 1e6 * each.seconds,
                "first_us": 1e6 * each.first_seconds,
                "measured": each.measured,
            }
            for each in self.kernels
        ]
        return {"where": self.where, "kernels": rows}


def tuned(
    write: Writer, measure: Measure, candidates: int, part: str
) -> tuple[_core.TritonText, list[TunedKernel]]:
    """The text of the fastest candidate of each kernel. Kernels do not depend on one another's tiles, so that a run times a
    candidate of each.

    Raises:
        KernelError: none of the texts runs; that of the first.
    """
    kernels = len(write([]).kernels)
    ran: list[tuple[int, _core.TritonText, Sequence[float]]] = []
    failed = None
    for rank in range(candidates):
        text = write([rank] * kernels)
        try:
            ran.append((rank, text, measure(text)))
        except KernelError as error:  # more shared memory than predicted, say
            _log.warning("%s: candidate %d is left out: %s", part, rank, error)
            failed = failed or error
    if failed is not None and not ran:
        raise failed
    chosen, rows = [], []
    for k, before in enumerate(ran[0][2]):
        rank, text, times = min(ran, key=lambda each, k=k: each[2][k])  # type: ignore[misc]
        chosen.append(rank)
        rows.append(TunedKernel(part, text.kernels[k], rank, times[k], before, len(ran)))
    return write(chosen), rows


def measured_on(tensors: Sequence[Tensor], limit: float, turns: int = 5) -> Measure:
    """Times kernels on the device of some tensors; the results of each text must be those of the first, by `limit` of the
    largest value.

    Raises:
        KernelError: of the measuring: a text does not run there, or computes something else.
    """
    wanted: list[Tensor] = []

    def measure(text: _core.TritonText) -> list[float]:
        module = loaded(text.source)
        try:
            results = module.run(*tensors)
        except Exception as error:  # whatever Triton and CUDA raise
            raise KernelError(f"[gpu] the kernels do not run: {told(error)}") from error
        if not wanted:
            wanted.extend(results)
        for got, first in zip(results, wanted, strict=True):
            scale = max(1e-30, float(first.abs().max())) if first.numel() else 1.0
            if first.numel() and not float((got - first).abs().max()) <= limit * scale:
                raise KernelError(f"[gpu] other tiles compute something else: {text.kernels}")
        return kernel_seconds(module, tensors, len(text.kernels), turns)

    return measure


def kernel_seconds(
    module: ModuleType, tensors: Sequence[Tensor], kernels: int, turns: int
) -> list[float]:
    """The least of some turns for each scope: its kernel, and the one that adds up its parts."""
    names = [name for name in vars(module) if name.startswith("scope_")]
    log: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
    plain = {name: getattr(module, name) for name in names}
    best = [float("inf")] * kernels
    try:
        for name, function in plain.items():
            setattr(module, name, _Enclosed(function, name, log))
        for _ in range(turns):
            log.clear()
            torch.cuda._sleep(_BUSY_CYCLES)  # type: ignore[no-untyped-call]
            module.run(*tensors)
            torch.cuda.synchronize()
            total = [0.0] * kernels
            for name, begin, end in log:
                total[int(name.split("_")[1]) - 1] += 1e-3 * begin.elapsed_time(end)
            best = [min(pair) for pair in zip(best, total, strict=True)]
    finally:
        for name, function in plain.items():
            setattr(module, name, function)
    return best


def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    return first, second


class _Enclosed:
    """A kernel whose launches are enclosed by events."""

    def __init__(self, function: Any, name: str, log: list[Any]) -> None:
        self._function, self._name, self._log = function, name, log

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        launch = self._function[grid]

        def enclosed(*arguments: Any, **options: Any) -> None:
            begin, end = _events()
            begin.record()
            launch(*arguments, **options)
            end.record()
            self._log.append((self._name, begin, end))

        return enclosed
