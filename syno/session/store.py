"""Rows of a session's database: its operators and candidates, and what was found of each, written and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy

from syno.session.database import now
from syno.session.facts import Facts
from syno.session.protocols import PREDICTED, UNFIT, Measurement, OperatorText, Predicted, Proposal
from syno.session.records import Candidate, Score, Timing
from syno.session.rows import NOT_NOTED, candidate_of, score_of, timing_of


class Store(Facts):
    """Reads and writes of a session. A store opened with ``write=False`` only reads."""

    def __init__(self, directory: Path, *, write: bool, create: bool = False) -> None:
        super().__init__(directory, write=write, create=create)
        self._everyone: tuple[tuple[int, int], list[Candidate]] | None = None
        self._original: tuple[tuple[int, int], Candidate | None] | None = None

    def _roll_back(self) -> None:
        # Changes that are taken back are counted all the same.
        self._everyone = self._original = None
        super()._roll_back()

    # --- written

    def add_operator(self, operator: OperatorText) -> None:
        self.execute(
            "INSERT OR IGNORE INTO operator VALUES(?, ?, ?, ?, ?, ?)",
            operator.key,
            operator.expr,
            operator.text,
            operator.flops,
            operator.params,
            now(),
        )

    def add_candidate(
        self,
        kind: str,
        stage: str,
        operator: OperatorText | None,
        *,
        batch: int | None = None,
        proposal: Proposal | None = None,
        why: str = "",
    ) -> int:
        if operator is not None:
            self.add_operator(operator)
        cursor = self.execute(
            "INSERT INTO candidate(number, kind, stage, operator, batch, ticket, why, state, flops, params)"
            " VALUES((SELECT coalesce(max(number) + 1, 0) FROM candidate), ?, ?, ?, ?, ?, ?, 'queued', ?, ?)",
            kind,
            stage,
            operator.key if operator else None,
            batch,
            proposal.ticket if proposal else None,
            proposal.why if proposal else why,
            operator.flops if operator else None,
            operator.params if operator else None,
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def set_state(self, number: int, state: str, reason: str = "") -> None:
        moment = {"running": "started", "done": "ended", "pruned": "ended", "failed": "ended"}
        column = moment.get(state)
        stamp = f", {column} = ?" if column else ""
        values = (now(),) if column else ()
        self.execute(
            f"UPDATE candidate SET state = ?, reason = ?{stamp} WHERE number = ?",
            state,
            reason,
            *values,
            number,
        )

    def add_measurement(self, number: int, found: Measurement, cpu: str, load1: float) -> None:
        at = now()

        def row(site: str, runner: str, us: float, iqr: float, ok: bool, err: float | None) -> None:
            self.execute(
                "INSERT OR REPLACE INTO timing VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                number,
                site,
                runner,
                us,
                iqr,
                found.samples,
                found.threads,
                found.batch,
                cpu,
                load1,
                at,
                ok,
                err,
            )

        row("", "syno", found.latency_us, found.iqr_us, found.verified, found.max_rel_err)
        for site, timing in found.sites.items():
            row(site, "syno", timing.latency_us, timing.iqr_us, timing.verified, timing.max_rel_err)
        for runner, latency_us in found.peers_us.items():
            row("", runner, latency_us, 0.0, False, None)
        self.execute(
            "DELETE FROM note WHERE candidate = ? AND about IN ('mixing', 'runner', 'timing')",
            number,
        )
        if found.mixing:
            self.execute("INSERT INTO note VALUES(?, 'mixing', ?)", number, found.mixing)
        if found.runner:
            runner = f"{found.runner}: {found.why_layers}" if found.why_layers else found.runner
            self.execute("INSERT INTO note VALUES(?, 'runner', ?)", number, runner)
        for what in found.notes:
            self.execute("INSERT OR IGNORE INTO note VALUES(?, 'timing', ?)", number, what)
        self.execute(
            "UPDATE candidate SET flops = coalesce(?, flops), params = coalesce(?, params),"
            " verified = ?, max_rel_err = ? WHERE number = ?",
            found.flops,
            found.params,
            found.verified,
            found.max_rel_err,
            number,
        )

    def add_timing_on(self, number: int, runner: str, found: Measurement) -> None:
        """The latency of a network on another machine; its sites, costs and notes are those of the session's own."""
        self.execute(
            "INSERT OR REPLACE INTO timing VALUES(?, '', ?, ?, ?, ?, ?, ?, '', 0.0, ?, ?, ?)",
            number,
            runner,
            found.latency_us,
            found.iqr_us,
            found.samples,
            found.threads,
            found.batch,
            now(),
            found.verified,
            found.max_rel_err,
        )

    def add_note(self, number: int, about: str, what: str) -> None:
        """Something in words of a candidate; once, however often it is said."""
        self.execute("INSERT OR IGNORE INTO note VALUES(?, ?, ?)", number, about, what)

    def add_prediction(self, number: int, found: Predicted, threads: int) -> None:
        self.execute(
            "INSERT OR REPLACE INTO timing VALUES(?, '', ?, ?, 0.0, 0, ?, 0, '', 0.0, ?, 0, NULL)",
            number,
            PREDICTED,
            found.latency_us,
            threads,
            now(),
        )
        self.execute(
            "UPDATE candidate SET flops = coalesce(?, flops), params = coalesce(?, params)"
            " WHERE number = ?",
            found.flops,
            found.params,
            number,
        )

    def add_score(self, number: int, score: Score) -> None:
        plain = msgspec.to_builtins(score)
        columns = ", ".join(plain)
        marks = ", ".join("?" for _ in plain)
        self.execute(
            f"INSERT OR REPLACE INTO score(candidate, {columns}) VALUES(?, {marks})",
            number,
            *plain.values(),
        )

    def add_curve_point(
        self, number: int, phase: str, seed: int, step: int, metrics: dict[str, float]
    ) -> None:
        self.execute(
            "INSERT OR REPLACE INTO curve VALUES(?, ?, ?, ?, ?)",
            number,
            phase,
            seed,
            step,
            msgspec.json.encode(metrics).decode(),
        )

    # --- read

    def number_of(self, operator: str, stage: str) -> int | None:
        """The candidate that an operator is in a stage."""
        row = self.execute(
            "SELECT max(number) FROM candidate WHERE operator = ? AND stage = ?", operator, stage
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def count_of(self, stage: str) -> int:
        """Candidates of a stage."""
        row = self.execute("SELECT count(*) FROM candidate WHERE stage = ?", stage).fetchone()
        return int(row[0])

    def known_numbers(self) -> list[tuple[int, str]]:
        """Candidates that are known operators, with their names."""
        names = self.known()
        found = []
        for key, name in names.items():
            rows = self.execute("SELECT number FROM candidate WHERE operator = ?", key)
            found += [(int(row[0]), name) for row in rows]
        return sorted(found)

    def trained_again(self) -> list[Candidate]:
        """Candidates that have trainings on the finalists' seeds; the original is not among them."""
        return self.candidates(
            "WHERE c.kind != 'baseline' AND c.number IN (SELECT candidate FROM score WHERE phase = 'final')"
        )

    def names(self) -> list[tuple[int, str, str]]:
        """Number, id and operator's key of everyone; the original has no key."""
        rows = self.execute("SELECT number, kind, operator FROM candidate ORDER BY number")
        return [
            (number, "baseline" if kind == "baseline" else f"c{number}", key or "")
            for number, kind, key in rows
        ]

    def rewards(self, state: str = "") -> tuple[Any, Any]:
        """Numbers and rewards of all candidates but the original, or of those in a state, as arrays in the order of their
        numbers; a reward that is not known is 0."""
        numbers, rewards = self.columns(
            "SELECT number, coalesce(reward, 0.0) FROM candidate WHERE kind != 'baseline' AND (? = '' OR state = ?)"
            " ORDER BY number",
            (numpy.int64, float),
            state,
            state,
        )
        return numbers, rewards

    def seconds(self) -> list[float]:
        """How long whole trainings took, of each network that had one."""
        rows = self.execute(
            "SELECT candidate, seconds FROM score WHERE phase = 'search' ORDER BY candidate, seed DESC"
        )
        return list({row[0]: row[1] for row in rows}.values())

    def disturbances(self) -> list[tuple[Any, ...]]:
        """Kind and number of each candidate, and what may have disturbed its latencies: the original's first."""
        if self._version() < 2:
            return []
        marks = ", ".join("?" * len(NOT_NOTED))
        return self.execute(
            "SELECT c.kind, c.number, n.what FROM note n JOIN candidate c ON c.number = n.candidate"
            f" WHERE n.about NOT IN ({marks}) ORDER BY c.kind != 'baseline', c.number, n.about, n.what",
            *NOT_NOTED,
        ).fetchall()

    def unfit(self, target: str) -> list[tuple[int, str]]:
        """Candidates that cannot be timed on a target, and why, the original among them, in the order of their numbers."""
        if self._version() < 2:
            return []
        found: dict[int, str] = {}
        for number, what in self.execute(
            "SELECT candidate, what FROM note WHERE about = ? ORDER BY candidate, what", UNFIT
        ):
            if what.startswith(f"{target}: "):
                found.setdefault(number, what.removeprefix(f"{target}: "))
        return [(number, why) for number, why in found.items() if why]

    def notes_about(self, about: str) -> list[tuple[int, str]]:
        """Candidates and what a kind of note says of each, but the original's."""
        if self._version() < 2:
            return []
        rows = self.execute(
            "SELECT n.candidate, n.what FROM note n JOIN candidate c ON c.number = n.candidate"
            " WHERE n.about = ? AND c.kind != 'baseline' ORDER BY n.candidate, n.what",
            about,
        )
        return [(int(row[0]), str(row[1])) for row in rows]

    def curve(
        self, number: int, phase: str = "search", seed: int | None = None
    ) -> list[tuple[int, dict[str, float]]]:
        """Steps and metrics of one training."""
        rows = self.execute(
            "SELECT step, metrics FROM curve WHERE candidate = ? AND phase = ?"
            " AND (? IS NULL OR seed = ?) ORDER BY seed, step",
            number,
            phase,
            seed,
            seed,
        )
        return [(int(row[0]), msgspec.json.decode(row[1])) for row in rows]

    def operator(self, key: str) -> OperatorText:
        row = self.execute("SELECT * FROM operator WHERE hash = ?", key).fetchone()
        return OperatorText(
            key=row["hash"],
            expr=row["expr"],
            text=row["text"],
            flops=row["flops"],
            params=row["params"],
        )

    def operator_texts(self) -> Iterator[tuple[str, str]]:
        """Keys and texts of all operators, some at a time: together they may be more than memory should hold."""
        rows = self.execute("SELECT hash, text FROM operator")
        while some := rows.fetchmany(100):
            yield from some

    def baseline(self) -> Candidate | None:
        """The original; read once while nothing changes."""
        stamp = self.stamp()
        if self._original is None or self._original[0] != stamp:
            # It is the first of all since sessions are made, and found without looking at the others.
            found = self._read("WHERE c.number = 0 AND c.kind = 'baseline'")
            found = found or self._read("WHERE c.kind = 'baseline'")
            self._original = (stamp, found[0] if found else None)
        return self._original[1]

    def candidate(self, number: int) -> Candidate | None:
        found = self.candidates("WHERE c.number = ?", number)
        return found[0] if found else None

    def everyone(self) -> list[Candidate]:
        """All candidates and the original; read once while nothing changes."""
        stamp = self.stamp()
        if self._everyone is None or self._everyone[0] != stamp:
            self._everyone = (stamp, self._read(""))
        return list(self._everyone[1])

    def candidates(self, where: str = "", *values: Any) -> list[Candidate]:
        """Candidates in the order of their numbers; ``where`` may filter by columns of ``c``."""
        return self._read(where, *values) if where else self.everyone()

    def _read(self, where: str, *values: Any) -> list[Candidate]:
        rows = self.execute(
            "SELECT c.*, o.expr FROM candidate c LEFT JOIN operator o ON o.hash = c.operator "
            f"{where} ORDER BY c.number",
            *values,
        ).fetchall()
        # Of these alone: what the rest of the session holds must cost nothing here.
        among = f"IN (SELECT c.number FROM candidate c {where})"
        scores: dict[int, list[Score]] = {}
        timings: dict[int, list[Timing]] = {}
        for row in self.execute(
            f"SELECT * FROM score WHERE candidate {among} ORDER BY candidate, phase, seed", *values
        ):
            scores.setdefault(row["candidate"], []).append(score_of(row))
        for row in self.execute(
            f"SELECT * FROM timing WHERE candidate {among} ORDER BY candidate, site, runner",
            *values,
        ):
            timings.setdefault(row["candidate"], []).append(timing_of(row))
        notes: dict[int, list[str]] = {}
        mixing: dict[int, str] = {}
        runners: dict[int, str] = {}
        classes: dict[int, list[str]] = {}
        nodes: dict[int, list[str]] = {}
        unfit: dict[int, list[str]] = {}
        if self._version() >= 2:
            for row in self.execute(
                f"SELECT candidate, about, what FROM note WHERE candidate {among}"
                " ORDER BY candidate, about, what",
                *values,
            ):
                if row["about"] == "mixing":
                    mixing[row["candidate"]] = row["what"]
                elif row["about"] == "runner":
                    runners[row["candidate"]] = row["what"]
                elif row["about"] == "class":
                    classes.setdefault(row["candidate"], []).append(row["what"])
                elif row["about"] == "node":
                    nodes.setdefault(row["candidate"], []).append(row["what"])
                elif row["about"] == "target":
                    unfit.setdefault(row["candidate"], []).append(row["what"])
                else:
                    notes.setdefault(row["candidate"], []).append(row["what"])
        known = self.known()
        first = {
            row[0]: int(row[1])
            for row in self.execute(
                "SELECT operator, min(number) FROM candidate WHERE operator IN"
                f" (SELECT c.operator FROM candidate c {where}) GROUP BY operator",
                *values,
            )
        }
        return [
            candidate_of(
                row,
                scores.get(row["number"], []),
                timings.get(row["number"], []),
                notes.get(row["number"], []),
                mixing.get(row["number"], ""),
                runners.get(row["number"], ""),
                known.get(row["operator"] or "", ""),
                first.get(row["operator"]),
                classes.get(row["number"], []),
                nodes.get(row["number"], []),
                unfit.get(row["number"], []),
            )
            for row in rows
        ]
