"""The short way from a torch tensor to a kernel: taken for plain tensors only, with the same results."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from syno import _core
from syno.errors import KernelError, ShapeError
from syno.operators.operator import Operator

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from syno.torch.ops import as_function  # noqa: E402

MATMUL = "y[m,n] = sum[k] a[m,k] * b[k,n]"


@pytest.fixture(scope="module")
def function() -> Any:
    return as_function(Operator.parse(MATMUL, m=3, n=4, k=5))


def close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_every_shape_dtype_and_thread_count_gets_its_own_kernel(function: Any) -> None:
    before = torch.get_num_threads()
    try:
        for _ in range(2):  # the second time all kernels are there
            for threads in (1, 2):
                torch.set_num_threads(threads)
                for m, k, n in ((3, 5, 4), (2, 5, 4), (3, 5, 7)):
                    for dtype in (torch.float32, torch.float64, torch.bfloat16):
                        a, b = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
                        y = function(a, b)
                        assert y.dtype == dtype
                        close(y, a @ b)
    finally:
        torch.set_num_threads(before)


def test_other_strides_are_not_read_as_if_they_were_contiguous(function: Any) -> None:
    a, b = torch.randn(3, 5), torch.randn(5, 4)
    close(function(a, b), a @ b)
    for x, w in ((a.T.contiguous().T, b), (a, b.T.contiguous().T), (a.flip(0), b[:, :4])):
        close(function(x, w), x @ w)
    wide = torch.randn(6, 9)
    close(function(wide[::2, 2:7], b), wide[::2, 2:7] @ b)


def test_mixed_dtypes_still_get_a_sentence(function: Any) -> None:
    function(torch.randn(3, 5), torch.randn(5, 4))
    with pytest.raises(TypeError, match="all inputs need one dtype"):
        function(torch.randn(3, 5), torch.randn(5, 4, dtype=torch.float64))


def test_a_dispatch_mode_sees_the_operator(function: Any) -> None:
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    a, b = torch.randn(3, 5), torch.randn(5, 4, requires_grad=True)
    with Watch():
        y = function(a, b)
    close(y, a @ b)
    assert any(function.name in name for name in seen)
    assert y.requires_grad


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap takes turns
def test_transforms_of_functions_are_those_of_the_same_in_pytorch(function: Any) -> None:
    a, b, ones = torch.randn(3, 5), torch.randn(5, 4), torch.ones(3, 4)
    many = torch.randn(2, 3, 5)
    func = torch.func

    def results(f: Any) -> list[Any]:
        outside = a.clone().requires_grad_()
        inside = func.vjp(lambda x: f(x, b).square(), outside)[1](ones)[0]
        return [
            func.vjp(f, a, b)[1](ones),
            func.grad(lambda x: func.grad(lambda z: f(z, b).pow(3).sum())(x).square().sum())(a),
            func.jacrev(lambda x: f(a, x))(b),
            func.jacrev(func.jacrev(lambda x: f(x, b).pow(2).sum()))(a),
            func.vmap(f, in_dims=(0, None))(many, b),
            func.vmap(func.grad(lambda x, y: f(x, y).square().sum()), in_dims=(0, None))(many, b),
            torch.autograd.grad(inside.square().sum(), outside),
        ]

    function(a, b)
    torch.testing.assert_close(results(function), results(torch.matmul), rtol=1e-4, atol=1e-3)


def test_forward_mode_is_refused_not_zero(function: Any) -> None:
    a, b = torch.randn(3, 5), torch.randn(5, 4)
    with pytest.raises(NotImplementedError, match="reverse mode works"):
        torch.func.jvp(lambda x: function(x, b), (a,), (a,))
    with (
        torch.autograd.forward_ad.dual_level(),
        pytest.raises(NotImplementedError, match="reverse mode works"),
    ):
        function(torch.autograd.forward_ad.make_dual(a, a), b)


def test_gradients_and_their_gradients_are_pytorchs(function: Any) -> None:
    a, b = (torch.randn(s, requires_grad=True) for s in ((3, 5), (5, 4)))
    first = torch.autograd.grad(function(a, b).pow(3).sum(), (a, b), create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), (a, b))
    expected = torch.autograd.grad((a @ b).pow(3).sum(), (a, b), create_graph=True)
    close(first, expected)
    again = torch.autograd.grad(sum(g.square().sum() for g in expected), (a, b))
    torch.testing.assert_close(second, again, rtol=1e-4, atol=1e-2)


def test_only_wanted_gradients_are_computed(function: Any, monkeypatch: Any) -> None:
    asked = []
    derivative = type(function).derivative
    monkeypatch.setattr(
        type(function), "derivative", lambda self, i: asked.append(i) or derivative(self, i)
    )
    a, b = torch.randn(3, 5), torch.randn(5, 4, requires_grad=True)
    function(a, b).sum().backward()
    assert asked == [1]
    close(b.grad, a.sum(0)[:, None].expand(5, 4))


def test_a_subclass_of_tensor_keeps_its_say(function: Any) -> None:
    class Loud(torch.Tensor):
        pass

    a = torch.randn(3, 5).as_subclass(Loud)
    b = torch.randn(5, 4)
    close(function(a, b).as_subclass(torch.Tensor), a.as_subclass(torch.Tensor) @ b)


def test_calls_from_many_threads_agree() -> None:
    function = as_function(Operator.parse(MATMUL + " + 0 * a[m,0]", m=3, n=4, k=5))
    wrong: list[Any] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for i in range(30):
            m = 1 + (seed + i) % 4
            a = torch.randn(m, 5, generator=generator)
            b = torch.randn(5, 4, generator=generator)
            if not torch.allclose(function(a, b), a @ b, atol=1e-4):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_cannot_be_kept_or_counted_is_an_error() -> None:
    with pytest.raises(KernelError, match="kept=0 must be at least 1"):
        _core.TensorCalls(torch.empty, torch.get_num_threads, kept=0)
    with pytest.raises(TypeError):
        _core.TensorCalls(torch.empty, lambda: "two")((torch.randn(3),))


def test_a_kernel_of_other_arguments_is_refused() -> None:
    kernel = Operator.parse(MATMUL, m=3, n=4, k=5).compile()
    calls = _core.TensorCalls(torch.empty, torch.get_num_threads)
    for order, shapes in (([0], [(3, 5)]), ([0, 2], [(3, 5), (5, 4)])):
        with pytest.raises(ShapeError, match=r"\[torch\]"):
            calls.add(
                [kernel._core],
                shapes=shapes,
                dtypes=[torch.float32] * len(shapes),
                result_shapes=[(3, 4)],
                result_dtype=torch.float32,
                orders=[order],
                threads=1,
            )
    assert calls((torch.randn(3, 5), torch.randn(5, 4))) is None
