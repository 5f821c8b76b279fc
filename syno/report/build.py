"""From a session to a report: reads only what the session recorded."""

from __future__ import annotations

from typing import Any

import msgspec

from syno.errors import SessionError
from syno.machine import describe_machine
from syno.numbers import significant
from syno.report.model import Comparison, Entry, Given, Report
from syno.session.records import Candidate
from syno.session.view import SessionView


class FinalBench(msgspec.Struct, kw_only=True):
    """The last measurement of a search: finalists and original interleaved in one run."""

    latencies_us: dict[str, float]
    iqrs_us: dict[str, float]
    speedups: dict[str, float]
    compiled_us: dict[str, float]
    skipped: dict[str, str]
    threads: int
    batch: int
    note: str = ""
    """What may have disturbed it, such as another process that measured; empty: nothing known."""


FINAL_FILE = "final.json"


def read_final(view: SessionView) -> FinalBench | None:
    """The session's last measurement; ``None`` before there is one.

    Raises:
        SessionError: it is damaged.
    """
    path = view.directory / FINAL_FILE
    if not path.exists():
        return None
    view.check_file(path)
    try:
        return msgspec.json.decode(path.read_bytes(), type=FinalBench)
    except (OSError, msgspec.MsgspecError) as error:
        raise SessionError(
            f"{path} cannot be read: {error}",
            fix="remove it: running the search again measures anew",
            code="R005",
        ) from error


def _entry(
    view: SessionView, candidate: Candidate, final: FinalBench | None, front: set[str]
) -> Entry:
    peers: dict[str, float] = {}
    if final and {candidate.id, "baseline"} <= set(final.latencies_us):
        peers["this network, in turns with the original"] = final.latencies_us[candidate.id]
        peers["the original in eager, in turns"] = final.latencies_us["baseline"]
        for name, value in final.compiled_us.items():
            peers[f"{'the original' if name == 'baseline' else name} in torch.compile"] = value
    sites = {t.site: t.latency_us for t in candidate.timings if t.site}
    return Entry(
        id=candidate.id,
        expr=view.formula(candidate) or "the original layers",
        state=candidate.state,
        accuracy=candidate.value,
        accuracy_std=candidate.std,
        accuracy_stderr=view.stderr(candidate),
        seeds_count=len(candidate.finals),
        latency_us=candidate.latency_us,
        latency_iqr_us=candidate.latency_iqr_us,
        op_latency_us=candidate.op_latency_us,
        op_latencies_us=sites,
        peers_us=peers,
        flops=candidate.flops,
        params=candidate.params,
        verified=candidate.verified,
        max_rel_err=candidate.max_rel_err,
        reason=candidate.reason or None,
        front=candidate.id in front,
    )


def compare(view: SessionView, candidate: Candidate, final: FinalBench | None) -> Comparison | None:
    """A candidate against the original, *better* or *worse* only beyond two standard errors."""
    baseline = view.baseline
    if baseline is None or candidate.value is None or baseline.value is None:
        return None
    uncertainty = view.uncertainty(candidate, baseline)
    if uncertainty is None or not candidate.latency_us or not baseline.latency_us:
        return None
    speedup = baseline.latency_us / candidate.latency_us
    if final and candidate.id in final.speedups:
        speedup = final.speedups[candidate.id]
    difference = candidate.value - baseline.value
    gain = difference if view.higher_is_better else -difference
    if abs(gain) <= uncertainty:
        verdict = "as good within the uncertainty"
    else:
        verdict = "better" if gain > 0 else "worse"
    return Comparison(
        id=candidate.id,
        speedup=speedup,
        accuracy_difference=difference,
        uncertainty=uncertainty,
        verdict=verdict,
    )


def _conclusion(view: SessionView, comparison: Comparison | None, metric: str) -> str:
    if view.interrupted:
        again = f"; {view.config.note} continues it." if view.config.note else "."
        return f"The search was interrupted{again} " + _so_far(view, comparison, metric, " so far")
    return _so_far(view, comparison, metric, " so far" if view.running else "")


