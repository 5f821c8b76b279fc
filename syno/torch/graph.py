"""A model as plain data: the tensor functions it calls on an example, its weights and its layers, and the module that runs
them. Reading one runs nothing: names are those of ATen's functions and nothing else is in reach.

For sessions that were searched with a model and no name that would make it again. What is written is what
`torch.export` records for the example's shapes in inference; layers that can be replaced stay modules.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from syno.errors import FormatError, shown
from syno.support.inputs import arguments, mapped, plain, structured
from syno.torch.layers import CONVOLUTIONS, Layer, describe
from syno.torch.sites import Sites

_VERSION = 1
_MOST_STEPS = 200_000
#: PyTorch's own names begin with no underscore: what does checks less of what it is given.
_NAME = re.compile(r"[a-z][a-z0-9_]*|__(?:and|or|xor)__")
#: Texts that functions take and that name no file.
_WORDS = {"approximate", "rounding_mode", "mode", "equation", "reduce", "indexing", "padding", "side"}  # fmt: skip
#: Functions that write into their first argument, which is a value between layers.
_IN_PLACE = {
    "relu_", "relu6_", "hardtanh_", "hardswish_", "hardsigmoid_", "silu_", "elu_", "leaky_relu_", "gelu_", "mish_",
    "celu_", "selu_", "rrelu_", "threshold_", "sigmoid_", "tanh_", "clamp_", "clamp_min_", "clamp_max_", "dropout_",
    "add_", "sub_", "mul_", "div_", "masked_fill_", "exp_", "sqrt_", "rsqrt_", "neg_", "abs_", "pow_", "copy_",
    "detach_",
}  # fmt: skip
_TYPES = re.compile(
    r"(Optional\[|List\[)*(Tensor|number|int|SymInt|float|bool|ScalarType|Layout|Device|MemoryFormat|str)\]*"
)
_LAYERS = {kind: (layer, rank) for layer, (kind, rank) in CONVOLUTIONS.items()}
_FUNCTIONS = {f"conv{rank}d.{how}" for rank in (1, 2, 3) for how in ("default", "padding")} | {
    "linear.default",
    "conv_transpose1d.default",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
}


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One value: an input, a weight, a layer's or a function's result, or an item of one.

    In arguments, ``{"step": 3}`` is the value of the fourth step.
    """

    input: int | None = None
    weight: str | None = None
    layer: str | None = None
    function: str | None = None
    item: int | None = None
    args: list[Any] = []
    named: dict[str, Any] = {}


class Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file's content; the tensors are beside it by their names."""

    version: int = _VERSION
    steps: list[Step]
    output: Any
    layers: dict[str, Layer]
    also: dict[str, str]
    """Other names of layers."""
    same: dict[str, str]
    """Names of tensors that are another's."""
    parameters: list[str]
    temporary: list[str]
    """Tensors that are no part of the model's state."""


class CannotRecord(Exception):
    """Why a model cannot be written down, in a sentence."""


# --- writing


def record(model: nn.Module, example: Any, sites: Sites) -> tuple[Recorded, dict[str, Tensor]]:
    """The model in inference on the example's shapes, and its tensors by name.

    Raises:
        CannotRecord: `torch.export` does not take it, or it does what has no plain form.
    """
    inputs = mapped(example, lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)
    args, named = arguments(model, inputs)
    training = model.training
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the exporter uses of itself
            program = torch.export.export(model.eval(), args, named, strict=False)
        return _Recorder(model, program, args, named, sites).recorded()
    except CannotRecord:
        raise
    except Exception as error:  # whatever a model's own code, and the exporter, raise
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CannotRecord(f"torch.export: {said[:200]}") from error
    finally:
        model.train(training)


