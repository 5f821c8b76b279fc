"""How wrong and how fast a derived program is, beside the original in the same turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from syno import _core
from syno.kernels.prepack import PrepackedKernel
from syno.operators.operator import Operator
from syno.timing.measuring import measuring

Array = np.ndarray[Any, Any]

_SPIKE = 1e4
#: The part of the second cache that constants may take and stay in it from call to call.
_STAYS = 0.5


def _normal(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return rng.standard_normal(shape)


def _positive(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return rng.random(shape)


def _smooth(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A wave along every axis: neighbours are nearly equal, as pixels are."""
    total = np.ones(shape)
    for axis, extent in enumerate(shape):
        phase, waves = rng.random(), 1 + rng.random()
        wave = np.sin(2 * np.pi * (waves * np.arange(extent) / max(extent, 1) + phase))
        total = total + wave.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return total


def _spike(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """One value of ten thousand among normal ones: what a tile of it spoils shows."""
    values = rng.standard_normal(shape)
    if values.size:
        values.reshape(-1)[int(rng.integers(values.size))] = _SPIKE
    return values


KINDS: dict[str, Callable[[tuple[int, ...], np.random.Generator], Array]] = {
    "normal": _normal,
    "positive": _positive,
    "smooth": _smooth,
    "spike": _spike,
}


class Judge:
    """Data of every kind and what the original makes of it in float64."""

    def __init__(self, original: Operator, dtype: str, threads: int) -> None:
        self.original = original
        self._threads = threads
        reference = original.compile("float64", threads=threads)
        self._cases: dict[str, tuple[dict[str, Array], list[Array]]] = {}
        for number, (kind, make) in enumerate(KINDS.items()):
            rng = np.random.default_rng([number, 20])
            data = {
                name: make(shape, rng).astype(np.float64 if dtype == "float64" else np.float32)
                for name, shape in original.shapes.items()
                if name in original.inputs
            }
            wanted = _listed(reference(*[data[n].astype(np.float64) for n in original.inputs]))
            # An exponential of the spike is beyond float64: that kind says nothing about this operator.
            if all(np.isfinite(each).all() for each in wanted):
                self._cases[kind] = (data, wanted)

    def errors(self, kernel: PrepackedKernel) -> dict[str, float]:
        """By kind of data the largest difference from float64, as a part of the output's largest value."""
        result = {}
        for kind, (data, wanted) in self._cases.items():
            packed = kernel.pack(**{name: data[name] for name in kernel.constants})
            got = _listed(packed(*[data[name] for name in kernel.data]))
            result[kind] = max(map(_difference, got, wanted), default=0.0)
        return result

    def times(self, kernels: Sequence[PrepackedKernel], turns: int) -> list[float]:
        """Median microseconds of a call of each, in turns, on data in cache."""
        from syno.timing.bench import measure

        _, calls = self._calls(kernels)
        named = {str(number): call for number, (call, _) in enumerate(calls)}
        return [t.median_us for t in measure(named, turns=turns, threads=self._threads)]

    def cold_times(self, kernels: Sequence[PrepackedKernel], turns: int) -> list[float] | None:
        """The same with constants in main memory; None where those of all kernels stay in the second cache anyway. Data and
        what kernels keep of intermediate results are near, as the kernel before has left them in a network."""
        from syno.machines.model import machine_model

        *caches, _ = machine_model(measure=True).levels
        data, calls = self._calls(kernels)
        stays = _STAYS * caches[min(1, len(caches) - 1)].usable_bytes
        if max(constants for _, constants in calls) <= stays:
            return None
        swept = 2 * max(level.usable_bytes for level in caches)
        near = [_workspace(kernel, self._threads) for kernel in kernels]
        return _cold([call for call, _ in calls], near, data, swept, turns)

    def _calls(
        self, kernels: Sequence[PrepackedKernel]
    ) -> tuple[list[Array], list[tuple[Callable[[], Any], int]]]:
        """What comes with a call, and calls with the bytes of their constants."""
        first = next(iter(self._cases.values()), None)
        arrays = self._any() if first is None else first[0]
        calls = []
        for kernel in kernels:
            packed = kernel.pack(**{name: arrays[name] for name in kernel.constants})
            given = [arrays[name] for name in kernel.data]
            outs = _listed(packed(*given))
            call = _call(packed, given, outs if len(outs) > 1 else outs[0])
            calls.append((call, packed.bytes))
        names = {name for kernel in kernels for name in kernel.data}
        return [arrays[name] for name in sorted(names)], calls

    def _any(self) -> dict[str, Array]:
        rng = np.random.default_rng(0)
        shapes = self.original.shapes
        return {name: rng.random(shapes[name]).astype(np.float32) for name in self.original.inputs}


def _workspace(kernel: PrepackedKernel, threads: int) -> int:
    shared, each = kernel.call.workspace_bytes
    return shared + threads * each


def _cold(
    calls: Sequence[Callable[[], Any]],
    near: Sequence[int],
    data: Sequence[Array],
    swept: int,
    turns: int,
) -> list[float]:
    """Median microseconds of each call after so many bytes of something else and then its workspace and data were read."""
    other = np.ones(swept // 8)
    times: list[list[float]] = [[] for _ in calls]
    with measuring():
        for _ in range(turns):
            for call, workspace, taken in zip(calls, near, times, strict=True):
                other.sum()
                _core.warm_workspace(workspace)
                for array in data:
                    array.sum()
                begin = perf_counter()
                call()
                taken.append(1e6 * (perf_counter() - begin))
    return [median(taken) for taken in times]


def _call(packed: Any, given: list[Array], out: Any) -> Callable[[], Any]:
    return lambda: packed(*given, out=out)


def _listed(result: Any) -> list[Array]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _difference(got: Array, wanted: Array) -> float:
    if not np.isfinite(got).all():
        return math.inf
    if not wanted.size:
        return 0.0
    largest = float(np.abs(wanted).max())
    apart = float(np.abs(got.astype(np.float64) - wanted).max())
    return apart / largest if largest else apart
