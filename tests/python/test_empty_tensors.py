"""Operators on tensors without elements give what PyTorch gives, and gradients."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from syno.errors import ShapeError
from syno.operators.operator import Operator

torch = pytest.importorskip("torch")

from syno.torch.ops import as_function  # noqa: E402

Function = Callable[..., Any]

#: formula, extents, dimensions of each input by the iterators that may be empty, the same in PyTorch
FORMULAS: list[tuple[str, dict[str, int], list[str], Function]] = [
    (
        "y[i] = z[i] + sum[k] a[i,k] * b[k]",
        {"i": 3, "k": 4},
        ["i", "ik", "k"],
        lambda z, a, b: z + a @ b,
    ),
    ("y[i] = prod[k] a[i,k]", {"i": 3, "k": 4}, ["ik"], lambda a: a.prod(1)),
    ("y[i] = mean[k] a[i,k]", {"i": 3, "k": 4}, ["ik"], lambda a: a.mean(1)),
    ("y[i] = max[k] a[i,k]", {"i": 3, "k": 4}, ["ik"], lambda a: a.amax(1)),
    (
        "y[i] = 2 * z[i] - min[k] a[i,k]",
        {"i": 3, "k": 4},
        ["i", "ik"],
        lambda z, a: 2 * z - a.amin(1),
    ),
    (
        "y[i,j] = exp(sum[k] a[i,k]) * b[i,j]",
        {"i": 3, "j": 2, "k": 4},
        ["ik", "ij"],
        lambda a, b: a.sum(1, keepdim=True).exp() * b,
    ),
    (
        "y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])",
        {"i": 3, "j": 4, "k": 4},
        ["ij"],
        lambda x: x.softmax(1),
    ),
    (
        "t[i,j] = tanh(b[j] + sum[k] a[i,k] * w[k,j]); y[j] = sum[i] t[i,j] * c[i]",
        {"i": 3, "j": 2, "k": 4},
        ["j", "ik", "kj", "i"],
        lambda b, a, w, c: ((a @ w + b).tanh() * c[:, None]).sum(0),
    ),
    (
        "y[n,o,h] = sum[c,r] x[n,c,h+r-1] * w[o,c,r]",
        {"n": 2, "o": 3, "c": 2, "h": 5, "r": 3},
        ["nch", "ocr"],
        lambda x, w: (
            (x[:, None, :, :, None] * 0).sum((2, 4))
            + torch.einsum("nchr,ocr->noh", torch.nn.functional.pad(x, (1, 1)).unfold(2, 3, 1), w)
        ),
    ),
]


def einsum(seed: int) -> tuple[str, dict[str, int], list[str], Function]:
    draw = random.Random(seed)
    letters = "ijkl"[: draw.randint(2, 4)]
    operands = [
        "".join(draw.sample(letters, draw.randint(1, len(letters))))
        for _ in range(draw.randint(1, 3))
    ]
    used = sorted(set("".join(operands)))
    result = "".join(draw.sample(used, draw.randint(0, len(used))))
    summed = [letter for letter in used if letter not in result]
    product = " * ".join(f"{name}[{','.join(o)}]" for name, o in zip("abc", operands, strict=False))
    body = f"sum[{','.join(summed)}] {product}" if summed else product
    text = f"y[{','.join(result)}] = {body}"
    sizes = {letter: draw.randint(2, 4) for letter in used}
    return text, sizes, operands, lambda *t: torch.einsum(f"{','.join(operands)}->{result}", *t)


def outcome(function: Function, tensors: list[Any]) -> Any:
    """The result and the gradients of all inputs; None where it is refused."""
    given = [t.clone().requires_grad_() for t in tensors]
    try:
        y = function(*given)
    except (ShapeError, IndexError, RuntimeError):
        return None
    if y.requires_grad:
        y.sum().backward()
    gradients = [torch.zeros_like(t) if t.grad is None else t.grad for t in given]
    return [y.detach(), *gradients]


def check(text: str, sizes: dict[str, int], inputs: list[str], wanted: Function) -> None:
    function = as_function(Operator.parse(text, **cast(Any, sizes)))
    letters = sorted(set("".join(inputs)) - {"r", "h"})
    for count in range(1, len(letters) + 1):
        for empty in itertools.combinations(letters, count):
            extents = {**sizes, **dict.fromkeys(empty, 0)}
            tensors = [torch.randn([extents[d] for d in dims]) for dims in inputs]
            got, want = outcome(function, tensors), outcome(wanted, tensors)
            if want is None:  # also where no maximum is to be taken at all
                assert got is None or got[0].numel() == 0, (text, empty)
                continue
            assert got is not None, (text, empty)
            for one, other in zip(got, want, strict=True):
                torch.testing.assert_close(
                    one, other, equal_nan=True, msg=f"{text}, empty: {empty}"
                )


@pytest.mark.parametrize("case", FORMULAS, ids=lambda case: case[0])
def test_formulas_on_empty_tensors_are_those_of_pytorch(
    case: tuple[str, dict[str, int], list[str], Function],
) -> None:
    check(*case)


@pytest.mark.parametrize("seed", range(12))
def test_einsums_of_empty_tensors_are_those_of_pytorch(seed: int) -> None:
    check(*einsum(seed))


def test_compiled_modules_take_empty_batches() -> None:
    function = as_function(Operator.parse("y[i,j] = z[j] + sum[k] a[i,k] * b[k,j]", i=2, j=3, k=4))
    compiled = torch.compile(lambda z, a, b: function(z, a, b).relu(), backend="aot_eager")
    z, b = torch.randn(3), torch.randn(4, 3)
    for batch in (2, 0, 3):
        a = torch.randn(batch, 4)
        torch.testing.assert_close(compiled(z, a, b), (z + a @ b).relu())


def test_a_maximum_of_nothing_is_refused_in_a_sentence() -> None:
    function = as_function(Operator.parse("y[i] = max[k] a[i,k]", i=3, k=2))
    assert function(torch.empty(0, 0)).shape == (0,)
    with pytest.raises(ShapeError, match="'y' is a maximum over nothing"):
        function(torch.empty(3, 0))
