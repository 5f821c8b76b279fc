"""One call in a process of somebody else's, on any machine: bytes in, bytes out.

What runs there starts a worker process of its own that can be killed (:class:`ProcessExecutor`), so that limits hold, a
crash is an outcome, and whoever lent the process keeps it. Files that a call names travel with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SynoError, told
from syno.session.config import Component
from syno.session.executors import Call, Outcome, ProcessExecutor
from syno.session.nodes import class_difference, facts, numeric_class, version

#: What a call leaves behind is not read where it is larger: a message of several gigabytes fills somebody's memory.
MOST_FILE_BYTES = 2 << 30

_END_S = 30.0  # for a thread to hear that its worker was ended


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it travels.

    ``files`` are what the call begins with, by the field of its request that names the file; ``numeric`` is the class that
    the machine must be of (empty: any), ``syno`` the version it must have.
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
    files: dict[str, bytes] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended there. ``refused`` is why the machine did not begin at all; ``files`` are those that the call wrote."""

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
_READ, _WRITTEN = ("checkpoint",), ("weights",)


def job_of(
    call: Call,
    *,
    threads: int,
    start_limit_s: float,
    memory_bytes: int | None = None,
    numeric: str = "",
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
            files=files,
        )
    )


def run_job(payload: bytes, folder: str = "", tell: Callable[[bytes], None] | None = None) -> bytes:
    """Runs a :class:`Job`, in a worker process of this one; an :class:`Answer`.

    Args:
        folder: the worker's working directory; empty: this process's.
        tell: gets a :class:`Word` now and then.
    """
    job = msgspec.msgpack.decode(payload, type=Job)
    own = facts()
    if job.syno and own.syno != job.syno:
        return _refusal(own.host, f"it has syno {own.syno}, the head {job.syno}")
    if job.numeric and numeric_class() != job.numeric:
        difference = class_difference(own.numeric, job.numeric)
        return _refusal(own.host, f"its digits may differ: {difference}")
    try:
        with tempfile.TemporaryDirectory(prefix="syno-job-") as place:
            answer = _performed(job, Path(place), folder, tell, own.host)
    except OSError as error:  # its disk is full, or it has no place for files
        return _refusal(own.host, f"it cannot keep files: {error.strerror or told(error)}")
    return msgspec.msgpack.encode(answer)


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

    def say(word: Word) -> None:
        if tell is not None:
            tell(msgspec.msgpack.encode(word))

    def started(index: int, worker: int) -> None:
        say(Word(what="started", node=node))

    def reported(index: int, step: int, metrics: dict[str, float]) -> None:
        nonlocal seen
        say(Word(what="reported", node=node, step=step, metrics=metrics))
        now = _changed(checkpoint)
        if tell is not None and now != seen:
            seen = now
            with contextlib.suppress(OSError):
                if checkpoint.stat().st_size <= MOST_FILE_BYTES:
                    say(Word(what="checkpoint", node=node, checkpoint=checkpoint.read_bytes()))

    call = Call(job.kind, job.component, request, job.limit_s)
    own = _own_worker(job, folder)
    try:
        with own.busy:
            found = own.executor.run([call], started=started, reported=reported)
            ((_, outcome),) = list(found)
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
    from syno.files import write_whole

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
