"""Tensors that are dense in another order are read and written where they lie or copied, whichever is predicted to be
faster; results are channels-last where PyTorch's would be."""

from __future__ import annotations

import copy
import itertools
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno.operators.operator import Operator

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from syno.torch import Op, placement, replace  # noqa: E402
from syno.torch.layouts import (  # noqa: E402
    dense_order,
    follows,
    in_format,
    layout_of,
    memory_format,
)
from syno.torch.ops import as_function  # noqa: E402

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"


def lying(tensor: Any, order: tuple[int, ...]) -> Any:
    """The same values, row-major once the dimensions are in this order."""
    back = [order.index(d) for d in range(len(order))]
    return tensor.permute(order).contiguous().permute(back)


def test_orders_are_told() -> None:
    x = torch.randn(2, 3, 4, 5)
    assert dense_order(x) is None
    assert dense_order(x.to(memory_format=torch.channels_last)) == (0, 2, 3, 1)
    for order in itertools.permutations(range(4)):
        told = dense_order(lying(x, order))
        assert told == (None if order == (0, 1, 2, 3) else order)
    assert dense_order(x[:, :, ::2]) is None  # does not fill its memory
    assert dense_order(x.flip(0)) is None
    assert dense_order(x[:1].expand(2, 3, 4, 5)) is None
    assert (
        dense_order(torch.randn(3, 1, 5).transpose(0, 1)) is None
    )  # row-major, whatever the strides say
    column = lying(torch.randn(3, 1, 5), (2, 1, 0))
    assert column.permute(dense_order(column)).is_contiguous()


