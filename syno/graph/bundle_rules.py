"""What must hold of a bundle's manifest: every tensor within its memory, and nothing read that is not there by then."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from syno.errors import shown
from syno.graph.bundle import (
    FILES,
    ITEM_BYTES,
    MOST_BYTES,
    SAMPLE,
    WEIGHTS,
    Listing,
    Manifest,
    Step,
    Tensor,
    bytes_of,
    unusable,
)


def check_consistent(folder: Path, manifest: Manifest) -> None:
    """Raises FormatError where the manifest lists other files, or names, places or orders that do not fit each other."""
    check_files(folder, manifest)
    check_network(folder, manifest)
    check_sample(folder, manifest)


def check_files(folder: Path, manifest: Listing) -> None:
    """Raises FormatError where the manifest lists other files than a network has."""
    for name, most in FILES.items():
        row = manifest.files.get(name)
        if row is None:
            raise unusable(folder, f"its manifest lists no {name}")
        if not 0 <= row.bytes <= most:
            raise unusable(folder, f"{name} is said to have {row.bytes} bytes")
    unknown = sorted(set(manifest.files) - set(FILES))
    if unknown:
        raise unusable(folder, f"its manifest lists a file {shown(unknown[0])}")


def check_network(folder: Path, manifest: Manifest) -> None:
    """Raises FormatError where names, places or orders of the network do not fit each other."""

    def require(holds: bool, what: str) -> None:
        if not holds:
            raise unusable(folder, what)

    require(1 <= manifest.threads <= 1 << 10, f"it is for {manifest.threads} threads")
    require(
        0 <= manifest.arena_bytes <= MOST_BYTES, f"it has an arena of {manifest.arena_bytes} bytes"
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
            raise unusable(folder, f"two tensors are named {shown(tensor.name)}")
        if tensor.dtype not in ITEM_BYTES:
            raise unusable(
                folder, f"{shown(tensor.name)} has elements of type {shown(tensor.dtype)}"
            )
        if len(tensor.shape) > 64 or any(not 0 <= n <= MOST_BYTES for n in tensor.shape):
            raise unusable(folder, f"{shown(tensor.name)} has shape {shown(tensor.shape)}")
        if len(tensor.held) != len(tensor.shape) or any(
            not n <= most <= MOST_BYTES for n, most in zip(tensor.shape, tensor.held, strict=False)
        ):
            raise unusable(folder, f"{shown(tensor.name)} lies in {shown(tensor.held)}")
        if tensor.held is not tensor.shape and tensor.place != "weight":
            raise unusable(folder, f"{shown(tensor.name)} is no weight and lies in another one")
        size = bytes_of(tensor.dtype, tensor.held)
        taken = size if tensor.place in ("arena", "weight") else 1
        if tensor.at < 0 or size > MOST_BYTES or tensor.at + taken > ends[tensor.place]:
            raise unusable(
                folder,
                f"{shown(tensor.name)} of {size} bytes lies at {tensor.at} of {ends[tensor.place]} ({tensor.place})",
            )
        if tensor.place in ("arena", "weight") and tensor.at % ITEM_BYTES[tensor.dtype]:
            raise unusable(
                folder, f"{shown(tensor.name)} lies at {tensor.at}, between two elements"
            )
        tensors[tensor.name] = tensor
    spans = sorted(
        {
            (t.at, t.at + bytes_of(t.dtype, t.held))
            for t in manifest.tensors
            if t.place == "weight" and 0 not in t.held
        }
    )
    for (_, end), (begin, _) in itertools.pairwise(spans):
        if begin < end:
            raise unusable(folder, f"two weights overlap at byte {begin} of {WEIGHTS}")
    return tensors


def _check_flow(folder: Path, manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
    """Whether each step reads what was computed before it, and is there still."""
    alive: dict[str, tuple[int, int]] = {}
    written: set[str] = set()
    for number, step in enumerate(manifest.steps):
        if bool(step.kernel) == bool(step.function):
            raise unusable(folder, f"step {number} is neither a kernel nor a function")
        if not 1 <= step.threads <= 1 << 10:
            raise unusable(folder, f"step {number} runs on {step.threads} threads")
        for name in (*step.reads, *step.writes):
            if name not in tensors:
                raise unusable(
                    folder, f"step {number} names a tensor {shown(name)} that there is not"
                )
        _check_shapes(folder, number, step, tensors)
        for name in step.reads:
            place = tensors[name].place
            gone = (place == "arena" and not _is_there(tensors[name], alive)) or (
                place == "output" and name not in written
            )
            if gone:
                raise unusable(
                    folder, f"step {number} reads {shown(name)}, which is not there then"
                )
        if len(set(step.writes)) != len(step.writes):
            raise unusable(folder, f"step {number} writes a tensor twice")
        for name in step.writes:
            tensor = tensors[name]
            if tensor.place not in ("arena", "output") or (
                tensor.place == "output" and name in step.reads
            ):
                raise unusable(folder, f"step {number} writes {shown(name)}, which stays as it is")
            written.add(name)
            if tensor.place == "arena":
                _write(folder, number, step, tensor, tensors, alive)
    missing = [port.name for port in manifest.outputs if port.tensor not in written]
    if missing:
        raise unusable(folder, f"no step computes the output {shown(missing[0])}")


def _is_there(tensor: Tensor, alive: Mapping[str, tuple[int, int]]) -> bool:
    """Whether steps have written all of a tensor: itself, or what lies one behind the other in its memory."""
    if tensor.name in alive:
        return True
    at, end = tensor.at, tensor.at + bytes_of(tensor.dtype, tensor.shape)
    for first, last in sorted(alive.values()):
        if first <= at < last:
            at = last
    return at >= end and end > tensor.at


def _check_shapes(folder: Path, number: int, step: Step, tensors: Mapping[str, Tensor]) -> None:
    names = (*step.reads, *step.writes)
    if len(step.shapes) != (len(names) if step.function else 0):
        raise unusable(folder, f"step {number} has {len(step.shapes)} shapes")
    for shape, name in zip(step.shapes, names, strict=False):
        if not _same_count(shape, tensors[name].shape):
            raise unusable(folder, f"step {number} sees {shown(name)} in shape {shown(shape)}")


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
                raise unusable(
                    folder, f"step {number} writes {shown(tensor.name)} over {shown(name)}"
                )
            del alive[name]
    alive[tensor.name] = (begin, end)


def check_sample(folder: Path, manifest: Manifest) -> None:
    tensors = {tensor.name: tensor for tensor in manifest.tensors}
    sample, size = manifest.sample, manifest.files[SAMPLE].bytes
    if len(sample.inputs) != len(manifest.inputs) or len(sample.outputs) != len(manifest.outputs):
        raise unusable(folder, "its sample has other inputs or outputs")
    spans = [
        (at, bytes_of(tensors[port.tensor].dtype, tensors[port.tensor].shape))
        for at, port in zip(sample.inputs, manifest.inputs, strict=True)
    ]
    for row, port in zip(sample.outputs, manifest.outputs, strict=True):
        if row.dtype not in ITEM_BYTES:
            raise unusable(folder, f"its sample has elements of type {shown(row.dtype)}")
        spans.append((row.at, bytes_of(row.dtype, tensors[port.tensor].shape)))
    for at, count in spans:
        if at < 0 or at % 8 or at + count > size:
            raise unusable(folder, f"{count} bytes of its sample lie at {at} of {size}")