class _Recorder:
    def __init__(self, model: nn.Module, program: Any, args: Any, named: Any, sites: Sites) -> None:
        self.model, self.program, self.sites = model, program, sites
        self.numbers: dict[Any, int] = {}
        self.steps: list[Step] = []
        self.state = model.state_dict(keep_vars=True)
        signature = program.graph_signature
        self.held: dict[str, str] = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        if signature.buffers_to_mutate or getattr(signature, "user_inputs_to_mutate", None):
            raise CannotRecord("the model changes its own buffers or its inputs")
        self.tensors: dict[str, Tensor] = {name: t.detach() for name, t in self.state.items()}
        for name in self.held.values():
            if name not in self.tensors:
                self.tensors[name] = program.constants[name].detach()
        spec = program.call_spec.in_spec
        _, by_name = pytree.tree_unflatten(range(spec.num_leaves), spec)
        flat = pytree.tree_leaves((*args, *(named[name] for name in by_name)))
        mine = [leaf for leaf in _leaves((args, named)) if isinstance(leaf, Tensor)]
        places = {id(leaf): place for place, leaf in enumerate(mine)}
        self.inputs = dict(
            zip(signature.user_inputs, (places.get(id(leaf)) for leaf in flat), strict=True)
        )
        self.layers = {
            name: site
            for site in sites
            if site.layer is not None and not site.reason
            for name in (site.name, *site.also)
        }

    def recorded(self) -> tuple[Recorded, dict[str, Tensor]]:
        output: Any = None
        for node in self.program.graph.nodes:
            if node.op == "output":
                flat = [self.argument(value) for value in node.args[0]]
                output = pytree.tree_unflatten(flat, self.program.call_spec.out_spec)
            elif not self.is_nothing(node):
                self.steps.append(self.step(node))
                self.numbers[node] = len(self.steps) - 1
        first: dict[int, str] = {}
        same: dict[str, str] = {}
        for name, tensor in self.state.items():
            own = first.setdefault(id(tensor), name)
            if own != name:
                same[name] = own
        content = Recorded(
            steps=self.steps,
            output=_plain_output(output),
            layers={s.name: s.layer for s in self.sites if s.name in self.layers and s.layer},
            also={other: s.name for s in self.sites if s.name in self.layers for other in s.also},
            same=same,
            parameters=[n for n, t in self.state.items() if isinstance(t, nn.Parameter)],
            temporary=[name for name in self.tensors if name not in self.state],
        )
        tensors = {
            name: t.cpu().contiguous().clone()
            for name, t in self.tensors.items()
            if name not in same
        }
        module = Graph(content, tensors)  # it can be read, and has the layers that were searched
        for name, site in self.layers.items():
            found = describe(module.get_submodule(name))
            if found is None or found.layer != site.layer:
                raise CannotRecord(f"{name} is a layer that PyTorch's own do not have")
        return content, tensors

    def is_nothing(self, node: Any) -> bool:
        """An input that is a constant, or what only checks."""
        constant = node.name in self.inputs and self.inputs[node.name] is None
        return constant or str(node.target).startswith("aten._assert")

    def step(self, node: Any) -> Step:
        if node.op == "placeholder":
            if node.name in self.inputs:
                return Step(input=self.inputs[node.name])
            return Step(weight=self.held[node.name])
        if node.op != "call_function":
            raise CannotRecord(f"the graph holds a {node.op}")
        if getattr(node.target, "__name__", "") == "getitem":
            return Step(item=int(node.args[1]), args=[self.argument(node.args[0])])
        name = str(node.target)
        if not name.startswith("aten."):
            raise CannotRecord(f"the model calls {name}, which is none of PyTorch's own functions")
        name = name.removeprefix("aten.")
        _function(name)
        if name in _FUNCTIONS:
            layer = self.held.get(getattr(node.args[1], "name", ""), "").removesuffix(".weight")
            if layer in self.layers:
                return Step(layer=self.layers[layer].name, args=[self.argument(node.args[0])])
        named = {key: self.argument(value) for key, value in node.kwargs.items()}
        return Step(function=name, args=[self.argument(value) for value in node.args], named=named)

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return {"step": self.numbers[value]}
        if isinstance(value, (list, tuple)):
            return [self.argument(each) for each in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        for kind in _KINDS:
            if isinstance(value, kind):
                return {_KINDS[kind]: str(value).removeprefix("torch.")}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise CannotRecord(f"an argument is a {type(value).__name__}")


_KINDS: dict[type, str] = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}


