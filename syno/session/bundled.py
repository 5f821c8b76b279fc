"""Networks timed from their exported files, on machines that have neither torch nor the task nor a compiler.

The head builds a network, compiles it whole, checks it and exports it (:func:`exported`, in a worker process); its files travel as
one parcel. What reads a parcel there (:class:`BundleTimer`) believes nothing of it before it has looked: which names, how many
bytes, then all that :mod:`syno.graph.bundle` asks of a folder. Whoever may hand calls to a machine runs code on it in any case: a parcel
is native code, as what a pool or a Ray task is sent.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import FormatError, KernelError, SessionError, shown
from syno.session.config import Component
from syno.session.executors import Call
from syno.session.memory import show_bytes
from syno.session.protocols import ORIGINAL, Measurement, OperatorText, TimeRequest
from syno.session.remote import MOST_FILE_BYTES

if TYPE_CHECKING:
    from torch import nn

    from syno.graph.loaded import LoadedNetwork
    from syno.session.config import SessionConfig


class Parcel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of a compiled network by their names."""

    files: dict[str, bytes]


def packed(folder: Path) -> bytes:
    """A folder that ``syno.export`` wrote, as one parcel.

    Raises:
        FormatError: it is too large to travel.
    """
    from syno.graph import bundle

    names = [bundle.MANIFEST, *bundle.FILES]
    size = sum((folder / name).stat().st_size for name in names)
    if size > MOST_FILE_BYTES:
        raise FormatError(
            f"[target] the exported network has {show_bytes(size)}, and {show_bytes(MOST_FILE_BYTES)} travel: let the "
            "target build it from the task"
        )
    return msgspec.msgpack.encode(Parcel({name: (folder / name).read_bytes() for name in names}))


