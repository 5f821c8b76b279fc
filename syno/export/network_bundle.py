"""Compiled networks in files that run without LLVM and without torch: `syno.load` reads them, and C programs link them.

What is in the folder is described in `syno.graph.bundle`.
"""

from __future__ import annotations

import json
import math
import mmap
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import msgspec
import numpy as np

from syno import __version__, _core
from syno.errors import FormatError, ShapeError, UnsupportedOp
from syno.export.linking import c_compiler, run_archiver, run_compiler
from syno.graph import bundle, bundle_cpu, structure
from syno.graph.building import Array
from syno.graph.bundle import Call, File, Leaf, Manifest, Parameter, Port, Sample, SampleOutput
from syno.graph.calls import Arrangement, Imported
from syno.graph.checking import Expected, judged
from syno.graph.compile import as_array, sampled
from syno.graph.compiled import CompiledNetwork
from syno.graph.loaded import load_network
from syno.graph.model import CompiledModel
from syno.graph.stages import Stage
from syno.graph.storage import Storage


@dataclass(frozen=True)
class Source:
    """A network to write: how it is called, and the inputs that it is checked with."""

    network: CompiledNetwork
    call: Call
    inputs: list[Array]
    about: str = ""

    @property
    def name(self) -> str:
        return str(self.network.graph.name)

    @property
    def made_for(self) -> bundle.MadeFor:
        kernels = [stage.kernel.call for stage in kernel_stages(self.network)]
        return bundle_cpu.made_for(kernels[0].cpu if kernels else _core.host_cpu())


def source_of(what: CompiledModel | CompiledNetwork, example: Any, about: str = "") -> Source:
    """What is exported, with the weights as they are now.

    Raises:
        UnsupportedOp: PyTorch computes some of its steps; `operators` lists them.
        ShapeError: the example does not fit.
        FormatError: arguments or results that no file can hold.
    """
    network = what.network if isinstance(what, CompiledModel) else what
    check_steps(network)
    compiler_of_exports()
    if isinstance(what, CompiledModel):
        what.renew(everything=True)
        inputs = what.given(example)
        call = call_of(what.imported, list(network.inputs))
    else:
        inputs = _in_order(network, example)
        call = by_position(network)
    plain = [each.detach() if hasattr(each, "detach") else each for each in inputs]
    return Source(network, call, [as_array(each) for each in network.taken(plain)], about)


def compiler_of_exports() -> str:
    """The C compiler that links kernels. FormatError where there is none."""
    found = c_compiler()
    if found is None:
        raise FormatError(
            "[export] no C compiler (cc, gcc or clang) is installed to link kernels with: "
            "apt-get install gcc libc6-dev"
        )
    return found


def check_steps(network: CompiledNetwork) -> None:
    """UnsupportedOp where PyTorch computes some of the steps."""
    if not network.fallbacks:
        return
    steps = {f"{s.what} ({s.name})": s.reason for s in network.stages if s.kind == "host"}
    lines = "".join(f"\n  {name}: {reason}" for name, reason in steps.items())
    raise UnsupportedOp(
        f"{len(steps)} of the network's steps run in PyTorch, and a file without torch cannot hold them:{lines}",
        fix="leave them out of the model, or export the model itself by format='torch'",
        operators=steps,
    )


def _in_order(network: CompiledNetwork, example: Any) -> list[Any]:
    if example is None:
        return list(network.example()) if network.sample is None else network.sample.inputs
    if isinstance(example, Mapping):
        missing = sorted(set(network.inputs) ^ set(example))
        if missing:
            raise ShapeError(
                f"[export] the network takes {', '.join(network.inputs)}; example names {', '.join(map(str, example))}"
            )
        return [example[name] for name in network.inputs]
    return list(example) if isinstance(example, (tuple, list)) else [example]


def by_position(network: CompiledNetwork) -> Call:
    """Inputs one after the other, outputs as a tuple where there are several."""
    parameters = [
        Parameter(name, True, {"tensor": number}) for number, name in enumerate(network.inputs)
    ]
    leaves = [Leaf(name, dtype, list(shape)) for name, (shape, dtype) in network.inputs.items()]
    count = len(network.graph.outputs)
    returns = {"tuple": [{"tensor": number} for number in range(count)]}
    return Call(parameters, leaves, returns if count != 1 else {"tensor": 0})


class _Leaf:
    """A leaf of a structure, by its number."""

    def __init__(self, number: int) -> None:
        self.number = number


