"""Rows of ONNX's recurrent operators, written out step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from syno.errors import ShapeError, shown
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions import elementwise, products, shapes
from syno.graph.functions.formulas import pointwise
from syno.graph.onnx_op import Op, Tensor, row

#: Most steps that are written out.
MOST_STEPS = 512

_EXPM1 = "(tanh(0.5 * {x}) * (exp({x}) + 1))"
#: Activations: the formula and the usual alpha and beta.
_ACTIVATIONS: dict[str, tuple[str, float, float]] = {
    "sigmoid": ("sigmoid({x})", 0, 0),
    "tanh": ("tanh({x})", 0, 0),
    "relu": ("max({x}, 0)", 0, 0),
    "affine": ("{a} * {x} + {b}", 1, 0),
    "leakyrelu": ("select({x} < 0, {a} * {x}, {x})", 0.01, 0),
    "thresholdedrelu": ("select({x} > {a}, {x}, 0)", 1, 0),
    "scaledtanh": ("{a} * tanh({b} * {x})", 1, 1),
    "hardsigmoid": ("min(max({a} * {x} + {b}, 0), 1)", 0.2, 0.5),
    "elu": ("select({x} > 0, {x}, {a} * " + _EXPM1 + ")", 1, 0),
    "softsign": ("{x} / (1 + abs({x}))", 0, 0),
}

Function = Callable[[Builder, Value], Value]


def _activations(op: Op, usual: Sequence[str], directions: int) -> list[list[Function]]:
    """The functions of each direction."""
    names = op.get("activations") or list(usual) * directions
    if len(names) != len(usual) * directions:
        raise ShapeError(f"[onnx] activations {shown(names)} of {directions} directions")
    alphas, betas = list(op.get("activation_alpha") or []), list(op.get("activation_beta") or [])
    clip = op.get("clip", 0.0)
    functions = []
    for name in names:
        word = str(name).lower()
        if word not in _ACTIVATIONS:
            raise NotCovered(f"[onnx] the activation {shown(name)}")
        body, a, b = _ACTIVATIONS[word]
        if "{a}" in body and alphas:
            a = alphas.pop(0)
        if "{b}" in body and betas:
            b = betas.pop(0)
        functions.append(_function(body, float(a), float(b), float(clip)))
    count = len(usual)
    return [functions[d * count : (d + 1) * count] for d in range(directions)]


def _function(body: str, a: float, b: float, clip: float) -> Function:
    if clip:
        body = body.replace("{x}", "min(max({x}, {low}), {high})")

    def function(build: Builder, x: Value) -> Value:
        numbers = {"a": a, "b": b, "low": -clip, "high": clip}
        used: dict[str, Any] = {
            key: value for key, value in numbers.items() if "{" + key + "}" in body
        }
        return pointwise(build, body, name="activation", x=x, **used)

    return function


class Recurrence:
    """The inputs of a recurrent operator, direction by direction."""

    def __init__(self, op: Op, gates: int, usual: Sequence[str]) -> None:
        self.op, self.build = op, op.build
        x = op.x(0)
        self.batch_first = bool(op.get("layout", 0))
        if x.rank != 3 or op.rank(1) != 3 or op.rank(2) != 3:
            raise ShapeError(
                f"[onnx] {op.kind} of tensors of {x.rank}, {op.rank(1)}, {op.rank(2)} dimensions"
            )
        if self.batch_first:
            x = shapes.permute(self.build, x, [1, 0, 2])
        self.x = x
        self.steps, self.batch, _ = x.shape
        way = op.get("direction", "forward")
        if way not in ("forward", "reverse", "bidirectional"):
            raise ShapeError(f"[onnx] direction {shown(way)}")
        self.backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[way]
        self.size = int(op.get("hidden_size", op.shape(2)[2]))
        directions = len(self.backward)
        if op.shape(1)[:2] != (directions, gates * self.size) or op.shape(2) != (
            directions,
            gates * self.size,
            self.size,
        ):
            raise ShapeError(
                f"[onnx] {op.kind} of {self.size} features with weights {list(op.shape(1))} and {list(op.shape(2))}"
            )
        if self.steps > MOST_STEPS:
            raise NotCovered(
                f"[onnx] {op.kind} of {self.steps} steps; at most {MOST_STEPS} are written out"
            )
        if op.has(4) and any(length != self.steps for length in op.ints(4)):
            raise NotCovered("[onnx] sequences of several lengths")
        self.functions = _activations(op, usual, directions)

    def direction(self, i: int, d: int) -> Value:
        return shapes.select(self.build, self.op.x(i), 0, d)

    def state(self, i: int, d: int) -> Value:
        """A first state of a direction, (batch, features); zeros where none is given."""
        if not self.op.has(i):
            return self.build.literal(_zeros(self.batch, self.size), self.x.dtype)
        return shapes.select(self.build, self.op.x(i), 1 if self.batch_first else 0, d)

    def order(self, d: int) -> list[int]:
        steps = list(range(self.steps))
        return steps[::-1] if self.backward[d] else steps

    def inputs(self, d: int, bias: Value | None) -> Value:
        """The products of all steps' inputs, (steps, batch, gates)."""
        return products.linear(self.build, self.x, self.direction(1, d), bias)

    def biases(self, d: int) -> tuple[Value | None, Value | None]:
        """Those of the inputs and of the state."""
        if not self.op.has(3):
            return None, None
        both = self.direction(3, d)
        half = both.shape[0] // 2
        return (
            shapes.slice(self.build, both, 0, 0, half),
            shapes.slice(self.build, both, 0, half, 2 * half),
        )

    def gate(self, x: Value, g: int) -> Value:
        return shapes.slice(self.build, x, 1, g * self.size, (g + 1) * self.size)

    def result(self, all_states: list[dict[int, Value]], last: list[list[Value]]) -> list[Tensor]:
        """Y (steps, directions, batch, features) and the last states (directions, batch, features)."""
        build = self.build
        ways = [
            shapes.stack(build, [states[t] for t in range(self.steps)], 0) for states in all_states
        ]
        y = shapes.stack(build, ways, 1)
        ends = [shapes.stack(build, each, 0) for each in last]
        if self.batch_first:
            y = shapes.permute(build, y, [2, 0, 1, 3])
            ends = [shapes.permute(build, each, [1, 0, 2]) for each in ends]
        return [y, *ends]


