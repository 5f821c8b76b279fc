"""Functions that move elements and compute nothing, compiled: the same bits as PyTorch's, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import syno
from syno.errors import KernelError, ShapeError

Moving = Callable[..., Tensor]


class _Of(nn.Module):
    def __init__(self, function: Moving) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: Tensor) -> Tensor:
        return self._function(*tensors)


def drawn(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers, some of which are none, infinite, or zeros of either sign."""
    odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape)
    values = np.where(rng.random(shape) < 0.1, odd, rng.standard_normal(shape))
    return torch.from_numpy(values).to(dtype)


def lying(rng: np.random.Generator, x: Tensor) -> Tensor:
    """The same elements, row-major, by channels, or apart."""
    way = int(rng.integers(3))
    if way == 0:
        return x
    if way == 1 and x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    apart = torch.empty([*x.shape[:-1], 2 * x.shape[-1] + 1], dtype=x.dtype)[..., 1::2]
    return apart.copy_(x)


def assert_same_bits(function: Moving, *tensors: Tensor) -> None:
    fast = syno.compile(_Of(function), tuple(torch.nan_to_num(x) for x in tensors))
    assert not fast.fallbacks, str(fast)
    made, wanted = fast(*tensors), function(*tensors)
    assert made.dtype == wanted.dtype
    torch.testing.assert_close(made, wanted, rtol=0, atol=0, equal_nan=True)
    numbers = ~wanted.isnan()
    assert (made.signbit() == wanted.signbit())[numbers].all(), "a zero lost its sign"


@pytest.mark.parametrize("seed", range(12))
def test_borders_of_every_kind(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spatial = 1 + seed % 3
    shape = [*rng.integers(1, 4, 2), *rng.integers(3, 45 if spatial == 1 else 19, spatial)]
    x = lying(rng, drawn(rng, *shape, dtype=(torch.float32, torch.float64)[seed % 2]))
    for mode in ("reflect", "replicate", "circular", "constant"):
        pads = [int(n) for n in rng.integers(0, 3, 2 * spatial)]
        assert_same_bits(lambda x, p=pads, m=mode: F.pad(x, p, m), x)


@pytest.mark.parametrize("seed", range(12))
def test_tensors_one_behind_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 4
    d = int(rng.integers(rank))
    shape = [int(n) for n in rng.integers(1, 24, rank)]
    dtype = (torch.float32, torch.float64, torch.bfloat16)[seed % 3]
    parts = []
    for _ in range(int(rng.integers(2, 6))):
        own = [int(rng.integers(1, 40)) if e == d else n for e, n in enumerate(shape)]
        parts.append(lying(rng, drawn(rng, *own, dtype=dtype)))
    assert_same_bits(lambda *x: torch.cat(x, d), *parts)
    alike = [drawn(rng, *shape, dtype=dtype) for _ in range(int(rng.integers(2, 5)))]
    assert_same_bits(lambda *x: torch.stack(x, d), *alike)


@pytest.mark.parametrize("seed", range(6))
def test_rotations_and_reflections(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = lying(rng, drawn(rng, 2, 5, *[int(n) for n in rng.integers(2, 40, 2)]))
    shifts, dims = [int(n) for n in rng.integers(-50, 50, 2)], [1 + seed % 2, 3]
    assert_same_bits(lambda x: torch.roll(x, shifts, dims), x)
    assert_same_bits(lambda x: x.flip(dims), x)
    assert_same_bits(lambda x: torch.cat([*x.chunk(2, 1)][::-1], 1), x)


def test_borders_beside_what_is_computed() -> None:
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.standard_normal((2, 6, 17, 21))).float()
    conv = nn.Conv2d(6, 8, 3, padding=2, padding_mode="reflect").eval()
    fast = syno.compile(conv, x)
    torch.testing.assert_close(fast(x), conv(x), rtol=1e-4, atol=1e-5)
    fast = syno.compile(_Of(lambda x: F.pad(torch.relu(x), (3, 1, 0, 2), "reflect") * 2), x)
    torch.testing.assert_close(fast(x), F.pad(torch.relu(x), (3, 1, 0, 2), "reflect") * 2)


def test_a_call_reads_tensors_wherever_they_lie() -> None:
    """Also other ones than the call before, beside gradients, and negated where they lie."""
    rng = np.random.default_rng(5)
    x, y = drawn(rng, 4, 6), drawn(rng, 4, 6)
    fast = syno.compile(_Of(lambda x, y: torch.cat([x, y], 1)), (x, y))
    turned = drawn(rng, 6, 4).T
    negated = torch.view_as_complex(drawn(rng, 4, 6, 2)).conj().imag
    assert negated.is_neg()
    for a, b in ((x, y), (turned, y), (y, negated), (x, x), (negated, turned)):
        torch.testing.assert_close(fast(a, b), torch.cat([a, b], 1), equal_nan=True)
    wanted = x.clone().requires_grad_()
    with pytest.raises(KernelError, match="requires a gradient"):
        fast(wanted, y)
    with torch.no_grad():
        torch.testing.assert_close(fast(wanted, y), torch.cat([x, y], 1), equal_nan=True)
    with pytest.raises(ShapeError):
        fast(x, y[:, :5])
    with pytest.raises(ShapeError):
        fast(x)
