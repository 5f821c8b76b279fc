"""What a layer's shapes are in variables: the signature, the coefficients in it, and the values that a call has.

It is written with primary variables `N, C_in, C_out, H, W` (or `L`, or `D, H, W`) and small coefficients taken from the
layers: kernel extents, strides, groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syno import _core
from syno.torch.layers import Fit, Layer

DEFAULT_WINDOW = 3
_LARGEST_GROUPS = 32  # the paper's g for ResNet
WEIGHTS = 2
MOST_STEPS = _core.MOST_STEPS
_MOST_OCCURRENCES = 8  # ... and of a variable in its steps


@dataclass(frozen=True)
class Signature:
    """The symbolic shapes of a group, extents as products of variable names."""

    output: tuple[tuple[str, str], ...]
    """(dimension name, extent) pairs; extents such as `s*H`."""
    input: tuple[tuple[str, str], ...]
    unordered: tuple[str, ...]
    """Names of the dimensions that hold channels."""


def joined(numbers: Sequence[int]) -> str:
    """`2` when all are equal, `2x1` otherwise."""
    return "x".join(map(str, numbers if len(set(numbers)) > 1 else numbers[:1]))


def group_key(layer: Layer, fit: Fit) -> str:
    """What decides which group a layer is in; a name for people too: `conv2d 3x3 s2`."""
    parts = [layer.kind]
    if layer.kind == "linear":
        parts += fit.spatial
    else:
        parts.append("x".join(map(str, layer.kernel)))
        if set(layer.stride) != {1}:
            parts.append("s" + joined(layer.stride))
        if set(layer.dilation) != {1}:
            parts.append("d" + joined(layer.dilation))
        if layer.depthwise:
            multiplier = layer.out_channels // layer.in_channels
            parts.append("depthwise" + (f" x{multiplier}" if multiplier > 1 else ""))
        elif layer.groups > 1:
            parts.append(f"g{layer.groups}")
        # What a window is wider than has none of it: such layers have few operators in common with the others.
        beyond = [
            name
            for name, extent, window in zip(
                fit.spatial, fit.input[2:], windows_of(layer), strict=True
            )
            if extent < window
        ]
        if beyond:
            parts.append(f"beyond {' '.join(beyond)}")
    return " ".join(parts)


def _places(fit: Fit) -> tuple[int, ...]:
    """Extents of the places, of the smaller one of input and output."""
    inner = slice(1, -1) if fit.channels_last else slice(2, None)
    return tuple(map(min, fit.input[inner], fit.output[inner]))


def windows_of(layer: Layer) -> tuple[int, ...]:
    """Along each axis, the places of the input that an output sees, gaps of a dilation apart.

    The places of a transposed convolution's output that stand for one of its input see different parts of its window:
    counted are all that they see together around that one.
    """
    if not layer.transposed:
        return layer.kernel
    windows = []
    for kernel, stride, dilation, (before, _), more in zip(
        layer.kernel, layer.stride, layer.dilation, layer.pad, layer.output_pad, strict=True
    ):
        reach = dilation * (kernel - 1)
        # As the layer's input is aligned with the operator's, see `Fit`.
        shift = before if 2 * before == reach + 1 + more - stride else (reach - stride + 1) // 2
        # The output's place stride*h + p reads the input's place h + n through the tap that makes this whole.
        reads = [
            (p + shift - dilation * tap) // stride
            for p in range(stride)
            for tap in range(kernel)
            if (p + shift - dilation * tap) % stride == 0
        ]
        windows.append(2 * max(map(abs, reads), default=0) + 1)
    return tuple(windows)


def signature_of(layer: Layer, fit: Fit) -> tuple[Signature, dict[str, int]]:
    """The signature, and how often each stride coefficient occurs in it."""
    batch = ("n", "N")
    if layer.depthwise:
        multiplier = layer.out_channels // layer.in_channels
        channel_in = ("c", "C")
        channel_out = ("o", "C" if multiplier == 1 else "m*C")
    else:
        channel_in, channel_out = ("c", "C_in"), ("o", "C_out")
    names = {name: name.lower() for name in fit.spatial}
    out = [(names[name], name) for name in fit.spatial]
    strides = layer.stride if layer.kind != "linear" else (1,) * len(fit.spatial)
    distinct = sorted({s for s in strides if s > 1})
    coefficient = {s: "s" if len(distinct) == 1 else f"s_{i + 1}" for i, s in enumerate(distinct)}
    larger = [
        (names[name], f"{coefficient[s]}*{name}" if s > 1 else name)
        for name, s in zip(fit.spatial, strides, strict=True)
    ]
    out, inputs = (larger, out) if layer.transposed else (out, larger)
    count = {coefficient[s]: sum(other == s for other in strides) for s in distinct}
    if fit.channels_last:
        dims_out, dims_in = (batch, *out, channel_out), (batch, *inputs, channel_in)
    else:
        dims_out, dims_in = (batch, channel_out, *out), (batch, channel_in, *inputs)
    return Signature(tuple(dims_out), tuple(dims_in), (channel_in[0], channel_out[0])), count


def blocked_in(
    layer: Layer, fit: Fit, coefficients: dict[str, int], valuations: Sequence[dict[str, int]]
) -> int:
    """Over how many dimensions what is computed at one place may stand for a block: a coefficient no larger than a window
    divides them in every layer. Five steps each and two for channels have to be left; volumes that stride take too long to
    draw from with both."""
    if fit.channels_last or (len(fit.spatial) > 2 and max(layer.stride) > 1):
        return 0
    widest = widest_block(layer)
    blocks = [name for name, value in coefficients.items() if value <= widest]
    divided = sum(
        any(all(v[name] % v[block] == 0 for v in valuations) for block in blocks)
        for name in fit.spatial
    )
    return divided if steps_of_blocks(divided) <= MOST_STEPS else 0


def widest_block(layer: Layer) -> int:
    """A window of the layers' own would fill it."""
    return max(DEFAULT_WINDOW, *windows_of(layer))