def _so_far(view: SessionView, comparison: Comparison | None, metric: str, when: str) -> str:
    if view.baseline is None or view.baseline.value is None:
        return "The original has not been trained yet: nothing can be compared."
    if comparison is None:
        done = [c for c in view.candidates() if c.state == "done"]
        if not done:
            return "No candidate has been trained to the end yet."
        return (
            f"None of the {len(done)} candidates trained{when} is faster than the original and holds its "
            f"{metric} within the uncertainty: the original stays{when}."
        )
    difference, uncertainty = comparison.accuracy_difference, comparison.uncertainty
    if metric == "accuracy":
        change, error = f"{100 * difference:+.2f} points", f"{100 * uncertainty:.2f}"
    else:
        sign = "+" if difference >= 0 else ""
        change, error = f"{sign}{significant(difference)}", significant(uncertainty, 2)
    return (
        f"{comparison.id} runs the network {comparison.speedup:.2f} times as fast as the original in "
        f"eager PyTorch; its {metric} is {comparison.verdict} "
        f"({change}, uncertainty {error})."
    )


def disturbed(view: SessionView, final: FinalBench | None) -> list[str]:
    """Which latencies were measured although the machine was not the session's alone, one sentence a reason."""
    found: dict[str, list[str]] = {}
    for candidate in [*([view.baseline] if view.baseline else []), *view.candidates()]:
        for note in candidate.notes:
            found.setdefault(note, []).append(candidate.id)
    if final is not None and final.note:
        found.setdefault(final.note, []).append("the last comparison")
    return [f"Measured although {note}: {', '.join(ids)}." for note, ids in found.items()]


def build_report(
    view: SessionView, *, title: str, task: str, command: str, notes: list[str] | None = None
) -> Report:
    """Everything the session knows, as a report.

    Latencies of the table are the session's, each network timed alone; the winner's speed-up is that of the
    last measurement, in which finalists and original took turns.
    """
    final = read_final(view)
    candidates = view.candidates()
    baseline = view.baseline
    scores = [c.score for c in ([baseline] if baseline else []) + candidates if c.score]
    metric = scores[0].metric if scores else "accuracy"
    remarks = [*view.notes(), *disturbed(view, final), *(notes or [])]
    best = view.best()
    front = {c.id for c in view.pareto()}
    comparison = compare(view, best, final) if best else None
    if comparison is not None and comparison.speedup <= 1.0:
        # Alone it was faster; taking turns with the original, with colder caches, it was not.
        remarks.append(f"{comparison.id} was not faster when it took turns with the original")
        best = comparison = None
    pictures, loops = {}, {}
    if best is not None:
        for stage, operator in view.operators(best).items():
            label = best.id if stage == best.stage else f"{best.id}, {stage}"
            pictures[label] = operator._repr_svg_() or ""
            loops[label] = loop_text(operator)
    base = (
        _entry(view, baseline, final, front)
        if baseline
        else Entry(id="baseline", expr="the original layers", state="queued")
    )
    settings: Any = view.config
    seeds = sorted({s.seed for c in candidates for s in c.finals} | {settings.seed})
    measured = baseline.timings if baseline else []
    batch = final.batch if final else (measured[0].batch if measured else 1)
    if final:
        remarks += [f"{name}: {why}" for name, why in final.skipped.items()]
    return Report(
        title=title,
        task=task,
        metric=metric,
        higher_is_better=view.higher_is_better,
        machine=describe_machine(),
        threads=settings.threads_per_measurement,
        batch=batch,
        seeds=seeds,
        command=command,
        baseline=base,
        candidates=[_entry(view, c, final, front) for c in candidates],
        best=best.id if best else None,
        comparison=comparison,
        conclusion=_conclusion(view, comparison, metric),
        ended=view.ended,
        pictures=pictures,
        loops=loops,
        notes=remarks,
        given={
            part: Given(value=score.value, stderr=score.stderr, count=score.count)
            for part, score in view.given.items()
        },
        recipe=view.recipe,
    )


def loop_text(operator: Any) -> str:
    """The operator's stages as formulas and as nested loops, at its first valuation."""
    concrete = operator.at(0)
    sizes = ", ".join(f"{n} {list(s)}" for n, s in concrete.shapes.items())
    return f"# {sizes}\n{concrete.program.short_text()}\n\n{concrete.program.loops()}"
