"""Python's collector looks at all objects that there are, and PyTorch and a model library are a million of them: a quarter
of a second, several times while one network is compiled."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
_ours = False


@contextmanager
def new_garbage_only() -> Iterator[None]:
    """Leaves objects that were there before to collections afterwards; what is made meanwhile is collected as ever.

    Several threads may be inside; whoever froze objects himself (`gc.freeze`, before a fork, say) keeps them frozen. As a
    decorator: `@new_garbage_only()`.
    """
    global _inside, _ours
    with _lock:
        if not _inside and not gc.get_freeze_count():
            gc.freeze()
            _ours = True
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _ours:
                gc.unfreeze()
                _ours = False


__all__ = ["new_garbage_only"]
