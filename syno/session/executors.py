"""Who runs trainings and measurements on this machine: processes that can be killed, or this process."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from syno.errors import SessionError
from syno.session.config import Component
from syno.session.memory import show_bytes, tree_bytes
from syno.session.worker import Parts, call_mark, code_of, describe, frame, perform, take_frame
from syno.support.fresh import python_command, python_environment

Reported = Callable[[int, int, dict[str, float]], None]


@dataclass(frozen=True)
class Call:
    """One piece of work: ``request`` for the part that ``component`` makes, within ``limit_s`` seconds."""

    kind: str
    component: Component
    request: Any
    limit_s: float


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    ``state``: ``"ok"`` (``value`` is plain data), ``"error"`` (an exception), ``"crash"`` (the process
    died by itself), ``"limit"`` (killed at its time limit), ``"memory"`` (killed at its memory limit), ``"lost"`` (killed
    from outside, or a GPU that others use, too, was full), ``"node"`` (what ran it is gone, which says nothing of the call). ``node`` is the machine and ``numeric``
    its :func:`syno.session.nodes.numeric_class`; both are empty for this one.
    """

    state: str
    value: Any = None
    reason: str = ""
    code: str = ""
    seconds: float = 0.0
    worker: int = 0
    node: str = ""
    numeric: str = ""


More = Callable[[], Sequence[Call]]


class Executor(Protocol):
    """Runs calls and says how each ended, whatever happens to it."""

    def run(
        self,
        calls: Sequence[Call],
        *,
        started: Callable[[int, int], None] | None = None,
        reported: Reported | None = None,
        more: More | None = None,
    ) -> Iterator[tuple[int, Outcome]]:
        """Index and outcome of each call as it ends, in any order.

        ``started(index, worker)`` before a call; ``reported(index, step, metrics)`` during it. ``more()`` is asked
        for further calls at the beginning and whenever outcomes were taken: their indices go on from those before,
        and all has ended when nothing runs and it has none.
        """
        ...

    def close(self) -> None:
        """Ends all workers, busy or not."""
        ...


class InlineExecutor:
    """Runs calls one after the other in this process: for debugging, and for parts that cannot leave it.

    ``parts`` are objects by the references that stand for them. Time limits are not enforced, and a crash
    is the crash of this process.
    """

    def __init__(self, parts: dict[str, Any] | None = None) -> None:
        self._parts = Parts()
        self._parts.given = dict(parts or {})

    def run(
        self,
        calls: Sequence[Call],
        *,
        started: Callable[[int, int], None] | None = None,
        reported: Reported | None = None,
        more: More | None = None,
    ) -> Iterator[tuple[int, Outcome]]:
        for index, call in enumerate(_all_of(calls, more)):
            if started:
                started(index, 0)

            def report(step: int, _index: int = index, **metrics: float) -> None:
                if reported:
                    reported(_index, step, metrics)

            begun = time.monotonic()
            try:
                part = self._parts.get(call.component)
                request = msgspec.to_builtins(call.request)
                value = perform(part, call.kind, request, report)
                outcome = Outcome("ok", value, seconds=time.monotonic() - begun)
            except KeyboardInterrupt:
                raise
            # A task that gives up ends itself, not the search.
            except BaseException as error:
                outcome = Outcome(
                    "error",
                    reason=describe(error),
                    code=code_of(error),
                    seconds=time.monotonic() - begun,
                )
            yield index, outcome

    def close(self) -> None:
        pass


def _all_of(calls: Sequence[Call], more: More | None) -> Iterator[Call]:
    """Calls one after the other, then those that came meanwhile."""
    waiting = deque(calls)
    while True:
        if more is not None:
            waiting.extend(more())
        if not waiting:
            return
        yield waiting.popleft()


#: Bytes of one log file; a worker has two, the full one put aside.
LOG_BYTES = 8 << 20

_MOST_UNTAKEN = 3  # workers in a row that may die before they take a call

_END_S = 10.0  # for a guard to end all that descends from its worker


def _guarded(command: list[str], log: Path | None) -> list[str]:
    """The command behind a guard that ends its descendants with it, where the system has what that takes."""
    if not sys.platform.startswith("linux"):
        return command
    guard = str(Path(__file__).with_name("guard.py"))
    kept = "" if log is None else str(log)
    return [
        *(sys.executable, "-I", "-S", guard),
        *(str(os.getpid()), kept, str(LOG_BYTES), *command),
    ]


