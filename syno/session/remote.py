"""One call in a process of somebody else's, on any machine: bytes in, bytes out.

What runs there starts a worker process of its own that can be killed (:class:`ProcessExecutor`), so that limits hold, a
crash is an outcome, and whoever lent the process keeps it. Files that a call names travel with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SynoError, told
from syno.session.config import Component
from syno.session.executors import Call, Outcome, ProcessExecutor
from syno.session.nodes import (
    Facts,
    class_difference,
    facts,
    numeric_class,
    version,
    why_unfit,
)

#: What a call leaves behind is not read where it is larger: a message of several gigabytes fills somebody's memory.
MOST_FILE_BYTES = 2 << 30

_END_S = 30.0  # for a thread to hear that its worker was ended


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it travels.

    ``files`` are what the call begins with, by the field of its request that names the file; ``numeric`` is the class that
    the machine must be of (empty: any), ``syno`` the version it must have. ``hand_back_s``: a training that takes longer
    comes back when it was written down, to be gone on with elsewhere; 0: never. ``machine`` is a machine file (JSON) that
    the machine must fit; empty: any.
    """

    kind: str
    component: Component
    request: Any
    limit_s: float
    threads: int
    start_limit_s: float
    memory_bytes: int | None = None
    numeric: str = ""
    syno: str = ""
    python: str = ""
    hand_back_s: float = 0.0
    machine: str = ""
    files: dict[str, bytes] = {}