def call_of(imported: Imported, inputs: Sequence[str]) -> Call:
    """How a model is called. FormatError where no file can hold that."""
    import torch.utils._pytree as pytree

    tensors = [each for each in imported.given if each.dtype is not None]
    leaves = [
        Leaf(
            each.name if each.name in inputs else "",
            str(each.dtype).removeprefix("torch."),
            list(each.shape),
        )
        for each in tensors
    ]
    numbers = {id(each): number for number, each in enumerate(tensors)}
    marks = [
        each.constant if each.dtype is None else _Leaf(numbers[id(each)]) for each in imported.given
    ]
    results = [
        constant if at is None else _Leaf(at)
        for at, constant in zip(imported.returned, imported.constants, strict=True)
    ]
    try:
        assert imported.in_spec is not None
        args, named = pytree.tree_unflatten(marks, imported.in_spec)
        parameters = list(_parameters(imported, args, named))
        made = (
            results
            if imported.out_spec is None
            else pytree.tree_unflatten(results, imported.out_spec)
        )
        returns = structure.described(made, _number)
    except TypeError as error:
        raise FormatError(
            f"[export] how the model is called cannot be kept with the network: {error}"
        ) from error
    return Call(parameters, leaves, returns)


def _number(value: Any) -> int | None:
    return value.number if isinstance(value, _Leaf) else None


