"""A PyTorch model compiled whole: called as the model is."""

from __future__ import annotations

import html
import operator
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from syno.errors import KernelError, ShapeError
from syno.graph.building import Array
from syno.graph.calls import Imported
from syno.graph.checking import Check
from syno.graph.compile import Compiling, check, compile_network, refreshed
from syno.graph.compiled import CompiledNetwork, Profile
from syno.graph.folding import Folded
from syno.graph.from_torch import from_module
from syno.graph.tensors import array_of, tensor_of
from syno.support.inputs import arguments, as_inputs, described, unwrapped

_version_of = operator.attrgetter("_version")
_held_at: Any = dict.get


class CompiledModel:
    """A model in inference, at the shapes of its example. Called with what the model is called with, it returns what the
    model returns, without gradients. Thread-safe. `syno.compile(model, example)` makes it.

    Values of parameters and buffers that change after compilation are seen at the next call, and packed again; a call
    that runs meanwhile on another thread may see either. What is written past autograd (through `weight.data`, or into
    tensors made in inference mode) is not seen; `renew(everything=True)` takes it.

    Attributes:
        network: the compiled network: its steps, memory, check.
        imported: how a call of the model becomes one of the network.
    """

    def __init__(
        self,
        model: nn.Module,
        imported: Imported,
        network: CompiledNetwork,
        parts: Folded,
        example: Any,
        held: Held | None = None,
    ) -> None:
        self.network = network
        self.imported = imported
        self._parts = parts
        self._example = example
        self._lock = threading.Lock()
        held = held_by(model, imported) if held is None else held
        self._tracked, self._frozen = held.tracked, held.frozen
        self._homes = [home for home, _ in held.watched]
        self._keys = [key for _, key in held.watched]
        self._state = self._now()
        self._plain = _plain(imported, network, example)
        """Shapes and types of arguments that are tensors, given in order: what need not be looked at further."""
        names = [each.name for each in imported.given]
        self._order = [names.index(name) for name in network.inputs] if self._plain else []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the model.

        Raises:
            ShapeError: arguments of another structure, shape or type than the example's.
            KernelError: an argument requires a gradient while torch records them.
        """
        self.renew()
        given = None if kwargs else self._as_example(args)
        made = None if given is None else self.network.run_where_they_lie(given)
        if made is not None:
            return self.imported.unflatten(made)
        return self.run(self.flatten(args, kwargs))

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The network's inputs in order, of a call's arguments.

        Raises:
            ShapeError: as a call.
        """
        given = None if kwargs else self._as_example(args)
        if given is not None:
            return given
        named = self.imported.flatten(args, kwargs)
        return [named[name] for name in self.network.inputs]

    def _as_example(self, args: Sequence[Any]) -> list[Tensor] | None:
        """The network's inputs in order, where arguments are tensors as the example's were; else None."""
        if self._plain is None or len(args) != len(self._plain):
            return None
        for given, (shape, dtype) in zip(args, self._plain, strict=True):
            if type(given) is not Tensor or given.shape != shape or given.dtype is not dtype:
                return None
            if not given.is_cpu:
                return None
        return [args[place] for place in self._order]

    def run(self, inputs: Sequence[Tensor], *, num_threads: int | None = None) -> Any:
        """What the model returns, of the network's inputs in order and the weights as they were last taken."""
        made = self.network.run(inputs, num_threads=num_threads)
        return self.imported.unflatten([_tensor(each) for each in made])

    def renew(self, *, everything: bool = False) -> None:
        """Takes the values that parameters and buffers have by now.

        Args:
            everything: also of those that seem unchanged: what is written past autograd (through `weight.data`) is
                seen by nobody.
        Raises:
            ShapeError: a parameter has another shape or type.
            KernelError: a buffer that is part of programs was changed.
        """
        now = self._now()
        if everything or now != self._state:
            count = len(self._tracked)
            beside = any(
                new[count:] != old[count:] for new, old in zip(now, self._state, strict=True)
            )
            self._refresh(everything or beside)
        stale = self.imported.stale() or next(
            (name for name, home, key, was in self._frozen if home.get(key) is not was), None
        )
        if stale is not None:
            raise KernelError(
                f"[network] the buffer {stale} became part of the compiled programs and was changed; compile again"
            )

    @property
    def requires_grad(self) -> bool:
        """Whether one of the model's parameters does."""
        return any(
            tensor is not None and tensor.requires_grad
            for _, home, key in self._tracked
            for tensor in (home.get(key),)
        )

    def given(self, example: Any = None) -> list[Tensor]:
        """The network's inputs in order, of what the model is called with: a tensor, a tuple of arguments, or a dictionary
        of named ones; default the example it was compiled with.

        Raises:
            ShapeError: it has another structure, shape or type than that.
        """
        if example is None:
            return self.flatten(*self._example)
        made = as_inputs(example)
        ways: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((made,), {})]
        if isinstance(made, Mapping):
            ways.insert(0, ((), dict(made)))
        elif isinstance(made, (tuple, list)):
            ways.insert(0, (tuple(made), {}))
        for args, named in ways[:-1]:
            try:
                return self.flatten(args, named)
            except (ShapeError, TypeError):
                continue
        return self.flatten(*ways[-1])

    def verify(self, *args: Any, seed: int = 0, **kwargs: Any) -> Check:
        """Compares with float64, on these arguments or on random inputs of a seed."""
        if not args and not kwargs:
            return check(self.network, self.imported.network, None, seed)
        given = self.imported.flatten(args, kwargs)
        return check(self.network, self.imported.network, [given[n] for n in self.network.inputs])

    def profile(self, *args: Any, turns: int = 15, **kwargs: Any) -> Profile:
        """Times of each step on these arguments; the example's where none are given. Microseconds, medians."""
        if not args and not kwargs:
            args, kwargs = self._example
        given = self.imported.flatten(args, kwargs)
        return self.network.profile(*[given[name] for name in self.network.inputs], turns=turns)

    def dot(self) -> str:
        """The fused graph in Graphviz's language."""
        return self.network.dot()

    def to_svg(self, path: str | Path | None = None) -> str:
        """A picture of the steps in the order they run in, with their predicted times; written to `path`, too.

        `fast.profile().to_svg(path)` draws measured ones.

        Raises:
            FormatError: it cannot be written.
        """
        return self.network.to_svg(path)

    @property
    def fallbacks(self) -> dict[str, str]:
        """Steps that PyTorch computes, and why."""
        return self.network.fallbacks

    def __str__(self) -> str:
        return str(self.network)

    def __repr__(self) -> str:
        return repr(self.network).replace("CompiledNetwork", "CompiledModel", 1)

    def _repr_html_(self) -> str:
        return self.network._repr_html_() or f"<pre>{html.escape(repr(self))}</pre>"

    def _now(self) -> tuple[list[int | None], list[int | None]]:
        """Versions of the tensors that are watched, and where they lie. Most of what a small network's call takes beside
        its kernels: so there is no loop here where all of them are tensors."""
        tensors = list(map(_held_at, self._homes, self._keys))
        try:
            return list(map(_version_of, tensors)), list(map(Tensor.data_ptr, tensors))
        except (AttributeError, TypeError, RuntimeError):
            # A tensor made in inference mode has no version, and what was taken away is no tensor.
            known = [tensor if isinstance(tensor, Tensor) else None for tensor in tensors]
            versions = [
                None if t is None else -1 if t.is_inference() else int(t._version) for t in known
            ]
            return versions, [None if t is None else t.data_ptr() for t in known]

    def _refresh(self, everything: bool) -> None:
        with self._lock:
            now = self._now()
            changed = {}
            same = [v == w and p == q for v, p, w, q in zip(*self._state, *now, strict=True)]
            for (name, home, key), unchanged in zip(self._tracked, same):  # noqa: B905
                if everything or not unchanged:
                    changed[name] = _same_kind(
                        name, self.imported.network.weights[name], home.get(key)
                    )
            weights = {**self.imported.network.weights, **changed}
            self.imported.network.weights.update(changed)
            refreshed(self.network, self._parts, weights)
            self._state = now


