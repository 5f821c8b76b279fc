"""From a session to a report: reads only what the session recorded."""

from __future__ import annotations

from typing import Any

import msgspec

from syno.errors import FormatError
from syno.report.details import (
    code_to_use,
    replaced_layers,
    why_finalists,
    words_of,
)
from syno.report.listed import left_out, listed, named, of_interest
from syno.report.model import Comparison, Entry, Given, OnTarget, Replaced, Report
from syno.session.final_bench import FINAL_FILE as FINAL_FILE
from syno.session.final_bench import FinalBench as FinalBench
from syno.session.network_file import FILES, read_network
from syno.session.protocols import EAGER, RUNNERS
from syno.session.records import Candidate
from syno.session.verdict import Verdict
from syno.session.view import SessionView
from syno.support.machine import Machine, describe_machine
from syno.support.numbers import significant

#: Pictures of networks that the plot shows when it is asked.
MOST_DRAWN = 24


def read_final(view: SessionView) -> FinalBench | None:
    """The session's last measurement; ``None`` before there is one.

    Raises:
        SessionError: it is damaged.
    """
    return view.final


def _latency(
    view: SessionView, candidate: Candidate, final: FinalBench | None
) -> tuple[float | None, float | None]:
    """The one latency of a network and its noise: as a part of the original's, in turns with it; finalists' as they will be
    used, from the last measurement."""
    baseline = view.baseline
    if final is None or baseline is None or baseline.latency_us is None:
        return candidate.latency_us, candidate.latency_iqr_us
    ratio = final.speedups.get(candidate.id)
    if not ratio or candidate.kind == "baseline":
        return candidate.latency_us, candidate.latency_iqr_us
    latency = baseline.latency_us / ratio
    return latency, latency * final.speedup_iqrs.get(candidate.id, 0.0) / ratio


def _by(runner: str) -> str:
    """In words: compiled whole, or layer by layer and why."""
    name, _, why = runner.partition(": ")
    return RUNNERS.get(name, name) + (f" ({why})" if why else "")


def _entry(
    view: SessionView,
    candidate: Candidate,
    final: FinalBench | None,
    front: set[str],
    front_test: set[str],
) -> Entry:
    peers: dict[str, float] = {}
    if final and {candidate.id, "baseline"} <= set(final.latencies_us):
        if final.runners:
            own, its = (_by(final.runners.get(id, "")) for id in (candidate.id, "baseline"))
            if candidate.kind != "baseline":
                name = f"this network, {own}, in turns with the original"
                peers[name] = final.latencies_us[candidate.id]
            peers[f"the original, {its}, in turns"] = final.latencies_us["baseline"]
        else:
            peers["this network, in turns with the original"] = final.latencies_us[candidate.id]
            peers["the original in eager, in turns"] = final.latencies_us["baseline"]
        if final.eager_us is not None:
            peers[EAGER] = final.eager_us
        for name, value in final.compiled_us.items():
            peers[f"{'the original' if name == 'baseline' else name} in torch.compile"] = value
    elif candidate.kind == "baseline":
        peers |= {t.runner: t.latency_us for t in candidate.timings if t.runner == EAGER}
    latency, iqr = _latency(view, candidate, final)
    sites = {t.site: t.latency_us for t in candidate.timings if t.site}
    return Entry(
        id=candidate.id,
        expr=view.formula(candidate) or "the original layers",
        state=candidate.state,
        accuracy=candidate.value,
        accuracy_std=candidate.std,
        accuracy_stderr=view.stderr(candidate),
        seeds_count=len(candidate.finals),
        latency_us=latency,
        latency_iqr_us=iqr,
        op_latency_us=candidate.op_latency_us,
        op_latencies_us=sites,
        peers_us=peers,
        runner=candidate.runner,
        flops=candidate.flops,
        params=candidate.params,
        verified=candidate.verified,
        max_rel_err=candidate.max_rel_err,
        reason=candidate.reason or None,
        front=candidate.id in front,
        validation=candidate.validation,
        validation_stderr=candidate.score.stderr if candidate.score else None,
        test=candidate.test,
        test_stderr=view.stderr(candidate) if candidate.finals else None,
        seeds=[score.seed for score in candidate.finals],
        front_test=candidate.id in front_test,
        origin=candidate.origin,
        targets_us=candidate.targets_us,
    )


