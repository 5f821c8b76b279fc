"""Networks read from files: called as the compiled ones that they were, without LLVM and without torch."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno import _core
from syno.errors import FormatError, KernelError, ShapeError, SynoError, shown, told
from syno.graph import bundle, bundle_cpu, structure
from syno.graph.bundle import Manifest, Port, Tensor
from syno.graph.calling import Kind, NetworkCall
from syno.graph.ranged_bundle import RANGED_FORMAT

if TYPE_CHECKING:
    from syno.graph.building import Array
    from syno.graph.checking import Check
    from syno.graph.compiled import Profile
    from syno.graph.stages import Stage


#: Of bundles that hold a graph of torch and kernels of single operators.
TORCH_FORMAT = "syno-bundle"


class NetworkFolder:
    """What a folder says of the compiled network in it; nothing in it is run.

    Attributes:
        path: the folder.
        manifest: what it says, found to be consistent.
        threads: of a call that does not say.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.threads = manifest.threads
        self._tensors = {tensor.name: tensor for tensor in manifest.tensors}
        self._inputs = [self._kind(port) for port in manifest.inputs]
        self._outputs = [self._kind(port) for port in manifest.outputs]

    def _kind(self, port: Port) -> Kind:
        return port.name, tuple(port.shape), self._tensors[port.tensor].dtype

    @property
    def arena_bytes(self) -> int:
        """Memory of a running call for what lies between its steps."""
        return self.manifest.arena_bytes

    @property
    def live_bytes(self) -> int:
        """The least that any plan of this memory needs."""
        return self.manifest.live_bytes

    @property
    def weight_bytes(self) -> int:
        """Of the file of weights."""
        return self.manifest.files[bundle.WEIGHTS].bytes

    @property
    def cpu(self) -> str:
        """The CPU that it was made for, and its vector instructions."""
        return bundle_cpu.described(self.manifest.made_for)

    @property
    def fallbacks(self) -> dict[str, str]:
        """Steps that PyTorch computes: none."""
        return {}

    @property
    def graph(self) -> _core.Graph:
        """What the steps compute, as a graph of programs after fusion.

        Raises:
            FormatError: `graph.txt` is damaged.
        """
        text = bundle.read_file(self.path, self.manifest, bundle.GRAPH)
        try:
            return _core.Graph.parse(text.decode("utf-8"))
        except (SynoError, UnicodeDecodeError) as error:
            raise FormatError(
                f"[bundle] {self.path / bundle.GRAPH} is no graph: {error}"
            ) from error

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The steps, in order, with what they compute as text."""
        from syno.graph.stages import Stage

        try:
            return tuple(Stage(**_plain(row)) for row in self.manifest.stages)
        except (TypeError, ValueError) as error:
            raise FormatError(
                f"[bundle] {self.path} describes its steps in another way: {error}"
            ) from error

    @property
    def layouts(self) -> None:
        """What the choice of layouts promised is not kept; which they are, `graph` says."""
        return None

    @property
    def verification(self) -> Check | None:
        """The check that was made when it was compiled."""
        from syno.graph.checking import Check

        made = self.manifest.check
        if made is None:
            return None
        return Check(
            made.passed,
            bundle.infinite(made.max_rel_err),
            bundle.infinite(made.limit),
            bundle.infinite(made.eager_rel_err),
            made.output,
        )

    def to_dict(self) -> dict[str, Any]:
        """Steps, memory, check and CPU, for JSON."""
        manifest = self.manifest
        return {
            "name": manifest.name,
            "path": str(self.path),
            "key": manifest.key,
            "cpu": self.cpu,
            "needs": list(manifest.made_for.needs),
            "vector_bits": manifest.made_for.vector_bits,
            "threads": self.threads,
            "inputs": {name: [dtype, list(shape)] for name, shape, dtype in self._inputs},
            "outputs": {name: [dtype, list(shape)] for name, shape, dtype in self._outputs},
            "stages": [dict(row) for row in manifest.stages],
            "arena_bytes": self.arena_bytes,
            "live_bytes": self.live_bytes,
            "weight_bytes": self.weight_bytes,
            "max_rel_err": None if manifest.check is None else manifest.check.max_rel_err,
            "limit": None if manifest.check is None else manifest.check.limit,
        }

    def dot(self) -> str:
        """The fused graph in Graphviz's language."""
        return str(self.graph.dot())

    def to_svg(
        self, path: str | Path | None = None, *, times_us: Mapping[str, float] | None = None
    ) -> str:
        """A picture of the steps, as `CompiledNetwork.to_svg` draws it.

        Raises:
            FormatError: `graph.txt` is damaged, or it cannot be written.
        """
        from syno.graph.drawing import to_svg

        return to_svg(self, path, times_us)

    def __repr__(self) -> str:
        kernels = sum(bool(step.kernel) for step in self.manifest.steps)
        return f"<{type(self).__name__} {self.manifest.name}: {kernels} kernels, from {self.path}>"

    def __str__(self) -> str:
        from syno.graph.compiled import printed

        return f"{printed(self)}\nmachine code for {self.cpu}"

    def _repr_html_(self) -> str:
        from syno.graph.compiled import as_html

        return as_html(self, {"machine code": f"for {self.cpu}"})


