"""Independent pieces of work on as many cores as there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from syno.support.machine import usable_cores

T = TypeVar("T")
R = TypeVar("R")


def together(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What `work` makes of each item, in their order; it releases the interpreter's lock, as the engine does. An interruption,
    and what one of them raises, leave those that nobody began."""
    everything = list(items)
    workers = min(usable_cores(), len(everything))
    if workers < 2:
        return [work(each) for each in everything]
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        return [done.result() for done in [pool.submit(work, each) for each in everything]]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
