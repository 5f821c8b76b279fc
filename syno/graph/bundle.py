"""Compiled networks as folders of files: what is in them, and a reader that believes nothing before it has looked.

A bundle is native code: its digests tell damage, not who wrote it. Reading runs nothing and maps nothing executable; that
happens after the CPU, the digests and all places in memory were found to be in order. Imports neither NumPy nor torch.

`manifest.json`
    everything else about the network: `Manifest`.
`kernels.so`
    the kernels, linked; `syno_interface` in it says what they take.
`kernels.a`
    the same for a linker.
`weights.bin`
    weights as the kernels take them, each at a multiple of 64 bytes.
`sample.bin`
    inputs, and the outputs that float64 gives for them.
`graph.txt`
    the network after fusion.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import mmap
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Optional

import msgspec

from syno import _core
from syno.errors import FormatError, KernelError, shown

FORMAT, VERSION = "syno-compiled-network", 1
MANIFEST, LIBRARY, ARCHIVE = "manifest.json", "kernels.so", "kernels.a"
WEIGHTS, SAMPLE, GRAPH = "weights.bin", "sample.bin", "graph.txt"
#: All files beside the manifest, and how many bytes each may have.
FILES = {LIBRARY: 1 << 30, ARCHIVE: 1 << 30, WEIGHTS: 1 << 44, SAMPLE: 1 << 40, GRAPH: 1 << 30}
_MOST_MANIFEST = 256 << 20
ALIGNMENT = 64
#: What `weights.bin` begins with, and the XXH3 of what follows its first 64 bytes, as text.
MARK = b"SYNOWTS1"
MARK_BYTES = len(MARK) + 32

#: Bytes of an element.
ITEM_BYTES = {
    "float32": 4, "float64": 8, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1,
}  # fmt: skip
_MOST_BYTES = 1 << 46

Place = Literal["input", "output", "arena", "weight"]


class _Row(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A part of the manifest."""


class Tensor(_Row, frozen=True):
    """Row-major. `at`: which input or output, or the byte in the arena or in `weights.bin` where it begins."""

    name: str
    dtype: str
    shape: list[int]
    place: Place
    at: int


class Port(_Row, frozen=True):
    """An input or output: its name for people, and the tensor that has its elements, maybe in another shape."""

    name: str
    tensor: str
    shape: list[int]


class Step(_Row, frozen=True):
    """A kernel by its symbol, or a function of the engine; names of the tensors that it reads and writes, in order.

    `shapes`: of a function's, as it sees them: their elements may have another shape as tensors.
    """

    stage: str
    reads: list[str]
    writes: list[str]
    kernel: str = ""
    threads: int = 1
    function: str = ""
    attributes: str = "{}"
    shapes: list[list[int]] = []


class MadeFor(_Row, frozen=True):
    """The CPU that the machine code is for."""

    triple: str
    name: str
    vector_bits: int
    scalable_bits: int
    needs: list[str]
    """Instruction sets that it may use, as LLVM names them."""


class Parameter(_Row, frozen=True):
    """An argument of a call: a structure (`syno.graph.structure`) of tensors and of values that stay."""

    name: str
    by_position: bool
    value: Any


class Leaf(_Row, frozen=True):
    """A tensor of a call's arguments: the input that it is; empty where the network does not use it."""

    input: str
    dtype: str
    shape: list[int]


class Call(_Row, frozen=True):
    parameters: list[Parameter]
    leaves: list[Leaf]
    returns: Any


class SampleOutput(_Row, frozen=True):
    """An output's limit and the error of the uncompiled network are as in `Check`; null where they are infinite."""

    dtype: str
    at: int
    limit: Optional[float]  # noqa: UP045 (msgspec reads annotations at run time on Python 3.10)
    eager_rel_err: Optional[float]  # noqa: UP045


class Sample(_Row, frozen=True):
    """Where inputs, and the outputs that float64 gives for them, begin in `sample.bin`."""

    inputs: list[int]
    outputs: list[SampleOutput]


