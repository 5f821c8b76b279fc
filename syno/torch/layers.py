"""Layers that an operator can take the place of, described without their module.

A `Layer` says what a convolution or linear layer computes at any input size; `describe()` reads one
from a module or explains in a sentence why that module cannot be replaced. `Fit` is how a layer's
input is brought to the shape an operator's signature asks for: a strided convolution's operator
takes `[N, C_in, s*H, s*W]` to `[N, C_out, H, W]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

#: Names of spatial dimensions by how many there are; further leading dimensions join the batch.
SPATIAL_NAMES: dict[int, tuple[str, ...]] = {
    0: (),
    1: ("L",),
    2: ("H", "W"),
    3: ("D", "H", "W"),
}

CONVOLUTIONS: dict[Any, tuple[str, int]] = {
    nn.Conv1d: ("conv1d", 1),
    nn.Conv2d: ("conv2d", 2),
    nn.Conv3d: ("conv3d", 3),
    nn.ConvTranspose1d: ("conv_transpose1d", 1),
    nn.ConvTranspose2d: ("conv_transpose2d", 2),
    nn.ConvTranspose3d: ("conv_transpose3d", 3),
}


@dataclass(frozen=True)
class Layer:
    """A convolution or linear layer.

    For a convolution the tuples have one entry per spatial axis, `pad` being zeros (before, after).
    A linear layer has empty tuples: its leading dimensions are known at a call only.
    """

    kind: str
    in_channels: int
    out_channels: int
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    pad: tuple[tuple[int, int], ...] = ()
    groups: int = 1
    bias: bool = False
    output_pad: tuple[int, ...] = ()
    """Places that a transposed convolution adds at the end of each axis."""

    @property
    def transposed(self) -> bool:
        """Its stride enlarges the input."""
        return self.kind.startswith("conv_transpose")

    @property
    def weight_elements(self) -> int:
        return self.out_channels * (self.in_channels // self.groups) * math.prod(self.kernel)

    @property
    def params(self) -> int:
        """Elements of the weight and the bias."""
        return self.weight_elements + (self.out_channels if self.bias else 0)

    @property
    def fan_in(self) -> float:
        """Terms of one output element, borders apart; the mean over the places of a transposed convolution, of which
        each reads its own part of the window."""
        terms = (self.in_channels // self.groups) * math.prod(self.kernel)
        return terms / math.prod(self.stride) if self.transposed else terms

    @property
    def depthwise(self) -> bool:
        """Every input channel has filters of its own."""
        return self.groups > 1 and self.groups == self.in_channels

    def flops(self, output: Sequence[int]) -> int:
        """Multiply-adds of one call with an output of this shape (the bias counts nothing)."""
        return round(math.prod(output) * self.fan_in)

    def fit(self, input_shape: Sequence[int], output_shape: Sequence[int]) -> Fit:
        """How an input of `input_shape` becomes the operator's, given the layer's output shape."""
        if self.kind == "linear":
            return _fit_linear(self, tuple(input_shape))
        if self.transposed:
            return _fit_transposed(self, tuple(input_shape), tuple(output_shape))
        return _fit_convolution(self, tuple(input_shape), tuple(output_shape))


@dataclass(frozen=True)
class Fit:
    """The operator's view of one call of a layer.

    `input` and `output` are the operator's shapes, batch first. `pad` holds zeros added (or, when
    negative, elements cropped) before and after each spatial axis; `crop` holds elements of the
    operator's output that the layer does not return.
    """

    spatial: tuple[str, ...]
    input: tuple[int, ...]
    output: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]
    layer_input: tuple[int, ...]
    layer_output: tuple[int, ...]
    channels_last: bool
    crop: tuple[tuple[int, int], ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the operator sees the layer's input as it is, and returns the layer's output."""
        return not any(before or after for before, after in (*self.pad, *self.crop))

    def describe(self) -> str:
        """What happens to the input and the output, for people; empty when nothing does."""
        return ", ".join(filter(None, (self.padding(), self.cropping())))

    def padding(self) -> str:
        """What happens to the input; empty when nothing does."""
        parts = []
        for name, sides in zip(self.spatial, self.pad, strict=True):
            for side, amount in zip(("start", "end"), sides, strict=True):
                if amount:
                    verb = "crops" if amount < 0 else "pads"
                    parts.append(f"{verb} {abs(amount)} at the {side} of {name}")
        return ", ".join(parts)

    def cropping(self) -> str:
        """What happens to the output; empty when nothing does."""
        parts = []
        for name, sides in zip(self.spatial, self.crop, strict=bool(self.crop)):
            for side, amount in zip(("start", "end"), sides, strict=True):
                if amount:
                    parts.append(f"crops {amount} at the {side} of the output's {name}")
        return ", ".join(parts)

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's input as the operator wants it; a view unless it has to be padded."""
        if any(before or after for before, after in self.pad):
            # torch lists the last axis first; a convolution's spatial axes are its last ones.
            amounts = [n for before_after in reversed(self.pad) for n in before_after]
            x = functional.pad(x, amounts)
        return _reshaped(x, self.input)

    def leave(self, y: torch.Tensor) -> torch.Tensor:
        """The operator's output as the layer would have returned it."""
        if any(before or after for before, after in self.crop):
            y = functional.pad(
                y, [-n for before_after in reversed(self.crop) for n in before_after]
            )
        return _reshaped(y, self.layer_output)


