"""Transposed convolutions are sites: their own function is an operator of their space, at every alignment."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import syno  # noqa: E402
from syno import _core  # noqa: E402
from syno.operators.operator import Operator  # noqa: E402
from syno.session import Prune  # noqa: E402
from syno.torch.layers import describe, output_shape  # noqa: E402

LAYERS: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


@st.composite
def transposed(draw: Any) -> tuple[nn.Module, tuple[int, ...]]:
    """A layer and the extents of its input."""
    rank = draw(st.integers(1, 2))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, dilation = each(1, 5), each(1, 2)
    # One stride for all axes: an operator's signature names it once.
    stride = (draw(st.integers(1, 3)),) * rank
    reach = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    pad = tuple(draw(st.integers(0, r // 2)) for r in reach)
    more = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    layer = LAYERS[rank](
        4, 6, kernel, stride, pad, more, dilation=dilation, bias=draw(st.booleans())
    )
    return layer.double(), each(3, 6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(transposed(), st.integers(0, 2**31))
def test_the_layer_itself_is_an_operator_of_its_signature(
    made: tuple[nn.Module, tuple[int, ...]], seed: int
) -> None:
    layer, extents = made
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-1, 1)
    x = torch.randn(2, 4, *extents, dtype=torch.float64)
    wanted = layer(x)
    found = describe(layer)
    assert found is not None and found.layer is not None and not found.reason
    assert output_shape(found.layer, x.shape) == wanted.shape
    fit = found.layer.fit(x.shape, wanted.shape)
    # Where elements of the input are left out, borders differ.
    assume(all(n >= 0 for pair in fit.pad for n in pair))
    (group,) = syno.sites(layer, x, repeats=1).groups()
    assert not group.key.startswith("linear")
    windows = {name: group.valuations[0].get(name, 1) for name in ("k", "k_1", "k_2")}
    assume(group.window != "mixed" and "beyond" not in group.key)
    graph = _core.named_operator("conv", group.spec(max_flops=None), {"kernel": group.window})
    site = group.sites[0]
    op = syno.torch.replace(layer, {site: Operator.from_pgraph(graph)})
    assert isinstance(op, syno.torch.Op)
    with torch.no_grad():
        _take_over(op, layer, found.layer, fit, windows["k"] if group.window == "k" else 1)
        op.native = False
        torch.testing.assert_close(op(x), wanted, rtol=1e-9, atol=1e-9)


def _take_over(op: Any, layer: Any, read: Any, fit: Any, window: int) -> None:
    """Gives an operator ``y[o, s*h + p] = sum x[c, h + r - k/2] * w[...]`` the weights of a layer."""
    rank = len(read.kernel)
    (name,) = op.operator.weights
    assert name
    weight = op.get_parameter("weight")
    weight.zero_()
    # What is matched comes first: outputs, phases, inputs, taps. No extent of an axis is that of channels.
    shape = tuple(weight.shape)
    stride = read.stride[0]
    channels = [shape.index(4), shape.index(6)]
    others = [d for d in range(len(shape)) if d not in channels]
    phases = others[:rank] if stride > 1 else []
    taps = others[len(phases) :] if window > 1 else []
    for phase in itertools.product(range(stride), repeat=rank):
        for place in itertools.product(range(window), repeat=rank):
            tap = []
            for a in range(rank):
                (before, _), (pad, _), (crop, _) = read.pad[a], fit.pad[a], fit.crop[a]
                reach = phase[a] - crop + before - stride * (place[a] - window // 2 - pad)
                whole, rest = divmod(reach, read.dilation[a])
                tap.append(whole if not rest and 0 <= whole < read.kernel[a] else -1)
            if min(tap) < 0:
                continue
            index: list[Any] = [slice(None)] * len(shape)
            for d, r in zip(taps, place, strict=False):
                index[d] = r
            for d, p in zip(phases, phase, strict=False):
                index[d] = p
            values = layer.weight[(slice(None), slice(None), *tap)]
            weight[tuple(index)] = values if channels[0] < channels[1] else values.T
    if layer.bias is not None:
        op.bias.copy_(layer.bias)


class Enlarging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Conv2d(8, 16, 3, 2, 1)
        self.up = nn.ConvTranspose2d(16, 16, 4, 2, 1)
        self.odd = nn.ConvTranspose2d(16, 8, 3, 2)

    def forward(self, x: Any) -> Any:
        return self.odd(torch.relu(self.up(torch.relu(self.small(x)))))


def test_a_search_replaces_transposed_convolutions(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Enlarging()
    x = torch.randn(4, 8, 6, 6)
    data = [(x, model(x).detach()) for _ in range(2)]
    found = syno.sites(model, x[:1], repeats=1)
    assert [site.kind for site in found] == ["conv2d", "conv_transpose2d", "conv_transpose2d"]
    assert found["odd"].replaceable and "crops" in str(found)
    # 3x3 inputs of 16 channels, 16 of output, each through 4 x 4 taps.
    assert found["up"].flops == 3 * 3 * 16 * 16 * 16
    sites = found.where(kind="conv_transpose2d")
    groups = sites.groups()
    assert [group.key for group in groups] == ["conv_transpose2d 3x3 s2", "conv_transpose2d 4x4 s2"]
    spec = groups[1].spec()
    for name in ("grouped_conv", "separable_conv"):
        sizes = {"kernel": "k", "groups": "g"}
        assert _core.allowed(spec, _core.named_operator(name, spec, sizes)), name
    result = syno.search(
        model, x[:1], data=(data, data), loss="mse", sites=sites[-1:], session=tmp_path / "run", budget=1,
        policy="random", finalists=0, batch_width=1, known="grouped", progress="off", prune=Prune(),
        space={"max_steps": 8, "repeat": False, "max_expands": 0},
    )  # fmt: skip
    done = [c for c in result.view.candidates() if c.key and c.state == "done"]
    assert done
    made = result[done[0].id].apply(model, measured=False)
    ops = [m for m in made.modules() if isinstance(m, syno.torch.Op)]
    assert ops and made(x).shape == model(x).shape
    made(x).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for op in ops for p in op.parameters())


def test_the_size_of_an_output_that_a_call_asks_for_is_no_layers(tmp_path: Path) -> None:
    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose1d(8, 8, 3, 2, 1)

        def forward(self, x: Any) -> Any:
            return self.up(x, output_size=[2 * x.shape[-1]])

    site = syno.sites(Sized(), torch.randn(1, 8, 5), repeats=1)["up"]
    assert "output_size" in site.reason
