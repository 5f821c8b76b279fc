"""Compiled networks for ranges of sizes in files that run without LLVM and without torch.

What is in the folder is described in `syno.graph.ranged_bundle`. Numbers that follow the sizes are found from the network
at some sizes, and held against what it is at others; what was written is loaded again and computes what the network does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from syno import __version__, _core
from syno.errors import ArgumentError, FormatError
from syno.export.fitted import Fit
from syno.export.network_bundle import (
    Steps,
    Values,
    apart,
    by_position,
    call_of,
    check_steps,
    compiler_of_exports,
    files_of,
    indented,
    kernel_stages,
    mark,
    output_row,
    write_kernels,
)
from syno.graph import bundle, bundle_cpu
from syno.graph.building import Array
from syno.graph.bundle import Call, Port
from syno.graph.calling import random_arrays
from syno.graph.checking import Expected, judged
from syno.graph.compile import as_array, sampled
from syno.graph.compiled import CompiledNetwork
from syno.graph.dynamic import Linked
from syno.graph.dynamic_model import DynamicModel
from syno.graph.dynamic_onnx import DynamicOnnxModel
from syno.graph.dynamic_parts import Part, parts_of, some_of
from syno.graph.extents import Sizes
from syno.graph.families import told
from syno.graph.loaded_ranged import LoadedRangedNetwork, load_ranged
from syno.graph.ranged_bundle import (
    RANGED_FORMAT,
    RANGED_VERSION,
    Example,
    RangedManifest,
    Size,
    SizePlace,
    Span,
    manifest_at,
)
from syno.graph.stages import Stage
from syno.graph.storage import Storage, stored

#: Of each size, values at which a span's numbers are read off; then sizes at which they are held against the network.
_READ, _HELD = 24, 16
#: Sizes of which the folder holds an example.
_EXAMPLES = 6


@dataclass(frozen=True)
class RangedSource:
    """A network for ranges of sizes to write."""

    what: DynamicModel | DynamicOnnxModel
    parts: list[Part]
    about: str = ""

    @property
    def name(self) -> str:
        return str(self.at(self.parts[-1], self.parts[-1].span[1])[0].graph.name)

    @property
    def names(self) -> tuple[str, ...]:
        return self.what.network.ranges.names

    def at(self, part: Part, sizes: Sizes) -> tuple[CompiledNetwork, Call, Linked]:
        """The network at sizes of a part, with the weights as they are now, and how it is called."""
        linked = part.linked(sizes)
        if isinstance(self.what, DynamicModel):
            made = self.what.made_of(linked)
            made.renew(everything=True)
            return made.network, call_of(made.imported, list(made.network.inputs)), linked
        return linked.network, by_position(linked.network), linked

    def places(self, call: Call) -> list[list[SizePlace]]:
        """Of each size, the dimensions of arguments that have it."""
        if isinstance(self.what, DynamicModel):
            return [
                [
                    SizePlace(
                        call.parameters[argument].name if isinstance(argument, int) else argument,
                        dim,
                    )
                    for argument, dim in places
                ]
                for places in self.what.axes.places
            ]
        shapes = zip(call.parameters, self.what.shapes.values(), strict=True)
        rows = [(parameter.name, shape) for parameter, shape in shapes]
        return [
            [SizePlace(n, d) for n, shape in rows for d, e in enumerate(shape) if e == name]
            for name in self.names
        ]

    def inputs(self, network: CompiledNetwork, linked: Linked) -> list[Array]:
        """At the sizes of a network: the example's, as often as it takes, or random ones."""
        if isinstance(self.what, DynamicModel):
            given = self.what.made_of(linked).given()
            plain = [each.detach() for each in given]
            return [as_array(each) for each in network.taken(plain)]
        kinds = list(network.inputs.values())
        return random_arrays(kinds)


def ranged_source_of(what: Any, example: Any, about: str = "") -> RangedSource:
    """What is exported.

    Raises:
        ArgumentError: an example of its own is given, or each of some sizes is compiled on its own.
        UnsupportedOp: PyTorch computes some of its steps, or they are compiled for each size; `operators` lists them.
        FormatError: there is no C compiler.
    """
    if example is not None:
        raise ArgumentError(
            "[export] a network for ranges of sizes is checked at several of them",
            fix="leave out the example",
        )
    network = what.network
    if network.by_size:
        parts_of(network)  # says why
    check_steps(network.at(network.ranges.greatest).network)
    compiler_of_exports()
    what.wait()
    return RangedSource(what, parts_of(network), about)


