"""What a run is asked for, a row of its report, and what the rows say together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kernelbench.peers import PEERS
from syno.machines.model import MachineModel
from syno.tuning.cost_model import rank_correlation


@dataclass
class Result:
    """A row of the report; times in microseconds. `ratio...` above 1: the kernel is faster."""

    name: str
    klass: str
    us: float
    spread: float
    gflops: float
    fraction_of_peak: float
    roof_us: float
    read_roof_us: float  # as if all bytes were read
    bound: str
    fraction_of_roof: float
    fraction_of_read_roof: float
    peers_us: dict[str, float]
    forms_us: dict[str, float]
    best_peer: str | None
    best_form: str | None
    ratio_to_best_peer: float | None
    peers_asked: int
    """How many peers the run was to compare with; `peers_us` has those that ran."""
    ratios: dict[str, float]
    max_rel_err: float
    construct_ms: float | None
    compile_ms: float | None
    cached_ms: float | None
    """From the loop nest to code that can be called, the object on disk."""
    spills: int | None
    predicted_us: float | None
    absent: dict[str, str] = field(default_factory=dict)
    avx512: dict[str, float] = field(default_factory=dict)
    """The share of instructions in AVX-512's encoding that each contestant of a run that is held to less was found at."""
    intensity: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        entry = {("class" if k == "klass" else k): v for k, v in self.__dict__.items()}
        del entry["intensity"]
        return entry


@dataclass(frozen=True)
class Settings:
    """What a run is asked for."""

    peers: Sequence[str]
    threads: int
    turns: int
    machine_file: str
    """The machine model as text, which travels to the process that measures."""
    limit_s: float = 2.0
    """Measuring of one case ends after this, at least three turns made."""
    prepare_s: float = 120.0
    """A form that a peer needs longer to make ready is left out."""
    held: str = ""
    """A CPU of `kernelbench.instructions.HELD`, whose instructions nobody exceeds; "": this one."""

    @cached_property
    def machine(self) -> MachineModel:
        return MachineModel.from_json(self.machine_file)


def geomean(values: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


@dataclass(frozen=True)
class Presence:
    """In how many of the cases a peer ran; `why` is the reason most often given where it did not."""

    ran: int
    cases: int
    why: str | None

    def __str__(self) -> str:
        if self.why is None:
            return f"ran in all {self.cases} cases"
        if self.ran == 0:
            return f"is absent: {self.why}"
        return f"ran in {self.ran} of {self.cases} cases: {self.why}"


def presence(peers: Sequence[str], results: Sequence[Result]) -> dict[str, Presence]:
    """What became of each peer that was asked for: there is no peer that neither ran nor has a reason."""
    found = {}
    for peer in peers:
        without = [r for r in results if peer not in r.peers_us]
        reasons = [
            reason
            for r in without
            for name, reason in r.absent.items()
            if name.partition(" ")[0] == peer
        ]
        nothing = "there is no form that it runs" if results else "no case was measured"
        why = PEERS[peer].absent or max(reasons, key=reasons.count, default=nothing)
        ran = len(results) - len(without)
        found[peer] = Presence(ran, len(results), None if ran and not without else why)
    return found


def summary(results: Sequence[Result]) -> dict[str, dict[str, float | None]]:
    """By class: geomean and least ratio to the best peer, fraction of the roof, time to a cold kernel."""
    classes: dict[str, dict[str, float | None]] = {}
    for klass in dict.fromkeys(result.klass for result in results):
        rows = [result for result in results if result.klass == klass]
        ratios = [r.ratio_to_best_peer for r in rows if r.ratio_to_best_peer]
        cold_ms = sorted(
            r.construct_ms + r.compile_ms
            for r in rows
            if r.construct_ms is not None and r.compile_ms is not None
        )
        cached_ms = [r.cached_ms for r in rows if r.cached_ms is not None]
        entry: dict[str, float | None] = {
            "cases": len(rows),
            "geomean": geomean(ratios),
            "least": min(ratios, default=None),
            "median_fraction_of_roof": statistics.median(r.fraction_of_roof for r in rows),
            "median_fraction_of_read_roof": statistics.median(
                r.fraction_of_read_roof for r in rows
            ),
            "cold_ms_median": statistics.median(cold_ms) if cold_ms else None,
            "cold_ms_p95": cold_ms[math.ceil(0.95 * len(cold_ms)) - 1] if cold_ms else None,
            "cached_ms_median": statistics.median(cached_ms) if cached_ms else None,
        }
        for peer in dict.fromkeys(name for r in rows for name in r.peers_us):
            known = [r.ratios[peer] for r in rows if peer in r.ratios]
            entry[f"cases_with_{peer}"] = len(known)
            entry[f"geomean_to_{peer}"], entry[f"least_to_{peer}"] = geomean(known), min(known)
        for name in ("eager emitted", "compile emitted", "eager stages", "compile stages"):
            known = [r.ratios[name] for r in rows if name in r.ratios]
            if known:
                entry[f"geomean_to_{name.replace(' ', '_')}"] = geomean(known)
        pairs = [(r.predicted_us, r.us) for r in rows if r.predicted_us is not None]
        errors = sorted(abs(math.log(predicted / us)) for predicted, us in pairs)
        if errors:
            entry["prediction_error_median"] = math.expm1(statistics.median(errors))
            entry["prediction_error_p90"] = math.expm1(errors[math.ceil(0.9 * len(errors)) - 1])
        if len(pairs) > 2:
            entry["rank_correlation_of_prediction"] = rank_correlation(*zip(*pairs, strict=True))
        classes[klass] = entry
    return classes
