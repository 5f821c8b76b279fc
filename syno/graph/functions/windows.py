"""Convolutions and pooling: sums, greatest elements and means over windows.

`x` is (batch, channels, *spatial), or without the batch. Paddings are per spatial dimension; what they add counts as
zero in sums whatever the weight there is, and as minus infinity in maxima; negative ones take elements away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from syno import _core
from syno.errors import ShapeError, shown
from syno.graph.building import Array, Builder, NotCovered, Value
from syno.graph.functions.copying import check_elements, iterators, over
from syno.graph.functions.joining import crop
from syno.graph.functions.views import reshape


def conv(
    build: Builder,
    x: Value,
    w: Value,
    b: Value | None,
    stride: Sequence[int],
    padding_begin: Sequence[int],
    padding_end: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """A convolution of any rank; `w` is (out, in / groups, *kernel), `b` (out,).

    Raises:
        ShapeError: attributes or shapes that do not fit together.
        NotCovered: tensors without elements.
    """
    n = w.rank - 2
    lists = _lists(n, stride, padding_begin, padding_end, dilation)
    batched, x = with_batch(build, x, n)
    _check_channels(x, w, b, w.shape[0], w.shape[1] * groups, groups)
    stride, padding_begin, padding_end, dilation = lists
    x, padding_begin, padding_end = _cropped(build, x, padding_begin, padding_end)
    program = _core.conv(
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=w.shape[0],
        in_size=x.shape[2:],
        kernel=w.shape[2:],
        stride=stride,
        dilation=dilation,
        pad_begin=padding_begin,
        pad_end=padding_end,
        groups=groups,
        bias=b is not None,
    )
    return batched(_of(build, program, x, w, b))


def conv_transposed(
    build: Builder,
    x: Value,
    w: Value,
    b: Value | None,
    stride: Sequence[int],
    padding_begin: Sequence[int],
    padding_end: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Value:
    """A transposed convolution of any rank; `w` is (in, out / groups, *kernel), `b` (out,).

    Extents of the result are (in - 1) * stride - padding_begin - padding_end + dilation * (kernel - 1) + output_padding
    + 1. Raises as `conv`.
    """
    n = w.rank - 2
    stride, begin, end, more, dilation = _lists(
        n, stride, padding_begin, padding_end, output_padding, dilation
    )
    batched, x = with_batch(build, x, n)
    _check_channels(x, w, b, w.shape[1] * groups, w.shape[0], groups)
    if min(*begin, *end) < 0:
        raise NotCovered("[graph] a transposed convolution with negative padding")
    program = _core.conv_transposed(
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=w.shape[1] * groups,
        in_size=x.shape[2:],
        kernel=w.shape[2:],
        stride=stride,
        dilation=dilation,
        pad_begin=begin,
        pad_end=end,
        output_padding=more,
        groups=groups,
        bias=b is not None,
    )
    return batched(_of(build, program, x, w, b))


def _of(build: Builder, program: _core.Program, x: Value, w: Value, b: Value | None) -> Value:
    given = {"x": x, "w": w} | ({"b": b} if b is not None else {})
    return build.program(program, [given[name] for name in program.inputs])[0]


def _lists(n: int, *lists: Sequence[int]) -> list[list[int]]:
    """One number a spatial dimension; a single one stands for all."""
    result = [list(each) * (n if len(each) == 1 else 1) for each in lists]
    if n < 1 or any(len(each) != n for each in result):
        raise ShapeError(
            f"[graph] attributes {shown([list(each) for each in lists], 200)} of {n} spatial dimensions"
        )
    return result


class _Batched:
    """Takes off the batch that a tensor got."""

    def __init__(self, build: Builder, added: bool) -> None:
        self.build, self.added = build, added

    def __call__(self, y: Value) -> Value:
        return reshape(self.build, y, y.shape[1:]) if self.added else y


def with_batch(build: Builder, x: Value, n: int) -> tuple[_Batched, Value]:
    if x.rank == n + 1:
        return _Batched(build, True), reshape(build, x, [1, *x.shape])
    if x.rank != n + 2:
        raise ShapeError(
            f"[graph] a tensor of shape {list(x.shape)}; windows over {n} dimensions need (batch, channels, *spatial)"
        )
    check_elements(x.shape)
    return _Batched(build, False), x


def _check_channels(x: Value, w: Value, b: Value | None, out: int, into: int, groups: int) -> None:
    check_elements(w.shape)
    if groups < 1 or x.shape[1] != into or out % groups or into % groups:
        raise ShapeError(
            f"[graph] weights of shape {list(w.shape)} in {groups} groups do not fit {x.shape[1]} channels"
        )
    if b is not None and b.shape != (out,):
        raise ShapeError(f"[graph] a bias of shape {list(b.shape)} for {out} channels")


def _cropped(
    build: Builder, x: Value, begin: Sequence[int], end: Sequence[int]
) -> tuple[Value, list[int], list[int]]:
    """Negative paddings taken from `x`."""
    if min(*begin, *end) < 0:
        lead = [0] * (x.rank - len(begin))
        stops = [n - max(0, -e) for n, e in zip(x.shape, [*lead, *end], strict=True)]
        x = crop(build, x, [*lead, *(max(0, -a) for a in begin)], stops)
    return x, [max(0, a) for a in begin], [max(0, e) for e in end]


# Pooling


def pooled_extents(
    in_size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    pad_begin: Sequence[int],
    pad_end: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[int]:
    """How many windows there are; with `ceil_mode` also one that begins inside and ends outside.

    Raises:
        ShapeError: not one fits.
    """
    result = []
    for n, k, s, a, e, d in zip(in_size, kernel, stride, pad_begin, pad_end, dilation, strict=True):
        room = n + a + e - d * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (count - 1) * s >= n + a:
            count -= 1
        if count < 1:
            raise ShapeError(
                f"[graph] no window of {k} elements (dilation {d}, stride {s}) fits {n} elements with {a} + {e} around"
            )
        result.append(count)
    return result


def max_pool(
    build: Builder,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad_begin: Sequence[int],
    pad_end: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
) -> Value:
    """The greatest element of each window; `stride` may be empty for the kernel's extents."""
    kernel, stride, begin, end, dilation = window_lists(
        kernel, stride, pad_begin, pad_end, dilation
    )
    batched, x = with_batch(build, x, len(kernel))
    out = pooled_extents(x.shape[2:], kernel, stride, begin, end, dilation, ceil_mode)
    program = _core.pool(
        "max",
        batch=x.shape[0],
        channels=x.shape[1],
        in_size=x.shape[2:],
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        pad_begin=begin,
        pad_end=_reaching(x.shape[2:], kernel, stride, begin, dilation, out),
    )
    return batched(build.program(program, [x])[0])


