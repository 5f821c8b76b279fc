"""ONNX graphs node by node: known values are computed at once, the rest becomes nodes by the rows of operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from syno.errors import FormatError, ParseError, ShapeError, SynoError, shown
from syno.graph.building import Array, Builder, NotCovered, Value
from syno.graph.functions import shapes
from syno.graph.functions.copying import dimension
from syno.graph.onnx_file import STANDARD, array_of, bad, shown_text, type_name
from syno.graph.onnx_folding import folded
from syno.graph.onnx_nodes import attributes_of, bound, live, names_used
from syno.graph.onnx_op import NeedsConstant, Op, Row, Tensor, check_attributes, floats
from syno.graph.onnx_rows import HOST_ROWS, ROWS

#: Results that are drawn, or that need more than NumPy: never computed while importing.
_NEVER = {
    "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout",
    "ImageDecoder", "If", "Loop", "Scan", "SequenceMap", "Optional", "Gradient",
}  # fmt: skip
#: Operators that give elements of types of their own.
_OF_ANY_TYPE = {"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "Identity"}
_MOST_STEPS = 1 << 10
_MOST_DEPTH = 16


class Missing:
    """What a tensor is that could not be built: the inputs that it would be made of are remembered."""

    def __init__(self, sources: frozenset[str]) -> None:
        self.sources = sources


Scope = dict[str, "Tensor | Missing"]


class Importer:
    """Builds a network of a checked model; failures are gathered, so that all are told at once."""

    def __init__(self, build: Builder, opsets: dict[str, int], folder: Path | None) -> None:
        self.build, self.opsets, self.folder = build, opsets, folder
        self.failures: dict[str, str] = {}
        """Reasons by operator."""
        self.needed: set[str] = set()
        """Inputs of the model whose values rows must know."""
        self.sources: dict[str, frozenset[str]] = {}
        """Inputs of the model that tensors are made of, by name."""
        self.said: dict[str, list[int | None]] = {}
        """Shapes that the model gives tensors."""
        self._initial: dict[str, Array] = {}
        self._made: dict[int, tuple[Array, Value]] = {}

    # Graphs

    def initialise(self, graph: Any, scope: Scope) -> None:
        """The initialisers of a graph."""
        if len(graph.sparse_initializer):
            self.failures.setdefault("SparseTensor", "sparse initialisers")
            for sparse in graph.sparse_initializer:
                scope[sparse.values.name] = Missing(frozenset())
        for tensor in graph.initializer:
            if tensor.data_type == onnx.TensorProto.STRING:
                scope[tensor.name] = Missing(frozenset())
                self.failures.setdefault("String", "tensors of text")
                continue
            array = array_of(tensor, self.folder)
            self._initial.setdefault(tensor.name, array)
            scope[tensor.name] = array

    def run(self, nodes: Iterable[Any], scope: Scope, used: set[str], depth: int = 0) -> None:
        """Adds the results of nodes to a scope.

        Args:
            used: names that the graph gives or that its nodes read.
        """
        if depth > _MOST_DEPTH:
            raise bad(f"functions and graphs are nested more than {_MOST_DEPTH} deep")
        for node in nodes:
            self._node(node, scope, used, depth)

    def subgraph(self, graph: Any, scope: Scope, given: dict[str, Tensor], depth: int) -> list[Any]:
        """The outputs of a graph inside another, whose names it sees."""
        inner: Scope = {**scope, **given}
        self.initialise(graph, inner)
        self.run(graph.node, inner, names_used(graph), depth + 1)
        return [inner.get(output.name, Missing(frozenset())) for output in graph.output]

    # Nodes

    def _node(self, node: Any, scope: Scope, used: set[str], depth: int) -> None:
        domain = "" if node.domain in STANDARD else node.domain
        told = f"{domain}::{node.op_type}" if domain else node.op_type
        inputs: list[Tensor | Missing | None] = []
        for name in node.input:
            if name and name not in scope:
                raise bad(
                    f"node {shown(node.name)} ({told}) reads {shown(name)}, which nothing gives"
                )
            inputs.append(scope[name] if name else None)
        sources = frozenset().union(
            *(self.sources.get(name, frozenset()) for name in node.input if name)
        )
        outputs = list(node.output)
        for name in outputs:
            if name:
                self.sources[name] = sources
        known_op = (
            (domain, node.op_type) in ROWS
            or node.op_type in ("If", "Loop", "Scan", "Constant")
            or (domain, node.op_type) in HOST_ROWS
        )
        if any(isinstance(each, Missing) for each in inputs):
            if not known_op and self._body(node, domain, [], check=True) is None:
                self.failures.setdefault(told, "there is no row for it")
            self._fail(outputs, scope, sources)
            return
        try:
            results = self._results(node, domain, inputs, scope, used, depth)  # type: ignore[arg-type]
        except NotCovered as error:
            if isinstance(error, NeedsConstant):
                self.needed |= self.sources.get(error.tensor, sources)
            self.failures.setdefault(told, _reason(error))
            self._fail(outputs, scope, sources)
            return
        except FormatError:
            raise
        except (ShapeError, ParseError) as error:
            raise type(error)(
                f"[onnx] node {shown(node.name)} ({told}): {_reason(error)}"
            ) from error
        except SynoError as error:
            raise bad(f"node {shown(node.name)} ({told}): {_reason(error)}") from error
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # Attributes of a stranger's file may be anything; what no row looks for ends here.
            raise bad(
                f"node {shown(node.name)} ({told}): its attributes and tensors do not fit together "
                f"({type(error).__name__}: {shown_text(error)})"
            ) from error
        for name, result in zip(outputs, results, strict=False):
            if not name:
                continue
            if result is None:
                result = Missing(sources)
            scope[name] = result
            self._check(name, result, told)
        if len(results) < len(outputs):
            if any(name in used for name in outputs[len(results) :]):
                self.failures.setdefault(told, f"only {len(results)} of its outputs are computed")
            self._fail(outputs[len(results) :], scope, sources)

    def _check(self, name: str, result: Tensor | Missing, told: str) -> None:
        """Raises: FormatError: the model says another shape of a tensor."""
        said = self.said.get(name)
        if said is None or isinstance(result, Missing):
            return
        shape = tuple(result.shape)
        if len(said) != len(shape) or any(
            a is not None and a != b for a, b in zip(said, shape, strict=True)
        ):
            wanted = ["?" if a is None else a for a in said]
            raise bad(
                f"{shown(name)} ({told}) has shape {list(shape)}; the model says [{', '.join(map(str, wanted))}]"
            )

    @staticmethod
    def _fail(outputs: Sequence[str], scope: Scope, sources: frozenset[str]) -> None:
        for name in outputs:
            if name:
                scope[name] = Missing(sources)

    def _results(
        self,
        node: Any,
        domain: str,
        inputs: Sequence[Tensor | None],
        scope: Scope,
        used: set[str],
        depth: int,
    ) -> Sequence[Any]:
        if not domain and node.op_type == "Constant":
            return [self._constant(node)]
        if not domain and node.op_type == "If":
            return self._if(node, inputs, scope, depth)
        if not domain and node.op_type == "Loop":
            return self._loop(node, inputs, scope, depth)
        if not domain and node.op_type == "Scan":
            return self._scan(node, inputs, scope, depth)
        arrays = [self.build.fixed(each) if isinstance(each, Value) else each for each in inputs]
        every = all(
            array is not None
            for array, each in zip(arrays, inputs, strict=True)
            if each is not None
        )
        if every and not domain and node.op_type not in _NEVER:
            known = folded(node, arrays, self.opsets, has_row=(domain, node.op_type) in ROWS)
            if known is not None:
                return known
        written = ROWS.get((domain, node.op_type))
        refused: NotCovered | None = None
        half = node.op_type not in _OF_ANY_TYPE and any(
            each is not None and str(each.dtype) == "float16" for each in inputs
        )
        hosted = HOST_ROWS.get((domain, node.op_type))
        if written is not None or hosted is not None:
            op = Op(
                self.build,
                node.op_type,
                self.opsets.get(domain, 1),
                attributes_of(node),
                list(node.input),
                [self._widened(each) for each in inputs] if half else inputs,
                len(node.output),
                [bool(name) and name in used for name in node.output],
                self.value_of,
            )

            def made_by(row: Row) -> list[Any]:
                made = row(op)
                check_attributes(op)
                results: list[Any] = list(made) if isinstance(made, (list, tuple)) else [made]
                return [self._halved(each) for each in results] if half else results

            mark = self.build.mark()
            for row in (written, hosted):
                try:
                    if row is not None:
                        return made_by(row)
                except NeedsConstant:
                    raise
                except NotCovered as error:
                    self._back_to(mark)
                    refused = refused or error
        body = self._body(node, domain, inputs)
        if body is None:
            raise refused or NotCovered("[onnx] there is no row for it")
        return self._of_body(node, body, inputs, used, depth, refused)

    # Programs do not compute in half precision: each operator does in single precision and rounds its result.

    def _widened(self, each: Tensor | None) -> Tensor | None:
        if each is None or str(each.dtype) != "float16":
            return each
        if isinstance(each, Value):
            return self.build.cast(each, "float32")
        return each.astype(np.float32)

    def _halved(self, each: Tensor | None) -> Tensor | None:
        if isinstance(each, Value) and each.dtype == "float32" and not each.boolean:
            return self.build.cast(each, "float16")
        return each

    def value_of(self, name: str, array: Array) -> Value:
        """Known values as a tensor of the graph."""
        made = self._made.get(id(array))
        if made is not None:
            return made[1]
        if array.dtype == object or array.dtype.kind in "SUc":
            raise NotCovered(f"[onnx] tensors of type {array.dtype}")
        label = name or "constant"
        if self._initial.get(name) is array and floats(array) and array.size > 1:
            value = self.build.weight(label, array, source=name)
        elif array.size > 1 << 16:
            value = self.build.weight(label, array)
        else:
            value = self.build.literal(array, _dtype(array), label)
        self._made[id(array)] = (array, value)
        return value

    def _back_to(self, mark: tuple[int, ...]) -> None:
        """Forgets what an attempt built."""
        self.build.back_to(mark)
        self._made = {
            key: (array, value)
            for key, (array, value) in self._made.items()
            if self.build.array(value) is not None
        }

    # Known values

    def _constant(self, node: Any) -> Array:
        (attribute,) = node.attribute if len(node.attribute) == 1 else (None,)
        if attribute is None:
            raise bad(f"constant {shown(node.name)} has {len(node.attribute)} attributes, not one")
        name = attribute.name
        if name == "value":
            if attribute.t.data_type == onnx.TensorProto.STRING:
                raise NotCovered("[onnx] constants of text")
            return array_of(attribute.t, self.folder)
        types = {
            "value_float": np.float32,
            "value_floats": np.float32,
            "value_int": np.int64,
            "value_ints": np.int64,
        }
        if name not in types:
            raise NotCovered(f"[onnx] constants by {shown(name)}")
        return np.array(onnx.helper.get_attribute_value(attribute), types[name])

    # Functions of the standard

    def _body(
        self, node: Any, domain: str, inputs: Sequence[Tensor | None], check: bool = False
    ) -> Any:
        """The nodes that the standard defines an operator by; None where it defines it otherwise."""
        try:
            schema: Any = onnx.defs.get_schema(node.op_type, self.opsets.get(domain, 1), domain)
        except onnx.defs.SchemaError:
            return None
        if schema.has_function:
            return schema.function_body
        if not schema.has_context_dependent_function:
            return None
        if check:
            return schema
        types = []
        for each in inputs:
            kind = onnx.TypeProto()
            if each is not None:
                dtype = each.dtype if isinstance(each, Value) else str(each.dtype)
                if isinstance(each, Value) and each.boolean:
                    dtype = "bool"
                element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
                kind = onnx.helper.make_tensor_type_proto(element, list(each.shape))
            types.append(kind.SerializeToString())
        try:
            text = schema.get_context_dependent_function(node.SerializeToString(), types)
        except (RuntimeError, ValueError):
            return None
        body = onnx.FunctionProto()
        body.ParseFromString(text)
        return body if len(body.node) else None

    def _of_body(
        self,
        node: Any,
        body: Any,
        inputs: Sequence[Tensor | None],
        used: set[str],
        depth: int,
        refused: NotCovered | None,
    ) -> list[Any]:
        """A node by its definition; what fails inside is told of the node."""
        given = {attribute.name: attribute for attribute in node.attribute}
        usual = {each.name: each for each in body.attribute_proto}
        if not len(body.attribute_proto):
            schema = onnx.defs.get_schema(
                node.op_type, self.opsets.get("", 1), "" if node.domain in STANDARD else node.domain
            )
            usual = {
                name: each.default_value
                for name, each in schema.attributes.items()
                if each.default_value.name
            }
        inner: Scope = {}
        for k, name in enumerate(body.input):
            each = inputs[k] if k < len(inputs) else None
            if each is not None:
                inner[name] = each
                source = node.input[k]
                self.sources[name] = self.sources.get(source, frozenset())
        nodes = [bound(each, {**usual, **given}, set(inner)) for each in body.node]
        wanted = [
            name
            for name, outer in zip(body.output, node.output, strict=False)
            if outer and outer in used
        ]
        kept = live(nodes, wanted)
        opsets, failures, mark = self.opsets, self.failures, self.build.mark()
        self.opsets = {**opsets, **{o.domain: o.version for o in body.opset_import}}
        self.failures = {}
        try:
            self.run(kept, inner, {n for each in kept for n in each.input} | set(wanted), depth + 1)
            inside = self.failures
        finally:
            self.opsets, self.failures = opsets, failures
        if inside:
            self._back_to(mark)
            kind, reason = next(iter(inside.items()))
            raise refused or NotCovered(f"[onnx] its part {kind}: {reason}")
        return [
            inner.get(name) if name in wanted else None
            for name, _ in zip(body.output, node.output, strict=False)
        ]

    # Control flow

    def _if(
        self, node: Any, inputs: Sequence[Tensor | None], scope: Scope, depth: int
    ) -> list[Any]:
        attributes = {attribute.name: attribute for attribute in node.attribute}
        condition = self._known(inputs[0], node.input[0])
        if condition is None or condition.size != 1:
            raise NeedsConstant("[onnx] a condition that only the run gives", node.input[0])
        branch = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        if branch not in attributes:
            raise bad(f"node {shown(node.name)} (If) has no {branch}")
        return self.subgraph(attributes[branch].g, scope, {}, depth)

    def _known(self, each: Tensor | None, name: str) -> Array | None:
        if isinstance(each, Value):
            return self.build.fixed(each)
        return each

    def _loop(
        self, node: Any, inputs: Sequence[Tensor | None], scope: Scope, depth: int
    ) -> list[Any]:
        """A loop whose steps are known, one after the other."""
        graph = next((a.g for a in node.attribute if a.name == "body"), None)
        if graph is None or len(inputs) < 2:
            raise bad(f"node {shown(node.name)} (Loop) has no body")
        count = self._known(inputs[0], node.input[0])
        condition = self._known(inputs[1], node.input[1])
        if (inputs[0] is not None and count is None) or (
            inputs[1] is not None and condition is None
        ):
            name = node.input[0] if count is None and inputs[0] is not None else node.input[1]
            raise NeedsConstant("[onnx] a loop whose end only the run gives", name)
        most = int(count.reshape(-1)[0]) if count is not None else _MOST_STEPS + 1
        goes_on = bool(condition.reshape(-1)[0]) if condition is not None else True
        carried: list[Any] = list(inputs[2:])
        names = [each.name for each in graph.input]
        if len(names) != len(carried) + 2 or len(graph.output) < len(carried) + 1:
            raise bad(f"the body of {shown(node.name)} (Loop) has {len(names)} inputs")
        scanned: list[list[Any]] = [[] for _ in graph.output[1 + len(carried) :]]
        step = 0
        while goes_on and step < most:
            if step >= _MOST_STEPS:
                raise NotCovered(f"[onnx] a loop of more than {_MOST_STEPS} steps")
            given = dict(
                zip(names, [np.array(step, np.int64), np.array(True), *carried], strict=True)
            )
            made = self.subgraph(graph, scope, given, depth)
            if any(isinstance(each, Missing) for each in made):
                raise NotCovered("[onnx] a loop whose body is not covered")
            after = self._known(made[0], "")
            if after is None:
                raise NotCovered("[onnx] a loop whose end only the run gives")
            goes_on = bool(after.reshape(-1)[0])
            carried = made[1 : 1 + len(carried)]
            for each, value in zip(scanned, made[1 + len(carried) :], strict=True):
                each.append(value)
            step += 1
        return [*carried, *(self._stacked(each) for each in scanned)]

    def _scan(
        self, node: Any, inputs: Sequence[Tensor | None], scope: Scope, depth: int
    ) -> list[Any]:
        """States carried along slices of tensors, step by step."""
        attributes = {a.name: a for a in node.attribute}
        if "body" not in attributes or any(each is None for each in inputs):
            raise bad(f"node {shown(node.name)} (Scan) has no body, or inputs left out")
        graph = attributes["body"].g
        count = attributes["num_scan_inputs"].i if "num_scan_inputs" in attributes else 0
        states = len(inputs) - count
        made = len(graph.output) - states
        if not 0 < count <= len(inputs) or len(graph.input) != len(inputs) or made < 0:
            raise bad(f"node {shown(node.name)} (Scan) has {len(inputs)} inputs, {count} to scan")

        def listed(name: str, length: int) -> list[int]:
            values = list(attributes[name].ints) if name in attributes else [0] * length
            if len(values) != length:
                raise bad(f"node {shown(node.name)} (Scan): {name} has {len(values)} numbers")
            return values

        tensors = [
            self.value_of(name, each) if isinstance(each, np.ndarray) else each
            for name, each in zip(node.input[states:], inputs[states:], strict=True)
        ]
        scanned = [each for each in tensors if each is not None]
        axes = [
            dimension(axis, each.rank, "axis")
            for axis, each in zip(listed("scan_input_axes", count), scanned, strict=True)
        ]
        lengths = {each.shape[axis] for axis, each in zip(axes, scanned, strict=True)}
        if len(lengths) != 1 or max(lengths) > _MOST_STEPS:
            raise NotCovered(f"[onnx] a scan over {sorted(lengths)} steps")
        (steps,) = lengths
        backward = listed("scan_input_directions", count)
        carried: list[Any] = list(inputs[:states])
        gathered: list[list[Any]] = [[] for _ in range(made)]
        for step in range(steps):
            parts = [
                shapes.select(self.build, each, axis, steps - 1 - step if way else step)
                for each, axis, way in zip(scanned, axes, backward, strict=True)
            ]
            names = [each.name for each in graph.input]
            given = dict(zip(names, [*carried, *parts], strict=True))
            results = self.subgraph(graph, scope, given, depth)
            if any(isinstance(each, Missing) for each in results):
                raise NotCovered("[onnx] a scan whose body is not covered")
            carried = results[:states]
            for each, value in zip(gathered, results[states:], strict=True):
                each.append(value)
        outputs = []
        for parts, axis, way in zip(
            gathered,
            listed("scan_output_axes", made),
            listed("scan_output_directions", made),
            strict=True,
        ):
            values = [self.value_of("", p) if isinstance(p, np.ndarray) else p for p in parts]
            outputs.append(shapes.stack(self.build, values[::-1] if way else values, axis))
        return [*carried, *outputs]

    def _stacked(self, parts: list[Any]) -> Any:
        if not parts:
            raise NotCovered("[onnx] a loop without a step")
        if all(isinstance(part, np.ndarray) for part in parts):
            return np.stack(parts)
        values = [self.value_of("", p) if isinstance(p, np.ndarray) else p for p in parts]
        return shapes.stack(self.build, values, 0)


def _dtype(array: Array) -> str:
    name = type_name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    if name is None:
        raise NotCovered(f"[onnx] tensors of type {array.dtype}")
    return name


def _reason(error: Exception) -> str:
    """An error's sentence without the part that complains."""
    text = str(error)
    return text.split("] ", 1)[1] if text.startswith("[") and "] " in text else text