def _plain_output(value: Any) -> Any:
    """The structure of a result; steps are its tensors."""
    if isinstance(value, dict) and set(value) == {"step"}:
        return {"tensor": value["step"]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_plain_output(each) for each in value]}
    if type(value) is dict:
        return {"dict": {str(key): _plain_output(each) for key, each in value.items()}}
    try:
        return plain(value, [])
    except TypeError as error:
        raise CannotRecord(f"the model returns a {type(value).__name__}") from error


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


# --- reading


def _function(name: str) -> Any:
    """One of ATen's functions, of those that compute tensors from tensors and reach nothing else.

    Raises:
        FormatError: it is none.
    """
    packet, _, overload = name.partition(".")
    in_place = packet.endswith("_")
    if _NAME.fullmatch(packet) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", overload):
        found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if isinstance(found, torch._ops.OpOverload):
            schema = found._schema
            plain_types = all(
                _TYPES.fullmatch(str(a.type)) and ("str" not in str(a.type) or a.name in _WORDS)
                for a in schema.arguments
            )
            if plain_types and (packet in _IN_PLACE if in_place else not schema.is_mutable):
                return found
    raise FormatError(f"[graph] {shown(name)} is no function that a kept network may call")


class _Made:
    """A step ready to run: its function with the arguments, and what is not needed after it."""

    def __init__(self, step: Step, number: int) -> None:
        kinds = [
            kind
            for kind in ("input", "weight", "layer", "function", "item")
            if getattr(step, kind) is not None
        ]
        if len(kinds) != 1:
            raise FormatError(f"[graph] step {number} is {', '.join(kinds) or 'nothing'}")
        self.kind = kinds[0]
        self.what: Any = getattr(step, self.kind)
        self.path: tuple[str, ...] = ()
        self.uses: set[int] = set()
        self.ended: tuple[int, ...] = ()
        self.number = number
        if self.kind == "function":
            self.what = _function(self.what)
        if self.kind in ("weight", "layer"):
            self.path = tuple(self.what.split("."))
        if self.kind in ("layer", "item") and len(step.args) != 1:
            raise FormatError(f"[graph] step {number} has {len(step.args)} arguments, not one")
        self.args = tuple(self.read(value) for value in step.args)
        self.named = {key: self.read(value) for key, value in step.named.items()}

    def read(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.read(each) for each in value]
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items() if len(value) == 1 else (("", None),)
        if kind == "step" and type(inner) is int and 0 <= inner < self.number:
            self.uses.add(inner)
            return _Of(inner)
        if kind == "float" and inner in ("inf", "-inf", "nan"):
            return float(inner)
        if kind == "device" and inner == "cpu":
            return torch.device("cpu")
        for of, name in _KINDS.items():
            if kind == name and isinstance(inner, str) and isinstance(getattr(torch, inner, 0), of):
                return getattr(torch, inner)
        raise FormatError(f"[graph] step {self.number} has the argument {shown(value)}")


class _Of:
    """The value of a step, in an argument."""

    __slots__ = ("step",)

    def __init__(self, step: int) -> None:
        self.step = step


def _filled(value: Any, values: list[Any]) -> Any:
    if isinstance(value, _Of):
        return values[value.step]
    return [_filled(each, values) for each in value] if isinstance(value, list) else value