@pytest.fixture(params=["predicted", "in place", "copied"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "predicted":
        seconds = 1e9 if request.param == "in place" else -1e9
        monkeypatch.setattr(placement, "_copy_seconds", lambda *_: seconds)
    return str(request.param)


ORDERS = st.permutations(range(4)).map(tuple)


def test_any_order_of_any_input_gives_the_same(way: str) -> None:
    @settings(max_examples=6, deadline=None)
    @given(
        x_order=ORDERS | st.just((0, 2, 3, 1)), k_order=ORDERS, y_order=ORDERS, o=st.integers(1, 20)
    )
    def check(x_order: Any, k_order: Any, y_order: Any, o: int) -> None:
        torch.manual_seed(o)
        function = as_function(Operator.parse(CONV, n=2, o=o, c=3, h=6, w=5, r=3, s=3))
        for each in (function, function.derivative(0), function.derivative(1)):
            each.forget()  # what was planned in another way
        x = lying(torch.randn(2, 3, 6, 5), x_order).requires_grad_()
        k = lying(torch.randn(o, 3, 3, 3), k_order).requires_grad_()
        formats = [memory_format(t) for t in (x, x, k)]
        g = lying(torch.randn(2, o, 6, 5), y_order)
        for _ in range(2):
            y = function(x, k)
            expected = F.conv2d(x, k, padding=1)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
            got = torch.autograd.grad(y, (x, k), g)
            for one, other in zip(got, torch.autograd.grad(expected, (x, k), g), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
            for result, format in zip((y, *got), formats, strict=True):
                assert result.stride() == torch.empty(result.shape, memory_format=format).stride()

    check()


def test_no_copy_is_made_of_what_is_read_in_place(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=7, n=9, k=8)
    a, b = lying(torch.randn(7, 8), (1, 0)), torch.randn(8, 9)
    chosen = placement.Placement(operator, ["a", "b"], layout_of((a, b), (None,)), lambda _: 1.0)
    if way == "in place":
        assert chosen.operator.shapes["a"] == (8, 7)
    if way == "copied":
        assert chosen.operator is operator
    function = as_function(operator)
    function.forget()
    function(a, b)
    copied = []
    contiguous = torch.Tensor.contiguous
    monkeypatch.setattr(
        torch.Tensor, "contiguous", lambda t, **_: copied.append(t.shape) or contiguous(t)
    )
    torch.testing.assert_close(function(a, b), a @ b, rtol=1e-4, atol=1e-4)
    if way != "predicted":
        assert ((7, 8) in copied) == (way == "copied")


SHAPES = st.lists(st.integers(0, 3), min_size=3, max_size=5)


@given(SHAPES, st.randoms(), st.booleans())
def test_the_memory_format_is_pytorchs_suggestion(shape: Any, random: Any, sliced: bool) -> None:
    from torch._prims_common import suggest_memory_format

    order = list(range(len(shape)))
    random.shuffle(order)
    tensor = lying(torch.empty(shape), tuple(order))
    if sliced:
        tensor = tensor[tuple(slice(None, None, random.choice((1, 2))) for _ in shape)]
    assert memory_format(tensor) == suggest_memory_format(tensor)
    expanded = tensor[:, :1].expand_as(tensor)
    assert memory_format(expanded) == suggest_memory_format(expanded)


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("size", [(1, 1), (1, 5), (6, 5)])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_a_result_has_the_strides_of_pytorchs_convolution(
    format: Any, batch: int, size: Any, channels: int
) -> None:
    operator = Operator.parse(CONV, n=batch, o=6, c=channels, h=size[0], w=size[1], r=3, s=3)
    x = torch.randn(batch, channels, *size).to(memory_format=format)
    k = torch.randn(6, channels, 3, 3)
    expected = F.conv2d(x, k, padding=1)
    function = as_function(operator)
    native, packed = Op(operator).eval(), Op(operator, prepack=True).eval()
    with torch.no_grad():
        for op in (native, packed):
            op.k.copy_(k)
        every_second = torch.empty(batch, channels, size[0], 2 * size[1])
        every_second = every_second.to(memory_format=format)[..., ::2].copy_(x)
        for _ in range(2):
            for run in (lambda t: function(t, k), native, packed):
                for each in (x, every_second):
                    y = run(each)
                    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
                    like = torch.empty_like(y, memory_format=memory_format(each))
                    assert y.stride() == (expected if each is x else like).stride()
    for one in (function, function.derivative(0), function.derivative(1)):
        tensors = (x, k) if one is function else (expected, x, k)
        torch.library.opcheck(one._call, tensors, test_utils=("test_schema", "test_faketensor"))
    assert in_format(function.emitted((x, k)), memory_format(x)).stride() == expected.stride()


def test_a_network_goes_to_channels_last_with_operators_of_any_weights() -> None:
    text = "y[n,o,h,w] = sum[g,c,r,s] x[n,4*g+c,h+r-1,w+s-1] * k[o,g,c,r,s]"
    operator = Operator.parse(text, n=1, o=8, g=2, c=4, h=5, w=5, r=3, s=3)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), Op(operator)).requires_grad_(False)
    x = torch.randn(1, 3, 7, 7)
    expected = network(x)
    network = network.to(memory_format=torch.channels_last)
    y = network(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    assert y.is_contiguous(memory_format=torch.channels_last) and network[1].k.is_contiguous()
    assert network.double()[1].k.dtype == torch.float64 and network[1].k.shape == (8, 2, 4, 3, 3)
    y = network.to(torch.bfloat16)(x.bfloat16())
    torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.1)
    assert network.share_memory()[1].k.is_shared()
    assert network.to("meta")[1].k.is_meta


def test_images_of_three_dimensions_and_lines() -> None:
    x = torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
    k = torch.randn(7, 3, 3, 3, 3)
    text = "y[n,o,d,h,w] = sum[c,q,r,s] x[n,c,d+q-1,h+r-1,w+s-1] * k[o,c,q,r,s]"
    function = as_function(Operator.parse(text, n=2, o=7, c=3, d=4, h=5, w=6, q=3, r=3, s=3))
    y, expected = function(x, k), F.conv3d(x, k, padding=1)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    assert y.stride() == expected.stride()
    text = "y[n,o,h] = sum[c,r] x[n,c,h+r-1] * k[o,c,r]"
    function = as_function(Operator.parse(text, n=2, o=4, c=3, h=9, r=3))
    line = lying(torch.randn(2, 3, 9), (0, 2, 1))
    assert function(line, torch.randn(4, 3, 3)).is_contiguous()


def test_a_result_follows_the_first_data_input_of_its_rank() -> None:
    text = "y[n,c,h,w] = a[n,c] * sum[r] x[n,c,h+r,w] * k[c,r]"
    sizes = {"n": 2, "c": 3, "h": 4, "w": 5, "r": 2}
    two = Operator.parse(text, data=["a", "x"], **sizes)
    assert follows(two) == "x" and follows(Operator.parse(text, data=["a"], **sizes)) is None
    a, k = torch.randn(2, 3), torch.randn(3, 2)
    x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    y = as_function(two)(a, x, k)
    expected = a[:, :, None, None] * (
        x[:, :, :-1] * k[:, 0, None, None] + x[:, :, 1:] * k[:, 1, None, None]
    )
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_a_compiled_model_sees_the_strides_that_it_gets() -> None:
    pytest.importorskip("torch._inductor")
    operator = Operator.parse(CONV, n=2, o=4, c=4, h=6, w=6, r=3, s=3)
    function = as_function(operator)
    k = torch.randn(4, 4, 3, 3)

    def run(x: Any) -> Any:
        return function(x * 2, k).relu() + x

    compiled = torch.compile(run, backend="aot_eager", dynamic=True)
    for shape in ((2, 4, 6, 6), (3, 4, 5, 8)):
        for format in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(shape).to(memory_format=format)
            torch.testing.assert_close(compiled(x), run(x), rtol=1e-4, atol=1e-5)
            assert compiled(x).stride() == run(x).stride()


@pytest.mark.parametrize("prepack", [False, True])
def test_a_network_is_compiled_as_one_graph_before_it_ever_ran(prepack: bool) -> None:
    text = CONV + f" + {int(prepack)} * x[n,0,0,0]"  # an operator that is new in this process
    operator = Operator.parse(text, n=2, o=4, c=4, h=6, w=6, r=3, s=3)
    layers = [torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)]
    network = replace(torch.nn.Sequential(*layers), {"0": operator, "2": operator}).eval()
    for i in (0, 2):
        network[i].prepack = prepack
    for model in (network, pickle.loads(pickle.dumps(network)), copy.deepcopy(network)):
        torch._dynamo.reset()
        x = torch.randn(2, 4, 6, 6)
        with torch.no_grad():
            compiled = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
            torch.testing.assert_close(compiled, network(x), rtol=1e-4, atol=1e-5)