def window_lists(
    kernel: Sequence[int], stride: Sequence[int], *more: Sequence[int]
) -> list[list[int]]:
    n = len(kernel)
    lists = _lists(n, kernel, stride or kernel, *more)
    if min(map(min, lists[2:4])) < 0 or min(*map(min, lists[:2]), *lists[4]) < 1:
        raise ShapeError(
            f"[graph] pooling with kernel {lists[0]}, stride {lists[1]}, padding {lists[2]} and {lists[3]}, "
            f"dilation {lists[4]}"
        )
    return lists


def _reaching(
    in_size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    begin: Sequence[int],
    dilation: Sequence[int],
    out: Sequence[int],
) -> list[int]:
    """The padding behind with which the last window just ends; where elements stay behind it, none."""
    return [
        max(0, (o - 1) * s + d * (k - 1) + 1 - n - a)
        for n, k, s, a, d, o in zip(in_size, kernel, stride, begin, dilation, out, strict=True)
    ]


def avg_pool(
    build: Builder,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad_begin: Sequence[int],
    pad_end: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
    dilation: Sequence[int] = (1,),
) -> Value:
    """The mean of each window; `stride` may be empty for the kernel's extents.

    Args:
        count_include_pad: whether padding counts as elements (what lies behind it, which `ceil_mode` reaches, never does).
        divisor: what sums are divided by in place of the number of elements.
    """
    kernel, stride, begin, end, dilation = window_lists(
        kernel, stride, pad_begin, pad_end, dilation
    )
    batched, x = with_batch(build, x, len(kernel))
    size = x.shape[2:]
    out = pooled_extents(size, kernel, stride, begin, end, dilation, ceil_mode)
    if divisor == 0:
        raise ShapeError("[graph] the divisor of a mean is 0")
    counts = [
        _count(n, k, s, a, e if count_include_pad else 0, d, o, count_include_pad)
        for n, k, s, a, e, d, o in zip(size, kernel, stride, begin, end, dilation, out, strict=True)
    ]
    full = all((count == k).all() for count, k in zip(counts, kernel, strict=True))
    if full and divisor is None:
        program = _core.pool(
            "average",
            batch=x.shape[0],
            channels=x.shape[1],
            in_size=size,
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            pad_begin=begin,
            pad_end=_reaching(size, kernel, stride, begin, dilation, out),
        )
        return batched(build.program(program, [x])[0])
    total, i = _window_sum(kernel, stride, begin, dilation)
    extents = [x.shape[0], x.shape[1], *out]
    tensors = {"x": x}
    if divisor is not None:
        by = str(divisor)
    else:
        by, tensors = _divisor(build, x, counts, i[2:], tensors)
    text = f"t[{over(i, extents)}] = {total}; y[{over(i, extents)}] = t[{', '.join(i)}] / {by}"
    return batched(build.formula(text, tensors))