def compare(verdict: Verdict) -> Comparison | None:
    """The winner against the original, in the words of the one verdict; ``None`` where nothing is proven."""
    one = verdict.judgement
    if one is None or verdict.best is None:
        return None
    sign = 1.0 if verdict.higher_is_better else -1.0
    return Comparison(
        id=one.id,
        speedup=one.speedup,
        accuracy_difference=sign * one.gain,
        uncertainty=one.gain - one.lower,
        verdict=f"not worse by more than {significant(one.allowed, 2)} (one-sided 95 %)",
    )


def _conclusion(view: SessionView, verdict: Verdict) -> str:
    if view.interrupted:
        again = f"; {view.config.note} continues it." if view.config.note else "."
        return f"The search was interrupted{again} {verdict.sentence}"
    return verdict.sentence


def disturbed(view: SessionView, final: FinalBench | None) -> list[str]:
    """Which latencies were measured although the machine was not the session's alone, one sentence a reason."""
    found: dict[str, list[str]] = {}
    for note, id in view.disturbances():
        found.setdefault(note, []).append(id)
    if final is not None and final.note:
        found.setdefault(final.note, []).append("the last comparison")
    return [f"Measured although {note}: {named(ids)}." for note, ids in found.items()]


def measured_on(view: SessionView, final: FinalBench | None) -> Machine:
    """What the latencies were measured on, and when: of the last measurement, else of the original's in the search; this
    machine now where nothing was timed."""
    if final is not None and final.machine is not None:
        return final.machine
    timings = view.baseline.timings if view.baseline else []
    timed = next((t for t in timings if not t.site and t.runner == "syno" and t.at), None)
    if timed is None:
        return describe_machine()
    made = view.made_with
    return Machine(
        cpu=timed.cpu,
        cores=0,
        system="",
        python=made.get("python", ""),
        versions={name: made[name] for name in ("syno", "torch", "numpy") if name in made},
        load1=timed.load1,
        measured_at=timed.at,
    )


def build_report(
    view: SessionView, *, title: str, task: str, command: str, notes: list[str] | None = None
) -> Report:
    """Everything the session knows, as a report.

    Latencies are on one scale: each network took turns with the original, and stands as a part of the one time that is
    recorded of that; finalists as in the last measurement.
    """
    final = read_final(view)
    baseline = view.baseline
    remarks = [*view.notes(), *disturbed(view, final), *(notes or []), *_left_out(view)]
    verdict = view.verdict()
    best = view.best()  # the verdict's
    front = {c.id for c in view.pareto()}
    front_test = {c.id for c in view.pareto("test")}
    comparison = compare(verdict)
    further = {c.id for name in view.targets for c in view.pareto(target=name)}
    numbers, rewards = view.rewards()
    leading = {*front, *front_test, *further, verdict.best or "", verdict.leader or ""}
    shown = view.chosen(listed(numbers, rewards, of_interest(view, leading)))
    if remark := left_out(len(shown), len(numbers)):
        remarks.append(remark)
    pictures, loops = _pictures(view, best)
    base = (
        _entry(view, baseline, final, front, front_test)
        if baseline
        else Entry(id="baseline", expr="the original layers", state="queued", origin="original")
    )
    settings: Any = view.config
    again = [c for c in shown if c.finals]
    seeds = sorted({s.seed for c in again for s in c.finals} | {settings.seed})
    measured = baseline.timings if baseline else []
    batch = final.batch if final else (measured[0].batch if measured else 1)
    if final:
        remarks += [f"{name}: {why}" for name, why in final.skipped.items()]
    words = {c.id: text for c in shown if (text := words_of(view, c))}
    return Report(
        title=title,
        task=task,
        metric=view.metric or "accuracy",
        higher_is_better=view.higher_is_better,
        machine=measured_on(view, final),
        threads=settings.threads_per_measurement,
        batch=batch,
        seeds=seeds,
        command=command,
        baseline=base,
        candidates=[_entry(view, c, final, front, front_test) for c in shown],
        best=best.id if best else None,
        comparison=comparison,
        verdict=verdict,
        replaced=_replaced(view, again),
        finalists=why_finalists(view),
        words=words,
        drawings=_drawings(view, [c for c in shown if c.finals or c.id in front | front_test]),
        formulas=_formulas(view, [c for c in shown if c.finals or c.id in words]),
        code=code_to_use(view, verdict),
        conclusion=_conclusion(view, verdict),
        ended=view.ended,
        pictures=pictures,
        loops=loops,
        notes=remarks,
        rungs=view.rungs(),
        given={
            part: Given(value=score.value, stderr=score.stderr, count=score.count)
            for part, score in view.given.items()
        },
        recipe=view.recipe,
        runner=view.runner_text(),
        original_us=view.original_us(),
        targets=_targets(view),
    )


