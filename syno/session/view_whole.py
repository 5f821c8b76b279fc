"""What is known of a session as a whole: how far it is, how it trains and times, and on which machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import unknown_name
from syno.session.final_bench import FINAL_FILE, FinalBench, read_final_file
from syno.session.lock import locked
from syno.session.protocols import EAGER, RUNNERS
from syno.session.records import (
    Candidate,
    RungState,
    Score,
    StageEnd,
)
from syno.session.speeds import Speeds

if TYPE_CHECKING:
    pass

from syno.session.view_operators import OperatorsView

#: Key of what targets are, by name: machine files (JSON), once somebody lent them.
MACHINES = "target_machines"


class WholeView(OperatorsView):
    """A session as a whole. Made by :func:`syno.session.open_view`, as part of what it gives."""

    @property
    def made_with(self) -> dict[str, str]:
        """CPU, and versions of Python and of packages, by name, of the process that made the session."""
        found: dict[str, str] = msgspec.json.decode(self._store.meta("made_with", "{}"))
        return found

    @property
    def targets(self) -> dict[str, str]:
        """Further machines whose latencies are recorded, by name: what each is, as its machine file (JSON) says; empty text
        where nobody has lent it yet."""
        machines: dict[str, str] = msgspec.json.decode(self._store.meta(MACHINES, "{}"))
        return {
            name: machines.get(name, given) for name, given in (self.config.targets or {}).items()
        }

    def _check_target(self, target: str | None) -> None:
        if target is not None and target not in self.targets:
            raise unknown_name("target", target, self.targets)

    @property
    def given(self) -> dict[str, Score]:
        """What the model was worth as it was handed in, by part; empty where that was not judged."""
        return self._store.given()

    @property
    def recipe(self) -> dict[str, str]:
        """How trainings go, in words; empty where it was not recorded."""
        return self._store.recipe()

    @property
    def words(self) -> dict[str, str]:
        """Operators in plain sentences, by key: those of finalists and of the fronts, once a run has ended."""
        return self._store.words()

    @property
    def elapsed_s(self) -> float:
        """Seconds of searching over all runs."""
        return float(self._store.meta("elapsed_s", "0"))

    @property
    def trained(self) -> int:
        """Candidates whose training was started and ended."""
        row = self._store.execute(
            "SELECT count(*) FROM candidate WHERE kind != 'baseline' AND trained = 1"
        ).fetchone()
        return int(row[0])

    @property
    def ended(self) -> str:
        """How the latest run ended, see :class:`RunSummary`; ``"killed"`` where it did not end by itself.

        Empty while a run goes on, and where none ever began.
        """
        ended = self._store.meta("run_ended")
        if ended == "running" and not self.running:
            return "killed"
        return "" if ended == "running" else ended

    @property
    def rung_state(self) -> RungState:
        """Who went on from which rung of short trainings."""
        return self._store.rung_state()

    @property
    def repeatable(self) -> str:
        """From what a search with a budget in candidates can be repeated, whatever the machine does meanwhile:
        ``"from seed and machine file"``, ``"from seed"`` (nothing is timed), or ``"from its record only"`` (measured
        latencies decide what is proposed: see :class:`RecordedMeasurer`)."""
        if self.config.predicted_on is not None:
            return "from seed and machine file"
        timed = self._store.execute("SELECT 1 FROM timing LIMIT 1").fetchone() is not None
        measured = self.config.measurer is not None or timed
        return "from its record only" if measured else "from seed"

    @property
    def compiles(self) -> bool:
        """Whether networks are timed compiled whole, where they can be; in sessions from before that, layer by layer."""
        measurer = self.config.measurer
        return measurer is not None and bool(measurer.options.get("compiled", False))

    @property
    def runner(self) -> str:
        """What latencies are of, as the original was timed: ``"compiled"`` (the whole network, one native call),
        ``"layers"`` (one by one in PyTorch), empty before anything was timed, and where nobody says."""
        baseline = self.baseline
        if baseline is None or not baseline.measured:
            return ""
        return baseline.runner or ("layers" if self._is_network else "")

    @property
    def _is_network(self) -> bool:
        measurer = self.config.measurer
        return measurer is not None and measurer.now_at == "syno.searching.network:NetworkMeasurer"

    def same_runner(self, candidate: Candidate) -> str:
        """Who ran a candidate and the original in the measurement that :meth:`speedup` is of; empty where that differs, or
        nobody says.

        Args:
            candidate: of this session.
        Returns:
            ``"compiled"`` or ``"layers"``, see :attr:`runner`.
        """
        return self.speeds().same_runner(candidate)

    def original_us(self) -> dict[str, float]:
        """Microseconds of the original by who ran it: as networks are timed, in eager, under `torch.compile`; of the last
        measurement, in turns, else of the search's first."""
        final, baseline = self.final, self.baseline
        found: dict[str, float | None] = {}
        if final is not None and "baseline" in final.latencies_us:
            runner = final.runners.get("baseline", "layers").partition(":")[0]
            found[RUNNERS.get(runner, runner)] = final.latencies_us["baseline"]
            found["eager"] = final.eager_us
            found["torch.compile"] = final.compiled_us.get("baseline")
        elif baseline is not None and self.runner:
            found[RUNNERS[self.runner]] = baseline.latency_us
            eager = (t.latency_us for t in baseline.timings if t.runner == EAGER)
            found["eager"] = next(eager, None)
        return {name: us for name, us in found.items() if us is not None}

    def runner_text(self) -> str:
        """:attr:`runner` in words, with the reason where networks are not compiled."""
        words = RUNNERS.get(self.runner, "")
        why = self.baseline.why_layers if self.baseline is not None else ""
        return f"{words}: {why}" if words and why else words

    @property
    def running(self) -> bool:
        """Whether some process has the session open for writing."""
        return locked(self.directory)

    @property
    def interrupted(self) -> bool:
        """Whether the latest run was interrupted or killed; running again continues it."""
        return self.ended in ("interrupted", "killed")

    @property
    def numeric_class(self) -> str:
        """Of the first training: what digits depend on beside program, data and seed; empty before, and in older
        sessions."""
        return self._store.meta("numeric_class")

    @property
    def executor(self) -> dict[str, Any]:
        """What the latest run's executor said of itself last: machines, calls in flight, repeated ones. Empty for processes
        of this machine."""
        found: dict[str, Any] = msgspec.json.decode(self._store.meta("executor", "{}"))
        return found if self.running or not found else {**found, "in_flight": 0}

    @property
    def finalists(self) -> list[int]:
        """Numbers of the candidates chosen to be trained again; once chosen, they stay."""
        return self._store.finalists()

    @property
    def stage_ends(self) -> dict[str, StageEnd]:
        """How the search of each stage ended, by name, of those that did."""
        return self._store.stage_ends()

    @property
    def known_refused(self) -> dict[str, dict[str, str]]:
        """By stage, the known operators that are not trained beside those found, with the reason."""
        found = {}
        for stage in self.config.stages:
            options = stage.proposer.options.get("known")
            refused = options.get("refused") if isinstance(options, dict) else None
            if isinstance(refused, dict) and refused:
                found[stage.name] = {str(name): str(why) for name, why in refused.items()}
        return found

    def events(self, limit: int = 50) -> list[dict[str, str]]:
        """The latest events, oldest first: ``at`` (when), ``level`` and ``what`` of each.

        Args:
            limit: at most so many.
        """
        rows = self._store.execute(
            "SELECT at, level, what FROM event ORDER BY id DESC LIMIT ?", limit
        ).fetchall()
        return [dict(row) for row in reversed(rows)]

    @property
    def finals_planned(self) -> int:
        """Seeds that the latest run trains its finalists on; 0 where it has none."""
        return int(self._store.meta("finals_planned", "0"))

    @property
    def final(self) -> FinalBench | None:
        """The last measurement of finalists and original in turns; ``None`` before there is one.

        Raises:
            SessionError: its file is damaged.
        """
        path = self.directory / FINAL_FILE
        if path.exists():
            self.check_file(path)
        return read_final_file(path)

    def speeds(self) -> Speeds:
        """What speedups follow from, read once: the original's latencies and the last measurement."""
        return Speeds(self.baseline, self.final)
