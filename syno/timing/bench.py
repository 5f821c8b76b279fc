"""Timing side by side: medians with their spread, the contestants taking turns.

Turns matter: load and clock drift hit every contestant alike, and the speed-up is the median of the
ratios inside one turn rather than a ratio of two numbers taken minutes apart.
"""

from __future__ import annotations

import html
import logging
import shutil
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from syno.errors import ShapeError, SynoError
from syno.support.arguments import checked
from syno.support.machine import Machine, describe_machine
from syno.support.numbers import MOST_SEED, MOST_THREADS, significant, whole
from syno.timing.measuring import Measuring, measuring

_log = logging.getLogger("syno.timing.bench")
_SAMPLE_S = 2e-3
#: Seconds of calls before a sample on several threads. After a call the threads of a runtime spin for the next one
#: (OpenMP for 8 ms, ONNX Runtime 1.32 for 45), on cores that whoever comes next computes on. Calls and no pause: a
#: virtual machine's cores that pause may come back as two halves of one core, half as fast together.
_UNTIMED_S = 0.06


@dataclass(frozen=True)
class Timing:
    """Time of one call, microseconds: median and interquartile range over `samples` turns."""

    name: str
    median_us: float
    iqr_us: float
    samples: int
    calls: int
    """Calls in one sample."""
    threads: int
    speed_up: float
    """Median over the turns of (first contestant's time / this one's); 1 for the first."""
    speed_up_iqr: float
    note: str = ""
    """What may have disturbed it, such as another process that measured; empty: nothing known."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_COLUMNS = ("", "median us", "IQR us", "samples", "speed-up", "")


@dataclass(frozen=True)
class Comparison(Mapping[str, Timing]):
    """What `bench()` measured; a mapping from name to `Timing` that prints as a table."""

    timings: tuple[Timing, ...]
    machine: Machine
    skipped: dict[str, str] = field(default_factory=dict)
    """Contestants that could not run, with the reason."""

    def __getitem__(self, name: str) -> Timing:
        return next(t for t in self.timings if t.name == name)

    def __contains__(self, name: object) -> bool:
        return any(t.name == name for t in self.timings)

    def __iter__(self) -> Any:
        return iter(t.name for t in self.timings)

    def __len__(self) -> int:
        return len(self.timings)

    def to_dict(self) -> dict[str, Any]:
        import msgspec

        return {
            "machine": msgspec.to_builtins(self.machine),
            "timings": [timing.to_dict() for timing in self.timings],
            "skipped": dict(self.skipped),
        }

    def rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            (
                t.name,
                significant(t.median_us),
                significant(t.iqr_us),
                str(t.samples),
                f"{t.speed_up:.2f}x",
                t.note,
            )
            for t in self.timings
        ]
        return rows + [(name, "-", "-", "-", "-", why) for name, why in self.skipped.items()]

    def __repr__(self) -> str:
        rows = [_COLUMNS, *self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        lines = [
            f"{row[0].ljust(widths[0])}  "
            + "  ".join(c.rjust(w) for c, w in zip(row[1:-1], widths[1:-1], strict=True))
            + (f"  {row[-1]}" if row[-1] else "")
            for row in rows
        ]
        threads = self.timings[0].threads if self.timings else 1
        lines.append(f"{threads} thread{'s' * (threads != 1)}; {self.machine}")
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        def cells(tag: str, row: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row) + "</tr>"

        body = "".join(cells("td", row) for row in self.rows())
        note = html.escape(repr(self).splitlines()[-1])
        return f"<table><thead>{cells('th', _COLUMNS)}</thead><tbody>{body}</tbody></table><p>{note}</p>"


def measure(
    functions: Mapping[str, Callable[[], Any]],
    *,
    turns: int = 15,
    min_sample_s: float = _SAMPLE_S,
    timeout_s: float = 60.0,
    threads: int = 1,
    one_pool: bool = False,
) -> list[Timing]:
    """Times functions of no arguments, one sample of each a turn.

    No other process measures meanwhile, unless one does for longer than a minute: then the timings' `note` says
    so. On one thread, the thread stays on one core. On several, each sample begins with calls that are not
    timed, until the threads of who came before have come to rest.

    Args:
        functions: by name; the first is what speed-ups refer to. Each is called twice before.
        turns: samples of each; fewer when `timeout_s` ends first, at least 3.
        min_sample_s: calls are repeated within a sample until it lasts this long, seconds.
        threads: that the functions compute on; not set here.
        one_pool: all compute on the same threads, which need no rest in between.
    Raises:
        ShapeError: there is nothing to time, or `turns` < 3.
    """
    if not functions:
        raise ShapeError("[bench] there is nothing to time: no function was given")
    turns = whole("bench", "turns", turns, -MOST_SEED, MOST_SEED, ShapeError)
    if turns < 3:
        raise ShapeError(f"[bench] turns={turns}; a median with a spread needs at least 3")
    for function in functions.values():
        function()  # what it starts, such as threads of its own, is not kept on one core
    with measuring(pin=threads == 1) as had:
        apart = threads > 1 and len(functions) > 1 and not one_pool
        return _measured(functions, turns, min_sample_s, timeout_s, threads, apart, had)


def _measured(
    functions: Mapping[str, Callable[[], Any]],
    turns: int,
    min_sample_s: float,
    timeout_s: float,
    threads: int,
    apart: bool,
    had: Measuring,
) -> list[Timing]:
    clock = time.perf_counter
    calls: dict[str, int] = {}
    for name, function in functions.items():
        start = clock()
        function()
        seconds = max(clock() - start, 1e-8)
        calls[name] = max(1, min(100_000, round(min_sample_s / seconds)))
    samples: dict[str, list[float]] = {name: [] for name in functions}
    deadline = clock() + timeout_s
    for turn in range(turns):
        if turn >= 3 and clock() > deadline:
            break
        for name, function in functions.items():
            repeat = range(calls[name])
            if apart:
                resting = clock() + _UNTIMED_S
                while clock() < resting:
                    function()
            start = clock()
            for _ in repeat:
                function()
            samples[name].append((clock() - start) / calls[name])
    reference = next(iter(samples.values()))
    return [
        _summarise(name, values, reference, calls[name], threads, had.note)
        for name, values in samples.items()
    ]


def _summarise(
    name: str,
    values: Sequence[float],
    reference: Sequence[float],
    calls: int,
    threads: int,
    note: str,
) -> Timing:
    ratios = [r / v for r, v in zip(reference, values, strict=True)]
    return Timing(
        name=name,
        median_us=statistics.median(values) * 1e6,
        iqr_us=_iqr(values) * 1e6,
        samples=len(values),
        calls=calls,
        threads=threads,
        speed_up=statistics.median(ratios),
        speed_up_iqr=_iqr(ratios),
        note=note,
    )


def _iqr(values: Sequence[float]) -> float:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


@checked(but=("compile", "threads", "turns"))
def bench(
    models: Mapping[str, Callable[..., Any]],
    *example: Any,
    compile: str | Iterable[str] | None = None,
    threads: int = 1,
    turns: int = 15,
    timeout_s: float = 60.0,
    named: Mapping[str, Any] | None = None,
) -> Comparison:
    """Times models (or any callables) on the same input, without gradients and in turns.

    Args:
        models: by name, the baseline first. Modules run in evaluation mode and are left as they were.
        example: positional arguments of one call.
        compile: names of models to time under `torch.compile` with frozen weights as well, none by default; a
            machine without a C++ compiler gets a sentence in the table instead of a time.
        threads: of PyTorch and of syno's kernels; 1 by default.
        turns, timeout_s: as for `measure`.
        named: keyword arguments of one call.
    Raises:
        ShapeError: no models, `turns` < 3, `threads` < 1, or `compile` names a model that is not there.
    """
    import torch

    from syno.support.inputs import MISFITS, why_not

    wanted = _names(compile)
    keywords = dict(named or {})
    for name in wanted:
        if name not in models:
            raise ShapeError(
                f"[bench] compile={name!r} is not one of the models: {', '.join(models)}"
            )
    for name, model in models.items():
        if isinstance(model, type):
            raise ShapeError(f"[bench] {name!r} is a class: give an object of it, such as MyNet()")
    check_threads(threads)
    before = torch.get_num_threads()
    torch.set_num_threads(int(threads))
    skipped: dict[str, str] = {}
    try:
        with _inference(models):
            contestants = {name: _bind(model, example, keywords) for name, model in models.items()}
            for name, model in models.items():
                if isinstance(model, torch.nn.Module):
                    try:
                        contestants[name]()
                    except SynoError:
                        raise
                    except MISFITS as error:
                        why = why_not(model, (*example, *keywords.values()), error)
                        raise ShapeError(f"[bench] {why}") from error
            for name in wanted:
                label = f"{name}, torch.compile"
                try:
                    contestants[label] = _compiled(models[name], example, keywords)
                except CompilerUnavailable as error:
                    skipped[label] = str(error)
                    _log.warning("%s is not timed: %s", label, error)
            timings = measure(contestants, turns=turns, timeout_s=timeout_s, threads=threads)
    finally:
        torch.set_num_threads(before)
    return Comparison(tuple(timings), describe_machine(), skipped)


def check_threads(threads: int) -> None:
    """Raises ShapeError for a number of threads that no machine has."""
    number = whole("bench", "threads", threads, -MOST_SEED, MOST_SEED, ShapeError)
    if not 1 <= number <= MOST_THREADS:
        raise ShapeError(f"[bench] threads={number} must be in [1, {MOST_THREADS}]")


def _names(compile: Any) -> tuple[str, ...]:
    """The names that `compile` lists. Raises ShapeError for what lists none."""
    if compile is None or isinstance(compile, str):
        return () if compile is None else (compile,)
    names = tuple(compile) if isinstance(compile, Iterable) else (compile,)
    for name in names:
        if not isinstance(name, str):
            raise ShapeError(
                f"[bench] compile={compile!r} names no model; give a name, several, or None"
            )
    return names


class CompilerUnavailable(RuntimeError):
    """`torch.compile` cannot work here; the text says why."""


def _bind(
    model: Callable[..., Any], example: Sequence[Any], named: Mapping[str, Any]
) -> Callable[[], Any]:
    wait = waiting((*example, *named.values()))

    def run() -> Any:
        result = model(*example, **named)
        wait()
        return result

    return run


def waiting(example: Iterable[Any]) -> Callable[[], None]:
    """A function that returns when the devices of these tensors have computed what they were asked: a GPU
    does so while the caller goes on."""
    import torch

    kinds = {each.device.type for each in example if hasattr(each, "device")} - {"cpu"}
    devices = [getattr(torch, kind) for kind in sorted(kinds) if hasattr(torch, kind)]
    waits = [device.synchronize for device in devices if hasattr(device, "synchronize")]

    def wait() -> None:
        for each in waits:
            each()

    return wait


class _inference:
    """Evaluation mode and no gradients for the block; each module gets its own mode back."""

    def __init__(self, models: Mapping[str, Callable[..., Any]]) -> None:
        import torch

        self._modules = [m for m in models.values() if isinstance(m, torch.nn.Module)]
        self._guard = torch.no_grad()

    def __enter__(self) -> None:
        self._modes = [(m, m.training) for top in self._modules for m in top.modules()]
        for top in self._modules:
            top.eval()
        self._guard.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._guard.__exit__(*exception)
        for module, training in self._modes:
            module.training = training


def _compiled(
    model: Callable[..., Any],
    example: Sequence[Any],
    named: Mapping[str, Any] = types.MappingProxyType({}),
    **options: Any,
) -> Callable[[], Any]:
    """`torch.compile`, with its options, as its users run it for inference: constant weights are packed once."""
    import torch
    import torch._inductor.config as inductor

    compilers = [c for c in (inductor.cpp.cxx or ()) if c] if hasattr(inductor, "cpp") else []
    if not any(shutil.which(str(c)) for c in (*compilers, "g++", "clang++")):
        raise CompilerUnavailable("torch.compile needs a C++ compiler, and none is installed")
    # A code object has one entry for each model of a class; beyond the limit torch silently stays eager.
    with inductor.patch(freezing=True), torch._dynamo.config.patch(recompile_limit=64):
        compiled = torch.compile(model, **options)
        try:
            compiled(*example, **named)
        except Exception as error:  # whatever inductor throws is the reason in the table
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise CompilerUnavailable(f"torch.compile failed: {reason[0]}") from error
    return _bind(compiled, example, named)


class _CallableModule(types.ModuleType):
    """Lets `syno.bench(...)` work however this module was first imported."""

    def __call__(self, *args: Any, **kwargs: Any) -> Comparison:
        return bench(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
