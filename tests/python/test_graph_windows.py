"""Convolutions and pooling as nodes: PyTorch's results for random attributes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graph_checks import computed, same, tensor
from torch import Tensor

from syno.errors import ShapeError, SynoError
from syno.graph.functions import windows

CONVS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
CLOSE = 1e-5


def draw(rng: np.random.Generator, n: int, least: int, most: int) -> list[int]:
    return [int(v) for v in rng.integers(least, most + 1, n)]


def padded(x: Tensor, begin: list[int], end: list[int]) -> Tensor:
    flat = [p for pair in zip(begin[::-1], end[::-1], strict=True) for p in pair]
    return F.pad(x, flat)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_convolutions_agree(n: int, seed: int) -> None:
    rng = np.random.default_rng([n, seed])
    groups = int(rng.choice([1, 1, 2, 3]))
    into, out = groups * int(rng.integers(1, 3)), groups * int(rng.integers(1, 3))
    kernel, stride, dilation = draw(rng, n, 1, 3), draw(rng, n, 1, 3), draw(rng, n, 1, 2)
    begin, end = draw(rng, n, -1, 3), draw(rng, n, -1, 3)
    size = [d * (k - 1) + 3 + int(rng.integers(4)) for d, k in zip(dilation, kernel, strict=True)]
    x, w = tensor(rng, 2, into, *size), tensor(rng, out, into // groups, *kernel)
    b = tensor(rng, out) if rng.integers(2) else None
    if seed % 4 == 3:
        x = x[0]
    given = [x, w] if b is None else [x, w, b]
    result = computed(
        lambda build, x, w, b=None: windows.conv(
            build, x, w, b, stride, begin, end, dilation, groups
        ),
        *given,
    )
    expected = CONVS[n](padded(x, begin, end), w, b, stride, 0, dilation, groups)
    same(result, expected, CLOSE)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_transposed_convolutions_agree(n: int, seed: int) -> None:
    rng = np.random.default_rng([n, seed])
    groups = int(rng.choice([1, 1, 2, 3]))
    into, out = groups * int(rng.integers(1, 3)), groups * int(rng.integers(1, 3))
    kernel, stride, dilation = draw(rng, n, 1, 3), draw(rng, n, 1, 3), draw(rng, n, 1, 2)
    begin, end = draw(rng, n, 0, 2), draw(rng, n, 0, 2)
    more = [int(rng.integers(max(s, d))) for s, d in zip(stride, dilation, strict=True)]
    size = draw(rng, n, 4, 6)
    x, w = tensor(rng, 2, into, *size), tensor(rng, into, out // groups, *kernel)
    b = tensor(rng, out) if rng.integers(2) else None
    if seed % 4 == 3:
        x = x[0]
    given = [x, w] if b is None else [x, w, b]
    whole = TRANSPOSED[n](x, w, None, stride, 0, [0] * n, groups, dilation)
    expected = padded(whole, [-p for p in begin], [m - p for m, p in zip(more, end, strict=True)])
    if b is not None:
        expected = expected + b.reshape(-1, *[1] * n)
    result = computed(
        lambda build, x, w, b=None: windows.conv_transposed(
            build, x, w, b, stride, begin, end, more, groups, dilation
        ),
        *given,
    )
    same(result, expected, CLOSE)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_greatest_elements_and_means_of_windows_agree(n: int, seed: int) -> None:
    rng = np.random.default_rng([n, seed])
    kernel = draw(rng, n, 1, 4)
    stride = draw(rng, n, 1, 4) if rng.integers(3) else []
    padding = [int(rng.integers(k // 2 + 1)) for k in kernel]
    dilation, ceil = draw(rng, n, 1, 2), bool(rng.integers(2))
    size = [d * (k - 1) + 1 + int(rng.integers(6)) for d, k in zip(dilation, kernel, strict=True)]
    x = tensor(rng, 2, 3, *size)
    if seed % 4 == 3:
        x = x[0]
    if seed % 3 == 2:
        x.flatten()[int(rng.integers(x.numel()))] = math.nan
    result = computed(
        lambda b, v: windows.max_pool(b, v, kernel, stride, padding, padding, dilation, ceil), x
    )
    same(result, MAX[n](x, kernel, stride or None, padding, dilation, ceil))
    x = x.nan_to_num(0.5)
    for include in (False, True):
        result = computed(
            lambda b, v, i=include: windows.avg_pool(
                b, v, kernel, stride, padding, padding, ceil, i
            ),
            x,
        )
        if n == 1:
            expected = F.avg_pool1d(x, kernel, stride or None, padding, ceil, include)
        else:
            function = F.avg_pool2d if n == 2 else F.avg_pool3d
            expected = function(x, kernel, stride or None, padding, ceil, include)
            by = computed(
                lambda b, v: windows.avg_pool(
                    b, v, kernel, stride, padding, padding, ceil, True, 3
                ),
                x,
            )
            same(by, function(x, kernel, stride or None, padding, ceil, True, 3), CLOSE)
        same(result, expected, CLOSE)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_bins_agree_even_and_uneven(n: int, seed: int) -> None:
    rng = np.random.default_rng([n, seed])
    size, out = draw(rng, n, 1, 8), draw(rng, n, 1, 9)
    if seed % 3 == 0:
        size = [2 * o for o in out]
    x = tensor(rng, 2, 3, *size)
    # What is not in a bin leaks nothing into it.
    x.flatten()[int(rng.integers(x.numel()))] = math.inf
    average = computed(lambda b, v: windows.adaptive_avg_pool(b, v, out), x)
    same(average, ADAPTIVE_AVG[n](x, out), CLOSE)
    result = computed(lambda b, v: windows.adaptive_max_pool(b, v, out), x)
    same(result, ADAPTIVE_MAX[n](x, out))
    if n == 2:
        kept = computed(lambda b, v: windows.adaptive_avg_pool(b, v, [None, out[1]]), x)
        same(kept, F.adaptive_avg_pool2d(x, (None, out[1])), CLOSE)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("ceil", [False, True])
def test_norms_of_windows_agree(p: int, ceil: bool) -> None:
    x = tensor(np.random.default_rng(p), 2, 3, 8, 9)
    # PyTorch's keeps the sign of odd powers' sums; of what is positive both are the norm.
    result = computed(
        lambda b, v: windows.lp_pool(b, v, p, [3, 3], [2, 2], [0, 0], [0, 0], ceil), x.abs()
    )
    if ceil:
        whole = F.pad(x.abs(), (0, 0, 0, 1))
        expected = F.lp_pool2d(whole, p, 3, 2)
    else:
        expected = F.lp_pool2d(x.abs(), p, 3, 2)
    same(result, expected, CLOSE)
    signed = computed(lambda b, v: windows.lp_pool(b, v, p, [3, 3], [2, 2], [0, 0], [0, 0]), x)
    same(signed, F.lp_pool2d(x.abs(), p, 3, 2), CLOSE)


def test_wrong_windows_get_a_sentence() -> None:
    x, w = torch.zeros(1, 4, 5, 5), torch.zeros(4, 4, 3, 3)
    zero, one = [0, 0], [1, 1]
    wrong = [
        lambda b, x, w: windows.conv(b, x, w, None, one, zero, zero, one, 2),
        lambda b, x, w: windows.conv(b, x, w, None, one, zero, zero, one, 0),
        lambda b, x, w: windows.conv(b, x, w, None, [0, 1], zero, zero, one, 1),
        lambda b, x, w: windows.conv(b, x, w, None, one, zero, zero, [3, 3], 1),
        lambda b, x, w: windows.conv(b, x, w, w, one, zero, zero, one, 1),
        lambda b, x, w: windows.conv(b, x, w, None, [1, 1, 1], zero, zero, one, 1),
        lambda b, x, w: windows.conv(b, x, w, None, one, [-3, 0], [-3, 0], one, 1),
        lambda b, x, w: windows.conv_transposed(b, x, w, None, one, [9, 9], zero, zero, 1, one),
        lambda b, x, w: windows.max_pool(b, x, [6, 6], [], zero, zero, one),
        lambda b, x, w: windows.max_pool(b, x, [3, 3], [], [-1, 0], zero, one),
        lambda b, x, w: windows.avg_pool(b, x, [3, 3], [0, 0], zero, zero),
        lambda b, x, w: windows.avg_pool(b, x, [3, 3], [], zero, zero, divisor=0),
        lambda b, x, w: windows.adaptive_avg_pool(b, x, [-1, 2]),
        lambda b, x, w: windows.adaptive_avg_pool(b, x, [2]),
        lambda b, x, w: windows.lp_pool(b, x, 2.5, [3, 3], [], zero, zero),
    ]
    for function in wrong[:-1]:
        with pytest.raises(SynoError):
            computed(function, x, w)
    with pytest.raises(SynoError, match="norm"):
        computed(wrong[-1], x, w)
    with pytest.raises(ShapeError, match="windows over 2 dimensions"):
        computed(wrong[0], torch.zeros(4, 5), w)
