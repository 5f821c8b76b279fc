"""Neighbouring dimensions as one: which can be, what is computed then, and kernels whose sizes are products."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
import torch

import syno
from syno import _core
from syno.errors import ShapeError
from syno.kernels.families import Family, merged

#: Formulas over h and w, and the tensors whose h and w are one then.
FORMULAS = {
    "y[o,h,w] = sum[c] x[c,h,w] * k[o,c]": {"x", "y"},
    "y[c,h,w] = relu(x[c,h,w] + b[c])": {"x", "y"},
    "y[h,w,c] = x[c,h,w]": {"x", "y"},
    "y[c] = mean[h,w] x[c,h,w]": {"x"},
    "y[o,h,w] = sum[c,p,q] x[c,h+p,w+q] * k[o,c,p,q]": {
        "x",
        "y",
    },  # a 1x1 convolution, written as any
    "t[c,h,w] = exp(x[c,h,w]); y[c,h,w] = t[c,h,w] * t[c,h,w] + z[h,w]": {"x", "t", "y", "z"},
    "t[h,w] = sum[c] x[c,h,w]; y[c,h,w] = x[c,h,w] - t[h,w]": {"x", "t", "y"},
    # Not both of a place, in another order, one of them alone, or its number.
    "y[c,h,w] = sum[r] x[c,h,w+r-1] * k[r]": set(),
    "y[c,w,h] = x[c,h,w]": set(),
    "y[c,h,w] = x[c,h,w] * v[h]": set(),
    "y[c,h,w] = x[c,h,w] * h": set(),
    "y[h,c,w] = x[c,h,w]": set(),
    "y[o,h,w] = sum[c,p,r] x[c,h+p,w+r-1] * k[o,c,p,r]": set(),
    "t[c,h,w] = x[c,h,w]; y[c,h,w] = t[c,h,w] * t[c,h,0]": set(),
    "y[c,h] = sum[w] x[c,h,w]": set(),
}


def operator(text: str, **sizes: int) -> syno.Operator:
    known = {"c": 3, "o": 4, "r": 3, "h": 5, "w": 6, "p": 1, "q": 1}
    names = re.findall(r"[a-z]+", text)
    used = {name: size for name, size in {**known, **sizes}.items() if name in names}
    return syno.Operator.parse(text, **used)


def pairs_of(program: _core.Program, sizes: tuple[int, int] = (5, 6)) -> list[tuple[str, int]]:
    wanted = [
        (name, d)
        for name in program.tensors
        for d in range(len(program.shape(name)) - 1)
        if tuple(program.shape(name)[d : d + 2]) == sizes
    ]
    return _core.mergeable(program, wanted)


@pytest.mark.parametrize("text", FORMULAS)
def test_what_is_only_walked_together_is_one(text: str) -> None:
    program = operator(text).program
    pairs = pairs_of(program)
    # Tensors between scopes have names of the formula's.
    assert {name for name, _ in pairs} == FORMULAS[text], pairs
    if not pairs:
        return
    made = _core.merge_dims(program, pairs)
    made.verify()
    generator = np.random.default_rng(0)
    inputs = {n: generator.standard_normal(program.shape(n)) for n in program.inputs}
    wanted = program.interpret(inputs)
    got = made.interpret({n: a.reshape(made.shape(n)) for n, a in inputs.items()})
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name].reshape(value.shape), value)
    # At other sizes it is the same but for the extent.
    other = operator(text, h=7, w=2).program
    again = _core.merge_dims(other, pairs_of(other, (7, 2)))
    assert _core.merge_dims(program, pairs, 14).text() == again.text()


def test_a_dimension_that_is_not_there_is_said() -> None:
    program = operator("y[c,h,w] = relu(x[c,h,w] + b[c])").program
    for wanted in ([("x", 2)], [("q", 0)]):
        with pytest.raises(ShapeError, match="no dimensions"):
            _core.mergeable(program, wanted)


def test_only_what_is_mergeable_is_merged() -> None:
    """A pair that some access does not walk so, one of two that go together, and no elements."""
    walked = operator("y[c,h,w] = relu(x[c,h,w] + b[c])").program
    window = operator("y[c,h,w] = sum[r] x[c,h,w+r-1] * k[r]").program
    for program, pairs in ((window, [("x", 1), ("y", 1)]), (walked, [("x", 1)])):
        with pytest.raises(ShapeError, match="ask `mergeable`"):
            _core.merge_dims(program, pairs)
    with pytest.raises(ShapeError, match="at least 1"):
        _core.merge_dims(walked, pairs_of(walked), 0)


def family(text: str, **ranges: tuple[int, int]) -> Family:
    return Family(lambda sizes: operator(text, **sizes), ranges)


def test_families_merge_sizes_that_are_neighbours_everywhere() -> None:
    (step,) = merged(family("y[c,h,w] = relu(x[c,h,w] + b[c])", h=(2, 5), w=(3, 6)))
    assert step.family.names == ("h_w",)
    assert (step.family.least, step.family.greatest) == ((6,), (30,))
    assert step.within((4, 5)) == (20,) and step.apart("x", [3, 20], (4, 5)) == [3, 4, 5]
    assert step.apart("b", [3], (4, 5)) == [3]
    # Of three, two after the other; of another size, it stays.
    three = merged(family("y[c,h,w] = relu(x[c,h,w])", c=(1, 3), h=(2, 5), w=(3, 6)))
    assert [each.family.names for each in three] in (
        [("w", "c_h"), ("c_h_w",)],
        [("c", "h_w"), ("c_h_w",)],
    )
    (step,) = merged(family("y[o,h,w] = sum[c] x[c,h,w] * k[o,c]", o=(2, 4), h=(2, 5), w=(3, 6)))
    assert step.family.names == ("o", "h_w")
    for text in ("y[c,h,w] = sum[r] x[c,h,w+r-1] * k[r]", "y[c,h,w] = x[c,h,w] * v[h]"):
        assert merged(family(text, h=(2, 5), w=(3, 6))) == ()
    # One size says nothing of the other.
    assert merged(family("y[c,h,w] = relu(x[c,h,w] + b[c])", h=(2, 5))) == ()


@pytest.mark.parametrize("text", [text for text, tensors in FORMULAS.items() if tensors])
def test_kernels_of_merged_sizes_compute_the_operator(text: str) -> None:
    dynamic = operator(text, h=9, w=11).compile(dynamic={"h": (1, 9), "w": (1, 11)}, cache=False)
    assert not dynamic.by_size and len(dynamic.buckets[0].least) == 1
    draw = random.Random(0)
    for h, w in [(9, 11), (1, 1), (1, 11), (9, 1)] + [
        (draw.randint(1, 9), draw.randint(1, 11)) for _ in range(6)
    ]:
        static = operator(text, h=h, w=w)
        arrays = [torch.randn(static.shapes[name]) for name in static.inputs]
        wanted = static.compile(cache=False)(*arrays)
        result = dynamic(*arrays)
        assert result.shape == wanted.shape
        torch.testing.assert_close(result, wanted)
        out = torch.empty_like(wanted)
        assert dynamic(*arrays, out=out) is out
        torch.testing.assert_close(out, wanted)
        # What does not lie row by row is copied, as elsewhere.
        turned = [
            a.transpose(-1, -2).contiguous().transpose(-1, -2) if a.dim() > 1 else a for a in arrays
        ]
        torch.testing.assert_close(dynamic(*turned), wanted)
    assert "h_w" in dynamic.loops(h=3, w=4)
    larger = operator(text, h=10, w=11)
    arrays = [torch.randn(larger.shapes[name]) for name in larger.inputs]
    with pytest.raises(ShapeError, match="gives h=10"):
        dynamic(*arrays)


def test_code_seen_in_another_shape() -> None:
    kernel = operator("y[c,h,w] = relu(x[c,h,w] + b[c])").compile(cache=False)._core
    seen = kernel.viewed([[3, 30], [3], [15, 6]])
    x, b = np.random.rand(3, 5, 6).astype(np.float32), np.random.rand(3).astype(np.float32)
    y = seen(x.reshape(3, 30), b)
    assert y.shape == (15, 6)
    np.testing.assert_array_equal(y.reshape(3, 5, 6), kernel(x, b))
    with pytest.raises(ShapeError, match="cannot be viewed as"):
        kernel.viewed([[3, 31], [3], [3, 5, 6]])
    with pytest.raises(ShapeError, match="2 shapes for 3 arguments"):
        kernel.viewed([[90], [3]])
    with pytest.raises(ShapeError, match="row-major"):
        seen(np.asfortranarray(x.reshape(3, 30)), b)
