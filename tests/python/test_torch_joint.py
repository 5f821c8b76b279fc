"""Gradients that are computed together are those that are computed one by one, and share their work."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from syno.operator import Operator

torch = pytest.importorskip("torch")

from syno.torch import ops  # noqa: E402
from syno.torch.joint import JointGradient  # noqa: E402
from syno.torch.ops import as_function  # noqa: E402

OPERATORS = {
    "conv": Operator.parse(
        "y[n,o,h] = sum[c,r] x[n,c,2*h+r-1] * k[o,c,r]", n=2, o=5, c=3, h=6, r=3
    ),
    "two stages": Operator.parse(
        "t[n,m,h] = sum[c] x[n,c,h] * a[m,c]; y[n,o,h] = sum[m,r] t[n,m,h+r-1] * b[o,m,r]",
        n=2, m=4, c=6, o=5, h=7, r=3,
    ),
    "products": Operator.parse("y[i] = a[i] * b[i] * c[i]", i=7),
}  # fmt: skip


def tensors(operator: Operator, dtype: Any = torch.float64) -> tuple[Any, Any]:
    torch.manual_seed(0)
    inputs = [torch.randn(operator.shapes[n], dtype=dtype) for n in operator.inputs]
    return inputs, torch.randn(operator.shapes["y"], dtype=dtype)


@pytest.fixture(params=OPERATORS)
def operator(request: Any) -> Operator:
    return OPERATORS[request.param]


def test_any_inputs_together_are_each_alone(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = as_function(operator)
    inputs, cotangent = tensors(operator)
    alone = [function.derivative(i)(cotangent, *inputs) for i in range(len(inputs))]

    def forbidden(self: Any, index: int) -> Any:
        raise AssertionError("one gradient on its own")

    monkeypatch.setattr(ops.OperatorFunction, "derivative", forbidden)
    for count in range(2, len(inputs) + 1):
        for wanted in itertools.combinations(range(len(inputs)), count):
            given = [t.clone().requires_grad_(i in wanted) for i, t in enumerate(inputs)]
            for _ in range(2):  # the second time the kernel is there
                y = function(*given)
                got = torch.autograd.grad(y, [given[i] for i in wanted], cotangent)
                for i, gradient in zip(wanted, got, strict=True):
                    torch.testing.assert_close(gradient, alone[i])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_cotangent_dtype_and_thread_count(
    operator: Operator, dtype: Any, threads: int
) -> None:
    function = as_function(operator)
    exact, _ = tensors(operator, torch.float64)
    inputs = [t.to(dtype).requires_grad_() for t in exact]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        y = function(*inputs)
        shape = y.shape
        rows = torch.randn(shape[::-1], dtype=dtype).permute(*reversed(range(y.dim())))
        for cotangent in (torch.ones((), dtype=dtype).expand(shape), rows, rows.contiguous()):
            got = torch.autograd.grad(y, inputs, cotangent, retain_graph=True)
            wide = [t.detach().double().requires_grad_() for t in inputs]
            expected = torch.autograd.grad(function.emitted(wide), wide, cotangent.double())
            for one, other in zip(got, expected, strict=True):
                assert one.dtype == dtype
                scale = float(other.abs().max())
                limit = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2**-8}[dtype]
                assert float((one.double() - other).abs().max()) <= limit * max(scale, 1.0)
    finally:
        torch.set_num_threads(before)


def test_gradients_of_gradients_are_right(operator: Operator) -> None:
    inputs, _ = tensors(operator)
    assert torch.autograd.gradgradcheck(as_function(operator), [t.requires_grad_() for t in inputs])


def test_nothing_is_computed_together_where_that_cannot_be() -> None:
    conv = OPERATORS["conv"]
    joint = JointGradient(("dy", "x", "k"), ("x", "k"), as_function(conv).operator_for)
    (x, k), cotangent = tensors(conv)
    together = joint((cotangent, x, k))
    assert together is not None and [t.shape for t in together] == [x.shape, k.shape]
    assert joint((cotangent, x, k.float())) is None
    assert joint((cotangent.half(), x.half(), k.half())) is None
    assert joint((cotangent[:0], x[:0], k)) is None
    joint.forget()
    again = joint((cotangent, x, k))
    assert again is not None
    for one, other in zip(again, together, strict=True):
        assert torch.equal(one, other)
    empty = x[:0].clone().requires_grad_()
    weight = k.clone().requires_grad_()
    as_function(conv)(empty, weight).sum().backward()
    assert empty.grad.shape == empty.shape and not weight.grad.any()