@dataclass(frozen=True)
class Memory:
    """Machine code and weights of a folder, in memory."""

    library: _core.NativeLibrary
    weights: mmap.mmap

    @classmethod
    def of(cls, path: Path, manifest: bundle.Listing) -> Memory:
        """Raises: FormatError, KernelError: as `load_network`."""
        library = _core.NativeLibrary(bundle.read_file(path, manifest, bundle.LIBRARY))
        return cls(library, bundle.map_file(path, manifest, bundle.WEIGHTS))


class LoadedNetwork(NetworkFolder, NetworkCall):
    """A compiled network from a folder that `syno.export` wrote: machine code for CPUs like the one it was made on, and
    for the shapes of its example. Thread-safe; `syno.load` makes it.

    Weights stay in their file, which the system maps into memory: the folder must stay as it is.

    Attributes:
        path: the folder.
        manifest: what the folder says of it.
    """

    def __init__(self, path: Path, manifest: Manifest, memory: Memory | None = None) -> None:
        """Maps machine code; the manifest has been checked, and the CPU."""
        super().__init__(path, manifest)
        self._memory = memory or Memory.of(path, manifest)
        self._library = self._memory.library
        self._beginnings: list[Array] = []
        self._executable = self._linked()

    # Calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the model that it was, on NumPy arrays or torch tensors.

        Returns:
            What the model returned, tensors among it as torch tensors where the first one given is one, else as NumPy
            arrays. A tuple with names, and a dictionary with attributes, stay that; other classes are dictionaries.
        Raises:
            ShapeError: arguments of another structure, shape or value than the example's.
            KernelError: an argument of another element type or device, or one that requires a gradient while torch
                records them.
        """
        call = self.manifest.call
        given: dict[int, Any] = {}
        for name, node, value in bound(self.manifest.call, args, kwargs):
            structure.taken(node, value, name, given)
        by_tensor = {leaf.input: given[number] for number, leaf in enumerate(call.leaves)}
        made = self.run([by_tensor[port.tensor] for port in self.manifest.inputs])
        return structure.built(call.returns, made)

    # Looking inside

    @property
    def kernels(self) -> dict[str, tuple[int, int, list[int], list[tuple[int, int]]]]:
        """(workspace, workspace of each thread, arguments' sizes, least and greatest value of each size that calls bring
        along) of each kernel by its symbol; in bytes. With such sizes, arguments have at most as many."""
        return dict(self._library.kernels)

    def verify(self) -> Check:
        """Computes the example that it was exported with, and compares with what float64 gave for that.

        Raises:
            FormatError: `sample.bin` is damaged.
        """
        from syno.graph.checking import Expected, judged

        inputs, wanted = self.sample()
        rows = zip(self.manifest.outputs, self.manifest.sample.outputs, wanted, strict=True)
        expected = [
            Expected(
                port.name, array, bundle.infinite(row.limit), bundle.infinite(row.eager_rel_err)
            )
            for port, row, array in rows
        ]
        return judged(expected, self.run(inputs))

    def sample(self) -> tuple[list[Array], list[Array]]:
        """The inputs that it was exported with, and the outputs that float64 gives for them.

        Raises:
            FormatError: `sample.bin` is damaged, or of a network for ranges of sizes there is no example of these.
        """
        if len(self.manifest.sample.inputs) != len(self._inputs):
            raise FormatError(
                f"[bundle] {self.path} has no example of these sizes; pass inputs, or call verify() of what syno.load gives"
            )
        import numpy as np

        from syno.graph.building import DTYPES

        memory = bundle.map_file(self.path, self.manifest, bundle.SAMPLE)

        def array(at: int, dtype: str, shape: Sequence[int]) -> Array:
            count = bundle.bytes_of(dtype, shape) // bundle.ITEM_BYTES[dtype]
            return np.frombuffer(memory, DTYPES[dtype], count, at).reshape(tuple(shape))

        sample = self.manifest.sample
        inputs = [
            array(at, dtype, shape)
            for at, (_, shape, dtype) in zip(sample.inputs, self._inputs, strict=True)
        ]
        outputs = [
            array(row.at, row.dtype, shape)
            for row, (_, shape, _) in zip(sample.outputs, self._outputs, strict=True)
        ]
        return inputs, outputs

    def profile(self, *arrays: Any, turns: int = 15) -> Profile:
        """Times each step on these inputs, in their order, or on those that it was exported with; microseconds, medians."""
        from syno.graph.compiled import Profile

        steps, total_us = self.timed(arrays or self.sample()[0], turns)
        times = {
            step.stage: 1e6 * seconds
            for step, seconds in zip(self.manifest.steps, steps, strict=True)
            if step.stage
        }
        return Profile(self, times, total_us)

    def __reduce__(self) -> tuple[Any, ...]:
        return load_network, (self.path,)

    # Linking

    def _linked(self) -> _core.Executable:
        kernels = self._library.kernels
        base = _core.address_of(self._memory.weights)
        steps: list[Any] = []
        for number, step in enumerate(self.manifest.steps):
            tensors = [self._tensors[name] for name in (*step.reads, *step.writes)]
            arguments = [self._argument(tensor, base) for tensor in tensors]
            if step.function:
                kinds = [(shape, t.dtype) for shape, t in zip(step.shapes, tensors, strict=True)]
                steps.append(
                    ("builtin", step.function, step.attributes, kinds, len(step.reads), arguments)
                )
                continue
            if step.kernel not in kernels:
                raise FormatError(
                    f"[bundle] {self.path}: step {number} runs a kernel that is not there"
                )
            sizes = [bundle.bytes_of(t.dtype, t.shape) for t in tensors]
            most, ranges = kernels[step.kernel][2:]
            fits = len(most) == len(sizes) and all(map(int.__le__, sizes, most))
            if not (fits if ranges else most == sizes):
                raise FormatError(
                    f"[bundle] {self.path}: step {number} gives its kernel tensors of {sizes} bytes; it takes "
                    f"{'at most ' if ranges else ''}{most}"
                )
            steps.append(
                ("native", self._library, step.kernel, step.threads, step.sizes, arguments)
            )
        try:
            return _core.Executable(
                steps, self.manifest.arena_bytes, len(self._inputs) + len(self._outputs), None
            )
        except SynoError as error:
            raise FormatError(f"[bundle] {self.path}: {error}") from error

    def _argument(self, tensor: Tensor, base: int) -> tuple[str, int]:
        if tensor.place == "weight":
            return ("fixed", self._beginning(tensor) or base + tensor.at)
        if tensor.place == "arena":
            return ("arena", tensor.at)
        first = 0 if tensor.place == "input" else len(self._inputs)
        return ("external", first + tensor.at)

    def _beginning(self, tensor: Tensor) -> int:
        """Where a copy lies of a weight that is part of another one; 0 where its elements are together there."""
        first = next((d for d, extent in enumerate(tensor.held) if extent != 1), 0)
        if tensor.shape[first + 1 :] == tensor.held[first + 1 :] or 0 in tensor.shape:
            return 0
        import numpy as np

        from syno.graph.building import DTYPES

        count = bundle.bytes_of(tensor.dtype, tensor.held) // bundle.ITEM_BYTES[tensor.dtype]
        whole = np.frombuffer(self._memory.weights, DTYPES[tensor.dtype], count, tensor.at)
        part = whole.reshape(tensor.held)[tuple(map(slice, tensor.shape))]
        self._beginnings.append(np.array(part, order="C"))
        return int(self._beginnings[-1].ctypes.data)


def bound(
    call: bundle.Call, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(name, structure, value) of each argument.

    Raises:
        ShapeError: there are too many, one is missing, given twice or none of them.
    """
    parameters = call.parameters
    names = [parameter.name for parameter in parameters]
    places = [p.name for p in parameters if p.by_position]
    told = f"the network takes {', '.join(names)}, as its example had them"
    if len(args) > len(places):
        raise ShapeError(f"[call] {len(args)} arguments by position; {told}")
    values = dict(zip(places, args, strict=False))
    for name, value in kwargs.items():
        if name not in names or name in values:
            why = "is given twice" if name in values else "is none of them"
            raise ShapeError(f"[call] {name} {why}; {told}")
        values[name] = value
    for parameter in parameters:
        if parameter.name in values:
            yield parameter.name, parameter.value, values[parameter.name]
        elif structure.numbers_in(parameter.value):
            raise ShapeError(f"[call] {parameter.name} is missing; {told}")


