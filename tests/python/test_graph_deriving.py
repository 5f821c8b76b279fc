"""Derived kernels in compiled networks: searched once for each computation, kept where they are faster in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from machines import written_machine
from torch import Tensor, nn

import syno
from syno import _core
from syno.deriving import replayed, search
from syno.deriving.derivations import made_by
from syno.deriving.known import Answer, Answers, Question
from syno.errors import FormatError, ScheduleError
from syno.graph import compile as compiling
from syno.graph import deriving
from syno.graph.backend import graphs_compiled
from syno.graph.compiled import CompiledNetwork, Profile
from syno.graph.deriving import Deriving, Wanted
from syno.machines.model import fixed_kernels
from syno.operators.operator import Operator
from syno.timing.bench import Timing

CONV = "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]"
SHAPES = {"o": 4, "c": 4, "h": 8, "w": 8, "r": 3, "s": 3}
LARGER = {**SHAPES, "o": 16, "c": 16}
OTHER = CONV.replace("y[", "image[").replace("x[", "before[").replace("k[", "kernel[")


class Blocks(nn.Module):
    """One convolution four times, with three things behind it, and another one."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(4)
        )
        self.last = nn.Conv2d(8, 16, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d = self.convolutions
        y = torch.relu(a(x))
        y = torch.relu(b(y))
        y = torch.relu(c(y) + x)
        y = torch.sigmoid(d(y))
        return self.last(y)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Blocks().eval()


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Operator]:
    """What is searched. Searches are short here, and what `toom_cook` alone makes counts as the fastest."""
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "cache"))
    calls: list[Operator] = []
    real = search.searched

    def searched(operator: Operator, **options: Any) -> Any:
        calls.append(operator)
        return real(operator, **{**options, "seconds": 0, "states": 40, "measure": 1})

    def judged(found: list[Any], *_: Any) -> None:
        found[0].measured_us = 10.0
        found[0].errors = {"normal": 1e-7}
        for one in found[1:]:
            one.measured_us = 1.0 if one.rules == ("toom_cook",) else 20.0
            one.errors = {"normal": 2e-6}

    monkeypatch.setattr(search, "searched", searched)
    monkeypatch.setattr(search, "_judged", judged)
    return calls


@pytest.fixture
def keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "fastest_in_place", lambda derived, *_: derived)


def _asked(expr: str = CONV, constants: tuple[str, ...] = ("k",), **how: Any) -> Question:
    return Question.of(Operator.parse(expr, **SHAPES), constants, "float32", 1, **how)


def _step(question: Question) -> Answer:
    found = search.searched(
        question.operator, constants=question.constants, dtype="float32", threads=1,
        max_rel_err=1e-5, seconds=0, states=40, measure=0, rules=["toom_cook"],
    )  # fmt: skip
    return Answer(next(found[i].path for i in range(len(found)) if len(found[i].path) == 1), 1e-6)


def test_names_do_not_matter_to_a_question() -> None:
    question, other = _asked(), _asked(OTHER, ("kernel",))
    assert question.key == other.key and question.operator == other.operator
    assert question.key != _asked(max_rel_err=1e-4).key
    assert question.key != _asked(constants=()).key
    assert question.key != _asked(seconds=60.0).key, "who has more time asks again"
    assert question.core is not None and question.core.key == question.key
    followed = _asked(CONV + "; z[o,h,w] = relu(y[o,h,w])")
    assert followed.key != question.key
    assert followed.core is not None and followed.core.key == question.key


def test_steps_for_the_core_apply_to_the_whole_under_the_given_names() -> None:
    expr = OTHER + "; t0[o,h,w] = relu(image[o,h,w] + bias[o])"
    operator = Operator.parse(expr, **SHAPES)
    question = Question.of(operator, ("kernel", "bias"), "float32", 1)
    assert question.core is not None
    made = question.made(_step(question.core).path)
    assert made.inputs == operator.inputs and made.outputs == operator.outputs
    assert made.program.structural_key() != operator.program.structural_key()
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal(operator.shapes[name]) for name in operator.inputs}
    np.testing.assert_allclose(made.reference(**data), operator.reference(**data), atol=1e-9)


def test_answers_are_kept_and_read_again_by_who_wrote_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    question = _asked()
    answer = _step(question)
    Answers(tmp_path).put(question, answer)
    assert Answers(tmp_path).get(_asked(OTHER, ("kernel",))) == answer
    assert Answers(None).get(question) is None
    (entry,) = tmp_path.glob("*.derived")
    entry.write_bytes(entry.read_bytes().replace(b"toom_cook", b"strassen!"))
    assert Answers(tmp_path).get(question) is None
    Answers(tmp_path).put(question, Answer((("toom_cook", answer.path[0][1]),) * 2))
    assert Answers(tmp_path).get(question) is None, "its second step does not apply"
    with pytest.raises(FormatError, match="step 2"):
        question.made((answer.path[0], answer.path[0]))


