"""PyTorch models as networks: what `torch.export` records, each function by its row or as a call of PyTorch.

>>> import torch
>>> made = from_module(torch.nn.Linear(3, 2), torch.ones(1, 3))
>>> [node.program is not None for node in made.network.nodes]
[True]
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, fx, nn

from syno.errors import ShapeError
from syno.graph.aten_rows import Arguments, rows
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.calls import Arrangement, Given, Imported
from syno.graph.exporting import OF_EXTENTS, CannotImport, check_devices, exported
from syno.graph.host import NAMES, Check, HostCall, Result, add_call, slots
from syno.graph.operator_rows import operator_row
from syno.graph.tensors import array_of
from syno.support.inputs import arguments, unwrapped

#: Functions without a result that matters.
_CHECKS = re.compile(
    r"aten\._assert|aten\.sym_constrain|aten\._functional_assert|profiler\.|inductor\."
)

#: Functions that raise where another function's result says that it failed.
_RAISES = re.compile(r"aten\._linalg_check_errors\.")

#: Functions that read their first tensor's shape and type, and none of its elements.
_OF_SHAPE = re.compile(r"aten\.(new_(zeros|ones|full)|(zeros|ones|full)_like)\.")


def from_module(model: nn.Module, example: Any, *, name: str = "") -> Imported:
    """The network that a model is in inference on inputs of the example's shapes.

    Args:
        example: what the model is called with: a tensor, a tuple of arguments, or a dictionary of named ones.
    Raises:
        CannotImport: `torch.export` does not take the model, or the model changes its buffers or its inputs.
    """
    model = unwrapped(model)
    check_devices(model)
    inputs = pytree.tree_map(lambda t: t.detach().clone() if isinstance(t, Tensor) else t, example)
    args, named = arguments(model, inputs)
    program = exported(model, args, named)
    importer = Importer(name or type(model).__name__)
    return importer.of_program(model, program, args, named)


def from_fx(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    name: str = "graph",
    weights: Mapping[int, str] | None = None,
    sizes: Mapping[Any, int] | None = None,
) -> Imported:
    """The network of a graph of ATen's functions, as Dynamo and AOTAutograd give it.

    Args:
        example_inputs: of each placeholder, a tensor (its shape and dtype matter) or a number.
        weights: of which placeholders the tensors stay the same, by their positions: names for them.
        sizes: values of the symbols in the graph's shapes.
    Raises:
        CannotImport: the graph changes its inputs, or has what no network has.
    """
    return Importer(name, sizes).of_graph(module, list(example_inputs), dict(weights or {}))


# --- one graph


class Importer:
    """Walks a graph; what each of its nodes is: a value, a constant tensor, a number, several of them, or what another
    call of PyTorch gives.

    Args:
        sizes: values of the symbols in the graph's shapes.
    """

    def __init__(self, name: str, sizes: Mapping[Any, int] | None = None) -> None:
        self.sizes = sizes or {}
        self.build = Builder(re.sub(r"\W", "_", name) or "network")
        self.made: dict[fx.Node, Any] = {}
        self.given: list[Given] = []
        self.tensors: dict[str, Tensor] = {}
        self.frozen: list[tuple[str, Tensor, int]] = []
        self.known: dict[tuple[Any, ...], Any] = {}
        self.modules: dict[str, Any] = {}
        self.holder: Any = None
        self.calls: dict[str, tuple[HostCall, int]] = {}
        """By the names of their results: calls of PyTorch, and which result of them it is."""

    def of_program(self, model: nn.Module, program: Any, args: Any, named: Any) -> Imported:
        signature = program.graph_signature
        held = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
        }
        fixed = signature.inputs_to_lifted_tensor_constants
        own: dict[str, Tensor] = {
            **dict(model.named_buffers(remove_duplicate=False)),
            **dict(model.named_parameters(remove_duplicate=False)),
        }
        spec = program.call_spec.in_spec
        args, named = _in_order(spec, args, named)
        leaves, in_spec = pytree.tree_flatten((args, named))
        leaves_left = iter(leaves)
        self.holder = program.graph_module
        self.modules = dict(self.holder.named_children())
        for node in program.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in signature.input_tokens:
                self.made[node] = None
                continue
            if node.name in held and not node.users:
                continue  # what nobody reads may change: the number of batches that a normalisation has seen
            if node.name in held:
                source = held[node.name]
                tensor = own[source] if source in own else program.constants[source]
                self.made[node] = self.weight(source, tensor)
            elif node.name in fixed:
                self.made[node] = program.constants[fixed[node.name]].detach()
            else:
                self.made[node] = self.input(node.name, next(leaves_left))
        outputs = self.walk(program.graph)[len(signature.output_tokens) :]
        arrange = Arrangement(model, args, named)
        return self.imported(outputs, in_spec, program.call_spec.out_spec, arrange)

    def of_graph(
        self, module: fx.GraphModule, example: list[Any], weights: dict[int, str]
    ) -> Imported:
        self.modules = dict(module.named_children())
        self.holder = module
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        for n, (node, leaf) in enumerate(zip(places, example, strict=True)):
            if n in weights and isinstance(leaf, Tensor):
                self.made[node] = self.weight(weights[n], leaf)
            else:
                self.made[node] = self.input(node.name, leaf)
        return self.imported(self.walk(module.graph), None, None, None)

    def imported(self, outputs: list[Any], in_spec: Any, out_spec: Any, arrange: Any) -> Imported:
        values: list[Value] = []
        returned: list[int | None] = []
        constants: list[Any] = []
        places: dict[str, int] = {}
        for each in outputs:
            if isinstance(each, Tensor):
                each = self.literal(each)
            if isinstance(each, Result):
                raise CannotImport(
                    "[import] the model returns numbers of a type that no network holds, such as complex ones"
                )
            if not isinstance(each, Value):
                returned.append(None)
                constants.append(each)
                continue
            if each.name not in places:
                places[each.name] = len(values)
                values.append(self.own(each))
            returned.append(places[each.name])
            constants.append(None)
        network = self.build.network(values)
        return Imported(
            network,
            self.given,
            returned,
            constants,
            in_spec,
            out_spec,
            self.tensors,
            self.frozen,
            arrange,
        )

    def own(self, value: Value) -> Value:
        """An output that is no input or weight itself, so that nobody writes into those."""
        computed = value.name in self.computed()
        if computed:
            return value
        return self.build.call("copy", [value], [(value.shape, value.dtype)], name=value.name)[0]

    def computed(self) -> set[str]:
        return {name for node in self.build.network([]).nodes for name in node.outputs}

    # Tensors

    def input(self, name: str, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise CannotImport(f"[import] {name} is a size that is not known")
            self.given.append(Given(name, constant=leaf))
            return leaf
        dtype = NAMES.get(leaf.dtype)
        if dtype is None:
            raise CannotImport(
                f"[import] input {name} is of type {leaf.dtype}, which no network holds"
            )
        if leaf.device.type != "cpu" or leaf.layout != torch.strided:
            raise CannotImport(
                f"[import] input {name} is {leaf.layout} on {leaf.device}; networks compute dense tensors on the CPU"
            )
        value = self.build.input(name, leaf.shape, dtype)
        self.given.append(Given(value.name, tuple(leaf.shape), leaf.dtype))
        return value

    def weight(self, source: str, tensor: Tensor) -> Any:
        """A parameter or buffer; the same memory is one weight."""
        tensor = tensor.detach() if tensor.requires_grad else tensor
        key = (
            (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
            if tensor.numel()
            else (source,)
        )
        if key in self.known:
            return self.known[key]
        kept = tensor.detach()
        made: Any
        if tensor.dtype not in NAMES:
            made = kept
        elif not tensor.is_floating_point():
            self.frozen.append((source, tensor, tensor._version))
            made = kept.clone()
        else:
            made = self.build.weight(re.sub(r"\W", "_", source), array_of(kept), source)
            self.tensors[made.name] = kept
        self.known[key] = made
        return made

    def literal(self, tensor: Tensor) -> Value:
        """A constant as a tensor of the graph."""
        dtype = NAMES.get(tensor.dtype)
        if dtype is None:
            raise NotCovered(f"[graph] no tensor has elements of type {tensor.dtype}")
        return self.build.literal(array_of(tensor.detach().contiguous()), dtype, "constant")

    # Nodes

    def walk(self, graph: fx.Graph) -> list[Any]:
        """The leaves of the graph's output."""
        for node in graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "output":
                return [
                    self.argument(leaf)
                    for leaf in pytree.tree_leaves(node.args[0], is_leaf=_is_none)
                ]
            if node.op == "get_attr":
                self.made[node] = self.attribute(str(node.target))
            elif node.op == "call_function":
                self.made[node] = self.call(node)
            else:
                raise CannotImport(f"[import] the graph holds a {node.op} of {node.target}")
        raise CannotImport("[import] the graph has no output")

    def attribute(self, path: str) -> Any:
        found: Any = self.modules.get(path)
        if found is None:
            found = self.holder
            for part in path.split("."):
                found = getattr(found, part)
        if isinstance(found, nn.Parameter):
            return self.weight(path, found)
        return found

    def argument(self, value: Any) -> Any:
        return self.made[value] if isinstance(value, fx.Node) else value

    def call(self, node: fx.Node) -> Any:
        target: Any = node.target
        args, named = pytree.tree_map(
            self.argument, (tuple(node.args), dict(node.kwargs)), is_leaf=_is_node
        )
        if target is operator.getitem:
            return self.item(args[0], args[1])
        if _CHECKS.match(str(target)):
            return None
        if self.sizes and str(target) in OF_EXTENTS and isinstance(args[0], Value):
            return OF_EXTENTS[str(target)](args[0].shape, *args[1:])
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self.higher_order(target, args, named)
        leaves = pytree.tree_leaves((args, named))
        fixed = not any(isinstance(leaf, (Value, Result)) for leaf in leaves)
        if fixed and not _is_random(target):
            with torch.no_grad():
                return target(*args, **named)
        if _OF_SHAPE.match(str(target)) and isinstance(args[0], Value):
            like = torch.empty(args[0].shape, dtype=node.args[0].meta["val"].dtype)  # type: ignore[union-attr]
            args = (like, *args[1:])
            if not any(
                isinstance(leaf, (Value, Result)) for leaf in pytree.tree_leaves((args, named))
            ):
                return target(*args, **named)
        if not isinstance(target, torch._ops.OpOverload):
            raise CannotImport(
                f"[import] the graph calls {target}, which is none of PyTorch's own functions"
            )
        if target._schema.is_mutable:
            raise CannotImport(
                f"[import] the graph calls {target}, which writes into its arguments"
            )
        return self.of_row(node, target, args, named)

    def item(self, of: Any, at: Any) -> Any:
        if isinstance(of, Result):
            return Result(of.call, at)
        return of[at]

    def higher_order(self, target: Any, args: Any, named: Any) -> Any:
        name = str(target)
        graphs = [a for a in args if isinstance(a, fx.GraphModule)]
        if (
            name in ("wrap_with_set_grad_enabled", "checkpoint", "tag_activation_checkpoint")
            and len(graphs) == 1
        ):
            place = next(n for n, a in enumerate(args) if a is graphs[0])
            return self.inline(graphs[0], args[place + 1 :])
        if name == "with_effects":
            return self.with_effect(args[0], args[1], args[2:], named)
        raise CannotImport(
            f"[import] the model's control flow depends on data ({name}); networks have none: compute both and choose "
            "with torch.where"
        )

    def with_effect(self, token: Any, function: Any, args: Any, named: Any) -> list[Any]:
        """A function that is called for what it does, kept in order by a token: a check of another call's result becomes
        part of that call.

        Raises:
            CannotImport: it does something else.
        """
        if _CHECKS.match(str(function)):
            return [token, None]
        of = self.calls.get(args[0].name) if args and isinstance(args[0], Value) else None
        if of is None or not _RAISES.match(str(function)):
            raise CannotImport(
                f"[import] the model calls {function}, which does something beside giving tensors; networks only give tensors"
            )
        call, index = of
        call.checks.append(Check(function, index, tuple(args[1:]), named))
        return [token, None]

    def inline(self, module: fx.GraphModule, args: Sequence[Any]) -> Any:
        outer, self.modules = self.modules, dict(module.named_children())
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.made.update(zip(places, args, strict=True))
        made = self.walk(module.graph)
        self.modules = outer
        return made

    def of_row(self, node: fx.Node, target: Any, args: Any, named: Any) -> Any:
        results: Any = node.meta.get("val")
        many = isinstance(results, (tuple, list))
        metas: list[Any] = list(results) if isinstance(results, (tuple, list)) else [results]
        shapes = tuple(self.shape(target, m) if isinstance(m, Tensor) else None for m in metas)
        dtypes = tuple(NAMES.get(m.dtype) if isinstance(m, Tensor) else None for m in metas)
        if any(
            isinstance(m, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)) for m in metas
        ):
            raise CannotImport(
                f"[import] {target} makes a number of the inputs' values, and the model goes on with it outside of "
                "tensors; networks have no such control flow"
            )
        items: list[Any] = [u.args[1] for u in node.users if u.target is operator.getitem]
        used = frozenset(items if many else [0])
        row = rows().get(str(target)) or operator_row(str(target))
        reason = "there is no row for it"
        if row is not None and None not in [
            d for m, d in zip(metas, dtypes, strict=True) if isinstance(m, Tensor)
        ]:
            mark = self.build.mark()
            try:
                given = self.by_name(target, args, named)
                made = row(
                    self.build, Arguments(given, shapes, dtypes, used, _row_major(node.args))
                )
                results = list(made) if isinstance(made, (tuple, list)) else [made]
                self.check(results, shapes, dtypes, used)
                return results if many else results[0]
            except (NotCovered, ShapeError) as why:  # PyTorch has accepted the shapes
                self.build.back_to(mark)
                reason = str(why).removeprefix("[graph] ")
        return self.on_host(node, target, args, named, metas, many, reason)

    def check(self, results: list[Any], shapes: Any, dtypes: Any, used: frozenset[int]) -> None:
        """What a row gives has the shapes and types that PyTorch says.

        Raises:
            NotCovered: the types differ.
        """
        for n in sorted(used):
            value, dtype = results[n], dtypes[n]
            if value is None and dtype is None:
                continue  # a gradient that nobody asked for, of which a graph still takes hold
            if not isinstance(value, Value):
                raise NotCovered(f"[graph] result {n}, which the row leaves out")
            if value.shape != shapes[n]:
                raise NotCovered(f"[graph] a result of shape {list(shapes[n])}")
            kind = "bool" if value.boolean else value.dtype
            if kind != dtype:
                raise NotCovered(f"[graph] numbers of type {dtype}")

    def by_name(self, target: Any, args: Any, named: Any) -> dict[str, Any]:
        """Arguments by the schema's names, with what was left out; constants as tensors of the graph."""

        def as_value(leaf: Any) -> Any:
            if isinstance(leaf, Result):
                raise NotCovered("[graph] numbers of a type that no network holds")
            return self.literal(leaf) if isinstance(leaf, Tensor) else leaf

        schema = target._schema.arguments
        given = dict(zip((a.name for a in schema), args, strict=False)) | named
        return {
            a.name: pytree.tree_map(as_value, given[a.name]) if a.name in given else a.default_value
            for a in schema
        }

    def on_host(
        self,
        node: fx.Node,
        target: Any,
        args: Any,
        named: Any,
        metas: list[Any],
        many: bool,
        reason: str,
    ) -> Any:
        args, named = slots((args, named))
        call = HostCall(target, args, named, self.strides(node, target))
        tensors = [m for m in metas if isinstance(m, Tensor)]
        if any(m.dtype not in NAMES for m in tensors):
            return Result(call, None)
        note = f"{target} runs in PyTorch: {reason}"
        outputs = [(self.shape(target, m), NAMES[m.dtype]) for m in tensors]
        random = _is_random(target)
        values = iter(add_call(self.build, call, outputs, note, name=node.name, random=random))
        made = [next(values) if isinstance(m, Tensor) else None for m in metas]
        self.calls |= {value.name: (call, n) for n, value in enumerate(made) if value is not None}
        return made if many else made[0]

    # Numbers

    def number(self, value: Any) -> int:
        """A whole number of a shape, at the graph's sizes."""
        if self.sizes and isinstance(value, torch.SymInt):
            return int(value.node.expr.xreplace(self.sizes))
        return int(value)

    def shape(self, target: Any, meta: Tensor) -> tuple[int, ...]:
        try:
            return tuple(self.number(n) for n in meta.shape)
        except Exception as error:  # several of torch's own
            raise CannotImport(
                f"[import] {target} gives as many elements as the inputs' values say; the shapes of networks are fixed"
            ) from error

    def strides(self, node: fx.Node, target: Any) -> tuple[int, ...] | None:
        """Of what reads memory as it lies: how its tensor lay when the model was recorded."""
        if "as_strided" not in str(target):
            return None
        of = node.args[0]
        meta = of.meta.get("val") if isinstance(of, fx.Node) else None
        if not isinstance(meta, Tensor):
            return None
        return tuple(self.number(n) for n in meta.stride())


def _is_node(value: Any) -> bool:
    return isinstance(value, fx.Node)


def _row_major(args: Sequence[Any]) -> bool:
    first = args[0].meta.get("val") if args and isinstance(args[0], fx.Node) else None
    if not isinstance(first, Tensor) or not first.is_contiguous() or first.storage_offset():
        return False
    return bool(first.untyped_storage().nbytes() == first.numel() * first.element_size())


def _is_none(value: Any) -> bool:
    return value is None


def _is_random(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _in_order(
    spec: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Named arguments in the order in which the exporter has them."""
    _, by_name = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    return tuple(args), {name: named[name] for name in by_name}


__all__ = ["CannotImport", "Given", "Imported", "from_fx", "from_module"]