def compile_model(model: nn.Module, example: Any, settings: Mapping[str, Any]) -> CompiledModel:
    """What `syno.compile` does with a module.

    Raises:
        CannotImport: the model is no graph of tensors that can be recorded.
        KernelError: the compiled network computes something else.
    """
    with torch.no_grad():
        imported = from_module(model, example)
        args, named = arguments(model, example)
        given = imported.flatten(args, named)
        values = [given[value.name] for value in imported.network.inputs]
        network, parts = compile_network(imported.network, values, settings=Compiling(**settings))
    return CompiledModel(unwrapped(model), imported, network, parts, (args, named))


def _plain(
    imported: Imported, network: CompiledNetwork, example: Any
) -> list[tuple[torch.Size, torch.dtype]] | None:
    args, named = example
    if named or len(args) != len(imported.given):
        return None
    if not all(isinstance(arg, Tensor) for arg in args):
        return None
    # Those that the network reads, as they are.
    for each, arg in zip(imported.given, args, strict=True):
        kind = tuple(arg.shape), str(arg.dtype).removeprefix("torch.")
        if network.inputs.get(each.name, kind) != kind:
            return None
    return [(arg.shape, arg.dtype) for arg in args]


@dataclass(frozen=True)
class Held:
    """Where a model holds the tensors that a network was made of, and others that change with them."""

    tracked: list[tuple[str, Mapping[str, Any], str]]
    """(weight of the network, dictionary of the model, key there)"""
    watched: list[tuple[Mapping[str, Any], str]]
    frozen: list[tuple[str, Mapping[str, Any], str, Tensor]]


