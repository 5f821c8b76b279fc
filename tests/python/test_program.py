"""Programs from Python: the text form, shapes, cost, interpretation, errors."""

from __future__ import annotations

import copy
import doctest
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from syno import _core

Program = _core.Program
CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"


def test_a_convolution_in_one_line() -> None:
    p = Program.parse(CONV, sizes=dict(n=2, o=4, c=3, h=6, w=5, r=3, s=3))
    assert p.inputs == ["x", "k"]
    assert p.outputs == ["y"]
    assert [p.role(name) for name in p.tensors] == ["input", "weight", "computed"]
    assert p.shape("x") == [2, 3, 6, 5]
    assert p.cost().flops == 2 * 4 * 6 * 5 * 27
    assert p.cost().params == 4 * 27
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((4, 3, 3, 3))
    y = p.interpret({"x": x, "k": k})["y"]
    expected = F.conv2d(torch.from_numpy(x), torch.from_numpy(k), padding=1).numpy()
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
    assert p.short_text() == CONV


def test_whatever_a_user_thinks_of() -> None:
    """Expressions whose PyTorch form is known, from shapes alone."""
    rng = np.random.default_rng(1)
    cases = [
        ("y[m,n] = sum[k] a[m,k] * b[k,n]", [(4, 5), (5, 3)], lambda a, b: a @ b),
        ("y[b,m,n] = sum[k] a[b,m,k] * c[b,k,n]", [(2, 4, 5), (2, 5, 3)], torch.bmm),
        (
            "y[n,o,h] = sum[c,r] x[n,c,2*h+3*r-3] * k[o,c,r]",
            [(2, 3, 11), (4, 3, 3)],
            lambda x, k: F.conv1d(x, k, stride=2, padding=3, dilation=3),
        ),
        (
            "y[n,o,h,w] = sum[c,r,s] x[n, o/2*3 + c, h+r-1, w+s-2] * k[o,c,r,s]",
            [(1, 6, 5, 6), (4, 3, 3, 5)],
            lambda x, k: F.conv2d(x, k, padding=(1, 2), groups=2),
        ),
        (
            "y[n,c,h,w] = max[r,s] x[n,c,2*h+r,2*w+s]",
            [(2, 3, 6, 8)],
            None,  # r and s follow from nothing
        ),
        (
            "m[n] = max[k] x[n,k]; e[n,k] = exp(x[n,k] - m[n]); y[n,k] = e[n,k] / sum[j] e[n,j]",
            [(3, 5)],
            lambda x: torch.softmax(x, 1),
        ),
        ("y[n,k] = select(x[n,k] > 0, x[n,k], 0.01 * x[n,k])", [(3, 5)], F.leaky_relu),
        ("y[n,h] = x[n, h/3]", [(2, 4)], lambda x: x.repeat_interleave(3, 1)),
        (
            "y[i,j] = sum[k] a[i,k] * b[k,j] + c[j]",
            [(2, 3), (3, 4), (4,)],
            lambda a, b, c: a @ b + c,
        ),
        (
            "y[n,c] = (x[n,c] - mean[c] x[n,c]) * rsqrt(mean[c] x[n,c]**2 - (mean[c] x[n,c])**2)",
            [(3, 6)],
            lambda x: F.layer_norm(x, (6,), eps=0),
        ),
        ("y[i,j] = select(i >= j, x[i,j], -inf)", [(4, 4)], lambda x: _masked(x)),
    ]
    for text, shapes, function in cases:
        names = Program.parse(text, sizes=_all_sizes(text)).inputs
        given_shapes = dict(zip(names, map(list, shapes), strict=True))
        if function is None:
            with pytest.raises(_core.ShapeError, match="h, w, r, s"):
                Program.parse(text, shapes=given_shapes)
            continue
        p = Program.parse(text, shapes=given_shapes)
        arrays = {name: rng.standard_normal(shape) for name, shape in given_shapes.items()}
        expected = function(*[torch.from_numpy(arrays[name]) for name in names])
        np.testing.assert_allclose(
            p.interpret(arrays)["y"], expected.numpy(), rtol=1e-9, atol=1e-9, err_msg=text
        )


