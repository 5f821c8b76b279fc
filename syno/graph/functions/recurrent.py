"""Recurrent layers, written out step by step: the products of all steps' inputs are one, and each step is a product of the
state and what its gates make of it.

States are (batch, features); what is given of the inputs is (steps, batch, gates)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syno.errors import ShapeError
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions import elementwise, joining, products, shapes
from syno.graph.functions.formulas import Tensors, float_of

#: Most steps of all layers and directions that are written out.
MOST_STEPS = 2048


@dataclass(frozen=True)
class Weights:
    """Of one layer in one direction: gates are blocks of rows."""

    inputs: Value
    state: Value
    input_bias: Value | None = None
    state_bias: Value | None = None
    projection: Value | None = None
    peepholes: tuple[Value, ...] = ()
    """Of an LSTM, (features): how input, output and forget gate see the cell."""

    def bias(self, build: Builder) -> Value | None:
        """Both biases as one, where the gates only add up the two products."""
        if self.input_bias is None or self.state_bias is None:
            return self.input_bias
        return elementwise.add(build, self.input_bias, self.state_bias)


Step = Callable[[Value, tuple[Value, ...]], tuple[Value, ...]]
"""From what a step's inputs give (batch, gates) and the states before it to those after it; the first is what the layer gives."""


@dataclass(frozen=True)
class Cell:
    """What every step computes with its weights."""

    of: Callable[[Builder, Weights], Step]
    both_biases: bool = True
    """Whether the gates only add up the two products."""


Activation = Callable[[str], str]
"""From a formula to that of its activation."""


def sigmoid(x: str) -> str:
    return f"sigmoid({x})"


def tanh(x: str) -> str:
    return f"tanh({x})"


def relu(x: str) -> str:
    return f"max({x}, 0)"


def layers(
    build: Builder,
    cell: Cell,
    x: Value,
    first: Sequence[Value],
    weights: Sequence[Weights],
    *,
    both_ways: bool,
    batch_first: bool,
) -> tuple[Value, list[Value]]:
    """Layers on top of each other, as `torch.lstm` and its like compute them in inference.

    Args:
        x: (steps, batch, features), or (batch, steps, features) with `batch_first`; or without the batch.
        first: the states to begin with, of each kind (layers and directions, batch, features).
        weights: by layer, and for each the direction forward and, with `both_ways`, backward.
    Returns:
        The last layer's states at every step, both directions side by side, and the last states of each kind.
    Raises:
        NotCovered: there are too many steps, or none.
        ShapeError: the numbers of weights, states and dimensions do not go together.
    """
    if x.rank not in (2, 3) or any(each.rank != x.rank for each in first):
        raise ShapeError(f"[graph] a recurrent layer of a tensor of {x.rank} dimensions")
    alone = x.rank == 2
    if alone:
        x = shapes.unsqueeze(build, x, 0 if batch_first else 1)
        first = [shapes.unsqueeze(build, each, 1) for each in first]
    require_steps(x.shape[1 if batch_first else 0] * len(weights))
    ways = 2 if both_ways else 1
    ends: list[list[Value]] = [[] for _ in first]
    made = x
    for at in range(0, len(weights), ways):
        sides = []
        for way, own in enumerate(weights[at : at + ways]):
            begin = tuple(shapes.select(build, each, 0, at + way) for each in first)
            given = inputs_of(build, cell, made, own, batch_first and at == 0)
            side, last = direction(build, cell, given, begin, own, backward=way == 1)
            for kind, state in zip(ends, last, strict=True):
                kind.append(state)
            sides.append(side)
        made = sides[0] if ways == 1 else joining.cat(build, sides, 2)
    lasting = [joining.stack(build, each, 0) for each in ends]
    if alone:
        made = shapes.select(build, made, 1, 0)
        return made, [shapes.select(build, each, 1, 0) for each in lasting]
    return (shapes.permute(build, made, [1, 0, 2]) if batch_first else made), lasting


def require_steps(count: int) -> None:
    """
    Raises:
        NotCovered: there are too many steps, or none.
    """
    if not 0 < count <= MOST_STEPS:
        raise NotCovered(f"[graph] {count} recurrent steps; at most {MOST_STEPS} are written out")


def inputs_of(
    build: Builder, cell: Cell, x: Value, own: Weights, batch_first: bool = False
) -> Value:
    """The products of all steps' inputs, (steps, batch, gates)."""
    bias = own.bias(build) if cell.both_biases else own.input_bias
    if not batch_first:
        return products.linear(build, x, own.inputs, bias)
    tensors = Tensors(build, float_of(build, [x, own.inputs]))
    body = f"sum[k] {tensors.key('x', x)}[b,t,k] * {tensors.key('w', own.inputs)}[o,k]"
    if bias is not None:
        body += f" + {tensors.key('bias', bias)}[o]"
    return build.formula(f"y[t,b,o] = {body}", tensors.by_key, name="linear")


def direction(
    build: Builder,
    cell: Cell,
    given: Value,
    first: tuple[Value, ...],
    own: Weights,
    *,
    backward: bool,
) -> tuple[Value, tuple[Value, ...]]:
    """One layer in one direction.

    Args:
        given: what `inputs_of` makes.
        first: the states to begin with, (batch, features).
    Returns:
        The states at every step (steps, batch, features), and the last ones of each kind.
    """
    order = list(range(given.shape[0]))
    step, states, made = cell.of(build, own), first, []
    for t in order[::-1] if backward else order:
        states = step(shapes.select(build, given, 0, t), states)
        made.append(states[0])
    return joining.stack(build, made[::-1] if backward else made, 0), states


