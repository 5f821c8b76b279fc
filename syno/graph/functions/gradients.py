"""Derivatives of what other functions of this folder make: their nodes in reverse, each by its program's derivative.

>>> from syno.graph.functions.windows import avg_pool
>>> build = Builder()
>>> g = build.input("g", (1, 2, 3, 3))
>>> def pool(build, x):
...     return avg_pool(build, x, [2, 2], [1, 1], [0, 0], [0, 0])
>>> gradients(build, pool, {"x": (1, 2, 4, 4)}, {}, g, ["x"])["x"].shape
(1, 2, 4, 4)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from syno import _core
from syno.errors import VerifyError
from syno.graph.building import Builder, Network, NotCovered, Value
from syno.graph.functions.elementwise import add

Shape = tuple[int, ...]


def gradients(
    build: Builder,
    forward: Callable[..., Value],
    shapes: Mapping[str, Shape],
    given: Mapping[str, Value],
    cotangent: Value,
    wanted: Sequence[str],
) -> dict[str, Value | None]:
    """The gradients of `forward(build, **inputs)`, whose result has the shape of `cotangent`.

    Args:
        shapes: of the inputs, by their names.
        given: the inputs' values. Where a derivative needs none, as that of a sum, they may be missing.
        wanted: with respect to which inputs.
    Returns:
        By name; None where the result does not depend on the input.
    Raises:
        NotCovered: a part of it is no program, or a derivative needs a value that is not given.
    """
    apart = Builder("forward", cotangent.dtype)
    inputs = {name: apart.input(name, shape, cotangent.dtype) for name, shape in shapes.items()}
    result = forward(apart, **inputs)
    assert result.shape == cotangent.shape, (result, cotangent)
    tape = _Tape(
        build, apart.network([result]), {inputs[name].name: v for name, v in given.items()}
    )
    tape.backward(result.name, cotangent, {inputs[name].name for name in wanted})
    return {name: tape.cotangents.get(inputs[name].name) for name in wanted}


class _Tape:
    """Nodes of a network that are played backwards, into another one."""

    def __init__(self, build: Builder, forward: Network, given: Mapping[str, Value]) -> None:
        self.build, self.forward = build, forward
        self.values = dict(given)
        self.cotangents: dict[str, Value] = {}
        self.made_by = {name: node for node in forward.nodes for name in node.outputs}

    def backward(self, result: str, cotangent: Value, wanted: set[str]) -> None:
        leads = set(wanted)  # what depends on an input whose gradient is wanted
        for node in self.forward.nodes:
            if leads & set(node.inputs):
                leads |= set(node.outputs)
        self.cotangents[result] = cotangent
        for node in reversed(self.forward.nodes):
            if not leads & set(node.outputs) or not self.cotangents.keys() & set(node.outputs):
                continue
            if node.program is None or len(node.outputs) > 1:
                raise NotCovered(f"[graph] the derivative of {node.function or 'several results'}")
            at = self.cotangents[node.outputs[0]]
            by_input = dict(zip(node.program.inputs, node.inputs, strict=True))
            for name, tensor in by_input.items():
                if tensor in leads:
                    self.add(tensor, self.derivative(node.program, name, by_input, at))

    def derivative(
        self, program: _core.Program, name: str, by_input: Mapping[str, str], at: Value
    ) -> Value:
        try:
            made = fastest_derivative(program, name)
        except VerifyError as why:
            raise NotCovered(f"[graph] {why}") from why
        operands = [self.value(by_input[each]) if each in by_input else at for each in made.inputs]
        return self.build.program(made, operands, name=f"gradient_{by_input[name]}")[0]

    def add(self, tensor: str, part: Value) -> None:
        known = self.cotangents.get(tensor)
        self.cotangents[tensor] = part if known is None else add(self.build, known, part)

    def value(self, tensor: str) -> Value:
        """A tensor of the forward network in the other one; its node is played again there."""
        if tensor in self.values:
            return self.values[tensor]
        array = self.forward.weights.get(tensor)
        node = self.made_by.get(tensor)
        if array is not None:
            self.values[tensor] = self.build.literal(array, name=tensor)
        elif node is None or node.program is None:
            raise NotCovered(f"[graph] a derivative that needs the values of {tensor}")
        else:
            operands = [self.value(each) for each in node.inputs]
            made = self.build.program(node.program, operands)
            self.values.update(zip(node.outputs, made, strict=True))
        return self.values[tensor]


def fastest_derivative(program: _core.Program, name: str) -> _core.Program:
    """The derivative with respect to an input, of the two ways to sum up the one predicted to be faster.

    Raises:
        VerifyError: the program is not differentiable there.
    """
    from syno.operators.operator import Operator
    from syno.torch.joint import gradients_of

    return gradients_of(Operator(program), [name]).program
