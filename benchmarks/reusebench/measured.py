"""Reuse on this machine beside its controls: pairs of ten types of operators, and operator sets of networks."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import syno
from syno import _core
from syno.kernels.construct import construct
from syno.tuning.network import SELECTIONS
from syno.tuning.records import RecordStore
from syno.tuning.reuse import Operator, operator_set
from syno.tuning.reuse.candidates import candidates_for
from syno.tuning.reuse.selection import TOP_K
from syno.tuning.reuse.shapes import comparable, shape_of
from syno.tuning.reuse.transplant import transplanted
from syno.tuning.search import Tuned, default_options, measure_given, tune

#: By the paper's name: a program, and the sizes of the one that is tuned and of the one that reuses it.
PAIRS: dict[str, tuple[str, dict[str, int], dict[str, int]]] = {
    "C1D": (
        "y[n,o,h] = sum[c,r] x[n,c,h+r-1] * k[o,c,r]",
        {"n": 1, "o": 64, "c": 64, "h": 128, "r": 3},
        {"n": 1, "o": 96, "c": 64, "h": 128, "r": 3},
    ),
    "C2D": (
        "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
        {"n": 1, "o": 64, "c": 64, "h": 28, "w": 28, "r": 3, "s": 3},
        {"n": 1, "o": 64, "c": 32, "h": 14, "w": 14, "r": 3, "s": 3},
    ),
    "C3D": (
        "y[n,o,d,h,w] = sum[c,t,r,s] x[n,c,d+t-1,h+r-1,w+s-1] * k[o,c,t,r,s]",
        {"n": 1, "o": 16, "c": 16, "d": 8, "h": 14, "w": 14, "t": 3, "r": 3, "s": 3},
        {"n": 1, "o": 32, "c": 16, "d": 8, "h": 14, "w": 14, "t": 3, "r": 3, "s": 3},
    ),
    "BMM": (
        "y[b,m,n] = sum[k] a[b,m,k] * c[b,n,k]",
        {"b": 4, "m": 64, "n": 64, "k": 64},
        {"b": 12, "m": 128, "n": 128, "k": 64},
    ),
    "GRP": (
        "y[n,g,o,h,w] = sum[c,r,s] x[n,g,c,h+r-1,w+s-1] * k[g,o,c,r,s]",
        {"n": 1, "g": 2, "o": 32, "c": 32, "h": 28, "w": 28, "r": 3, "s": 3},
        {"n": 1, "g": 2, "o": 32, "c": 32, "h": 14, "w": 14, "r": 3, "s": 3},
    ),
    "DEP": (
        "y[n,c,h,w] = sum[r,s] x[n,c,h+r-1,w+s-1] * k[c,r,s]",
        {"n": 1, "c": 96, "h": 28, "w": 28, "r": 3, "s": 3},
        {"n": 1, "c": 144, "h": 56, "w": 56, "r": 3, "s": 3},
    ),
    "T2D": (
        "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-2,w+s-2] * k[c,o,r,s]",
        {"n": 1, "o": 32, "c": 64, "h": 16, "w": 16, "r": 4, "s": 4},
        {"n": 1, "o": 16, "c": 32, "h": 16, "w": 16, "r": 4, "s": 4},
    ),
    "CAP": (
        "y[n,h,w,i,j,o] = sum[r,s,l,c] x[n,h+r-1,w+s-1,i,l,c] * k[r,s,l,j,c,o]",
        {"n": 1, "h": 8, "w": 8, "i": 4, "j": 4, "o": 16, "r": 3, "s": 3, "l": 4, "c": 16},
        {"n": 2, "h": 8, "w": 8, "i": 4, "j": 4, "o": 32, "r": 3, "s": 3, "l": 4, "c": 16},
    ),
    "WIN": (
        "y[u,p,o] = sum[c] a[u,p,c] * k[u,c,o]",
        {"u": 16, "p": 49, "o": 64, "c": 64},
        {"u": 16, "p": 196, "o": 64, "c": 64},
    ),
    "FRB": (
        "t[b] = sum[i,j] x[b,i,j] * x[b,i,j]; y[b] = sqrt(t[b])",
        {"b": 1, "i": 128, "j": 128},
        {"b": 4, "i": 256, "j": 128},
    ),
}


def program_of(operator: Operator) -> _core.Program | None:
    """A program of an operator of the paper's sets; None of a type that is none here."""
    e, s = operator.extents, operator.stride
    match operator.type:
        case "conv1d":
            text, names = f"y[n,o,w] = sum[c,q] x[n,c,{s}*w+q] * k[o,c,q]", "nowcq"
        case "conv2d":
            text = f"y[n,o,h,w] = sum[c,r,q] x[n,c,{s}*h+r,{s}*w+q] * k[o,c,r,q]"
            names = "nohwcrq"
        case "conv3d":  # the paths of R(2+1)D: along time, along space, or neither
            time, space = (s if e[6] > 1 or e[7] == 1 else 1), (s if e[7] > 1 or e[6] == 1 else 1)
            text = f"y[n,o,d,h,w] = sum[c,t,r,q] x[n,c,{time}*d+t,{space}*h+r,{space}*w+q] * k[o,c,t,r,q]"
            names = "nodhwctrq"
        case "group_conv2d":
            text = f"y[n,g,o,h,w] = sum[c,r,q] x[n,g,c,{s}*h+r,{s}*w+q] * k[g,o,c,r,q]"
            names = "ngohwcrq"
            e = (e[0], operator.groups, e[1] // operator.groups, *e[2:])
        case "depthwise_conv2d":
            text = f"y[n,c,h,w] = sum[r,q] x[n,c,{s}*h+r,{s}*w+q] * k[c,r,q]"
            names = "nchwrq"
        case "transposed_conv2d":
            return _transposed(operator)
        case "batch_matmul":
            text, names = "y[b,m,n] = sum[k] a[b,m,k] * c[b,n,k]", "bmnk"
        case _:
            return None
    return _core.Program.parse(text, sizes=dict(zip(names, e, strict=True)))


def _transposed(operator: Operator) -> _core.Program:
    """Of a window of four: every other pixel is of the stride's other phase."""
    n, out, height, width, channels, taps, _ = operator.extents
    stride = operator.stride
    pad = (taps - stride) // 2 if stride > 1 else 0
    size = [(extent + 2 * pad - taps) // stride + 1 for extent in (height, width)]
    return _core.conv_transposed(
        batch=n, in_channels=channels, out_channels=out, in_size=size, kernel=[taps, taps],
        stride=[stride, stride], pad_begin=[pad, pad], pad_end=[pad, pad],
    )  # fmt: skip


def smaller(operator: Operator, times: int) -> Operator:
    """With channels, rows and columns of space and sum `times` shorter, as far as they divide."""
    return Operator(
        operator.type,
        tuple(e // times if e >= 4 * times and e % times == 0 else e for e in operator.extents),
        stride=operator.stride,
        groups=operator.groups,
    )


def _ways(
    program: _core.Program, parent: Path, threads: int, budget: int
) -> Iterator[tuple[str, Tuned]]:
    """What each way of spending the same few measurements finds."""
    records = sorted((r for r in RecordStore(parent) if r.outcome == "ok"), key=lambda r: r.rank)
    common: dict[str, Any] = {"threads": threads, "keep": False, "progress": "off"}
    yield "search, equal budget", tune(program, trials=budget + 2, **common)
    found = candidates_for(program, records[:1], threads=threads, limit=budget, guard=math.inf)
    given = [(c.schedule, c.origin) for c in found.ranked]
    yield "reuse", measure_given(program, given, trials=budget + 2, **common)
    moved = []
    for record in records:
        theirs = shape_of(_core.Program.parse(record.program))
        schedule = transplanted(record.trace(), theirs, shape_of(program), program)
        if schedule is not None and len(moved) < TOP_K:
            moved.append((schedule, "transplanted"))
    yield "top k", measure_given(program, moved, trials=TOP_K + 2, **common)
    ranked = _ranked(program, threads, budget)
    yield "predicted ranking", measure_given(program, ranked, trials=budget + 2, **common)


def pairs(
    names: list[str], *, threads: int, trials: int, budget: int, show: bool
) -> dict[str, Any]:
    """For each type two operators tuned, and each reusing the other; `quality` as of `_beside_controls`."""
    rows: dict[str, Any] = {}
    for name in names:
        text, *both = PAIRS[name]
        programs = [_core.Program.parse(text, sizes=sizes) for sizes in both]
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / f"{place}.jsonl" for place in range(2)]
            searched = [
                tune(program, trials=trials, threads=threads, session=file, keep=False, progress="off")
                for program, file in zip(programs, files, strict=True)
            ]  # fmt: skip
            for here in (1, 0):
                called = name if here else f"{name}, the other way"
                rows[called] = {
                    "sizes": [both[1 - here], both[here]],
                    **_beside_controls(
                        programs[here], searched[here], files[1 - here], threads, budget
                    ),
                }
                if show:
                    print(called, _told(rows[called]), flush=True)
    return {"pairs": rows, "summary": _summary(rows)}


def _beside_controls(
    program: _core.Program, searched: Tuned, parent: Path, threads: int, budget: int
) -> dict[str, Any]:
    """What each way finds. `quality` is the time of the full search's best / that of the way's, called in turns."""
    options = default_options(threads, False)
    ways = {"search": searched, **dict(_ways(program, parent, threads, budget))}
    schedules = {way: tuned.schedule for way, tuned in ways.items()}
    schedules["constructed"] = construct(program, threads=threads).schedule
    full = searched.schedule
    return {
        "search_us": searched.best_us,
        "quality": {
            way: 1.0
            if schedule == full
            else _core.compare_schedules(program, full, schedule, options)
            for way, schedule in schedules.items()
        },
        "measurements": {"constructed": 0, **{w: t.trials for w, t in ways.items()}},
        "outcomes": {way: tuned.outcomes for way, tuned in ways.items()},
    }


def _told(row: dict[str, Any]) -> dict[str, float]:
    return {way: round(quality, 3) for way, quality in row["quality"].items()}


def controls(
    files: Sequence[Path], *, threads: int, trials: int, budget: int, show: bool, few: int | None
) -> dict[str, Any]:
    """Operators of sets that were measured, where a search gained a tenth over construction by then: each by the record of
    the operator nearest to it in its set, beside the controls. Where none can be reused, syno searches, and so there is no row.

    Args:
        files: what `sets --json` printed.
    """
    rows: dict[str, Any] = {}
    for file in files:
        for name, found in json.loads(file.read_text())["sets"].items():
            programs = [_core.Program.parse(text) for text in found["programs"]]
            constructed = found["selections"]["constructed"]["qualities"]
            for program, quality in zip(programs, constructed, strict=True):
                parent = _nearest(program, programs)
                if quality * WORTH > 1 or parent is None or (few is not None and len(rows) >= few):
                    continue
                called = f"{name}: {program.short_text()!s} {_sizes(program)}"
                with tempfile.TemporaryDirectory() as folder:
                    session = Path(folder) / "parent.jsonl"
                    common: dict[str, Any] = {"trials": trials, "threads": threads, "keep": False}
                    tune(parent, session=session, progress="off", **common)
                    searched = tune(program, progress="off", **common)
                    rows[called] = {
                        "program": str(program.text()).strip(),
                        "parent": str(parent.text()).strip(),
                        **_beside_controls(program, searched, session, threads, budget),
                    }
                if show:
                    print(called, _told(rows[called]), flush=True)
    return {"controls": rows, "summary": _summary(rows)}


def _sizes(program: _core.Program) -> list[int]:
    """All extents, of inputs and outputs, in order."""
    return [int(n) for name in (*program.inputs, *program.outputs) for n in program.shape(name)]


def _nearest(program: _core.Program, among: Sequence[_core.Program]) -> _core.Program | None:
    """Another one whose record can be reused, whose extents differ by the least factors; the first of several."""
    here = shape_of(program)

    def distance(other: _core.Program) -> float:
        ends = zip(_sizes(program), _sizes(other), strict=True)
        return sum(abs(math.log(mine / theirs)) for mine, theirs in ends)

    alike = [
        other
        for other in among
        if other.short_text() == program.short_text()
        and _sizes(other) != _sizes(program)
        and comparable(here, shape_of(other))
    ]
    return min(alike, key=distance, default=None)


#: By how much a search has to be faster than construction for a case to say something about reuse.
WORTH = 1.1


def _summary(rows: dict[str, Any]) -> dict[str, Any]:
    """Quality of each way over all cases, and of reuse over that of its controls where a search gains."""
    if not rows:
        return {}
    qualities = {name: row["quality"] for name, row in rows.items()}
    gainful = [name for name, found in qualities.items() if found["constructed"] * WORTH <= 1]
    others = [way for way in next(iter(qualities.values())) if way not in ("reuse", "search")]
    ratios = {
        way: [qualities[name]["reuse"] / qualities[name][way] for name in gainful]
        for way in others
        if all(qualities[name][way] > 0 for name in gainful)
    }
    return {
        "quality": {
            way: {"geomean": _geomean(found), "least": min(found)}
            for way in ("search", "reuse", *others)
            for found in [[quality[way] for quality in qualities.values()]]
        },
        "where a search gains a tenth": gainful,
        "there, reuse over": {
            way: {"geomean": _geomean(found), "least": min(found)}
            for way, found in ratios.items()
            if found
        },
    }


def _geomean(values: list[float]) -> float:
    good = [value for value in values if value > 0]
    return math.exp(sum(map(math.log, good)) / len(good)) if good else 0.0


def sets(
    names: list[str],
    *,
    threads: int,
    trials: int,
    times: int,
    show: bool,
    selections: Sequence[str] = SELECTIONS,
) -> dict[str, Any]:
    """Operator sets, their extents `times` smaller, tuned by each selection from nothing.

    `quality` is the time of the programs when each is searched / by the selection, called in turns, the geometric mean
    over them. "each", which the others are held against, is always among the selections.
    """
    found: dict[str, Any] = {}
    for name in names:
        programs = [p for o in operator_set(name) if (p := program_of(smaller(o, times)))]
        results: dict[str, Any] = {}
        bests: dict[str, list[_core.Schedule]] = {}
        for selection in dict.fromkeys(["each", *selections]):
            with tempfile.TemporaryDirectory() as folder, syno.config.config(cache=folder):
                tuned = syno.tune_network(
                    programs, trials=trials, threads=threads, selection=selection, progress="off"
                )
                bests[selection] = [
                    syno.Operator(program).compile(threads=threads).schedule for program in programs
                ]
            results[selection] = {
                "expected": tuned.plan.cost,
                "gap": tuned.plan.gap,
                "measurements": sum(step.trials for step in tuned.steps),
                "searched": sum(step.action == "tuned" for step in tuned.steps),
                "searched by the guard": sum(
                    step.action == "searched, not reused" for step in tuned.steps
                ),
                "seconds": tuned.seconds,
            }
            results[selection] |= _held_against(programs, bests["each"], bests[selection], threads)
            if show:
                row = results[selection]
                print(
                    f"{name}, {selection}: {row['measurements']} measured in {row['seconds']:.0f} s, quality "
                    f"{row['quality']:.3f}, least {row['least']:.3f}",
                    file=sys.stderr,
                    flush=True,
                )
        if "bridges" in results:
            spent = results["bridges"]["measurements"]
            for way, schedules, count in _as_many(programs, spent, threads):
                results[way] = {"measurements": count, "searched": 0}
                results[way] |= _held_against(programs, bests["each"], schedules, threads)
                if show:
                    quality, least = results[way]["quality"], results[way]["least"]
                    told = f"{count} measured, quality {quality:.3f}, least {least:.3f}"
                    print(f"{name}, {way}: {told}", file=sys.stderr, flush=True)
        found[name] = {
            "programs": [str(program.text()).strip() for program in programs],
            "smaller by": times,
            "selections": results,
        }
    return {"sets": found}


def _as_many(
    programs: Sequence[_core.Program], spent: int, threads: int
) -> Iterator[tuple[str, list[_core.Schedule], int]]:
    """As many measurements as a selection took, the same number for each program, spent by searching and on what the machine
    model ranks first; the constructed schedule is among both."""
    share = max(3, -(-spent // len(programs)))
    common: dict[str, Any] = {"threads": threads, "keep": False, "progress": "off"}
    searched = [tune(program, trials=share, **common) for program in programs]
    yield "searched, as many", [t.schedule for t in searched], sum(t.trials for t in searched)
    ranked = [
        measure_given(program, _ranked(program, threads, share - 2), trials=share, **common)
        for program in programs
    ]
    yield "predicted, as many", [t.schedule for t in ranked], sum(t.trials for t in ranked)


def _ranked(program: _core.Program, threads: int, count: int) -> list[tuple[_core.Schedule, str]]:
    """What the machine model predicts to be the fastest of what is drawn."""
    space = _core.ScheduleSpace(program, syno.machines.model.machine_model(), threads=threads)
    pool = {str(c.schedule.text()): c for c in map(space.sample, range(512)) if c is not None}
    best = sorted(pool.values(), key=lambda c: c.predicted_s)[:count]
    return [(c.schedule, "predicted") for c in best]


def _held_against(
    programs: Sequence[_core.Program],
    searched: Sequence[_core.Schedule],
    mine: Sequence[_core.Schedule],
    threads: int,
) -> dict[str, Any]:
    options = default_options(threads, False)
    ratios = [
        1.0 if one == full else _core.compare_schedules(program, full, one, options)
        for program, full, one in zip(programs, searched, mine, strict=True)
    ]
    return {"quality": _geomean(ratios), "least": min(ratios), "qualities": ratios}
