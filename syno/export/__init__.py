"""Taking results elsewhere: C, PyTorch without LLVM, networks without both, ONNX, Triton, safetensors.

Every format checks what it wrote, by running it where that is possible, before it says so.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import FormatError, ShapeError, unknown_name
from syno.kernels.kernel import DTYPES
from syno.support.arguments import checked
from syno.support.inputs import arguments, as_inputs, described, unwrapped
from syno.support.notebook import facts

if TYPE_CHECKING:
    from torch import nn

    from syno.graph.compiled import CompiledNetwork
    from syno.graph.dynamic_model import DynamicModel
    from syno.graph.dynamic_onnx import DynamicOnnxModel
    from syno.graph.loaded import LoadedNetwork
    from syno.graph.loaded_ranged import LoadedRangedNetwork
    from syno.graph.model import CompiledModel
    from syno.kernels.targets import Target
    from syno.operators.operator import Operator

#: Format name -> module with `write(what, directory, call, dtype)`; the dtype is for operators, the call, positional
#: and named arguments, for modules.
FORMATS = {
    "bundle": "syno.export.network_bundle",
    "c": "syno.export.c_source",
    "torch": "syno.export.torch_bundle",
    "onnx": "syno.export.onnx_model",
    "triton": "syno.export.triton_kernels",
    "safetensors": "syno.export.safetensors_file",
}


#: The same of compiled networks: module with `write(source, directory)`.
NETWORK_FORMATS = {"bundle": "syno.export.network_bundle", "c": "syno.export.network_c"}


@dataclass(frozen=True)
class Exported:
    """What was written and how it was checked."""

    path: Path
    format: str
    files: tuple[str, ...]
    checked: str
    """The check that passed, in words."""
    max_abs_err: float
    """Largest difference that the check saw."""
    what: str = ""
    """What was exported, in words."""
    inputs: str = ""
    """Dtypes and shapes, the batch among them, that it is for; empty where it takes others, too."""
    cpu: str = ""
    """The CPU whose machine code it holds; empty where it holds none."""

    @property
    def fixed(self) -> str:
        """What the files are good for and nothing else, in a sentence; empty where that is everything."""
        parts = []
        if self.inputs:
            parts.append(f"for inputs {self.inputs} only, the batch included")
        if self.cpu:
            parts.append(f"machine code for {self.cpu}")
        return "; ".join(parts)

    def __str__(self) -> str:
        what = f" of {self.what}" if self.what else ""
        fixed = f"{self.fixed}; " if self.fixed else ""
        return (
            f"{self.format}{what} written to {self.path} ({', '.join(self.files)}); {fixed}"
            f"checked: {self.checked}, largest difference {self.max_abs_err:.1e}"
        )

    def _repr_html_(self) -> str:
        return facts(
            {
                "format": self.format,
                "what": self.what,
                "written to": self.path,
                "files": ", ".join(self.files),
                "good": self.fixed,
                "checked": self.checked,
                "largest difference": f"{self.max_abs_err:.1e}",
            }
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "format": self.format,
            "files": list(self.files),
            "checked": self.checked,
            "max_abs_err": self.max_abs_err,
            "what": self.what,
            "inputs": self.inputs,
            "cpu": self.cpu,
        }


@checked()
def export(
    what: Operator
    | nn.Module
    | CompiledModel
    | CompiledNetwork
    | DynamicModel
    | DynamicOnnxModel
    | LoadedNetwork
    | LoadedRangedNetwork,
    path: str | Path,
    *,
    format: str | None = None,
    example: Any = None,
    dtype: str | None = None,
    about: str | None = None,
    target: str | None = None,
    cpu: str | None = None,
    gpu: str | None = None,
) -> Exported:
    """Writes an operator, a model with operators in it, or a compiled network as a directory of files.

    What `syno.compile` and `syno.load_onnx(...).compile()` give is written in "bundle", which `syno.load` reads
    without LLVM and without torch, or in "c": a header, a static library and an example of a program. What was compiled
    with `dynamic` serves its ranges of sizes from there, too, with the code of all of them.

    Of a model, "torch", "onnx" and "safetensors" hold the whole; "bundle" compiles it first. "c" and "triton" hold an
    operator, or the operators of a model with their weights, one function or module for each; its other layers have no
    such form. What is written in "torch", "onnx", "c", "triton" and "bundle" is for the example's shapes, its batch
    included; "torch", "c" and "bundle" hold machine code of this CPU. The result, `manifest.json` and the loader say so.

    Args:
        what: an operator at one valuation, a module, or a network that was compiled, or loaded (then "c" only).
        path: a directory; it must not exist yet, or be empty.
        format: "bundle", "c", "torch", "onnx", "triton" or "safetensors"; default "bundle" of a compiled network, else "torch".
        example: inputs of a module: a tensor, a tuple of several, or a dictionary of named ones; operators
            know their shapes. Of a compiled network, by which the files are checked; default the one it was compiled
            with.
        dtype: of an operator: "float32" (default), "float64" or "bfloat16"; a module has its own.
        about: what this is, for people; default the operator's formula or the module's class.
        target: of machine code in "c": a triple, "aarch64-linux-gnu" or "x86_64-linux-gnu"; default this machine's.
        cpu: of the target: a name that LLVM knows there, such as "cortex-a76", "generic" (default), or
            "generic+sve256"; without both, the code is for this CPU. Code for another one is run where its
            C compiler and emulator are installed (Debian: gcc-aarch64-linux-gnu, qemu-user).
        gpu: whose tiles "triton" has: one of :func:`syno.gpu.gpu_names`, or the path of a GPU file; default "h200".
    Raises:
        UnknownName: no such format, dtype, target, CPU or GPU; the message lists the valid ones.
        ShapeError: a module without an example, or a symbolic operator.
        UnsupportedOp: PyTorch computes steps of a compiled network, or of one for ranges of sizes they are compiled for
            each size; `operators` lists them.
        FormatError: the directory holds files, cannot be written, or the check failed; nothing is
            left behind.
    """
    network = _is_network(what)
    if format is None:
        format = "bundle" if network else "torch"
    known = NETWORK_FORMATS if network else FORMATS
    if format not in known:
        raise unknown_name("format", format, known)
    if dtype is not None and dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    if dtype is not None and not hasattr(what, "expr"):
        raise FormatError(
            "[export] a module is exported as it is: what.to(dtype) makes another one"
        )
    if network and (target is not None or cpu is not None):
        raise FormatError(
            "[export] a network is compiled for the CPU that it is checked on: compile and export it there"
        )
    if format == "bundle" and hasattr(what, "expr"):
        raise FormatError("[export] an operator is no network: format='c' or 'torch' writes it")
    made_for = _made_for(format, target, cpu)
    tiles = _tiles_for(format, gpu)
    place = Path(path)
    require_free(place)
    if network or format == "bundle":
        return _export_network(what, place, format, example, about)
    call = None
    if not hasattr(what, "expr"):
        if example is None:
            raise ShapeError(
                "[export] a module is exported for the shapes of an example: example=x"
            )
        what = unwrapped(what)
        call = arguments(what, as_inputs(example))
    writer = importlib.import_module(FORMATS[format])
    more = [each for each in (made_for, tiles) if each is not None]
    checked, error_seen, files = _written(
        place, lambda staging: writer.write(what, staging, call, dtype or "float32", *more)
    )
    return Exported(
        place,
        format,
        files,
        checked,
        error_seen,
        what=about or _about(what),
        inputs="" if format == "safetensors" else _inputs_of(what, call),
        cpu=cpu_text(made_for) if format in ("c", "torch") else "",
    )


def require_free(place: Path) -> None:
    """Raises FormatError where a directory cannot be written because something is there."""
    try:
        taken = place.exists() and (not place.is_dir() or any(place.iterdir()))
    except (OSError, ValueError) as error:
        raise FormatError(f"[export] {place} cannot be written: {error}") from error
    if taken:
        raise FormatError(f"[export] {place} exists and is not an empty directory")


def _written(
    place: Path, write: Callable[[Path], tuple[str, float]]
) -> tuple[str, float, tuple[str, ...]]:
    """Writes a directory as a whole or not at all: the check in words, the largest difference, the files.

    Raises:
        FormatError: it cannot be written.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}."))
    except OSError as error:
        raise FormatError(f"[export] {place} cannot be written: {error.strerror}") from error
    try:
        checked, error_seen = write(staging)
        files = tuple(
            sorted(str(f.relative_to(staging)) for f in staging.rglob("*") if f.is_file())
        )
        staging.chmod(0o755)
        if place.exists():
            place.rmdir()
        staging.rename(place)
    except OSError as error:
        raise FormatError(f"[export] {place} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return checked, error_seen, files


#: Networks for ranges of sizes: those that were compiled, and those that were read from files.
_RANGED = ("DynamicModel", "DynamicOnnxModel", "RangedFolder")


def _is_network(what: Any) -> bool:
    """Whether it is a network that was compiled, of its three kinds."""
    return any(
        kind.__name__ in ("CompiledModel", "NetworkCall", *_RANGED)
        and kind.__module__.startswith("syno.graph.")
        for kind in type(what).__mro__
    )


def _export_network(
    what: Any, place: Path, format: str, example: Any, about: str | None
) -> Exported:
    if any(kind.__name__ in _RANGED for kind in type(what).__mro__):
        return _export_ranged(what, place, format, example, about)
    from syno.export import network_bundle
    from syno.graph.bundle_cpu import described as cpu_described
    from syno.graph.loaded import LoadedNetwork, load_network

    if isinstance(what, LoadedNetwork):
        if format == "bundle":
            raise FormatError(
                f"[export] {what.path} is a bundle already: copy the folder, or write format='c'"
            )
        source = None
    else:
        if not _is_network(what):
            from syno.compiling import compile

            what = compile(unwrapped(what), example)
        source = network_bundle.source_of(what, example, about or "")

    def write(staging: Path) -> tuple[str, float]:
        if source is not None and format == "bundle":
            return network_bundle.write(source, staging)
        from syno.export import network_c

        if source is None:
            return network_c.write(what, staging, about or "")
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as folder:
            network_bundle.write(source, Path(folder))
            return network_c.write(load_network(Path(folder)), staging, about or "")

    checked, error_seen, files = _written(place, write)
    network = what if source is None else source.network
    shapes = [f"{name} {dtype} {list(shape)}" for name, (shape, dtype) in network.inputs.items()]
    made_for = what.manifest.made_for if source is None else source.made_for
    return Exported(
        place,
        format,
        files,
        checked,
        error_seen,
        what=about or f"the compiled network {source.name if source else what.manifest.name}",
        inputs=", ".join(shapes),
        cpu=cpu_described(made_for),
    )


def _export_ranged(
    what: Any, place: Path, format: str, example: Any, about: str | None
) -> Exported:
    from syno.graph.loaded_ranged import LoadedRangedNetwork, load_ranged

    if isinstance(what, LoadedRangedNetwork):
        if format == "bundle":
            raise FormatError(
                f"[export] {what.path} is a bundle already: copy the folder, or write format='c'"
            )
        source = None
    else:
        from syno.export import ranged_bundle

        source = ranged_bundle.ranged_source_of(what, example, about or "")
    described: list[str] = []

    def write(staging: Path) -> tuple[str, float]:
        from syno.export import ranged_bundle

        if source is None:
            from syno.export import ranged_c

            described.extend(_ranged_text(what))
            return ranged_c.write(what, staging, about or "")
        if format == "bundle":
            made = ranged_bundle.write(source, staging)
            described.extend(_ranged_text(load_ranged(staging)))
            return made
        from syno.export import ranged_c

        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as folder:
            ranged_bundle.write(source, Path(folder))
            loaded = load_ranged(Path(folder))
            described.extend(_ranged_text(loaded))
            return ranged_c.write(loaded, staging, about or "")

    checked, error_seen, files = _written(place, write)
    name, inputs, cpu = described
    return Exported(
        place, format, files, checked, error_seen, what=about or f"the compiled network {name}", inputs=inputs, cpu=cpu
    )  # fmt: skip


def _ranged_text(network: Any) -> tuple[str, str, str]:
    """Name, inputs and CPU of a network for ranges of sizes, for people."""
    greatest = network.described_at(*network.ranges.greatest)
    inputs = [
        f"{name} {kind} {list(shape)}"
        for name, (kind, shape) in greatest.to_dict()["inputs"].items()
    ]
    return network.manifest.name, f"{', '.join(inputs)} and smaller, {network.ranges}", network.cpu


def _made_for(format: str, target: str | None, cpu: str | None) -> Target | None:
    """None: this CPU."""
    if target is None and cpu is None:
        return None
    from syno.kernels.targets import Target

    found = Target.named(target, cpu)
    if format != "c":
        raise FormatError(
            f"[export] format {format!r} is not for a target of its own: only 'c' has machine code for {found}"
        )
    return found


def _tiles_for(format: str, gpu: str | None) -> str | None:
    """The name of a GPU that there is; None: the default one."""
    if gpu is None:
        return None
    from syno.gpu.models import gpu_named

    if format != "triton":
        raise FormatError(
            f"[export] format {format!r} has no kernels for GPUs: only 'triton' has tiles for one"
        )
    gpu_named(gpu)
    return gpu


def _about(what: Any) -> str:
    if hasattr(what, "expr"):
        return f"the operator {' '.join(what.expr.split())}"
    return f"the model {type(what).__name__}"


def _inputs_of(what: Any, call: tuple[tuple[Any, ...], dict[str, Any]] | None) -> str:
    if call is None:
        return ", ".join(f"{name} {list(shape)}" for name, shape in what.shapes.items())
    args, named = call
    parts = [described(each) for each in args]
    return ", ".join([*parts, *(f"{name}: {described(each)}" for name, each in named.items())])


def cpu_text(target: Target | None = None) -> str:
    """The CPU that machine code is made for, and its vector instructions, for people; default this one."""
    if target is not None:
        return str(target)
    from syno import _core
    from syno.export.linking import instructions

    cpu = _core.host_cpu()
    vectors = [name for name in instructions() if name.startswith(("avx", "fma"))]
    return f"{cpu.name} ({', '.join(vectors)})" if vectors else str(cpu.name)


class _CallableModule(types.ModuleType):
    """Lets `syno.export(...)` work however this package was first imported."""

    def __call__(self, *args: Any, **kwargs: Any) -> Exported:
        return export(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
