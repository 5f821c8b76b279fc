"""Every public result prints, shows itself in a notebook, and gives plain data where it says so."""

from __future__ import annotations

import inspect
import json
import typing
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_session import run, start

import syno
from syno import _core
from syno.operators.explain import explain
from syno.session import InlineExecutor, open_view
from syno.timing.bench import bench
from syno.tuning.search import Tuned

OPERATOR = syno.Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=4, j=4, k=4)


def results(folder: Path) -> Iterator[tuple[Any, bool]]:
    """One of each kind, and whether it gives plain data."""
    yield bench({"<one>": lambda: None}, turns=3), True
    kernel = OPERATOR.compile()
    yield kernel, False
    assert kernel.verification is not None
    yield kernel.verification, True
    yield syno.latency(OPERATOR, measured=False), False
    yield syno.export(OPERATOR, folder / "<c>", format="c"), True
    yield Tuned(
        schedule=_core.default_schedule(OPERATOR.program), best_us=0.01234, constructed_us=2.0, counted_us=3.0,
        gap=0.5, trials=2, measured=1, outcomes={"ok": 1, "wrong": 1}, rank_correlation=0.5, seconds=1.0, origin="<x>",
    ), True  # fmt: skip
    spec = _core.spec_named("test")
    space = syno.Space(spec)
    yield from ((space, True), (syno.sample(space, 3), True))
    yield syno.enumerate(space, max_steps=4), True
    yield explain(_core.named_operator("conv", spec, {"kernel": "k_1"}), spec), True
    with start(folder / "run") as session:
        yield run(session, executor=InlineExecutor()), True
    yield open_view(folder / "run"), False


def test_results_print_and_show_themselves_in_notebooks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for result, plain in results(tmp_path):
        name = type(result).__name__
        assert str(result) and repr(result), name
        shown = result._repr_html_()
        assert shown, name
        document = ElementTree.fromstring(f"<div>{shown.replace('&nbsp;', ' ')}</div>")
        assert "".join(document.itertext()).strip(), name
        if plain:
            json.dumps(result.to_dict())


def test_small_times_are_not_shown_as_none(tmp_path: Path) -> None:
    for result, _ in results(tmp_path):
        if isinstance(result, Tuned):
            assert "0.0123" in str(result) and "0.0123" in result._repr_html_()
        assert "0.0 us" not in str(result), result


def test_what_public_functions_return_shows_itself() -> None:
    pytest.importorskip("torch")
    for name in syno.__all__:
        function = getattr(syno, name)
        if inspect.isclass(function) or not callable(function):
            continue
        text = str(inspect.signature(function).return_annotation)
        kind = {"Result": syno.Result, "None": None, "Any": None}.get(text)
        if text not in ("Result", "None", "Any"):
            module = inspect.getmodule(function)
            kind = getattr(module, text, None) or typing.get_type_hints(function).get("return")
        if (
            kind is None
            or not inspect.isclass(kind)
            or kind.__module__.startswith(("torch", "syno._core"))
        ):
            continue
        assert hasattr(kind, "_repr_html_") or hasattr(kind, "_repr_svg_"), name


def parts_of_results() -> Iterator[Any]:
    """Of the engine's own classes, each that results and their attributes hold."""
    kernel, program = OPERATOR.compile(), OPERATOR.program
    nest = _core.apply_schedule(program, kernel.schedule)
    machine = _core.describe_machine(_core.host_cpu())
    spec = _core.spec_named("test")
    yield from (program, kernel.schedule, nest, machine, machine.levels[0], _core.host_cpu(), spec)
    yield from (kernel.predict(), kernel.report, *kernel.innermost_loops[:1])
    yield from (
        _core.enumerate_operators(spec, max_steps=2),
        _core.compile_nest(nest).verify(program, 0),
    )
    yield _core.construct_schedule(program, machine)


def test_the_engine_s_parts_show_in_notebooks_what_they_print() -> None:
    for part in parts_of_results():
        name = type(part).__name__
        assert " object at 0x" not in str(part), name
        document = ElementTree.fromstring(part._repr_html_())
        assert document.tag == "pre" and document.text == str(part), name
