"""Compiled networks for ranges of sizes as folders of files: what their manifest says, and the network at some sizes.

The folder holds the files of any compiled network (`syno.graph.bundle`). Its manifest has a network for each span of sizes:
a manifest whose numbers that follow the sizes are formulas. With the sizes of a call they become numbers, and what comes
out is looked at as the manifest of a network for one size is. Imports neither NumPy nor torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import msgspec

from syno.errors import shown
from syno.graph.bundle import (
    FORMAT,
    MOST_BYTES,
    VERSION,
    Checked,
    File,
    MadeFor,
    Manifest,
    Sample,
    SampleOutput,
    _Row,
    read_sealed,
    seal_of,
    unusable,
)
from syno.graph.bundle_rules import check_files, check_network, check_sample
from syno.graph.sizes import LARGEST, MOST_NAMES

RANGED_FORMAT, RANGED_VERSION = "syno-ranged-network", 1

#: In the network of a span: {NUMBER: place in the span's `numbers`}.
NUMBER = "$"
#: The same: {TEXT: parts}, texts and places of numbers that make up a text.
TEXT = "$text"
_MOST_DEPTH, _MOST_NUMBERS = 64, 1 << 20


class SizePlace(_Row, frozen=True):
    """A dimension of an argument, by its name, that has a size."""

    parameter: str
    dim: int


class Size(_Row, frozen=True):
    """A size that calls bring along."""

    name: str
    least: int
    greatest: int
    places: list[SizePlace]


class Span(_Row, frozen=True):
    """Sizes that are one network but for its numbers."""

    least: list[int]
    greatest: list[int]
    numbers: list[Any]
    """Each a whole number, or a formula of the sizes: ["size", position, times, plus, by, of, beside, power], which is
    of * ((times * size + plus) / by, rounded down) ^ power + beside; ["+", one, other, base], one + other - base;
    ["*", one, other, base], one * other / base."""
    network: dict[str, Any]
    """Fields of `Manifest`: those that follow the sizes and those of the span."""

    def holds(self, sizes: Sequence[int]) -> bool:
        ends = zip(self.least, sizes, self.greatest, strict=True)
        return all(low <= size <= high for low, size, high in ends)


class Example(_Row, frozen=True):
    """Inputs at some sizes, and the outputs that float64 gives for them: where they begin in `sample.bin`."""

    sizes: list[int]
    inputs: list[int]
    outputs: list[SampleOutput]


class RangedManifest(_Row, frozen=True):
    format: str
    version: int
    digest: str
    """Of the manifest without this field."""
    name: str
    key: str
    """Of the network's graph at the greatest sizes."""
    about: str
    syno: str
    threads: int
    made_for: MadeFor
    sizes: list[Size]
    spans: list[Span]
    examples: list[Example]
    check: Optional[Checked]  # noqa: UP045 (msgspec reads annotations at run time on Python 3.10)
    files: dict[str, File]

    def sealed(self) -> RangedManifest:
        """The same with its digest."""
        return msgspec.structs.replace(self, digest=seal_of(self))


def read_ranged(folder: Path) -> RangedManifest:
    """What a bundle says of itself, consistent in itself as far as that is the same at all sizes.

    Raises:
        FormatError: it is none, or damaged, or of another version.
    """
    manifest = read_sealed(folder, RangedManifest, RANGED_FORMAT, RANGED_VERSION)
    check_files(folder, manifest)
    _check_sizes(folder, manifest)
    return manifest


def _check_sizes(folder: Path, manifest: RangedManifest) -> None:
    names = [size.name for size in manifest.sizes]
    if not 1 <= len(names) <= MOST_NAMES or len(set(names)) != len(names):
        raise unusable(folder, f"its sizes are {shown(names)}")
    for size in manifest.sizes:
        if not 1 <= size.least <= size.greatest <= LARGEST:
            raise unusable(
                folder, f"the size {shown(size.name)} is from {size.least} to {size.greatest}"
            )
        if not size.places or any(place.dim < 0 for place in size.places):
            raise unusable(folder, f"no argument has the size {shown(size.name)}")
    if not manifest.spans:
        raise unusable(folder, "it holds a network for no size")
    for span in manifest.spans:
        ends = zip(span.least, span.greatest, strict=False)
        if (
            len(span.least) != len(names)
            or len(span.greatest) != len(names)
            or any(low > high for low, high in ends)
            or len(span.numbers) > _MOST_NUMBERS
        ):
            raise unusable(
                folder, f"a span of its sizes is {shown(span.least)} to {shown(span.greatest)}"
            )
    for example in manifest.examples:
        if len(example.sizes) != len(names) or span_of(manifest, example.sizes) is None:
            raise unusable(folder, f"its example is of the sizes {shown(example.sizes)}")


