"""Gradients in networks: convolutions, pooling, padding and resizing of training graphs are programs, and agree with PyTorch."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from syno.graph import backend  # noqa: E402
from syno.graph.building import Builder, NotCovered, Value  # noqa: E402
from syno.graph.functions import elementwise, products, reductions, windows  # noqa: E402
from syno.graph.functions.gradients import gradients  # noqa: E402
from syno.graph.reference import run_reference  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def trained(model: Any, x: Tensor) -> tuple[list[Tensor], list[Any]]:
    """The gradients of a model's parameters and of its input by compiled graphs, and those graphs."""
    torch._dynamo.reset()
    fast = torch.compile(model, backend="syno")
    given = x.clone().requires_grad_()
    with backend.graphs_compiled() as graphs:
        y = fast(given)
        y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    return [p.grad for p in [given, *parameters]], graphs


def agrees(model: Any, x: Tensor) -> None:
    """Nothing of forward or backward runs in PyTorch, and all gradients are eager's."""
    twin = copy.deepcopy(model)
    ours, graphs = trained(model, x)
    given = x.clone().requires_grad_()
    y = twin(given)
    y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
    parameters = list(twin.parameters()) if isinstance(twin, nn.Module) else []
    for mine, theirs in zip(ours, [p.grad for p in [given, *parameters]], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert len(graphs) == 2
    for graph in graphs:
        assert not isinstance(graph, str) and not graph.fallbacks, graph


def random_convolution(draw: random.Random) -> tuple[nn.Module, Tensor]:
    rank, groups = draw.choice([1, 2, 2, 2, 3]), draw.choice([1, 1, 2, 3])
    into, out = groups * draw.randint(1, 3), groups * draw.randint(1, 3)
    kernel = [draw.randint(1, 4) for _ in range(rank)]
    stride = [draw.randint(1, 3) for _ in range(rank)]
    dilation = [draw.randint(1, 2) for _ in range(rank)]
    padding = [draw.randint(0, 2) for _ in range(rank)]
    size = [draw.randint(d * (k - 1) + 1, 11) for d, k in zip(dilation, kernel, strict=True)]
    common: dict[str, Any] = {
        "stride": stride,
        "padding": padding,
        "groups": groups,
        "bias": draw.random() < 0.5,
    }
    if draw.random() < 0.3:
        more = [draw.randint(0, s - 1) for s in stride]
        kinds = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
        padding = [min(p, (k - 1) // 2) for p, k in zip(padding, kernel, strict=True)]
        model = kinds[rank - 1](
            into, out, kernel, **common | {"padding": padding}, output_padding=more
        )
    else:
        kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
        model = kinds[rank - 1](into, out, kernel, **common, dilation=dilation)
    return model, torch.randn(draw.randint(1, 3), into, *size)


@pytest.mark.parametrize("seed", range(12))
def test_random_convolutions_train(seed: int) -> None:
    torch.manual_seed(seed)
    agrees(*random_convolution(random.Random(seed)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        lambda x: F.avg_pool2d(x, (2, 3), 1, (1, 0), count_include_pad=False),
        lambda x: F.avg_pool2d(x, 2, divisor_override=3),
        lambda x: F.adaptive_avg_pool2d(x, (1, 1)),
        lambda x: F.adaptive_avg_pool2d(x, (5, 4)),
        lambda x: F.adaptive_avg_pool2d(x, (3, 20)),
        lambda x: F.adaptive_avg_pool2d(x, (7, 9)),
        lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"),
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
        lambda x: F.max_pool2d(x, (3, 2), (1, 3), (1, 0), (2, 1)),
        lambda x: F.max_pool2d(F.relu(x), 3, 1, 1),  # of many equal ones the first
        lambda x: F.max_pool3d(x[:, None], 2, 1, 1),
        lambda x: F.max_pool2d(x[0], 2),
    ],
)
def test_windows_train(function: Any) -> None:
    agrees(function, torch.randn(2, 3, 7, 9))


@pytest.mark.parametrize(
    ("keys", "heads", "causal", "mask"),
    [
        (7, 3, False, None),
        (9, 1, False, None),
        (7, 2, True, None),
        (9, 3, False, torch.randn(7, 9)),
        (9, 2, False, torch.arange(63).reshape(7, 9) % 3 > 0),
    ],
)
def test_attention_trains_without_pytorch(
    keys: int, heads: int, causal: bool, mask: Tensor | None
) -> None:
    def function(x: Tensor) -> Tensor:
        q, k, v = x.split([7, keys, keys], 2)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

    agrees(function, torch.randn(2, heads, 7 + 2 * keys, 8))


def test_attention_whose_batches_differ_keeps_pytorchs_derivative() -> None:
    build = Builder("batches")
    q, k = build.input("q", (2, 3, 4, 8)), build.input("k", (1, 3, 4, 8))
    y, logarithms = products.attention_with_logarithms(build, q, k, k)
    with pytest.raises(NotCovered, match="batches differ"):
        products.attention_gradients(build, y, q, k, k, y, logarithms)


@pytest.mark.parametrize("out", [(2, 3, 2), (5, 1, 4)])
def test_adaptive_pooling_of_clips_trains(out: tuple[int, ...]) -> None:
    agrees(lambda x: F.adaptive_avg_pool3d(x, out), torch.randn(1, 2, 5, 4, 3))


def test_a_gradient_that_nobody_wants_is_not_computed() -> None:
    model = nn.Conv2d(3, 4, 3)
    fast = torch.compile(model, backend="syno")
    with backend.graphs_compiled() as graphs:
        fast(torch.randn(2, 3, 8, 8)).sum().backward()  # not with respect to the input
    assert "gradient_weight" in str(graphs[1]) and "gradient_input" not in str(graphs[1])


def test_sizes_that_change_need_no_gradient_of_the_input() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    twin = copy.deepcopy(model)
    fast = torch.compile(model, backend="syno", dynamic=True)
    for size in (6, 8):
        x = torch.randn(2, 2, size, size)
        fast(x).square().sum().backward()
        twin(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)


def test_resizing_falls_back_in_float64_too() -> None:
    """Its derivative writes into a constant; the check in float64 passes it numbers of another type."""
    torch._dynamo.reset()
    given = torch.randn(1, 2, 3, 4)
    ours, _ = trained(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), given)
    x = given.clone().requires_grad_()
    y = F.interpolate(x, scale_factor=2, mode="bilinear")
    y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
    torch.testing.assert_close(ours[0], x.grad)


# The derivative of several nodes


def chain(build: Builder, x: Value, w: Value) -> Value:
    """Nodes that read x twice, and each other's values."""
    y = windows.conv(build, x, w, None, [1], [1], [1], [1], 1)
    z = elementwise.mul(build, y, x)
    return reductions.sum(build, elementwise.add(build, z, y), [2])


def test_the_derivative_of_several_nodes_is_that_of_pytorch() -> None:
    build = Builder("both")
    x, w, g = (build.input(n, s) for n, s in (("x", (2, 3, 5)), ("w", (3, 3, 3)), ("g", (2, 3))))
    made = gradients(build, chain, {"x": x.shape, "w": w.shape}, {"x": x, "w": w}, g, ["x", "w"])
    results = [made["x"], made["w"]]
    assert all(isinstance(each, Value) for each in results)
    network = build.network(results)  # type: ignore[arg-type]
    tensors = {n: torch.randn(s) for n, s in (("x", x.shape), ("w", w.shape), ("g", g.shape))}
    outputs = run_reference(network, tensors)
    a, b = (tensors[n].clone().requires_grad_() for n in ("x", "w"))
    y = F.conv1d(a, b, padding=1)
    (y * a + y).sum(2).backward(tensors["g"])
    for each, theirs in zip(results, (a.grad, b.grad), strict=True):
        torch.testing.assert_close(outputs[each.name], theirs)  # type: ignore[union-attr]


def test_what_has_no_derivative_says_so() -> None:
    build = Builder("none")
    g = build.input("g", (4,))
    with pytest.raises(NotCovered, match="needs the values of x"):
        gradients(build, lambda b, x: elementwise.mul(b, x, x), {"x": (4,)}, {}, g, ["x"])

    def host(apart: Builder, x: Value) -> Value:
        return apart.call("aten.sort", [x], [((4,), "float32")], host=np.sort)[0]

    with pytest.raises(NotCovered, match="the derivative of"):
        gradients(build, host, {"x": (4,)}, {}, g, ["x"])


def test_an_input_that_nothing_reads_has_no_gradient() -> None:
    build = Builder("unread")
    g = build.input("g", (4,))
    made = gradients(
        build, lambda b, x, y: elementwise.add(b, x, 1.0), {"x": (4,), "y": (4,)}, {}, g, ["x", "y"]
    )
    assert made["x"] is not None and made["y"] is None