def _zeros(*shape: int) -> list[list[float]]:
    return [[0.0] * shape[1] for _ in range(shape[0])]


def _added(build: Builder, x: Value, y: Value | None) -> Value:
    return x if y is None else elementwise.add(build, x, y)


@row("RNN")
def _rnn(op: Op) -> list[Tensor]:
    r = Recurrence(op, 1, ["Tanh"])
    everything, ends = [], []
    for d in range(len(r.backward)):
        w_bias, r_bias = r.biases(d)
        bias = None if w_bias is None else _added(r.build, w_bias, r_bias)
        given, weights, h = r.inputs(d, bias), r.direction(2, d), r.state(5, d)
        states = {}
        for t in r.order(d):
            total = products.linear(r.build, h, weights)
            total = elementwise.add(r.build, total, shapes.select(r.build, given, 0, t))
            h = r.functions[d][0](r.build, total)
            states[t] = h
        everything.append(states)
        ends.append(h)
    return r.result(everything, [ends])


@row("GRU")
def _gru(op: Op) -> list[Tensor]:
    r = Recurrence(op, 3, ["Sigmoid", "Tanh"])
    build, after = r.build, bool(op.get("linear_before_reset", 0))
    everything, ends = [], []
    for d in range(len(r.backward)):
        w_bias, r_bias = r.biases(d)
        f, g = r.functions[d]
        given, h = r.inputs(d, w_bias), r.state(5, d)
        weights, n = r.direction(2, d), r.size
        of_gates = shapes.slice(build, weights, 0, 0, 2 * n)
        of_hidden = shapes.slice(build, weights, 0, 2 * n, 3 * n)
        bias = bias_h = None
        if r_bias is not None:
            bias = shapes.slice(build, r_bias, 0, 0, 2 * n)
            bias_h = shapes.slice(build, r_bias, 0, 2 * n, 3 * n)
        states = {}
        for t in r.order(d):
            now = shapes.select(build, given, 0, t)
            gates = products.linear(build, h, of_gates, bias)
            gates = f(build, elementwise.add(build, gates, shapes.slice(build, now, 1, 0, 2 * n)))
            update, reset = r.gate(gates, 0), r.gate(gates, 1)
            if after:
                part = elementwise.mul(build, reset, products.linear(build, h, of_hidden, bias_h))
            else:
                part = products.linear(build, elementwise.mul(build, reset, h), of_hidden, bias_h)
            new = g(build, elementwise.add(build, part, r.gate(now, 2)))
            body = "(1 - {z}) * {n} + {z} * {h}"
            h = pointwise(build, body, name="state", z=update, n=new, h=h)
            states[t] = h
        everything.append(states)
        ends.append(h)
    return r.result(everything, [ends])


@row("LSTM")
def _lstm(op: Op) -> list[Tensor]:
    r = Recurrence(op, 4, ["Sigmoid", "Tanh", "Tanh"])
    build, coupled = r.build, bool(op.get("input_forget", 0))
    everything, ends, cells = [], [], []
    for d in range(len(r.backward)):
        w_bias, r_bias = r.biases(d)
        bias = None if w_bias is None else _added(build, w_bias, r_bias)
        f, g, last = r.functions[d]
        given, weights = r.inputs(d, bias), r.direction(2, d)
        h, c = r.state(5, d), r.state(6, d)
        holes: list[Value] = []
        if op.has(7):
            peep = r.direction(7, d)
            holes = shapes.split(build, peep, r.size, 0)
            if len(holes) != 3:
                raise ShapeError(f"[onnx] peepholes of shape {list(op.shape(7))}")
        states = {}
        for t in r.order(d):
            total = products.linear(build, h, weights)
            total = elementwise.add(build, total, shapes.select(build, given, 0, t))
            gates = [r.gate(total, k) for k in range(4)]  # input, output, forget, cell
            if holes:
                gates[0] = elementwise.addcmul(build, gates[0], holes[0], c)
                gates[2] = elementwise.addcmul(build, gates[2], holes[2], c)
            enter = f(build, gates[0])
            forget = elementwise.rsub(build, enter, 1.0) if coupled else f(build, gates[2])
            new = g(build, gates[3])
            c = pointwise(
                build, "{f} * {c} + {i} * {n}", name="cell", f=forget, c=c, i=enter, n=new
            )
            if holes:
                gates[1] = elementwise.addcmul(build, gates[1], holes[1], c)
            out = f(build, gates[1])
            h = elementwise.mul(build, out, last(build, c))
            states[t] = h
        everything.append(states)
        ends.append(h)
        cells.append(c)
    return r.result(everything, [ends, cells])