def describe_network(path: Path) -> NetworkFolder:
    """What a folder says of itself: also where it is for another CPU.

    Raises:
        FormatError: it is no compiled network's, or of another version, damaged, or contradicts itself.
    """
    manifest = bundle.read_manifest(path)
    check_call(path, manifest)
    return NetworkFolder(path, manifest)


def describe_folder(path: Path) -> Any:
    """What a folder says of the network in it, for one size (`NetworkFolder`) or for ranges (`RangedFolder`); errors as of
    `describe_network`."""
    if bundle.head_of(path).get("format") == RANGED_FORMAT:
        from syno.graph.loaded_ranged import describe_ranged

        return describe_ranged(path)
    return describe_network(path)


def load_native(path: Path) -> Any:
    """A compiled network, for one size or for ranges; errors as of `load_network`."""
    if bundle.head_of(path).get("format") == RANGED_FORMAT:
        from syno.graph.loaded_ranged import load_ranged

        return load_ranged(path)
    return load_network(path)


def load_folder(path: Path) -> Any:
    """A compiled network, for one size or for ranges, or the torch module of a bundle that needs torch; errors as of
    `load_network`."""
    head = bundle.head_of(path)
    if head.get("format") != TORCH_FORMAT:
        return load_native(path)
    from syno.export import loader_template

    try:
        loader_template._check_cpu(path, head["cpu"])
    except RuntimeError as error:
        raise KernelError(f"[bundle] {error}") from error
    except (KeyError, TypeError) as error:
        raise FormatError(f"[bundle] {path} does not say which CPU it is for") from error
    try:
        return loader_template.load(path)
    except Exception as error:  # whatever PyTorch raises of a damaged file
        raise FormatError(f"[bundle] {path} cannot be loaded: {told(error)}") from error


