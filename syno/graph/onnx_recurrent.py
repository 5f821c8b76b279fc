"""Rows of ONNX's recurrent operators, written out step by step."""

from __future__ import annotations

from collections.abc import Sequence

from syno.errors import ShapeError, shown
from syno.graph.building import NotCovered, Value
from syno.graph.functions import recurrent, shapes
from syno.graph.functions.formulas import exact
from syno.graph.functions.recurrent import Activation, Cell, Weights
from syno.graph.onnx_op import Op, Tensor, row

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


def _activations(op: Op, usual: Sequence[str], directions: int) -> list[list[Activation]]:
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


def _function(body: str, a: float, b: float, clip: float) -> Activation:
    if clip:
        body = body.replace("{x}", "min(max({x}, {low}), {high})")
    numbers = {"a": a, "b": b, "low": -clip, "high": clip}
    used = {key: exact(value) for key, value in numbers.items() if "{" + key + "}" in body}
    if None in used.values():
        raise NotCovered(f"[onnx] an activation of the numbers {shown(list(numbers.values()))}")
    return lambda x: body.format(x=x, **used)


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
        recurrent.require_steps(self.steps * directions)
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

    def weights(self, d: int) -> Weights:
        w, r = self.direction(1, d), self.direction(2, d)
        holes: tuple[Value, ...] = ()
        if self.op.kind == "LSTM" and self.op.has(7):
            peep = self.direction(7, d)
            if peep.shape != (3 * self.size,):
                raise ShapeError(f"[onnx] peepholes of shape {list(self.op.shape(7))}")
            holes = tuple(shapes.split(self.build, peep, self.size, 0))
        if not self.op.has(3):
            return Weights(w, r, peepholes=holes)
        both = self.direction(3, d)
        half = both.shape[0] // 2
        of_inputs = shapes.slice(self.build, both, 0, 0, half)
        of_state = shapes.slice(self.build, both, 0, half, 2 * half)
        return Weights(w, r, of_inputs, of_state, peepholes=holes)

    def result(self, cells: Sequence[Cell], kinds: Sequence[int]) -> list[Tensor]:
        """Y (steps, directions, batch, features) and the last states (directions, batch, features).

        Args:
            cells: by direction.
            kinds: the inputs that are first states.
        """
        build, ways = self.build, []
        ends: list[list[Value]] = [[] for _ in kinds]
        for d, (cell, backward) in enumerate(zip(cells, self.backward, strict=True)):
            own = self.weights(d)
            first = tuple(self.state(i, d) for i in kinds)
            given = recurrent.inputs_of(build, cell, self.x, own)
            way, last = recurrent.direction(build, cell, given, first, own, backward=backward)
            ways.append(way)
            for kind, state in zip(ends, last, strict=True):
                kind.append(state)
        y = shapes.stack(build, ways, 1)
        made = [shapes.stack(build, each, 0) for each in ends]
        if self.batch_first:
            y = shapes.permute(build, y, [2, 0, 1, 3])
            made = [shapes.permute(build, each, [1, 0, 2]) for each in made]
        return [y, *made]


def _zeros(*shape: int) -> list[list[float]]:
    return [[0.0] * shape[1] for _ in range(shape[0])]


@row("RNN")
def _rnn(op: Op) -> list[Tensor]:
    r = Recurrence(op, 1, ["Tanh"])
    return r.result([recurrent.simple(*each) for each in r.functions], [5])


@row("GRU")
def _gru(op: Op) -> list[Tensor]:
    r = Recurrence(op, 3, ["Sigmoid", "Tanh"])
    after = bool(op.get("linear_before_reset", 0))
    return r.result([recurrent.gru((1, 0), *each, reset_after=after) for each in r.functions], [5])


@row("LSTM")
def _lstm(op: Op) -> list[Tensor]:
    r = Recurrence(op, 4, ["Sigmoid", "Tanh", "Tanh"])
    coupled, order = bool(op.get("input_forget", 0)), (0, 2, 3, 1)
    return r.result([recurrent.lstm(order, *each, coupled=coupled) for each in r.functions], [5, 6])
