"""Networks for sizes that calls bring along: compiled for a range, linked for each size as it is first seen.

A model is recorded at a few sizes; what it is at others follows (`syno.graph.families`). Each of its kernels is one
machine code for a range of sizes (`syno.dynamic`), with its weights packed once; a size that was not seen yet takes no
compilation, but a plan of the memory between the steps, and addresses. Where a network is another one at other sizes,
each size is compiled on its own.
"""

from __future__ import annotations

import copy
import logging
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from syno import _core
from syno.bounded import Bounded
from syno.cache import usable_cache
from syno.errors import (
    ArgumentError,
    KernelError,
    ScheduleError,
    ShapeError,
    unknown_name,
)
from syno.graph.building import Array
from syno.graph.calls import Imported
from syno.graph.compile import Compiling, _main_type, judged_on, sampled
from syno.graph.compiled import CompiledNetwork
from syno.graph.families import Extent, GraphFamily, shape_through
from syno.graph.folding import Folded, folded
from syno.graph.from_torch import CannotImport, from_module
from syno.graph.fusing import Joined, PredictedCost, constants_of, fused, fused_alike
from syno.graph.layout_names import ROW_MAJOR
from syno.graph.model import CompiledModel, compile_model
from syno.graph.stages import ENGINE, Stage, call_stage, kernel_stage, view_stage
from syno.inputs import arguments, described, unwrapped
from syno.kernel import Verification, schedule_of
from syno.notebook import Printed
from syno.numbers import whole
from syno.operator import Operator
from syno.prepack import PrepackedKernel

_log = logging.getLogger("syno.graph")

#: Sizes of which linked networks are kept; each takes its plan and, while it runs, the memory between its steps.
KEPT_SIZES = 64

#: A bucket's greatest size is at most so many times its least.
_RATIO = 2

_VECTOR = 16
_LARGEST = 2**20


@dataclass(frozen=True)
class Axis:
    """Dimensions of arguments that have the size, and its range."""

    name: str
    least: int
    greatest: int
    places: tuple[tuple[int | str, int], ...]
    """(argument, dimension)."""


@dataclass
class _Made:
    """What a bucket's machine code is made into at each size."""

    least: int
    greatest: int
    stages: list[Stage | None]
    """None: of each size alone, by `kernel_stage`."""
    general: dict[str, _core.Kernel] = field(default_factory=dict)
    """By stage: code with the size as its parameter."""


class _AtSize(CompiledNetwork):
    """A network at one size, with weights that it shares with the others."""

    def __init__(
        self,
        graph: _core.Graph,
        stages: Sequence[Stage],
        weights: Mapping[str, Array],
        shared: dict[str, Array],
        threads: int,
    ) -> None:
        self._shared = shared
        super().__init__(graph, stages, _cut(graph, weights), threads=threads)

    def _argument(self, name: str) -> tuple[str, int]:
        place = self._storage.places[name]
        if place.kind == "fixed" and place.name not in self._kept:
            array = self._weights[place.name]
            known = self._shared.get(place.name)
            if known is None or known.shape != array.shape:
                known = np.array(array, order="C")
                self._shared.setdefault(place.name, known)
            self._kept[place.name] = known
        return super()._argument(name)

    def update_weights(self, weights: Mapping[str, Array]) -> None:
        super().update_weights(_cut(self.graph, weights))