def _count(n: int, k: int, s: int, a: int, e: int, d: int, out: int, include: bool) -> Array:
    """How many elements of each window count, along one dimension."""
    at = s * np.arange(out)[:, None] - a + d * np.arange(k)
    low, high = (-a, n + e) if include else (0, n)
    count: Array = ((at >= low) & (at < high)).sum(1)
    return count


def _divisor(
    build: Builder, x: Value, counts: Sequence[Array], i: Sequence[str], tensors: dict[str, Value]
) -> tuple[str, dict[str, Value]]:
    """The product of counts, those that differ along a dimension by a table."""
    same = math.prod(int(count[0]) for count in counts if (count == count[0]).all())
    factors = [str(same)] if same != 1 else []
    for d, count in enumerate(counts):
        if (count == count[0]).all():
            continue
        tensors = {**tensors, f"n{d}": build.literal(count, x.dtype, "counts")}
        factors.append(f"n{d}[{i[d]}]")
    return f"({' * '.join(factors) or '1'})", tensors


def _window_sum(
    kernel: Sequence[int], stride: Sequence[int], begin: Sequence[int], dilation: Sequence[int]
) -> tuple[str, list[str]]:
    """`sum[...] x[...]` over windows, and the iterators outside it."""
    n = len(kernel)
    i, r = iterators(2 + n), iterators(n, "r")
    at = [
        f"{s} * {i[2 + d]} + {dil} * {r[d]} - {a}"
        for d, (s, a, dil) in enumerate(zip(stride, begin, dilation, strict=True))
    ]
    return f"sum[{over(r, kernel)}] x[{', '.join([*i[:2], *at])}]", i


def lp_pool(
    build: Builder,
    x: Value,
    p: float,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad_begin: Sequence[int],
    pad_end: Sequence[int],
    ceil_mode: bool = False,
    dilation: Sequence[int] = (1,),
) -> Value:
    """The p-norm of each window: (sum |x|^p)^(1/p)."""
    kernel, stride, begin, end, dilation = window_lists(
        kernel, stride, pad_begin, pad_end, dilation
    )
    if p not in (1, 2, 3, 4):
        raise NotCovered(f"[graph] pooling by the {p}-norm")
    batched, x = with_batch(build, x, len(kernel))
    out = pooled_extents(x.shape[2:], kernel, stride, begin, end, dilation, ceil_mode)
    total, i = _window_sum(kernel, stride, begin, dilation)
    reads, read = total.split("] ", 1)
    power = " * ".join([read if p % 2 == 0 else f"abs({read})"] * int(p))
    extents = over(i, [x.shape[0], x.shape[1], *out])
    root = {1: "{}", 2: "sqrt({})"}.get(int(p), f"{{}} ** (1 / {int(p)})")
    result = root.format(f"t[{', '.join(i)}]")
    text = f"t[{extents}] = {reads}] ({power}); y[{extents}] = {result}"
    return batched(build.formula(text, {"x": x}))


def adaptive_avg_pool(build: Builder, x: Value, out_size: Sequence[int | None]) -> Value:
    """Means over `out_size` bins, of as equal extents as there are; None keeps an extent."""
    return _adaptive(build, x, out_size, "average")


