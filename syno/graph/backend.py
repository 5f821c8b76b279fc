"""`torch.compile(model, backend="syno")`: the graphs that Dynamo finds, forward and backward, as compiled networks.

>>> import torch
>>> fast = torch.compile(torch.nn.Linear(3, 2), backend="syno", options={"threads": 1})  # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from syno.errors import ArgumentError, SynoError, told, unknown_name
from syno.graph.aten_rows import rows
from syno.graph.building import Array
from syno.graph.from_torch import Imported, from_fx
from syno.graph.layout_names import LAYOUTS, ROW_MAJOR
from syno.graph.reference import HostRefusal, run_reference
from syno.graph.sizes import LARGEST
from syno.graph.tensors import array_of, tensor_of
from syno.graph.whole_functions import functions_whole
from syno.support.garbage import new_garbage_only
from syno.support.numbers import whole

if TYPE_CHECKING:
    from syno.graph.compiled import CompiledNetwork
    from syno.graph.dynamic import DynamicNetwork, Linked
    from syno.graph.symbols import SymbolicGraph

    Told = CompiledNetwork | DynamicNetwork | str

_log = logging.getLogger("syno.graph")
_watching: list[list[Told]] = []


@contextmanager
def graphs_compiled() -> Iterator[list[Told]]:
    """What graphs become while it is open, of all threads, in the order they are compiled: networks, which can be
    printed; a `DynamicNetwork` for a graph with sizes that change; for a graph that runs in PyTorch the reason.

    >>> import syno.graph.backend, torch
    >>> fast = torch.compile(torch.nn.Linear(3, 2), backend="syno")  # doctest: +SKIP
    >>> with syno.graph.backend.graphs_compiled() as graphs:  # doctest: +SKIP
    ...     y = fast(torch.randn(1, 3))
    """
    made: list[Told] = []
    _watching.append(made)
    try:
        yield made
    finally:
        _watching[:] = [other for other in _watching if other is not made]


def _tell(made: Told) -> None:
    for watcher in list(_watching):
        watcher.append(made)


#: What `options` may hold, and of which type each is.
OPTIONS: dict[str, type] = {
    "threads": int, "derive": bool, "max_rel_err": float, "seconds": float, "fuse": bool, "verify": bool, "cache": bool,
    "layouts": str, "max_size": int,
}  # fmt: skip


@new_garbage_only()
def syno_backend(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: Any = None,
) -> Any:
    """The backend: AOTAutograd splits a graph into forward and backward, and each becomes a network.

    A graph that no network is runs in PyTorch, with a warning that says why.

    Args:
        options: `threads`, `derive`, `max_rel_err`, `seconds`, `fuse`, `verify`, `cache`, `layouts`, as
            `syno.compile` takes them; `max_size`: the greatest size that code for ranges of sizes is made for
            (`dynamic=True`, or sizes that TorchDynamo has seen change). By default ranges end at a power of two, and
            another one is compiled when larger sizes come; `torch._dynamo.mark_dynamic(x, dim, min=, max=)` says it for
            a dimension. Sizes beyond, sizes of one, graphs with gradients, and layouts or derived programs get a network
            for each set of shapes.
    Raises:
        UnknownName: another option.
        ArgumentError: an option of another type.
    """
    from torch._dynamo.backends.common import aot_autograd

    settings = _settings(options)
    most = settings.pop("max_size", LARGEST)
    for_one = settings.get("derive", False) or settings.get("layouts", ROW_MAJOR) != ROW_MAJOR
    inference = _compiler(settings, constant_weights=True, most=None if for_one else most)
    training = _compiler(settings, constant_weights=False, most=None)
    compiled = aot_autograd(
        fw_compiler=training,
        bw_compiler=training,
        inference_compiler=inference,
        decompositions=_decompositions(),
    )
    with ExitStack() as meanwhile:
        meanwhile.enter_context(_recurrences_step_by_step(graph))
        if not any(map(_is_symbolic, example_inputs)):
            meanwhile.enter_context(functions_whole())
        return compiled(graph, example_inputs)


def _is_symbolic(leaf: Any) -> bool:
    extents = leaf.shape if isinstance(leaf, Tensor) else [leaf]
    return any(isinstance(n, torch.SymInt) for n in extents)


@contextmanager
def _recurrences_step_by_step(graph: fx.GraphModule) -> Iterator[None]:
    """oneDNN has an LSTM of its own, in single precision alone, which tells nothing of its steps: it is off meanwhile."""
    fused = any(getattr(node.target, "__name__", "") == "lstm" for node in graph.graph.nodes)
    if not fused:
        yield
        return
    set_flags: Any = torch.backends.mkldnn.set_flags
    enabled = set_flags(False, _fp32_precision=None)[0]
    try:
        yield
    finally:
        set_flags(enabled, _fp32_precision=None)


def _settings(options: Mapping[str, Any] | None) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in (options or {}).items():
        kind = OPTIONS.get(name)
        if kind is None:
            raise unknown_name("option", name, OPTIONS)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise ArgumentError(
                f"[compile] option {name} is {value!r}", fix=f"pass a {kind.__name__}"
            )
        if name == "layouts" and value not in LAYOUTS:
            raise unknown_name("layouts", value, LAYOUTS)
        if name == "max_size":
            whole("compile", "the option max_size", value, 2, LARGEST)
        settings[name] = value
    return settings


def _decompositions() -> dict[Any, Any]:
    """ATen's own, without those of functions that have rows, and of what it has as one function alone."""
    from torch._decomp import core_aten_decompositions

    from syno.graph.encoder_layers import DECOMPOSITIONS

    known = rows()
    table: Any = core_aten_decompositions()
    return {f: how for f, how in table.items() if str(f) not in known} | DECOMPOSITIONS


