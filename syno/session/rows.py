"""From rows of a session's database to what is known of a candidate."""

from __future__ import annotations

import sqlite3

from syno.session.protocols import PREDICTED
from syno.session.records import Candidate, Score, Timing

#: What notes are about that say nothing of how a latency was measured.
NOT_NOTED = ("mixing", "runner", "class", "node", "target")


def score_of(row: sqlite3.Row) -> Score:
    fields = {name: row[name] for name in Score.__struct_fields__}
    fields["higher_is_better"] = bool(fields["higher_is_better"])
    return Score(**fields)


def timing_of(row: sqlite3.Row) -> Timing:
    return Timing(
        site=row["site"],
        runner=row["runner"],
        latency_us=row["median_us"],
        iqr_us=row["iqr_us"],
        samples=row["samples"],
        threads=row["threads"],
        batch=row["batch"],
        cpu=row["cpu"],
        load1=row["load1"],
        at=row["at"],
        verified=bool(row["verified"]),
        max_rel_err=row["max_rel_err"],
    )


def candidate_of(
    row: sqlite3.Row,
    scores: list[Score],
    timings: list[Timing],
    notes: list[str],
    mixing: str,
    runner: str,
    known: str,
    first: int | None,
    classes: list[str],
    nodes: list[str],
    unfit: list[str],
) -> Candidate:
    predicted, whole, sites, others = None, None, [], []
    for timing in timings:
        if timing.runner == PREDICTED:
            predicted = timing.latency_us
            continue
        others.append(timing)
        if timing.runner == "syno":
            if timing.site:
                sites.append(timing)
            else:
                whole = timing
    return Candidate(
        number=row["number"],
        kind=row["kind"],
        stage=row["stage"],
        state=row["state"],
        reason=row["reason"],
        key=row["operator"] or "",
        expr=row["expr"] or "original",
        batch=row["batch"],
        ticket=row["ticket"],
        why=row["why"],
        tries=row["tries"],
        reward=row["reward"],
        flops=row["flops"],
        params=row["params"],
        verified=bool(row["verified"]),
        max_rel_err=row["max_rel_err"],
        latency_us=whole.latency_us if whole else None,
        latency_iqr_us=whole.iqr_us if whole else None,
        op_latency_us=sum(t.latency_us for t in sites) if sites else None,
        timings=others,
        score=next((s for s in scores if s.phase == "search"), None),
        rungs=sorted(
            (s for s in scores if s.phase.startswith("rung")), key=lambda s: int(s.phase[4:])
        ),
        finals=[s for s in scores if s.phase == "final"],
        started=row["started"],
        ended=row["ended"],
        notes=notes,
        predicted_us=predicted,
        mixing=mixing,
        runner=runner.partition(": ")[0],
        why_layers=runner.partition(": ")[2],
        known=known,
        files=_files(row["operator"] or "", row["number"], first),
        classes=classes,
        nodes=nodes,
        unfit=unfit,
    )


def _files(key: str, number: int, first: int | None) -> str:
    """One operator may serve several stages: each of these networks has weights of its own."""
    return key if first in (None, number) else f"{key}-c{number}"
