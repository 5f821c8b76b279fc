"""What a reader of a session's results should know beside its numbers, in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from syno.session.opening import LOST_END
from syno.session.protocols import UNFIT
from syno.session.records import allowed_drop
from syno.support.numbers import significant

if TYPE_CHECKING:
    from syno.session.view import SessionView

#: Of a recipe: trainings begin with the weights of the model as it was handed in.
BEGINS_GIVEN = "the model's own weights"


def remarks(view: SessionView) -> list[str]:
    """What a reader of the results should know: which stages were skipped or ran out; whether something is lost."""
    found = [LOST_END] if view._store.lost_end else []
    if lost := lost_by_training(view):
        found.append(lost)
    found += _not_compiled(view)
    found += _not_on_targets(view)
    found += [report.sentence() for report in view.rungs() if report.trained]
    for stage in view.config.stages:
        end = view.stage_ends.get(stage.name)
        if end is None or end.why == "budget":
            continue
        if end.why == "empty":
            text = f"{stage.name!r} is skipped, its sites keep their layers: {end.reason}"
        elif end.why == "exhausted":
            count = view._store.count_of(stage.name)
            text = f"the space of {stage.name!r} ran out: it has no more than {count} operators"
        else:
            text = f"{stage.name!r} ended early: {end.why}"
        found.append(text)
    return found


def _not_on_targets(view: SessionView) -> list[str]:
    """Networks that cannot be timed on a further machine, a sentence a reason."""
    found: dict[str, list[str]] = {}
    for number, what in view._store.notes_about(UNFIT):
        found.setdefault(what, []).append(f"c{number}")
    return [f"cannot be timed on {what} ({', '.join(ids)})" for what, ids in found.items()]


def _not_compiled(view: SessionView) -> list[str]:
    """Networks that could not be compiled though the others are, a sentence a reason."""
    baseline = view.baseline
    if baseline is not None and baseline.why_layers:
        return [
            f"latencies are of networks that run layer by layer: the original cannot be compiled whole: {baseline.why_layers}"
        ]
    found: dict[str, list[str]] = {}
    for number, runner in view._store.notes_about("runner"):
        if why := runner.partition(": ")[2]:
            found.setdefault(why, []).append(f"c{number}")
    return [f"timed layer by layer: {', '.join(ids)}: {why}" for why, ids in found.items()]


def lost_by_training(view: SessionView) -> str:
    """What the recipe undoes of what the model had learned, and what to change; empty where it does not."""
    given, baseline = view.given.get("validation"), view.baseline
    score = baseline.score if baseline is not None else None
    if given is None or score is None:
        return ""
    sign = 1.0 if given.higher_is_better else -1.0
    lost = sign * (given.value - score.value)
    noise = 2.0 * math.hypot(given.stderr, score.stderr)
    usual = allowed_drop(0.01, given.value, higher_is_better=given.higher_is_better)
    if lost <= max(noise, usual):
        return ""
    recipe = view.recipe
    words = ", ".join(recipe[n] for n in ("optimizer", "schedule", "length") if n in recipe)
    begun = recipe.get("begins with", "")
    keep = (
        ""
        if begun in ("", BEGINS_GIVEN)
        else f" Trainings begin with {begun}: let them begin with the model's own (pretrained=True, or a "
        "task whose model function returns the trained model)."
    )
    return (
        f"The model has {given.metric} {significant(given.value, 4)} as it was handed in, and "
        f"{significant(score.value, 4)} after the training that candidates get"
        f"{f' ({words})' if words else ''}: candidates are judged against the better of the two, and few will "
        f"hold it.{keep} Search again in another directory with the recipe the model was trained with, more "
        "epochs, or a lower learning rate (epochs=, learning_rate=, optimizer=)"
    )
