"""A table that forgets what was not used for longest."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_all: weakref.WeakSet[Bounded[Any, Any]] = weakref.WeakSet()


def _renew() -> None:
    """In a forked child nobody holds what another thread of the parent held."""
    for table in _all:
        table._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class Bounded(Generic[K, V]):
    """At most `limit` entries; a further one takes the place of the least recently used. Thread-safe.

    What is forgotten lives on with whoever still holds it, and is made again when it is next asked for.

    Args:
        limit: at least 1.
    Raises:
        ValueError: a smaller limit.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit={limit} must be at least 1")
        self.limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()
        _all.add(self)

    def get(self, key: K) -> V | None:
        """The entry, which counts as used now; None where there is none."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def setdefault(self, key: K, value: V) -> V:
        """The entry of this key, which counts as used now; `value` where there was none."""
        with self._lock:
            kept = self._entries.setdefault(key, value)
            self._entries.move_to_end(key)
            full = len(self._entries) > self.limit
            # Its destructor does not run under the lock: it may come back here.
            oldest = self._entries.popitem(last=False) if full else None
        del oldest
        return kept

    def discard(self, key: K) -> None:
        """Forgets one entry, if it is there."""
        with self._lock:
            entry = self._entries.pop(key, None)
        del entry

    def values(self) -> list[V]:
        """All entries, none of which counts as used for that."""
        with self._lock:
            return list(self._entries.values())

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            entries, self._entries = self._entries, OrderedDict()
        del entries

    def __len__(self) -> int:
        return len(self._entries)