def _compiler(
    settings: Mapping[str, Any], *, constant_weights: bool, most: int | None
) -> Callable[..., Any]:
    from torch._functorch._aot_autograd.utils import make_boxed_func

    def compiler(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        weights = _static(graph) if constant_weights else frozenset()
        return make_boxed_func(_Graph(graph, settings, weights, most))

    return compiler


def _static(graph: fx.GraphModule) -> frozenset[int]:
    """Which inputs are a model's parameters and buffers."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    count = sum(node.op == "placeholder" for node in graph.graph.nodes)
    indices = getattr(metadata, "static_input_indices", None) or ()
    return frozenset(int(n) for n in indices if int(n) < count)


class _Graph:
    """One graph of ATen's functions: a network for every set of shapes it is called with, made at the first call; in
    inference one for ranges of its sizes, where it has symbols for these.

    Args:
        most: the greatest size of such a range; None: no ranges.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        settings: Mapping[str, Any],
        static: frozenset[int],
        most: int | None,
    ) -> None:
        self.graph, self.settings, self.static = graph, settings, static
        self.most = most
        self.ranged: SymbolicGraph | None = None
        self.states: dict[int, tuple[int, int]] = {}
        self.made: dict[tuple[Any, ...], _Compiled | None] = {}
        self.lock = threading.Lock()
        self.symbolic = any(
            _is_symbolic(node.meta.get("val"))
            for node in graph.graph.nodes
            if node.op == "placeholder"
        )

    def __call__(self, *args: Any) -> Any:
        key = tuple(_kind(a) for a in args) if self.symbolic else ()
        if key not in self.made:
            with self.lock:
                if key not in self.made:
                    self.made[key] = self.compiled(args)
        network = self.made[key]
        if network is not None:
            return network(args)
        with torch.no_grad():
            return self.graph(*args)

    @new_garbage_only()
    def compiled(self, args: Sequence[Any]) -> _Compiled | None:
        """The network of these arguments' shapes; None where there is none."""
        try:
            graph = self.graph
            if self.symbolic:
                made = self.of_range(args)
                if made is not None:
                    return made
                from torch.fx.experimental.proxy_tensor import make_fx

                with torch.no_grad():
                    graph = make_fx(graph, tracing_mode="fake")(*args)
            states = _states(args, self.static)
            imported = from_fx(graph, args, weights=_names(states))
            inputs = imported.flatten([a for n, a in enumerate(args) if n not in states], {})
            given = [inputs[value.name].detach() for value in imported.network.inputs]
            return _Compiled(imported, compile_imported(imported, self.settings, given), states)
        except SynoError as why:
            _log.warning(
                "a graph of %d nodes runs in PyTorch: %s", len(self.graph.graph.nodes), told(why)
            )
            _tell(told(why))
            return None

    def of_range(self, args: Sequence[Any]) -> _Compiled | None:
        """By a network for ranges of the sizes; None where there is none for these."""
        if self.most is None:
            return None
        from syno.graph.symbols import SymbolicGraph

        if self.ranged is None:
            self.states = _states(args, self.static)
            try:
                self.ranged = SymbolicGraph(
                    self.graph, _names(self.states), self.settings, self.most, _tell
                )
            except SynoError as why:
                _log.info("a graph for each shape: %s", told(why))
                self.most = None
                return None
        sizes = self.ranged.sizes_of(args)
        if sizes is None:
            return None
        linked = self.ranged.at(sizes, args)
        return _Compiled(linked.imported, LinkedRunner(linked), self.states)