def _cut(graph: _core.Graph, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights as long as a graph has them: of those that the size is an extent of, the beginnings."""
    made = dict(weights)
    for name in graph.weights:
        if name in made:
            shape = tuple(graph.tensor(name)[0])
            if made[name].shape != shape:
                made[name] = np.ascontiguousarray(made[name][tuple(slice(n) for n in shape)])
    return made


class DynamicModel(Printed):
    """A model in inference, for a range of one size. Called as the model is, without gradients. Thread-safe.
    `syno.compile(model, example, dynamic=...)` makes it.

    Attributes:
        axis: the size, and which dimensions have it.
        by_size: why each size is compiled on its own; empty where code serves ranges.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Any,
        axis: Axis,
        settings: Mapping[str, Any],
        *,
        background: bool = False,
    ) -> None:
        self.axis = axis
        self._model, self._example = model, example
        self._settings, self._compiling = dict(settings), Compiling(**settings)
        self._background = background
        self._lock = threading.RLock()
        self._models: Bounded[int, CompiledModel] = Bounded(KEPT_SIZES)
        self._made: dict[tuple[int, int], _Made] = {}
        self._busy: dict[tuple[int, int], threading.Thread] = {}
        self._shared: dict[str, Array] = {}
        self._state: Any = None
        self.by_size = ""
        args, named = arguments(model, example)
        self._leaf = _leaf_of(args, named, axis)
        self.buckets = tuple(_buckets(axis.least, axis.greatest))
        try:
            with torch.no_grad():
                self._record()
                self._made_of((axis.least, axis.greatest))
                self._check()
                self._state = self._linked((axis.least, axis.greatest), axis.greatest)._state
        except (ShapeError, ScheduleError, CannotImport) as error:
            self.by_size = str(error)
            self._model_at(axis.greatest)

    # Calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the model.

        Raises:
            ShapeError: the size is outside of its range, or arguments are not those of the example.
            KernelError: an argument requires a gradient while torch records them.
        """
        return self._model_at(self._size_of(args, kwargs))(*args, **kwargs)

    def at(self, size: int) -> CompiledModel:
        """The model at one size, ready to be called."""
        return self._model_at(
            whole("dynamic", self.axis.name, size, self.axis.least, self.axis.greatest, ShapeError)
        )

    def wait(self) -> None:
        """Until no better code is being made in the background."""
        for worker in list(self._busy.values()):
            worker.join()

    @property
    def ready(self) -> tuple[tuple[int, int], ...]:
        """Buckets, as (least, greatest), of which the machine code is there."""
        return tuple(sorted(self._made))

    def __repr__(self) -> str:
        how = f"each size alone: {self.by_size}" if self.by_size else f"{len(self.buckets)} buckets"
        name = type(unwrapped(self._model)).__name__
        return f"<DynamicModel {name}: {self.axis.name} {self.axis.least} to {self.axis.greatest}, {how}>"

    def __str__(self) -> str:
        ready = ", ".join(f"{low}-{high}" for low, high in self.ready)
        return f"{self!r}\n  code is there for: {ready or 'none'}"

    # Sizes

    def _size_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        argument, dim = self.axis.places[0]
        given: Any = None
        if isinstance(argument, int) and argument < len(args):
            given = args[argument]
        elif argument in kwargs:
            given = kwargs[argument]
        else:
            leaves = pytree.tree_leaves(_bound(self._model, args, kwargs))
            if self._leaf < len(leaves):
                given = leaves[self._leaf]
        if not hasattr(given, "shape") or len(given.shape) <= dim:
            raise ShapeError(
                f"[dynamic] the argument {argument!r} is {described(given)}; its dimension {dim} gives {self.axis.name}"
            )
        size = int(given.shape[dim])
        if not self.axis.least <= size <= self.axis.greatest:
            raise ShapeError(
                f"[dynamic] the argument {argument!r} is {described(given)}: its dimension {dim} gives "
                f"{self.axis.name}={size}, and the model was compiled for {self.axis.least} to {self.axis.greatest}; "
                "pass a size within, or compile for a wider range"
            )
        return size

    def _model_at(self, size: int) -> CompiledModel:
        found = self._models.get(size)
        if found is not None:
            return found
        with self._lock, torch.no_grad():
            if self.by_size:
                made = compile_model(self._model, self._resized(size), self._settings)
                return self._models.setdefault(size, made)
            whole_range = (self.axis.least, self.axis.greatest)
            bucket = next(each for each in self.buckets if each[0] <= size <= each[1])
            if self._background and bucket not in self._made:
                self._make_beside(bucket)
                return self._linked(
                    whole_range, size
                )  # not kept: a later call may have the better one
            return self._models.setdefault(size, self._linked(bucket, size))

    def _make_beside(self, bucket: tuple[int, int]) -> None:
        if bucket not in self._busy:
            self._busy[bucket] = threading.Thread(
                target=self._make_quietly, args=(bucket,), daemon=True
            )
            self._busy[bucket].start()

    def _make_quietly(self, bucket: tuple[int, int]) -> None:
        try:
            with torch.no_grad():
                made = self._make(bucket)
            self._made[bucket] = made
        except Exception as error:  # whoever calls goes on with what there is
            _log.warning("no better code for the sizes %s to %s: %s", *bucket, error)

    # Recording

    def _resized(self, size: int) -> Any:
        """The example, with the size in its dimensions: rows of it again and again, or fewer of them."""
        args, named = arguments(self._model, self._example)
        everything = _everything(args, named)
        for argument, dim in self.axis.places:
            tensor = everything[argument]
            rows = torch.arange(size) % tensor.shape[dim]
            everything[argument] = tensor.index_select(dim, rows).contiguous()
        if named:
            return {name: everything[name] for name in named}
        return tuple(everything[place] for place in range(len(args)))

    def _record(self) -> None:
        axis = self.axis
        largest = self._representative(axis.greatest)
        least = max(axis.least, min(2, axis.greatest))
        sizes = sorted({largest, least, (least + largest) // 2 | 1, max(largest - 1, least)})
        sizes = [size for size in sizes if size <= largest]
        self._imported: dict[int, Imported] = {}
        parts: dict[int, Folded] = {}
        graphs: dict[int, _core.Graph] = {}
        decisions: list[Joined] = []
        for size in [largest, *(size for size in sizes if size != largest)]:
            imported = from_module(self._model, self._resized(size))
            parts[size] = folded(imported.network)
            graph = parts[size].call.graph().cleaned()
            self._imported[size] = imported
            self._dtype = _main_type(graph)
            if self._compiling.fuse and size == largest:
                graph, _, decisions = fused(
                    graph,
                    PredictedCost(self._dtype, self._compiling.threads),
                    dtype=self._dtype,
                    threads=self._compiling.threads,
                    directory=usable_cache() if self._compiling.cache else None,
                )
            elif self._compiling.fuse:
                joined = fused_alike(graph, decisions)
                if joined is None:
                    raise ShapeError(f"[dynamic] the network at size {size} has other nodes")
                graph = joined
            graphs[size] = graph
        self._largest = largest
        self._parts = parts[largest]
        self._family = GraphFamily(graphs)
        self._weights = dict(self._parts.call.weights)
        for size, each in parts.items():
            _check_weights(self._weights, each.call.weights, size)
        hosts = [n.function for n in graphs[largest].nodes if n.program is None]
        alone = [function for function in hosts if function not in ENGINE]
        if alone:
            raise ShapeError(
                f"[dynamic] PyTorch computes {alone[0]}, which is compiled for one size"
            )
        names = [each.name for each in self._imported[largest].given]
        self._given: dict[str, tuple[Extent, ...]] = {}
        for place, name in enumerate(names):
            shapes = {size: each.given[place].shape for size, each in self._imported.items()}
            self._given[name] = shape_through(shapes)
        for other in self._imported.values():
            if other.returned != self._imported[largest].returned:
                raise ShapeError("[dynamic] the model returns something else at other sizes")

    def _representative(self, greatest: int) -> int:
        """A size that code for sizes up to this one is made for: whole vectors, where the model can have them."""
        rounded = -(-greatest // _VECTOR) * _VECTOR
        if rounded == greatest:
            return greatest
        try:
            self._model_of(rounded)
        except Exception:  # whatever a model raises that cannot have so many
            return greatest
        return rounded

    def _model_of(self, size: int) -> None:
        args, named = arguments(self._model, self._resized(size))
        self._model(*args, **named)

    # Making

    def _made_of(self, bucket: tuple[int, int]) -> _Made:
        with self._lock:
            if bucket not in self._made:
                self._made[bucket] = self._make(bucket)
            return self._made[bucket]

    def _make(self, bucket: tuple[int, int]) -> _Made:
        low, high = bucket
        largest = min(-(-high // _VECTOR) * _VECTOR, max(self._largest, high))
        sizes = [largest]
        low = max(low, min(2, high))  # a single row makes another graph of many a network
        sizes += [
            size
            for size in sorted({low, (low + largest) // 2, largest - 1})
            if low <= size < largest
        ]
        graphs = [self._family.at(size) for size in sizes]
        nodes = [list(graph.nodes) for graph in graphs]
        made = _Made(bucket[0], high, [])
        for position, node in enumerate(nodes[0]):
            graph = graphs[0]
            if node.program is None:
                made.stages.append(call_stage(node, None, ""))
            elif graph.is_view(node.name):
                made.stages.append(view_stage(node, (node.name,)))
            elif all(_text(each[position]) == _text(node) for each in nodes):
                made.stages.append(
                    kernel_stage(
                        graph,
                        node,
                        _cut(graph, self._weights),
                        (node.name,),
                        threads=self._compiling.threads,
                        cache=self._compiling.cache,
                    )
                )
            else:
                programs = [_program(each[position]) for each in nodes]
                made.stages.append(self._general_stage(made, graph, node, sizes, programs))
        return made

    def _general_stage(
        self,
        made: _Made,
        graph: _core.Graph,
        node: _core.GraphNode,
        sizes: list[int],
        programs: list[_core.Program],
    ) -> Stage | None:
        """A kernel for all sizes of a bucket; None where each size needs its own."""
        largest = _program(node)
        fixed = [
            name
            for name in constants_of(graph, node)
            if all(each.shape(name) == largest.shape(name) for each in programs)
        ]
        dtype = str(graph.tensor(node.outputs[0])[1])
        threads, cache = self._compiling.threads, self._compiling.cache
        directory = usable_cache() if cache else None
        where = str(directory) if directory else ""
        operator = Operator(largest)
        try:
            live = _core.with_live_ends(
                [([size], program) for size, program in zip(sizes, programs, strict=True)], [_SIZE]
            )
            schedule = schedule_of(
                operator, dtype=dtype, threads=threads, constants=fixed, cache=cache
            ).schedule
            ranges = [(_SIZE, max(made.least, min(2, made.greatest)), made.greatest)]
            nests = _core.apply_prepacked(live, schedule, ranges)
            prepack: _core.Kernel | None = None
            if nests is None:
                nest = _core.apply_schedule(live, schedule, ranges)
            else:
                once = nests[0].specialised([made.greatest])  # of weights, which have no such size
                prepack, nest = _core.compile_nest(once, cache_directory=where), nests[1]
            call = _core.compile_nest(nest, cache_directory=where)
            verification = self._verify(node.name, prepack, call, ranges[0], operator, dtype)
        except (ShapeError, ScheduleError, _NotTheSame) as error:
            _log.info("%s is compiled for each size: %s", node.name, error)
            return None
        kernel = PrepackedKernel(
            operator,
            tuple(fixed),
            dtype,
            threads,
            schedule,
            prepack,
            call.at([made.greatest]),
            verification,
        )
        names = dict(zip(largest.inputs, node.inputs, strict=True))
        names |= zip(largest.outputs, node.outputs, strict=True)
        made.general[node.name] = call
        return Stage(
            node.name,
            "kernel",
            tuple(node.inputs),
            tuple(node.outputs),
            (node.name,),
            str(largest.short_text()),
            kernel=kernel,
            packed=kernel.pack(**{name: self._weights[names[name]] for name in fixed}),
            operator=operator,
            names=names,
            flops=operator.flops,
        )

    def _verify(
        self,
        name: str,
        prepack: _core.Kernel | None,
        call: _core.Kernel,
        sizes: tuple[str, int, int],
        operator: Operator,
        dtype: str,
    ) -> Verification:
        """At both ends and two sizes between, against the interpreter of each size's own program."""
        _, low, high = sizes
        draw = random.Random(repr((name, low, high)))
        result: Any = None
        for size in dict.fromkeys([low, high, draw.randint(low, high), draw.randint(low, high)]):
            program = _program(next(n for n in self._family.at(size).nodes if n.name == name))
            code = call.at([size])
            found = (
                code.verify(program)
                if prepack is None
                else _core.verify_prepacked(prepack, code, program)
            )
            if not found.passed:
                raise _NotTheSame(
                    f"[dynamic] {name} at size {size}: max_rel_err {found.max_rel_err:.1e} (limit {found.limit:.0e}); "
                    f"{found.detail}"
                )
            if result is None or found.max_rel_err > result.max_rel_err:
                result = found
        return Verification(
            True, result.max_rel_err, result.limit, result.points, result.detail, operator, dtype
        )

    # Linking

    def _linked(self, bucket: tuple[int, int], size: int) -> CompiledModel:
        """The model at a size of a bucket, by its machine code."""
        if (
            size == 1 and self.axis.greatest > 1
        ):  # a single row makes another graph of many a network
            return compile_model(self._model, self._resized(1), self._settings)
        made = self._made_of(bucket)
        network = self._network(made, size)
        largest = self._imported[self._largest]
        given = [
            each
            if each.dtype is None
            else replace(each, shape=tuple(extent.at(size) for extent in self._given[each.name]))
            for each in largest.given
        ]
        args, named = arguments(self._model, self._resized(size))
        compiled = CompiledModel(
            unwrapped(self._model),
            replace(largest, given=given),
            network,
            self._parts,
            (args, named),
        )
        if self._state is not None and compiled._state != self._state:  # weights changed by now
            compiled.renew(everything=True)
        return compiled

    def _network(self, made: _Made, size: int) -> CompiledNetwork:
        graph = self._family.at(size)
        stages = []
        for node, stage in zip(graph.nodes, made.stages, strict=True):
            if stage is None:
                stage = kernel_stage(
                    graph,
                    node,
                    _cut(graph, self._weights),
                    (node.name,),
                    threads=self._compiling.threads,
                    cache=self._compiling.cache,
                )
            elif node.name in made.general:
                kernel = copy.copy(stage.kernel)
                assert kernel is not None and node.program is not None
                kernel._call = made.general[node.name].at([size])
                kernel.operator = Operator(node.program)
                stage = replace(stage, kernel=kernel, operator=kernel.operator)
            stages.append(stage)
        return _AtSize(graph, stages, self._weights, self._shared, self._compiling.threads)

    def _check(self) -> None:
        """The whole network against float64 at sizes that it was recorded at, by the code for the whole range."""
        if not self._compiling.verify:
            return
        made = self._made[(self.axis.least, self.axis.greatest)]
        for size, imported in self._imported.items():
            if size > self.axis.greatest:
                continue
            args, named = arguments(self._model, self._resized(size))
            given = imported.flatten(args, named)
            network = self._network(made, size)
            values = [given[value.name] for value in imported.network.inputs]
            check = judged_on(network, imported.network, sampled(network, imported.network, values))
            if not check:
                raise KernelError(f"[dynamic] {imported.network.name} at size {size}: {check}")