def test_emitted_functions_are_compiled_as_one_graph() -> None:
    """With their gradients, and tables of their own that were first made where none was recorded."""
    operator = Operator.parse("y[n,o,h] = sum[c] x[n,c,h] * k[o,c]", n=2, o=4, c=4, h=9)
    scatter = Operator.parse("y[h+r] += x[h] * k[r]", h=5, r=3, shapes={"y": (7,)}, weights=["k"])
    for each in (operator, scatter):
        inputs = [torch.randn(each.shapes[name], dtype=torch.float64) for name in each.inputs]
        function = as_function(each)
        with torch.inference_mode():
            expected = function.emitted(inputs)
        assert any(
            True
            for _ in function.emitted_module(  # tables, no weights
                tuple(tuple(t.shape) for t in inputs), torch.float64, torch.device("cpu")
            ).buffers()
        ) == (each is scatter)
        leaves = [t.requires_grad_() for t in inputs]
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda *ts, f=function: f.emitted(ts), backend="aot_eager", fullgraph=True
        )
        result = compiled(*leaves)
        torch.testing.assert_close(result, expected)
        grads = torch.autograd.grad(result.square().sum(), leaves)
        wanted = torch.autograd.grad(function(*leaves).square().sum(), leaves)
        torch.testing.assert_close(grads, wanted)


def test_derivatives_are_found_by_name_before_any_gradient() -> None:
    """As code that `torch.compile` kept from another process asks for them."""
    operator = Operator.parse(CONV + " * 5", n=2, o=4, c=4, h=6, w=6, r=3, s=3)
    function = as_function(operator)
    x, k, dy = (torch.randn(shape) for shape in ((2, 4, 6, 6), (4, 4, 3, 3), (2, 4, 6, 6)))
    first = getattr(torch.ops.syno, f"{function.name}_d1").default
    torch.testing.assert_close(first(dy, x, k), function.derivative(1)(dy, x, k))
    second = getattr(torch.ops.syno, f"{function.name}_d0_d2").default
    got = second(torch.ones_like(x), dy, x, k)
    torch.testing.assert_close(
        got, function.derivative(0).derivative(2)(torch.ones_like(x), dy, x, k)
    )
    dx, dk = getattr(torch.ops.syno, f"{function.name}_d0_1").default(dy, x, k)
    torch.testing.assert_close(dx, function.derivative(0)(dy, x, k))
    torch.testing.assert_close(dk, function.derivative(1)(dy, x, k))
    wrong = ("d2", "dx", "d0_2", "d1_0", "d0_0", "d00", "d_0", "d0_", "d0_1_d0")
    for name in ("op_unknown_d0", "_d0", *(f"{function.name}_{each}" for each in wrong)):
        assert not hasattr(torch.ops.syno, name)


def test_importing_operators_imports_no_compiler() -> None:
    code = "import sys, syno.torch; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_emitted_functions_draw_no_random_numbers() -> None:
    operator = Operator.parse(CONV + " * 3", n=2, o=4, c=4, h=6, w=6, r=3, s=3)
    function = as_function(operator)
    inputs = [torch.randn(operator.shapes[name]) for name in operator.inputs]
    before = torch.random.get_rng_state()
    function.emitted(inputs)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("native", [True, False])
def test_a_bias_is_added_without_touching_the_input(native: bool) -> None:
    # Of one weight that is one, this operator's emitted functions may hand on the input itself.
    operator = Operator.parse("y[n,o,h,w] = x[n,o,h,w]", n=2, o=4, h=3, w=3, weights=[])
    layer = torch.nn.Conv2d(4, 4, 1)
    op = replace(torch.nn.Sequential(layer), {"0": operator}, native=native)[0]
    with torch.no_grad():
        op.bias.copy_(torch.randn(4))
    x = torch.randn(2, 4, 3, 3, requires_grad=True)
    before = x.detach().clone()
    y = op(x)
    torch.testing.assert_close(y, before + op.bias[:, None, None])
    (y * y).sum().backward()
    torch.testing.assert_close(x.grad, 2 * y.detach())
    torch.testing.assert_close(op.bias.grad, 2 * y.detach().sum((0, 2, 3)))
    torch.testing.assert_close(x.detach(), before)
    with torch.no_grad():
        torch.testing.assert_close(op(x), y)
        torch.testing.assert_close(x.detach(), before)