class _SizedSteps(Steps):
    """Steps at some sizes, weights as parts of those at the greatest sizes of the span."""

    def __init__(
        self, network: CompiledNetwork, weights: Values, storage: Storage, whole: CompiledNetwork,
        values: dict[str, list[int]],
    ) -> None:  # fmt: skip
        self._whole, self._values = whole, values
        super().__init__(network, weights, storage)

    def _weight_of(self, name: str, weight: str, dtype: str) -> None:
        array, whole = self.network.weights[weight], self._whole.weights[weight]
        self.tensors[name] = bundle.Tensor(
            name, dtype, list(array.shape), "weight", self.weights.add(whole),
            within=list(whole.shape),
        )  # fmt: skip

    def _values_of(self, stage: Stage) -> list[int] | None:
        return self._values.get(stage.name)


class _SpanWriter:
    """What the manifest says of a span."""

    def __init__(self, source: RangedSource, part: Part, weights: Values) -> None:
        self.source, self.part, self.weights = source, part, weights
        self.read = _read_at(part.span)
        self.held = [s for s in some_of(part.span, _HELD) if s not in self.read]
        self.networks = {sizes: source.at(part, sizes) for sizes in (*self.read, *self.held)}
        self.whole = self.networks[part.span[1]][0]
        self.room: dict[str | int, int] = {}
        for network, _, _ in self.networks.values():
            check_steps(network)
            for item, size in network.storage.room.items():
                self.room[item] = max(size, self.room.get(item, 0))

    def span(self) -> Span:
        fit = Fit(self.source.names, self.read)
        made = fit.of([self.document(sizes) for sizes in self.read])
        return Span(list(self.part.span[0]), list(self.part.span[1]), fit.numbers, made)

    def document(self, sizes: Sizes) -> dict[str, Any]:
        """Of the manifest at these sizes, what follows from them."""
        network, call, linked = self.networks[sizes]
        storage = stored(network.graph, network.stages, self.room)
        values = {name: of(linked) for name, (_, of) in self.part.codes.items()}
        self._check_codes(network)
        steps = _SizedSteps(network, self.weights, storage, self.whole, values)
        inputs = [Port(name, name, list(shape)) for name, (shape, _) in network.inputs.items()]
        stages = [
            {
                "name": each.name, "kind": each.kind, "inputs": list(each.inputs), "outputs": list(each.outputs),
                "nodes": list(each.nodes), "what": each.what,
            }
            for each in network.stages
        ]  # fmt: skip
        made: dict[str, Any] = msgspec.to_builtins(
            {
                "arena_bytes": storage.arena_bytes, "live_bytes": storage.live_bytes, "inputs": inputs,
                "outputs": steps.outputs, "tensors": list(steps.tensors.values()), "steps": steps.steps, "call": call,
                "stages": stages,
            }
        )  # fmt: skip
        return made

    def _check_codes(self, network: CompiledNetwork) -> None:
        """FormatError where a step has code of its own at these sizes."""
        for stage in kernel_stages(network):
            code = self.part.codes.get(stage.name)
            if code is not None and stage.kernel.call.symbol != code[0].symbol:
                raise FormatError(f"[export] {stage.name} is compiled for some sizes on their own")

    def kernels(self) -> Iterator[tuple[_core.Kernel, list[tuple[int, int]]]]:
        """At the greatest of the sizes that calls bring along, and the ranges of these."""
        for stage in kernel_stages(self.whole):
            code = self.part.codes.get(stage.name)
            if code is None:
                yield stage.kernel.call, []
            else:
                ends = [(low, high) for _, low, high in code[0].nest.parameters]
                yield code[0].at([high for _, high in ends]), ends


