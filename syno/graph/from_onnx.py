"""ONNX models as networks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import inliner

from syno.errors import ArgumentError, FormatError, ShapeError, UnsupportedOp, shown, unknown_name
from syno.graph.building import Array, Builder, Network, NotCovered, Value
from syno.graph.onnx_file import (
    STANDARD,
    bad,
    check_dims,
    modern,
    read_model,
    shown_text,
    type_name,
)
from syno.graph.onnx_import import Importer, Missing, Scope
from syno.graph.onnx_nodes import names_used
from syno.graph.open_onnx import OpenOnnxModel
from syno.support.notebook import Printed


@dataclass(frozen=True)
class OnnxModel(Printed):
    """An ONNX model as a network.

    Attributes:
        network: its nodes.
        inputs, outputs: the network's tensors by the names that the model gives them.
    """

    network: Network
    inputs: dict[str, Value]
    outputs: dict[str, Value]

    def compile(self, example: Sequence[Any] | None = None, **settings: Any) -> Any:
        """The network compiled: a callable of its inputs in order.

        Args:
            example: values of the inputs, by which the result is checked; default random ones.
            settings: as `syno.compile` takes them.
        """
        from syno.graph.compile import Compiling, compile_network

        if settings.pop("dynamic", None) is not None:
            raise ArgumentError(
                "[dynamic] the model has no open dimensions",
                fix="export it with names for them (dynamic_axes, dynamic_shapes), and leave out shapes=",
            )
        settings.pop("background", None)
        return compile_network(self.network, example, settings=Compiling(**settings))[0]

    def __repr__(self) -> str:
        def listed(values: Mapping[str, Value]) -> str:
            return ", ".join(f"{name} {v.dtype}{list(v.shape)}" for name, v in values.items())

        return (
            f"OnnxModel({self.network.name}: {listed(self.inputs)} -> {listed(self.outputs)}; "
            f"{len(self.network.nodes)} nodes)"
        )


def load_onnx(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Array] | None = None,
) -> OnnxModel | OpenOnnxModel:
    """Reads an ONNX model (operator sets 13 and later; older ones are converted).

    Whatever does not depend on the inputs, shapes among it, is computed now; the rest becomes nodes.

    Args:
        source: a file's path, its content, or a model in memory.
        shapes: of inputs, where the model leaves dimensions open.
        constants: values of inputs that the model shall have for good, such as a shape; they are no inputs any more.
    Returns:
        An `OnnxModel`; an `OpenOnnxModel` where inputs have open dimensions with names, for `compile(dynamic=...)`.
    Raises:
        FormatError: the file contradicts itself or the standard.
        ShapeError: open dimensions that have no names without `shapes`, shapes that the model does not allow, operators of tensors that
            do not fit.
        UnsupportedOp: operators that syno does not compute; `operators` has all of them.
        UnknownName: `shapes` or `constants` names no input.
    Example:
        >>> import onnx.parser
        >>> text = '<ir_version: 9, opset_import: ["" : 18]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }'
        >>> load_onnx(onnx.parser.parse_model(text)).outputs["y"].shape
        (2, 3)
    """
    model, folder = read_model(source)
    found = _open(model, shapes or {}, constants or {})
    if found is None:
        return build_onnx(model, folder, shapes or {}, constants or {})

    def at(wanted: Mapping[str, Sequence[int]]) -> OnnxModel:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return build_onnx(copy, folder, wanted, constants or {})

    operators = frozenset(node.op_type for node in model.graph.node)
    return OpenOnnxModel(model.graph.name or "network", found, operators, at)


def _open(
    model: Any, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Array]
) -> dict[str, tuple[int | str, ...]] | None:
    """Shapes of all inputs, where some dimensions are open and all of those have names."""
    initial = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, tuple[int | str, ...]] = {}
    for each in model.graph.input:
        if each.name in initial or each.name in constants:
            continue
        extents = _extents(each) if each.type.HasField("tensor_type") else None
        if each.name in shapes:
            found[each.name] = tuple(int(n) for n in shapes[each.name])
        elif extents is None or "?" in extents:
            return None
        else:
            found[each.name] = tuple(extents)
    known = {each.name for each in model.graph.input}
    names = [e for shape in found.values() for e in shape if isinstance(e, str)]
    return found if names and known.issuperset([*shapes, *constants]) else None


def build_onnx(
    model: Any,
    folder: Path | None,
    shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Array],
) -> OnnxModel:
    """The same of a model that `read_model` has checked."""
    model = modern(model)
    if len(model.functions):
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:  # the inliner's C++ raises whatever it finds
            raise bad(f"the model's own functions: {shown_text(error)}") from error
    graph = model.graph
    opsets = {("" if o.domain in STANDARD else o.domain): o.version for o in model.opset_import}
    initial = {tensor.name for tensor in graph.initializer}
    given = [each for each in graph.input if each.name not in initial]
    for name in [*shapes, *constants]:
        if name not in {each.name for each in graph.input}:
            raise unknown_name("input", name, [each.name for each in graph.input])
    build = Builder(graph.name or "network")
    importer = Importer(build, opsets, folder)
    scope: Scope = {}
    inputs: dict[str, Value] = {}
    for each in given:
        importer.sources[each.name] = frozenset([each.name])
        if each.name in constants:
            scope[each.name] = _fixed(each, np.asarray(constants[each.name]))
        else:
            value = _input(build, importer, each, shapes.get(each.name))
            scope[each.name] = value if value is not None else Missing(frozenset())
            if value is not None:
                inputs[each.name] = value
    for each in graph.value_info:
        extents = _extents(each)
        if extents is not None:
            importer.said[each.name] = [e if isinstance(e, int) else None for e in extents]
    importer.initialise(graph, scope)
    importer.run(graph.node, scope, names_used(graph))
    results = {output.name: scope.get(output.name) for output in graph.output}
    for name, result in results.items():
        if result is None:
            raise bad(f"output {shown(name)} is not computed by any node")
    if importer.failures or any(isinstance(each, Missing) for each in results.values()):
        raise unsupported(importer)
    values: dict[str, Value] = {}
    try:
        for name, result in results.items():
            assert result is not None and not isinstance(result, Missing)
            value = result if isinstance(result, Value) else importer.value_of(name, result)
            value = build.as_itself(value)
            if value.name in inputs or build.array(value) is not None or value in values.values():
                (value,) = build.call("copy", [value], [(value.shape, value.dtype)], name=name)
            values[name] = value
    except NotCovered as error:
        importer.failures["Output"] = str(error)
        raise unsupported(importer) from error
    for output in graph.output:
        _check_output(output, values[output.name])
    network, renamed = _renamed(build.network(list(values.values())), values)
    return OnnxModel(network, inputs, renamed)


def unsupported(importer: Importer) -> UnsupportedOp:
    """The error that lists what is not covered."""
    failures = importer.failures or {"?": "a tensor that nothing computes"}
    lines = "".join(f"\n  {kind}: {reason}" for kind, reason in failures.items())
    error = UnsupportedOp(
        f"{len(failures)} operator{'s' if len(failures) > 1 else ''} of this model cannot be computed:{lines}",
        fix="give the inputs named in `constants=` their values, or run this model with another runtime"
        if importer.needed
        else "",
        operators=failures,
    )
    error.needed = tuple(sorted(importer.needed))
    return error


def _extents(each: Any) -> list[int | str] | None:
    """An input's or output's dimensions, open ones by their names; None where not even their number is known."""
    kind = each.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]


def _input(
    build: Builder, importer: Importer, each: Any, wanted: Sequence[int] | None
) -> Value | None:
    if not each.type.HasField("tensor_type"):
        importer.failures["Input"] = f"{each.name} is no tensor"
        return None
    dtype = type_name(each.type.tensor_type.elem_type)
    if dtype is None:
        importer.failures["Input"] = f"the element type of {each.name} is not read"
        return None
    extents = _extents(each)
    if wanted is not None:
        shape = [int(n) for n in wanted]
        fits = extents is None or (
            len(extents) == len(shape)
            and all(isinstance(a, str) or a == b for a, b in zip(extents, shape, strict=True))
        )
        if not fits or min(shape, default=0) < 0:
            raise ShapeError(
                f"[onnx] input {each.name} has shape {_told(extents)}; shapes gives {shown(shape)}"
            )
    elif extents is None:
        raise ShapeError(
            f"[onnx] input {each.name} has no shape in the model: give shapes={{{each.name!r}: [...]}}"
        )
    else:
        open_ones = [str(e) for e in extents if isinstance(e, str)]
        if open_ones:
            raise ShapeError(
                f"[onnx] input {each.name} has shape {_told(extents)}: give its open dimensions "
                f"{', '.join(open_ones)} by shapes={{{each.name!r}: [...]}}"
            )
        shape = [e for e in extents if isinstance(e, int)]
    check_dims(each.name, shape)
    return build.input(each.name, shape, dtype)


def _told(extents: Sequence[int | str] | None) -> str:
    return "any" if extents is None else "[" + ", ".join(str(e) for e in extents) + "]"


def _fixed(each: Any, array: Array) -> Array:
    extents = _extents(each)
    if extents is not None and (
        len(extents) != array.ndim
        or any(isinstance(a, int) and a != b for a, b in zip(extents, array.shape, strict=True))
    ):
        raise ShapeError(
            f"[onnx] input {each.name} has shape {_told(extents)}; constants gives {list(array.shape)}"
        )
    return array


def _check_output(output: Any, value: Value) -> None:
    """Raises: FormatError: the model says another shape or type."""
    if not output.type.HasField("tensor_type"):
        return
    extents = _extents(output)
    if extents is not None and (
        len(extents) != value.rank
        or any(isinstance(a, int) and a != b for a, b in zip(extents, value.shape, strict=True))
    ):
        raise FormatError(
            f"[onnx] output {shown(output.name)} has shape {list(value.shape)}; the model says {_told(extents)}"
        )
    said = type_name(output.type.tensor_type.elem_type)
    if said is not None and said != value.dtype:
        raise FormatError(
            f"[onnx] output {shown(output.name)} has elements of type {value.dtype}; the model says {said}"
        )


def _renamed(network: Network, outputs: Mapping[str, Value]) -> tuple[Network, dict[str, Value]]:
    """The network with its outputs under the model's names; others that have these give way."""
    new = {value.name: name for name, value in outputs.items()}
    taken = set(network.values) | set(new.values())
    given = {value.name for value in network.inputs}
    for name in outputs:
        if name in network.values and name not in new and name not in given:
            number = 2
            while f"{name}_{number}" in taken:
                number += 1
            new[name] = f"{name}_{number}"
            taken.add(new[name])
    for old, name in list(new.items()):
        if name in given:  # an input handed through keeps its name; what it becomes has another
            del new[old]

    def of(name: str) -> str:
        return new.get(name, name)

    values = {of(name): replace(v, name=of(name)) for name, v in network.values.items()}
    nodes = [
        replace(
            node,
            inputs=tuple(of(name) for name in node.inputs),
            outputs=tuple(of(name) for name in node.outputs),
        )
        for node in network.nodes
    ]
    renamed = replace(
        network,
        outputs=[values[of(v.name)] for v in network.outputs],
        nodes=nodes,
        values=values,
        weights={of(name): array for name, array in network.weights.items()},
        sources={of(name): source for name, source in network.sources.items()},
    )
    return renamed, {name: values[of(v.name)] for name, v in outputs.items()}
