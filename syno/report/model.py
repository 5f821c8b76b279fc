"""The contents of a report: plain data, written as ``report.json`` and rendered as HTML, Markdown, CSV."""

from __future__ import annotations

import msgspec

from syno.session.rungs import RungReport
from syno.session.verdict import Verdict
from syno.support.machine import Machine


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One network: the original or one with a candidate in its sites.

    ``validation`` is the task's metric (a fraction for accuracy) after the search's one training, ``test`` the mean over the
    finalists' seeds; ``accuracy`` is the latter where it is there, else the former.
    ``accuracy_std`` is the sample standard deviation over seeds; ``accuracy_stderr`` is the uncertainty
    of ``accuracy``: binomial error of the test set combined with the spread of the seeds.
    ``latency_us`` is the whole network, ``op_latency_us`` the sum over its replaced sites, one call each.
    """

    id: str
    expr: str
    state: str
    accuracy: float | None = None
    accuracy_std: float | None = None
    accuracy_stderr: float | None = None
    seeds_count: int = 0
    latency_us: float | None = None
    latency_iqr_us: float | None = None
    op_latency_us: float | None = None
    op_latencies_us: dict[str, float] = msgspec.field(default_factory=dict)
    peers_us: dict[str, float] = msgspec.field(default_factory=dict)
    flops: int | None = None
    params: int | None = None
    verified: bool = False
    max_rel_err: float | None = None
    reason: str | None = None
    front: bool = False
    """Of validation: no other is faster and better."""
    validation: float | None = None
    validation_stderr: float | None = None
    test: float | None = None
    test_stderr: float | None = None
    """Of examples and seeds together."""
    seeds: list[int] = msgspec.field(default_factory=list)
    """Of the trainings behind ``test``."""
    front_test: bool = False
    runner: str = ""
    """Who ran it when it was timed: ``"compiled"`` whole, or its ``"layers"``; empty where nobody says."""
    targets_us: dict[str, float] = msgspec.field(default_factory=dict)
    """Latencies of the whole network on further machines, by the target's name."""
    origin: str = ""
    """``"original"``, ``"found"``, or ``"known: grouped(g=4)"``."""

    @property
    def known(self) -> str:
        """Which known operator it is; empty where it is none."""
        return self.origin.removeprefix("known: ") if self.origin.startswith("known: ") else ""


class Comparison(msgspec.Struct, kw_only=True):
    """What may be said of a candidate against the original, beyond the uncertainty of both."""

    id: str
    speedup: float
    accuracy_difference: float
    uncertainty: float
    verdict: str


class OnTarget(msgspec.Struct, kw_only=True):
    """A further machine whose latencies are recorded: what it is, ids of the networks that no other beats there (of
    validation, of test), and what may be said of the search by its latencies."""

    machine: str
    front: list[str]
    front_test: list[str]
    best: str | None
    conclusion: str


class Given(msgspec.Struct, kw_only=True):
    """The model as it was handed in, before any training of the search: its metric on ``count`` examples."""

    value: float
    stderr: float
    count: int


class Replaced(msgspec.Struct, kw_only=True):
    """A layer before and the operator after: one call in microseconds, multiply-adds of all its calls at the report's
    batch, parameters without the bias' own change."""

    site: str
    layer: str
    before_us: float | None = None
    after_us: float | None = None
    before_flops: int = 0
    after_flops: int = 0
    before_params: int = 0
    after_params: int = 0


class Report(msgspec.Struct, kw_only=True):
    """Everything a reader needs to judge a search, and the command that makes it again."""

    format: str = "syno-report"
    version: int = 1
    title: str
    task: str
    metric: str
    higher_is_better: bool
    machine: Machine
    threads: int
    batch: int
    seeds: list[int]
    command: str
    baseline: Entry
    candidates: list[Entry]
    best: str | None
    comparison: Comparison | None
    conclusion: str
    ended: str = ""
    """How the search ended so far, see :attr:`syno.session.SessionView.ended`."""
    pictures: dict[str, str] = msgspec.field(default_factory=dict)
    loops: dict[str, str] = msgspec.field(default_factory=dict)
    drawings: dict[str, str] = msgspec.field(default_factory=dict)
    """By id, of finalists and of the fronts: the operator as a pGraph, SVG."""
    notes: list[str] = msgspec.field(default_factory=list)
    rungs: list[RungReport] = msgspec.field(default_factory=list)
    """Of short trainings that came before whole ones, where there were any: what their ranks are worth."""
    given: dict[str, Given] = msgspec.field(default_factory=dict)
    """By part (``"validation"``, ``"test"``)."""
    replaced: dict[str, list[Replaced]] = msgspec.field(default_factory=dict)
    """Of finalists, by id."""
    finalists: dict[str, str] = msgspec.field(default_factory=dict)
    """Why each was one."""
    words: dict[str, str] = msgspec.field(default_factory=dict)
    """Operators in plain sentences: those of finalists and of the fronts."""
    formulas: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Of the same networks, by id and operator: LaTeX."""
    code: str = ""
    """Python that applies and exports what was found."""
    verdict: Verdict | None = None
    """What may be said, and from which numbers; ``best``, ``comparison`` and ``conclusion`` follow from it."""
    recipe: dict[str, str] = msgspec.field(default_factory=dict)
    """How candidates and the original were trained, in words."""
    runner: str = ""
    """Who ran the networks that were timed, in words: compiled whole, or layer by layer and why."""
    original_us: dict[str, float] = msgspec.field(default_factory=dict)
    """Of the original by who ran it, in turns."""
    targets: dict[str, OnTarget] = msgspec.field(default_factory=dict)

    def _repr_html_(self) -> str:
        """For notebooks: conclusion, plot and table."""
        from syno.report.render import to_fragment

        return to_fragment(self)
