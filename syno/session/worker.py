"""A worker process: reads calls, runs them, writes reports and results. Started by the executor only.

Frames are a length in four bytes and MessagePack. The channel is the process's original standard input
and output; what user code prints goes to standard error instead, which the executor keeps in a log. A
process forked from a worker has no channel: it can neither answer for the worker nor hide its death.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from syno.errors import told
from syno.session.config import Component
from syno.session.protocols import MeasureRequest, PredictRequest, TimeRequest, TrainRequest
from syno.support.streams import Stream

_LENGTH = struct.Struct(">I")


def call_mark(number: int) -> str:
    """The line of a worker's log that begins a call: what comes before it says nothing of that call."""
    return f"[syno] call {number}"


def frame(message: Any) -> bytes:
    """One message as it travels."""
    payload = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(payload)) + payload


def take_frame(buffer: bytearray) -> Any:
    """Removes and decodes the first message in ``buffer``; ``None`` while it is incomplete."""
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None
    message = msgspec.msgpack.decode(bytes(buffer[_LENGTH.size : end]))
    del buffer[:end]
    return message


class Parts:
    """The parts a worker has made so far; each is made once, at its first use."""

    def __init__(self) -> None:
        self._made: dict[bytes, Any] = {}
        self.given: dict[str, Any] = {}

    def get(self, component: Component) -> Any:
        if component.now_at in self.given:
            return self.given[component.now_at]
        key = msgspec.json.encode(component, order="deterministic")
        if key not in self._made:
            self._made[key] = component.make()
        return self._made[key]


def perform(part: Any, kind: str, request: Any, report: Callable[..., None]) -> Any:
    """Runs one call on a part; the result as plain data.

    What the part draws from global random generators follows from what it is asked for.
    """
    if kind == "train":
        wanted = msgspec.convert(request, TrainRequest)
        operators = sorted((stage, op.key) for stage, op in wanted.assignment.items())
        with Stream("call", wanted.seed, wanted.part, operators):
            result = part.evaluate(wanted, report)
    elif kind == "measure":
        result = part.measure(msgspec.convert(request, MeasureRequest))
    elif kind == "time":
        result = part.time(msgspec.convert(request, TimeRequest))
    elif kind == "export":
        from syno.session.bundled import ExportRequest

        result = part.export(msgspec.convert(request, ExportRequest))
    elif kind == "check":  # that the part can be made, and what it says itself
        result = None
        if hasattr(part, "check"):
            part.check()
    elif kind == "predict":
        result = part.predict(msgspec.convert(request, PredictRequest))
    else:
        raise ValueError(f"no call of kind {kind!r}")
    return msgspec.to_builtins(result)


def describe(error: BaseException) -> str:
    """An exception in one line, with its last place in the code."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return told(error) + where


def code_of(error: BaseException) -> str:
    """The code of one of syno's errors; empty for others (``SystemExit`` has a number of that name)."""
    code = getattr(error, "code", "")
    return code if isinstance(code, str) else ""


def _found_device_full(error: BaseException) -> bool:
    """Whether it ended for want of memory on a GPU: what others who share it hold decides that, not the call alone."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.cuda.OutOfMemoryError)


def _release_device() -> None:
    """Gives memory of a GPU that this process kept and does not use back to the others that train there."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


class _Channel:
    """Both directions to the coordinator, of this process alone."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._incoming, self._outgoing = os.dup(0), os.dup(1)  # closed by exec
        self._sending = threading.Lock()
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for end in (self._incoming, self._outgoing):
            os.dup2(nothing, end, inheritable=False)
        os.close(nothing)

    def read(self) -> bytes:
        return os.read(self._incoming, 1 << 16)

    def send(self, message: Any) -> None:
        """One message. A forked child that came here left the code that forked it: it ends."""
        if os.getpid() != self._owner:
            os._exit(1)
        left = memoryview(frame(message))
        with self._sending:
            while left:
                left = left[os.write(self._outgoing, left) :]


class _Interruptions:
    """SIGINT reaches the code of a call, never the lines between two calls."""

    def __init__(self) -> None:
        self._allowed = False
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, *_: object) -> None:
        if self._allowed:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False


def main() -> None:
    """Serves until the channel is closed, or a call asks the process to end."""
    channel = _Channel()
    interruptions = _Interruptions()
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        buffer = bytearray()
        while chunk := channel.read():
            buffer += chunk
            while (message := take_frame(buffer)) is not None:
                calls.put(message)
        # The coordinator is gone, perhaps killed: what runs now has nobody to wait for it.
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    parts = Parts()
    channel.send({"ready": os.getpid()})
    while True:
        call = calls.get()
        number = call["call"]
        # An earlier call may have closed or replaced it.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            print(call_mark(number), file=sys.stderr, flush=True)
        channel.send({"taken": number})

        def report(step: int, _number: int = number, **metrics: float) -> None:
            channel.send({"report": _number, "step": step, "metrics": metrics})

        try:
            with interruptions.allowed():
                part = parts.get(msgspec.convert(call["component"], Component))
                channel.send({"begun": number})
                value = perform(part, call["kind"], call["request"], report)
            channel.send({"result": number, "value": value})
        except BaseException as error:
            traceback.print_exc()
            leaving = isinstance(error, (KeyboardInterrupt, SystemExit))
            channel.send(
                {
                    "error": number,
                    "reason": describe(error),
                    "code": code_of(error),
                    "full": _found_device_full(error),
                    "leaving": leaving,
                }
            )
            if leaving:
                # What asked the process to end may have begun to end it: nothing more is run here.
                with contextlib.suppress(OSError, ValueError):
                    sys.stdout.flush()
                os._exit(1)
        _release_device()
