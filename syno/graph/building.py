"""Networks as graphs of tensor programs, while an importer builds them.

>>> import numpy as np
>>> build = Builder("two")
>>> x = build.input("x", (2, 3))
>>> w = build.weight("w", np.ones((4, 3), np.float32))
>>> y = build.formula("y[n,o] = sum[i] x[n,i] * w[o,i]", {"x": x, "w": w})
>>> build.formula("y[n,o] = max(x[n,o], 0)", {"x": y}).shape
(2, 4)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from syno import _core
from syno.errors import ShapeError, SynoError

Array = np.ndarray[Any, Any]

#: Element types of tensors of a graph.
DTYPES: dict[str, np.dtype[Any]] = {
    **{
        name: np.dtype(name)
        for name in ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
    },
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip

#: Those that programs compute in.
FLOATS = ("float32", "float64", "bfloat16")


class NotCovered(SynoError):
    """No program computes this: the sentence says what it is. The host's own function may."""


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of a graph: an input, a weight, or what a node makes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    boolean: bool = False
    """Whether numbers 0 and 1 of `dtype` stand for truth values."""

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Node:
    """A program, or the host's function `function`, of tensors."""

    name: str
    program: _core.Program | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: str = ""
    attributes: str = "{}"
    host: Callable[..., Any] | None = None
    """Of a call: from torch tensors to torch tensors (one, or a sequence of them in the order of `outputs`)."""


@dataclass
class Network:
    """What an importer gives: nodes in order, and the tensors that the model brings along."""

    name: str
    inputs: list[Value]
    outputs: list[Value]
    nodes: list[Node]
    values: dict[str, Value]
    weights: dict[str, Array]
    """The model's tensors by name, as it holds them (shared memory where that is possible)."""
    sources: dict[str, str] = field(default_factory=dict)
    """Names in the model (`layer1.0.conv1.weight`) of those that are its parameters or buffers."""
    notes: list[str] = field(default_factory=list)

    def graph(self) -> _core.Graph:
        """The same as the engine's graph.

        Raises:
            VerifyError: a node does not fit its tensors.
        """
        graph = _core.Graph(self.name)
        for value in self.inputs:
            graph.add_input(value.name, list(value.shape), value.dtype)
        read = {name for node in self.nodes for name in node.inputs}
        read |= {value.name for value in self.outputs}
        for name in self.weights:
            if name in read:
                value = self.values[name]
                graph.add_weight(name, list(value.shape), value.dtype)
        for node in self.nodes:
            made = [self.values[name] for name in node.outputs]
            if node.program is not None:
                graph.add_program(
                    node.name, node.program, list(node.inputs), list(node.outputs), made[0].dtype
                )
            else:
                graph.add_call(
                    node.name,
                    node.function,
                    node.attributes,
                    list(node.inputs),
                    [(value.name, list(value.shape), value.dtype) for value in made],
                )
        graph.set_outputs([value.name for value in self.outputs])
        graph.verify()
        return graph


