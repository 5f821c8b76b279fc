"""Networks for ranges of sizes read from files: called as the compiled ones that they were, without LLVM and without torch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import ShapeError
from syno.graph import bundle, bundle_cpu
from syno.graph.loaded import LoadedNetwork, Memory, NetworkFolder, bound, check_call
from syno.graph.ranged_bundle import RangedManifest, manifest_at, read_ranged, span_of
from syno.graph.sizes import Ranges
from syno.support.bounded import Bounded
from syno.support.notebook import Printed, facts

if TYPE_CHECKING:
    from syno.graph.checking import Check

#: Sizes of which the networks are kept, linked.
KEPT_SIZES = 64


class RangedFolder(Printed):
    """What a folder says of the network for ranges of sizes in it; nothing in it is run.

    Attributes:
        path: the folder.
        manifest: what it says, found to be consistent as far as that is the same at all sizes.
        ranges: of the sizes.
    """

    def __init__(self, path: Path, manifest: RangedManifest) -> None:
        self.path, self.manifest = path, manifest
        self.threads = manifest.threads
        self.ranges = Ranges(
            tuple(size.name for size in manifest.sizes),
            tuple(size.least for size in manifest.sizes),
            tuple(size.greatest for size in manifest.sizes),
        )

    @property
    def cpu(self) -> str:
        """The CPU that it was made for, and its vector instructions."""
        return bundle_cpu.described(self.manifest.made_for)

    @property
    def weight_bytes(self) -> int:
        """Of the file of weights."""
        return self.manifest.files[bundle.WEIGHTS].bytes

    def described_at(self, *values: int, **sizes: int) -> NetworkFolder:
        """What the folder says of the network at these sizes.

        Raises:
            ShapeError, UnknownName: as of `LoadedRangedNetwork.at`.
            FormatError: it is no network there.
        """
        return NetworkFolder(self.path, self._manifest_at(self._values(values, sizes)))

    def to_dict(self) -> dict[str, Any]:
        """Sizes, memory, check and CPU, and the network at the greatest sizes, for JSON."""
        ranges = zip(self.ranges.names, self.ranges.least, self.ranges.greatest, strict=True)
        return {
            **self.described_at(*self.ranges.greatest).to_dict(),
            "sizes": {name: [least, greatest] for name, least, greatest in ranges},
            "spans": [[list(span.least), list(span.greatest)] for span in self.manifest.spans],
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.manifest.name}: {self.ranges}, from {self.path}>"

    def __str__(self) -> str:
        spans = "; ".join(
            ", ".join(f"{low}-{high}" for low, high in zip(span.least, span.greatest, strict=True))
            for span in self.manifest.spans
        )
        return f"{self!r}\n  code for: {spans}\nat the greatest sizes: {self.described_at(*self.ranges.greatest)}"

    def _repr_html_(self) -> str:
        return facts(
            {
                "network": self.manifest.name,
                "sizes": str(self.ranges),
                "machine code": f"for {self.cpu}",
            }
        )

    def _values(self, values: Sequence[int], sizes: dict[str, int]) -> tuple[int, ...]:
        named = dict(zip(self.ranges.names, values, strict=False))
        if len(values) > len(named):
            raise ShapeError(f"[dynamic] {len(values)} sizes; the network has {', '.join(named)}")
        found = self.ranges.checked({**named, **sizes})
        if span_of(self.manifest, found) is None:
            told = ", ".join(
                f"{name}={n}" for name, n in zip(self.ranges.names, found, strict=True)
            )
            raise ShapeError(f"[dynamic] {self.path} holds no network of {told}")
        return found

    def _manifest_at(self, sizes: Sequence[int]) -> bundle.Manifest:
        made = manifest_at(self.path, self.manifest, sizes)
        check_call(self.path, made)
        return made


class LoadedRangedNetwork(RangedFolder):
    """A network for ranges of sizes from a folder that `syno.export` wrote: machine code for CPUs like the one it was made on.
    Thread-safe; `syno.load` makes it.

    Weights stay in their file, which the system maps into memory: the folder must stay as it is.
    """

    def __init__(self, path: Path, manifest: RangedManifest) -> None:
        """Maps machine code; the manifest has been checked, and the CPU."""
        super().__init__(path, manifest)
        self._memory = Memory.of(path, manifest)
        self._lock = threading.Lock()
        self._at: Bounded[tuple[int, ...], LoadedNetwork] = Bounded(KEPT_SIZES)
        greatest = self._linked(tuple(manifest.spans[-1].greatest))
        self._call = greatest.manifest.call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the model that it was, on NumPy arrays or torch tensors; see `LoadedNetwork`.

        Raises:
            ShapeError: a size is outside of its range, or arguments are of another structure, shape or value than those of
                the example.
            KernelError: an argument of another element type or device, or one that requires a gradient while torch
                records them.
        """
        return self._linked(self._sizes_of(args, kwargs))(*args, **kwargs)

    def at(self, *values: int, **sizes: int) -> LoadedNetwork:
        """The network at these sizes, by name or in their order, ready to be called.

        Raises:
            ShapeError: a size is missing, or outside of its range.
            UnknownName: of a size that there is not.
            FormatError: the folder's network is none there.
        """
        return self._linked(self._values(values, sizes))

    def verify(self) -> Check:
        """Computes the examples that it was exported with, at several sizes, and compares with what float64 gave: the worst.

        Raises:
            FormatError: `sample.bin` is damaged.
        """
        checks = [self._linked(tuple(each.sizes)).verify() for each in self.manifest.examples]
        failed = [check for check in checks if not check]
        return max(failed or checks, key=lambda check: check.max_rel_err)

    def __reduce__(self) -> tuple[Any, ...]:
        return load_ranged, (self.path,)

    def _linked(self, sizes: tuple[int, ...]) -> LoadedNetwork:
        found = self._at.get(sizes)
        if found is None:
            with self._lock:
                found = self._at.get(sizes)
                if found is None:
                    made = LoadedNetwork(self.path, self._manifest_at(sizes), self._memory)
                    found = self._at.setdefault(sizes, made)
        return found

    def _sizes_of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, ...]:
        given = {name: value for name, _, value in bound(self._call, args, kwargs)}
        found = []
        for size in self.manifest.sizes:
            seen: int | None = None
            for place in size.places:
                value = given[place.parameter]
                shape = [int(extent) for extent in getattr(value, "shape", ())]
                if len(shape) <= place.dim:
                    raise ShapeError(
                        f"[dynamic] the argument {place.parameter!r} has shape {shape}; its dimension {place.dim} "
                        f"gives {size.name}"
                    )
                n = shape[place.dim]
                if seen is not None and n != seen:
                    raise ShapeError(
                        f"[dynamic] the argument {place.parameter!r} has shape {shape}: its dimension {place.dim} "
                        f"gives {size.name}={n}, another argument {seen}"
                    )
                if not size.least <= n <= size.greatest:
                    raise ShapeError(
                        f"[dynamic] the argument {place.parameter!r} has shape {shape}: its dimension {place.dim} "
                        f"gives {size.name}={n}, and the network was exported for {size.least} to {size.greatest}; pass a "
                        "size within, or compile and export it for a wider range"
                    )
                seen = n
            assert seen is not None
            found.append(seen)
        if span_of(self.manifest, found) is None:
            return self._values(found, {})  # says which
        return tuple(found)