def _masked(x: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(~torch.ones_like(x, dtype=torch.bool).tril(), -torch.inf)


def _all_sizes(text: str) -> dict[str, int]:
    """A size for every iterator of a text, only to learn the names of its inputs."""
    sizes: dict[str, int] = {}
    while True:
        try:
            Program.parse(text, sizes=sizes)
        except _core.ShapeError as error:
            missing = str(error).split("the size of ")[1].split(" is not given")[0].split(", ")
            sizes.update(dict.fromkeys(missing, 4))
        else:
            return sizes


def test_two_runs_of_the_same_text_are_equal() -> None:
    a = Program.parse("y[i] = x[i] * 2", sizes={"i": 3})
    b = Program.parse(a.text())
    assert a == b
    assert hash(a) == hash(b)
    assert copy.deepcopy(a) == a
    assert a != Program.parse("y[i] = x[i] * 2", sizes={"i": 4})
    assert repr(a) == 'Program("y[i] = x[i] * 2")'


def test_symbolic_sizes_have_valuations() -> None:
    p = Program.parse(
        "size N : primary = 4, 6; size k : coefficient = 2, 3\n"
        "input x[N]; y[i: N/k] = sum[j: k] x[i*k + j]"
    )
    assert p.valuation_count == 2
    assert p.valuations == [{"N": 4, "k": 2}, {"N": 6, "k": 3}]
    assert not p.concrete
    assert p.at(1).concrete
    assert p.shape("x", 1) == [6]
    assert p.at(1).shape("y") == [2]
    assert p.at(1).interpret({"x": [1, 2, 3, 4, 5, 6]})["y"].tolist() == [6, 15]
    with pytest.raises(_core.ShapeError, match="valuation"):
        p.shape("x")
    with pytest.raises(_core.ShapeError, match="valuation 2"):
        p.at(2)


def test_exact_values_are_fractions() -> None:
    p = Program.parse("y[i] = x[i] / 3 + 0.25", sizes={"i": 2})
    y = p.interpret_exact({"x": [1, Fraction(1, 2)]})["y"]
    assert y.tolist() == [Fraction(7, 12), Fraction(5, 12)]
    with pytest.raises(_core.VerifyError, match="'exp'"):
        Program.parse("y[i] = exp(x[i])", sizes={"i": 2}).interpret_exact({"x": [1, 2]})
    with pytest.raises(_core.ShapeError, match="64 bits"):
        p.interpret_exact({"x": [1 << 70, 0]})


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=8))
def test_points_are_elements(points: list[tuple[int, int]]) -> None:
    p = Program.parse(
        "t[i,k] = sum[j] a[i,j] * b[j,k]; y[i,k] = t[i,k] - t[i,0]",
        shapes={"a": [3, 5], "b": [5, 4]},
    )
    rng = np.random.default_rng(0)
    inputs = {"a": rng.standard_normal((3, 5)), "b": rng.standard_normal((5, 4))}
    y = p.interpret(inputs)["y"]
    values, terms = p.interpret_points(inputs, "y", points)
    assert values.tolist() == [y[point] for point in points]
    bound = np.abs(inputs["a"]) @ np.abs(inputs["b"])
    assert terms.tolist() == pytest.approx([bound[i, k] + bound[i, 0] for i, k in points])


def test_inputs_of_other_types_and_layouts_are_converted() -> None:
    p = Program.parse("y[i,j] = x[i,j]", shapes={"x": [2, 3]})
    x = np.arange(6, dtype=np.int32).reshape(3, 2).T
    assert p.interpret({"x": x})["y"].tolist() == x.tolist()
    assert p.interpret({"x": torch.arange(6.0).reshape(2, 3)})["y"].tolist() == [
        [0, 1, 2],
        [3, 4, 5],
    ]


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({}, "ShapeError", "no values for 'x' of shape \\[2\\]"),
        ({"x": [1, 2, 3]}, "ShapeError", "has shape \\[3\\], but the program wants \\[2\\]"),
        ({"x": ["a", "b"]}, "ShapeError", "not an array of numbers"),
        ({"x": [1, 2], "z": [1]}, "UnknownName", "'z'"),
    ],
)
def test_wrong_inputs_are_named(inputs: dict[str, object], error: str, message: str) -> None:
    p = Program.parse("y[i] = x[i]", sizes={"i": 2})
    with pytest.raises(getattr(_core, error), match=message):
        p.interpret(inputs)


def test_errors_are_typed_and_point_at_the_place() -> None:
    with pytest.raises(_core.ParseError, match=r"column 10\)\n  y\[i\] = x\[j\]\n           \^$"):
        Program.parse("y[i] = x[j]")
    with pytest.raises(_core.ShapeError, match="the size of o, w, s is not given"):
        Program.parse(CONV, shapes={"x": [1, 2, 3, 4]}, sizes={"r": 3})
    with pytest.raises(_core.UnknownName, match="'q'"):
        Program.parse("y[i] = x[i]", sizes={"i": 2, "q": 3})
    with pytest.raises(_core.UnknownName, match="'z'"):
        Program.parse("y[i] = x[i]", sizes={"i": 2}).role("z")
    assert issubclass(_core.ParseError, _core.SynoError)


def test_weights_and_data_are_the_callers_choice() -> None:
    text = "y[i] = a[i] * b[i]"

    def roles(**options: list[str]) -> list[str]:
        p = Program.parse(text, sizes={"i": 2}, **options)
        return [p.role("a"), p.role("b")]

    assert roles() == ["input", "weight"]
    assert roles(weights=["a"]) == ["weight", "input"]
    assert roles(weights=[]) == ["input", "input"]
    assert roles(data=["a", "b"]) == ["input", "input"]
    assert roles(data=["b"]) == ["weight", "input"]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="yxi[]()=+-*/% ,:;.0123456789sum\nfill inf@{}<>", max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        p = Program.parse(text, sizes={"i": 2})
    except _core.SynoError:
        return
    assert Program.parse(p.text()) == p


def test_examples_in_the_documentation_run() -> None:
    finder = doctest.DocTestFinder()
    names = ["Program", "conv", "conv_transposed", "pool", "matmul"]
    tests = [t for name in names for t in finder.find(getattr(_core, name), name, module=False)]
    assert sum(len(test.examples) for test in tests) >= 8
    for test in tests:
        runner = doctest.DocTestRunner()
        assert runner.run(test).failed == 0
