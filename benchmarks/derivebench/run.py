"""Measures one case: the derived program, our kernel of the original one, and every peer, in turns."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from kernelbench.cases import Case
from kernelbench.forms import difference, inputs_of
from kernelbench.peers import compiled_calls_only, result_array
from kernelbench.results import Settings
from kernelbench.run import _bound, _peers, _worth_turns

import syno
from syno.deriving import Derived
from syno.errors import SynoError
from syno.timing.bench import Timing, measure

#: The contestant with derived kernels; ours without is "syno".
DERIVED = "derived"


@dataclass
class Result:
    """Times are medians of a call in microseconds, ratios medians over turns: above 1 the derived program is faster."""

    name: str
    klass: str
    expr: str
    search_s: float
    steps: list[str]
    exact: bool
    multiply_adds: tuple[int, int]
    """Of a call of the original and of the derived program."""
    max_rel_err: float | None
    underived_us: float
    derived_us: float
    ratio_to_underived: float
    predicted_us: float | None = None
    states: int = 0
    candidates: int = 0
    constant_bytes: tuple[int, int] = (0, 0)
    cold_us: tuple[float, float] | None = None
    """A call of our original and of the derived program where weights and data come from memory."""
    best_peer: str | None = None
    best_peer_us: float | None = None
    ratio_to_best_peer: float | None = None
    peers_us: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return dict(json.loads(json.dumps(asdict(self))))


def run_case(case: Case, settings: Settings, seconds: float, finalists: int) -> Result:
    """Derives, verifies and times a case; where nothing derived is faster, the original stands for it.

    Raises:
        SynoError: there is no kernel of it.
    """
    operator = case.operator
    tensors = inputs_of(case)
    found = syno.derive(
        operator,
        seconds=seconds,
        constants=case.constant,
        threads=settings.threads,
        measure=finalists,
    )
    best = found.best()
    kernel = operator.compile(dtype=case.dtype, threads=settings.threads)
    absent: dict[str, str] = {}
    contestants: dict[str, Callable[[], Any]] = {
        "syno": _bound(kernel, case, tensors, settings.threads)
    }
    expected = result_array(contestants["syno"].result())  # type: ignore[attr-defined]
    contestants |= _peers(case, tensors, expected, settings, absent, lambda number: None)
    with torch.inference_mode(), compiled_calls_only():
        kept = _worth_turns(contestants, settings, absent)
        if best.path:
            kept[DERIVED] = _derived(best, case, tensors, expected)
        timings = timed(kept, settings)  # in the mode that peers were compiled for
        cold = [_cold_us(kept[name], settings) for name in ("syno", DERIVED) if name in kept]
    return result_of(
        case,
        timings,
        absent,
        cold_us=(cold[0], cold[-1]),
        search_s=found.seconds,
        states=found.states,
        candidates=len(found) - 1,
        steps=[f"{rule} {site}" for rule, site in best.path],
        exact=best.exact,
        multiply_adds=(found.original.multiply_adds, best.multiply_adds),
        constant_bytes=best.constant_bytes,
        max_rel_err=best.max_rel_err,
        predicted_us=best.predicted_us,
    )


def timed(contestants: dict[str, Callable[[], Any]], settings: Settings) -> list[Timing]:
    """All in turns."""
    with compiled_calls_only():
        return measure(
            contestants,
            turns=settings.turns,
            min_sample_s=1e-3,
            timeout_s=settings.limit_s,
            threads=settings.threads,
        )


def result_of(
    case: Case, timings: Sequence[Timing], absent: dict[str, str], **found: Any
) -> Result:
    """What times say, our kernel of the original program first among them."""
    times = {timing.name: timing.median_us for timing in timings}
    # Speed-ups refer to our kernel of the original program.
    gains = {timing.name: timing.speed_up for timing in timings}
    own = gains.get(DERIVED, 1.0)
    peers = {name: us for name, us in times.items() if name not in ("syno", DERIVED)}
    first = min(peers, key=lambda name: peers[name], default=None)
    return Result(
        name=case.name,
        klass=case.klass,
        expr=case.operator.expr,
        underived_us=times["syno"],
        derived_us=times.get(DERIVED, times["syno"]),
        ratio_to_underived=own,
        best_peer=first,
        best_peer_us=None if first is None else peers[first],
        ratio_to_best_peer=None if first is None else own / gains[first],
        peers_us=peers,
        absent=absent,
        **found,
    )


def _cold_us(call: Callable[[], Any], settings: Settings, calls: int = 9) -> float:
    """Median microseconds of a call after all caches were filled with something else."""
    cache = max(level.usable_bytes for level in settings.machine.levels[:-1])
    other = np.ones(2 * cache // 8)
    times = []
    for _ in range(calls):
        other.sum()
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def _derived(
    best: Derived, case: Case, tensors: list[torch.Tensor], expected: Any
) -> Callable[[], Any]:
    """A call of the derived program on these tensors, its constants packed before; compared with the original's result.

    Raises:
        SynoError: it computes something else.
    """
    kernel = best.prepack()
    values = dict(zip(case.operator.inputs, tensors, strict=True))
    packed = kernel.pack(**{name: values[name] for name in kernel.constants})
    out = torch.empty(expected.shape)
    data = [values[name] for name in kernel.data]
    got = packed(*data, out=out)
    worst = difference(result_array(got), expected)
    if worst > 1e-3:
        raise SynoError(f"[derive] {case.name}: the derived kernel differs by {worst:.1e}")
    named = {name: tensor.data_ptr() for name, tensor in values.items()}
    named[case.operator.outputs[0]] = out.data_ptr()
    pointers = [named[name] if at is None else at for name, at in packed.arguments()]
    code, threads = packed.unchecked, kernel.runs_on
    held = (packed, values, out)

    def call(keep: Any = held) -> None:
        code(pointers, threads)

    return call
