"""Candidates of a search: what it takes to know their latency, valuation by valuation, and what a shared sketch would cost.

An operator is one program at several valuations, one for each layer that it replaces. For each candidate: processor seconds
of its valuations' stages (prediction, construction, machine code, check), seconds of `syno.latency` from an empty cache, and
what the other valuations would be predicted to take with sketch and numbers of the first one, over what they are
constructed to.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import syno
from reusebench.ranged import empty_cache
from syno import _core
from syno.errors import SynoError
from syno.kernels.construct import ScopeQuestion, construct
from syno.known.operators import Place, known_operators
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.tuning.latency import latency
from syno.tuning.predict import predict

#: Networks and the side of their images.
NETWORKS = {"cifar_resnet18": 32, "resnet18": 224, "mobilenet_v2": 224}
#: Known operators, the first of each name, beside those that are drawn.
_KNOWN = ("grouped", "bottleneck", "separable")

Chosen = dict[str, tuple[str, dict[str, int]]]


def candidates(names: Sequence[str], *, drawn: int, show: bool) -> dict[str, Any]:
    """Rows by operator of these networks.

    Args:
        drawn: operators that are sampled from each group's space.
    """
    machine_model()  # measured where nothing is known of it: before the caches are empty
    rows: dict[str, Any] = {}
    for name, operator in _operators(names, drawn):
        rows[name] = row = _row(operator)
        if show:
            print(f"{name}: {_said(row)}", flush=True)
    return {"candidates": rows, "summary": _summary(rows)}


def _operators(names: Sequence[str], drawn: int) -> Iterator[tuple[str, Operator]]:
    import torch

    from syno.models import make

    for name in names:
        side = NETWORKS[name]
        for group in syno.sites(make(name), torch.zeros(1, 3, side, side)).groups():
            if group.key == "linear":
                continue
            for i, operator in enumerate(syno.sample(group.space(), drawn)):
                yield f"{name}, {group.key}, drawn {i}", operator
            place = Place(_core.Spec.from_json(group.to_json()), group.window)
            seen: set[str] = set()
            for known in known_operators(place, _KNOWN):
                if known.graph is not None and known.kind not in seen:
                    seen.add(known.kind)
                    yield f"{name}, {group.key}, {known.label}", Operator.from_pgraph(known.graph)


def _row(operator: Operator) -> dict[str, Any]:
    found = latency(operator, batch=1, measured=False)
    predicted_s = found.seconds
    with empty_cache():
        measured_s = latency(operator, batch=1).seconds
    programs = _programs(operator)
    return {
        "valuations": len(programs),
        "predicted_s": predicted_s,
        "measured_s": measured_s,
        "stages_ms": _stages(programs),
        "sketch of the first": _shared(programs),
    }


def _programs(operator: Operator) -> list[_core.Program]:
    """At its different valuations, one example a call."""
    found: dict[str, _core.Program] = {}
    for i in range(operator.valuation_count):
        one = operator.at(i)
        name = one.data[0]
        shapes = {each: (1, *one.shapes[each][1:]) for each in (name, *one.outputs)}
        program = one.for_shapes(shapes).program
        found.setdefault(str(program.text()), program)
    return list(found.values())


def _stages(programs: Sequence[_core.Program]) -> dict[str, float]:
    """Processor milliseconds of all valuations together."""
    spent = dict.fromkeys(("predict", "construct", "compile", "check"), 0.0)

    @contextlib.contextmanager
    def timed(stage: str) -> Iterator[None]:
        start = time.process_time()
        yield
        spent[stage] += 1e3 * (time.process_time() - start)

    for program in programs:
        with timed("predict"):
            predict(program)
        with timed("construct"):
            made = construct(program, explain=False)
        nest = _core.apply_schedule(program, made.schedule)
        with timed("compile"):
            kernel = _core.compile_nest(nest, cache_directory="", fresh=True)
        with timed("check"):
            kernel.verify(program, 0)
    return spent


def _shared(programs: Sequence[_core.Program]) -> list[float]:
    """Of each valuation but the first: predicted with sketches and numbers of the first one where it has them, or by
    count where that is faster, over constructed."""
    if len(programs) < 2:
        return []
    chosen = _chosen(programs[0])
    ratios = []
    for program in programs[1:]:
        own = construct(program, explain=False).predicted_s
        least = construct(program, policy="counted", explain=False).predicted_s
        for numbers in (True, False):
            with contextlib.suppress(SynoError):  # no kernel has these numbers here
                made = construct(program, policy=_as_chosen(chosen, numbers), explain=False)
                least = min(made.predicted_s, least)
        ratios.append(least / own)
    return ratios


def _chosen(program: _core.Program) -> Chosen:
    """Sketch and numbers by scope."""
    document = json.loads(construct(program).to_json())
    found: Chosen = {}
    for scope in document["scopes"]:
        name, *numbers = scope["choice"].split(" [")[0].split()
        pairs = (number.split("=") for number in numbers)
        found[scope["scope"]] = (name, {key: int(value) for key, value in pairs})
    return found


def _as_chosen(
    chosen: Chosen, numbers: bool
) -> Callable[[ScopeQuestion], tuple[int | str, dict[str, int]]]:
    def answer(question: ScopeQuestion) -> tuple[int | str, dict[str, int]]:
        name, values = chosen.get(question.scope, ("", {}))
        for sketch in question.sketches:
            if sketch.name == name:
                known = dict(sketch.choices)
                kept = {k: v for k, v in values.items() if v in list(known.get(k, ()))}
                return name, kept if numbers else {}
        cycles = [sketch.cycles for sketch in question.sketches]
        return cycles.index(min(cycles)), {}

    return answer


def _said(row: dict[str, Any]) -> str:
    stages = ", ".join(f"{name} {ms:.0f}" for name, ms in row["stages_ms"].items())
    return (
        f"{row['valuations']} valuations, predicted in {row['predicted_s']:.3f} s, measured in {row['measured_s']:.2f} s; "
        f"ms of {stages}"
    )


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "lower quartile": ordered[len(ordered) // 4],
        "upper quartile": ordered[3 * len(ordered) // 4],
        "most": ordered[-1],
    }


def _summary(rows: dict[str, Any]) -> dict[str, Any]:
    valuations = sum(row["valuations"] for row in rows.values())
    shared = [ratio for row in rows.values() for ratio in row["sketch of the first"]]
    stages = next(iter(rows.values()))["stages_ms"]
    return {
        "predicted, s a candidate": _spread([row["predicted_s"] for row in rows.values()]),
        "measured, s a candidate": _spread([row["measured_s"] for row in rows.values()]),
        "processor ms a valuation": {
            stage: sum(row["stages_ms"][stage] for row in rows.values()) / valuations
            for stage in stages
        },
        "sketch of the first over constructed": _spread(shared) if shared else {},
        "no slower": sum(ratio <= 1 for ratio in shared) / max(1, len(shared)),
    }
