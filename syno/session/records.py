"""What a session knows of a candidate, as read from its database."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from syno.session.protocols import ON

#: Kind of a candidate whose network has operators of several stages, each the best or nearly so of its own.
COMBINED = "combined"

STATES = ("queued", "running", "done", "pruned", "failed", "lost")


class Score(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One training: ``value`` of ``metric`` on ``count`` examples of ``part``, with its standard error."""

    phase: str
    seed: int
    part: str
    metric: str
    higher_is_better: bool
    value: float
    stderr: float
    count: int
    steps: int
    total_steps: int
    seconds: float
    examples_per_s: float
    threads: int


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """Who of a rung went on: decided once, for candidates of one stage.

    Attributes:
        rung: from 1.
        seen: those who finished the rung, best first.
        best: those who went on for their rank.
        drawn: the beginning of a random order of all of ``seen``, who went on whatever their rank.
        before: who was drawn at an earlier rung, and went on for that.
    """

    stage: str
    rung: int
    seen: list[int]
    best: list[int]
    drawn: list[int]
    before: list[int] = []

    @property
    def on(self) -> list[int]:
        """All who went on."""
        return sorted({*self.best, *self.drawn, *self.before})


class RungState(msgspec.Struct, frozen=True, kw_only=True):
    """What a session knows of its rungs: decisions in their order, and the rungs that were left out from then on."""

    passed: list[Passed] = []
    useless: list[int] = []


class StageEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the search of a stage ended so far.

    ``why``: ``"budget"``, ``"exhausted"`` (its space ran out), ``"empty"`` (its space has no operator: skipped,
    ``reason`` says more), or a sentence.
    """

    why: str
    reason: str = ""


class Combination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a session keeps of operators that are together in one network: that of each stage, by key."""

    operators: dict[str, str]
    format: Literal["syno-combination"] = "syno-combination"
    version: Literal[1] = 1


