"""The paper's two-stage operators against dense convolutions with the kernels they amount to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import syno  # noqa: E402
from syno import _core  # noqa: E402

GROUPS, SHRINK = 2, 3


def site(c_in: int, c_out: int, height: int, width: int, stride: int) -> Any:
    """The spec of one convolution's site."""
    names = ["N", "C_in", "C_out", "H", "W", "s"]
    kinds = ["primary"] * 5 + ["coefficient"]
    values = [2, c_in, c_out, height, width, stride]
    prefix = "s*" if stride > 1 else ""
    dims = {
        side: [
            {"name": "n", "extent": "N"},
            {"name": "c", "extent": channels, "unordered": True},
            {"name": "h", "extent": factor + "H"},
            {"name": "w", "extent": factor + "W"},
        ]
        for side, channels, factor in (("output", "C_out", ""), ("input", "C_in", prefix))
    }
    if stride == 1:
        names, kinds, values = names[:-1], kinds[:-1], values[:-1]
    document = {
        "variables": [
            {"name": n, "kind": k, "occurrences": 2} for n, k in zip(names, kinds, strict=True)
        ],
        "valuations": [dict(zip(names, values, strict=True))],
        "fixed": [[0, 0]],
        "budgets": {"max_steps": 12},
        **dims,
    }
    return _core.Spec.from_json(json.dumps(document))


def operator1_kernel(w1: Any, w2: Any) -> Any:
    """K[o, gc, r, s] = Σ_d w1[o, r, s, g, d] * w2[d, s, gc]."""
    grouped = w2.unflatten(2, (GROUPS, -1))
    return torch.einsum("orsgd,dsgc->ogcrs", w1, grouped).flatten(1, 2)


def operator2_kernel(w1: Any, w2: Any) -> Any:
    """K[o, gc, r, s] = Σ_d w1[o, g, d, r] * w2[d, r, s, gc]: the tap r is Shared by both."""
    grouped = w2.unflatten(3, (GROUPS, -1))
    return torch.einsum("ogdr,drsgc->ogcrs", w1, grouped).flatten(1, 2)


def bottleneck_kernel(w1: Any, w2: Any) -> Any:
    return torch.einsum("od,dcrs->ocrs", w1, w2)


KERNELS = {
    "operator1": operator1_kernel,
    "operator2": operator2_kernel,
    "bottleneck_conv": bottleneck_kernel,
}
SITES = st.tuples(
    st.sampled_from([2, 4]),  # input channels
    st.sampled_from([6, 12]),  # output channels
    st.integers(3, 6),
    st.integers(3, 6),
    st.sampled_from([1, 2]),  # stride
    st.sampled_from([1, 3]),  # window
    st.integers(0, 2**31),
)


def interpreted(name: str, drawn: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
    """The operator's output by the interpreter, and its inputs as float64 tensors."""
    c_in, c_out, height, width, stride, window, seed = drawn
    sizes = {"kernel": str(window), "groups": str(GROUPS), "shrink": str(SHRINK)}
    graph = _core.named_operator(name, site(c_in, c_out, height, width, stride), sizes)
    operator = syno.Operator.from_pgraph(graph).at(0)
    generator = np.random.default_rng(seed)
    inputs = {n: generator.standard_normal(operator.shapes[n]) for n in operator.inputs}
    y = torch.from_numpy(np.asarray(operator.reference(**inputs)))
    return y, {n: torch.from_numpy(v) for n, v in inputs.items()}


@pytest.mark.parametrize("name", sorted(KERNELS))
@settings(max_examples=20, deadline=None)
@given(drawn=SITES)
def test_a_two_stage_operator_is_a_convolution_with_a_factored_kernel(
    name: str, drawn: tuple[int, ...]
) -> None:
    y, inputs = interpreted(name, drawn)
    stride, window = drawn[4], drawn[5]
    w1, w2 = inputs["w1"], inputs["w2"]
    if window == 1 and name != "bottleneck_conv":  # neither weight has a window: give it one of 1
        w1 = w1[:, None, None] if name == "operator1" else w1[..., None]
        w2 = w2[:, None] if name == "operator1" else w2[:, None, None]
    elif window == 1:
        w2 = w2[..., None, None]
    kernel = KERNELS[name](w1, w2)
    wanted = torch.nn.functional.conv2d(inputs["x"], kernel, stride=stride, padding=window // 2)
    torch.testing.assert_close(y, wanted, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(drawn=SITES.filter(lambda d: d[5] == 3))
def test_the_stack_of_figure_10_is_two_grouped_convolutions(drawn: tuple[int, ...]) -> None:
    y, inputs = interpreted("stacked_conv", drawn)
    grouped = inputs["w2"].unflatten(2, (GROUPS, -1))  # d, s, g, c
    first = grouped.permute(2, 0, 3, 1).flatten(0, 1)[:, :, None]  # (g d), c, 1, s
    second = inputs["w1"].permute(0, 3, 4, 1, 2).flatten(1, 2)  # o, (g d), r, s
    t = torch.nn.functional.conv2d(inputs["x"], first, padding=(0, 1), groups=GROUPS)
    wanted = torch.nn.functional.conv2d(t, second, stride=drawn[4], padding=1)
    torch.testing.assert_close(y, wanted, rtol=1e-9, atol=1e-9)


def test_a_window_needs_two_spatial_dimensions() -> None:
    plain = _core.spec_named("vit")
    for name in ("operator1", "operator2", "stacked_conv"):
        with pytest.raises(_core.SpecError, match="defined for 2"):
            _core.named_operator(name, plain)
        graph = _core.named_operator(name, plain, {"kernel": "1", "groups": "2"})
        assert not any("unfold" in line for line in graph.steps)
