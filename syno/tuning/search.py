"""Sketch search: schedules found by measuring, the thorough alternative to construction.

Sketches with numbers are sampled, their traces mutated and crossed; a learned cost model picks what
to measure, epsilon-greedily (Ansor, OSDI 2020, sections 4 and 5; the constructed schedule is the first trial).
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from syno import _core
from syno.config import cache_directory
from syno.errors import ArgumentError, FormatError, KernelError, SynoError
from syno.errors import shown as shown_text
from syno.kernels.construct import construct
from syno.machines.model import machine_key, machine_model
from syno.support.arguments import checked
from syno.support.notebook import facts
from syno.support.numbers import MOST_SEED, MOST_THREADS, significant, whole
from syno.timing.measuring import WAIT_AGAIN_S, lock_file
from syno.tuning.benches import Bench, LocalBench, bench_on
from syno.tuning.cost_model import CostModel, make_model, rank_correlation
from syno.tuning.progress import Progress, shown
from syno.tuning.records import Record, RecordStore, record_store

if TYPE_CHECKING:
    from syno.operators.operator import Operator
    from syno.tuning.layouts.search import Layouts

_log = logging.getLogger("syno.tuning")

_CHILDREN = 96  # candidates scored for each batch
_PARENTS = 12
_CLOSE = 0.05
#: What a search begins with is predicted to take at most this many times what is predicted to be fastest.
_FAR_BEHIND = 3.0


@dataclass(frozen=True)
class Tuned:
    """What a search found. Times are microseconds of one call."""

    schedule: _core.Schedule
    best_us: float
    constructed_us: float
    counted_us: float
    gap: float
    """Best time / constructed time, called in turns: 1 when nothing better was found."""
    trials: int
    measured: int
    """Of the trials, in this call; the others were on record."""
    outcomes: dict[str, int]
    rank_correlation: float
    """Of predicted and measured times over the trials that ran."""
    seconds: float
    curve: tuple[tuple[int, float], ...] = field(default=())
    """(trial, best microseconds so far)."""
    origin: str = ""
    note: str = ""
    """What may have disturbed times, such as another process that measured; empty: nothing known."""

    def _repr_html_(self) -> str:
        return facts(
            {
                "best, µs": significant(self.best_us),
                "from": self.origin,
                "constructed, µs": significant(self.constructed_us),
                "best / constructed, in turns": significant(self.gap),
                "counted, µs": significant(self.counted_us),
                "trials": ", ".join(f"{n} {name}" for name, n in sorted(self.outcomes.items())),
                "measured now": f"{self.measured} in {self.seconds:.1f} s",
                "ranks of predicted and measured times": f"{self.rank_correlation:.2f}",
                "disturbed": self.note,
                "schedule": self.schedule.text(),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "best_us": self.best_us,
            "constructed_us": self.constructed_us,
            "counted_us": self.counted_us,
            "gap": self.gap,
            "trials": self.trials,
            "measured": self.measured,
            "outcomes": dict(self.outcomes),
            "rank_correlation": self.rank_correlation,
            "seconds": self.seconds,
            "curve": [list(point) for point in self.curve],
            "origin": self.origin,
            "note": self.note,
            "schedule": str(self.schedule.text()),
        }

    def __str__(self) -> str:
        bad = ", ".join(f"{n} {name}" for name, n in sorted(self.outcomes.items()) if name != "ok")
        return (
            f"best of {self.trials} trials: {significant(self.best_us)} us ({self.origin}); constructed: "
            f"{significant(self.constructed_us)} us, {self.gap:.3f} of it in turns; counted: "
            f"{significant(self.counted_us)} us\n"
            f"  predicted and measured times rank alike by {self.rank_correlation:.2f}; "
            f"{self.measured} measured in {self.seconds:.1f} s"
            + (f"; {bad}" if bad else "")
            + (f"; {self.note}" if self.note else "")
        )


@checked(but=("trials", "threads", "seed", "layouts"))
def tune(
    operator: Operator | _core.Program,
    *,
    trials: int = 64,
    threads: int = 1,
    dtype: str = "float32",
    seed: int = 0,
    model: str | None = None,
    batch: int = 8,
    epsilon: float = 0.15,
    time_limit_s: float | None = None,
    session: str | Path | None = None,
    keep: bool = True,
    cold: bool = False,
    options: _core.MeasureOptions | None = None,
    progress: Progress | str = "auto",
    executor: Any = None,
    layouts: bool | Layouts = False,
) -> Tuned:
    """Searches schedules of an operator by measuring, and remembers the best for later compilations.

    Args:
        operator: at one valuation; or a concrete program.
        trials: schedules to measure; the constructed and the counted one are the first two.
        threads: of a call.
        dtype: "float32", "float64" or "bfloat16".
        seed: of everything random.
        model: "linear" or "boosted", what picks candidates to measure; default "linear", "boosted" with layouts.
        batch: measured before the model learns again.
        epsilon: share of a batch picked at random.
        time_limit_s: stop after this long, between batches.
        session: a file that every trial is appended to; the same call on it again continues.
        keep: put the best into the record store, where `compile` finds it.
        cold: time with flushed caches.
        options: of measurements; default seven samples of a millisecond each, pinned, locked.
        progress: called with (trials done, trials, best microseconds); or "bar" (a display that is kept
            up to date on the terminal or in the notebook), "log" (a line on standard error now and
            then), "off", or "auto".
        executor: who measures: ``"ray"`` or ``"ray://HOST:PORT"``, several machines at the same time, each as this one is (those with the
            label ``syno-target=true``, else all); see :mod:`syno.executors`. Default: this machine.
        layouts: search the layouts of a convolution's or product's tensors together with loops, too, as many trials
            again, beside loops alone; `syno.tuning.layouts.search.Layouts` says how. What is found copies
            arguments into their layouts in each call, as its time says.
    Returns:
        What was found; with layouts a `syno.tuning.layouts.result.LaidTuned`.
    Raises:
        ShapeError: the operator is symbolic with several valuations.
        ScheduleError: the operator's tensors are too large to be addressed; with layouts, it is no convolution or product.
        KernelError: trials < 2, or the counted schedule itself cannot be measured; layouts are to be proposed by a
            network, and torch is not installed.
        UnknownName: no such dtype, model, progress or proposals.
        FormatError: the session's file cannot be written.
        SessionError: the executor has no such machines, or one differs from this machine, in what.
    """
    trials = whole("tune", "trials", trials, -MOST_SEED, MOST_SEED)
    threads = whole("tune", "threads", threads, 1, MOST_THREADS)
    seed = whole("tune", "seed", seed, 0, MOST_SEED)
    if trials < 2:
        raise KernelError(
            f"[tune] trials={trials}; the constructed and the counted schedule are two"
        )
    program = (
        operator
        if isinstance(operator, _core.Program)
        else operator._one_valuation("tuning").program
    )
    if session is not None:
        RecordStore(session).check_writable()
    if layouts is not False:
        from syno.tuning.layouts.search import Layouts, LayoutSearch

        how = Layouts() if layouts is True else layouts
        if not isinstance(how, Layouts):
            raise ArgumentError(
                f"[tune] layouts={shown_text(how)}", fix="give True, or how: Layouts(levels=2)"
            )
        with bench_on(executor) as bench, shown(progress) as show:
            both = LayoutSearch(
                program,
                how,
                threads=threads,
                dtype=dtype,
                seed=seed,
                model=model or "boosted",
                batch=batch,
                epsilon=epsilon,
                session=session,
                cold=cold,
                options=_set(options or default_options(threads, cold), threads, cold),
                bench=bench,
            )
            return both.run(trials, time_limit_s, keep, show)
    with bench_on(executor) as bench, shown(progress) as show:
        search = _Search(
            program,
            threads,
            dtype,
            seed,
            make_model(model or "linear", seed),
            batch,
            epsilon,
            session,
            cold,
            options,
            bench,
        )
        return search.run(trials, time_limit_s, keep, show)


def measure_given(
    program: _core.Program,
    given: Sequence[tuple[_core.Schedule, str]],
    *,
    trials: int,
    threads: int = 1,
    dtype: str = "float32",
    time_limit_s: float | None = None,
    session: str | Path | None = None,
    keep: bool = True,
    options: _core.MeasureOptions | None = None,
    progress: Progress | str = "off",
    executor: Any = None,
) -> Tuned:
    """As :func:`tune`, of the constructed schedule, the counted one and those that are given, in their order.

    Args:
        given: schedules and where they come from; what does not apply is passed over.
        trials: schedules to measure at most, the constructed and the counted one included.
        options: see `tune`, as the others.
    Raises:
        KernelError: trials < 2, or the counted schedule itself cannot be measured.
        FormatError: the session's file cannot be written.
    """
    if trials < 2:
        raise KernelError(
            f"[tune] trials={trials}; the constructed and the counted schedule are two"
        )
    if session is not None:
        RecordStore(session).check_writable()
    model = make_model("linear")
    with bench_on(executor) as bench, shown(progress) as show:
        search = _Search(program, threads, dtype, 0, model, 1, 0.0, session, False, options, bench)
        return search.run(trials, time_limit_s, keep, show, given)


def default_options(threads: int, cold: bool) -> _core.MeasureOptions:
    """How a search measures: briefly, pinned, one process of the machine at a time."""
    options = _core.MeasureOptions()
    options.threads = threads
    options.cold = cold
    options.samples = 7
    options.sample_s = 1e-3
    options.limit_s = 20.0
    options.lock_file = str(lock_file() or "")
    return options


def _set(options: _core.MeasureOptions, threads: int, cold: bool) -> _core.MeasureOptions:
    options.threads, options.cold = threads, cold
    return options


@dataclass
class _Trial:
    candidate: _core.Candidate
    record: Record


class _Search:
    def __init__(
        self,
        program: _core.Program,
        threads: int,
        dtype: str,
        seed: int,
        model: CostModel,
        batch: int,
        epsilon: float,
        session: str | Path | None,
        cold: bool,
        options: _core.MeasureOptions | None,
        bench: Bench | None = None,
    ) -> None:
        self.bench: Bench = bench or LocalBench()
        self.program, self.threads, self.dtype, self.cold = program, threads, dtype, cold
        self.machine = machine_model()
        self.space = _core.ScheduleSpace(program, self.machine, dtype=dtype, threads=threads)
        self.model, self.batch, self.epsilon = model, max(1, batch), epsilon
        self.options = _set(options or default_options(threads, cold), threads, cold)
        self.store = RecordStore(session) if session else None
        self.trials: list[_Trial] = []
        self.seen: set[str] = set()
        self.random = np.random.default_rng([seed, 20])
        self.measured = 0
        self.note = ""
        self.recorded = self._recorded()

    def _recorded(self) -> dict[str, Record]:
        """Trials of an interrupted search on this machine, by their trace."""
        if self.store is None:
            return {}
        key = (self.program.structural_key(), self.dtype, self.threads, machine_key(), self.cold)
        found: dict[str, Record] = {}
        for record in self.store:
            if (record.key, record.dtype, record.threads, record.machine, record.cold) == key:
                with contextlib.suppress(SynoError):  # a damaged trace is measured again
                    found[str(record.trace().text())] = record
        return found

    def run(
        self,
        trials: int,
        time_limit_s: float | None,
        keep: bool,
        progress: Progress,
        given: Sequence[tuple[_core.Schedule, str]] | None = None,
    ) -> Tuned:
        """Searches, or measures `given` alone: schedules with their origins."""
        start = time.monotonic()
        made = construct(self.program, threads=self.threads, dtype=self.dtype, machine=self.machine)
        counted = _core.default_schedule(self.program, dtype=self.dtype, threads=self.threads)
        first = [(self._given(made.schedule), "constructed"), (self._given(counted), "counted")]
        self._measure(first[: 1 if made.schedule == counted else 2])
        constructed_us = self._time_of(made.schedule)
        counted_us = self._time_of(counted)
        if math.isinf(counted_us):
            raise KernelError(f"[tune] the counted schedule: {self.trials[-1].record.reason}")
        progress(len(self.trials), trials, self._ranked()[0].record.median_us)
        if given is None:
            starts = self._starts(trials - len(self.trials))
            if starts:
                self._measure(starts)
                progress(len(self.trials), trials, self._ranked()[0].record.median_us)
        while given is None and len(self.trials) < trials:
            if time_limit_s is not None and time.monotonic() - start > time_limit_s:
                break
            picked = self._pick(min(self.batch, trials - len(self.trials)))
            if not picked:
                break  # the space is exhausted
            self._measure(picked)
            progress(len(self.trials), trials, self._ranked()[0].record.median_us)
        if given is not None:
            self._measure_given(given, trials, start, time_limit_s, progress)
        best, gap = self._final(made.schedule)
        if keep and not self.cold:
            kept(record_store(), [self._ranked_record(best)])
        ran = [t for t in self.trials if t.record.outcome == "ok"]
        outcomes: dict[str, int] = {}
        for trial in self.trials:
            outcomes[trial.record.outcome] = outcomes.get(trial.record.outcome, 0) + 1
        return Tuned(
            schedule=best.candidate.schedule,
            best_us=best.record.median_us,
            constructed_us=constructed_us,
            counted_us=counted_us,
            gap=gap,
            trials=len(self.trials),
            measured=self.measured,
            outcomes=outcomes,
            rank_correlation=rank_correlation(
                [t.candidate.predicted_s for t in ran], [t.record.median_us for t in ran]
            ),
            seconds=time.monotonic() - start,
            curve=tuple(self._curve()),
            origin=best.record.origin,
            note=self.note,
        )

    def _starts(self, most: int) -> list[tuple[_core.Candidate, str]]:
        """Every sketch by its counted numbers, unless it is predicted to be far behind."""
        starts = self.space.starts()
        least = min((c.predicted_s for c in starts), default=0.0)
        near = [c for c in starts if c.predicted_s <= _FAR_BEHIND * least]
        new = [(c, "counted") for c in near if str(c.schedule.text()) not in self.seen]
        return new[:most]

    def _measure_given(
        self,
        given: Sequence[tuple[_core.Schedule, str]],
        trials: int,
        start: float,
        time_limit_s: float | None,
        progress: Progress,
    ) -> None:
        new: dict[str, tuple[_core.Candidate, str]] = {}
        for schedule, origin in given:
            candidate = self.space.candidate(schedule)
            if candidate is not None and str(candidate.schedule.text()) not in self.seen:
                new.setdefault(str(candidate.schedule.text()), (candidate, origin))
        left = list(new.values())
        while left and len(self.trials) < trials:
            if time_limit_s is not None and time.monotonic() - start > time_limit_s:
                break
            count = min(self.bench.width, trials - len(self.trials))
            self._measure(left[:count])
            left = left[count:]
            progress(len(self.trials), trials, self._ranked()[0].record.median_us)

    def _given(self, schedule: _core.Schedule) -> _core.Candidate:
        candidate = self.space.candidate(schedule)
        if candidate is None:
            # The verifier of loop nests says what is wrong with a program's sizes.
            _core.compile_nest(_core.apply_schedule(self.program, schedule))
            raise KernelError("[tune] a constructed schedule does not apply to its own program")
        return candidate

    def _measure(self, picked: list[tuple[_core.Candidate, str]]) -> None:
        texts = [str(candidate.schedule.text()) for candidate, _ in picked]
        new = [i for i, text in enumerate(texts) if text not in self.recorded]
        records = self.bench.measure(
            self.program, [picked[i][0].schedule for i in new], self.options
        )
        fresh: dict[int, Record] = {}
        for i, record in zip(new, records, strict=True):
            self.note = self.note or record.note
            if record.note:  # whoever holds the machine may hold it for good
                self.options.lock_wait_s = min(self.options.lock_wait_s, WAIT_AGAIN_S)
            fresh[i] = msgspec.structs.replace(
                record, trial=len(self.trials) + i, origin=picked[i][1]
            )
        self.measured += len(new)
        if self.store is not None and not kept(self.store, fresh.values()):
            self.store = None
        for i, (candidate, _) in enumerate(picked):
            record = fresh[i] if i in fresh else self.recorded[texts[i]]
            self.seen.add(texts[i])
            self.trials.append(_Trial(candidate, record))

    def _time_of(self, schedule: _core.Schedule) -> float:
        for trial in self.trials:
            if trial.candidate.schedule == schedule and trial.record.outcome == "ok":
                return trial.record.median_us
        return math.inf

    def _ranked(self) -> list[_Trial]:
        ran = [trial for trial in self.trials if trial.record.outcome == "ok"]
        return sorted(ran, key=lambda trial: trial.record.median_us)

    def _seed(self) -> int:
        return int(self.random.integers(2**62))

    def _children(self) -> Iterator[tuple[_core.Candidate, str]]:
        parents = [trial.candidate for trial in self._ranked()[:_PARENTS]]
        for _ in range(_CHILDREN):
            draw = self.random.random()
            parent = parents[int(self.random.integers(len(parents)))] if parents else None
            if parent is None or draw < 0.3:
                made, origin = self.space.sample(self._seed()), "sampled"
            elif draw < 0.9:
                made, origin = self.space.mutate(parent, self._seed()), "mutated"
            else:
                other = parents[int(self.random.integers(len(parents)))]
                made, origin = self.space.cross(parent, other, self._seed()), "crossed"
            if made is not None:
                yield made, origin

    def _pick(self, count: int) -> list[tuple[_core.Candidate, str]]:
        """The best by the model, some at random; none that was tried."""
        pool: dict[str, tuple[_core.Candidate, str]] = {}
        for made, origin in self._children():
            text = str(made.schedule.text())
            if text not in self.seen:
                pool.setdefault(text, (made, origin))
        if not pool:
            return []
        self._learn()
        members = list(pool.values())
        features = np.array([made.features for made, _ in members])
        scores = np.log2([made.predicted_s for made, _ in members]) + self.model.predict(features)
        order = [int(i) for i in np.argsort(scores, kind="stable")]
        picked: list[int] = []
        while len(picked) < count and order:
            at = int(self.random.integers(len(order))) if self.random.random() < self.epsilon else 0
            picked.append(order.pop(at))
        return [members[i] for i in picked]

    def _learn(self) -> None:
        ran = [trial for trial in self.trials if trial.record.outcome == "ok"]
        features = np.array([trial.candidate.features for trial in ran])
        targets = np.log2(
            [t.record.median_us * 1e-6 / max(t.candidate.predicted_s, 1e-12) for t in ran]
        )
        self.model.fit(features, targets)

    def _final(self, constructed: _core.Schedule) -> tuple[_Trial, float]:
        """Re-measures what is close to the best in pairs with the constructed schedule."""
        ranked = self._ranked()
        limit = ranked[0].record.median_us * (1 + _CLOSE)
        close = [trial for trial in ranked if trial.record.median_us <= limit][:3]
        base = next((t for t in self.trials if t.candidate.schedule == constructed), None)
        if base is None or base.record.outcome != "ok":
            return ranked[0], 1.0
        best, best_ratio = base, 1.0
        for trial in close:
            if trial is base:
                continue
            ratio = self._in_turns(trial.candidate.schedule, constructed)
            if 0 < ratio < best_ratio * 0.99:  # closer is not better
                best, best_ratio = trial, ratio
        return best, best_ratio

    def _in_turns(self, a: _core.Schedule, b: _core.Schedule) -> float:
        """time(a) / time(b); 0 where either fails."""
        pairs = _core.MeasureOptions()
        for name in ("threads", "cold", "limit_s", "lock_file", "lock_wait_s"):
            setattr(pairs, name, getattr(self.options, name))
        pairs.samples, pairs.sample_s = 31, 5e-4
        return self.bench.compare(self.program, a, b, pairs)

    def _ranked_record(self, best: _Trial) -> Record:
        """The record of what was found, ranked in turns with the best one on record."""
        known = record_store().best(self.program, self.dtype, self.threads)
        if known is None:
            return best.record
        same = known[1] == best.candidate.schedule
        ratio = 1.0 if same else self._in_turns(best.candidate.schedule, known[1])
        return msgspec.structs.replace(best.record, rank_us=known[0].rank * ratio)

    def _curve(self) -> Iterator[tuple[int, float]]:
        best = math.inf
        for number, trial in enumerate(self.trials, 1):
            if trial.record.outcome == "ok" and trial.record.median_us < best:
                best = trial.record.median_us
                yield number, best


def kept(store: RecordStore, records: Iterable[Record]) -> bool:
    """Whether the records were written; a full disk ends no search, it only costs the next one its start."""
    try:
        store.add(records)
    except FormatError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        _log.warning("trials are not kept: %s", error)
        return False
    return True


def session_file(program: _core.Program, threads: int, dtype: str) -> Path | None:
    """Where the command line keeps the trials of a program, so that it can go on; None: nowhere."""
    directory = cache_directory()
    if directory is None:
        return None
    path = directory / f"tune-{program.structural_key()[:16]}-{dtype}-{threads}.jsonl"
    try:
        RecordStore(path).check_writable()
    except FormatError as error:
        _log.warning("trials are not kept: %s", error)
        return None
    return path