def _gates(build: Builder, h: Value, weight: Value, now: Value) -> Value:
    tensors = Tensors(build, float_of(build, [h, weight, now]))
    left, right = tensors.key("h", h), tensors.key("w", weight)
    body = f"sum[k] {left}[b,k] * {right}[o,k] + {tensors.key('now', now)}[b,o]"
    return build.formula(f"y[b,o] = {body}", tensors.by_key, name="gates")


def simple(f: Activation = tanh) -> Cell:
    """h = f(W x + U h + b), as `torch.nn.RNN`."""

    def of(build: Builder, own: Weights) -> Step:
        def step(now: Value, states: tuple[Value, ...]) -> tuple[Value, ...]:
            gates = _gates(build, states[0], own.state, now)
            tensors = Tensors(build, gates.dtype)
            read = f(f"{tensors.key('gates', gates)}[b,n]")
            return (build.formula(f"y[b,n] = {read}", tensors.by_key, name="state"),)

        return step

    return Cell(of)


def lstm(
    order: Sequence[int] = (0, 1, 2, 3),
    f: Activation = sigmoid,
    g: Activation = tanh,
    h: Activation = tanh,
    *,
    coupled: bool = False,
) -> Cell:
    """As `torch.nn.LSTM`; with a projection, the state is its product.

    Args:
        order: which blocks of rows are the gates input, forget, cell and output.
        coupled: what does not enter is not forgotten, whatever the forget gate is.
    """

    def of(build: Builder, own: Weights) -> Step:
        def step(now: Value, states: tuple[Value, ...]) -> tuple[Value, ...]:
            before, c = states
            n = c.shape[1]
            gates = _gates(build, before, own.state, now)
            tensors = Tensors(build, gates.dtype)
            read, old = tensors.key("gates", gates), tensors.key("c", c) + "[b,n]"
            holes = [tensors.key(f"p{i}", each) for i, each in enumerate(own.peepholes)]
            enter, forget, new, out = (f"{read}[b,n + {at * n}]" for at in order)
            if holes:
                enter, forget = (
                    f"{x} + {p}[n] * {old}" for x, p in ((enter, holes[0]), (forget, holes[2]))
                )
                out = f"{out} + {holes[1]}[n] * cell[b,n]"
            kept = "(1 - enter[b,n])" if coupled else f(forget)
            text = (
                f"enter[b,n] = {f(enter)}; cell[b,n] = {kept} * {old} + enter[b,n] * {g(new)}; "
                f"y[b,n] = {f(out)} * {h('cell[b,n]')}; return y, cell"
            )
            made, c = build.formulas(text, tensors.by_key, name="state", n=n)
            if own.projection is not None:
                made = products.linear(build, made, own.projection)
            return made, c

        return step

    return Cell(of)


def gru(
    order: Sequence[int] = (0, 1),
    f: Activation = sigmoid,
    g: Activation = tanh,
    *,
    reset_after: bool = True,
) -> Cell:
    """As `torch.nn.GRU`.

    Args:
        order: which of the first two blocks of rows are the gates reset and update; the third one is new.
        reset_after: the reset gate scales the product of the state; else the state itself.
    """

    def gates(x: str, part: str, n: int) -> tuple[str, str]:
        reset, update = (f(f"{x}[b,n + {at * n}] + {part}[b,n + {at * n}]") for at in order)
        return reset, update

    def after(build: Builder, own: Weights) -> Step:
        def step(now: Value, states: tuple[Value, ...]) -> tuple[Value, ...]:
            (h,) = states
            n = h.shape[1]
            part = products.linear(build, h, own.state, own.state_bias)
            tensors = Tensors(build, part.dtype)
            x, p, old = tensors.key("now", now), tensors.key("part", part), tensors.key("h", h)
            reset, update = gates(x, p, n)
            new = g(f"{x}[b,n + {2 * n}] + {reset} * {p}[b,n + {2 * n}]")
            text = f"update[b,n] = {update}; new[b,n] = {new}; "
            text += f"y[b,n] = (1 - update[b,n]) * new[b,n] + update[b,n] * {old}[b,n]"
            return (build.formula(text, tensors.by_key, name="state", n=n),)

        return step

    def ahead(build: Builder, own: Weights) -> Step:
        n = own.state.shape[1]
        rows = ((0, 2 * n), (2 * n, 3 * n))
        of_gates, of_new = (shapes.slice(build, own.state, 0, *each) for each in rows)
        bias, new_bias = (
            None if own.state_bias is None else shapes.slice(build, own.state_bias, 0, *each)
            for each in rows
        )

        def step(now: Value, states: tuple[Value, ...]) -> tuple[Value, ...]:
            (h,) = states
            part = products.linear(build, h, of_gates, bias)
            tensors = Tensors(build, part.dtype)
            x, p, old = tensors.key("now", now), tensors.key("part", part), tensors.key("h", h)
            reset, update = gates(x, p, n)
            text = f"y[b,n] = {reset} * {old}[b,n]; update[b,n] = {update}; return y, update"
            scaled, z = build.formulas(text, tensors.by_key, name="gates", n=n)
            part = products.linear(build, scaled, of_new, new_bias)
            tensors = Tensors(build, part.dtype)
            x, p, old = tensors.key("now", now), tensors.key("part", part), tensors.key("h", h)
            update = f"{tensors.key('update', z)}[b,n]"
            new = g(f"{x}[b,n + {2 * n}] + {p}[b,n]")
            text = f"y[b,n] = (1 - {update}) * {new} + {update} * {old}[b,n]"
            return (build.formula(text, tensors.by_key, name="state", n=n),)

        return step

    return Cell(after if reset_after else ahead, both_biases=False)
