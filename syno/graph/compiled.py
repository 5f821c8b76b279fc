"""A network as one native call: its steps in order, its tensors in one planned piece of memory, its weights packed."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syno import _core
from syno.graph.building import DTYPES, Array, Network
from syno.graph.calling import NetworkCall
from syno.graph.checking import Check, Sample, same_bytes
from syno.graph.drawing import to_svg
from syno.graph.stages import Stage, order_of, pack_anew
from syno.graph.storage import Place, Storage, bytes_of, stored
from syno.support.notebook import Printed, facts, table

if TYPE_CHECKING:
    from syno.graph.layouts import Chosen
    from syno.graph.loaded import NetworkFolder


class CompiledNetwork(NetworkCall):
    """A network for one set of shapes. Thread-safe; `syno.compile` makes it.

    Attributes:
        stages: the steps, in order.
        graph: what they compute, as a graph of programs after fusion.
        original: the network as it was imported, by which it is checked.
        sample: the example that it was checked on, as long as its weights are those of then.
        layouts: how its tensors were given theirs, and what that is predicted to gain; None where all are row-major.
    """

    def __init__(
        self,
        graph: _core.Graph,
        stages: Sequence[Stage],
        weights: Mapping[str, Array],
        *,
        threads: int = 1,
    ) -> None:
        self.graph = graph
        self.stages = tuple(stages)
        self.threads = threads
        self.verification: Check | None = None
        self.original: Network | None = None
        self.sample: Sample | None = None
        self.notes: tuple[str, ...] = ()
        self.layouts: Chosen | None = None
        self._weights = dict(weights)
        self._kept: dict[str, Array] = {}  # what steps read as it is: memory of our own
        self._storage: Storage = stored(graph, self.stages)
        self._inputs = [(name, *_kind(graph, name)) for name in graph.inputs]
        self._outputs = [(name, *_kind(graph, name)) for name in graph.outputs]
        self._running = [stage for stage in self.stages if stage.kind != "view"]
        self._lock = threading.Lock()
        self._executable = self._linked()

    # Calling

    def __call__(self, *arrays: Any, out: Any = None, num_threads: int | None = None) -> Any:
        """Computes the network's outputs, and no gradients.

        Args:
            arrays: its inputs in order: torch tensors or arrays of the shapes and element types of `inputs`, with any
                strides (what is not row-major is copied).
            out: row-major arrays to write to, one for each output; default new ones.
            num_threads: default `threads`.
        Returns:
            One output, or a tuple of them; torch tensors when the first input is one, else NumPy arrays.
        Raises:
            ShapeError: an array is missing, or of another shape.
            KernelError: of another element type or device, or requires a gradient while torch records them.
        """
        results = self.run(arrays, out=out, num_threads=num_threads)
        return results[0] if len(results) == 1 else tuple(results)

    # Looking inside

    @property
    def storage(self) -> Storage:
        """Where each tensor lies."""
        return self._storage

    @property
    def weights(self) -> Mapping[str, Array]:
        """Of the graph, by name, as they were before they were packed."""
        return self._weights

    @property
    def fallbacks(self) -> dict[str, str]:
        """Steps that PyTorch computes, and why."""
        return {stage.name: stage.reason for stage in self.stages if stage.kind == "host"}

    @property
    def arena_bytes(self) -> int:
        """Memory of a running call for what lies between its steps."""
        return int(self._storage.arena_bytes)

    @property
    def live_bytes(self) -> int:
        """The least that any plan of this memory needs."""
        return self._storage.live_bytes

    @property
    def weight_bytes(self) -> int:
        """Of the weights as they are kept: packed, and those that steps read as they are."""
        packed = {
            id(buffer): int(buffer.nbytes)  # what steps share counts once
            for stage in self.stages
            if stage.packed is not None
            for buffer in stage.packed.buffers.values()
        }
        return sum(packed.values()) + sum(int(array.nbytes) for array in self._kept.values())

    def profile(self, *arrays: Any, turns: int = 15) -> Profile:
        """Times each step on these inputs, and the whole; microseconds, medians."""
        steps, total_us = self.timed(arrays, turns)
        times = {
            stage.name: 1e6 * seconds for stage, seconds in zip(self._running, steps, strict=False)
        }
        return Profile(self, times, total_us)

    def to_dict(self) -> dict[str, Any]:
        """Steps, memory and check, for JSON."""
        check = self.verification
        return {
            "name": self.graph.name,
            "key": self.graph.key(),
            "threads": self.threads,
            "inputs": {name: [dtype, list(shape)] for name, shape, dtype in self._inputs},
            "outputs": {name: [dtype, list(shape)] for name, shape, dtype in self._outputs},
            "stages": [
                {
                    "name": stage.name, "by": stage.kind, "nodes": list(stage.nodes), "computes": stage.what,
                    "reason": stage.reason, "predicted_us": stage.predicted_us, "multiply_adds": stage.flops,
                    "of_peak": stage.of_peak, "limit": stage.limit, "derived": stage.derived,
                    "derived_error": stage.derived_error,
                    "layouts": layouts_of(self.graph, stage),
                }
                for stage in self.stages
            ],
            "layouts": None if self.layouts is None else self.layouts.to_dict(),
            "fallbacks": self.fallbacks,
            "arena_bytes": self.arena_bytes,
            "live_bytes": self.live_bytes,
            "weight_bytes": self.weight_bytes,
            "max_rel_err": None if check is None else check.max_rel_err,
            "limit": None if check is None else check.limit,
        }  # fmt: skip

    def dot(self) -> str:
        """The fused graph in Graphviz's language."""
        return str(self.graph.dot())

    def to_svg(
        self, path: str | Path | None = None, *, times_us: Mapping[str, float] | None = None
    ) -> str:
        """A picture of the steps in the order they run in, with their predicted times.

        Args:
            path: written there, too.
            times_us: measured times by step, drawn instead: a profile's.
        Raises:
            FormatError: it cannot be written.
        """
        return to_svg(self, path, times_us)

    def __repr__(self) -> str:
        kernels = sum(stage.kind == "kernel" for stage in self.stages)
        return (
            f"<CompiledNetwork {self.graph.name}: {kernels} kernels, {len(self.fallbacks)} PyTorch functions, "
            f"{sum(stage.flops for stage in self.stages):,} multiply-adds>"
        )

    def __str__(self) -> str:
        return printed(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    # Weights

    def update_weights(self, weights: Mapping[str, Array]) -> None:
        """Takes other values of weights (by the graph's names), for this and all later calls. No call may run meanwhile."""
        with self._lock:
            changed = False
            for name, array in weights.items():
                if name in self._weights:
                    self._weights[name] = array
                if name in self._kept:
                    changed |= not same_bytes(self._kept[name], array)
                    self._kept[name][...] = array
            for stage in self.stages:
                changed |= pack_anew(stage, self._weights)
            if changed:
                self.sample = None

    # Linking

    def _argument(self, name: str) -> tuple[str, int]:
        place: Place = self._storage.places[name]
        if place.kind == "fixed":
            if place.name not in self._kept:
                self._kept[place.name] = np.array(self._weights[place.name], order="C")
            return ("fixed", self._kept[place.name].ctypes.data)
        return (place.kind, place.at)

    def _linked(self) -> _core.Executable:
        steps: list[Any] = []
        hosts: dict[int, HostStep] = {}
        for stage in self._running:
            if stage.kind == "kernel":
                assert stage.kernel is not None
                arguments = [
                    ("fixed", address) if address is not None else self._argument(name)
                    for name, address in order_of(stage)
                ]
                steps.append(("kernel", stage.kernel.call, stage.kernel.runs_on, arguments))
                continue
            arguments = [self._argument(name) for name in (*stage.inputs, *stage.outputs)]
            if stage.kind == "engine":
                kinds = [self._described(name) for name in (*stage.inputs, *stage.outputs)]
                steps.append(
                    ("builtin", stage.what, stage.attributes, kinds, len(stage.inputs), arguments)
                )
            else:
                from syno.graph.hosting import HostStep

                kinds = [self._described(name) for name in (*stage.inputs, *stage.outputs)]
                hosts[len(steps)] = HostStep(stage, kinds)
                steps.append(("host", arguments))
        for name, number in self._storage.copies:
            kind = self._described(name)
            arguments = [self._argument(name), ("external", number)]
            steps.append(("builtin", "copy", "{}", [kind, kind], 1, arguments))
        self._hosts = hosts
        return _core.Executable(
            steps,
            self._storage.arena_bytes,
            len(self._inputs) + len(self._outputs),
            self._run_host if hosts else None,
        )

    def _described(self, name: str) -> tuple[list[int], str]:
        shape, dtype, _ = self.graph.tensor(name)
        return (list(shape), dtype)

    def _run_host(self, step: int, addresses: Sequence[int]) -> None:
        self._hosts[step].run(addresses)


class Profile(Printed):
    """Times of a compiled network's steps on this machine, beside what is predicted."""

    def __init__(
        self,
        network: CompiledNetwork | NetworkFolder,
        times_us: Mapping[str, float],
        total_us: float,
    ) -> None:
        self.network = network
        self.times_us = dict(times_us)
        self.total_us = total_us
        """Of a whole call."""

    @property
    def kernels_share(self) -> float:
        """The sum of the steps' own times, of the time of a call."""
        return sum(self.times_us.values()) / self.total_us if self.total_us else 0.0

    def to_svg(self, path: str | Path | None = None) -> str:
        """A picture of the steps with these times; written to `path`, too. `CompiledNetwork.to_svg` says more.

        Raises:
            FormatError: it cannot be written.
        """
        return self.network.to_svg(path, times_us=self.times_us)

    def to_dict(self) -> dict[str, Any]:
        return {
            "total_us": self.total_us,
            "steps": [
                {"name": stage.name, "what": stage.what, "us": self.times_us.get(stage.name, 0.0),
                 "predicted_us": stage.predicted_us, "multiply_adds": stage.flops}
                for stage in self.network.stages
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        return printed(self.network, self.times_us, self.total_us)

    def _repr_html_(self) -> str:
        return table(_COLUMNS, _rows(self.network, self.times_us, self.total_us))


_COLUMNS = ("step", "by", "us", "share", "predicted", "of peak", "limit", "layout", "computes")


def _rows(
    network: CompiledNetwork | NetworkFolder, times: Mapping[str, float], total_us: float
) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    predicted = sum(stage.predicted_us for stage in network.stages) or 1.0
    for stage in network.stages:
        us = times.get(stage.name)
        share = us / total_us if us is not None and total_us else stage.predicted_us / predicted
        by = {"kernel": "kernel", "view": "view", "engine": "engine", "host": "PyTorch"}[stage.kind]
        more = (
            f"; derived by {stage.derived}, error {stage.derived_error:.1e}"
            if stage.derived
            else ""
        )
        rows.append(
            (
                stage.name,
                by,
                "" if us is None else f"{us:.1f}",
                "" if stage.kind == "view" else f"{100 * share:.1f} %",
                f"{stage.predicted_us:.1f}" if stage.predicted_us else "",
                f"{stage.of_peak:.2f}" if stage.flops else "",
                stage.limit,
                ", ".join(dict.fromkeys(layouts_of(network.graph, stage).values())),
                _one_line(stage.what) + (f" ({stage.reason})" if stage.reason else "") + more,
            )
        )
    return rows


def layouts_of(graph: _core.Graph, stage: Stage) -> dict[str, str]:
    """Of what a step computes, by tensor, where it is not row-major."""
    found = {name: str(graph.layout(name)[0]) for name in stage.outputs}
    return {name: text for name, text in found.items() if text}


def _one_line(text: str, most: int = 100) -> str:
    line = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    return line if len(line) <= most else line[: most - 3] + "..."


def as_html(network: CompiledNetwork | NetworkFolder, more: Mapping[str, str] | None = None) -> str:
    """A network's steps as a table, with facts about it."""
    head = facts({"network": repr(network), "check": network.verification, **(more or {})})
    return head + table(_COLUMNS, _rows(network, {}, 0.0))


def printed(
    network: CompiledNetwork | NetworkFolder,
    times: Mapping[str, float] | None = None,
    total_us: float = 0.0,
) -> str:
    """A network's steps as text, with their times where they were measured."""
    times = times or {}
    rows = [_COLUMNS, *_rows(network, times, total_us)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS) - 1)]
    lines = [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]
        ).rstrip()
        for row in rows
    ]
    total = f"; {total_us:.1f} us a call" if total_us else ""
    lines.insert(0, repr(network)[1:-1] + total)
    lines.append(
        f"memory between steps {network.arena_bytes / 2**20:.2f} MB, weights {network.weight_bytes / 2**20:.2f} MB"
    )
    if network.layouts is not None:
        lines.append(str(network.layouts))
    if network.verification is not None:
        lines.append(str(network.verification))
    return "\n".join(lines)


# Arrays


def _kind(graph: _core.Graph, name: str) -> tuple[tuple[int, ...], str]:
    shape, dtype, _ = graph.tensor(name)
    return tuple(shape), str(dtype)


def memory_at(address: int, shape: Sequence[int], dtype: str) -> Array:
    """The array that lies there; who made the memory keeps it alive."""
    count = bytes_of(shape, dtype)
    if count == 0:
        return np.empty(tuple(shape), DTYPES[dtype])
    held = (ctypes.c_char * count).from_address(address)
    array: Array = np.frombuffer(memoryview(held), DTYPES[dtype]).reshape(tuple(shape))
    return array
