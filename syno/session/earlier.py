"""What a batch's learning curves are compared with: the trainings that were told when it was proposed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syno.session.pruning import Floors, FloorsNow, Training
from syno.session.records import Candidate
from syno.session.rungs import WHOLE

if TYPE_CHECKING:
    from syno.session.running import Running


class EarlierFloors:
    """Floors of one stage's batches, asked about in their order; each training is read from the database once.

    Which trainings count follows from the number of the batch and the session's lag, not from what has ended meanwhile: the
    same for any number of workers, and after any kill.
    """

    def __init__(self, loop: Running, stage: str, phase: str) -> None:
        self._loop, self._stage, self._phase = loop, stage, phase
        self._floors = Floors([], loop.decides_by(loop.baseline(), phase), loop.config.prune)
        self._upto: int | None = None  # batches of the stage below this one are among them
        self._now: FloorsNow | None = None

    def serves(self, stage: str, phase: str, batch: int | None) -> bool:
        """Whether :meth:`before` can be asked about a batch of a stage."""
        end = self._end(batch)
        return (stage, phase) == (self._stage, self._phase) and end >= (self._upto or 0)

    def before(self, batch: int | None) -> FloorsNow:
        """Of the trainings that were told when a batch was proposed."""
        end = self._end(batch)
        if self._upto is None:
            rows = self._rows("c.batch IS NULL OR c.stage != ? OR c.batch < ?", self._stage, end)
        elif end > self._upto:
            rows = self._rows(
                "c.stage = ? AND c.batch >= ? AND c.batch < ?", self._stage, self._upto, end
            )
        else:
            rows = []
        self._upto = end
        if rows or self._now is None:
            for row in sorted(rows, key=lambda c: (-1 if c.batch is None else c.batch, c.number)):
                self._add(row)
            self._now = self._floors.now()
        return self._now

    def _end(self, batch: int | None) -> int:
        """The first batch of the stage that does not count."""
        if batch is None:
            return 1 << 62
        return batch - self._loop.config.batches_open + 1

    def _rows(self, where: str, *values: object) -> list[Candidate]:
        return self._loop.store.candidates(
            f"WHERE c.state IN ('done', 'pruned') AND ({where})", *values
        )

    def _add(self, row: Candidate) -> None:
        """A training as far as it went."""
        candidate = self._loop.decides_by(row, self._phase)
        score = candidate.score
        if score is None or not score.total_steps:
            return
        points = self._loop.store.curve(candidate.number, self._phase, score.seed)
        curve = [
            (step / score.total_steps, metrics[score.metric])
            for step, metrics in points
            if score.metric in metrics
        ]
        # A short training that did not go on came to its end all the same.
        finished = row.state == "done" or (
            self._phase != WHOLE and score.steps == score.total_steps
        )
        self._floors.add(Training(candidate, curve, finished))
