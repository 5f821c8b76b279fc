"""What every tracker writes of a search, wherever it goes."""

from __future__ import annotations

import abc
import hashlib
import logging
import math
import os
from collections.abc import Callable

from syno.session.records import Candidate
from syno.session.view import SessionView

_log = logging.getLogger("syno.tracking")

#: States that end a candidate's training in a search.
_ENDS = ("trained", "pruned", "failed")


class Tracker(abc.ABC):
    """Watches a search; see :mod:`syno.tracking`.

    Values are named ``search/…`` at the candidate's number: ``search/accuracy`` (the task's metric), ``search/reward``,
    ``search/best_reward``, ``search/latency_us`` (predicted where nothing was timed yet), ``search/speedup``,
    ``search/flops`` (multiply-adds), ``search/params``, and so many ``search/trained``, ``search/pruned``, ``search/failed`` so far;
    ``final/…`` are means over a finalist's seeds on the test part. ``original/…`` is the network as it was.
    """

    def __init__(self) -> None:
        self._begun = False
        self._failed: set[str] = set()
        self._counts = dict.fromkeys(_ENDS, 0)
        self._best = -math.inf

    # --- what each does in its own way

    @abc.abstractmethod
    def begin(self, view: SessionView) -> None:
        """Opens what is written to: anew, or where this session wrote before.

        Args:
            view: the session; :func:`syno.tracking.tracker.run_id` names it.
        """

    @abc.abstractmethod
    def values(self, step: int, values: dict[str, float]) -> None:
        """Writes numbers at a step.

        Args:
            step: the candidate's number; 0 for the original.
            values: finite numbers by name, as above.
        """

    @abc.abstractmethod
    def summary(self, values: dict[str, str | float]) -> None:
        """Writes what is known at the end of a run, and closes.

        Args:
            values: texts and numbers by name: the verdict, the best candidate and how it compares.
        """

    # --- what a search tells

    def __call__(self, what: str, candidate: Candidate | None, view: SessionView) -> None:
        if not self._begun:
            self._begun = True
            self._count(view)
            self._try(lambda: self.begin(view))
        if what in _ENDS and candidate is not None:
            self._ended(what, candidate, view)
        elif what == "finalist" and candidate is not None and candidate.test is not None:
            test = candidate.test
            name = candidate.finals[0].metric
            self._try(lambda: self.values(candidate.number, {f"final/{name}": test}))
        elif what == "ended":
            found = _summary(view)
            self._try(lambda: self.summary(found))
            self._begun = False  # a further run of the session goes on

    def _count(self, view: SessionView) -> None:
        """What earlier runs of the session came to."""
        self._counts = dict.fromkeys(_ENDS, 0)
        self._best = -math.inf
        names = {"done": "trained", "pruned": "pruned", "failed": "failed", "lost": "failed"}
        for candidate in view.candidates():
            if candidate.reward is not None:  # it was told, hence written
                self._counts[names.get(candidate.state, "failed")] += 1
                self._best = max(self._best, candidate.reward)

    def _ended(self, what: str, candidate: Candidate, view: SessionView) -> None:
        if candidate.kind == "baseline":
            found = {f"original/{n}": v for n, v in _numbers(candidate, None).items()}
            self._try(lambda: self.values(0, found))
            return
        self._counts[what] += 1
        found = {f"search/{n}": v for n, v in _numbers(candidate, view).items()}
        found |= {f"search/{n}": float(count) for n, count in self._counts.items()}
        reward = _reward(candidate, view)
        if reward is not None:
            self._best = max(self._best, reward)
            found |= {"search/reward": reward, "search/best_reward": self._best}
        self._try(lambda: self.values(candidate.number, found))

    def _try(self, act: Callable[[], None]) -> None:
        """A tracker that fails says so once; the search goes on."""
        try:
            act()
        except Exception as error:  # whatever others' libraries and networks raise
            said = f"{type(error).__name__}: {error}"
            if said not in self._failed:
                self._failed.add(said)
                _log.warning("%s could not write, the search goes on: %s", self.name, said)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return type(self).__name__


def run_id(view: SessionView) -> str:
    """What a session's run is found by when the session goes on: of its directory on this machine."""
    where = os.fsencode(view.directory.resolve())
    return hashlib.sha256(where).hexdigest()[:16]


def _numbers(candidate: Candidate, view: SessionView | None) -> dict[str, float]:
    latency = candidate.latency_us if candidate.latency_us is not None else candidate.predicted_us
    score = candidate.score
    found: dict[str, float | None] = {
        "latency_us": latency,
        "flops": candidate.flops,
        "params": candidate.params,
    }
    if score is not None:
        found[score.metric] = score.value
    baseline = None if view is None else view.baseline
    if baseline is not None and latency:
        own = baseline.latency_us if candidate.latency_us is not None else baseline.predicted_us
        found["speedup"] = own / latency if own else None
    return {n: float(v) for n, v in found.items() if v is not None and math.isfinite(v)}


def _reward(candidate: Candidate, view: SessionView) -> float | None:
    """As the policy will be told it, when its turn comes."""
    baseline = view.baseline
    if baseline is None or candidate.score is None:
        return candidate.reward
    if view.config.predicted_on is not None:
        candidate, baseline = candidate.without_timings(), baseline.without_timings()
    try:
        return float(view.config.reward.make()(candidate, baseline))
    except Exception:  # a part of the caller's own that cannot be made here
        return candidate.reward


def _summary(view: SessionView) -> dict[str, str | float]:
    verdict = view.verdict()
    found: dict[str, str | float] = {
        "directory": str(view.directory),
        "outcome": verdict.outcome,
        "sentence": verdict.sentence,
        "trained": view.trained,
        "elapsed_s": view.elapsed_s,
    }
    best = view.best()
    if best is not None:
        speedup = view.speedup(best)
        found |= {"best": best.id, "formula": view.formula(best)}
        found |= {} if speedup is None else {"best_speedup": speedup}
    return found


__all__ = ["Tracker", "run_id"]