def test_extents_at_which_nothing_is_found_say_something_when_they_are_several() -> None:
    answers = Answers(None)
    made = [
        Question.of(Operator.parse(CONV, **{**SHAPES, "o": o}), ("k",), "float32", 1)
        for o in (4, 6, 8, 10)
    ]
    assert len({question.formula for question in made}) == 1
    assert answers.like(made[0]) is None
    answers.put(made[0], Answer(()))
    assert answers.like(made[1]) is None
    answers.put(made[1], Answer(()))
    answers.put(made[1], Answer(()))
    assert answers.like(made[2]) == []
    found = _step(made[2])
    answers.put(made[2], Answer(found.path, 1e-6, (found.path * 2, found.path)))
    assert answers.like(made[3]) == [found.path, found.path * 2]
    assert answers.like(_asked(CONV.replace("r-1", "r"))) is None


@pytest.mark.usefixtures("keeps_all")
def test_a_computation_is_searched_once_in_a_network(
    model: nn.Module, searches: list[Operator]
) -> None:
    x = torch.randn(1, 8, 12, 12)
    fast = syno.compile(model, x, derive=True)
    convolutions = [stage for stage in fast.network.stages if stage.flops > 50_000]
    assert [stage.derived for stage in convolutions] == ["toom_cook"] * 5
    assert all(stage.derived_error == 2e-6 for stage in convolutions)
    assert len(searches) == 2, "two convolutions, whatever follows them"
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    again = syno.compile(model, x, derive=True)
    assert len(searches) == 2, "the cache knows them"
    assert [s.derived for s in again.network.stages] == [s.derived for s in fast.network.stages]
    assert syno.compile(model, x, derive=True, max_rel_err=1e-4) and len(searches) == 4
    assert syno.compile(model, x, derive=True, seconds=60.0) and len(searches) == 6


