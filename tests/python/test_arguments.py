"""Every public function with every option of a wrong type: a sentence that names it, or a result; no error of what lies below."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import syno  # noqa: E402
from syno import _core  # noqa: E402
from syno.errors import ArgumentError, ParseError, SynoError  # noqa: E402
from syno.graph.compile import Compiling  # noqa: E402
from syno.session import Budget  # noqa: E402
from syno.support.arguments import checked  # noqa: E402
from syno.tuning.reuse.reusing import reuse  # noqa: E402

VALUES = [
    None, 1.5, "x", -1, float("nan"), float("inf"), 10**30, [], [1, 2], (1,), {}, {"x": 1}, object(), True, b"x", "",
    "\udcff",
]  # fmt: skip
OPERATOR = syno.Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=4, j=4, k=4)
PROGRAM = OPERATOR.program
A = np.ones((4, 4), np.float32)
MODEL = torch.nn.Linear(8, 8)
TASK: dict[str, Any] = {"model": lambda: MODEL, "train": [(A, A)], "validation": [(A, A)]}


def options(function: Any, *but: str) -> list[str]:
    empty = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    found = inspect.signature(function).parameters.values()
    return [p.name for p in found if p.kind not in empty and p.name not in ("self", *but)]


def made(function: Callable[..., Any], **base: Any) -> Callable[..., Any]:
    return lambda **options: function(**{**base, **options})


def functions(folder: Path) -> dict[str, tuple[Callable[..., Any], list[str]]]:
    """By name: a call that works, or ends in a sentence, with the options to change."""
    numbers = itertools.count()

    def place(**options: Any) -> Path:
        return folder / f"made{next(numbers)}"

    kernel = OPERATOR.compile()
    sites = syno.sites(MODEL, torch.ones(2, 8), repeats=1)
    found: dict[str, tuple[Callable[..., Any], list[str]]] = {
        "parse": (
            lambda **o: syno.Operator.parse(
                o.pop("expr", "y[i,j] = sum[k] a[i,k] * b[k,j]"), **{**dict(i=4, j=4, k=4), **o}
            ),
            ["expr", "shapes", "weights", "data", "i"],
        ),
        "parse shape": (lambda v: syno.Operator.parse("y[i] = a[i]", shapes={"a": v}), ["v"]),
        "from_pgraph": (syno.Operator.from_pgraph, ["pgraph"]),
        "at": (OPERATOR.at, ["valuation"]),
        "for_shapes": (OPERATOR.for_shapes, ["shapes"]),
        "for_shapes of one": (lambda v: OPERATOR.for_shapes({"a": v}), ["v"]),
        "reference": (lambda v: OPERATOR.reference(v, A), ["v"]),
        "Operator.compile": (OPERATOR.compile, ["dtype", "threads", "schedule", "nonsense"]),
        "compile_object": (OPERATOR.compile_object, ["target", "cpu", "dtype", "machine"]),
        "to_json": (lambda v: OPERATOR.to_json(note=v), ["v"]),
        "from_json": (syno.Operator.from_json, ["text"]),
        "save": (OPERATOR.save, ["path"]),
        "Operator.load": (syno.Operator.load, ["path"]),
        "load": (syno.load, ["path"]),
        "compile": (
            lambda **o: syno.compile(o.pop("what", OPERATOR), **o),
            ["what", "example", "dtype", "threads", "schedule", "derive", "cache", "nonsense"],
        ),
        "compile a model": (
            lambda **o: syno.compile(MODEL, o.pop("example", torch.ones(2, 8)), **o),
            ["example", *(f.name for f in dataclasses.fields(Compiling)), "nonsense"],
        ),
        "a kernel": (
            lambda **o: kernel(o.pop("a", A), o.pop("b", A), **o),
            ["a", "b", "out", "num_threads"],
        ),
        "a kernel of strides": (lambda **o: kernel(A.T, A, **o), ["out", "num_threads"]),
        "verify": (kernel.verify, ["seed"]),
        "time": (made(kernel.time, turns=3), ["num_threads", "turns"]),
        "explain": (kernel.explain, ["walk"]),
        "predict": (made(syno.predict, operator=OPERATOR), options(syno.predict)),
        "bench": (
            made(syno.bench, models={"a": lambda **_: 1}, turns=3),
            ["models", "compile", "threads", "turns", "named"],
        ),
        "bench on": (lambda v: syno.bench({"a": MODEL}, v, turns=3), ["v"]),
        "sites": (
            lambda **o: syno.sites(o.pop("model", MODEL), o.pop("x", A), **{"repeats": 1, **o}),
            ["model", "x", "repeats", "threads"],
        ),
        "where": (sites.where, options(sites.where)),
        "to_json of a group": (sites.groups()[0].to_json, options(sites.groups()[0].to_json)),
        "replace": (made(syno.replace, model=MODEL, operators={}), options(syno.replace)),
        "export": (
            lambda **o: syno.export(**{**dict(what=OPERATOR, path=place(), format="c"), **o}),
            options(syno.export),
        ),
        "Budget": (syno.Budget, ["time_s", "candidates"]),
        "Budget.parse": (Budget.parse, ["text"]),
        "Task": (made(syno.Task, **TASK), options(syno.Task)),
        "but": (syno.Task(**TASK).but, ["epochs", "nonsense"]),
        "make_model": (syno.Task(**TASK).make_model, ["seed"]),
        "batches": (made(syno.Task(**TASK).batches, part="train"), ["part", "seed"]),
        "example": (syno.Task(**TASK).example, ["batch"]),
        "search": (
            made(syno.search, model=None, example=A, data=([], [])),
            options(syno.search, "model", "example", "data"),
        ),
        "Result.load": (made(syno.Result.load, directory=folder), options(syno.Result.load)),
        "tune": (
            made(syno.tune, operator=PROGRAM, trials=2, time_limit_s=0.0, progress="off"),
            ["operator", "trials", "threads", "dtype", "seed", "model", "batch", "epsilon"],
        ),
        "tune_network": (
            made(syno.tune_network, model=[PROGRAM], plan_only=True, progress="off"),
            options(syno.tune_network),
        ),
        "reuse": (
            made(reuse, records=[], operator=PROGRAM, budget=1, time_limit_s=0.0, progress="off"),
            options(reuse),
        ),
        "Program.parse": (
            made(syno.Program.parse, text="y[i] = a[i]", sizes={"i": 3}),
            ["text", "sizes", "shapes", "weights", "data"],
        ),
        "Schedule": (syno.Schedule, ["v"]),
    }  # fmt: skip
    for kind, name in (
        (syno.PGraph, "parse"),
        (syno.Schedule, "parse"),
        (syno.LoopNest, "parse"),
        (syno.Schedule, "from_json"),
        (syno.Spec, "from_json"),
    ):
        found[f"{kind.__name__}.{name}"] = (getattr(kind, name), ["text"])
    nest = _core.apply_schedule(PROGRAM, kernel.schedule)
    for one in (PROGRAM, kernel.schedule, nest):
        for name in dir(one):
            method = getattr(one, name)
            if not name.startswith("_") and callable(method):
                call = lambda v, method=method: method(v)  # noqa: E731
                found[f"{type(one).__name__}.{name} of"] = (call, ["v"])
    return found


def fault(error: BaseException) -> str:
    """Why an error is none that a caller should get; empty where it is one."""
    if isinstance(error, SynoError):
        return ""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:200]} ({last.filename}:{last.lineno})"


def test_an_option_of_any_type_ends_in_a_sentence_or_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    faults = []
    for name, (call, names) in functions(tmp_path).items():
        for option, value in itertools.product(names, VALUES):
            try:
                call(**{option: value})
            except (Exception, SystemExit) as error:
                if why := fault(error):
                    faults.append(f"{name}({option}={value!r:.40}): {why}")
    assert not faults, "\n".join(faults[:20])


def test_what_does_not_fit_is_named_with_its_value_and_what_would() -> None:
    with pytest.raises(
        ArgumentError, match=r"Program.parse cannot take \('y', sizes=3\)[\s\S]*Mapping"
    ):
        syno.Program.parse("y", sizes=3)  # type: ignore[arg-type]
    with pytest.raises(ParseError, match="none of Unicode"):
        syno.Program.parse("y\udcff[i] = x[i]")
    with pytest.raises(ArgumentError, match=r"schedule='x' is a str\n  fix: give .*Schedule"):
        syno.compile(OPERATOR, schedule="x")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"nonsense[\s\S]*it takes operator, dtype"):
        syno.compile(OPERATOR, nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(SynoError, match=r"num_threads=1\.5 is no whole number"):
        OPERATOR.compile()(A, A, num_threads=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):  # for those who expect Python's own
        syno.compile(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("annotation", "fits", "not_"),
    [
        ("int | None", [1, True, np.int64(3), None], [1.5, "1", [], np.float64(1)]),
        ("float", [1, 1.5, np.float32(2), np.int8(1)], ["1.5", None, [], np.ones(2)]),
        ("bool", [True, 0, np.bool_(1)], ["x", None, 2, []]),
        ("str | Path", ["x", Path("x")], [b"x", 1, None]),
        ("Sequence[str] | None", [["x"], ("x", "y"), None], ["x", [1], {"x"}, 1]),
        ("Mapping[str, float]", [{}, {"x": 1}], [[], {"x": "y"}, {1: 1.0}, None]),
        ("Literal['a', 'b']", ["a"], ["c", None, 1]),
        ("Callable[..., Any]", [len, MODEL], [1, "x", None]),
        ("nn.Module", [MODEL], [1, None, object(), [MODEL]]),
        ("Operator | None", [OPERATOR, None], [PROGRAM.text(), 1]),
        ("Any", [1, None, "x"], []),
    ],
)
def test_annotations_decide_what_fits(annotation: str, fits: list[Any], not_: list[Any]) -> None:
    def function(x: Any) -> Any:
        return x

    function.__annotations__["x"] = annotation
    call = checked()(function)
    for value in fits:
        assert call(value) is value
    for value in not_:
        with contextlib.suppress(ArgumentError):
            call(value)
            pytest.fail(f"{value!r} fits {annotation}")
