"""The machine model: measured once by micro-benchmarks, saved, shown, drawn as a roofline."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syno import _core
from syno.config import cache_directory, config, deterministic
from syno.errors import FormatError
from syno.support.files import not_a_file, write_over, write_whole
from syno.timing.measuring import measuring

MachineModel = _core.MachineModel
_LARGEST_BYTES = 1 << 20


def machine_file() -> Path | None:
    """Where the model of this machine is kept: ``SYNO_MACHINE``, else beside the compiled kernels.

    None where neither is there: ``SYNO_CACHE`` is empty.
    """
    given = os.environ.get("SYNO_MACHINE")
    if given:
        return Path(given)
    directory = cache_directory()
    return directory / f"machine-{machine_key()}.json" if directory else None


def machine_key() -> str:
    """Names this machine and the CPU code is generated for, in files: 16 hexadecimal digits."""
    return _machine_key(os.environ.get("SYNO_CPU", ""))


@functools.lru_cache(maxsize=8)
def _machine_key(cpu: str) -> str:
    machine = _described(cpu)
    facts = (machine.name, machine.cores, machine.vector_bits, _core.host_cpu().features)
    return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def load_machine(path: str | Path) -> MachineModel:
    """Reads a machine file, of this machine or another.

    Args:
        path: of a file that :func:`save_machine` or ``syno doctor --measure`` wrote.
    Raises:
        FormatError: there is no such file, or the path in it that is wrong.
    """
    if kind := not_a_file(Path(path)):
        raise FormatError(f"[machine] {path} cannot be read: it is {kind}; give a machine file")
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise FormatError(
                f"[machine] {path} has over {_LARGEST_BYTES} bytes; a machine file has few"
            )
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"[machine] {path} cannot be read: {error}") from error
    return MachineModel.from_json(text)


def save_machine(machine: MachineModel, path: str | Path) -> None:
    """Writes a machine file, whole or not at all.

    Args:
        machine: what :func:`machine_model` or :func:`load_machine` gave.
        path: of the file, a JSON text.
    Raises:
        OSError: the directory cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, machine.to_json() + "\n")


def machine_model(*, measure: bool = False, fresh: bool = False) -> MachineModel:
    """The model of this machine that schedules are constructed from.

    Args:
        measure: measure it when no file has it yet (about a second, one core), and save it; once in
            this process where there is no file to save it in. Otherwise typical rates stand in for
            measured ones, and where kernels are to be deterministic (see :mod:`syno.config`).
        fresh: measure again whatever there is.
    Raises:
        FormatError: the file that ``SYNO_MACHINE`` names is damaged; a damaged file of the cache is
            measured again or ignored.
    """
    given = os.environ.get("SYNO_MACHINE")
    described = _described(os.environ.get("SYNO_CPU", ""))
    if deterministic() and not fresh:
        return load_machine(given) if given else described
    path = machine_file()
    if not fresh and path is not None and path.is_file():
        found = _loaded(str(path), path.stat().st_mtime_ns)
        # A file of an earlier version does not say what the CPU is known to have, or what accesses cost: measured again.
        if found is not None and (
            given
            or (
                found.fma_ports == described.fma_ports
                and (found.access_cycles != described.access_cycles or not measure)
            )
        ):
            return found
    if not (measure or fresh):
        return described
    if path is None and not fresh:
        return _measured(os.environ.get("SYNO_CPU", ""))
    with measuring():
        machine = _core.measure_machine()
    if path is not None:
        with contextlib.suppress(OSError):  # the next process measures again
            path.parent.mkdir(parents=True, exist_ok=True)
            write_over(path, machine.to_json() + "\n")
    return machine


@contextlib.contextmanager
def fixed_kernels(machine: str | None) -> Iterator[None]:
    """For a block and the processes it starts, kernels depend on program, one machine file and seed only.

    Args:
        machine: the machine file's JSON; ``None`` leaves all as it is.
    """
    if machine is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="syno-") as folder:
        path = Path(folder) / "machine.json"
        path.write_text(machine, encoding="utf-8")
        with config(deterministic="1", machine=str(path)):
            yield


@functools.lru_cache(maxsize=8)
def _loaded(path: str, _changed: int) -> MachineModel | None:
    try:
        return load_machine(path)
    except FormatError:
        if os.environ.get("SYNO_MACHINE"):
            raise
        return None


@functools.lru_cache(maxsize=8)
def _measured(_cpu: str) -> MachineModel:
    with measuring():
        return _core.measure_machine()


@functools.lru_cache(maxsize=8)
def _described(_cpu: str) -> MachineModel:
    return _core.describe_machine()


def plot_roofline(
    machine: MachineModel, points: dict[str, tuple[float, float]] | None = None, axes: Any = None
) -> Any:
    """Draws what the machine can reach against arithmetic intensity, one roof a memory level.

    Args:
        machine: the model.
        points: by name, (floating-point operations per byte, GFLOP/s), drawn as dots.
        axes: matplotlib axes to draw on; default new ones.
    Returns:
        The axes.

    Raises:
        FormatError: matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise FormatError(
            '[machine] there is no plot without matplotlib: pip install "syno[plot]"'
        ) from None

    if axes is None:
        _, axes = plt.subplots(figsize=(6, 4))
    peak = machine.peak_gflops()
    intensities = [2.0**e for e in range(-5, 10)]
    for level in machine.levels:
        roof = [min(peak, i * level.read_gbs) for i in intensities]
        axes.plot(intensities, roof, label=f"{level.name}, {level.read_gbs:.0f} GB/s")
    for name, (intensity, gflops) in (points or {}).items():
        axes.plot([intensity], [gflops], "o", color="black", markersize=4)
        axes.annotate(name, (intensity, gflops), fontsize=7)
    axes.axhline(peak, color="grey", linewidth=0.5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("floating-point operations a byte")
    axes.set_ylabel("GFLOP/s, one core")
    axes.set_title(f"{machine.name}: {peak:.0f} GFLOP/s")
    axes.legend(fontsize=7)
    return axes


def describe(machine: MachineModel) -> dict[str, Any]:
    """The model as plain values, for JSON.

    Args:
        machine: what :func:`machine_model` or :func:`load_machine` gave.
    Returns:
        What a machine file holds, with ``peak_gflops`` (of one core, float32) and ``disturbed``, the sentence of :func:`disturbed`.
    """
    import json

    facts: dict[str, Any] = json.loads(machine.to_json())
    facts["peak_gflops"] = machine.peak_gflops()
    facts["disturbed"] = disturbed(machine)
    return facts


def disturbed(machine: MachineModel) -> str:
    """What was wrong while it was measured, as a sentence; empty where nothing was.

    A core starts whole multiply-adds a cycle. Where fewer were reached, something else used it: another program, or on a
    virtual machine a neighbour. Schedules are made for the core as it is without; rates of caches may be too low.

    Args:
        machine: what :func:`machine_model` or :func:`load_machine` gave.
    """
    if not machine.disturbed:
        return ""
    return (
        f"{machine.fma_per_cycle:.2f} of {machine.fma_pipes:g} multiply-adds a cycle were reached: something else used the core; "
        "'syno doctor --measure' measures again"
    )