def span_of(manifest: RangedManifest, sizes: Sequence[int]) -> Span | None:
    """Where there is a network of these sizes."""
    return next((span for span in manifest.spans if span.holds(sizes)), None)


def manifest_at(folder: Path, manifest: RangedManifest, sizes: Sequence[int]) -> Manifest:
    """The network at sizes that a span holds, found to be consistent.

    Raises:
        FormatError: it is no network there.
    """
    span = span_of(manifest, sizes)
    assert span is not None, "whoever asks has looked"
    example = next((each for each in manifest.examples if each.sizes == list(sizes)), None)
    try:
        numbers = [number_at(row, sizes) for row in span.numbers]
        content = filled(span.network, numbers)
        content |= {
            "format": FORMAT, "version": VERSION, "digest": "", "name": manifest.name, "key": manifest.key,
            "about": manifest.about, "syno": manifest.syno, "threads": manifest.threads,
            "made_for": msgspec.to_builtins(manifest.made_for), "check": msgspec.to_builtins(manifest.check),
            "files": msgspec.to_builtins(manifest.files),
            "sample": msgspec.to_builtins(
                Sample([], []) if example is None else Sample(example.inputs, example.outputs)
            ),
        }  # fmt: skip
        made = msgspec.convert(content, Manifest)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise unusable(
            folder, f"its network at {shown(list(sizes))}: {shown(str(error), 300)}"
        ) from error
    check_network(folder, made)
    if example is not None:
        check_sample(folder, made)
    return made


def number_at(row: Any, sizes: Sequence[int], depth: int = 0) -> int:
    """A number of a span at some sizes. ValueError where it is none, or of more than any network has."""
    if isinstance(row, int) and not isinstance(row, bool):
        made = row
    elif isinstance(row, list) and len(row) == 8 and row[0] == "size" and _are_whole(row[1:]):
        _, position, times, plus, by, of, beside, power = row
        if not 0 <= position < len(sizes) or by < 1 or power not in (1, 2):
            raise ValueError(f"{shown(row)} is no formula of the sizes")
        made = of * ((times * sizes[position] + plus) // by) ** power + beside
    elif isinstance(row, list) and len(row) == 4 and row[0] in ("+", "*") and depth < _MOST_DEPTH:
        one, other = (number_at(part, sizes, depth + 1) for part in row[1:3])
        base = number_at(row[3], sizes, depth + 1)
        if row[0] == "+":
            made = one + other - base
        else:
            if base == 0 or one * other % base:
                raise ValueError(f"{shown(row)} is no whole number")
            made = one * other // base
    else:
        raise ValueError(f"{shown(row)} is no formula of the sizes")
    if abs(made) > MOST_BYTES:
        raise ValueError(f"{shown(row)} is beyond what a network has")
    return made


def _are_whole(parts: Sequence[Any]) -> bool:
    return all(
        isinstance(each, int) and not isinstance(each, bool) and abs(each) <= MOST_BYTES
        for each in parts
    )


def filled(node: Any, numbers: Sequence[int], depth: int = 0) -> Any:
    """A part of a span's network with numbers in their places. ValueError where it names one that there is not."""
    if depth > _MOST_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(node, list):
        return [filled(each, numbers, depth + 1) for each in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1 and NUMBER in node:
        return _number(node[NUMBER], numbers)
    if len(node) == 1 and TEXT in node and isinstance(node[TEXT], list):
        parts = node[TEXT]
        return "".join(
            part if isinstance(part, str) else str(_number(part, numbers)) for part in parts
        )
    return {key: filled(each, numbers, depth + 1) for key, each in node.items()}


def _number(place: Any, numbers: Sequence[int]) -> int:
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(numbers):
        raise ValueError(f"there is no number {shown(place)}")
    return numbers[place]


__all__ = [
    "NUMBER", "RANGED_FORMAT", "RANGED_VERSION", "TEXT", "Example", "RangedManifest", "Size", "SizePlace", "Span",
    "filled", "manifest_at", "number_at", "read_ranged", "span_of",
]  # fmt: skip