def held_by(model: nn.Module, imported: Imported) -> Held:
    """What `CompiledModel` looks at in each call; the same for a network at all of its sizes."""
    tracked = list(_homes(model, imported))
    read = {(id(home), key) for _, home, key in tracked}
    # With buffers that the network does not read: PyTorch's normalisations write their statistics past autograd, and
    # count batches beside.
    beside = [
        (module._buffers, key)
        for module in model.modules()
        for key in module._buffers
        if (id(module._buffers), key) not in read
    ]
    frozen = [
        (source, home, key, tensor)
        for source, tensor, _ in imported.frozen
        for home, key in _places(model, source)
        if home.get(key) is tensor
    ]
    return Held(tracked, [*((home, key) for _, home, key in tracked), *beside], frozen)


def _homes(model: nn.Module, imported: Imported) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """(weight of the network, dictionary of the model that holds its tensor, key there): what is assigned there later is
    seen, too."""
    for name, source in imported.network.sources.items():
        for home, key in _places(model, source):
            yield name, home, key


def _places(model: nn.Module, source: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The dictionary of a model that holds the tensor of this name, and its key there."""
    path, _, key = source.rpartition(".")
    try:
        owner = model.get_submodule(path)
    except AttributeError:
        return
    for home in (owner._parameters, owner._buffers):
        if isinstance(home.get(key), Tensor):
            yield home, key


def _same_kind(name: str, old: Array, tensor: Any) -> Array:
    here = isinstance(tensor, Tensor) and tensor.device.type == "cpu"
    if not here or tuple(tensor.shape) != old.shape:
        raise ShapeError(
            f"[network] the model's {name} was {list(old.shape)} when it was compiled, and is {described(tensor)} now; "
            "compile again"
        )
    array = array_of(tensor.detach())
    if array.dtype != old.dtype:
        raise ShapeError(
            f"[network] the model's {name} was {old.dtype} when it was compiled, and is {array.dtype} now; compile again"
        )
    return array


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else tensor_of(value)
