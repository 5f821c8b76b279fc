"""Lowering from Python: one scope, stages and derivatives, against each other and against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno import _core
from syno._core import Program

SIGNATURE = """syno-pgraph 1
variable N primary
variable C_in primary
variable C_out primary
variable H primary
variable k coefficient
valuation 2 4 6 8 3
output n:N o:C_out* h:H
input n:N c:C_in* h:H
fixed 0=0
"""
CONV1D = (
    SIGNATURE
    + """c3 = reduce C_in
c4 = reduce k
weight w1 = share c3 c4 match c1
c5 = unfold c2 window c4
input = c0 c3 c5
"""
)


def random_inputs(program: Program, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=program.shape(name)) for name in program.inputs}


def test_a_convolution_lowers_to_its_formula() -> None:
    program = _core.PGraph.parse(CONV1D).one_scope()
    assert program.inputs == ["x", "w1"]
    assert program.role("w1") == "weight"
    concrete = program.at(0)
    inputs = random_inputs(concrete, 0)
    x, w = inputs["x"], inputs["w1"]
    assert list(w.shape) == [6, 4, 3]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    expected = sum(np.einsum("ncH,oc->noH", padded[:, :, r : r + 8], w[:, :, r]) for r in range(3))
    np.testing.assert_allclose(concrete.interpret(inputs)["y"], expected, atol=1e-12)


def test_staged_equals_one_scope_and_never_costs_more() -> None:
    graph = _core.PGraph.parse(CONV1D)
    one, staged = graph.one_scope(), graph.staged()
    inputs = random_inputs(one.at(0), 1)
    np.testing.assert_allclose(
        staged.at(0).interpret(inputs)["y"], one.at(0).interpret(inputs)["y"], atol=1e-12
    )
    assert staged.cost().flops <= one.cost().flops
    assert graph.staged(max_stages=0).cost().flops >= staged.cost().flops


@st.composite
def convolutions(draw: st.DrawFn) -> Program:
    stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    taps, places = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    pad = draw(st.integers(0, 2))
    text = f"y[n,o,h] = sum[c,r] x[n,c,{stride}*h+{dilation}*r-{pad}] * k[o,c,r]"
    extent = stride * (places - 1) + dilation * (taps - 1) + 1 + draw(st.integers(-1, 2))
    shapes = {"x": [2, 3, max(1, extent)], "k": [2, 3, taps]}
    return Program.parse(text, sizes={"h": places}, shapes=shapes)


@settings(deadline=None, max_examples=40)
@given(convolutions(), st.integers(0, 1000))
def test_derivatives_of_any_convolution_match_autograd(program: Program, seed: int) -> None:
    check_against_autograd(program, seed)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("y[n,c,h] = max[r] x[n,c,2*h+r-1] fill -inf", {"x": [2, 3, 9]}),
        ("y[i,j] = gelu(a[i] * b[j]) + tanh(a[i]) / exp(b[j])", {"a": [3], "b": [4]}),
        (
            "m[i] = max[j] x[i,j]; e[i,j] = exp(x[i,j]-m[i]); s[i] = sum[j] e[i,j];"
            "y[i,j] = e[i,j]/s[i]",
            {"x": [3, 5]},
        ),
        ("y[i] = sum[j] x[(i+1)%6, j/2, j%2]", {"x": [6, 3, 2]}),
        ("y[i,j] = prod[r] x[i,j,r]", {"x": [2, 2, 3]}),
    ],
    ids=["max pool", "gelu", "softmax", "views", "product"],
)
def test_derivatives_match_autograd(text: str, shapes: dict[str, list[int]]) -> None:
    sizes = {"h": 5, "r": 3} if "2*h" in text else {"i": 6, "j": 6} if "%" in text else {}
    check_against_autograd(Program.parse(text, shapes=shapes, sizes=sizes), 3)


def check_against_autograd(program: Program, seed: int) -> None:
    torch = pytest.importorskip("torch")
    module = emitted_module(program)
    values = random_inputs(program, seed)
    leaves = []
    for name in program.inputs:
        if program.role(name) == "weight":
            with torch.no_grad():
                getattr(module, name).copy_(torch.from_numpy(values[name]))
            leaves.append(getattr(module, name))
        else:
            leaves.append(torch.from_numpy(values[name]).requires_grad_())
    data = [v for n, v in zip(program.inputs, leaves, strict=True) if program.role(n) == "input"]
    y = module(*data)
    cotangent = torch.from_numpy(np.random.default_rng(seed + 1).normal(size=tuple(y.shape)))
    grads = torch.autograd.grad(y, leaves, cotangent, allow_unused=True)
    for name, grad in zip(program.inputs, grads, strict=True):
        derivative = program.derivative(name)
        given = {n: values[n] if n in values else cotangent.numpy() for n in derivative.inputs}
        wanted = np.zeros(program.shape(name)) if grad is None else grad.numpy()
        np.testing.assert_allclose(
            derivative.interpret(given)["d" + name], wanted, atol=1e-9, err_msg=derivative.text()
        )


def emitted_module(program: Program):  # type: ignore[no-untyped-def]
    torch = pytest.importorskip("torch")
    namespace: dict[str, object] = {}
    exec(compile(_core.emit_pytorch(program), "emitted", "exec"), namespace)
    return namespace["Operator"](dtype=torch.float64)  # type: ignore[operator]


def test_derivative_names_an_unknown_input() -> None:
    program = Program.parse("y[i] = exp(x[i])", sizes={"i": 3})
    with pytest.raises(_core.UnknownName, match="'z'"):
        program.derivative("z")