class Checked(_Row, frozen=True):
    """A `Check`; null where a number of it is infinite."""

    passed: bool
    max_rel_err: Optional[float]  # noqa: UP045
    limit: Optional[float]  # noqa: UP045
    eager_rel_err: Optional[float]  # noqa: UP045
    output: str

    @classmethod
    def of(cls, check: Any) -> Checked:
        return cls(
            check.passed,
            finite(check.max_rel_err),
            finite(check.limit),
            finite(check.eager_rel_err),
            check.output,
        )


class File(_Row, frozen=True):
    bytes: int
    digest: str


class Manifest(_Row, frozen=True):
    format: str
    version: int
    digest: str
    """Of the manifest without this field."""
    name: str
    key: str
    """Of the network's graph."""
    about: str
    syno: str
    threads: int
    made_for: MadeFor
    arena_bytes: int
    live_bytes: int
    inputs: list[Port]
    outputs: list[Port]
    tensors: list[Tensor]
    steps: list[Step]
    call: Call
    stages: list[dict[str, Any]]
    sample: Sample
    check: Optional[Checked]  # noqa: UP045
    files: dict[str, File]

    def sealed(self) -> Manifest:
        """The same with its digest."""
        return msgspec.structs.replace(self, digest=self.digest_of_content())

    def digest_of_content(self) -> str:
        plain = msgspec.json.encode(msgspec.structs.replace(self, digest=""))
        return hashlib.blake2b(plain, digest_size=32).hexdigest()


def finite(value: float) -> float | None:
    """The number as JSON can say it: None where it is infinite, or none."""
    return value if math.isfinite(value) else None


def infinite(value: float | None) -> float:
    """The other way round."""
    return math.inf if value is None else value


def is_bundle(path: Path) -> bool:
    """Whether a folder looks like a bundle of any kind."""
    return path.is_dir() and (path / MANIFEST).is_file()


def digest_of(name: str, content: Any) -> str:
    """Of a file: XXH3 where it is data, which may be large, BLAKE2b else."""
    if name in (WEIGHTS, SAMPLE):
        return "xxh3:" + str(_core.hash_bytes(content))
    return "blake2b:" + hashlib.blake2b(content, digest_size=32).hexdigest()


def bytes_of(dtype: str, shape: Sequence[int]) -> int:
    count = ITEM_BYTES[dtype]
    for extent in shape:
        count *= extent
    return count


# Files


def read_manifest(folder: Path) -> Manifest:
    """What a bundle says of itself, consistent in itself.

    Raises:
        FormatError: it is none, or damaged, or of another version.
    """
    head = head_of(folder)
    kind, version = head.get("format"), head.get("version")
    if kind != FORMAT:
        raise _bad(folder, f"its manifest has the format {shown(kind)}, not {FORMAT!r}")
    if version != VERSION or isinstance(version, bool):
        raise _bad(
            folder,
            f"it has version {shown(version)}; this syno reads version {VERSION}: export the model again",
        )
    try:
        manifest = msgspec.convert(head, Manifest)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _bad(folder, f"its manifest: {shown(str(error), 300)}") from error
    if manifest.digest != manifest.digest_of_content():
        raise _bad(folder, "its manifest was changed or damaged: it is not what its digest says")
    _check_consistent(folder, manifest)
    return manifest


def head_of(folder: Path) -> dict[str, Any]:
    """A folder's manifest as it stands. FormatError where there is none."""
    content = _content(folder, MANIFEST, _MOST_MANIFEST)
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _bad(folder, f"its manifest is no JSON object: {shown(str(error))}") from error


def read_file(folder: Path, manifest: Manifest, name: str) -> bytes:
    """A file as the manifest describes it.

    Raises:
        FormatError: it is missing, of another length, or damaged.
    """
    row = manifest.files[name]
    content = _content(folder, name, row.bytes)
    if len(content) != row.bytes:
        raise _bad(folder, f"{name} has {len(content)} bytes, not {row.bytes}")
    if digest_of(name, content) != row.digest:
        raise _bad(folder, f"{name} was changed or damaged: it is not what its digest says")
    return content


