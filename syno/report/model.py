"""The contents of a report: plain data, written as ``report.json`` and rendered as HTML, Markdown, CSV."""

from __future__ import annotations

import msgspec

from syno.machine import Machine


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One network: the original or one with a candidate in its sites.

    ``accuracy`` is the task's metric (a fraction for accuracy) and a mean where ``seeds_count`` > 1;
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


class Comparison(msgspec.Struct, kw_only=True):
    """What may be said of a candidate against the original, beyond the uncertainty of both."""

    id: str
    speedup: float
    accuracy_difference: float
    uncertainty: float
    verdict: str


class Given(msgspec.Struct, kw_only=True):
    """The model as it was handed in, before any training of the search: its metric on ``count`` examples."""

    value: float
    stderr: float
    count: int


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
    notes: list[str] = msgspec.field(default_factory=list)
    given: dict[str, Given] = msgspec.field(default_factory=dict)
    """By part (``"validation"``, ``"test"``)."""
    recipe: dict[str, str] = msgspec.field(default_factory=dict)
    """How candidates and the original were trained, in words."""

    def _repr_html_(self) -> str:
        """For notebooks: conclusion, plot and table."""
        from syno.report.render import to_fragment

        return to_fragment(self)