class Builder:
    """Adds tensors and nodes in the order in which they are computed; names that are taken get a number."""

    def __init__(self, name: str = "network", dtype: str = "float32") -> None:
        self.name = name
        self.dtype = dtype
        """What literals become that stand beside no tensor of another float type."""
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._values: dict[str, Value] = {}
        self._weights: dict[str, Array] = {}
        self._sources: dict[str, str] = {}
        self._literals: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._programs: dict[tuple[Any, ...], _core.Program] = {}
        self._node_names: set[str] = set()
        self.notes: list[str] = []

    # Tensors

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        value = self._new(name, shape, dtype)
        self._inputs.append(value)
        return value

    def weight(self, name: str, array: Array, source: str | None = None) -> Value:
        """A tensor that the model brings along.

        Args:
            array: its values, kept as they are.
            source: its name in the model, where it is a parameter or a buffer, which may change later.
        """
        value = self._new(name, array.shape, _name_of(array.dtype))
        self._weights[value.name] = array
        if source is not None:
            self._sources[value.name] = source
        return value

    def literal(self, values: Any, dtype: str = "", name: str = "literal") -> Value:
        """A constant tensor; the same values twice are one."""
        array = np.asarray(values, DTYPES[dtype or self.dtype])
        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._literals:
            self._literals[key] = self.weight(name, array)
        return self._literals[key]

    def array(self, value: Value) -> Array | None:
        """The values of a weight or literal; None of what is computed or given."""
        return self._weights.get(value.name)

    def fixed(self, value: Value) -> Array | None:
        """The values of a literal; None of what is the model's own, and may change, or is computed or given."""
        return None if value.name in self._sources else self._weights.get(value.name)

    # Nodes

    def formula(
        self,
        text: str,
        tensors: Mapping[str, Value],
        *,
        name: str = "",
        dtype: str = "",
        boolean: bool = False,
        **sizes: int,
    ) -> Value:
        """A node of one output, by its formula (`Operator.parse` says how one is written).

        Args:
            text: its reads are of the keys of `tensors`.
            sizes: extents that the tensors' shapes do not imply.
            dtype: of the output; default that of the inputs.
        Raises:
            NotCovered: the tensors have several element types, or one that programs do not compute in; a
                tensor is empty.
        """
        return self.formulas(text, tensors, name=name, dtype=dtype, boolean=boolean, **sizes)[0]

    def formulas(
        self,
        text: str,
        tensors: Mapping[str, Value],
        *,
        name: str = "",
        dtype: str = "",
        boolean: bool = False,
        **sizes: int,
    ) -> tuple[Value, ...]:
        """As `formula`, of a text that ends with `return y, z`: a node with these outputs."""
        shapes = {key: value.shape for key, value in tensors.items()}
        if any(extent == 0 for shape in shapes.values() for extent in shape) or 0 in sizes.values():
            raise NotCovered("[graph] a tensor without elements")
        key = (text, tuple(shapes.items()), tuple(sorted(sizes.items())))
        program = self._programs.get(key)
        if program is None:
            try:
                program = _core.Program.parse(
                    text,
                    sizes=sizes,
                    shapes={k: list(shape) for k, shape in shapes.items()},
                    data=list(tensors),
                )
            except ShapeError as error:
                raise ShapeError(f"[graph] {text} of {shapes}: {error}") from error
            self._programs[key] = program
        order = [tensors[key] for key in program.inputs]
        return self.program(program, order, name=name, dtype=dtype, boolean=boolean)

    def program(
        self,
        program: _core.Program,
        inputs: Sequence[Value],
        *,
        name: str = "",
        dtype: str = "",
        boolean: bool = False,
    ) -> tuple[Value, ...]:
        """A node; its outputs in the program's order.

        Args:
            inputs: in the order of `program.inputs`.
        Raises:
            NotCovered: as `formula`.
            ShapeError: an input has another shape than the program's.
        """
        for each, value in zip(program.inputs, inputs, strict=True):
            if tuple(program.shape(each)) != value.shape:
                raise ShapeError(
                    f"[graph] {value.name} has shape {list(value.shape)}; {program.short_text()} reads {each} of "
                    f"{list(program.shape(each))}"
                )
        given = [self.as_float(value) for value in inputs]
        types = sorted({value.dtype for value in given})
        if len(types) > 1:
            raise NotCovered(f"[graph] inputs of several element types: {', '.join(types)}")
        kind = dtype or (types[0] if types else self.dtype)
        if kind not in FLOATS or (types and types[0] not in FLOATS):
            raise NotCovered(f"[graph] numbers of type {(types or [kind])[0]}")
        made = tuple(
            self._new(name or each, program.shape(each), kind, boolean) for each in program.outputs
        )
        self._nodes.append(
            Node(
                self._node_name(made[0].name),
                program,
                tuple(value.name for value in given),
                tuple(value.name for value in made),
            )
        )
        return made

    def call(
        self,
        function: str,
        inputs: Sequence[Value],
        outputs: Sequence[tuple[Sequence[int], str]],
        *,
        attributes: str = "{}",
        host: Callable[..., Any] | None = None,
        name: str = "",
    ) -> tuple[Value, ...]:
        """A node that a function of the engine (`gather`, `scatter`, `cast`, `argmax`, `sample`, `scan`, `copy`) or of the host computes.

        Args:
            outputs: shapes and element types.
            host: of a function of the host: from torch tensors to torch tensors.
        """
        given = [v if function == "cast" else self.as_itself(v) for v in inputs]
        made = tuple(
            self._new(name or function.split(".")[-1] or "call", shape, dtype)
            for shape, dtype in outputs
        )
        self._nodes.append(
            Node(
                self._node_name(made[0].name),
                None,
                tuple(value.name for value in given),
                tuple(value.name for value in made),
                function,
                attributes,
                host,
            )
        )
        return made

    def cast(self, value: Value, dtype: str) -> Value:
        """The same numbers in another element type, by the engine's own function."""
        if value.dtype == dtype and not (value.boolean and dtype != "bool"):
            return value
        array = self._weights.get(value.name)
        if array is not None and value.name not in self._sources:
            return self.literal(array, dtype, value.name)
        (made,) = self.call(
            "cast",
            [value],
            [(value.shape, dtype)],
            attributes=json.dumps({"to": dtype}),
            name=value.name,
        )
        return made

    def as_float(self, value: Value) -> Value:
        """What programs can read: truth values as numbers, whole numbers where the graph knows them to be exact."""
        if value.dtype in FLOATS:
            return value
        array = self._weights.get(value.name)
        if value.dtype == "bool":
            return self.cast(value, self.dtype)
        if array is not None and array.size and np.abs(array.astype(np.float64)).max() <= 2**24:
            return self.cast(value, self.dtype)
        return value

    def as_itself(self, value: Value) -> Value:
        """What a function of the host takes: truth values of programs as such."""
        return self.cast(value, "bool") if value.boolean else value

    def network(self, outputs: Sequence[Value]) -> Network:
        """What was built, with these outputs."""
        given = [self.as_itself(value) for value in outputs]
        return Network(
            self.name,
            list(self._inputs),
            given,
            list(self._nodes),
            dict(self._values),
            dict(self._weights),
            dict(self._sources),
            list(self.notes),
        )

    # Attempts

    def mark(self) -> tuple[int, ...]:
        """Where an attempt begins that may come to nothing."""
        return tuple(map(len, (self._nodes, self._values, self._weights, self._literals)))

    def back_to(self, mark: tuple[int, ...]) -> None:
        """Forgets the nodes and tensors since `mark`."""
        nodes, *others = mark
        self._node_names -= {node.name for node in self._nodes[nodes:]}
        del self._nodes[nodes:]
        tables: tuple[dict[Any, Any], ...] = (self._values, self._weights, self._literals)
        for kept, table in zip(others, tables, strict=True):
            while len(table) > kept:
                table.popitem()

    # Names

    def _new(self, name: str, shape: Sequence[int], dtype: str, boolean: bool = False) -> Value:
        fresh = self._fresh(name, self._values)
        value = Value(fresh, tuple(int(extent) for extent in shape), dtype, boolean)
        self._values[fresh] = value
        return value

    def _node_name(self, wanted: str) -> str:
        name = self._fresh(wanted, self._node_names)
        self._node_names.add(name)
        return name

    @staticmethod
    def _fresh(wanted: str, taken: Any) -> str:
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        return name


def _name_of(dtype: np.dtype[Any]) -> str:
    for name, known in DTYPES.items():
        if known == dtype:
            return name
    raise NotCovered(f"[graph] no tensor has elements of type {dtype}")