def map_file(folder: Path, manifest: Manifest, name: str) -> mmap.mmap:
    """The same, shown in memory where the system keeps the file: nothing is copied.

    Raises:
        FormatError: as for `read_file`.
    """
    row = manifest.files[name]
    number = _opened(folder, name)
    try:
        size = os.fstat(number).st_size
        if size != row.bytes:
            raise _bad(folder, f"{name} has {size} bytes, not {row.bytes}")
        try:
            shown_memory = mmap.mmap(number, size, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            raise KernelError(
                f"[bundle] {folder / name} cannot be mapped into memory: {error}"
            ) from error
    finally:
        os.close(number)
    if digest_of(name, shown_memory) != row.digest:
        shown_memory.close()
        raise _bad(folder, f"{name} was changed or damaged: it is not what its digest says")
    return shown_memory


def _opened(folder: Path, name: str) -> int:
    path = folder / name
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise FormatError(
            f"[bundle] {path} cannot be read: {words}; give a folder that syno.export wrote"
        ) from error
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise _bad(folder, f"{name} is no file")
    return number


def _content(folder: Path, name: str, most: int) -> bytes:
    number = _opened(folder, name)
    try:
        with open(number, "rb", closefd=False) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise FormatError(f"[bundle] {folder / name} cannot be read: {error.strerror}") from error
    finally:
        os.close(number)
    if len(content) > most:
        raise _bad(folder, f"{name} has more than {most} bytes")
    return content


def _bad(folder: Path, what: str) -> FormatError:
    return FormatError(f"[bundle] {folder} is no compiled network that can be used: {what}")


# Consistency


def _check_consistent(folder: Path, manifest: Manifest) -> None:
    def require(holds: bool, what: str) -> None:
        if not holds:
            raise _bad(folder, what)

    for name, most in FILES.items():
        row = manifest.files.get(name)
        require(row is not None, f"its manifest lists no {name}")
        assert row is not None
        require(0 <= row.bytes <= most, f"{name} is said to have {row.bytes} bytes")
    unknown = sorted(set(manifest.files) - set(FILES))
    require(not unknown, f"its manifest lists a file {shown(unknown[0]) if unknown else ''}")
    require(1 <= manifest.threads <= 1 << 10, f"it is for {manifest.threads} threads")
    require(
        0 <= manifest.arena_bytes <= _MOST_BYTES, f"it has an arena of {manifest.arena_bytes} bytes"
    )
    tensors = _tensors(folder, manifest)
    for kind, ports in (("input", manifest.inputs), ("output", manifest.outputs)):
        for number, port in enumerate(ports):
            tensor = tensors.get(port.tensor)
            fits = tensor is not None and tensor.place == kind and tensor.at == number
            require(fits, f"{kind} {shown(port.name)} is not at its place")
            assert tensor is not None
            same = _same_count(port.shape, tensor.shape)
            require(same, f"{kind} {shown(port.name)} has shape {shown(port.shape)}")
        count = sum(tensor.place == kind for tensor in manifest.tensors)
        require(count == len(ports), f"it lists {len(ports)} {kind}s and places {count}")
    _check_flow(folder, manifest, tensors)
    _check_sample(folder, manifest, tensors)


def _tensors(folder: Path, manifest: Manifest) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    ends = {
        "arena": manifest.arena_bytes,
        "weight": manifest.files[WEIGHTS].bytes,
        "input": len(manifest.inputs),
        "output": len(manifest.outputs),
    }
    for tensor in manifest.tensors:
        if tensor.name in tensors:
            raise _bad(folder, f"two tensors are named {shown(tensor.name)}")
        if tensor.dtype not in ITEM_BYTES:
            raise _bad(folder, f"{shown(tensor.name)} has elements of type {shown(tensor.dtype)}")
        if len(tensor.shape) > 64 or any(not 0 <= n <= _MOST_BYTES for n in tensor.shape):
            raise _bad(folder, f"{shown(tensor.name)} has shape {shown(tensor.shape)}")
        size = bytes_of(tensor.dtype, tensor.shape)
        taken = size if tensor.place in ("arena", "weight") else 1
        if tensor.at < 0 or size > _MOST_BYTES or tensor.at + taken > ends[tensor.place]:
            raise _bad(
                folder,
                f"{shown(tensor.name)} of {size} bytes lies at {tensor.at} of {ends[tensor.place]} ({tensor.place})",
            )
        if tensor.place in ("arena", "weight") and tensor.at % ITEM_BYTES[tensor.dtype]:
            raise _bad(folder, f"{shown(tensor.name)} lies at {tensor.at}, between two elements")
        tensors[tensor.name] = tensor
    spans = sorted(
        {
            (t.at, t.at + bytes_of(t.dtype, t.shape))
            for t in manifest.tensors
            if t.place == "weight" and 0 not in t.shape
        }
    )
    for (_, end), (begin, _) in itertools.pairwise(spans):
        if begin < end:
            raise _bad(folder, f"two weights overlap at byte {begin} of {WEIGHTS}")
    return tensors


def _check_flow(folder: Path, manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
    """Whether each step reads what was computed before it, and is there still."""
    alive: dict[str, tuple[int, int]] = {}
    written: set[str] = set()
    for number, step in enumerate(manifest.steps):
        if bool(step.kernel) == bool(step.function):
            raise _bad(folder, f"step {number} is neither a kernel nor a function")
        if not 1 <= step.threads <= 1 << 10:
            raise _bad(folder, f"step {number} runs on {step.threads} threads")
        for name in (*step.reads, *step.writes):
            if name not in tensors:
                raise _bad(folder, f"step {number} names a tensor {shown(name)} that there is not")
        _check_shapes(folder, number, step, tensors)
        for name in step.reads:
            place = tensors[name].place
            gone = (place == "arena" and name not in alive) or (
                place == "output" and name not in written
            )
            if gone:
                raise _bad(folder, f"step {number} reads {shown(name)}, which is not there then")
        if len(set(step.writes)) != len(step.writes):
            raise _bad(folder, f"step {number} writes a tensor twice")
        for name in step.writes:
            tensor = tensors[name]
            if tensor.place not in ("arena", "output") or (
                tensor.place == "output" and name in step.reads
            ):
                raise _bad(folder, f"step {number} writes {shown(name)}, which stays as it is")
            written.add(name)
            if tensor.place == "arena":
                _write(folder, number, step, tensor, tensors, alive)
    missing = [port.name for port in manifest.outputs if port.tensor not in written]
    if missing:
        raise _bad(folder, f"no step computes the output {shown(missing[0])}")


def _check_shapes(folder: Path, number: int, step: Step, tensors: Mapping[str, Tensor]) -> None:
    names = (*step.reads, *step.writes)
    if len(step.shapes) != (len(names) if step.function else 0):
        raise _bad(folder, f"step {number} has {len(step.shapes)} shapes")
    for shape, name in zip(step.shapes, names, strict=False):
        if not _same_count(shape, tensors[name].shape):
            raise _bad(folder, f"step {number} sees {shown(name)} in shape {shown(shape)}")


def _same_count(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes have as many elements; never of one with an extent below 0."""
    return min(one, default=0) >= 0 and len(one) <= 64 and math.prod(one) == math.prod(other)


def _write(
    folder: Path,
    number: int,
    step: Step,
    tensor: Tensor,
    tensors: Mapping[str, Tensor],
    alive: dict[str, tuple[int, int]],
) -> None:
    begin, end = tensor.at, tensor.at + bytes_of(tensor.dtype, tensor.shape)
    for name, (first, last) in list(alive.items()):
        if begin < last and first < end:
            together = name in step.reads or name in step.writes
            if together and name != tensor.name:
                raise _bad(folder, f"step {number} writes {shown(tensor.name)} over {shown(name)}")
            del alive[name]
    alive[tensor.name] = (begin, end)


def _check_sample(folder: Path, manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
    sample, size = manifest.sample, manifest.files[SAMPLE].bytes
    if len(sample.inputs) != len(manifest.inputs) or len(sample.outputs) != len(manifest.outputs):
        raise _bad(folder, "its sample has other inputs or outputs")
    spans = [
        (at, bytes_of(tensors[port.tensor].dtype, tensors[port.tensor].shape))
        for at, port in zip(sample.inputs, manifest.inputs, strict=True)
    ]
    for row, port in zip(sample.outputs, manifest.outputs, strict=True):
        if row.dtype not in ITEM_BYTES:
            raise _bad(folder, f"its sample has elements of type {shown(row.dtype)}")
        spans.append((row.at, bytes_of(row.dtype, tensors[port.tensor].shape)))
    for at, count in spans:
        if at < 0 or at % 8 or at + count > size:
            raise _bad(folder, f"{count} bytes of its sample lie at {at} of {size}")


# CPUs

#: Instruction sets that code of tensor programs may use, as LLVM names them: what else a CPU has does not matter.
_OF_VECTORS = frozenset(
    [
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "sse4a",
        "popcnt",
        "avx",
        "f16c",
        "avx2",
        "fma",
        "fma4",
        "xop",
        "tbm",
        "bmi",
        "bmi2",
        "lzcnt",
        "movbe",
        "gfni",
        "avxvnni",
        "avxifma",
        "avxneconvert",
        "avxvnniint8",
        "avxvnniint16",
        "avx512f",
        "avx512cd",
        "avx512dq",
        "avx512bw",
        "avx512vl",
        "avx512vnni",
        "avx512vbmi",
        "avx512vbmi2",
        "avx512ifma",
        "avx512bf16",
        "avx512fp16",
        "avx512bitalg",
        "avx512vpopcntdq",
        "neon",
        "fp-armv8",
        "fullfp16",
        "fp16",
        "bf16",
        "dotprod",
        "i8mm",
        "lse",
        "rdm",
        "sve",
        "sve2",
        "sme",
    ]
)


def made_for(cpu: _core.Cpu) -> MadeFor:
    """What a CPU must have to run code that was made for this one."""
    needs = [name for name in cpu.enabled if name in _OF_VECTORS]
    return MadeFor(cpu.triple, cpu.name, cpu.vector_bits, cpu.scalable_bits, needs)


def require_cpu(folder: Path, wanted: MadeFor) -> None:
    """Refuses a bundle for another CPU; where `SYNO_CPU` names one, for another than that, too.

    Raises:
        KernelError: what this CPU lacks.
    """
    named = [_core.host_cpu()] if os.environ.get("SYNO_CPU") else []
    for cpu in (*named, _core.cpu_named("host")):
        missing = [name for name in wanted.needs if name not in cpu.enabled]
        here = f"this CPU ({cpu.name})"
        if wanted.triple.split("-")[0] != cpu.triple.split("-")[0]:
            lack = f"{here} is one of {cpu.triple.split('-')[0]}"
        elif missing:
            lack = f"{here} has no {', '.join(missing)}"
        elif wanted.vector_bits > cpu.vector_bits:
            lack = (
                f"{here} computes with vectors of {cpu.vector_bits} bits, not {wanted.vector_bits}"
            )
        elif wanted.scalable_bits not in (0, cpu.scalable_bits):
            lack = (
                f"{here} has SVE registers of {cpu.scalable_bits} bits, not {wanted.scalable_bits}"
            )
        else:
            continue
        raise KernelError(
            f"[bundle] {folder} holds machine code for {described(wanted)}; {lack}: export the model again on a machine "
            "like this one"
        )


def described(cpu: MadeFor) -> str:
    """For people."""
    vectors = [name for name in cpu.needs if name.startswith(("avx", "fma", "sve", "neon"))]
    return f"{cpu.name} ({', '.join(vectors)})" if vectors else cpu.name