def adaptive_max_pool(build: Builder, x: Value, out_size: Sequence[int | None]) -> Value:
    """The greatest elements of `out_size` bins, of as equal extents as there are; None keeps an extent."""
    return _adaptive(build, x, out_size, "max")


def adaptive_avg_pool_gradient(build: Builder, gradient: Value, in_size: Sequence[int]) -> Value:
    """The gradient of `adaptive_avg_pool` in its argument, whose spatial extents were `in_size`.

    Element h lies in the bins from floor(h * o / extent) to ceil((h + 1) * o / extent), excluded: in one or two, where
    there are fewer bins than elements.
    """
    n = len(in_size)
    batched, g = with_batch(build, gradient, n)
    check_elements(in_size)
    i, t = iterators(2 + n), iterators(n, "t")
    tensors, parts, at = {"g": g}, [], []
    widths: list[int] = []
    for d, (extent, o) in enumerate(zip(in_size, g.shape[2:], strict=True)):
        h, bins = np.arange(extent), np.arange(o)
        counts = -(-(bins + 1) * extent // o) - bins * extent // o
        first, end = h * o // extent, -(-(h + 1) * o // extent)
        width = int((end - first).max())
        bin_of = first[:, None] + np.arange(width)
        share = np.where(bin_of < end[:, None], 1 / counts[np.minimum(bin_of, o - 1)], 0)
        tensors[f"s{d}"] = build.literal(share, g.dtype, "shares")
        parts.append(f"s{d}[{i[2 + d]}, {t[d]}]")
        at.append(f"({o} * {i[2 + d]}) / {extent} + {t[d]}")
        widths.append(width)
    read = f"g[{', '.join([*i[:2], *at])}]"
    left = over(i, [*g.shape[:2], *in_size])
    text = f"y[{left}] = sum[{over(t, widths)}] {read} * {' * '.join(parts)}"
    return batched(build.formula(text, tensors, name="gradient"))


def _adaptive(build: Builder, x: Value, out_size: Sequence[int | None], kind: str) -> Value:
    n = len(out_size)
    batched, x = with_batch(build, x, n)
    size = x.shape[2:]
    out = [extent if o is None else o for extent, o in zip(size, out_size, strict=True)]
    if min(out, default=1) < 0:
        raise ShapeError(f"[graph] {shown(out)} bins")
    check_elements(out)
    if all(extent % o == 0 for extent, o in zip(size, out, strict=True)):
        program = _core.pool(
            kind,
            batch=x.shape[0],
            channels=x.shape[1],
            in_size=size,
            kernel=[extent // o for extent, o in zip(size, out, strict=True)],
            # A single bin begins at the first element, whatever the extent is.
            stride=[1 if o == 1 else extent // o for extent, o in zip(size, out, strict=True)],
        )
        return batched(build.program(program, [x])[0])
    # Bin k holds the elements from floor(k * extent / o) to ceil((k + 1) * extent / o), excluded.
    i, r = iterators(2 + n), iterators(n, "r")
    begins = [np.arange(o) * extent // o for extent, o in zip(size, out, strict=True)]
    ends = [-(-np.arange(1, o + 1) * extent // o) for extent, o in zip(size, out, strict=True)]
    counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
    widths = [int(count.max()) for count in counts]
    at = [
        f"({extent} * {i[2 + d]}) / {o} + {r[d]}"
        for d, (extent, o) in enumerate(zip(size, out, strict=True))
    ]
    by, tensors = _divisor(build, x, counts, i[2:], {"x": x})
    inside = [f"index({r[d]}) < n{d}[{i[2 + d]}]" for d in range(n) if f"n{d}" in tensors]
    read = f"x[{', '.join([*i[:2], *at])}]"
    if inside:
        read = f"select({' and '.join(inside)}, {read}, {'-inf' if kind == 'max' else '0'})"
    extents = over(i, [x.shape[0], x.shape[1], *out])
    if kind == "max":
        text = f"y[{extents}] = max[{over(r, widths)}] {read}"
    else:
        text = (
            f"t[{extents}] = sum[{over(r, widths)}] {read}; y[{extents}] = t[{', '.join(i)}] / {by}"
        )
    return batched(build.formula(text, tensors))
