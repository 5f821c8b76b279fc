"""What a session needs from others, each replaceable: who proposes, trains, measures and watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from syno.session.records import Candidate
    from syno.session.view import SessionView
    from syno.training.train import TrainResult


class OperatorText(msgspec.Struct, frozen=True, kw_only=True):
    """An operator as a session keeps it: its key, and a text from which it can be rebuilt.

    ``key`` names the operator: equal operators have equal keys. ``text`` is JSON, one file a key in
    ``operators/``. ``flops`` (multiply-adds) and ``params`` are sums over the spec's valuations.
    """

    key: str
    expr: str
    text: str
    flops: int | None = None
    params: int | None = None


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """One operator to try; ``ticket`` ascends over all proposals of a proposer; ``why`` is for people.

    ``known`` is the name of the known operator that it is, such as ``"grouped(g=4)"``; empty: it is found.
    """

    ticket: int
    operator: OperatorText
    why: str = ""
    known: str = ""


class Gains(msgspec.Struct, frozen=True, kw_only=True):
    """By how much a candidate is worth having, for policies that look at quality and speed apart.

    ``quality`` is how far the metric lies above its floor, in units of the metric (of the original's value
    where less is better); ``speed`` is 1 minus the latency over its limit, FLOPs where nothing is timed. Both
    are negative beyond, and ``None`` where they are not known.
    """

    quality: float | None = None
    speed: float | None = None


class Proposer(Protocol):
    """A search policy. Deterministic: the same asks and tells after the same state give the same proposals.

    A factory named in the session makes it, ``factory(seed=…, **options)``. One whose space has no operator
    raises SpecError there or in ``ask``, or says so in a further method, ``why_empty() -> str | None``, which is asked
    before anything is trained: the stage is skipped.
    """

    def ask(self, count: int) -> Sequence[Proposal]:
        """Up to ``count`` proposals; fewer when there are no more, none when the space is exhausted."""
        ...

    def tell(self, ticket: int, reward: float, gains: Gains) -> None:
        """Tells what a proposal was worth; called in ascending order of tickets.

        Args:
            ticket: of the proposal.
            reward: 0 … 1, more is better.
            gains: what the reward is made of, quality and speed apart.
        """
        ...

    def state(self) -> str:
        """All it knows, as text. In a session with a lag some tickets may not be told yet: they are part of it, to be told
        after ``restore``. Without a lag it is called only when every ticket has been told."""
        ...

    def restore(self, state: str) -> None:
        """Goes back to what it knew.

        Args:
            state: a text of :meth:`state`, of a proposer that the same factory made with the same options.
        """
        ...


class TrainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One training for a worker.

    ``assignment`` maps a stage's name to the operator that serves its sites; the baseline has none.
    ``floors`` are points of a :class:`syno.training.train.CurveFloor`. ``weights`` is where to leave the trained
    weights as safetensors. ``machine`` is a machine file (JSON) that kernels depend on, beside program and seed; empty:
    also on what was measured since. ``share`` of the task's steps is trained, with the whole learning-rate schedule over
    these. ``checkpoint`` is where a training that takes longer than ``checkpoint_s`` is written down after each epoch, and
    goes on from.
    """

    candidate: int
    assignment: dict[str, OperatorText]
    seed: int
    part: str
    threads: int
    time_limit_s: float
    floors: list[tuple[float, float]] = []
    floors_why: str = ""
    weights: str | None = None
    machine: str = ""
    share: float = 1.0
    checkpoint: str = ""
    checkpoint_s: float = 300.0


class PredictRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction for a worker; ``assignment`` as in :class:`TrainRequest`, ``machine`` is a machine file (JSON)."""

    candidate: int
    assignment: dict[str, OperatorText]
    threads: int
    machine: str


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a network's programs and a machine file alone, the same wherever it is computed: latency of the
    whole network, multiply-adds and parameters."""

    latency_us: float
    flops: int | None = None
    params: int | None = None


