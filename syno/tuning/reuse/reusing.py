"""A program tuned from records of its neighbours: few measurements where a search takes many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from syno import _core
from syno.errors import ArgumentError
from syno.operators.operator import Operator
from syno.support.arguments import checked
from syno.support.numbers import MOST_SEED, MOST_THREADS, whole
from syno.tuning.records import Record, record_store
from syno.tuning.reuse.candidates import GUARD, Candidates, candidates_for
from syno.tuning.search import Tuned, measure_given, tune

#: Candidates that are measured by default, beside the constructed and the counted schedule.
CANDIDATES = 14


@checked(but=("budget", "threads", "seed", "search_trials", "executor"))
def reuse(
    records: Record | Sequence[Record] | None,
    operator: Operator | _core.Program,
    *,
    budget: int = CANDIDATES,
    threads: int = 1,
    dtype: str = "float32",
    guard: float = GUARD,
    further: Sequence[Record] = (),
    search_trials: int = 0,
    time_limit_s: float | None = None,
    seed: int = 0,
    session: str | Path | None = None,
    keep: bool = True,
    options: _core.MeasureOptions | None = None,
    progress: Callable[[int, int, float], None] | str = "auto",
    executor: Any = None,
) -> tuple[Tuned, Candidates]:
    """Tunes a program by what is known of its neighbours, and remembers the best for later compilations.

    Args:
        records: of programs that differ from this one in sizes alone; None: the nearest in the store. Of several
            the candidates are the union of what each allows.
        operator: at one valuation; or a concrete program.
        budget: candidates to measure, the most promising first; the constructed and the counted schedule are two more.
        guard: where the best candidate is predicted to be slower by more than this share than the fastest schedule
            known without measuring, a search of `search_trials` trials takes the place of the reuse.
        further: records that join the others where those alone would be answered by a search.
        search_trials: of that search; 0: as many as the reuse would have measured.
        time_limit_s, seed, session, keep, options, progress, executor: as for :func:`syno.tune`.
    Returns:
        What was found, and the candidates with their parents.
    Raises:
        ShapeError: the operator is symbolic with several valuations.
        ArgumentError: an argument of another type, or `guard` is negative.
        KernelError: a number that is out of range, or the counted schedule itself cannot be measured.
        SessionError: the executor has no machines for that, or one differs from this machine.
    """
    budget = whole("reuse", "budget", budget, 1, MOST_SEED)
    threads = whole("reuse", "threads", threads, 1, MOST_THREADS)
    seed = whole("reuse", "seed", seed, 0, MOST_SEED)
    search_trials = whole("reuse", "search_trials", search_trials, 0, MOST_SEED)
    if not guard >= 0:
        raise ArgumentError(f"[reuse] guard={guard}", fix="give at least 0")
    program = (
        operator
        if isinstance(operator, _core.Program)
        else operator._one_valuation("tuning").program
    )
    if records is None:
        records = record_store().neighbours(program, dtype, threads)
    elif isinstance(records, Record):
        records = [records]
    wanted: dict[str, Any] = {
        "threads": threads, "dtype": dtype, "limit": budget, "guard": guard, "seed": seed
    }  # fmt: skip
    found = candidates_for(program, records, **wanted)
    if found.search and further:
        found = candidates_for(program, [*records, *further], **wanted)
    if found.search:
        tuned = tune(
            program, trials=max(2, search_trials or budget + 2), threads=threads, dtype=dtype, seed=seed,
            time_limit_s=time_limit_s, session=session, keep=keep, options=options, progress=progress,
            executor=executor,
        )  # fmt: skip
    else:
        tuned = measure_given(
            program,
            [(candidate.schedule, candidate.origin) for candidate in found.ranked],
            trials=budget + 2, threads=threads, dtype=dtype, time_limit_s=time_limit_s, session=session,
            keep=keep, options=options, progress=progress, executor=executor,
        )  # fmt: skip
    return tuned, found