_SIZE = "size_"


def _program(node: _core.GraphNode) -> _core.Program:
    assert node.program is not None
    return node.program


def _text(node: _core.GraphNode) -> str:
    return str(_program(node).text())


class _NotTheSame(KernelError):
    """Code for a range of sizes computes something else at one of them."""


def _check_weights(largest: Mapping[str, Array], others: Mapping[str, Array], size: int) -> None:
    """That weights are the beginnings of those of the largest size."""
    for name, array in others.items():
        held = largest.get(name)
        whole_of = (
            held is not None
            and held.ndim == array.ndim
            and all(n <= most for n, most in zip(array.shape, held.shape, strict=True))
        )
        same = whole_of and np.array_equal(
            held[tuple(slice(n) for n in array.shape)],  # type: ignore[index]
            array,
            equal_nan=array.dtype.kind == "f",
        )
        if not same:
            raise ShapeError(
                f"[dynamic] {name} at size {size} is no part of what it is at the largest"
            )


def _buckets(least: int, greatest: int) -> list[tuple[int, int]]:
    """From the greatest down, none wider than `_RATIO`."""
    found = []
    high = greatest
    while high >= least:
        low = max(least, high // _RATIO + 1)
        if low - least < _VECTOR:
            low = least
        found.append((low, high))
        high = low - 1
    return found[::-1]


def _bound(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import inspect

    try:
        return dict(inspect.signature(unwrapped(model).forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return (args, kwargs)


def _everything(args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[int | str, Any]:
    """Arguments by position, or by name."""
    made: dict[int | str, Any] = dict(enumerate(args))
    made.update(named)
    return made


def _leaf_of(args: tuple[Any, ...], named: dict[str, Any], axis: Axis) -> int:
    """Which leaf of a call's arguments has the size."""
    argument, _ = axis.places[0]
    everything = _everything(args, named)
    before = list(everything)[: list(everything).index(argument)]
    return sum(len(pytree.tree_leaves(everything[each])) for each in before)


def axis_of(dynamic: Any, model: Any, example: Any) -> Axis:
    """What a caller gave: {argument: {dimension: (name, least, greatest)}}, or with `torch.export.Dim` for the triple.

    Raises:
        ArgumentError: it is no such dictionary, or has several sizes.
        UnknownName: there is no such argument.
        ShapeError: a dimension that a tensor has not, or a range that is none.
    """
    form = 'such as {"ids": {1: ("n", 24, 512)}}: by argument, by dimension, the size\'s name and range'
    if not isinstance(dynamic, Mapping) or not dynamic:
        raise ArgumentError(f"[dynamic] dynamic={dynamic!r}", fix=f"give a dictionary {form}")
    args, named = arguments(model, example)
    everything = _everything(args, named)
    positions = _names(model)
    places: list[tuple[int | str, int]] = []
    seen: set[tuple[str, int, int]] = set()
    for argument, dims in dynamic.items():
        place = argument
        if isinstance(argument, str) and argument not in everything and argument in positions:
            place = positions.index(argument)
        if place not in everything or isinstance(place, bool):
            raise unknown_name(
                "argument", str(argument), [str(key) for key in everything] + positions
            )
        tensor = everything[place]
        if not isinstance(dims, Mapping) or not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"[dynamic] {argument!r}: {described(dims)} for {described(tensor)}",
                fix=f"give dimensions of a tensor, {form}",
            )
        for dim, size in dims.items():
            dim = whole("dynamic", "the dimension", dim, 0, tensor.ndim - 1, ShapeError)
            seen.add(_range_of(size, form))
            places.append((place, dim))
    if len(seen) != 1:
        raise ArgumentError(
            f"[dynamic] {len(seen)} sizes: {sorted(seen)}",
            fix="a network has one size that calls bring along",
        )
    name, least, greatest = seen.pop()
    return Axis(name, least, greatest, tuple(places))


def _names(model: Any) -> list[str]:
    import inspect

    try:
        return list(inspect.signature(unwrapped(model).forward).parameters)
    except (TypeError, ValueError):
        return []


def _range_of(size: Any, form: str) -> tuple[str, int, int]:
    if hasattr(size, "min") and hasattr(size, "max") and hasattr(size, "__name__"):
        size = (size.__name__, size.min, size.max)
    if not isinstance(size, (tuple, list)) or len(size) != 3 or not isinstance(size[0], str):
        raise ArgumentError(f"[dynamic] {size!r} is no size with its range", fix=f"give one {form}")
    name = size[0]
    least = whole("dynamic", f"the least {name}", size[1], 1, _LARGEST, ShapeError)
    greatest = whole("dynamic", f"the greatest {name}", size[2], 1, _LARGEST, ShapeError)
    if greatest < least:
        raise ShapeError(
            f"[dynamic] {name}=({least}, {greatest}): its least value is above its greatest"
        )
    return name, least, greatest


def compile_dynamic_model(
    model: nn.Module,
    example: Any,
    dynamic: Any,
    settings: Mapping[str, Any],
    *,
    background: bool = False,
) -> DynamicModel:
    """What `syno.compile` does with a module and `dynamic`."""
    if settings.get("layouts", ROW_MAJOR) != ROW_MAJOR or settings.get("derive", False):
        raise ArgumentError(
            "[dynamic] layouts and derived programs are chosen for one size",
            fix="leave out layouts and derive, or compile for one size",
        )
    return DynamicModel(
        model, example, axis_of(dynamic, model, example), settings, background=background
    )