class Timing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One recorded latency; ``site`` is empty for the whole network, ``runner`` says who ran it."""

    site: str
    runner: str
    latency_us: float
    iqr_us: float
    samples: int
    threads: int
    batch: int
    cpu: str
    load1: float
    at: str
    verified: bool
    max_rel_err: float | None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An operator in the network, or the original (``kind`` is ``"baseline"``).

    Of a combination (``kind`` is ``"combined"``) ``key`` names the operators of several stages together, and ``stage`` is
    empty. ``flops`` and ``params`` are the whole network's where it was measured, else the operator's.
    ``notes`` say what may have disturbed the latencies. ``score`` is the search's training, judged on the validation part; ``finals`` are the trainings on the
    finalists' seeds, judged on the test part.
    """

    number: int
    kind: str
    stage: str
    state: str
    reason: str
    key: str
    expr: str
    batch: int | None
    ticket: int | None
    why: str
    tries: int
    reward: float | None
    flops: int | None
    params: int | None
    verified: bool
    max_rel_err: float | None
    latency_us: float | None
    latency_iqr_us: float | None
    op_latency_us: float | None
    timings: list[Timing]
    score: Score | None
    finals: list[Score]
    started: str | None
    ended: str | None
    notes: list[str] = []
    rungs: list[Score] = []
    """Its short trainings, the shortest first."""
    predicted_us: float | None = None
    """Latency of the whole network as the session's machine file predicts it."""
    runner: str = ""
    """Who ran the network that was timed: ``"compiled"`` whole, or its ``"layers"`` one by one; empty where nobody says, as
    in sessions from before networks were compiled."""
    why_layers: str = ""
    """Why the network is not compiled, where that was tried."""
    mixing: str = ""
    """What was found when the network was asked, before its training, which examples and tokens it mixes."""
    known: str = ""
    """Which known operator it is, such as ``"grouped(g=4)"``; empty for one that is found, and for the original."""
    classes: list[str] = []
    """Classes of the machines that trained it, see :func:`syno.session.nodes.numeric_class`; empty in older sessions."""
    nodes: list[str] = []
    """The machines that trained it, where that was not the session's own."""
    unfit: list[str] = []
    """Targets that its network cannot be timed on, each with the reason: ``"pi: …"``."""
    files: str = ""
    """What its files are called by: the operator's key, and its number where an earlier candidate has the same operator."""

    @property
    def id(self) -> str:
        """``"baseline"``, or ``c`` and the number."""
        return "baseline" if self.kind == "baseline" else f"c{self.number}"

    def without_timings(self) -> Candidate:
        """What is known of it that no clock decided: its latency is the predicted one."""

        def untimed(score: Score) -> Score:
            return msgspec.structs.replace(score, seconds=0.0, examples_per_s=0.0)

        return msgspec.structs.replace(
            self,
            latency_us=self.predicted_us,
            latency_iqr_us=None,
            op_latency_us=None,
            timings=[],
            notes=[],
            runner="",
            why_layers="",
            nodes=[],
            unfit=[],
            score=None if self.score is None else untimed(self.score),
            rungs=[untimed(score) for score in self.rungs],
            started=None,
            ended=None,
            tries=0,
        )

    @property
    def origin(self) -> str:
        """``"original"``, ``"found"``, or ``"known: …"`` with its name."""
        if self.kind == "baseline":
            return "original"
        return f"known: {self.known}" if self.known else "found"

    def timing_on(self, target: str) -> Timing | None:
        """The latency of the whole network on a target; ``None`` where it was not timed there."""
        runner = ON + target
        return next((t for t in self.timings if t.runner == runner and not t.site), None)

    @property
    def targets_us(self) -> dict[str, float]:
        """Latencies of the whole network on further machines, by the target's name."""
        return {
            t.runner.removeprefix(ON): t.latency_us for t in self.timings if t.runner.startswith(ON)
        }

    @property
    def measured(self) -> bool:
        """Whether a latency of the whole network is recorded."""
        return self.latency_us is not None

    @property
    def value(self) -> float | None:
        """The metric: mean over the finalists' seeds on the test part, else the search's one training."""
        if self.finals:
            return mean_of([score.value for score in self.finals])
        return self.score.value if self.score else None

    @property
    def validation(self) -> float | None:
        """The metric of the search's one training, on the part that candidates are chosen by."""
        return self.score.value if self.score else None

    @property
    def test(self) -> float | None:
        """The metric on the part that finalists are judged on, the mean over their seeds."""
        return mean_of([score.value for score in self.finals]) if self.finals else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over the finalists' seeds; ``None`` with fewer than two."""
        if len(self.finals) < 2:
            return None
        return math.sqrt(_variance([score.value for score in self.finals]))

    def stderr(self, pooled_std: float | None = None) -> float | None:
        """Standard error of :attr:`value`: error of the examples and of the seeds together.

        The seeds share the examples, so that only the seeds' part shrinks with their number.
        ``pooled_std`` is the seeds' standard deviation over several candidates, better known than one's.
        """
        scores = self.finals or ([self.score] if self.score else [])
        if not scores:
            return None
        spread = pooled_std if pooled_std is not None else self.std
        examples = mean_of([score.stderr for score in scores])
        return math.hypot(examples, (spread or 0.0) / math.sqrt(len(scores)))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return {"id": self.id, "value": self.value, "std": self.std, **plain}


def mean_of(values: list[float]) -> float:
    """Of any numbers: a metric that ran away is one, too."""
    try:
        return statistics.fmean(values)
    except (OverflowError, ValueError):  # a sum beyond the largest number, infinities of both signs
        return sum(value / len(values) for value in values)


def _variance(values: list[float]) -> float:
    try:
        return statistics.variance(values)
    except OverflowError:
        return math.inf


def pooled_std(seeds: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation over seeds, pooled over all networks with two or more of them."""
    squares, freedom = 0.0, 0
    for values in seeds:
        if len(values) >= 2:
            squares += _variance(list(values)) * (len(values) - 1)
            freedom += len(values) - 1
    return math.sqrt(squares / freedom) if freedom else None


def allowed_drop(limit: float, reference: float, *, higher_is_better: bool) -> float:
    """How much worse than ``reference`` a metric may be: ``limit`` itself, or for metrics to be made small, which
    have no upper end and any unit, that share of the reference."""
    return limit if higher_is_better else limit * abs(reference)
