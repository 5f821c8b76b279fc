"""Tensors of PyTorch that a kernel cannot read as they lie: a right result or a sentence."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from patience import PATIENCE_S

from syno.errors import KernelError, ShapeError, UnknownName
from syno.operators.operator import Operator

torch = pytest.importorskip("torch")

from syno.torch.ops import as_function  # noqa: E402

MATMUL = Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=3, n=4, k=5)


@pytest.fixture
def pair() -> Any:
    torch.manual_seed(0)
    return torch.randn(3, 5), torch.randn(5, 4)


def test_a_negated_view_is_read_with_its_sign(pair: Any) -> None:
    a, b = pair
    negated = torch._neg_view(a)
    for compute in (MATMUL.compile(), as_function(MATMUL)):
        torch.testing.assert_close(compute(negated, b), -(a @ b), rtol=1e-5, atol=1e-5)
    with pytest.raises(KernelError, match="out is a negated view"):
        MATMUL.compile()(a, b, out=torch._neg_view(torch.zeros(3, 4)))


def test_flipped_rows_are_read_backwards(pair: Any) -> None:
    a, b = pair
    reversed_rows = a.numpy()[::-1]
    y = MATMUL.compile()(reversed_rows, b.numpy())
    np.testing.assert_allclose(y, reversed_rows @ b.numpy(), rtol=1e-5, atol=1e-5)
    out = np.zeros((6, 4), np.float32)[::-2]
    assert MATMUL.compile()(a.numpy(), b.numpy(), out=out) is out
    np.testing.assert_allclose(out, a.numpy() @ b.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: a.to("meta"), KernelError, "on the device meta"),
        (lambda a: a.to_sparse(), KernelError, "strided"),
        (lambda a: a.int(), KernelError, "int32"),
        (lambda a: a.to(torch.complex64), KernelError, "complex64"),
        (lambda a: a[0, 0], ShapeError, r"shape \[\]"),
        (lambda a: a[:0], ShapeError, r"shape \[0, 5\]"),
        (lambda a: a.tolist(), KernelError, "list"),
    ],
)
def test_what_a_kernel_cannot_read_gets_a_sentence(
    pair: Any, change: Any, error: type[Exception], message: str
) -> None:
    a, b = pair
    with pytest.raises(error, match=message):
        MATMUL.compile()(change(a), b)


def test_an_output_that_is_an_input_is_refused() -> None:
    kernel = Operator.parse("y[i] = x[i] + 1", i=8, weights=[]).compile()
    x = torch.zeros(9)
    with pytest.raises(ShapeError, match="shares memory"):
        kernel(x[:8], out=x[1:])
    with pytest.raises(ShapeError, match="shares memory"):
        kernel(x[:8], out=x[:8])


def test_an_unknown_dtype_lists_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="float32"):
        MATMUL.compile("int8")


def test_operators_of_scalars_are_kernels() -> None:
    total = Operator.parse("y[] = sum[i] x[i]", i=8, weights=[]).compile()
    assert float(total(np.ones(8, np.float32))) == 8.0
    scaled = Operator.parse("y[i] = x[] * z[i]", i=4, weights=[], shapes={"x": ()}).compile()
    y = scaled(np.asarray(2, np.float32), np.ones(4, np.float32))
    np.testing.assert_array_equal(y, np.full(4, 2, np.float32))


def test_a_misaligned_tensor_is_copied_or_refused(pair: Any) -> None:
    a, b = pair
    raw = bytearray(b"x" + b.numpy().tobytes())
    memory = np.frombuffer(raw, np.uint8)[1:].view(np.float32).reshape(5, 4)
    with pytest.raises(ShapeError, match="no multiple of its 4-byte elements; copy it"):
        MATMUL.compile()(a.numpy(), memory)


def test_kernels_run_on_the_threads_of_pytorch() -> None:
    """In a process of its own: a forked child, where PyTorch has no threads, computes as well."""
    code = """
import os, numpy as np, torch
torch.set_num_threads(2)
import syno.torch
from syno.operators.operator import Operator
from syno.torch.threads import share_threads
assert share_threads()
kernel = Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=256, n=256, k=64).compile(threads=2)
assert "parallel" in kernel.loops()
a, b = torch.randn(256, 64), torch.randn(64, 256)
expected = a @ b
assert torch.allclose(kernel(a, b, num_threads=2), expected, atol=1e-4)
arrays = [t.numpy() for t in (a, b, expected)]
child = os.fork()
if child == 0:
    got = kernel(*arrays[:2], num_threads=2)
    os._exit(0 if np.allclose(got, arrays[2], atol=1e-4) else 1)
assert os.waitpid(child, 0)[1] == 0
print("right")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout == "right\n", done.stderr


def test_a_tensor_that_wants_a_gradient_is_told_who_gives_one(pair: Any) -> None:
    a, b = pair
    kernel = MATMUL.compile()
    for call in (
        lambda: kernel(a.clone().requires_grad_(), b),
        lambda: kernel(a, torch.nn.Parameter(b.clone())),
        lambda: kernel(a.t().clone().t().requires_grad_(), b),
        lambda: kernel(a, b, out=torch.zeros(3, 4, requires_grad=True)),
    ):
        with pytest.raises(KernelError, match=r"requires a gradient.*to_torch\(\).*detach\(\)"):
            call()
    with torch.no_grad():
        torch.testing.assert_close(kernel(a.requires_grad_(), b), a @ b, rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(kernel(a, b), a @ b, rtol=1e-5, atol=1e-5)


class _Lent:
    """What lends a tensor by Python's `__dlpack__` alone."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def test_arrays_of_every_kind_are_read_in_any_order() -> None:
    """How a type lends its memory is looked up once, until another type comes."""
    kernel = Operator.parse("y[i,j] = x[i,j] + z[i,j]", i=3, j=4).compile()
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    kinds: list[Any] = [
        plain,
        torch.tensor(plain),
        torch.nn.Parameter(torch.tensor(plain), requires_grad=False),
        torch.tensor(plain.T.copy()).T,
        torch.tensor(np.pad(plain, ((0, 0), (1, 2))))[:, 1:5],
        _Lent(torch.tensor(plain)),
    ]
    with torch.no_grad():
        kinds.append(torch.nn.Parameter(torch.tensor(plain)))
        for a in kinds:
            for b in kinds:
                np.testing.assert_array_equal(np.asarray(kernel(a, b)), 2 * plain)
    with pytest.raises(KernelError, match="float64"):
        kernel(torch.tensor(plain).double(), plain)
    with pytest.raises(KernelError, match=r"DLPack type \(2, 64\)"):
        kernel(_Lent(torch.tensor(plain).double()), plain)


def test_a_tensor_s_memory_is_given_back() -> None:
    kernel = Operator.parse("y[i] = x[i] + 1", i=1 << 22).compile()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out = torch.empty(1 << 22)
    for _ in range(60):  # 16 MiB each
        kernel(torch.ones(1 << 22), out=out)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000