class _Worker:
    """One child process and what it is doing."""

    def __init__(self, number: int, log: Path | None, threads: int, folder: Path | None) -> None:
        self.number = number
        self.log = log
        self.buffer = bytearray()
        self.index: int | None = None
        self.call: Call | None = None
        self.taken = False
        self.leaving = False
        self.begun = 0.0
        self.deadline = 0.0
        self.limit_s = 0.0
        environment = python_environment()
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            environment[name] = str(threads)
        stderr: int | IO[bytes] = subprocess.DEVNULL
        self.log_start, self.log_before = 0, None if log is None else self._put_aside()
        if log is not None:
            # The guard's own words, few as they are, go there as well.
            stderr = open(log, "ab")  # noqa: SIM115
            self.log_start = stderr.tell()
        try:
            self.process = subprocess.Popen(
                _guarded(python_command("from syno.session.worker import main; main()"), log),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                cwd=folder,
                start_new_session=True,  # Ctrl-C is the coordinator's alone
            )
        finally:
            if not isinstance(stderr, int):
                stderr.close()
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        # The channel may be held open by what the worker started; the process itself cannot.
        self.ended = -1
        with contextlib.suppress(OSError, AttributeError):
            self.ended = os.pidfd_open(self.process.pid)

    @property
    def gone(self) -> bool:
        """Whether it takes no call any more: it ended, or is about to."""
        return self.leaving or self.process.poll() is not None

    @property
    def output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def send(self, message: Any) -> None:
        assert self.process.stdin is not None
        # A worker that died meanwhile is noticed by the end of its process.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(frame(message))
            self.process.stdin.flush()

    def messages(self) -> tuple[list[Any], bool]:
        """What it sent since the last time, and whether it has ended or closed its end."""
        ended = self.process.poll() is not None
        while True:
            try:
                chunk = os.read(self.output.fileno(), 1 << 16)
            except BlockingIOError:
                break
            if not chunk:
                ended = True
                break
            self.buffer += chunk
        found = []
        while (message := take_frame(self.buffer)) is not None:
            found.append(message)
        return found, ended

    def register(self, selector: selectors.BaseSelector) -> None:
        """Wakes the selector when the worker says something or ends."""
        selector.register(self.output, selectors.EVENT_READ, self)
        if self.ended >= 0:
            selector.register(self.ended, selectors.EVENT_READ, self)

    def unregister(self, selector: selectors.BaseSelector) -> None:
        for file in (self.output, self.ended):
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(file)

    def end_soon(self) -> None:
        """Asks its guard to end it and all it started."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def kill(self) -> None:
        """Ends it, whatever it is doing, and all it started; returns when they are gone."""
        if self.process.poll() is None:
            self.end_soon()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_S if sys.platform.startswith("linux") else 0.0)
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
        if self.ended >= 0:
            os.close(self.ended)
            self.ended = -1
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError, OSError):
                    stream.close()

    def forget_words(self) -> None:
        """What is in its log by now says nothing of what comes."""
        if self.log is not None:
            with contextlib.suppress(OSError):
                self.log_before = self._put_aside()
                self.log_start = self.log.stat().st_size

    def _put_aside(self) -> tuple[int, int] | None:
        """Which file the full log before this one is: another one, and the log is new."""
        assert self.log is not None
        try:
            status = os.stat(f"{self.log}.1")
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def last_words(self) -> str:
        """The last line it wrote to its log in its call.

        What an earlier call wrote may reach the log after that call's answer, but before the line that
        begins this call.
        """
        if self.log is None:
            return ""
        try:
            with open(self.log, "rb") as log:
                size = os.fstat(log.fileno()).st_size
                same = self.log_start <= size and self._put_aside() == self.log_before
                start = self.log_start if same else 0  # a new file since
                log.seek(max(start, size - 2_000))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        if self.index is not None:
            text = text.rpartition(f"{call_mark(self.index)}\n")[2]
        lines = text.strip().splitlines()
        return lines[-1].strip()[:300] if lines else ""


def _within(seconds: float) -> float:
    """A pause that notices within a second what wakes no selector."""
    return max(0.0, min(seconds, 1.0))


class ProcessExecutor:
    """Runs calls in ``workers`` child processes, each killed when its call passes its limit.

    Workers stay alive between calls, so that imports and data are loaded once; making a part may take
    ``start_limit_s`` before a call's own limit begins. They end when this process does, however it ends,
    and with each worker all that it started, in whatever session or process group (on Linux).

    What a worker prints goes to ``logs/worker-N.log``, of at most ``LOG_BYTES`` beside an older
    ``worker-N.log.1`` of the same size; what was before that is gone.

    A worker that holds more than ``memory_bytes``, with all that it started, is killed within a second or so (on Linux).
    ``folder`` is the workers' working directory; default this process's.
    """

    def __init__(
        self,
        workers: int = 0,
        *,
        threads: int = 1,
        start_limit_s: float = 120.0,
        logs: Path | None = None,
        memory_bytes: int | None = None,
        folder: Path | None = None,
    ) -> None:
        from syno.support.machine import usable_cores

        self.count = workers if workers > 0 else max(1, usable_cores() // threads)
        self._threads = threads
        self._start_limit_s = start_limit_s
        self._logs = logs
        self._memory_bytes = memory_bytes
        self._looked = 0.0
        self._folder = folder
        self._workers: dict[int, _Worker] = {}

    def __enter__(self) -> ProcessExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.end_soon()
        for worker in self._workers.values():
            worker.kill()
        self._workers.clear()

    def end_soon(self) -> None:
        """Ends what its workers do, from another thread than the one that runs calls, which hears of it."""
        for worker in list(self._workers.values()):
            worker.end_soon()

    def run(
        self,
        calls: Sequence[Call],
        *,
        started: Callable[[int, int], None] | None = None,
        reported: Reported | None = None,
        more: More | None = None,
    ) -> Iterator[tuple[int, Outcome]]:
        waiting: deque[tuple[int, Call]] = deque(enumerate(calls))
        given = open_calls = len(calls)
        untaken: dict[int, int] = {}
        selector = selectors.DefaultSelector()
        watched: set[_Worker] = set()

        def retire(worker: _Worker) -> None:
            worker.unregister(selector)
            watched.discard(worker)
            self._workers.pop(worker.number, None)
            worker.kill()

        try:
            while True:
                if more is not None:
                    new = more()
                    waiting.extend(enumerate(new, given))
                    given += len(new)
                    open_calls += len(new)
                if not open_calls:
                    break
                for number in range(min(self.count, open_calls)):
                    worker = self._workers.get(number)
                    if not waiting or (worker is not None and worker.index is not None):
                        continue
                    if worker is not None and worker.gone:
                        retire(worker)
                        worker = None
                    if worker is None:
                        worker = self._start(number)
                    self._assign(worker, *waiting.popleft())
                    if worker not in watched:
                        worker.register(selector)
                        watched.add(worker)
                    if started:
                        assert worker.index is not None
                        started(worker.index, number)
                busy = [w for w in self._workers.values() if w.index is not None]
                pause = min((w.deadline for w in busy), default=0.0) - time.monotonic()
                awake = [key.data for key, _ in selector.select(_within(pause))]
                for heard in dict.fromkeys(awake):  # each once, in the order of events
                    for outcome in self._hear(heard, reported):
                        open_calls -= 1
                        yield outcome
                for worker in list(self._workers.values()):
                    if worker.gone:
                        for outcome in self._hear(worker, reported):  # its last messages
                            open_calls -= 1
                            yield outcome
                        index = worker.index
                        if index is not None:
                            untaken[index] = untaken.get(index, 0) + (not worker.taken)
                            if worker.taken or untaken[index] > _MOST_UNTAKEN:
                                open_calls -= 1
                                yield index, self._died(worker)
                            else:  # it died of something else than this call: another takes it
                                assert worker.call is not None
                                waiting.appendleft((index, worker.call))
                        retire(worker)
                    elif worker.index is not None and time.monotonic() > worker.deadline:
                        index, seconds = worker.index, time.monotonic() - worker.begun
                        retire(worker)
                        open_calls -= 1
                        yield (
                            index,
                            Outcome(
                                "limit",
                                reason=f"killed after {seconds:.1f} s (limit "
                                f"{worker.deadline - worker.begun:g} s)",
                                seconds=seconds,
                                worker=worker.number,
                            ),
                        )
                for worker, held in self._too_great():
                    index = worker.index
                    assert index is not None and self._memory_bytes is not None
                    retire(worker)
                    open_calls -= 1
                    reason = (
                        f"killed at {show_bytes(held)} (limit {show_bytes(self._memory_bytes)})"
                    )
                    seconds = time.monotonic() - worker.begun
                    yield (
                        index,
                        Outcome("memory", reason=reason, seconds=seconds, worker=worker.number),
                    )
        except BaseException:
            # Nobody will read what busy workers answer now.
            for worker in list(self._workers.values()):
                if worker.index is not None:
                    del self._workers[worker.number]
                    worker.kill()
            raise
        finally:
            selector.close()

    def _too_great(self) -> list[tuple[_Worker, int]]:
        """Busy workers that hold more than they may, with how much; looked at once a second."""
        if self._memory_bytes is None or time.monotonic() - self._looked < 0.5:
            return []
        self._looked = time.monotonic()
        busy = [worker for worker in self._workers.values() if worker.index is not None]
        held = [(worker, tree_bytes(worker.process.pid)) for worker in busy]
        return [(worker, size) for worker, size in held if size > self._memory_bytes]

    def _start(self, number: int) -> _Worker:
        old = self._workers.pop(number, None)
        if old is not None:
            old.kill()
        log = None if self._logs is None else self._logs / f"worker-{number}.log"
        try:
            worker = _Worker(number, log, self._threads, self._folder)
        except OSError as error:
            raise SessionError(
                f"a worker process cannot be started: {error}",
                fix="free memory or processes, or use fewer workers",
                code="R010",
            ) from None
        self._workers[number] = worker
        return worker

    def _assign(self, worker: _Worker, index: int, call: Call) -> None:
        worker.index, worker.call = index, call
        worker.taken = False
        worker.forget_words()
        worker.begun = time.monotonic()
        worker.limit_s = call.limit_s
        # The call's own limit begins when the worker says that its parts are made.
        worker.deadline = worker.begun + self._start_limit_s
        worker.send(
            {
                "call": index,
                "kind": call.kind,
                "component": msgspec.to_builtins(call.component),
                "request": msgspec.to_builtins(call.request),
            }
        )

    def _hear(self, worker: _Worker, reported: Reported | None) -> list[tuple[int, Outcome]]:
        messages, ended = worker.messages()
        outcomes: list[tuple[int, Outcome]] = []
        for message in messages:
            index = worker.index
            if "report" in message and message["report"] == index:
                if reported and index is not None:
                    reported(index, message["step"], message["metrics"])
                continue
            if "taken" in message and message["taken"] == index:
                worker.taken = True
                continue
            if "begun" in message and message["begun"] == index:
                worker.begun = time.monotonic()
                worker.deadline = worker.begun + worker.limit_s
                continue
            answered = message.get("result", message.get("error"))
            if answered is None or answered != index:
                continue
            seconds = time.monotonic() - worker.begun
            worker.index = None
            worker.leaving = bool(message.get("leaving"))
            if "result" in message:
                outcome = Outcome("ok", message["value"], seconds=seconds, worker=worker.number)
            else:
                outcome = Outcome(
                    "lost" if message.get("full") else "error",
                    reason=message["reason"],
                    code=message["code"],
                    seconds=seconds,
                    worker=worker.number,
                )
            outcomes.append((answered, outcome))
        worker.leaving |= ended
        return outcomes

    def _died(self, worker: _Worker) -> Outcome:
        try:
            code = worker.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            code = 1  # it closed its channel and went on: no better than dead
        seconds = time.monotonic() - worker.begun
        if code == -signal.SIGKILL:
            reason = "the worker was killed from outside (out of memory?)"
            return Outcome("lost", reason=reason, seconds=seconds, worker=worker.number)
        if code < 0:
            try:
                how = f"by signal {signal.Signals(-code).name}"
            except ValueError:
                how = f"by signal {-code}"
        else:
            how = f"with exit code {code}"
        words = worker.last_words()
        reason = f"the worker died {how}" + (f": {words}" if words else "")
        return Outcome("crash", reason=reason, seconds=seconds, worker=worker.number)
