"""How a candidate came to be and what became of it, in lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from syno.session.protocols import ON, RUNNERS
from syno.session.records import COMBINED, Candidate
from syno.support.numbers import significant

if TYPE_CHECKING:
    from syno.session.view import SessionView


def history(view: SessionView, candidate: Candidate) -> str:
    """As :meth:`syno.session.SessionView.explain`."""
    lines = [f"{candidate.id}: {candidate.expr}"]
    if candidate.known:
        lines.append(f"known operator: {candidate.known}")
    if candidate.key:
        own = view.assignment(candidate)
        if candidate.kind != COMBINED:
            own = {candidate.stage: candidate.key}
        for stage, key in own.items():
            lines.append(f"operator {key} for stage {stage!r}")
            steps = _steps(view._store.operator(key).text)
            lines += [f"  {number}. {step}" for number, step in enumerate(steps, 1)]
        if candidate.kind == COMBINED:
            lines.append(candidate.why)
        for stage, expr in view.formulas(candidate).items():
            if stage not in own:
                lines.append(f"beside it, in the sites of stage {stage!r}: {expr}")
    if candidate.ticket is not None:
        why = f": {candidate.why}" if candidate.why else ""
        lines.append(f"proposed as ticket {candidate.ticket} of batch {candidate.batch}{why}")
    for label, number in (("FLOPs", candidate.flops), ("parameters", candidate.params)):
        if number is not None:
            lines.append(f"{label}: {number:,}")
    if candidate.predicted_us is not None:
        lines.append(
            f"whole network, predicted: {significant(candidate.predicted_us)} us, which the search goes by"
        )
    for timing in candidate.timings:
        where = f"site {timing.site}" if timing.site else "whole network"
        if timing.runner.startswith(ON):
            where += f" on {timing.runner.removeprefix(ON)}"
        runner = "syno" if timing.runner.startswith(ON) else timing.runner
        if not timing.site and runner == "syno" and candidate.runner:
            runner = RUNNERS.get(candidate.runner, candidate.runner)
            runner += f" ({candidate.why_layers})" if candidate.why_layers else ""
        lines.append(
            f"{where}, {runner}: {significant(timing.latency_us)} us "
            f"(IQR {significant(timing.iqr_us)}, "
            f"{timing.samples} samples, {timing.threads} threads, batch {timing.batch}) at {timing.at}"
        )
    lines += [f"timed although {note}" for note in candidate.notes]
    lines += [f"cannot be timed on {what}" for what in candidate.unfit]
    for step, metrics in view.curve(candidate):
        lines.append(f"step {step}: " + ", ".join(f"{k} {v:.4g}" for k, v in metrics.items()))
    for where, names in (("on", candidate.nodes), ("on machines of class", candidate.classes)):
        if names:
            lines.append(f"trained {where} {', '.join(names)}")
    for score in candidate.rungs:
        lines.append(
            f"{score.phase}, {score.steps} steps: {score.metric} {significant(score.value, 4)}"
        )
    for score in [*([candidate.score] if candidate.score else []), *candidate.finals]:
        lines.append(
            f"{score.phase}, seed {score.seed}: {score.metric} {significant(score.value, 4)} +- {significant(score.stderr, 2)} "
            f"on {score.count} examples of {score.part}"
        )
    if candidate.reward is not None:
        lines.append(f"reward: {candidate.reward:.4f}")
    lines.append(candidate.state + (f": {candidate.reason}" if candidate.reason else ""))
    return "\n".join(lines)


def _steps(text: str) -> list[str]:
    try:
        content = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    steps = content.get("steps", []) if isinstance(content, dict) else []
    return [str(step) for step in steps]
