"""Operators that derivation is judged by: convolutions, transposed and dilated ones, banded products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kernelbench.cases import CLASSES as KERNELS
from kernelbench.cases import Case, conv2d


def _winograd() -> Iterator[Case]:
    for c, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield conv2d(f"conv 3x3 {c}->{c} {size}^2", "window", c, c, size)


def _batched() -> Iterator[Case]:
    kind = "further windows"
    for c, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield conv2d(f"conv 3x3 {c}->{c} {size}^2 batch 16", kind, c, c, size, batch=16)
    yield conv2d("conv 5x5 64->64 28^2", kind, 64, 64, 28, 5)
    yield conv2d("conv 3x3 96->96 35^2", kind, 96, 96, 35)
    yield Case(
        "conv 3x3x3 32->32 16x28^2",
        "y[n,o,d,h,w] = sum[c,q,r,s] x[n,c,d+q-1,h+r-1,w+s-1] * k[o,c,q,r,s]",
        {"n": 1, "o": 32, "c": 32, "d": 16, "h": 28, "w": 28, "q": 3, "r": 3, "s": 3},
        constant=("k",),
        klass=kind,
    )


def _transposed_conv(
    name: str, c: int, o: int, size: int, taps: int, stride: int, pad: int
) -> Case:
    """`size` pixels in, `(size - 1) stride + taps - 2 pad` out."""
    out = (size - 1) * stride + taps - 2 * pad

    def index(position: str, tap: str) -> str:
        from_tap = f"{position}+{pad}-{tap}"
        if stride == 1:
            return from_tap
        return f"({from_tap})/{stride} + inside(({from_tap})%{stride},1)"

    return Case(
        name,
        f"y[n,o,h,w] = sum[c,r,s] x[n,c,{index('h', 'r')},{index('w', 's')}] * k[c,o,r,s]",
        {"n": 1, "o": o, "c": c, "h": out, "w": out, "r": taps, "s": taps},
        {"x": (1, c, size, size)},
        constant=("k",),
        klass="transposed",
    )


def _transposed() -> Iterator[Case]:
    for c, o, size in ((448, 256, 2), (256, 128, 4), (128, 64, 8), (64, 3, 16)):
        yield _transposed_conv(f"InfoGAN {c}->{o} {size}^2 4x4 s2", c, o, size, 4, 2, 1)
    for c, o, size in ((512, 256, 4), (256, 128, 8), (128, 64, 16)):
        yield _transposed_conv(f"DCGAN {c}->{o} {size}^2 4x4 s2", c, o, size, 4, 2, 1)
    yield _transposed_conv("FSRCNN 56->1 32^2 9x9", 56, 1, 32, 9, 1, 3)


def _long() -> Iterator[Case]:
    """Global convolutions of GCN, dilated ones of CSRNet's tail, banded products of Longformer."""
    kind = "long and dilated"
    for taps in ("1x7", "7x1"):
        high, wide = (int(part) for part in taps.split("x"))
        yield Case(
            f"GCN {taps} 256->21 14^2",
            f"y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-{high // 2},w+s-{wide // 2}] * k[o,c,r,s]",
            {"n": 1, "o": 21, "c": 256, "h": 14, "w": 14, "r": high, "s": wide},
            constant=("k",),
            klass=kind,
        )
    for c, o in ((512, 512), (512, 256), (256, 128), (128, 64)):
        yield conv2d(f"CSRNet {c}->{o} 14^2 3x3 d2", kind, c, o, 14, dilation=2)
    for dilation in (1, 4):
        yield Case(
            f"G2BMM 8 x 1000 x 64, band 201, dilation {dilation}",
            f"y[b,m,w] = sum[k] a[b,m,k] * c[b,m+{dilation}*w-{100 * dilation},k]",
            {"b": 8, "m": 1000, "w": 201, "k": 64},
            {"c": (8, 1000, 64)},
            klass=kind,
        )


def _steps() -> Iterator[Case]:
    """Training steps: forward and both gradients."""
    for c, size in ((64, 56), (128, 28), (256, 14)):
        case = conv2d(
            f"step 3x3 {c}->{c} {size}^2 batch 32", "training steps", c, c, size, batch=32
        )
        yield replace(case, constant=(), training=True)


def _synthesised() -> Iterator[Case]:
    """Operators nobody derived by hand: 50 random ones and those of Syno's paper."""
    yield from KERNELS["synthesised"]()


CLASSES: dict[str, Callable[[], Iterator[Case]]] = {
    "window": _winograd,
    "further": _batched,
    "transposed": _transposed,
    "long": _long,
    "synthesised": _synthesised,
    "training": _steps,
}