def load_network(path: Path) -> LoadedNetwork:
    """Reads a folder that `syno.export` wrote of a compiled network. No machine code is mapped before the manifest, the
    CPU, and the digests of code and weights are found to be in order.

    Raises:
        FormatError: it is none, or of another version, damaged, or contradicts itself.
        KernelError: it was made for another CPU, or there is no memory for it.
    """
    manifest = bundle.read_manifest(path)
    check_call(path, manifest)
    bundle_cpu.require_cpu(path, manifest.made_for)
    return LoadedNetwork(path, manifest)


def check_call(path: Path, manifest: Manifest) -> None:
    """FormatError where how a network is called does not fit what it is."""
    call = manifest.call
    try:
        for parameter in call.parameters:
            structure.checked(parameter.value, len(call.leaves))
        structure.checked(call.returns, len(manifest.outputs))
    except ValueError as error:
        raise FormatError(f"[bundle] {path}: how it is called: {error}") from error
    numbers = [n for p in call.parameters for n in structure.numbers_in(p.value)]
    given = [leaf.input for leaf in call.leaves if leaf.input]
    names = [parameter.name for parameter in call.parameters]
    if (
        sorted(numbers) != list(range(len(call.leaves)))
        or sorted(given) != sorted(port.tensor for port in manifest.inputs)
        or len(set(names)) != len(names)
    ):
        raise FormatError(f"[bundle] {path}: how it is called does not fit its inputs")


#: What the texts, numbers and lists of a step are.
_KINDS: dict[str, type | tuple[type, ...]] = {
    "str": str, "float": (int, float), "int": int, "bool": bool
}  # fmt: skip


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The fields of a step. Raises ValueError where one is of another type."""
    from dataclasses import fields

    from syno.graph.stages import Stage

    if row.get("kind") not in ("kernel", "view", "engine"):
        raise ValueError(f"a step is of the kind {shown(row.get('kind'))}")
    made: dict[str, Any] = {}
    for field in fields(Stage):
        if field.name not in row:
            continue
        value, kind = row[field.name], _KINDS.get(str(field.type))
        if kind is None:  # a list of texts
            plain = isinstance(value, list) and all(isinstance(each, str) for each in value)
            fits, value = plain, tuple(value) if plain else value
        else:
            fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        if not fits:
            raise ValueError(f"{field.name} is {shown(value)}")
        made[field.name] = value
    return made