def _read_at(span: tuple[Sizes, Sizes]) -> list[Sizes]:
    """The greatest sizes, others that differ from them in one place, and some that differ in several."""
    low, high = span
    found = [high]
    for position, (least, most) in enumerate(zip(low, high, strict=True)):
        step = max(1, (most - least) // (_READ // 2))
        spread = range(least, most + 1, step)
        for size in dict.fromkeys([*spread, *range(max(least, most - _READ // 2), most)]):
            found.append((*high[:position], size, *high[position + 1 :]))
    draw = random.Random(repr(span))
    if len(low) > 1:
        found += [low, *(tuple(map(draw.randint, low, high)) for _ in range(_READ // 2))]
    return list(dict.fromkeys(found))


def write(source: RangedSource, directory: Path) -> tuple[str, float]:
    """Writes the files, reads them again and computes at several sizes: the check in words, and the largest difference.

    Raises:
        FormatError: a number follows the sizes in a way that is not known, or the folder computes something else.
    """
    with (directory / bundle.WEIGHTS).open("wb") as file:
        weights = Values(file)
        file.write(b"\0" * bundle.ALIGNMENT)  # of its mark
        weights.size = bundle.ALIGNMENT
        writers = [_SpanWriter(source, part, weights) for part in source.parts]
        spans = [writer.span() for writer in writers]
        weights.pad()
    mark(directory / bundle.WEIGHTS)
    used: dict[str, _core.Kernel] = {}
    ranges: dict[str, list[tuple[int, int]]] = {}
    for writer in writers:
        for kernel, ends in writer.kernels():
            used[kernel.symbol] = kernel
            if ends:
                ranges[kernel.symbol] = ends
    write_kernels(used.values(), directory, ranges)
    examples, wanted = _examples(source, writers, directory)
    greatest = next(
        each for each in writers if each.part.span[1] == source.what.network.ranges.greatest
    )
    (directory / bundle.GRAPH).write_text(str(greatest.whole.graph.text()), encoding="utf-8")
    manifest = _manifest(source, greatest, spans, examples, directory)
    (directory / bundle.MANIFEST).write_bytes(indented(manifest))
    loaded = load_ranged(directory)
    worst = 0.0
    for example, expected in zip(examples, wanted, strict=True):
        network = loaded.at(*example.sizes)
        made = network.run(network.sample()[0])
        check = judged(expected, made)
        if not check:
            where = told(source.names, tuple(example.sizes))
            raise FormatError(
                f"[export] the exported network computes something else at {where}: {check}"
            )
        worst = max(worst, apart(expected, made))
    for writer in writers:
        _hold(writer, loaded)
    return f"loaded again and compared with float64 at {len(examples)} sizes", worst


def _hold(writer: _SpanWriter, loaded: LoadedRangedNetwork) -> None:
    """FormatError where the folder says something else of the network at further sizes, or computes something else."""
    for sizes in writer.held:
        where = told(writer.source.names, sizes)
        made = msgspec.to_builtins(manifest_at(loaded.path, loaded.manifest, sizes))
        wanted = writer.document(sizes)
        wrong = [key for key, value in wanted.items() if made[key] != value]
        if wrong:
            raise FormatError(
                f"[export] what the folder says of {', '.join(wrong)} is not so at {where}"
            )
        network, _, linked = writer.networks[sizes]
        inputs = writer.source.inputs(network, linked)
        pairs = zip(network.run(inputs), loaded.at(*sizes).run(inputs), strict=True)
        if not all(
            np.array_equal(one, other, equal_nan=one.dtype.kind == "f") for one, other in pairs
        ):
            raise FormatError(f"[export] the exported network computes something else at {where}")


def _examples(
    source: RangedSource, writers: Sequence[_SpanWriter], directory: Path
) -> tuple[list[Example], list[list[Expected]]]:
    """Inputs at the ends of spans, and what float64 gives for them."""
    ends = [
        (writer, sizes)
        for n in (1, 0)
        for writer in writers[::-1]
        for sizes in [writer.part.span[n]]
    ]
    chosen = {sizes: writer for writer, sizes in ends[:_EXAMPLES]}
    examples, wanted = [], []
    with (directory / bundle.SAMPLE).open("wb") as file:
        vector = Values(file)
        for sizes, writer in chosen.items():
            network, _, linked = writer.networks[sizes]
            original = source.what.network.original_at(sizes)
            sample = sampled(network, original, source.inputs(network, linked))
            examples.append(
                Example(
                    list(sizes),
                    [vector.add(array) for array in sample.inputs],
                    [output_row(vector, each) for each in sample.expected],
                )
            )
            wanted.append(sample.expected)
        vector.pad()
        if vector.size == 0:
            file.write(b"\0" * bundle.ALIGNMENT)
    return examples, wanted


def _manifest(
    source: RangedSource, greatest: _SpanWriter, spans: list[Span], examples: list[Example], directory: Path
) -> RangedManifest:  # fmt: skip
    network, call, _ = greatest.networks[greatest.part.span[1]]
    ranges = source.what.network.ranges
    places = source.places(call)
    kernels = [stage.kernel.call for stage in kernel_stages(network)]
    rows = zip(ranges.names, ranges.least, ranges.greatest, places, strict=True)
    check = network.verification
    return RangedManifest(
        format=RANGED_FORMAT,
        version=RANGED_VERSION,
        digest="",
        name=str(network.graph.name),
        key=str(network.graph.key()),
        about=source.about,
        syno=__version__,
        threads=network.threads,
        made_for=bundle_cpu.made_for(kernels[0].cpu if kernels else _core.host_cpu()),
        sizes=[Size(*row) for row in rows],
        spans=spans,
        examples=examples,
        check=None if check is None else bundle.Checked.of(check),
        files=files_of(directory),
    ).sealed()


__all__ = ["RangedSource", "ranged_source_of", "write"]
