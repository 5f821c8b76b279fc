"""Work in a thread beside the caller's: what needs nothing of what the caller does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
R = TypeVar("R")


class Stopped(Exception):
    """Nobody waits for the work any longer."""


class Beside:
    """One thread, which does what it is asked one after the other, under the caller's autocast and without gradients.

    Leaving the context ends it: after what it is at, or, where that asks `going` from time to time, at once.
    """

    def __init__(self, name: str) -> None:
        self._ended = threading.Event()
        self._thread = ThreadPoolExecutor(1, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.shutdown(cancel_futures=True)

    def going(self) -> None:
        """To be called by long work now and then.

        Raises:
            Stopped: the context was left.
        """
        if self._ended.is_set():
            raise Stopped

    def do(self, work: Callable[P, R], *args: P.args, **named: P.kwargs) -> Future[R]:
        """Asks for work; its result in time."""
        cast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

        def as_the_caller() -> R:
            enabled, dtype = cast
            with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=enabled):
                return work(*args, **named)

        return self._thread.submit(as_the_caller)


__all__ = ["Beside", "Stopped"]
