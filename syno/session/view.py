"""Reading a session: while it runs, from any process, without disturbing it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy

from syno.errors import SessionError, unknown_name
from syno.session.config import SessionConfig, first_difference, fixed_json, read_config
from syno.session.files import examples_path, given_path
from syno.session.final_bench import FINAL_FILE, FinalBench, read_final_file
from syno.session.history import history
from syno.session.interval import Interval, Sample, difference, residuals
from syno.session.lock import locked
from syno.session.overview import Overview, by_numbers, costs_of, numbered
from syno.session.protocols import EAGER, ON, RUNNERS
from syno.session.records import (
    COMBINED,
    Candidate,
    Combination,
    RungState,
    Score,
    StageEnd,
    pooled_std,
)
from syno.session.remarks import lost_by_training, remarks
from syno.session.rungs import RungReport, rung_reports
from syno.session.speeds import Speeds
from syno.session.status import states_of, status_of
from syno.session.store import Store
from syno.session.table import ROW, cell, row_of
from syno.session.verdict import Verdict, reach

if TYPE_CHECKING:
    import pandas

    from syno.operators.operator import Operator


#: Key of what targets are, by name: machine files (JSON), once somebody lent them.
MACHINES = "target_machines"


class SessionView:
    """All that can be asked of a session. Numbers are as recorded; nothing is measured or trained. Made by :func:`open_view`;
    a :class:`Session` is one as well."""

    def __init__(self, directory: Path, store: Store, config: SessionConfig) -> None:
        self.directory = directory
        self.config = config
        self._store = store
        self._intervals: dict[Any, Interval] = {}
        self._overview: tuple[tuple[int, int], Overview] | None = None

    def __enter__(self) -> SessionView:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the database."""
        self._store.close()

    # --- candidates

    def candidates(self, among: Collection[int] | None = None) -> list[Candidate]:
        """All candidates but the baseline, in the order they were proposed.

        Args:
            among: numbers; then those of them alone, and no others are read.
        """
        found = self._store.everyone() if among is None else numbered(self._store, among)
        return [c for c in found if c.kind != "baseline"]

    def trained_again(self) -> list[Candidate]:
        """Those that have trainings on the finalists' seeds, in the order they were proposed; no others are read."""
        return self._store.trained_again()

    @property
    def baseline(self) -> Candidate | None:
        """The original network, once it is part of the session."""
        return self._store.baseline()

    def candidate(self, id: str | int) -> Candidate:
        """One candidate by id or by the beginning of its operator's hash.

        Args:
            id: ``"c7"``, ``7`` or ``"baseline"``; or at least four digits of the hash.
        Raises:
            UnknownName: there is none, or more than one.
        """
        text = str(id)
        number = text.removeprefix("c")
        if number.isascii() and number.isdecimal() and len(number) < 18:
            one = self._store.candidate(int(number))
            if one is not None and text in (one.id, str(one.number)):
                return one
        everyone = self._store.names()
        found = [n for n, id, _ in everyone if text in (id, str(n))]
        if not found and len(text) >= 4:
            found = [n for n, _, key in everyone if key.startswith(text)]
        if len(found) != 1:
            raise unknown_name("candidate", text, [id for _, id, _ in everyone])
        return self.chosen(found)[0]

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric; true until something was trained."""
        row = self._store.execute("SELECT higher_is_better FROM score LIMIT 1").fetchone()
        return bool(row[0]) if row else True

    @property
    def metric(self) -> str:
        """What trainings are judged by: the original's, else the first candidate's; empty until something was trained."""
        baseline = self.baseline
        if baseline is not None and baseline.score is not None:
            return baseline.score.metric
        row = self._store.execute(
            "SELECT metric FROM score WHERE phase = 'search' ORDER BY candidate, seed LIMIT 1"
        ).fetchone()
        return "" if row is None else str(row[0])

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

    def pareto(self, part: str = "validation", *, target: str | None = None) -> list[Candidate]:
        """Candidates and baseline that no other beats in both latency and metric, fastest first.

        Args:
            part: ``"validation"``: of the search's one training each; ``"test"``: of the finalists and the original,
                the mean over their seeds. The two are never compared.
            target: a further machine, whose latencies count; see :attr:`targets`.
        Raises:
            UnknownName: another part, or no such target.
        """
        self._check_target(target)
        everyone = self.overview()
        parts = {"validation": everyone.validation, "test": everyone.test}
        if part not in parts:
            raise unknown_name("part", part, parts)
        cost = costs_of(self._store, everyone, None if target is None else ON + target)
        front = everyone.front(cost, parts[part], higher_is_better=self.higher_is_better)
        return self.chosen(front)

    def overview(self) -> Overview:
        """Numbers of all candidates that were trained to the end; read once while nothing changes."""
        stamp = self._store.stamp()
        if self._overview is None or self._overview[0] != stamp:
            self._overview = (stamp, Overview.read(self._store))
        return self._overview[1]

    def chosen(self, numbers: Sequence[int]) -> list[Candidate]:
        """Candidates by number, in that order; no others are read.

        Args:
            numbers: of candidates, 7 for ``"c7"``; 0 is the original.
        """
        return by_numbers(self._store, numbers)

    def latest(self, count: int, state: str = "") -> list[Candidate]:
        """The candidates with the greatest numbers, the last first; no others are read.

        Args:
            count: at most so many.
            state: of those in a state alone; empty: of all.
        """
        rows = self._store.execute(
            "SELECT number FROM candidate WHERE kind != 'baseline' AND (? = '' OR state = ?)"
            " ORDER BY number DESC LIMIT ?",
            state,
            state,
            count,
        )
        return self.chosen([row[0] for row in rows])

    def rewards(self, state: str = "") -> tuple[Any, Any]:
        """Numbers and rewards of all candidates, two arrays in the order they were proposed; no more of them is read. A reward
        that is not known is 0.

        Args:
            state: of those in a state alone; empty: of all.
        """
        return self._store.rewards(state)

    def disturbances(self) -> list[tuple[str, str]]:
        """What may have disturbed latencies, and the id of whose: the original's first, then in the order of the search."""
        return [
            (what, "baseline" if kind == "baseline" else f"c{number}")
            for kind, number, what in self._store.disturbances()
        ]

    def ends(self) -> list[tuple[str, int]]:
        """How candidates ended that were not trained to the end, and how many each, the most frequent first."""
        rows = self._store.execute(
            "SELECT state, count(*) FROM candidate WHERE kind != 'baseline' AND state IN ('pruned', 'failed', 'lost')"
            " GROUP BY state ORDER BY count(*) DESC, min(number)"
        )
        return [(str(row[0]), int(row[1])) for row in rows]

    def stderr(self, candidate: Candidate) -> float | None:
        """Standard error of a candidate's metric: examples and seeds, the seeds' part pooled.

        Args:
            candidate: of this session, or the original.
        Returns:
            In the metric's unit; ``None`` where it was not judged.
        """
        return candidate.stderr(self._pooled_std())

    def _pooled_std(self) -> float | None:
        return pooled_std(list(self.overview().finals.values()))

    def uncertainty(self, candidate: Candidate, other: Candidate) -> float | None:
        """Two standard errors of the difference of two networks' metrics; ``None`` where one has none.

        Args:
            candidate, other: of this session; the original is one, too.
        """
        spread = self._pooled_std()
        own, its = candidate.stderr(spread), other.stderr(spread)
        return None if own is None or its is None else 2.0 * math.hypot(own, its)

    def verdict(self, max_drop: float | None = None, *, target: str | None = None) -> Verdict:
        """What may be said of the search now; the one that progress, status, report and exit codes use.

        Args:
            max_drop: how much worse than the original the metric may be, see :meth:`best`.
            target: a further machine, whose latencies count; see :attr:`targets`.
        Raises:
            UnknownName: no such target.
        """
        self._check_target(target)
        return reach(self, max_drop, target)

    def best(self, *, max_drop: float | None = None, target: str | None = None) -> Candidate | None:
        """The fastest candidate that is proven not to be worse than the original; ``None`` if there is none.

        Proven: the lower end of the one-sided 95 % interval of the difference is at least ``-max_drop`` (of a metric
        to be made small, such as a loss, that share of the original's), for the original trained alike and
        for the model as it was handed in; default 0.01. :meth:`verdict` says what is missing where nothing is. Where
        candidates were trained again on several seeds, only those are asked.

        Args:
            max_drop: how much of the metric may be lost; default 0.01.
            target: a further machine, on which it is the fastest; see :attr:`targets`.
        Raises:
            UnknownName: no such target.
        """
        best = self.verdict(max_drop, target=target).best
        return None if best is None else self.candidate(best)

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

    def speedup(self, candidate: Candidate, *, target: str | None = None) -> float | None:
        """How many times as fast as the original a network is: in the last measurement, in turns, where it took part; else by
        the latencies recorded in the search, or by multiply-adds where nothing was timed. On a ``target`` by its latencies
        alone.

        Args:
            candidate: whose network is compared with the original's.
            target: a further machine, see :attr:`targets`; default the session's own.
        Returns:
            Above 1 where it is faster; ``None`` where nothing tells it.
        """
        return self.speeds().of(candidate, target)

    def speedups(
        self, candidates: Sequence[Candidate], *, target: str | None = None
    ) -> list[float | None]:
        """:meth:`speedup` of each; the last measurement and the original are read once.

        Args:
            candidates: in the order of the results.
            target: as for :meth:`speedup`.
        """
        speeds = self.speeds()
        return [speeds.of(candidate, target) for candidate in candidates]

    def speedups_of(self, everyone: Overview, target: str | None = None) -> Any:
        """:meth:`speedup` of all in an overview at once, ``[n]``; NaN where nothing tells it.

        Args:
            everyone: of :meth:`overview`, whose order it is in.
            target: as for :meth:`speedup`.
        """
        baseline = self.baseline
        if target is not None:
            cost = costs_of(self._store, everyone, ON + target)
            return _ratio(None if baseline is None else baseline.targets_us.get(target), cost)
        found = numpy.full(len(everyone.numbers), numpy.nan)
        if baseline is not None:
            found = _ratio(baseline.latency_us, everyone.latency_us)
            by_flops = _ratio(baseline.flops, everyone.flops)
            found = numpy.where(numpy.isnan(found), by_flops, found)
        if (final := self.final) is not None:
            for place, number in enumerate(everyone.numbers):
                found[place] = final.speedups.get(f"c{number}", found[place])
        return found

    def known_numbers(self) -> list[tuple[int, str]]:
        """Candidates that are known operators, with their names."""
        return self._store.known_numbers()

    def speeds(self) -> Speeds:
        """What speedups follow from, read once: the original's latencies and the last measurement."""
        return Speeds(self.baseline, self.final)

    def speedup_stderr(self, candidate: Candidate, *, target: str | None = None) -> float:
        """Standard error of :meth:`speedup`, a ratio of medians over turns; 0 where nothing tells it.

        Args:
            candidate, target: as for :meth:`speedup`.
        """
        return self.speeds().stderr(candidate, target)

    def sample(self, candidate: Candidate) -> Sample:
        """A network's trainings: the finalists' seeds where it has them, else the search's one; with what each example was
        worth, where all of them keep that.

        Args:
            candidate: of this session, or the original.
        Raises:
            SessionError: a file of examples is damaged.
        """
        scores = candidate.finals or ([candidate.score] if candidate.score else [])
        rows = [
            self._examples(examples_path(self.directory, candidate.files, s.phase, s.seed), s)
            for s in scores
        ]
        whole = [row for row in rows if row is not None]
        kinds = {kind for _, kind in whole}
        lengths = {len(values) for values, _ in whole}
        if not rows or len(whole) < len(rows) or len(kinds) > 1 or len(lengths) > 1:
            return Sample(scores)
        return Sample(scores, numpy.stack([values for values, _ in whole]), kinds.pop())

    def given_sample(self, part: str) -> Sample | None:
        """The model as it was handed in, judged on a part; ``None`` where it was not.

        Args:
            part: ``"validation"`` or ``"test"``.
        """
        score = self.given.get(part)
        if score is None:
            return None
        row = self._examples(given_path(self.directory, part), score)
        return Sample([score]) if row is None else Sample([score], row[0][None], row[1])

    def _examples(self, path: Path, score: Score) -> tuple[Any, str] | None:
        """What a score is the mean of, and ``"exp"`` where it is the exponential of that."""
        self.check_file(path)
        if not path.exists() or path.stat().st_size != 4 * score.count or not score.count:
            return None
        values = numpy.fromfile(path, "<f4").astype(float)
        mean = float(values.mean())
        if math.isclose(mean, score.value, rel_tol=1e-4, abs_tol=1e-6):
            return values, ""
        if mean < 700 and math.isclose(math.exp(mean), score.value, rel_tol=1e-4):
            return values, "exp"
        return None

    def interval(
        self, own: Sample, other: Sample, *, fixed: bool, tests: int, key: Any
    ) -> Interval:
        """By how much one network is better than another, with the ends of one-sided 95 % intervals
        (:func:`syno.session.interval.difference`); computed once for the same trainings.

        Args:
            own, other: trainings of :meth:`sample` and :meth:`given_sample`.
            fixed: ``other`` is one network, as the model that was handed in, not what a training gives.
            tests: of how many candidates this one may be the luckiest, which the interval is widened for.
            key: what the random draws of the interval follow from: texts, such as the operator's key.
        """
        everyone = self.overview()
        groups = list(everyone.finals.values())
        known = (tuple(own.scores), tuple(other.scores), everyone.finals_text, fixed, tests, key)
        if known not in self._intervals:
            self._intervals[known] = difference(
                own,
                other,
                higher_is_better=own.scores[0].higher_is_better,
                pool=residuals(groups),
                fixed=fixed,
                tests=tests,
                key=key,
            )
        return self._intervals[known]

    def operator(self, id: str | int | Candidate) -> Operator:
        """The operator of a candidate, rebuilt from its text and checked against its hash.

        Args:
            id: the candidate, or what :meth:`candidate` finds it by.
        Raises:
            SessionError: the baseline was asked for, or what combines several operators.
        """
        candidate = id if isinstance(id, Candidate) else self.candidate(id)
        if not candidate.key:
            raise SessionError(
                "the baseline has no operator", fix="ask for a candidate, such as c1", code="R012"
            )
        if candidate.kind == COMBINED:
            stages = ", ".join(self.assignment(candidate))
            raise SessionError(
                f"{candidate.id} has operators in several stages ({stages})",
                fix="ask for all of them: operators(candidate)",
                code="R012",
            )
        return self.operator_of(candidate.key)

    def operator_of(self, key: str) -> Operator:
        """The operator of a key, rebuilt from its text and checked against its hash.

        Args:
            key: the operator's hash, one of :meth:`assignment`'s.
        """
        from syno.operators.operator import Operator

        return Operator.from_json(self._store.operator(key).text)

    def operator_text(self, candidate: Candidate) -> str:
        """The text of a candidate's operator file, JSON that :meth:`syno.Operator.from_json` reads.

        Args:
            candidate: one that has a single operator of its own.
        """
        return self._store.operator(candidate.key).text

    def assignment(self, candidate: Candidate) -> dict[str, str]:
        """Which operator (by key) serves which stage's sites in a candidate's network.

        Args:
            candidate: of this session; the original has none.
        """
        if candidate.kind == COMBINED:
            return self._combination(candidate)
        chosen: dict[str, str] = {}
        for row in self._store.execute(
            "SELECT s.name, c.operator FROM stage s LEFT JOIN candidate c ON c.number = s.chosen"
            " ORDER BY s.position"
        ):
            if row["name"] == candidate.stage:
                chosen[row["name"]] = candidate.key
                break
            if row["operator"]:
                chosen[row["name"]] = row["operator"]
        return chosen if candidate.key else {}

    def _combination(self, candidate: Candidate) -> dict[str, str]:
        try:
            found = msgspec.json.decode(self._store.operator(candidate.key).text, type=Combination)
        except msgspec.MsgspecError as error:
            raise SessionError(
                f"{self.directory}: what {candidate.id} combines cannot be read: {error}",
                fix="restore the session from a copy",
                code="R005",
            ) from None
        return found.operators

    def operators(self, candidate: Candidate) -> dict[str, Operator]:
        """By stage, all operators in a candidate's network, rebuilt: its own, and those chosen before.

        Args:
            candidate: as for :meth:`assignment`.
        """
        keys = self.assignment(candidate)
        return {stage: self.operator_of(key) for stage, key in keys.items()}

    def formulas(self, candidate: Candidate) -> dict[str, str]:
        """By stage, the formulas of all operators in a candidate's network: its own, and those chosen before.

        Args:
            candidate: as for :meth:`assignment`.
        """
        keys = self.assignment(candidate)
        return {stage: self._store.operator(key).expr for stage, key in keys.items()}

    def formula(self, candidate: Candidate) -> str:
        """:meth:`formulas` in a line; a stage is named where there are several.

        Args:
            candidate: as for :meth:`assignment`.
        """
        found = self.formulas(candidate)
        if len(found) < 2:
            return candidate.expr
        return "; ".join(f"{stage}: {expr}" for stage, expr in found.items())

    def weights(self, candidate: Candidate) -> dict[int, Path]:
        """Files of trained weights (safetensors) by seed, the finalists' only.

        Args:
            candidate: of this session, or the original; empty where it was no finalist.
        """
        from syno.session.files import weights_path

        found = {}
        for score in candidate.finals:
            path = weights_path(self.directory, candidate.files, score.seed)
            if path.exists():
                found[score.seed] = path
        return found

    def record_file(self, path: Path) -> None:
        """Records what a file of the session holds now, for :meth:`check_file`; the writer's alone.

        Args:
            path: of a file in the session's directory that was just written.
        """
        self._store.add_file(path)

    def check_file(self, path: Path) -> None:
        """Compares a file of the session with what was recorded when it was written.

        Args:
            path: of a file in the session's directory; one that was never recorded passes.
        Raises:
            SessionError: it is not as the session wrote it, or cannot be read.
        """
        self._store.check_file(path)

    def curve(
        self, candidate: Candidate, phase: str = "search", seed: int | None = None
    ) -> list[tuple[int, dict[str, float]]]:
        """Steps and metrics of a training, as far as it is.

        Args:
            candidate: whose training it is.
            phase: ``"search"``, ``"final"``, or of a short training ``"rung1"`` and so on.
            seed: of one of several trainings of the phase; default all of them.
        """
        return self._store.curve(candidate.number, phase, seed)

    # --- the session as a whole

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

    def lost_by_training(self) -> str:
        """What the recipe undoes of what the model had learned, and what to change; empty where it does not."""
        return lost_by_training(self)

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

    def rungs(self) -> list[RungReport]:
        """What each rung of short trainings did, and what its ranks are worth."""
        return rung_reports(self)

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

    def notes(self) -> list[str]:
        """What a reader of the results should know: which stages were skipped or ran out; whether something is lost."""
        return remarks(self)

    def status(self) -> dict[str, Any]:
        """Where the session stands, as plain data."""
        return status_of(self)

    def events(self, limit: int = 50) -> list[dict[str, str]]:
        """The latest events, oldest first: ``at`` (when), ``level`` and ``what`` of each.

        Args:
            limit: at most so many.
        """
        rows = self._store.execute(
            "SELECT at, level, what FROM event ORDER BY id DESC LIMIT ?", limit
        ).fetchall()
        return [dict(row) for row in reversed(rows)]

    def to_dataframe(self) -> pandas.DataFrame:
        """Baseline and candidates as a table, one a row.

        Raises:
            SessionError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise SessionError(
                "a data frame needs pandas", fix='pip install "syno[table]"', code="R013"
            ) from None
        front = {c.number for c in self.pareto()}
        rows = []
        for candidate in self._store.candidates():
            row = row_of(candidate)
            row["expr"] = self.formula(candidate)
            row["stderr"] = self.stderr(candidate)
            row["pareto"] = candidate.number in front
            times = row.pop("targets_us")
            row |= {f"{name}_us": times.get(name) for name in self.targets}
            rows.append(row)
        columns: list[str] = []
        for name in ROW:
            columns += [f"{n}_us" for n in self.targets] if name == "targets_us" else [name]
        return pandas.DataFrame(rows, columns=[*columns, "stderr", "pareto"])

    def explain(self, id: str | int | Candidate) -> str:
        """How a candidate came to be and what became of it, in lines of text.

        Args:
            id: the candidate, or what :meth:`candidate` finds it by.
        """
        return history(self, id if isinstance(id, Candidate) else self.candidate(id))

    def __repr__(self) -> str:
        states = ", ".join(f"{n} {state}" for state, n in states_of(self).items() if n)
        running = "running" if self.running else "idle"
        return f"Session({self.directory}: {running}, {states or 'empty'})"

    def _repr_html_(self) -> str:
        import html

        front = {c.number for c in self.pareto()}
        head = "".join(f"<th>{name}</th>" for name in ROW)
        body = []
        for candidate in self._store.candidates():
            style = " style='font-weight:bold'" if candidate.number in front else ""
            row = {**row_of(candidate), "expr": self.formula(candidate)}
            cells = "".join(f"<td>{html.escape(cell(v))}</td>" for v in row.values())
            body.append(f"<tr{style}>{cells}</tr>")
        return f"<p>{html.escape(repr(self))}</p><table><tr>{head}</tr>{''.join(body)}</table>"


def _ratio(reference: float | None, others: Any) -> Any:
    none = numpy.full(len(others), numpy.nan)
    return (
        none if reference is None else numpy.divide(reference, others, out=none, where=others > 0)
    )


def open_view(directory: str | Path) -> SessionView:
    """Opens a session for reading; safe while it runs.

    Args:
        directory: of the session, the one with ``session.toml``.
    Raises:
        SessionError: no session there, damaged, or made by a newer syno.
    """
    path = Path(directory)
    config = read_config(path / "session.toml")
    store = Store(path, write=False)
    try:
        made = store.meta("fixed")
        different = first_difference(made, fixed_json(config)) if made else None
        if different is not None:
            name, was, now = different
            raise SessionError(
                f"{path} was made with {name}={cell(was)[:60]}; session.toml says {cell(now)[:60]}",
                fix=f"write {name} in session.toml as it was: it decides what the results mean",
                code="R003",
            )
        if made:
            store.check_stages([stage.name for stage in config.stages])
    except BaseException:
        store.close()
        raise
    return SessionView(path, store, config)
