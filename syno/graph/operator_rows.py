"""Operators in a model as nodes of its network: `torch.ops.syno.*` and their gradients become the programs they stand for.

A name says which function it is, and the shapes of a call which program of it: there is no table of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syno.graph.aten_rows import Arguments, Made, Row
from syno.graph.building import Builder, NotCovered, Value
from syno.operators.operator import Operator

_NAMESPACE = "syno."


def operator_row(target: str) -> Row | None:
    """The row of a function's overload, such as `syno.op_ac42317518b9dfe5.default`; None of what is none of syno's."""
    if not target.startswith(_NAMESPACE):
        return None
    from syno.torch.ops import function_named

    found = function_named(target.removeprefix(_NAMESPACE).removesuffix(".default"))
    if found is None:
        return None
    function, wanted = found

    def row(build: Builder, call: Arguments) -> Made:
        # Schemas number the arguments; what else there is, such as an owner of packed weights, is no tensor.
        given = [value for value in call.named.values() if isinstance(value, Value)]
        shapes = tuple(value.shape for value in given)
        if not all(all(shape) for shape in shapes):
            raise NotCovered("[graph] a tensor without elements")
        if wanted is None:
            names: Sequence[str] = function.inputs
            return _added(build, function.operator_for(shapes), names, given)[0]
        results: dict[int, Value] = {}
        for indices, operator in function.gradient_operators(wanted, shapes):
            names = (f"d{function.output}", *function.inputs)
            made = _added(build, operator, names, given)
            results.update(zip(indices, made, strict=True))
        for index in wanted:
            if index not in results:  # not read at these shapes
                like = given[1 + index]
                zeros = np.zeros(like.shape, np.float32)
                results[index] = build.literal(zeros, like.dtype, "zeros")
        return [results[index] for index in wanted]

    return row


def _added(
    build: Builder, operator: Operator, names: Sequence[str], given: Sequence[Value]
) -> tuple[Value, ...]:
    """A node of the operator, which may read fewer tensors than the function is given."""
    by_name = dict(zip(names, given, strict=True))
    return build.program(operator.program, [by_name[name] for name in operator.program.inputs])


__all__ = ["operator_row"]