def _parameters(imported: Imported, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """By the names that the model's signature gives them, those that can be given by position first."""
    known: list[str] = []
    if isinstance(imported.arrange, Arrangement) and not imported.arrange.variadic:
        kinds = imported.arrange.kinds
        known = [name for name, kind in kinds.items() if kind != kind.KEYWORD_ONLY]
    names = [known[n] if n < len(known) else f"argument{n}" for n in range(len(args))]
    for name, value in zip(names, args, strict=True):
        yield Parameter(name, True, structure.described(value, _number))
    rest = known[len(args) :]
    for name in sorted(named, key=lambda name: rest.index(name) if name in rest else len(rest)):
        follows = bool(rest) and rest[0] == name
        rest = rest[1:] if follows else []
        yield Parameter(name, follows, structure.described(named[name], _number))


# Writing


def write(source: Source, directory: Path) -> tuple[str, float]:
    """Writes the files, reads them again and computes the example: the check in words, and the largest difference."""
    network = source.network
    sample = network.sample
    if sample is None or not sample.is_of(source.inputs):
        assert network.original is not None, "compile_network() says what it compiled"
        sample = sampled(network, network.original, source.inputs)
    wanted = sample.expected
    write_kernels([each.kernel.call for each in kernel_stages(network)], directory)
    manifest = _manifest(source, wanted, directory)
    (directory / bundle.MANIFEST).write_bytes(indented(manifest))
    loaded = load_network(directory)
    made = loaded.run(source.inputs)
    check = judged(wanted, made)
    if not check:
        raise FormatError(f"[export] the exported network computes something else: {check}")
    return "loaded again and compared with float64 on the example", apart(wanted, made)


def apart(wanted: Sequence[Expected], made: Sequence[Array]) -> float:
    """The largest difference."""
    return max(
        (
            float(np.abs(a.astype(np.float64) - b.values.astype(np.float64)).max(initial=0.0))
            for a, b in zip(made, wanted, strict=True)
        ),
        default=0.0,
    )


def indented(manifest: Any) -> bytes:
    """As it is written."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def write_kernels(
    used: Iterable[_core.Kernel],
    directory: Path,
    ranges: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({}),
) -> None:
    """Links kernels into one library and into one archive.

    Args:
        used: kernels, each at the greatest sizes that its calls bring along.
        ranges: by symbol, the least and the greatest of these sizes, of kernels that have such.
    """
    compiler = compiler_of_exports()
    kernels = {kernel.symbol: kernel for kernel in used}
    listed: dict[str, Any] = {}
    for symbol, kernel in sorted(kernels.items()):
        shared, private = kernel.workspace_bytes
        sizes = [
            bundle.bytes_of(dtype, shape)
            for (_, _, shape), dtype in zip(kernel.arguments, kernel.dtypes, strict=True)
        ]
        listed[symbol] = {"shared": shared, "private": private, "arguments": sizes}
        if symbol in ranges:
            listed[symbol]["parameters"] = [list(ends) for ends in ranges[symbol]]
    interface = {"version": 2 if ranges else 1, "kernels": listed}
    text = json.dumps(interface, separators=(",", ":"))
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    with tempfile.TemporaryDirectory(dir=directory, prefix=".objects.") as made:
        place = Path(made)
        objects = []
        for symbol, kernel in sorted(kernels.items()):
            objects.append(f"{symbol}.o")
            (place / objects[-1]).write_bytes(kernel.object_bytes())
        (place / "interface.c").write_text(f'const char syno_interface[] = "{quoted}";\n', "utf-8")
        linked = ["-shared", "-fPIC", "-s", "-nostartfiles", "-o", bundle.LIBRARY]
        run_compiler(compiler, [*linked, "interface.c", *objects], place)
        run_archiver([bundle.ARCHIVE, *objects], place)
        for name in (bundle.LIBRARY, bundle.ARCHIVE):
            (place / name).rename(directory / name)
            (directory / name).chmod(0o644)


def kernel_stages(network: CompiledNetwork) -> list[Any]:
    """The steps that are kernels."""
    return [stage for stage in network.stages if stage.kind == "kernel"]


class Values:
    """Values one after the other, each at a multiple of 64 bytes; equal ones once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.size = file, 0
        self._known: dict[tuple[str, int], int] = {}

    def add(self, array: Array) -> int:
        """Where it begins."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        key = (str(_core.hash_bytes(content.data)), content.nbytes)
        if key not in self._known:
            self.pad()
            self._known[key] = self.size
            self._file.write(content.data)
            self.size += content.nbytes
        return self._known[key]

    def pad(self) -> None:
        self._file.write(b"\0" * (-self.size % bundle.ALIGNMENT))
        self.size += -self.size % bundle.ALIGNMENT


class Steps:
    """The steps of a network on named tensors, each at its place.

    Args:
        weights: where weights are written.
        storage: of the network's tensors; default its own.
    """

    def __init__(
        self, network: CompiledNetwork, weights: Values, storage: Storage | None = None
    ) -> None:
        self.network, self.weights = network, weights
        self.storage = storage or network.storage
        self.tensors: dict[str, bundle.Tensor] = {}
        self.steps: list[bundle.Step] = []
        self._views = {
            s.outputs[0]: s.inputs[0]
            for s in network.stages
            if s.kind == "view" and len(s.inputs) == 1 and network.graph.is_view(s.name)
        }
        self._count = len(network.graph.inputs)
        for name in network.graph.inputs:
            self.tensor(name)
        for stage in network.stages:
            if stage.kind == "kernel":
                self._kernel(stage)
            elif stage.kind == "engine":
                self._function(
                    stage.name, stage.what, stage.inputs, stage.outputs, stage.attributes
                )
        self.outputs = self._copied()

    def tensor(self, name: str) -> str:
        """A tensor of the network: that which it shows, where it is a view."""
        while name in self._views:
            name = self._views[name]
        if name not in self.tensors:
            shape, dtype, _ = self.network.graph.tensor(name)
            place = self.storage.places[name]
            if place.kind == "fixed":
                self._weight_of(name, place.name, str(dtype))
            elif place.kind == "arena":
                self._place(name, str(dtype), shape, "arena", place.at)
            elif place.at < self._count:
                self._place(name, str(dtype), shape, "input", place.at)
            else:
                self._place(name, str(dtype), shape, "output", place.at - self._count)
        return name

    def _place(self, name: str, dtype: str, shape: Sequence[int], place: Any, at: int) -> None:
        self.tensors[name] = bundle.Tensor(name, dtype, list(shape), place, at)

    def _weight_of(self, name: str, weight: str, dtype: str) -> None:
        """A weight of the network."""
        self._weight(name, self.network.weights[weight], dtype)

    def _weight(self, name: str, array: Array, dtype: str) -> None:
        self._place(name, dtype, array.shape, "weight", self.weights.add(array))

    def _own(self, name: str) -> str:
        """A name that nothing has."""
        taken, number, found = {*self.tensors, *self.storage.places}, 2, name
        while found in taken:
            found, number = f"{name} {number}", number + 1
        return found

    def _kernel(self, stage: Stage) -> None:
        assert stage.kernel is not None and stage.packed is not None
        buffers = stage.packed.buffers
        names = []
        for name, address in stage.packed.arguments():
            if address is None:
                names.append(self.tensor(stage.names.get(name, name)))
            else:
                packed = buffers[name]
                names.append(self._own(f"{stage.name}.{name}"))
                self._weight(names[-1], packed, packed.dtype.name)
        kernel = stage.kernel.call
        count = sum(not written for _, written, _ in kernel.arguments)
        step = bundle.Step(
            stage.name, names[:count], names[count:], kernel.symbol, stage.kernel.runs_on
        )
        values = self._values_of(stage)
        self.steps.append(step if values is None else msgspec.structs.replace(step, values=values))

    def _values_of(self, stage: Stage) -> list[int] | None:
        """Of the sizes that calls of its kernel bring along; None where there are none."""
        return None

    def _function(
        self,
        stage: str,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: str = "{}",
    ) -> None:
        """A function of the engine on tensors of the network."""
        shapes = [list(self.network.graph.tensor(each)[0]) for each in (*inputs, *outputs)]
        reads = [self.tensor(each) for each in inputs]
        writes = [self.tensor(each) for each in outputs]
        self.steps.append(
            bundle.Step(stage, reads, writes, function=name, attributes=attributes, shapes=shapes)
        )

    def _copied(self) -> list[Port]:
        """The outputs, those that lie elsewhere as copies."""
        graph = self.network.graph
        copies = {number - self._count: name for name, number in self.storage.copies}
        ports = []
        for number, name in enumerate(graph.outputs):
            shape, dtype, _ = graph.tensor(name)
            if number not in copies:
                ports.append(Port(name, self.tensor(name), list(shape)))
                continue
            read, made = self.tensor(copies[number]), self._own(f"{name} (output)")
            self._place(made, str(dtype), shape, "output", number)
            both = [list(shape), list(shape)]
            self.steps.append(bundle.Step("", [read], [made], function="copy", shapes=both))
            ports.append(Port(name, made, list(shape)))
        return ports


def _manifest(source: Source, wanted: Sequence[Expected], directory: Path) -> Manifest:
    network = source.network
    with (directory / bundle.WEIGHTS).open("wb") as file:
        weights = Values(file)
        file.write(b"\0" * bundle.ALIGNMENT)  # of its mark
        weights.size = bundle.ALIGNMENT
        steps = Steps(network, weights)
        weights.pad()
    mark(directory / bundle.WEIGHTS)
    with (directory / bundle.SAMPLE).open("wb") as file:
        vector = Values(file)
        inputs = [vector.add(array) for array in source.inputs]
        outputs = [output_row(vector, each) for each in wanted]
        vector.pad()
        if vector.size == 0:
            file.write(b"\0" * bundle.ALIGNMENT)
    (directory / bundle.GRAPH).write_text(str(network.graph.text()), encoding="utf-8")
    check = network.verification
    return Manifest(
        format=bundle.FORMAT,
        version=bundle.VERSION,
        digest="",
        name=source.name,
        key=str(network.graph.key()),
        about=source.about,
        syno=__version__,
        threads=network.threads,
        made_for=source.made_for,
        arena_bytes=network.arena_bytes,
        live_bytes=network.live_bytes,
        inputs=[Port(name, name, list(shape)) for name, (shape, _) in network.inputs.items()],
        outputs=steps.outputs,
        tensors=list(steps.tensors.values()),
        steps=steps.steps,
        call=source.call,
        stages=[_facts(stage) for stage in network.stages],
        sample=Sample(inputs, outputs),
        check=None if check is None else bundle.Checked.of(check),
        files=files_of(directory),
    ).sealed()


def output_row(vector: Values, each: Expected) -> SampleOutput:
    """Writes an output that float64 gives."""
    return SampleOutput(
        each.values.dtype.name,
        vector.add(each.values),
        bundle.finite(each.limit),
        bundle.finite(each.eager_rel_err),
    )


def mark(weights: Path) -> None:
    """Says in the file of weights which one it is."""
    with weights.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        rest = memoryview(content)[bundle.ALIGNMENT :]
        mark = bundle.MARK + str(_core.hash_bytes(rest)).encode()
        rest.release()
        content[: len(mark)] = mark


def _facts(stage: Stage) -> dict[str, Any]:
    """What of a step is plain data."""
    found: dict[str, Any] = {}
    for field in fields(stage):
        value = getattr(stage, field.name)
        if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
            found[field.name] = list(value)
        elif isinstance(value, (bool, int, str)) or (
            isinstance(value, float) and math.isfinite(value)
        ):
            found[field.name] = value
    return found


def files_of(directory: Path) -> dict[str, File]:
    """What the manifest says of the files beside it."""
    return {name: _file(directory / name) for name in bundle.FILES}


def _file(path: Path) -> File:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        return File(path.stat().st_size, bundle.digest_of(path.name, content))
