"""Kernels for ranges of sizes: beside kernels for one size, and how long a size takes that nobody called before."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reusebench.ranged_cases import LAYERS, ONE
from syno.operators.operator import Operator

KERNELS = ONE | LAYERS

#: Of one size from 1 to 512.
SIZES = (8, 17, 24, 33, 48, 64, 100, 128, 200, 256, 300, 384, 500, 512)
#: Of a layer's, from the least (0) to the greatest: all of them at the same part.
_PARTS = (0.0, 0.3, 0.63, 1.0)
#: Seconds of a sample, and bytes that arrays begin at a multiple of.
_SAMPLE_S, _ALIGNED = 5e-4, 64

Array = NDArray[np.float32]


def ranged(names: list[str], *, turns: int, show: bool, few: int | None = None) -> dict[str, Any]:
    """Rows by operator: at each size the time of the kernel for that size over that of the one for the range.

    Args:
        few: sizes of each, from the least on; default all.
    """
    rows: dict[str, Any] = {}
    for name in names:
        text, sizes, ranges = KERNELS[name]
        operator = Operator.parse(text, **sizes)
        tried = _tried(name)[:few]
        with empty_cache():
            row = {"ranges": ranges, **_first_calls(operator, ranges, tried)}
        row["sizes"] = _beside(operator, ranges, tried, turns)
        row["speed"] = statistics.geometric_mean(found["speed"] for found in row["sizes"].values())
        rows[name] = row
        if show:
            print(f"{name}: {_said(row)}", flush=True)
    return {"kernels": rows, "summary": _summary(rows)}


def _tried(name: str) -> list[dict[str, int]]:
    ranges = KERNELS[name][2]
    if name in ONE:
        return [dict.fromkeys(ranges, size) for size in SIZES]
    return [
        {size: round(low + part * (high - low)) for size, (low, high) in ranges.items()}
        for part in _PARTS
    ]


def _said(row: dict[str, Any]) -> str:
    least = min(row["sizes"].items(), key=lambda one: one[1]["speed"])
    return (
        f"{row['buckets']} ranges, speed {row['speed']:.3f} of kernels for one size (least {least[1]['speed']:.3f} at "
        f"{least[0]}); a first call {row['there_ms']:.3f} ms with the range's code there, "
        f"{row['made_ms']:.1f} ms (greatest {row['made_most_ms']:.1f}) where it is made"
    )


def _summary(rows: dict[str, Any]) -> dict[str, float]:
    speeds = [found["speed"] for row in rows.values() for found in row["sizes"].values()]
    made = sorted(ms for row in rows.values() for ms in row["first_made_ms"])
    there = [ms for row in rows.values() for ms in row["first_there_ms"]]
    found = {"speed": statistics.geometric_mean(speeds), "least speed": min(speeds)}
    if made:
        found["first call, code made: median ms"] = statistics.median(made)
        found["first call, code made: 95 % ms"] = made[min(len(made) - 1, int(0.95 * len(made)))]
    if there:
        found["first call, code there: median ms"] = statistics.median(there)
    return found


@contextmanager
def empty_cache() -> Iterator[None]:
    before = os.environ.get("SYNO_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SYNO_CACHE"] = str(Path(folder) / "cache")
        try:
            yield
        finally:
            if before is None:
                del os.environ["SYNO_CACHE"]
            else:
                os.environ["SYNO_CACHE"] = before


def _first_calls(
    operator: Operator, ranges: dict[str, tuple[int, int]], tried: list[dict[str, int]]
) -> dict[str, Any]:
    """Milliseconds until a call of a new size can be made, of this thread's time, which does all of it: where its range has
    code, and where that is made first."""
    kernel = operator.compile(dynamic=ranges)
    made: list[float] = []
    there: list[float] = []
    for sizes in tried:
        beside = {
            size: value + 1 if value < ranges[size][1] else value - 1
            for size, value in sizes.items()
        }
        for at in (sizes, beside):
            ready = kernel.ready
            begin = time.thread_time()
            kernel.at(**at)
            took = 1e3 * (time.thread_time() - begin)
            (made if len(ready) < len(kernel.ready) else there).append(took)
    return {
        "buckets": len(kernel.buckets),
        "first_made_ms": made,
        "first_there_ms": there,
        "made_ms": statistics.median(made) if made else 0.0,
        "made_most_ms": max(made, default=0.0),
        "there_ms": statistics.median(there) if there else 0.0,
    }


def _beside(
    operator: Operator,
    ranges: dict[str, tuple[int, int]],
    tried: list[dict[str, int]],
    turns: int,
) -> dict[str, dict[str, float]]:
    kernel = operator.compile(dynamic=ranges)
    rng = np.random.default_rng(0)
    found = {}
    for sizes in tried:
        alone = operator.with_sizes(**sizes)
        static, shared = alone.compile(), kernel.at(**sizes)
        given = [_array(alone.shapes[name], rng) for name in alone.inputs]
        out = _array(alone.shapes[alone.outputs[0]], rng)
        # Both are called in the same way: arrays in, `out` given.
        times = _in_turns(
            lambda static=static, given=given, out=out: static(*given, out=out),  # type: ignore[misc]
            lambda shared=shared, given=given, out=out: shared(*given, out=out),  # type: ignore[misc]
            turns,
        )
        found[", ".join(f"{size} = {value}" for size, value in sizes.items())] = {
            "static_us": times[0],
            "us": times[1],
            "speed": times[0] / times[1],
        }
    return found


def _array(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Random numbers from the beginning of a cache line on, as PyTorch's tensors are."""
    count = int(np.prod(shape))
    memory = np.empty(count + _ALIGNED, np.float32)
    begin = -memory.ctypes.data // 4 % (_ALIGNED // 4)
    array = memory[begin : begin + count].reshape(shape)
    array[...] = rng.standard_normal(shape)
    return array


def _in_turns(one: Callable[[], Any], other: Callable[[], Any], turns: int) -> tuple[float, float]:
    """The least microseconds of a call of each, of samples taken in turns: whatever else runs only adds."""
    one()
    other()
    begin = time.perf_counter()
    one()
    calls = max(1, int(_SAMPLE_S / max(time.perf_counter() - begin, 1e-7)))
    least = [float("inf")] * 2
    for _ in range(turns):
        for place, call in enumerate((one, other)):
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            least[place] = min(least[place], 1e6 * (time.perf_counter() - begin) / calls)
    return least[0], least[1]


__all__ = ["KERNELS", "ranged"]
