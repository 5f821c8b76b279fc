"""The contents of a report: plain data, written as ``report.json`` and rendered as HTML, Markdown, CSV."""

from __future__ import annotations

import math

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


class Comparison(msgspec.Struct, kw_only=True):
    """What may be said of a candidate against the original, beyond the uncertainty of both."""

    id: str
    speedup: float
    accuracy_difference: float
    uncertainty: float
    verdict: str


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
    pictures: dict[str, str] = msgspec.field(default_factory=dict)
    loops: dict[str, str] = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)


def binomial_stderr(fraction: float, count: int) -> float:
    """Standard error of a fraction measured on ``count`` independent examples (Wilson-stabilised)."""
    if count <= 0:
        return math.inf
    # One pseudo-example either way keeps the error above zero where every answer was right.
    adjusted = (fraction * count + 1) / (count + 2)
    return math.sqrt(adjusted * (1 - adjusted) / count)


def compare(entry: Entry, baseline: Entry, *, higher_is_better: bool = True) -> Comparison | None:
    """Compares two entries; ``None`` when either lacks an accuracy or a latency.

    The verdict is *better* or *worse* only when the difference exceeds two standard errors of the
    difference, *as good within the uncertainty* otherwise.
    """
    if entry.accuracy is None or baseline.accuracy is None:
        return None
    if not entry.latency_us or not baseline.latency_us:
        return None
    difference = entry.accuracy - baseline.accuracy
    gain = difference if higher_is_better else -difference
    uncertainty = 2 * math.hypot(entry.accuracy_stderr or 0.0, baseline.accuracy_stderr or 0.0)
    if abs(gain) <= uncertainty:
        verdict = "as good within the uncertainty"
    else:
        verdict = "better" if gain > 0 else "worse"
    return Comparison(
        id=entry.id,
        speedup=baseline.latency_us / entry.latency_us,
        accuracy_difference=difference,
        uncertainty=uncertainty,
        verdict=verdict,
    )


def pareto_front(entries: list[Entry], *, higher_is_better: bool = True) -> list[Entry]:
    """The entries no other beats in both accuracy and latency, fastest first."""
    measured = [e for e in entries if e.accuracy is not None and e.latency_us is not None]
    sign = 1.0 if higher_is_better else -1.0
    front: list[Entry] = []
    for entry in sorted(measured, key=lambda e: (e.latency_us, -sign * (e.accuracy or 0.0), e.id)):
        if not front or sign * (entry.accuracy or 0.0) > sign * (front[-1].accuracy or 0.0):
            front.append(entry)
    return front
