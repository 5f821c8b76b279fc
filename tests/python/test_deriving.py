"""Derivation: what is found computes the same, is judged against the original, is kept as steps, and proves itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import syno
from syno import _core, deriving
from syno.cli.main import app
from syno.deriving.derivations import Derived
from syno.deriving.judge import KINDS, Judge
from syno.errors import (
    FormatError,
    KernelError,
    ScheduleError,
    ShapeError,
    SynoError,
    UnknownName,
    VerifyError,
)
from syno.kernels.prepack import prepacked
from syno.machines.model import machine_model
from syno.operators.operator import Operator

Sizes = dict[str, int]

#: Operators and their sizes: windows of every kind that derivation knows, and some it has nothing for.
OPERATORS: dict[str, tuple[str, Sizes]] = {
    "conv2d": (
        "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
        {"o": 5, "c": 6, "h": 9, "w": 7, "r": 3, "s": 3},
    ),
    "conv1d, five taps, batch": (
        "y[n,o,h] = sum[c,r] x[n,c,h+r-2] * k[o,c,r]",
        {"n": 2, "o": 4, "c": 3, "h": 13, "r": 5},
    ),
    "strided": (
        "y[o,h] = sum[c,r] x[c,2*h+r-1] * k[o,c,r]",
        {"o": 4, "c": 4, "h": 8, "r": 3},
    ),
    "dilated": (
        "y[o,h] = sum[c,r] x[c,h+2*r-2] * k[o,c,r]",
        {"o": 4, "c": 4, "h": 12, "r": 3},
    ),
    "grouped": (
        "y[o,h] = sum[c,r] x[c+o/4*4,h+r-1] * k[o,c,r]",
        {"o": 8, "c": 4, "h": 10, "r": 3},
    ),
    "depthwise": ("y[c,h] = sum[r] x[c,h+r-1] * k[c,r]", {"c": 6, "h": 11, "r": 3}),
    "matmul": ("y[i,j] = sum[k] a[i,k] * b[k,j]", {"i": 6, "j": 8, "k": 10}),
    "softmax": ("y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])", {"i": 5, "j": 7, "k": 7}),
    "copy": ("y[i] = x[9-i]", {"i": 10}),
}


def _operator(name: str) -> Operator:
    expr, sizes = OPERATORS[name]
    return Operator.parse(expr, shapes=None, weights=None, data=None, **sizes)


def _data(operator: Operator, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: rng.integers(-3, 4, operator.shapes[n]).astype(float) for n in operator.inputs}


@pytest.mark.parametrize("name", OPERATORS)
def test_every_derivation_computes_the_operator(name: str) -> None:
    operator = _operator(name)
    data = _data(operator)
    wanted = operator.reference(**data)
    found = syno.derive(operator, states=300, seconds=0, measure=0)
    assert found.original.operator is operator and found.original.rules == ()
    for number in range(len(found)):
        one = found[number]
        assert one.operator.inputs == operator.inputs
        got = one.operator.reference(**data)
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9, err_msg=str(one))
        assert len(one.steps) == len(one.rules)
        assert one.exact == all(step.exact for step in one.steps)


def test_the_same_states_find_the_same() -> None:
    operator = _operator("conv2d")
    first, again = (syno.derive(operator, states=200, seconds=0, measure=0) for _ in range(2))
    assert [str(first[i]) for i in range(len(first))] == [str(again[i]) for i in range(len(again))]
    assert first.ended == "states" and first.states == 200


def test_a_window_becomes_fewer_products_and_a_kernel() -> None:
    operator = Operator.parse(OPERATORS["conv2d"][0], o=24, c=32, h=18, w=19, r=3, s=3)
    found = syno.derive(operator, rules=["toom_cook"], depth=2, seconds=0, growth=10)
    twice = [found[i] for i in range(1, len(found)) if found[i].rules == ("toom_cook",) * 2]
    assert twice and not twice[0].exact
    assert min(one.multiply_adds for one in twice) < operator.flops
    measured = [found[i] for i in range(len(found)) if found[i].measured_us is not None]
    assert found.original in measured and len(measured) >= 2
    for one in measured:
        assert set(one.errors) == set(KINDS)
        assert one.max_rel_err is not None and one.max_rel_err < 1e-4
    data = {n: v.astype(np.float32) for n, v in _data(operator).items()}
    wanted = operator.reference(**data)
    for one in measured:
        np.testing.assert_allclose(one.compile()(data["x"], data["k"]), wanted, atol=1e-2)
        packed = one.prepack().pack(k=data["k"])
        np.testing.assert_allclose(packed(data["x"]), wanted, atol=1e-2)
    best, first = found.best(), found.original.measured_us
    assert best.measured_us is not None and first is not None
    for one in measured[1:]:
        if not one.note and (one.measured_us or 0) * 1.02 <= first:
            assert best.measured_us <= (one.measured_us or 0)
    assert best is found.original or best.measured_us * 1.02 <= first


def test_what_is_less_accurate_than_allowed_is_not_the_best() -> None:
    found = syno.derive(
        _operator("conv2d"), rules=["toom_cook"], depth=1, seconds=0, max_rel_err=0.0
    )
    for number in range(1, len(found)):
        one = found[number]
        own = 2 * (found.original.max_rel_err or 0)
        if one.max_rel_err is not None and one.max_rel_err > own:
            assert "error" in one.note and found.best() is not one


def test_exact_derivations_only() -> None:
    found = syno.derive(_operator("conv2d"), reassociate=False, states=200, seconds=0, measure=0)
    assert all(each.exact for each in found) and len(list(found)) == len(found)
    assert all("toom_cook" not in found[i].rules for i in range(len(found)))


def test_constants_that_grow_too_much_are_left_out() -> None:
    operator = _operator("conv2d")
    for growth in (1.0, 1.5, 2.5, 8.0):
        found = syno.derive(
            operator, rules=["toom_cook"], depth=2, seconds=0, measure=0, growth=growth
        )
        for number in range(1, len(found)):
            before, after = found[number].constant_bytes
            assert after <= growth * before


def test_a_file_is_made_again_by_its_steps(tmp_path: Path) -> None:
    found = syno.derive(_operator("conv2d"), states=200, seconds=0, measure=0)
    path = found.save(tmp_path / "found.json")
    again = deriving.Derivations.load(path)
    assert str(again) == str(found) and again.to_dict() == found.to_dict()


def _first_step(content: dict[str, object]) -> dict[str, object]:
    derived = content["derived"]
    assert isinstance(derived, list)
    return dict(next(one for one in derived if one["steps"])["steps"][0])


@pytest.mark.parametrize(
    "damage",
    ["step", "program", "rule", "format", "original", "constants", "first", "text", "unknown"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    found = syno.derive(_operator("conv2d"), states=100, seconds=0, measure=0)
    content = found.to_dict()
    derived = next(one for one in content["derived"] if one["steps"])
    if damage == "step":
        derived["steps"][0]["iterator"] = "nobody"
    elif damage == "program":
        derived["program"] = content["derived"][0]["program"]
    elif damage == "rule":
        derived["steps"][0]["rule"] = "magic"
    elif damage == "format":
        content["version"] = 99
    elif damage == "original":
        content["original"] = "{}"
    elif damage == "constants":
        content["constants"] = ["nobody"]
    elif damage == "first":
        content["derived"] = content["derived"][1:]
    elif damage == "unknown":
        content["more"] = 1
    path = tmp_path / "found.json"
    path.write_text("no JSON" if damage == "text" else json.dumps(content))
    with pytest.raises(FormatError, match=r"found\.json|operator"):
        deriving.Derivations.load(path)


def test_compile_derives_and_remembers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import syno.deriving.search as search

    monkeypatch.setenv("SYNO_CACHE", str(tmp_path))
    operator = _operator("conv2d")
    data = {n: v.astype(np.float32) for n, v in _data(operator).items()}
    calls = []
    whole = search.derive

    def short(*args: object, **options: object) -> object:
        calls.append(options)
        return whole(*args, **{**options, "seconds": 0, "states": 60})  # type: ignore[arg-type]

    monkeypatch.setattr(search, "derive", short)
    for _ in range(2):
        kernel = operator.compile(derive=True)
        wanted = operator.reference(**data)
        np.testing.assert_allclose(kernel(data["x"], data["k"]), wanted, atol=1e-3)
    assert len(calls) == 1 and calls[0]["constants"] == []
    entry = next(tmp_path.glob("*.derived"))
    entry.write_bytes(b"damaged")
    operator.compile(derive=True)
    assert len(calls) == 2
    with pytest.raises(ScheduleError, match="not both"):
        operator.compile(derive=True, schedule=operator.compile().schedule)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"rules": ["toom"]}, UnknownName, "toom_cook"),
        ({"rules": []}, ShapeError, "nothing to rewrite"),
        ({"constants": ["z"]}, UnknownName, "a, b"),
        ({"dtype": "bfloat16"}, UnknownName, "float32"),
        ({"dtype": "f32"}, UnknownName, "float32"),
        ({"seconds": -1}, ShapeError, "seconds"),
        ({"growth": 0.5}, ShapeError, "growth"),
        ({"threads": 0}, SynoError, "threads"),
        ({"depth": -1}, SynoError, "depth"),
        ({"states": 0}, SynoError, "states"),
        ({"measure": -1}, SynoError, "measure"),
        ({"seconds": float("nan")}, ShapeError, "seconds"),
    ],
)
def test_wrong_options_are_named(
    options: dict[str, object], error: type[SynoError], says: str
) -> None:
    with pytest.raises(error, match=says):
        syno.derive(_operator("matmul"), **options)  # type: ignore[arg-type]


def test_no_depth_is_no_derivation_and_the_number_is_checked() -> None:
    found = syno.derive(_operator("copy"), states=20, seconds=0, measure=0)
    with pytest.raises(UnknownName, match="there are 0"):
        found[len(found)]


def test_an_operator_of_several_sizes_is_refused() -> None:
    spec = _core.spec_named("resnet18")
    symbolic = Operator.from_pgraph(_core.sample_operators(spec, n=1, seed=0)[0])
    if symbolic.valuation_count > 1:
        with pytest.raises(ShapeError, match="valuation"):
            syno.derive(symbolic)
        with pytest.raises(VerifyError, match="one valuation"):
            _core.roughness(symbolic.program)


def test_the_judge_sees_a_wrong_kernel() -> None:
    operator = _operator("conv1d, five taps, batch")
    judge = Judge(operator, "float32", 1)
    right = judge.errors(prepacked(operator, ["k"]))
    other = Operator.parse(
        "y[n,o,h] = sum[c,r] x[n,c,h+r-2] * k[o,c,4-r]", n=2, o=4, c=3, h=13, r=5
    )
    wrong = judge.errors(prepacked(other, ["k"]))
    assert max(right.values()) < 1e-5 < 1e-2 < min(wrong.values())


def test_a_watcher_that_raises_ends_the_search_with_what_it_raised() -> None:
    def tired(line: str) -> None:
        raise RuntimeError("tired")

    def watch(states: int, seconds: float, best: float) -> bool:
        raise RuntimeError("tired")

    machine = _core.describe_machine()
    with pytest.raises(RuntimeError, match="tired"):
        _core.search_derivations(_operator("conv2d").program, machine, watch=watch)


def test_what_is_fastest_is_not_too_inaccurate_to_be_found() -> None:
    """Seven taps: tiles of four places in both dimensions are fastest and a hundred times too rough; nothing else was kept."""
    operator = Operator.parse(
        "y[o,h,w] = sum[c,r,s] x[c,h+r-3,w+s-3] * k[o,c,r,s]", o=16, c=16, h=14, w=14, r=7, s=7
    )
    rough = syno.derive(operator, seconds=0, states=3000, measure=0, max_rel_err=1.0)
    assert max(one.roughness for one in rough) > 300
    found = syno.derive(operator, seconds=0, states=3000, measure=2)
    assert max(one.roughness for one in found) < 84
    accurate = [one for one in found if one.errors and not one.note and one.path]
    assert accurate and all((one.max_rel_err or 1) <= 1e-5 for one in accurate)
    assert min(one.multiply_adds for one in accurate) < 0.7 * operator.flops
    for one in found:
        assert one.roughness == pytest.approx(_core.roughness(one.operator.program))
        assert not one.exact or one.roughness == 1.0


def test_command_line(tmp_path: Path) -> None:
    run = CliRunner().invoke
    conv = ["derive", OPERATORS["conv2d"][0]]
    for name, extent in OPERATORS["conv2d"][1].items():
        conv += ["-s", f"{name}={extent}"]
    short = ["--states", "100", "--seconds", "0", "--measure", "0"]
    shown = run(app, [*conv, *short, "-o", str(tmp_path / "found.json")])
    assert shown.exit_code == 0 and "toom_cook" in shown.output, shown.output
    assert (tmp_path / "found.json").is_file()
    told = run(app, [*conv, *short, "--explain", "1"])
    assert told.exit_code == 0 and "multiply-adds" in told.output
    as_json = run(app, [*conv, *short, "--json"])
    assert json.loads(as_json.output)["derived"][0]["steps"] == []
    listed = run(app, ["derive", "--rules", "--json"])
    assert {"rule", "statement", "exact"} == set(json.loads(listed.output)[0])
    assert run(app, ["derive"]).exit_code == 1
    unknown = run(app, [*conv, "--rule", "magic"])
    assert unknown.exit_code == 2 and "toom_cook" in unknown.output
    saved = _operator("matmul").save(tmp_path / "matmul.json")
    assert run(app, ["derive", str(saved), *short]).exit_code == 0


# Folding of constants in prepacked kernels


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_what_depends_on_constants_alone_is_computed_once(dtype: str) -> None:
    operator = Operator.parse(
        "input x[4,8]; weight k[6,8]; weight b[6]; s[o: 6] = sum[c: 8] k[o,c]*k[o,c]; "
        "y[n: 4, o: 6] = sum[c: 8] x[n,c]*k[o,c] / s[o] + b[o]; return y"
    )
    kernel = prepacked(operator, dtype=dtype)
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(operator.shapes[n]) for n in operator.inputs}
    if dtype == "bfloat16":
        pytest.importorskip("torch")
        import torch

        values = {n: torch.from_numpy(v).bfloat16() for n, v in given.items()}
        got = kernel.pack(k=values["k"], b=values["b"])(values["x"]).float().numpy()
        given = {n: v.double().numpy() for n, v in values.items()}
    else:
        values = {n: v.astype(dtype) for n, v in given.items()}
        got = kernel.pack(k=values["k"], b=values["b"])(values["x"])
    tolerance = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(got, operator.reference(**given), rtol=tolerance, atol=tolerance)
    assert ("s[o]" in kernel.call.loops()) == (dtype == "bfloat16") or "s[" in kernel.loops()


def test_folded_kernels_take_arguments_of_any_layout_and_name_their_constants() -> None:
    operator = Operator.parse(
        "input x[6,8]; weight k[6,8]; t[c: 8, o: 6] = k[o,c]*2; "
        "y[n: 6, o: 6] = sum[c: 8] x[n,c]*t[c,o]; return y"
    )
    kernel = prepacked(operator)
    assert kernel.constants == ("k",) and kernel.data == ("x",)
    rng = np.random.default_rng(0)
    x, k = (rng.standard_normal((6, 8)).astype(np.float32) for _ in range(2))
    packed = kernel.pack(k=k)
    np.testing.assert_allclose(packed(x), x @ (2 * k).T, rtol=1e-5, atol=1e-5)
    turned = np.asfortranarray(x)
    np.testing.assert_allclose(packed(turned), x @ (2 * k).T, rtol=1e-5, atol=1e-5)
    with pytest.raises(UnknownName, match="k"):
        kernel.pack(t=k)
    with pytest.raises(ShapeError, match="k"):
        kernel.pack()


def test_what_is_found_is_tried_with_its_results_lying_by_channels_too() -> None:
    expr, _ = OPERATORS["conv2d"]
    operator = Operator.parse(
        expr, shapes=None, weights=None, data=None, o=9, c=8, h=8, w=8, r=3, s=3
    )
    rules = ["toom_cook", "innermost"]
    derived = syno.derive(operator, seconds=0, states=60, measure=0, rules=rules)
    found = [derived[number] for number in range(len(derived))]
    both = [one for one in found if one.rules[-1:] == ("innermost",)]
    assert both
    for one in both:  # last, once, beside the program without it
        assert one.rules.count("innermost") == 1
        assert any(other.path == one.path[:-1] for other in found)
    one = both[0]
    kernel = one.prepack()
    values = _data(operator)
    wanted = operator.compile("float64")(*[values[name] for name in operator.inputs])
    got = kernel.pack(k=values["k"].astype(np.float32))(values["x"].astype(np.float32))
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)

    without = syno.derive(operator, seconds=0, states=60, measure=0, rules=rules[:1])
    assert all("innermost" not in without[number].rules for number in range(len(without)))
    alone = syno.derive(operator, seconds=0, states=60, measure=0, rules=rules[1:])
    assert len(alone) == 1  # one scope has no results of its own to lay out


@pytest.fixture(scope="module")
def window() -> Operator:
    return Operator.parse(
        "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]", o=8, h=7, w=7, c=8, r=3, s=3
    )


def test_einnets_rules_make_a_matrix_product_of_a_window(window: Operator, tmp_path: Path) -> None:
    found = syno.derive(window, rules="einnet", target="matmul", seconds=0, depth=5, measure=0)
    assert found.ended == "exhausted" and len(found) > 1 and found.sought is not None
    assert found.sought.target_depth in range(1, 5) and found.sought.nearest == 0
    assert "matmul: " in str(found) and "matmul m 49" in str(found)
    for one in list(found)[1:]:
        assert one.exact and one.label.startswith("matmul m ")
        assert len(one.steps) == len(one.rules) and one.rules[0].startswith("einnet ")
    values = [_data(window)[name] for name in window.inputs]
    wanted = window.compile("float64")(*values)
    for one in list(found)[1:4]:
        got = one.operator.compile("float64")(*values)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    assert "einnet tighten" in found[1].explain() and "multiply-adds" in found[1].explain()

    again = deriving.Derivations.load(found.save(tmp_path / "found.json"))
    assert again.sought == found.sought and str(again) == str(found)
    assert [one.label for one in again] == [one.label for one in found]
    text = (tmp_path / "found.json").read_text()
    path = tmp_path / "wrong.json"
    path.write_text(text.replace('"rule": "einnet"', '"rule": "einet"'))
    with pytest.raises(FormatError):
        deriving.Derivations.load(path)


def test_a_target_that_is_not_there_says_how_near_it_came(window: Operator) -> None:
    found = syno.derive(window, target="g2bmm", seconds=0, depth=3, measure=0)
    assert len(found) == 1 and found.sought is not None and found.sought.target_depth == -1
    assert found.sought.nearest > 0 and "not found" in str(found) and "g2bmm" in str(found)
    nothing = syno.derive(window, rules="einnet", depth=0, measure=0)
    assert nothing.states == 1


def test_einnets_search_converges_on_a_target_beyond_its_depth(window: Operator) -> None:
    def search(converging: int) -> deriving.Derivations:
        return syno.derive(
            window, target="matmul", depth=2, seconds=0, measure=0, converging=converging
        )

    near, far = search(2), search(0)
    assert near.sought is not None and near.sought.target_depth == 3 and len(near) > 1
    assert far.sought is not None and far.sought.target_depth == -1 and len(far) == 1
    assert far.sought.nearest in (1, 2)
    with pytest.raises(SynoError, match="converging=-1"):
        search(-1)


def test_targets_and_presets_there_are_not_are_refused(window: Operator) -> None:
    with pytest.raises(UnknownName, match="matmul"):
        syno.derive(window, target="matmull")
    with pytest.raises(UnknownName, match="einnet"):
        syno.derive(window, rules="einet")
    with pytest.raises(UnknownName, match="kernel"):
        syno.derive(window, target="conv:kernels=3")
    with pytest.raises(ShapeError, match="einnet"):
        syno.derive(window, rules=["tighten"], target="matmul")
    with pytest.raises(ScheduleError, match="add up"):
        syno.derive(Operator.parse("y[i] = max[k] a[i,k] * b[k]", i=4, k=3), rules="einnet")


def test_einnets_rules_on_the_command_line() -> None:
    line = [
        "derive",
        "y[i,j] = sum[k,l] a[i,k,l] * b[l,k,j]",
        "-s",
        "i=4",
        "-s",
        "j=4",
        "-s",
        "k=4",
    ]
    line += ["-s", "l=2", "--preset", "einnet", "--depth", "2", "--measure", "0", "--json"]
    done = CliRunner().invoke(app, [*line, "--target", "matmul"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sought"]["target"] == "matmul"
    assert CliRunner().invoke(app, [*line, "--target", "matmull"]).exit_code != 0


@pytest.mark.parametrize("name", ["conv2d", "conv1d, five taps, batch"])
def test_a_window_is_evaluated_at_the_points_that_are_asked_for(name: str) -> None:
    operator = _operator(name)
    data = _data(operator)
    wanted = operator.reference(**data)
    for site in _core.rewrite_sites(operator.program, "toom_cook"):

        def made(numbers: list[int], at: _core.RewriteSite = site) -> Operator:
            asked = _core.RewriteSite(at.scope, at.iterator, at.other, "", numbers)
            return Operator(_core.rewrite(operator.program, "toom_cook", asked))

        tile, window = site.numbers
        texts = []
        for points in ([], [0], [1]):
            one = made([tile, window, *points])
            np.testing.assert_allclose(one.reference(**data), wanted, rtol=1e-9, atol=1e-9)
            text = str(one.program.text())
            texts.append(text.replace(f"{tile}x{window}i", f"{tile}x{window}"))
        assert texts[0] == texts[1]
        # Up to five products both sets begin alike.
        assert (texts[2] != texts[0]) == (tile + window > 6)
        for wrong in ([tile, window, 2], [tile, window, -1], [tile, window, 1, 1]):
            with pytest.raises(ScheduleError, match="0 \\(balanced points\\) or 1 \\(integers\\)"):
                made(wrong)


def test_the_fastest_is_compared_with_the_interpreter_and_none_that_fails_is_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[Derived] = []
    prepack = Derived.prepack

    def failing_first(one: Derived, *, check: bool = True) -> object:
        if check:
            checked.append(one)
            if len(checked) == 1:
                raise KernelError("gave max_rel_err 1.0")
        return prepack(one, check=check)

    def later_ones_slower(judge: Judge, kernels: list[object], turns: int) -> list[float]:
        return [1000.0, *(float(n) for n in range(1, len(kernels)))]

    monkeypatch.setattr(Derived, "prepack", failing_first)
    monkeypatch.setattr(Judge, "times", later_ones_slower)
    operator = Operator.parse(OPERATORS["conv2d"][0], o=32, c=32, h=28, w=28, r=3, s=3)
    found = syno.derive(operator, states=100, seconds=0)
    wrong, best = checked
    assert wrong.note == "no kernel: gave max_rel_err 1.0" and wrong.measured_us == 1.0
    assert found.best() is best and best.measured_us == 2.0 and not best.note


def test_what_is_slower_with_constants_from_memory_is_not_best(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def later_ones_slower(judge: Judge, kernels: list[object], turns: int) -> list[float]:
        return [1000.0, *(float(n) for n in range(1, len(kernels)))]

    def first_slower_cold(judge: Judge, kernels: list[object], turns: int) -> list[float]:
        return [2000.0, 2001.0, *(1999.0 for _ in kernels[2:])]

    monkeypatch.setattr(Judge, "times", later_ones_slower)
    monkeypatch.setattr(Judge, "cold_times", first_slower_cold)
    operator = Operator.parse(OPERATORS["conv2d"][0], o=32, c=32, h=28, w=28, r=3, s=3)
    found = syno.derive(operator, states=100, seconds=0)
    assert (found[1].measured_us, found[1].cold_us) == (1.0, 2001.0)
    assert found.best() is found[2] and "cold us" in found.table()[0]
    found.save(tmp_path / "found.json")
    again = type(found).load(tmp_path / "found.json")
    assert [one.cold_us for one in (again.original, again[1])] == [2000.0, 2001.0]
    assert again.best().path == found[2].path
    monkeypatch.setattr(Judge, "cold_times", lambda *_: None)
    near = syno.derive(operator, states=100, seconds=0)
    assert near.best() is near[1] and "cold us" not in near.table()[0]


def test_constants_beyond_the_second_cache_are_timed_from_memory_too() -> None:
    def cold(channels: int, size: int) -> list[float] | None:
        extents = {"o": channels, "c": channels, "h": size, "w": size, "r": 3, "s": 3}
        operator = Operator.parse(OPERATORS["conv2d"][0], **extents)
        kernel = Derived(operator, (), True, operator, ("k",)).prepack(check=False)
        return Judge(operator, "float32", 1).cold_times([kernel, kernel], 3)

    assert cold(16, 8) is None
    second = machine_model(measure=True).levels[1].usable_bytes
    channels = 16
    while 36 * channels**2 < second:
        channels *= 2
    far = cold(channels, 2)
    assert far is not None and len(far) == 2 and min(far) > 0


def test_who_compares_a_kernel_himself_gets_it_unchecked() -> None:
    operator = _operator("conv2d")
    assert prepacked(operator, cache=False, check=False).verification.points == 0
    assert prepacked(operator, cache=False).verification.points > 0