class Lender(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine answers a call of kind :data:`MACHINE`: its facts and its model (JSON)."""

    facts: Facts
    machine: str


#: Kind of a call that asks what the machine is.
MACHINE = "machine"

#: State of an :class:`Answer`: the training goes on from its file ``checkpoint``, wherever the call is handed to next.
CONTINUES = "continues"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended there, or :data:`CONTINUES`. ``refused`` is why the machine did not begin at all; ``files`` are those that
    the call wrote."""

    state: str
    value: Any = None
    reason: str = ""
    code: str = ""
    seconds: float = 0.0
    node: str = ""
    numeric: str = ""
    refused: str = ""
    files: dict[str, bytes] = {}

    def outcome(self, worker: int = 0) -> Outcome:
        """The same for a session."""
        return Outcome(
            self.state,
            self.value,
            self.reason,
            self.code,
            self.seconds,
            worker,
            self.node,
            self.numeric,
        )


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What is heard of a call while it runs: that it began, a report, or the file a training can go on from."""

    what: str
    node: str = ""
    step: int = 0
    metrics: dict[str, float] = {}
    checkpoint: bytes = b""


#: Fields of a request that name files which the call may read, and those which it writes.
_READ, _WRITTEN = ("checkpoint", "network", "original"), ("weights",)


def job_of(
    call: Call,
    *,
    threads: int,
    start_limit_s: float,
    memory_bytes: int | None = None,
    numeric: str = "",
    hand_back_s: float = 0.0,
    machine: str = "",
) -> bytes:
    """A call as it travels, with the files it begins with."""
    files = {}
    for name in _READ:
        path = getattr(call.request, name, "")
        with contextlib.suppress(OSError):
            if path:
                files[name] = Path(path).read_bytes()
    return msgspec.msgpack.encode(
        Job(
            kind=call.kind,
            component=call.component,
            request=msgspec.to_builtins(call.request),
            limit_s=call.limit_s,
            threads=threads,
            start_limit_s=start_limit_s,
            memory_bytes=memory_bytes,
            numeric=numeric,
            syno=version("syno"),
            python=platform.python_version(),
            hand_back_s=hand_back_s if call.kind == "train" else 0.0,
            machine=machine,
            files=files,
        )
    )


def run_job(payload: bytes, folder: str = "", tell: Callable[[bytes], None] | None = None) -> bytes:
    """Runs a :class:`Job`, in a worker process of this one; an :class:`Answer`.

    Args:
        folder: the worker's working directory; empty: this process's.
        tell: gets a :class:`Word` now and then, and what a training is written down in, at once.
    """
    job = msgspec.msgpack.decode(payload, type=Job)
    own = facts()
    if job.kind == MACHINE:
        lender = Lender(facts=own, machine=_model())
        return msgspec.msgpack.encode(
            Answer(state="ok", value=msgspec.to_builtins(lender), node=own.host)
        )
    head = msgspec.structs.replace(own, python=job.python or own.python, syno=job.syno or own.syno)
    if why := why_unfit(own, head):
        return _refusal(own.host, why.removeprefix(f"{own.host} "))
    if job.numeric and numeric_class() != job.numeric:
        difference = class_difference(own.numeric, job.numeric)
        return _refusal(own.host, f"its digits may differ: {difference}")
    if job.machine and (differs := unlike(job.machine, _model())):
        return _refusal(own.host, f"it is another machine: {differs}")
    try:
        with tempfile.TemporaryDirectory(prefix="syno-job-") as place:
            if job.kind == "train" and (why := _cannot_make(job, Path(place), folder)):
                return _refusal(own.host, why)
            answer = _performed(job, Path(place), folder, tell, own.host)
    except OSError as error:  # its disk is full, or it has no place for files
        return _refusal(own.host, f"it cannot keep files: {error.strerror or told(error)}")
    return msgspec.msgpack.encode(answer)


_able: set[bytes] = set()  # parts that were made here


def _cannot_make(job: Job, place: Path, folder: str) -> str:
    """Why this machine cannot make the part that trains, asked once: of one that came late nobody knew, and what is its own
    fault must not be the candidate's."""
    part = msgspec.json.encode((job.component, folder), order="deterministic")
    if part in _able:
        return ""
    check = msgspec.structs.replace(job, kind="check", files={}, request={})
    answer = _performed(check, place, folder, None, "")
    if answer.state == "ok":
        _able.add(part)
    if answer.state in ("ok", "lost"):  # a process that was killed says nothing of the machine
        return answer.refused
    return answer.refused or answer.reason


def _model() -> str:
    from syno.machines.model import machine_model

    return machine_model().to_json()


def unlike(wanted: str, found: str) -> str:
    """In what a machine file differs from the one that is wanted, as far as no clock decides it; empty where it does not."""
    from syno.executors.target import difference, traits

    return difference(traits(wanted), traits(found))


def _refusal(node: str, why: str) -> bytes:
    return msgspec.msgpack.encode(Answer(state="node", node=node, refused=why))


def _performed(
    job: Job, place: Path, folder: str, tell: Callable[[bytes], None] | None, node: str
) -> Answer:
    request = dict(job.request) if isinstance(job.request, dict) else job.request
    for name in (*_READ, *_WRITTEN):
        if isinstance(request, dict) and request.get(name):
            request[name] = str(place / name)
            if name in job.files:
                (place / name).write_bytes(job.files[name])
    checkpoint = place / "checkpoint"
    seen = _changed(checkpoint)
    begun = time.monotonic()

    def say(word: Word) -> None:
        if tell is not None:
            tell(msgspec.msgpack.encode(word))

    def started(index: int, worker: int) -> None:
        say(Word(what="started", node=node))

    def reported(index: int, step: int, metrics: dict[str, float]) -> None:
        say(Word(what="reported", node=node, step=step, metrics=metrics))

    def look() -> list[Call]:
        """Asked once a second or more often: what is written down must lie elsewhere when this machine is lost."""
        nonlocal seen
        now = _changed(checkpoint)
        if now == seen or now is None:
            return []
        seen = now
        with contextlib.suppress(OSError):
            written = checkpoint.read_bytes() if now[1] <= MOST_FILE_BYTES else b""
            if written and 0 < job.hand_back_s <= time.monotonic() - begun:
                raise _HandedBack(written)
            if written:
                say(Word(what="checkpoint", node=node, checkpoint=written))
        return []

    call = Call(job.kind, job.component, request, job.limit_s)
    own = _own_worker(job, folder)
    try:
        with own.busy:
            found = own.executor.run([call], started=started, reported=reported, more=look)
            ((_, outcome),) = list(found)
    except _HandedBack as back:
        return Answer(
            state=CONTINUES,
            seconds=time.monotonic() - begun,
            node=node,
            numeric=numeric_class(),
            files={"checkpoint": back.checkpoint},
        )
    except SynoError as error:  # the machine has no process left
        return Answer(state="node", node=node, refused=told(error))
    files = {}
    for name in _WRITTEN:
        path = place / name
        if outcome.state == "ok" and path.exists() and path.stat().st_size <= MOST_FILE_BYTES:
            files[name] = path.read_bytes()
    return Answer(
        state=outcome.state,
        value=outcome.value,
        reason=outcome.reason,
        code=outcome.code,
        seconds=outcome.seconds,
        node=node,
        numeric=numeric_class(),
        files=files,
    )


class _HandedBack(Exception):
    """Ends the worker of a training that is gone on with elsewhere."""

    def __init__(self, checkpoint: bytes) -> None:
        super().__init__()
        self.checkpoint = checkpoint


def _changed(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def examine(payload: bytes, folder: str = "") -> bytes:
    """This machine's :class:`Facts`, its ``problem`` where it cannot make the part that the job names."""
    own = facts()
    try:
        job = msgspec.msgpack.decode(payload, type=Job)
    except msgspec.MsgspecError as error:
        return msgspec.msgpack.encode(facts(f"its syno does not read this one's calls: {error}"))
    if own.syno != job.syno:
        return msgspec.msgpack.encode(own)
    answer = msgspec.msgpack.decode(run_job(payload, folder), type=Answer)
    problem = answer.refused or ("" if answer.state == "ok" else answer.reason)
    return msgspec.msgpack.encode(facts(problem))


def keep_files(call: Call, files: dict[str, bytes]) -> None:
    """Writes what a call left elsewhere to where its request says.

    Raises:
        OSError: it cannot be written.
    """
    from syno.support.files import write_whole

    for name in (*_READ, *_WRITTEN):
        path = getattr(call.request, name, None)
        if path and name in files:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(Path(path), files[name])


# --- this process's workers: one a thread, kept from call to call, so that imports and data are loaded once


@dataclass
class _Kept:
    key: tuple[Any, ...]
    executor: ProcessExecutor
    busy: threading.Lock = field(default_factory=threading.Lock)


_kept: dict[int, _Kept] = {}
_keeping = threading.Lock()


def _own_worker(job: Job, folder: str) -> _Kept:
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    key = (job.threads, job.start_limit_s, job.memory_bytes, folder, devices)
    thread = threading.get_ident()
    with _keeping:
        known = _kept.get(thread)
        if known is not None and known.key == key:
            return known
    if known is not None:
        known.executor.close()
    executor = ProcessExecutor(
        1,
        threads=job.threads,
        start_limit_s=job.start_limit_s,
        memory_bytes=job.memory_bytes,
        logs=_logs(thread),
        folder=Path(folder) if folder else None,
    )
    made = _Kept(key, executor)
    with _keeping:
        _kept[thread] = made
    return made


_folder: tempfile.TemporaryDirectory[str] | None = None


def _logs(thread: int) -> Path:
    """Where the last words of a thread's workers are read from."""
    global _folder
    with _keeping:
        if _folder is None:
            _folder = tempfile.TemporaryDirectory(prefix="syno-logs-")
        path = Path(_folder.name) / str(thread)
        path.mkdir(exist_ok=True)
        return path


def end_workers() -> None:
    """Ends the workers of this process, busy or not; the threads that wait for them hear of it."""
    with _keeping:
        found = list(_kept.values())
        _kept.clear()
    for own in found:
        own.executor.end_soon()
    for own in found:
        if own.busy.acquire(timeout=_END_S):
            own.executor.close()
            own.busy.release()


atexit.register(end_workers)