def _pictures(view: SessionView, best: Candidate | None) -> tuple[dict[str, str], dict[str, str]]:
    """Of the winner's operators, drawn and as loops."""
    pictures, loops = {}, {}
    if best is not None:
        for stage, operator in view.operators(best).items():
            label = best.id if stage == best.stage else f"{best.id}, {stage}"
            pictures[label] = operator._repr_svg_() or ""
            loops[label] = loop_text(operator)
    return pictures, loops


def _targets(view: SessionView) -> dict[str, OnTarget]:
    found = {}
    for name, machine in view.targets.items():
        verdict = view.verdict(target=name)
        found[name] = OnTarget(
            machine=msgspec.json.decode(machine).get("name", "") if machine else "",
            front=[c.id for c in view.pareto(target=name)],
            front_test=[c.id for c in view.pareto("test", target=name)],
            best=verdict.best,
            conclusion=verdict.sentence,
        )
    return found


def _left_out(view: SessionView) -> list[str]:
    """Which known operators were not trained, and why, a sentence a stage."""
    return [
        f"Known operators that do not stand beside those found for {stage!r}: "
        + "; ".join(f"{name} ({why})" for name, why in refused.items())
        + "."
        for stage, refused in view.known_refused.items()
    ]


def _replaced(view: SessionView, candidates: list[Candidate]) -> dict[str, list[Replaced]]:
    """Empty where the session keeps no sites."""
    if not candidates or not (view.directory / FILES[0]).exists():
        return {}
    for name in FILES:
        view.check_file(view.directory / name)
    kept = read_network(view.directory)
    if kept is None:
        return {}
    return {c.id: replaced_layers(view, c, kept.sites) for c in candidates}


def _formulas(view: SessionView, candidates: list[Candidate]) -> dict[str, dict[str, str]]:
    """By id and operator, whose stage is named where the network has others."""
    return {
        c.id: {
            "" if stage == c.stage else stage: operator.latex()
            for stage, operator in view.operators(c).items()
        }
        for c in candidates
    }


def _drawings(view: SessionView, candidates: list[Candidate]) -> dict[str, str]:
    """Of the first :data:`MOST_DRAWN`: each is some kilobytes of the page."""
    found = {}
    for candidate in candidates[:MOST_DRAWN]:
        try:
            operator = next(iter(view.operators(candidate).values()), None)
        except FormatError:  # a policy's own, that is no operator of ours: it has its formula only
            continue
        if drawn := operator._repr_svg_() if operator is not None else None:
            found[candidate.id] = drawn
    return found


def loop_text(operator: Any) -> str:
    """The operator's stages as formulas and as nested loops, at its first valuation."""
    concrete = operator.at(0)
    sizes = ", ".join(f"{n} {list(s)}" for n, s in concrete.shapes.items())
    return f"# {sizes}\n{concrete.program.short_text()}\n\n{concrete.program.loops()}"
