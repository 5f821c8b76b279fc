"""Who watches a session: functions, or objects with a method for each kind of event."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from syno.errors import SessionError, shown, unknown_name
from syno.session.protocols import Callback
from syno.session.records import Candidate
from syno.session.view import SessionView

#: What callbacks are told of. Beside the candidate that it is about, or ``None``, they get the session.
EVENTS = {
    "given": "the model was judged as it was handed in",
    "started": "a worker begins with a candidate",
    "measured": "a candidate's network was built, verified and timed",
    "pruned": "a candidate was given up, before or in its training",
    "trained": "a candidate was trained to the end",
    "failed": "a candidate could not be measured or trained",
    "folded": "the policy was told the rewards of a batch",
    "skipped": "a group of layers has no operator",
    "exhausted": "a group of layers has no further operator",
    "finalist": "a finalist was trained on one more seed",
    "ended": "the run is over",
}


class _Methods:
    """An object whose ``on_trained(candidate, view)`` and the like are called."""

    def __init__(self, watcher: Any, methods: dict[str, Callable[[Any, Any], Any]]) -> None:
        self._methods = methods
        self.__name__ = type(watcher).__name__

    def __call__(self, what: str, candidate: Candidate | None, view: SessionView) -> None:
        if what in self._methods:
            self._methods[what](candidate, view)


def as_callbacks(given: Any) -> list[Callback]:
    """One watcher, several, or none, as functions ``(what, candidate, view)``.

    Raises:
        SessionError: one is neither callable nor has a method for an event.
        UnknownName: a method ``on_…`` is for no event; lists those there are.
    """
    if given is None:
        return []
    several = isinstance(given, Iterable) and not callable(given) and not _methods(given)
    return [_callback(one) for one in (list(given) if several else [given])]


def name_of(callback: Callback) -> str:
    """What a callback is called in messages."""
    return str(getattr(callback, "__name__", type(callback).__name__))


def _callback(watcher: Any) -> Callback:
    if isinstance(watcher, type):
        raise SessionError(
            f"the callback {watcher.__name__} is a class", fix=f"give an object: {watcher.__name__}()", code="R017"
        )  # fmt: skip
    if callable(watcher):
        made: Callback = watcher
        return made
    methods = _methods(watcher)
    if not methods:
        raise SessionError(
            f"the callback {shown(watcher)} can neither be called nor has a method for an event",
            fix=f"give a function (what, candidate, view), or an object with methods on_{', on_'.join(EVENTS)}",
            code="R017",
        )
    for name in methods:
        if name not in EVENTS:
            raise unknown_name(
                f"event of {type(watcher).__name__}", f"on_{name}", [f"on_{e}" for e in EVENTS]
            )
    return _Methods(watcher, methods)


def _methods(watcher: Any) -> dict[str, Callable[[Any, Any], Any]]:
    names = [name for name in dir(type(watcher)) if name.startswith("on_")]
    found = {name.removeprefix("on_"): getattr(watcher, name) for name in names}
    return {name: method for name, method in found.items() if callable(method)}


__all__ = ["EVENTS", "as_callbacks", "name_of"]
