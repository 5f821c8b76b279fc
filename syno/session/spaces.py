"""Spaces without operators: found before anything is trained where the proposer can tell, skipped in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syno.errors import SpecError
from syno.session.config import Stage
from syno.session.records import StageEnd
from syno.session.view import SessionView

if TYPE_CHECKING:
    from syno.session.batches import Batch
    from syno.session.loop import Loop


def skip_empty(loop: Loop) -> None:
    """Closes the stages whose space has no operator.

    Raises:
        SpecError: that is all of them.
    """
    for stage in loop.config.stages:
        if loop.is_open(stage) and not loop.proposed(stage):
            reason = _why_empty(loop, stage)
            if reason is not None:
                _skip(loop, stage, reason)
    _check_one_left(loop.view)


def propose_or_skip(loop: Loop, stage: Stage, width: int) -> Batch | None:
    """``loop.propose``; a stage whose proposer finds only there that its space has no operator is skipped."""
    if is_empty(loop.view, stage):
        return None
    try:
        return loop.propose(stage, width)
    except SpecError as error:
        if loop.proposed(stage):
            raise
        _skip(loop, stage, str(error))
        _check_one_left(loop.view)
        return None


def is_empty(view: SessionView, stage: Stage) -> bool:
    """Whether the stage was skipped for want of operators."""
    end = view.stage_ends.get(stage.name)
    return end is not None and end.why == "empty"


def _why_empty(loop: Loop, stage: Stage) -> str | None:
    try:
        ask = getattr(loop.proposer(stage), "why_empty", None)
        return None if ask is None else ask()
    except SpecError as error:
        return str(error)


def _skip(loop: Loop, stage: Stage, reason: str) -> None:
    """Closes a stage without operators: its sites keep their layers."""
    with loop.store.transaction():
        loop.store.execute("UPDATE stage SET state = 'closed' WHERE name = ?", stage.name)
        loop.store.set_stage_end(stage.name, StageEnd(why="empty", reason=reason))
        loop.store.event(f"stage {stage.name} is skipped: {reason}", "warning")
    loop.tell_callbacks("skipped")


def _check_one_left(view: SessionView) -> None:
    stages = view.config.stages
    if all(is_empty(view, stage) for stage in stages):
        reasons = [f"{stage.name}: {view.stage_ends[stage.name].reason}" for stage in stages]
        raise SpecError("[search] no space of this search has an operator. " + " ".join(reasons))