class Graph(nn.Module):
    """A recorded model: the same numbers, weights by the same names, the same layers in the same places.

    It takes inputs of the recorded shapes, and computes as in inference whatever its mode.

    Raises:
        FormatError: it is damaged, or calls what is no function of PyTorch's own.
    """

    def __init__(self, content: Recorded, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        if content.version != _VERSION or len(content.steps) > _MOST_STEPS:
            raise FormatError(
                f"[graph] version {content.version} with {len(content.steps)} steps; this syno reads version "
                f"{_VERSION}, at most {_MOST_STEPS} steps"
            )
        try:
            self._build(content, tensors)
        except (
            KeyError,
            AttributeError,
            TypeError,
            ValueError,
            RuntimeError,
            OverflowError,
        ) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(
                f"[graph] the kept network does not fit together: {type(error).__name__}: {shown(str(error))}"
            ) from error
        self.eval()

    def _build(self, content: Recorded, tensors: Mapping[str, Tensor]) -> None:
        for name, layer in content.layers.items():
            self._put(name, _module_of(layer))
        for other, name in content.also.items():
            self._put(other, self.get_submodule(name))
        made: dict[str, Tensor] = {}
        parameters = set(content.parameters)
        for name, tensor in tensors.items():
            needs = tensor.is_floating_point() or tensor.is_complex()
            made[name] = nn.Parameter(tensor, requires_grad=needs) if name in parameters else tensor
        for name in (*tensors, *content.same):
            tensor = made[content.same.get(name, name)]
            where, _, own = name.rpartition(".")
            holder = self._holder(where)
            if isinstance(tensor, nn.Parameter):
                holder.register_parameter(own, tensor)
            else:
                holder.register_buffer(own, tensor, persistent=name not in content.temporary)
        if any(t.device.type == "meta" for t in (*self.parameters(), *self.buffers())):
            raise FormatError("[graph] a layer has no weights")
        self._steps = [_Made(step, number) for number, step in enumerate(content.steps)]
        needed = {int(n) for n in _tensors_of(content.output)}
        if any(n >= len(self._steps) for n in needed):
            raise FormatError("[graph] the result is of no step")
        last: dict[int, int] = {}
        for step in self._steps:
            last.update(dict.fromkeys(step.uses, step.number))
            if step.kind in ("weight", "layer"):
                _at(self, step.path)
        for used, by in last.items():
            if used not in needed:
                self._steps[by].ended = (*self._steps[by].ended, used)
        self._output = content.output

    def _holder(self, path: str) -> nn.Module:
        here: nn.Module = self
        for name in path.split(".") if path else ():
            if name not in here._modules:
                here.add_module(name, nn.Module())
            child = here._modules[name]
            assert child is not None
            here = child
        return here

    def _put(self, path: str, module: nn.Module) -> None:
        where, _, own = path.rpartition(".")
        self._holder(where).add_module(own, module)

    def forward(self, *args: Any, **named: Any) -> Any:
        given = [leaf for leaf in _leaves((args, named)) if isinstance(leaf, Tensor)]
        values: list[Any] = [None] * len(self._steps)
        for step in self._steps:
            kind, number = step.kind, step.number
            if kind == "function":
                filled = {key: _filled(value, values) for key, value in step.named.items()}
                values[number] = step.what(*[_filled(a, values) for a in step.args], **filled)
            elif kind == "layer":
                values[number] = _at(self, step.path)(_filled(step.args[0], values))
            elif kind == "weight":
                values[number] = _at(self, step.path)
            elif kind == "item":
                values[number] = _filled(step.args[0], values)[step.what]
            else:
                values[number] = given[step.what]
            for used in step.ended:
                values[used] = None
        return structured(self._output, {str(n): v for n, v in enumerate(values)})


def _at(module: nn.Module, path: tuple[str, ...]) -> Any:
    found: Any = module
    for name in path:
        found = getattr(found, name)
    if not isinstance(found, (Tensor, nn.Module)):
        raise FormatError(f"[graph] {shown('.'.join(path))} is no part of the network")
    return found


def _tensors_of(output: Any) -> Iterator[Any]:
    if isinstance(output, dict):
        for key, value in output.items():
            if key == "tensor" and isinstance(value, int):
                yield value
            else:
                yield from _tensors_of(value)
    elif isinstance(output, list):
        for value in output:
            yield from _tensors_of(value)


def _module_of(layer: Layer) -> nn.Module:
    """A layer as PyTorch has it, its weights to be filled in."""
    if layer.kind == "linear":
        return nn.Linear(layer.in_channels, layer.out_channels, layer.bias, device="meta")
    if any(before != after for before, after in layer.pad):
        raise CannotRecord("a layer is padded by more on one side than on the other")
    made, _ = _LAYERS[layer.kind]
    more = {"output_padding": layer.output_pad} if layer.transposed else {}
    module: nn.Module = made(
        layer.in_channels, layer.out_channels, layer.kernel, layer.stride, tuple(p for p, _ in layer.pad),
        dilation=layer.dilation, groups=layer.groups, bias=layer.bias, device="meta", **more,
    )  # fmt: skip
    return module
