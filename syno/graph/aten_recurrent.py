"""Rows of ATen's recurrent layers."""

from __future__ import annotations

from syno.errors import ShapeError
from syno.graph.aten_rows import Arguments, Made, Row
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions import recurrent
from syno.graph.functions.recurrent import Cell, Weights


def _weights(a: Arguments, states: list[Value]) -> list[Weights]:
    """By layer and direction."""
    given: list[Value] = list(a.params)
    projected = len(states) == 2 and states[0].shape[-1] != states[1].shape[-1]
    each = (4 if a.has_biases else 2) + projected
    count = a.num_layers * (2 if a.bidirectional else 1)
    if len(given) != each * count:
        raise ShapeError(f"[graph] {len(given)} weights of {count} recurrent layers and directions")
    made = []
    for i in range(0, len(given), each):
        own = given[i : i + each]
        one, other = own[2:4] if a.has_biases else (None, None)
        made.append(Weights(own[0], own[1], one, other, own[-1] if projected else None))
    return made


def _row(cell: Cell) -> Row:
    def row(build: Builder, a: Arguments) -> Made:
        if a.train and a.dropout:
            raise NotCovered("[graph] dropout between recurrent layers")
        states = [a.hx] if isinstance(a.hx, Value) else list(a.hx)
        made, last = recurrent.layers(
            build, cell, a.named["input"], states, _weights(a, states),
            both_ways=a.bidirectional, batch_first=a.batch_first,
        )  # fmt: skip
        return (made, *last)

    return row


RECURRENT: dict[str, Row] = {
    "lstm.input": _row(recurrent.lstm()),
    "gru.input": _row(recurrent.gru()),
    "rnn_tanh.input": _row(recurrent.simple(recurrent.tanh)),
    "rnn_relu.input": _row(recurrent.simple(recurrent.relu)),
}