def _kind(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else value


class _Compiled:
    """A network, and the weights it was made with."""

    def __init__(
        self, imported: Imported, runner: Runner, states: Mapping[int, tuple[int, int]]
    ) -> None:
        self.weights = dict(states)
        self.imported, self.runner = imported, runner
        self.lock = threading.Lock()

    def __call__(self, args: Sequence[Any]) -> Any:
        """The results, with the weights as they are now."""
        if self.changed(args):
            with self.lock:
                changed = self.changed(args)
                if changed:
                    arrays = {f"weight_{n}": array_of(args[n].detach()) for n in changed}
                    self.runner.refresh(arrays)
                    self.weights.update({n: _state(args[n]) for n in changed})
        others = [arg for n, arg in enumerate(args) if n not in self.weights]
        if not self.as_given(others):  # says what differs
            others = list(self.imported.flatten(others, {}).values())
        if torch.is_grad_enabled():
            others = [tensor.detach() for tensor in others]
        return self.imported.unflatten(self.runner.run(others))

    def as_given(self, args: Sequence[Any]) -> bool:
        """Whether all are the tensors that the network was made for, which is nearly always so."""
        return len(args) == len(self.imported.given) and all(
            isinstance(arg, Tensor)
            and arg.dtype is each.dtype
            and arg.shape == each.shape
            and arg.is_cpu
            for arg, each in zip(args, self.imported.given, strict=True)
        )

    def changed(self, args: Sequence[Any]) -> list[int]:
        return [n for n, known in self.weights.items() if _state(args[n]) != known]


def _states(args: Sequence[Any], static: frozenset[int]) -> dict[int, tuple[int, int]]:
    """Of the arguments that are the model's own, by their positions; the same memory is one."""
    first: dict[int, int] = {}
    for n in sorted(static):
        if _is_weight(args[n]):
            first.setdefault(args[n].data_ptr(), n)
    return {n: _state(args[n]) for n in first.values()}


def _names(states: Mapping[int, Any]) -> dict[int, str]:
    return {n: f"weight_{n}" for n in states}


def _is_weight(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.numel() > 0
        and not value.is_inference()
    )


def _state(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor._version


class Runner:
    """An imported network, node by node in PyTorch."""

    def __init__(self, imported: Imported) -> None:
        self.network = imported.network

    def run(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """The outputs, of the inputs in order."""
        names = [value.name for value in self.network.inputs]
        made = run_reference(self.network, dict(zip(names, tensors, strict=True)))
        return [made[value.name] for value in self.network.outputs]

    def refresh(self, weights: Mapping[str, Array]) -> None:
        """Takes other values of weights."""
        self.network.weights.update(weights)


class CompiledRunner(Runner):
    """The same compiled."""

    def __init__(
        self, imported: Imported, settings: Mapping[str, Any], given: Sequence[Tensor] = ()
    ) -> None:
        from syno.graph import compile as compiling

        super().__init__(imported)
        known = {field.name for field in dataclasses.fields(compiling.Compiling)}
        chosen = compiling.Compiling(
            **{name: value for name, value in settings.items() if name in known}, remember=True
        )
        try:
            instead = given or None
            made = compiling.compile_network(self.network, settings=chosen, instead=instead)
        except HostRefusal:
            made = compiling.compile_network(self.network, given, settings=chosen)
        self.compiled, self.parts = made
        _tell(self.compiled)

    def run(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        made = self.compiled.run(list(tensors))
        return [each if isinstance(each, Tensor) else tensor_of(each) for each in made]

    def refresh(self, weights: Mapping[str, Array]) -> None:
        from syno.graph.compile import refreshed

        super().refresh(weights)
        refreshed(self.compiled, self.parts, self.network.weights)


class LinkedRunner(Runner):
    """A network for ranges of its sizes, at some of them."""

    def __init__(self, linked: Linked) -> None:
        super().__init__(linked.imported)
        self.linked = linked

    def run(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        made = self.linked.network.run(list(tensors))
        return [each if isinstance(each, Tensor) else tensor_of(each) for each in made]

    def refresh(self, weights: Mapping[str, Array]) -> None:
        from syno.graph.compile import refreshed

        super().refresh(weights)
        refreshed(self.linked.network, self.linked.parts, self.network.weights)


def compile_imported(
    imported: Imported, settings: Mapping[str, Any], given: Sequence[Tensor] = ()
) -> Runner:
    """What runs a network: compiled, but for one that computes nothing.

    Args:
        given: values of its inputs in order, on which it is checked where one of its functions refuses random ones, or hardly
            any number follows from these.
    """
    if not imported.network.nodes:
        return Runner(imported)
    return CompiledRunner(imported, settings, given)


def register() -> None:
    """Makes `backend="syno"` known where the package is not installed."""
    from torch._dynamo.backends import registry

    if "syno" not in registry._BACKENDS or registry._BACKENDS["syno"] is None:
        registry.register_backend(compiler_fn=syno_backend, name="syno")


register()