@pytest.mark.usefixtures("keeps_all")
def test_an_interrupted_compilation_goes_on(
    model: nn.Module, searches: list[Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(1, 8, 12, 12)
    real = search.searched

    def interrupted(operator: Operator, **options: Any) -> Any:
        found = real(operator, **options)
        if len(searches) == 2:
            found.ended = "interrupted"
        return found

    monkeypatch.setattr(search, "searched", interrupted)
    with pytest.raises(KeyboardInterrupt):
        syno.compile(model, x, derive=True)
    first = searches[0]
    fast = syno.compile(model, x, derive=True)
    assert len(searches) == 3 and first not in searches[1:]
    assert sum(bool(stage.derived) for stage in fast.network.stages) == 5


@pytest.mark.usefixtures("keeps_all", "searches")
def test_no_time_is_no_search_and_other_types_are_not_derived(model: nn.Module) -> None:
    x = torch.randn(1, 8, 12, 12)
    fast = syno.compile(model, x, derive=True, seconds=0.0)
    assert not any(stage.derived for stage in fast.network.stages)
    half = model.to(torch.bfloat16)
    assert syno.compile(half, x.to(torch.bfloat16), derive=True)


@pytest.mark.usefixtures("keeps_all")
def test_windows_and_bands_of_what_comes_with_a_call_are_derived(searches: list[Operator]) -> None:
    """The weights of a training step change from call to call; a product of what comes with a call is no window."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    x = torch.randn(2, 8, 12, 12, requires_grad=True)
    torch._dynamo.reset()
    step = torch.compile(convolution, backend="syno", options={"derive": True})
    wanted = torch.autograd.grad(convolution(x).square().sum(), [x, convolution.weight])
    with graphs_compiled() as graphs:
        got = torch.autograd.grad(step(x).square().sum(), [x, convolution.weight])
    derived = {s.name: s.derived for graph in graphs for s in graph.stages if s.derived}  # type: ignore[union-attr]
    assert len(derived) >= 2, "the forward and the gradient of the input"
    for g, w in zip(got, wanted, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-3)
    searches.clear()
    product = torch.compile(torch.matmul, backend="syno", options={"derive": True})
    a, b = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)
    torch.autograd.grad(product(a, b).sum(), [a])
    assert not searches


@pytest.mark.usefixtures("keeps_all")
def test_each_of_several_large_sums_is_searched_and_tried_together(
    searches: list[Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two convolutions of one kernel, as fusion makes them, and attention to windows, whose copies are indices by then."""
    two = (
        "input x[1,8,12,12]\nweight k[8,8,3,3]\nweight g[8,8,3,3]\n"
        "u[n: 1,o: 8,h: 12,w: 12] = sum[c: 8,r: 3,s: 3] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]\n"
        "v[n: 1,o: 8,h: 12,w: 12] = max(u[n,o,h,w], 0)\n"
        "y[n: 1,o: 8,h: 12,w: 12] = sum[c: 8,r: 3,s: 3] v[n,c,h+r-1,w+s-1] * g[o,c,r,s]\nreturn y\n"
    )
    operator = Operator(_core.Program.parse(two))
    question = Question.of(operator, ("k", "g"), "float32", 1)
    parts = question.parts(0.1)
    assert len(parts) == 2 and parts[0].question.key == parts[1].question.key
    assert [len(part.question.constants) for part in parts] == [1, 1]

    def judged(found: list[Any], *_: Any) -> None:
        for one in found:
            one.errors = {"normal": 1e-7}
            windows = set(one.rules) == {"toom_cook"}
            one.measured_us = 9.0 / len(one.path) if windows else 10.0 + len(one.path)

    monkeypatch.setattr(search, "_judged", judged)
    deriving = Deriving(threads=1, max_rel_err=1e-5, seconds=30.0, directory=None)
    wanted = Wanted(operator, ("k", "g"), "float32")
    deriving.prepare([wanted])
    assert len(searches) == 1, "both are one computation"
    made, rules, _ = deriving(operator, ("k", "g"), "float32") or (None, "", 0.0)
    assert made is not None and rules == "toom_cook"
    names = set(made.program.tensors)
    assert len({name for name in names if name.endswith("_products")}) == 2, names
    rng = np.random.default_rng(0)
    data = {n: rng.standard_normal(operator.shapes[n]).astype(np.float32) for n in operator.inputs}
    kernel = made.compile()
    got = kernel(*[data[n] for n in made.inputs])
    np.testing.assert_allclose(got, operator.reference(**data), rtol=1e-3, atol=1e-3)

    windows = (
        "input q[200,16]\ninput x[200,16]\np[m: 240,k: 16] = x[m-20,k]\nb[m: 200,k: 16,w: 41] = p[m+w,k]\n"
        "y[m: 200,w: 41] = sum[k: 16] q[m,k] * b[m,k,w]\nreturn y\n"
    )
    banded = Question.of(Operator(_core.Program.parse(windows)), (), "float32", 1)
    assert _core.slides(banded.operator.program) and len(banded.operator.program.tensors) == 3


def test_time_that_parts_took_counts_once_and_those_left_are_looked_for_again(
    searches: list[Operator], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operator = Operator(
        _core.Program.parse(
            "input x[1,8,12,12]\nweight k[8,8,3,3]\nweight g[8,8,3]\n"
            "u[n: 1,o: 8,h: 12,w: 12] = sum[c: 8,r: 3,s: 3] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]\n"
            "y[n: 1,o: 8,h: 12,w: 12] = sum[c: 8,r: 3] u[n,c,h+r-1,w] * g[o,c,r]\nreturn y\n"
        )
    )
    clock = [0.0]
    real = search.searched

    def slow(operator: Operator, **options: Any) -> Any:
        clock[0] += 10.0
        return real(operator, **options)

    monkeypatch.setattr(search, "searched", slow)
    monkeypatch.setattr("syno.graph.deriving.monotonic", lambda: clock[0])
    wanted = Wanted(operator, ("k", "g"), "float32")
    for seconds, searched in ((10.0, 1), (30.0, 2)):
        searches.clear()
        directory = tmp_path / str(seconds)
        directory.mkdir()
        for compilation in range(2):
            deriving = Deriving(threads=1, max_rel_err=1e-5, seconds=seconds, directory=directory)
            deriving.prepare([wanted])
            made = deriving(operator, ("k", "g"), "float32")
            assert made is not None, "what was found in time serves"
            if compilation == 0:
                assert deriving._left == seconds - 10.0 * len(searches)
                assert len(searches) == searched
        assert len(searches) == 2, "the other part, in the second compilation at the latest"


@pytest.mark.usefixtures("searches")
@pytest.mark.parametrize(("slower", "kept"), [((), 5), ((0, 2), 3), (range(5), 0)])
def test_each_step_keeps_the_kernel_that_is_faster_in_place(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch, slower: Any, kept: int
) -> None:
    x = torch.randn(1, 8, 12, 12)
    real: Callable[..., Profile] = CompiledNetwork.profile

    def profile(network: CompiledNetwork, *arrays: Any, turns: int = 15) -> Profile:
        made = real(network, *arrays, turns=turns)
        large = [stage for stage in network.stages if stage.flops > 50_000]
        for number, stage in enumerate(large):
            late = (number in slower) == bool(stage.derived)
            made.times_us[stage.name] = 9.0 if late else 5.0
        return made

    monkeypatch.setattr(CompiledNetwork, "profile", profile)
    gains = {"then": 1.5}
    monkeypatch.setattr(deriving, "measure", _measured(gains))
    fast = syno.compile(model, x, derive=True)
    large = [stage for stage in fast.network.stages if stage.flops > 50_000]
    assert [bool(stage.derived) for stage in large] == [n not in slower for n in range(5)]
    assert sum(bool(stage.derived) for stage in large) == kept
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    gains["then"] = 0.997  # as near as times are to each other
    fast = syno.compile(model, x, derive=True)
    assert sum(bool(stage.derived) for stage in fast.network.stages) == kept
    gains["then"] = 0.99  # the whole is not as fast as its steps say
    fast = syno.compile(model, x, derive=True)
    assert not any(stage.derived for stage in fast.network.stages)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))


def _measured(gains: dict[str, float]) -> Callable[..., list[Timing]]:
    """Times of two networks, of which the second is so many times as fast; both can run."""

    def measured(functions: Mapping[str, Callable[[], Any]], **_: Any) -> list[Timing]:
        outputs = [function() for function in functions.values()]
        np.testing.assert_allclose(*outputs, rtol=1e-3, atol=1e-4)
        speed = [1.0, gains["then"]]
        return [
            Timing(name, 5.0, 0.1, 9, 1, 1, gain, 0.01)
            for name, gain in zip(functions, speed, strict=True)
        ]

    return measured


@pytest.mark.usefixtures("keeps_all")
def test_where_time_is_scarce_steps_of_other_extents_are_tried(
    searches: list[Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deriving, "monotonic", lambda: 0.0)  # no time passes
    torch.manual_seed(0)
    pool = nn.MaxPool2d(2)
    layers = [nn.Conv2d(8, 8, 3, padding=1), pool, nn.Conv2d(8, 16, 3, padding=1), pool]
    model = nn.Sequential(*layers, nn.Conv2d(16, 16, 5, padding=2)).eval()
    x = torch.randn(1, 8, 24, 24)
    fast = syno.compile(model, x, derive=True, seconds=2.5)
    large = [stage for stage in fast.network.stages if stage.flops > 50_000]
    assert len(large) == 3 and len(searches) == 2, "the other formula, too"
    assert [stage.derived for stage in large][:2] == ["toom_cook"] * 2
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    monkeypatch.setenv("SYNO_CACHE", "")
    syno.compile(model, x, derive=True, seconds=1000.0)
    assert len(searches) == 5, "each one where there is time"


@pytest.mark.usefixtures("keeps_all")
def test_a_share_of_the_work_that_is_worth_a_search_gets_one(
    searches: list[Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many small programs wait behind it."""
    monkeypatch.setattr(deriving, "monotonic", lambda: 0.0)  # no time passes
    torch.manual_seed(0)
    large = [nn.Conv2d(16, 20, 3, padding=1), nn.MaxPool2d(1), nn.Conv2d(20, 16, 3, padding=1)]
    widths = (16, 4, 5, 4, 6, 4)
    small = [nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths)]
    parts = [part for one in small for part in (nn.MaxPool2d(3, 1, 1), one)]
    model = nn.Sequential(*large, nn.MaxPool2d(2), *parts).eval()
    syno.compile(model, torch.randn(1, 16, 24, 24), derive=True, seconds=11.0)
    most = [operator.flops for operator in searches[:2]]
    assert len(searches) < 7 and min(most) >= 9 * 16 * 20 * 24 * 24


def test_steps_that_a_program_has_no_place_for_are_left_out() -> None:
    question = _asked(CONV + "; z[o,h,w] = relu(y[o,h,w])")
    assert question.core is not None
    (first,) = _step(question.core).path
    nowhere = ("toom_cook", type(first[1])("nobody", "h", "r", "", [4, 3]))
    made, taken = replayed._as_far_as_it_goes(question.operator, (nowhere, first))
    assert taken == (first,)
    assert made.program.structural_key() == question.made((first,)).program.structural_key()
    found = search.tried(
        question.operator, [(nowhere,)], constants=question.constants, dtype="float32",
        threads=1, max_rel_err=1e-5,
    )  # fmt: skip
    assert len(found) == 1 and found.best() is found.original


def test_results_lie_otherwise_in_the_program_around_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where results lie is about the outputs of a program: what follows the core has others."""

    def alike(one: Any, counted: bool = False) -> None:
        one.predicted_us = 1.0  # whatever the machine: none is hopeless

    monkeypatch.setattr(search, "_predict", alike)
    whole = CONV + "; z[o,h,w] = relu(y[o,h,w] + b[o])"
    sizes = LARGER
    question = Question.of(Operator.parse(whole, **sizes), ("k", "b"), "float32", 1)
    assert question.core is not None
    (cut,) = _step(question.core).path
    made = made_by(question.core.operator, (cut,))
    (site,) = _core.rewrite_sites(made.program, "innermost")
    found = search.tried(
        question.operator,
        [(cut, ("innermost", site))],
        constants=question.constants,
        dtype="float32",
        threads=1,
        max_rel_err=1e-4,
    )
    assert sorted(one.rules for one in (found[1], found[2])) == [
        ("toom_cook",),
        ("toom_cook", "innermost"),
    ]
    assert len(found) == 3 and all(one.measured_us for one in (found[1], found[2]))
    for one in (found[1], found[2]):
        again = question.made(one.path)
        assert again.program.structural_key() == one.operator.program.structural_key()


def test_a_product_is_searched_for_less_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sum of products without a window there are few others: the time is left to those with one."""
    asked: dict[str, float] = {}

    def searched(operator: Operator, *, seconds: float, **_: Any) -> Any:
        asked["window" if "+r" in str(operator.expr) else "product"] = seconds
        raise ScheduleError("[test] nothing")

    monkeypatch.setattr(search, "searched", searched)
    made = deriving.Deriving(threads=1, max_rel_err=1e-5, seconds=100.0, directory=None)
    window = Operator.parse(CONV, o=64, c=64, h=16, w=16, r=3, s=3)
    product = Operator.parse("y[n,o] = sum[c] x[n,c] * k[o,c]", n=64, o=256, c=256)
    made.prepare([Wanted(each, ("k",), "float32") for each in (window, product)])
    assert asked["window"] == 2.0 and 0 < asked["product"] < 1.0


def test_what_waits_for_its_weights_is_not_searched(searches: list[Operator]) -> None:
    """No program reads fewer of them. Of many rows together, or with weights near, multiply-adds count."""
    expr = "y[n,o] = sum[c] x[n,c] * k[o,c]"
    one, many = (Operator.parse(expr, n=n, o=512, c=512) for n in (1, 512))
    with fixed_kernels(written_machine().to_json()):
        memory = len(written_machine().levels) - 1
        for operator, level, count in ((one, memory, 0), (many, memory, 1), (one, 0, 2)):
            made = Deriving(
                threads=1, max_rel_err=1e-5, seconds=99.0, directory=None, constants_from=level
            )
            made.prepare([Wanted(operator, ("k",), "float32")])
            assert len(searches) == count


def test_what_is_found_for_a_core_is_judged_in_what_is_around_it(
    searches: list[Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, in the first program; in others the fastest alone."""
    judged: list[int] = []
    real = search._judged

    def counted(found: list[Any], *how: Any) -> None:
        if "=" in str(found[0].original.expr).split("= sum", 1)[1]:
            judged.append(len(found))
        real(found, *how)

    monkeypatch.setattr(search, "_judged", counted)
    around = [
        Operator.parse(f"{CONV}; z[o,h,w] = {function}(y[o,h,w])", **LARGER)
        for function in ("relu", "tanh")
    ]
    made = Deriving(threads=1, max_rel_err=1e-5, seconds=99.0, directory=None)
    made.prepare([Wanted(operator, ("k",), "float32") for operator in around])
    assert len(searches) == 1
    first, second = judged
    assert first > 2 and second == 2
    for operator in around:
        found = made(operator, ("k",), "float32")
        assert found is not None and found[1] == "toom_cook"


def test_a_search_that_does_not_fit_is_left_to_the_next_compilation(
    searches: list[Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    real = search.searched

    def slow(operator: Operator, **options: Any) -> Any:
        clock[0] += 9.0
        return real(operator, **options)

    monkeypatch.setattr(search, "searched", slow)
    monkeypatch.setattr(deriving, "monotonic", lambda: clock[0])
    two = [Operator.parse(CONV, **{**LARGER, "o": o}) for o in (16, 20)]
    made = Deriving(threads=1, max_rel_err=1e-5, seconds=10.0, directory=None)
    made.prepare([Wanted(operator, ("k",), "float32") for operator in two])
    assert len(searches) == 1 and made._left == 1.0
