"""Batches of candidates: proposed together, and told together in ticket order.

What a proposer is asked is kept, so that a restart asks it again and comes to the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from syno.errors import SessionError
from syno.session.config import Stage
from syno.session.files import (
    operator_path,
)
from syno.session.protocols import (
    Gains,
    Proposal,
)
from syno.session.records import Candidate
from syno.session.rewards import gains_of
from syno.session.training_runs import TrainingRun
from syno.support.files import write_whole

_MOST_ASKS = 64  # of one batch, while all that is proposed is known already


@dataclass
class Batch:
    number: int
    stage: Stage
    asks: list[int]
    tickets: list[tuple[int, int, str]] = field(default_factory=list)  # ticket, candidate, hash


class BatchRun(TrainingRun):
    """A run that proposes candidates and tells what became of them."""

    def open_batches(self, stage: Stage) -> list[Batch]:
        """The stage's unfinished batches in their order, its proposer brought to where it was after the last of them."""
        rows = self.store.execute(
            "SELECT * FROM batch WHERE stage = ? AND state = 'open' ORDER BY number", stage.name
        ).fetchall()
        return [self._opened(stage, row) for row in rows]

    def _opened(self, stage: Stage, row: Any) -> Batch:
        batch = Batch(row["number"], stage, msgspec.json.decode(row["asks"], type=list[int]))
        batch.tickets = [
            (t["ticket"], t["candidate"], t["hash"])
            for t in self.store.execute(
                "SELECT * FROM ticket WHERE stage = ? AND batch = ? ORDER BY ticket",
                stage.name,
                batch.number,
            )
        ]
        # What was proposed before the proposer's state was kept is part of it.
        kept = self.store.asked().get(stage.name, -1)
        if batch.number not in self._replayed and batch.number > kept:
            self._ask_again(batch)
        self._replayed.add(batch.number)
        return batch

    def _ask_again(self, batch: Batch) -> None:
        """Repeats a batch's asks after a restart: the proposer's state was kept before them."""
        proposer = self.proposer(batch.stage)
        given = [
            (proposal.ticket, proposal.operator.key)
            for count in batch.asks
            for proposal in proposer.ask(count)
        ]
        recorded = [(ticket, key) for ticket, _, key in batch.tickets]
        if sorted(given) != recorded:
            raise SessionError(
                f"{self.directory}: the proposer of stage {batch.stage.name!r} no longer proposes what it did "
                f"in batch {batch.number} ({given[:2]}… instead of {recorded[:2]}…)",
                fix="continue with the version of syno that made the session, or start a new one",
                code="R007",
            )

    def propose(self, stage: Stage, width: int) -> Batch | None:
        """A new batch: enqueued candidates first, then proposals; ``None`` when there is nothing left."""
        proposer = self.proposer(stage)
        if self.store.execute(
            "SELECT proposer_state IS NULL FROM stage WHERE name = ?", stage.name
        ).fetchone()[0]:
            # The state before the first ask, so that a restart begins where this run did.
            self.store.execute(
                "UPDATE stage SET proposer_state = ? WHERE name = ?", proposer.state(), stage.name
            )
        waiting = [
            int(row[0])
            for row in self.store.execute(
                "SELECT number FROM candidate WHERE kind = 'enqueued' AND batch IS NULL AND stage = ?"
                " ORDER BY number LIMIT ?",
                stage.name,
                width,
            )
        ]
        known: dict[str, int] = {}
        asks: list[int] = []
        proposals: list[Proposal] = []
        fresh: set[str] = set()
        while len(waiting) + len(fresh) < width and len(asks) < _MOST_ASKS:
            count = width - len(waiting) - len(fresh)
            found = list(proposer.ask(count))
            asks.append(count)
            if not found:
                break
            proposals += found
            for key in {p.operator.key for p in found} - known.keys() - fresh:
                number = self.store.number_of(key, stage.name)
                if number is None:
                    fresh.add(key)
                else:
                    known[key] = number
        if not waiting and not proposals:
            return None
        with self.store.transaction():
            cursor = self.store.execute(
                "INSERT INTO batch(stage, asks, state) VALUES(?, ?, 'open')",
                stage.name,
                msgspec.json.encode(asks).decode(),
            )
            assert cursor.lastrowid is not None
            batch = Batch(cursor.lastrowid, stage, asks)
            for number in waiting:
                self.store.execute(
                    "UPDATE candidate SET batch = ? WHERE number = ?", batch.number, number
                )
            for proposal in sorted(proposals, key=lambda p: p.ticket):
                key = proposal.operator.key
                if key not in known:
                    known[key] = self.store.add_candidate(
                        "proposed",
                        stage.name,
                        proposal.operator,
                        batch=batch.number,
                        proposal=proposal,
                    )
                    if proposal.known:
                        self.store.name_known(key, proposal.known)
                    write_whole(operator_path(self.directory, key), proposal.operator.text)
                self.store.execute(
                    "INSERT INTO ticket VALUES(?, ?, ?, ?, ?)",
                    stage.name,
                    proposal.ticket,
                    batch.number,
                    known[key],
                    key,
                )
                batch.tickets.append((proposal.ticket, known[key], key))
            self.store.event(
                f"batch {batch.number} of stage {stage.name}: {len(waiting) + len(fresh)} candidates"
            )
            self.spend()
        self._replayed.add(batch.number)
        return batch

    def members(self, batch: Batch) -> list[Candidate]:
        return self.store.candidates("WHERE c.batch = ?", batch.number)

    def fold(self, batch: Batch) -> None:
        """Tells the rewards in ticket order and keeps the proposer's new state, all in one transaction."""
        phase, _ = self.first_phase()
        baseline = self.decides_by(self.baseline(), phase)
        proposer = self.proposer(batch.stage)
        told: dict[int, tuple[float, Gains]] = {}
        with self.store.transaction():
            for row in self.members(batch):
                member = self.decides_by(row, phase)
                reward = self.reward(member, baseline)
                self.store.execute(
                    "UPDATE candidate SET reward = ? WHERE number = ?", reward, member.number
                )
                told[member.number] = (reward, gains_of(member, baseline, self.config.prune))
            for ticket, number, _ in batch.tickets:
                if number not in told:  # proposed before, in an earlier batch
                    earlier = self.store.candidate(number)
                    assert earlier is not None
                    known = self.decides_by(earlier, phase)
                    gains = gains_of(known, baseline, self.config.prune)
                    told[number] = (earlier.reward or 0.0, gains)
                proposer.tell(ticket, *told[number])
            self.store.execute(
                "UPDATE stage SET proposer_state = ? WHERE name = ?",
                proposer.state(),
                batch.stage.name,
            )
            last = self.store.execute(
                "SELECT max(number) FROM batch WHERE stage = ?", batch.stage.name
            ).fetchone()[0]
            self.store.set_asked({**self.store.asked(), batch.stage.name: int(last)})
            self.store.execute("UPDATE batch SET state = 'folded' WHERE number = ?", batch.number)
            self.spend()
        self.tell_callbacks("folded")
