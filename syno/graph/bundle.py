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
import math
import mmap
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Protocol, TypeVar, Union

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
#: Of a tensor, and of the arena.
MOST_BYTES = 1 << 46

Place = Literal["input", "output", "arena", "weight"]


class _Row(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A part of the manifest."""


class Tensor(_Row, frozen=True):
    """Row-major. `at`: which input or output, or the byte in the arena or in `weights.bin` where it begins.

    `within`: the shape that a weight has there; the tensor is its beginning in every dimension.
    """

    name: str
    dtype: str
    shape: list[int]
    place: Place
    at: int
    within: Union[list[int], msgspec.UnsetType] = msgspec.UNSET  # noqa: UP007 (as above; other manifests have none)

    @property
    def held(self) -> list[int]:
        """The shape of what lies there."""
        return self.shape if isinstance(self.within, msgspec.UnsetType) else self.within


class Port(_Row, frozen=True):
    """An input or output: its name for people, and the tensor that has its elements, maybe in another shape."""

    name: str
    tensor: str
    shape: list[int]


class Step(_Row, frozen=True):
    """A kernel by its symbol, or a function of the engine; names of the tensors that it reads and writes, in order.

    `shapes`: of a function's, as it sees them: their elements may have another shape as tensors. `values`: of the sizes
    that calls of a kernel bring along.
    """

    stage: str
    reads: list[str]
    writes: list[str]
    kernel: str = ""
    threads: int = 1
    function: str = ""
    attributes: str = "{}"
    shapes: list[list[int]] = []
    values: Union[list[int], msgspec.UnsetType] = msgspec.UNSET  # noqa: UP007

    @property
    def sizes(self) -> list[int]:
        return [] if isinstance(self.values, msgspec.UnsetType) else self.values


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


class Listing(Protocol):
    """What lists the files of a folder."""

    @property
    def files(self) -> dict[str, File]: ...


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
        return msgspec.structs.replace(self, digest=seal_of(self))


def seal_of(manifest: Any) -> str:
    """The digest of a manifest without the field that holds it."""
    plain = msgspec.json.encode(msgspec.structs.replace(manifest, digest=""))
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


class _Sealed(Protocol):
    @property
    def digest(self) -> str: ...


SealedT = TypeVar("SealedT", bound=_Sealed)


def read_manifest(folder: Path) -> Manifest:
    """What a bundle says of itself, consistent in itself.

    Raises:
        FormatError: it is none, or damaged, or of another version.
    """
    from syno.graph.bundle_rules import check_consistent

    manifest = read_sealed(folder, Manifest, FORMAT, VERSION)
    check_consistent(folder, manifest)
    return manifest


def read_sealed(folder: Path, kind: type[SealedT], name: str, version: int) -> SealedT:
    """A folder's manifest, of this kind, format name and version, that is what its digest says. FormatError otherwise."""
    head = head_of(folder)
    found = head.get("version")
    if head.get("format") != name:
        raise unusable(
            folder, f"its manifest has the format {shown(head.get('format'))}, not {name!r}"
        )
    if found != version or isinstance(found, bool):
        raise unusable(
            folder,
            f"it has version {shown(found)}; this syno reads version {version}: export the model again",
        )
    try:
        manifest = msgspec.convert(head, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise unusable(folder, f"its manifest: {shown(str(error), 300)}") from error
    if manifest.digest != seal_of(manifest):
        raise unusable(
            folder, "its manifest was changed or damaged: it is not what its digest says"
        )
    return manifest


def head_of(folder: Path) -> dict[str, Any]:
    """A folder's manifest as it stands. FormatError where there is none."""
    content = _content(folder, MANIFEST, _MOST_MANIFEST)
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise unusable(folder, f"its manifest is no JSON object: {shown(str(error))}") from error


def read_file(folder: Path, manifest: Listing, name: str) -> bytes:
    """A file as the manifest describes it.

    Raises:
        FormatError: it is missing, of another length, or damaged.
    """
    row = manifest.files[name]
    content = _content(folder, name, row.bytes)
    if len(content) != row.bytes:
        raise unusable(folder, f"{name} has {len(content)} bytes, not {row.bytes}")
    if digest_of(name, content) != row.digest:
        raise unusable(folder, f"{name} was changed or damaged: it is not what its digest says")
    return content


def map_file(folder: Path, manifest: Listing, name: str) -> mmap.mmap:
    """The same, shown in memory where the system keeps the file: nothing is copied.

    Raises:
        FormatError: as for `read_file`.
    """
    row = manifest.files[name]
    number = _opened(folder, name)
    try:
        size = os.fstat(number).st_size
        if size != row.bytes:
            raise unusable(folder, f"{name} has {size} bytes, not {row.bytes}")
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
        raise unusable(folder, f"{name} was changed or damaged: it is not what its digest says")
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
        raise unusable(folder, f"{name} is no file")
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
        raise unusable(folder, f"{name} has more than {most} bytes")
    return content


def unusable(folder: Path, what: str) -> FormatError:
    """The error of a folder that is no compiled network, or none that can be used."""
    return FormatError(f"[bundle] {folder} is no compiled network that can be used: {what}")
