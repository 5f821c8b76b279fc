"""Gradients that are computed together are those that are computed one by one, and share their work."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from syno.operators.operator import Operator

torch = pytest.importorskip("torch")

from syno.torch import ops  # noqa: E402
from syno.torch.native import predicted_seconds  # noqa: E402
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

    def forbidden(*_: Any) -> Any:
        raise AssertionError("one gradient on its own")

    monkeypatch.setattr(ops.OperatorFunction, "each_gradient", forbidden)
    for count in range(2, len(inputs) + 1):
        for wanted in itertools.combinations(range(len(inputs)), count):
            given = [t.clone().requires_grad_(i in wanted) for i, t in enumerate(inputs)]
            for _ in range(2):  # the second time the kernels are there
                y = function(*given)
                got = torch.autograd.grad(y, [given[i] for i in wanted], cotangent)
                for i, gradient in zip(wanted, got, strict=True):
                    torch.testing.assert_close(gradient, alone[i])


def test_one_kernel_computes_what_shares_work() -> None:
    for name, kernels in (("conv", 2), ("two stages", 1)):
        operator = OPERATORS[name]
        inputs, cotangent = tensors(operator)
        joint = as_function(operator).together(tuple(range(len(inputs))))
        natives = joint._natives((cotangent, *inputs))
        assert natives is not None and len(natives) == kernels


@pytest.mark.parametrize("wanted", [(0, 1), (0, 1, 2)])
def test_a_compiled_step_calls_the_gradients_once(
    wanted: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = OPERATORS["two stages"]
    function = as_function(operator)
    inputs, cotangent = tensors(operator)
    given = [t.clone().requires_grad_(i in wanted) for i, t in enumerate(inputs)]
    leaves = [given[i] for i in wanted]
    expected = torch.autograd.grad(function(*given), leaves, cotangent)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *ts: function(*ts), backend="aot_eager", fullgraph=True)
    y = compiled(*given)
    torch.autograd.grad(y, leaves, cotangent, retain_graph=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        got = torch.autograd.grad(y, leaves, cotangent)
    torch.testing.assert_close(got, expected)
    called = [e.key for e in profile.key_averages() if e.key.startswith("syno::")]
    assert called == [f"syno::{function.name}_d{'_'.join(map(str, wanted))}"]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_gradients_are_the_eager_ones(operator: Operator, backend: str) -> None:
    function = as_function(operator)
    inputs, cotangent = tensors(operator)
    leaves = [t.requires_grad_() for t in inputs]
    expected = torch.autograd.grad(function(*leaves), leaves, cotangent)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *ts: function(*ts) * 2, backend=backend, fullgraph=True)
    got = torch.autograd.grad(compiled(*leaves), leaves, cotangent / 2)
    torch.testing.assert_close(got, expected)


def test_a_joint_gradient_is_an_operator_like_others(operator: Operator) -> None:
    function = as_function(operator)
    inputs, cotangent = tensors(operator)
    wanted = tuple(range(len(inputs)))[:2]
    joint = function.together(wanted)
    given = [t.requires_grad_() for t in (cotangent, *inputs)]
    torch.library.opcheck(getattr(torch.ops.syno, joint.name).default, given)
    assert torch.autograd.gradcheck(lambda *ts: joint(*ts), given)
    rows = [t.detach().transpose(0, -1).contiguous().transpose(0, -1) for t in given]
    for one, other in zip(joint(*rows), joint(*given), strict=True):
        torch.testing.assert_close(one, other)


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


def test_where_no_kernel_computes_them_they_are_what_each_is_alone() -> None:
    conv = OPERATORS["conv"]
    function = as_function(conv)
    joint = function.together((0, 1))
    (x, k), cotangent = tensors(conv)
    together = joint.compute(cotangent, x, k)
    assert [t.shape for t in together] == [x.shape, k.shape]
    half = joint.compute(cotangent.half(), x.half(), k.half())
    assert all(t.dtype == torch.half for t in half)
    for one, other in zip(half, together, strict=True):
        torch.testing.assert_close(one.double(), other, atol=2e-2, rtol=2e-2)
    dx, dk = joint.compute(cotangent[:0], x[:0], k)
    assert dx.shape == x[:0].shape and dk.shape == k.shape and not dk.any()
    with pytest.raises(TypeError, match="one dtype"):
        joint.compute(cotangent, x, k.float())
    joint.forget()
    for one, other in zip(joint.compute(cotangent, x, k), together, strict=True):
        assert torch.equal(one, other)
    empty = x[:0].clone().requires_grad_()
    weight = k.clone().requires_grad_()
    function(empty, weight).sum().backward()
    assert empty.grad.shape == empty.shape and not weight.grad.any()


def test_gradients_are_summed_up_in_the_way_that_is_predicted_faster() -> None:
    text = "y[o,h,w] = sum[k,c] x[c,w,h % 4 + 4 * inside(k + h / 4 - 1, 5)] * v[o,k,c,h / 4]"
    operator = Operator.parse(text, o=8, h=20, w=6, k=3, c=16)
    function = as_function(operator)
    ways = [Operator(operator.program.derivative("x", in_two_steps=both)) for both in (True, False)]
    assert ways[0].program.text() != ways[1].program.text()
    least = min(predicted_seconds(way, "float32", 1) for way in ways)
    inputs, cotangent = tensors(operator)
    shapes = tuple(tuple(t.shape) for t in (cotangent, *inputs))
    chosen = function.derivative(0).operator_for(shapes)
    assert predicted_seconds(chosen, "float32", 1) == least
    got = function.derivative(0)(cotangent, *inputs)
    given = [t.requires_grad_() for t in inputs]
    (expected,) = torch.autograd.grad(function.emitted(given), given[:1], cotangent)
    torch.testing.assert_close(got, expected)
