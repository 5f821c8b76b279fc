"""A worker process: reads calls, runs them, writes reports and results. Started by the executor only.

Frames are a length in four bytes and MessagePack. The channel is the process's original standard input
and output; what user code prints goes to standard error instead, which the executor keeps in a log.
"""

from __future__ import annotations

import contextlib
import os
import queue
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec

from syno.session.config import Component
from syno.session.protocols import MeasureRequest, TrainRequest

_LENGTH = struct.Struct(">I")


def write_frame(stream: BinaryIO, message: Any) -> None:
    """One message; the stream is flushed."""
    payload = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(payload)) + payload)
    stream.flush()


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
        if component.reference in self.given:
            return self.given[component.reference]
        key = msgspec.json.encode(component, order="deterministic")
        if key not in self._made:
            self._made[key] = component.make()
        return self._made[key]


def perform(part: Any, kind: str, request: Any, report: Callable[..., None]) -> Any:
    """Runs one call on a part; the result as plain data."""
    if kind == "train":
        result = part.evaluate(msgspec.convert(request, TrainRequest), report)
    elif kind == "measure":
        result = part.measure(msgspec.convert(request, MeasureRequest))
    else:
        raise ValueError(f"no call of kind {kind!r}")
    return msgspec.to_builtins(result)


def describe(error: BaseException) -> str:
    """An exception in one line, with its last place in the code."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"


def main() -> None:
    """Serves until the channel is closed."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        buffer = bytearray()
        while chunk := incoming.read1(1 << 16):
            buffer += chunk
            while (message := take_frame(buffer)) is not None:
                calls.put(message)
        # The coordinator is gone, perhaps killed: what runs now has nobody to wait for it.
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    sending = threading.Lock()

    def send(message: Any) -> None:
        with sending:
            write_frame(outgoing, message)

    parts = Parts()
    send({"ready": os.getpid()})
    while True:
        call = calls.get()
        number = call["call"]

        def report(step: int, _number: int = number, **metrics: float) -> None:
            send({"report": _number, "step": step, "metrics": metrics})

        try:
            part = parts.get(msgspec.convert(call["component"], Component))
            send({"begun": number})
            answer = {
                "result": number,
                "value": perform(part, call["kind"], call["request"], report),
            }
        except BaseException as error:
            traceback.print_exc()
            answer = {
                "error": number,
                "reason": describe(error),
                "code": getattr(error, "code", ""),
            }
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                with contextlib.suppress(OSError):
                    send(answer)
                sys.exit(1)
        send(answer)
