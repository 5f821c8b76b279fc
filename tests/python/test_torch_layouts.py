"""Tensors that are dense in another order are read where they lie or copied, whichever is predicted to be faster."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno.kernel import Kernel
from syno.operator import Operator

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from syno.torch import layouts  # noqa: E402
from syno.torch.layouts import dense_order, in_place  # noqa: E402
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
        monkeypatch.setattr(layouts, "_copy_seconds", lambda *_: seconds)
    return str(request.param)


ORDERS = st.permutations(range(4)).map(tuple)


def test_any_order_of_any_input_gives_the_same(way: str) -> None:
    @settings(max_examples=6, deadline=None)
    @given(x_order=ORDERS, k_order=ORDERS, y_order=ORDERS, o=st.integers(1, 20))
    def check(x_order: Any, k_order: Any, y_order: Any, o: int) -> None:
        torch.manual_seed(o)
        function = as_function(Operator.parse(CONV, n=2, o=o, c=3, h=6, w=5, r=3, s=3))
        for each in (function, function.derivative(0), function.derivative(1)):
            each.forget()  # what was planned in another way
        x = lying(torch.randn(2, 3, 6, 5), x_order).requires_grad_()
        k = lying(torch.randn(o, 3, 3, 3), k_order).requires_grad_()
        g = lying(torch.randn(2, o, 6, 5), y_order)
        for _ in range(2):
            y = function(x, k)
            expected = F.conv2d(x, k, padding=1)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
            got = torch.autograd.grad(y, (x, k), g)
            for one, other in zip(got, torch.autograd.grad(expected, (x, k), g), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

    check()


def test_no_copy_is_made_of_what_is_read_in_place(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=7, n=9, k=8)
    usual = operator.compile()
    a_order, orders = (1, 0), {"a": (1, 0), "b": None}
    kernel, names = in_place(usual, orders)
    assert isinstance(kernel, Kernel)
    if way == "in place":
        assert names == {"a"} and kernel.shapes["a"] == (8, 7) and kernel.verification
    if way == "copied":
        assert not names and kernel is usual
    assert in_place(usual, {"a": None, "b": None}) == (usual, frozenset())
    a, b = lying(torch.randn(7, 8), a_order), torch.randn(8, 9)
    function = as_function(operator)
    function.forget()
    expected = a @ b
    function(a, b)
    copied = []
    contiguous = torch.Tensor.contiguous
    monkeypatch.setattr(
        torch.Tensor, "contiguous", lambda t: copied.append(t.shape) or contiguous(t)
    )
    torch.testing.assert_close(function(a, b), expected, rtol=1e-4, atol=1e-4)
    assert ((7, 8) in copied) == (not names)