def steps_of_blocks(dims: int) -> int:
    """Of an operator that computes at one place of each block over so many dimensions, as a convolution between two that
    change the channels."""
    return 5 * dims + 2 if dims else 0


def occurrences_of(name: str, strides: dict[str, int], spatial: int, blocked: int) -> int:
    """How often an operator may use a coefficient of which there may be blocks along `blocked` of the dimensions.

    Windows: one an axis and one more, for a second stage. Other coefficients: in the channels of either stage, to
    dilate the windows, and for the layers' own strides; small ones for blocks of places along each axis, and to go
    from block to block.
    """
    if name.startswith("k"):
        return spatial + 1
    most = max(3, 2 * blocked)
    return min(_MOST_OCCURRENCES, most + strides.get(name, 0))


def coefficients_of(
    layers: Sequence[tuple[Layer, Fit]], stride_names: dict[str, int]
) -> dict[str, int]:
    """Values of the small variables, the same in the whole group."""
    first = layers[0][0]
    values: dict[str, int] = {}
    windows = sorted({k for k in windows_of(first) if k > 1})
    if not windows and _smallest_extent(layers) >= DEFAULT_WINDOW:
        windows = [DEFAULT_WINDOW]
    for i, window in enumerate(windows):
        values["k" if len(windows) == 1 else f"k_{i + 1}"] = window
    strides = sorted({s for s in first.stride if s > 1})
    values.update(zip(stride_names, strides, strict=True))
    if first.depthwise and first.out_channels > first.in_channels:
        values["m"] = first.out_channels // first.in_channels
    channels = math.gcd(*(n for layer, _ in layers for n in channels_of(layer)))
    if "s" not in values and channels % 2 == 0:
        values["s"] = 2
    groups = first.groups if first.groups > 1 and not first.depthwise else 0
    if not groups or groups == values.get("s"):  # as many as these need no name of their own
        # Half the channels at most, so that a group still holds two.
        groups = math.gcd(_LARGEST_GROUPS, channels)
        while groups * 2 > channels:
            groups //= 2
    if groups > 1:
        values["g"] = groups
    return values


def channels_of(layer: Layer) -> tuple[int, int]:
    return layer.in_channels, layer.out_channels


def _smallest_extent(layers: Sequence[tuple[Layer, Fit]]) -> int:
    return min((extent for _, fit in layers for extent in _places(fit)), default=0)


def values_of(layer: Layer, fit: Fit, coefficients: dict[str, int]) -> dict[str, int]:
    # Strides make one of the two larger; the variables are the extents of the other.
    spatial = _places(fit)
    channels = (
        {"C": layer.in_channels}
        if layer.depthwise
        else {"C_in": layer.in_channels, "C_out": layer.out_channels}
    )
    return {
        "N": fit.input[0],
        **channels,
        **dict(zip(fit.spatial, spatial, strict=True)),
        **coefficients,
    }