def describe_ranged(path: Path) -> RangedFolder:
    """What a folder says of itself: also where it is for another CPU.

    Raises:
        FormatError: it is no network for ranges of sizes, or of another version, damaged, or contradicts itself.
    """
    return _with_parameters(RangedFolder(path, read_ranged(path)))


def load_ranged(path: Path) -> LoadedRangedNetwork:
    """Reads a folder that `syno.export` wrote of a network for ranges of sizes; as `load_network` does.

    Raises:
        FormatError: it is none, or of another version, damaged, or contradicts itself.
        KernelError: it was made for another CPU, or there is no memory for it.
    """
    manifest = read_ranged(path)
    bundle_cpu.require_cpu(path, manifest.made_for)
    _with_parameters(RangedFolder(path, manifest))
    return LoadedRangedNetwork(path, manifest)


def _with_parameters(folder: RangedFolder) -> RangedFolder:
    """FormatError where a size is that of an argument that there is not, or the ends of a span are no network."""
    for span in folder.manifest.spans:
        for sizes in (span.least, span.greatest):
            call = folder._manifest_at(sizes).call
            names = {each.name for each in call.parameters if "tensor" in each.value}
            for size in folder.manifest.sizes:
                for place in size.places:
                    if place.parameter not in names:
                        raise bundle.unusable(
                            folder.path,
                            f"{size.name} is a size of {place.parameter}, which is no tensor",
                        )
    return folder


__all__ = ["LoadedRangedNetwork", "RangedFolder", "describe_ranged", "load_ranged"]
