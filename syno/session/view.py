"""Reading a session: while it runs, from any process, without disturbing it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from syno.errors import SessionError, unknown_name
from syno.session.config import first_difference, fixed_json, read_config
from syno.session.files import examples_path, given_path
from syno.session.history import history
from syno.session.interval import Interval, Sample, difference
from syno.session.overview import Overview, costs_of
from syno.session.protocols import ON
from syno.session.records import (
    Candidate,
    Score,
    pooled_std,
)
from syno.session.remarks import lost_by_training, remarks
from syno.session.rungs import RungReport, rung_reports
from syno.session.status import states_of, status_of
from syno.session.store import Store
from syno.session.table import ROW, cell, row_of
from syno.session.verdict import Verdict, reach
from syno.session.view_whole import WholeView

if TYPE_CHECKING:
    import pandas


class SessionView(WholeView):
    """All that can be asked of a session. Numbers are as recorded; nothing is measured or trained. Made by :func:`open_view`;
    a :class:`Session` is one as well."""

    def __enter__(self) -> SessionView:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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
                trained=groups,
                fixed=fixed,
                tests=tests,
                key=key,
            )
        return self._intervals[known]

    def lost_by_training(self) -> str:
        """What the recipe undoes of what the model had learned, and what to change; empty where it does not."""
        return lost_by_training(self)

    def rungs(self) -> list[RungReport]:
        """What each rung of short trainings did, and what its ranks are worth."""
        return rung_reports(self)

    def notes(self) -> list[str]:
        """What a reader of the results should know: which stages were skipped or ran out; whether something is lost."""
        return remarks(self)

    def status(self) -> dict[str, Any]:
        """Where the session stands, as plain data."""
        with self.one_moment():
            return status_of(self)

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
