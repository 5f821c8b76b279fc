"""PyTorch models for sizes that calls bring along: called as the model is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from syno.errors import ArgumentError
from syno.graph.axes import Axes, Finder, axes_of
from syno.graph.building import Network
from syno.graph.calls import Imported
from syno.graph.checking import Check
from syno.graph.compile import check
from syno.graph.dynamic import DynamicNetwork, Linked
from syno.graph.extents import Sizes
from syno.graph.layout_names import ROW_MAJOR
from syno.graph.model import CompiledModel, Held, held_by
from syno.graph.recording import Recorder
from syno.graph.spans import KEPT_SIZES, Span, span_text
from syno.support.bounded import Bounded
from syno.support.inputs import arguments, unwrapped
from syno.support.notebook import Printed


class DynamicModel(Printed):
    """A model in inference, for ranges of its sizes. Called as the model is, without gradients. Thread-safe.
    `syno.compile(model, example, dynamic=...)` makes it.

    Attributes:
        axes: the sizes, and which dimensions have them.
        network: what it is compiled to.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Any,
        axes: Axes,
        settings: Mapping[str, Any],
        *,
        background: bool = False,
    ) -> None:
        self.axes = axes
        self._model = model
        self._args, self._named = arguments(model, example)
        self._sizes_of = Finder(model, axes, self._args, self._named)
        self._models: Bounded[Sizes, CompiledModel] = Bounded(KEPT_SIZES)
        self._meanwhile: Bounded[Sizes, tuple[Linked, CompiledModel]] = Bounded(KEPT_SIZES)
        self._held: Bounded[int, tuple[Network, Held]] = Bounded(KEPT_SIZES)
        self._recorder = Recorder(model, axes, self._args, self._named)
        self.network = DynamicNetwork(
            self._recorder.at,
            axes.ranges,
            settings,
            proven=self._recorder.proves,
            values=self._values,
            fits=self._runs,
            background=background,
        )
        self._state = self.made_of(self.network.at(axes.ranges.greatest))._state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the model.

        Raises:
            ShapeError: a size is outside of its range, or arguments are not those of the example.
            KernelError: an argument requires a gradient while torch records them.
        """
        sizes = self._sizes_of(args, kwargs)
        found = self._models.get(sizes)
        return (found if found is not None else self._model_at(sizes))(*args, **kwargs)

    def at(self, *values: int, **sizes: int) -> CompiledModel:
        """The model at these sizes, by name or in their order, ready to be called.

        Raises:
            ShapeError: a size is missing, or outside of its range.
            UnknownName: of a size that there is not.
        """
        named = dict(zip(self.axes.ranges.names, values, strict=False))
        if len(values) > len(named):
            raise ArgumentError(
                f"[dynamic] {len(values)} sizes", fix=f"the model has {', '.join(named)}"
            )
        return self._model_at(self.axes.ranges.checked({**named, **sizes}))

    def wait(self) -> None:
        """Until no better code is being made in the background."""
        self.network.wait()

    @property
    def by_size(self) -> str:
        """Why each size is compiled on its own; empty where code serves ranges."""
        return self.network.by_size

    @property
    def buckets(self) -> tuple[Span, ...]:
        """Ranges that have machine code of their own: the least and the greatest sizes of each."""
        return self.network.buckets

    @property
    def ready(self) -> tuple[Span, ...]:
        """Ranges of which the machine code is there."""
        return self.network.ready

    @property
    def fallbacks(self) -> dict[str, str]:
        """Steps that PyTorch computes, at the sizes of each call, and why."""
        return self.network.at(self.axes.ranges.greatest).network.fallbacks

    def __repr__(self) -> str:
        how = f"each size alone: {self.by_size}" if self.by_size else f"{len(self.buckets)} buckets"
        name = type(unwrapped(self._model)).__name__
        return f"<DynamicModel {name}: {self.axes.ranges}, {how}>"

    def __str__(self) -> str:
        ready = "; ".join(map(span_text, self.ready))
        return f"{self!r}\n  code is there for: {ready or 'none'}"

    # Making

    def _values(self, sizes: Sizes, imported: Imported) -> Sequence[Any]:
        args, named = self._recorder.given(sizes)
        given = imported.flatten(args, named)
        return [given[value.name] for value in imported.network.inputs]

    def _runs(self, sizes: Sizes) -> bool:
        args, named = self._recorder.given(sizes)
        try:
            with torch.no_grad():
                self._model(*args, **named)
        except Exception:  # whatever a model raises that cannot have so many
            return False
        return True

    def _model_at(self, sizes: Sizes) -> CompiledModel:
        found = self._models.get(sizes)
        if found is not None:
            return found
        linked = self.network.at(sizes)
        meanwhile, made = self._meanwhile.get(sizes) or (None, None)
        if made is None or meanwhile is not linked:
            made = self.made_of(linked)
        if made._state != self._state:  # weights changed by now
            made.renew(everything=True)
        if self.network.is_kept(linked):
            made = self._models.setdefault(sizes, made)
            self._meanwhile.discard(sizes)
        elif meanwhile is not linked:
            self._meanwhile.discard(sizes)
            self._meanwhile.setdefault(sizes, (linked, made))
        return made

    def made_of(self, linked: Linked) -> CompiledModel:
        """The model by a network at some of its sizes."""
        network, model = linked.imported.network, unwrapped(self._model)
        kept = self._held.get(id(network))
        if kept is None:  # of all sizes but those that are compiled alone the same
            kept = self._held.setdefault(id(network), (network, held_by(model, linked.imported)))
        return _SizedModel(
            model,
            linked,
            kept[1],
            self._recorder.given(linked.sizes),
            lambda: self._recorder.plain(linked.sizes),
        )


class _SizedModel(CompiledModel):
    """A model at some of its sizes."""

    def __init__(
        self, model: nn.Module, linked: Linked, held: Held, example: Any, record: Any
    ) -> None:
        super().__init__(model, linked.imported, linked.network, linked.parts, example, held)
        self._record = record

    def verify(self, *args: Any, seed: int = 0, **kwargs: Any) -> Check:
        with torch.no_grad():
            imported = self._record()
        given = None
        if args or kwargs:
            named = imported.flatten(args, kwargs)
            given = [named[value.name] for value in imported.network.inputs]
        return check(self.network, imported.network, given, seed)


def compile_dynamic_model(
    model: nn.Module,
    example: Any,
    dynamic: Any,
    settings: Mapping[str, Any],
    *,
    background: bool = False,
) -> DynamicModel:
    """What `syno.compile` does with a module and `dynamic`."""
    refuse_one_size(settings)
    return DynamicModel(
        model, example, axes_of(dynamic, model, example), settings, background=background
    )


def refuse_one_size(settings: Mapping[str, Any]) -> None:
    """Raises: ArgumentError: options that are for one size."""
    if settings.get("layouts", ROW_MAJOR) != ROW_MAJOR or settings.get("derive", False):
        raise ArgumentError(
            "[dynamic] layouts and derived programs are chosen for one size",
            fix="leave out layouts and derive, or compile for one size",
        )