def _reshaped(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    # Even to its own shape, `reshape` gives a batch of one another stride, by which channels-last is told.
    return x if plain_shape(x) == shape else x.reshape(shape)


_jit: Any = torch.jit
_engine: Any = torch._C


def tracing() -> bool:
    """Whether TorchScript records what is computed."""
    return bool(_jit.is_tracing())


def plain_shape(x: torch.Tensor) -> tuple[int, ...]:
    """Extents that a trace of TorchScript does not record as values."""
    if not tracing():
        return x.shape
    state = _engine._get_tracing_state()
    _engine._set_tracing_state(None)
    try:
        return tuple(int(n) for n in x.shape)
    finally:
        _engine._set_tracing_state(state)


def _fit_linear(layer: Layer, shape: tuple[int, ...]) -> Fit:
    leading = shape[:-1]
    spatial_rank = min(max(len(leading) - 1, 0), 3)
    split = len(leading) - spatial_rank
    batch, spatial = math.prod(leading[:split]), leading[split:]
    return Fit(
        spatial=SPATIAL_NAMES[spatial_rank],
        input=(batch, *spatial, layer.in_channels),
        output=(batch, *spatial, layer.out_channels),
        pad=((0, 0),) * spatial_rank,
        layer_input=shape,
        layer_output=(*leading, layer.out_channels),
        channels_last=True,
    )


def _fit_convolution(layer: Layer, shape: tuple[int, ...], output: tuple[int, ...]) -> Fit:
    rank = len(layer.kernel)
    extents, results = shape[-rank:], output[-rank:]
    batch = shape[0] if len(shape) == rank + 2 else 1
    pad = tuple(
        _alignment(extent, result, kernel, stride, dilation, before)
        for extent, result, kernel, stride, dilation, (before, _) in zip(
            extents, results, layer.kernel, layer.stride, layer.dilation, layer.pad, strict=True
        )
    )
    wanted = tuple(s * r for s, r in zip(layer.stride, results, strict=True))
    return Fit(
        spatial=SPATIAL_NAMES[rank],
        input=(batch, layer.in_channels, *wanted),
        output=(batch, layer.out_channels, *results),
        pad=pad,
        layer_input=shape,
        layer_output=output,
        channels_last=False,
    )


def _fit_transposed(layer: Layer, shape: tuple[int, ...], output: tuple[int, ...]) -> Fit:
    rank = len(layer.kernel)
    extents, results = shape[-rank:], output[-rank:]
    batch = shape[0] if len(shape) == rank + 2 else 1
    sides = [
        _upward_alignment(extent, result, kernel, stride, dilation, before)
        for extent, result, kernel, stride, dilation, (before, _) in zip(
            extents, results, layer.kernel, layer.stride, layer.dilation, layer.pad, strict=True
        )
    ]
    wanted = tuple(e + sum(pad) for e, (pad, _) in zip(extents, sides, strict=True))
    enlarged = tuple(s * n for s, n in zip(layer.stride, wanted, strict=True))
    return Fit(
        spatial=SPATIAL_NAMES[rank],
        input=(batch, layer.in_channels, *wanted),
        output=(batch, layer.out_channels, *enlarged),
        pad=tuple(pad for pad, _ in sides),
        layer_input=shape,
        layer_output=output,
        channels_last=False,
        crop=tuple(crop for _, crop in sides),
    )


def _upward_alignment(
    extent: int, result: int, kernel: int, stride: int, dilation: int, before: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Zeros before and after an axis, and what is left out before and after the axis of the output, so that an
    operator that makes `stride` places of each stands for a transposed convolution.

    Where the extents already fit nothing moves; otherwise the middle of the places that the layer adds an element to
    becomes the middle of those that the operator makes of it.
    """
    if result == stride * extent:
        return (0, 0), (0, 0)
    # Twice the middle: the layer's lies at stride*i - before + dilation*(kernel - 1)/2.
    ahead = (dilation * (kernel - 1) - 2 * before - (stride - 1)) // 2
    pad = -(-ahead // stride)
    crop = stride * pad - ahead
    wanted = -(-(result + crop) // stride)
    return (pad, wanted - extent - pad), (crop, stride * wanted - crop - result)


def _alignment(
    extent: int, result: int, kernel: int, stride: int, dilation: int, before: int
) -> tuple[int, int]:
    """Zeros to add before and after an axis so that it has `stride * result` elements.

    Where the extents already fit nothing moves; otherwise the centre of the layer's window at
    output 0 becomes element 0, so that an operator's centred window looks where the layer did.
    """
    wanted = stride * result
    if extent == wanted:
        return 0, 0
    centre = dilation * (kernel - 1) // 2 - before
    return -centre, wanted - extent + centre


def output_shape(layer: Layer, shape: Sequence[int]) -> tuple[int, ...]:
    """What the layer returns for an input of this shape."""
    if layer.kind == "linear":
        return (*shape[:-1], layer.out_channels)
    rank = len(layer.kernel)
    axes = zip(shape[-rank:], layer.pad, layer.kernel, layer.stride, layer.dilation, strict=True)
    if layer.transposed:
        spatial = tuple(
            (extent - 1) * stride - sum(pad) + dilation * (kernel - 1) + 1 + more
            for (extent, pad, kernel, stride, dilation), more in zip(
                axes, layer.output_pad, strict=True
            )
        )
    else:
        spatial = tuple(
            (extent + sum(pad) - dilation * (kernel - 1) - 1) // stride + 1
            for extent, pad, kernel, stride, dilation in axes
        )
    return (*shape[: -rank - 1], layer.out_channels, *spatial)


@dataclass(frozen=True)
class Description:
    """What `describe()` read: the layer where it could be read, and why it cannot be replaced."""

    kind: str
    layer: Layer | None
    reason: str = ""


_ATTENTION = (
    "attention multiplies with its projections' weights itself (in_proj_weight, out_proj.weight); "
    "syno.nn.with_linear_attention(model) writes them as Linear layers, which can be searched"
)
_RECURRENT = "a recurrent layer multiplies with its weights again in every step of one call"
#: Layers that multiply with weights and that no operator takes the place of: kind and reason.
UNREPLACED: dict[Any, tuple[str, str]] = {
    nn.Bilinear: (
        "bilinear",
        "it multiplies two inputs with its weight; an operator in a layer's place has one input",
    ),
    nn.MultiheadAttention: ("attention", _ATTENTION),
    nn.RNNBase: ("recurrent", _RECURRENT),
    nn.RNNCellBase: ("recurrent", _RECURRENT),
}


def describe(module: nn.Module) -> Description | None:
    """The layer that a module is; None for a module that multiplies with no weight of its own."""
    base: Any = next((c for c in (*CONVOLUTIONS, nn.Linear) if isinstance(module, c)), None)
    if base is None:
        for other, (kind, reason) in UNREPLACED.items():
            if isinstance(module, other):
                return Description(kind, None, reason)
        if hasattr(module, "_packed_params"):
            name = type(module).__name__
            return Description(
                "quantised",
                None,
                f"the weights of {name} are quantised; search the model before that",
            )
        return None
    kind, rank = CONVOLUTIONS.get(base, ("linear", 0))
    if type(module).forward is not base.forward:
        name = type(module).__name__
        return Description(
            kind, None, f"{name} has a forward of its own, which may compute something else"
        )
    if getattr(module, "parametrizations", None) or "weight" not in module._parameters:
        return Description(
            kind, None, "its weight is parametrised (weight or spectral norm); remove that first"
        )
    if isinstance(module, nn.Linear):
        layer = Layer(kind, module.in_features, module.out_features, bias=module.bias is not None)
        return Description(kind, layer)
    assert isinstance(module, tuple(CONVOLUTIONS))
    return _describe_convolution(module, kind, rank)


def _describe_convolution(module: Any, kind: str, rank: int) -> Description:
    kernel, stride, dilation = (
        tuple(int(n) for n in t)[:rank]
        for t in (module.kernel_size, module.stride, module.dilation)
    )
    if isinstance(module.padding, str):
        pad = _named_padding(module.padding, kernel, dilation)
    else:
        pad = tuple((int(p), int(p)) for p in module.padding)
    reason = ""
    if module.padding_mode != "zeros" and any(a or b for a, b in pad):
        reason = (
            f"padding_mode={module.padding_mode!r} fills the border with values of the image; "
            "operators see zeros there"
        )
    layer = Layer(
        kind,
        module.in_channels,
        module.out_channels,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        pad=pad,
        groups=module.groups,
        bias=module.bias is not None,
        output_pad=tuple(int(n) for n in module.output_padding)[:rank]
        if kind.startswith("conv_transpose")
        else (),
    )
    return Description(kind, layer, reason)


def _named_padding(
    name: str, kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    if name == "valid":
        return ((0, 0),) * len(kernel)
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)