class Evaluator(Protocol):
    """Trains a network with operators in it, in a worker process. Made by ``factory(**options)``."""

    def evaluate(self, request: TrainRequest, report: Callable[..., None]) -> TrainResult:
        """Trains the network that ``request`` describes, for the seed, the part and the share of the steps that it names.

        Args:
            request: operators by stage, seed, threads, limits, and where weights go.
            report: to be called after each evaluation with the step and the metrics by name: ``report(200, accuracy=0.9)``.
        """
        ...


class MeasureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement for a worker; ``assignment`` as in :class:`TrainRequest`."""

    candidate: int
    assignment: dict[str, OperatorText]
    threads: int
    time_limit_s: float


class TimeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of exported networks (:mod:`syno.session.bundled`); ``network`` and ``original`` are files that travel with
    the call. Without the latter it is the original itself."""

    candidate: int
    threads: int
    time_limit_s: float
    network: str
    original: str = ""


class SiteTiming(msgspec.Struct, frozen=True, kw_only=True):
    """One replaced layer: time of one call, in microseconds, and what its kernel's check gave."""

    latency_us: float
    iqr_us: float = 0.0
    verified: bool = False
    max_rel_err: float | None = None


#: Of :attr:`Measurement.peers_us`: the original network, in turns with the one that is measured.
ORIGINAL = "the original, in turns"

#: ... and as its layers run one by one in PyTorch, where the latency is that of the compiled network.
EAGER = "the original in eager, in turns"

#: Who runs a network that is timed: the whole of it compiled (:func:`syno.compile`), or its layers one by one.
RUNNERS = {"compiled": "compiled whole", "layers": "layer by layer"}

#: Of a record: the network itself, before its latency was brought to the scale of the session's original.
AS_TIMED = "as timed"

#: Of a record: who ran a network that was timed on a target, before the target's name.
ON = "target:"

#: What a note of a candidate is about that a target cannot run.
UNFIT = "target"

#: Of a record: what proposals, pruning and rungs go by.
PREDICTED = "predicted"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a network before it is trained.

    ``latency_us`` is the whole network at batch ``batch`` on ``threads`` threads, the median of
    ``samples`` runs with interquartile range ``iqr_us``; ``flops`` (multiply-adds) and ``params`` are the
    whole network's. ``peers_us`` has other ways to run the same network, by name, and under :data:`ORIGINAL` what it
    took turns with: a session then records the latency as a part of that.
    """

    latency_us: float
    iqr_us: float = 0.0
    samples: int = 0
    threads: int = 1
    batch: int = 1
    flops: int | None = None
    params: int | None = None
    verified: bool = False
    max_rel_err: float | None = None
    sites: dict[str, SiteTiming] = {}
    peers_us: dict[str, float] = {}
    notes: list[str] = []
    mixing: str = ""
    """Which examples and tokens the network mixes, beside the original; empty where nobody asked."""
    runner: str = ""
    """Who ran the network, of :data:`RUNNERS`; empty where nobody says."""
    why_layers: str = ""
    """Why the network is not compiled, where that was tried."""


class Measurer(Protocol):
    """Builds, verifies and times a network, in a worker process, while nothing else of the session runs.

    A network that computes the wrong values is an exception, hence a failed candidate. Sessions that predict latencies
    ask it for these as well, at any time, in a further method, ``predict(request: PredictRequest) -> Predicted``; targets that time
    exported networks in ``export(request: syno.session.bundled.ExportRequest) -> None``.
    """

    def measure(self, request: MeasureRequest) -> Measurement:
        """Times the network that ``request`` describes: microseconds a call, and whether it computes what it should."""
        ...


class Reward(Protocol):
    """Turns what is known of a candidate into the number a proposer learns from."""

    def __call__(self, candidate: Candidate, baseline: Candidate) -> float:
        """In 0 … 1; greater is better."""
        ...


class Callback(Protocol):
    """Watches a session; exceptions from it end the run, and the session stays resumable."""

    def __call__(self, what: str, candidate: Candidate | None, view: SessionView) -> None:
        """``what``: given, started, measured, trained, pruned, failed, folded, rung, finalist, skipped, exhausted, ended."""
        ...


def to_plain(value: Any) -> Any:
    """Structs and dataclasses as dictionaries and lists.

    Args:
        value: one of this module's values, or anything that is made of such, numbers, texts, lists and dictionaries.
    """
    return msgspec.to_builtins(value)