def unpacked(parcel: Path, folder: Path) -> None:
    """Writes a parcel's files into an empty folder.

    Raises:
        FormatError: it is none, or holds other files than a compiled network has.
    """
    from syno.graph import bundle

    try:
        size = parcel.stat().st_size
        if size > 2 * MOST_FILE_BYTES:
            raise FormatError(f"[target] a parcel of {show_bytes(size)} is no network's")
        files = msgspec.msgpack.decode(parcel.read_bytes(), type=Parcel).files
    except (OSError, msgspec.MsgspecError) as error:
        raise FormatError(f"[target] no network came: {error}") from None
    if wrong := sorted({*files} ^ {bundle.MANIFEST, *bundle.FILES}):
        raise FormatError(f"[target] no network came: its files differ in {shown(wrong)}")
    for name, content in files.items():
        (folder / name).write_bytes(content)


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One network to be exported by the measurer of a session, in a worker process of the head; ``assignment`` as in
    :class:`~syno.session.protocols.TrainRequest`. ``parcel`` is the file to write, ``cpu`` the CPU to compile for; empty: this one."""

    candidate: int
    assignment: dict[str, OperatorText]
    threads: int
    time_limit_s: float
    parcel: str
    cpu: str = ""


def exported(request: ExportRequest, make: Callable[[], tuple[nn.Module, Any]]) -> None:
    """Compiles what ``make`` makes, a network and its example, and writes the parcel.

    Raises:
        UnsupportedOp, CannotImport: PyTorch would compute a part of it.
        FormatError: the export fails its check, there is no linker, or it is too large.
    """
    from syno.compiling import compile
    from syno.export import export

    if request.cpu:
        os.environ["SYNO_CPU"] = request.cpu  # of this worker, which does nothing else
    model, example = make()
    with tempfile.TemporaryDirectory(prefix="syno-export-") as place:
        compiled = compile(model, example, threads=request.threads)
        export(compiled, Path(place) / "network", format="bundle", example=example)
        Path(request.parcel).write_bytes(packed(Path(place) / "network"))


class BundleTimer:
    """Loads, checks and times exported networks: the part that a target needs, without torch.

    Args:
        made_for: the CPU that they are compiled for, as a manifest has it.
    """

    def __init__(self, made_for: Mapping[str, Any]) -> None:
        from syno.graph.bundle import MadeFor

        self._made_for = msgspec.convert(made_for, MadeFor)

    def check(self) -> None:
        """Before work starts.

        Raises:
            KernelError: this CPU lacks what the code will use.
        """
        from syno.graph.bundle_cpu import require_cpu

        require_cpu(Path("the exported network"), self._made_for)

    def time(self, request: TimeRequest) -> Measurement:
        """Latency of a network, in turns with the original's where that came, too; both are computed on their example first.

        Raises:
            FormatError: what came is no compiled network, or damaged.
            KernelError: it computes something else here.
        """
        from syno.timing.bench import measure
        from syno.timing.measuring import measuring

        with tempfile.TemporaryDirectory(prefix="syno-timed-") as place:
            networks = {"network": _loaded(request.network, Path(place) / "network")}
            if request.original:
                networks[ORIGINAL] = _loaded(request.original, Path(place) / "original")
            errors = [_checked(network) for network in networks.values()]
            with measuring() as had:
                calls = {name: _call(each, request.threads) for name, each in networks.items()}
                timed = measure(calls, threads=request.threads, one_pool=True)
        shape = next((shape for shape, _ in networks["network"].inputs.values()), (1,))
        return Measurement(
            latency_us=timed[0].median_us,
            iqr_us=timed[0].iqr_us,
            samples=timed[0].samples,
            threads=request.threads,
            batch=int(shape[0]) if shape else 1,
            verified=True,
            max_rel_err=errors[0],
            peers_us={one.name: one.median_us for one in timed[1:]},
            notes=[had.note] if had.note else [],
            runner="compiled",
        )


def _loaded(parcel: str, folder: Path) -> LoadedNetwork:
    from syno.graph.loaded import load_network

    folder.mkdir()
    unpacked(Path(parcel), folder)
    return load_network(folder)


def _checked(network: LoadedNetwork) -> float:
    check = network.verify()
    if not check:
        raise KernelError(f"[target] the exported network computes something else here: {check}")
    return float(check.max_rel_err)


def _call(network: LoadedNetwork, threads: int) -> Callable[[], Any]:
    inputs = network.sample()[0]
    return lambda: network.run(inputs, num_threads=threads)


def timer(cpu: str) -> Component:
    """The part that times networks which are compiled for a CPU; empty: this one.

    Raises:
        UnknownName: no such CPU.
        SessionError: its code does not run here, where it is checked.
    """
    from syno import _core
    from syno.graph.bundle_cpu import made_for

    found = _core.cpu_named(cpu) if cpu else _core.host_cpu()
    if not found.runs_here:
        raise SessionError(
            f"networks for {shown(cpu)} are checked here before they travel, and this CPU cannot run them",
            fix="name one whose instructions this CPU has, such as x86-64-v3, or let the target build from the task",
            code="R025",
        )
    row = msgspec.to_builtins(made_for(found))
    return Component(reference=f"{__name__}:BundleTimer", options={"made_for": row})


def export_call(
    config: SessionConfig,
    candidate: int,
    assignment: dict[str, OperatorText],
    parcel: Path,
    cpu: str,
) -> Call:
    """Has the session's measurer export a network."""
    assert config.measurer is not None
    limit = config.limits.measure_limit_s
    request = ExportRequest(
        candidate=candidate,
        assignment=assignment,
        threads=config.threads_per_measurement,
        time_limit_s=limit,
        parcel=str(parcel),
        cpu=cpu,
    )
    return Call("export", config.measurer, request, limit)


def time_call(
    config: SessionConfig, candidate: int, part: Component, network: Path, original: Path | None
) -> Call:
    """Has a target time a parcel."""
    limit = config.limits.measure_limit_s
    request = TimeRequest(
        candidate=candidate,
        threads=config.threads_per_measurement,
        time_limit_s=limit,
        network=str(network),
        original="" if original is None else str(original),
    )
    return Call("time", part, request, limit)


__all__ = [
    "BundleTimer",
    "ExportRequest",
    "Parcel",
    "export_call",
    "exported",
    "time_call",
    "timer",
]
