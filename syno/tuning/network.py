"""`syno.tune_network`: all distinct programs of a network, tuned or reused by a plan, resumable."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from syno import _core
from syno.config import cache_directory
from syno.errors import ArgumentError, FormatError, SessionError, SynoError, unknown_name
from syno.machines.model import machine_key
from syno.session.budget import Budget
from syno.support.arguments import checked
from syno.support.files import read_regular, write_whole
from syno.support.notebook import table
from syno.support.numbers import MOST_SEED, MOST_THREADS, significant, whole
from syno.tuning.benches import Bench, bench_on
from syno.tuning.network_steps import StepDone, Steps
from syno.tuning.progress import Progress, shown
from syno.tuning.records import Record, RecordStore, record_store, this_version
from syno.tuning.reuse.bridging import bridge_programs
from syno.tuning.reuse.candidates import GUARD
from syno.tuning.reuse.graph import ROOT, Tree, choice_graph
from syno.tuning.reuse.names import sketch_of
from syno.tuning.reuse.plan import ReusePlan, Step, select
from syno.tuning.reuse.programs import Member, members_of
from syno.tuning.reuse.reusing import CANDIDATES, reuse
from syno.tuning.reuse.selection import TOP_K, selected
from syno.tuning.reuse.shapes import Shape, comparable, distance
from syno.tuning.reuse.transplant import transplanted
from syno.tuning.search import Tuned, measure_given, tune
from syno.tuning.settling import settle

#: Ways to spend measurements: each program searched; ETO without bridges, with them, and with its approximation;
#: the baseline ST with TopK; nothing measured at all.
SELECTIONS = ("each", "no-bridges", "bridges", "greedy", "st", "constructed")

#: Measurements of every program that is measured at all: the constructed and the counted schedule.
_ALWAYS = 2
#: Records that join a parent's fastest one where that alone would be answered by a search.
_FURTHER = 16
#: Programs and bridges of a type that a plan is made for, and seconds until its approximation has to do.
_MOST_NODES, _PLAN_S = 120, 20.0
#: Bytes of a saved result that are read.
_LARGEST = 1 << 26


class NetworkTuned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tuning a network came to. Times are microseconds of one call."""

    plan: ReusePlan
    counts: dict[str, int]
    """How often the network computes each program; bridges are not there."""
    steps: tuple[StepDone, ...]
    """What was done, in order; shorter than the plan's where the budget or a person ended it."""
    measured: int
    """In this call; what was on record was not measured again."""
    seconds: float
    ended: str
    """"done", "budget", "interrupted" or "planned"."""
    damaged: int = 0
    """Lines of the session's files that were skipped."""

    @property
    def gain(self) -> float:
        """Time of the constructed kernels / that of the best, over all steps, each as often as the network has it."""
        pairs = [
            (self.counts.get(step.name, 0), step.constructed_us, step.best_us)
            for step in self.steps
            if step.best_us > 0 and math.isfinite(step.constructed_us)
        ]
        best = sum(count * us for count, _, us in pairs)
        return sum(count * us for count, us, _ in pairs) / best if best > 0 else 1.0

    def __str__(self) -> str:
        lines = [str(self.plan)]
        if self.ended != "planned":
            lines.append(
                f"{self.ended}: {len(self.steps)} of {len(self.plan.steps)} steps, {self.measured} measured now in "
                f"{self.seconds:.1f} s, constructed / best {self.gain:.3f}"
            )
        if self.ended == "interrupted":
            lines.append(
                "what was measured for the step under way is kept: the same call goes on there"
            )
        lines += [f"  {step}" for step in self.steps]
        if self.damaged:
            lines.append(f"{self.damaged} damaged lines of the session were skipped")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        done = {step.name: step for step in self.steps}
        rows = []
        for step in self.plan.steps:
            found = done.get(step.name)
            rows.append(
                (
                    step.name,
                    str(self.counts.get(step.name, "bridge")),
                    f"reuse {step.parent}" if step.parent else step.action,
                    f"{step.expected:.0f}",
                    str(found.trials) if found else "",
                    significant(found.best_us) if found else "",
                )
            )
        return table(("program", "times", "", "expected", "measured", "best, µs"), rows)

    def to_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return {**made, "gain": self.gain}

    def save(self, path: str | Path) -> None:
        """Writes it as JSON, whole or not at all.

        Raises:
            OSError: the directory cannot be written.
        """
        write_whole(Path(path), msgspec.json.format(msgspec.json.encode(self)).decode() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> NetworkTuned:
        """Reads what `save` wrote.

        Raises:
            FormatError: there is no such file, or it is damaged.
        """
        content = read_regular(Path(path), _LARGEST, links=True)
        if content is None:
            raise FormatError(f"[tune] there is no result in {path}")
        try:
            return msgspec.json.decode(content, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise FormatError(f"[tune] {path}: {error}") from error


@dataclass(frozen=True)
class _Planned:
    plan: ReusePlan
    programs: dict[str, Member]


def _label(shape: Shape) -> str:
    return hashlib.blake2b(shape.plain.encode(), digest_size=4).hexdigest()


def _reuse_cost(a: Shape, b: Shape, candidates: int) -> float:
    """Measurements of a reuse: the further away, the more candidates are worth their time."""
    apart = distance(a, b)
    doublings = abs(math.log2(apart.r2)) + abs(math.log2(apart.r1))
    return _ALWAYS + min(candidates, math.ceil(4 * (1 + doublings)))


def plan_network(
    members: list[Member], *, selection: str, trials: int, candidates: int = CANDIDATES
) -> _Planned:
    """Plans the programs of a network; see :func:`tune_network`."""
    if selection not in SELECTIONS:
        raise unknown_name("selection", selection, SELECTIONS)
    groups: dict[tuple[str, str], list[Member]] = {}
    for member in members:
        groups.setdefault((member.shape.type, member.dtype), []).append(member)
    steps: list[Step] = []
    programs: dict[str, Member] = {}
    bound = 0.0
    for number, ((_, dtype), wanted) in enumerate(groups.items(), 1):
        everyone = list(wanted)
        if selection in ("bridges", "greedy"):
            everyone += [
                Member(f"bridge {_label(shape_member.shape)}", shape_member.program, dtype, 0)
                for shape_member in _bridges(wanted, dtype, trials, candidates)
            ]
        names = [
            member.name if member.count == 0 else f"{member.name} #{_label(member.shape)}"
            for member in everyone
        ]
        shapes = [member.shape for member in everyone]
        pairs = [
            (i, j)
            for i, a in enumerate(shapes)
            for j, b in enumerate(shapes)
            if i != j and comparable(a, b)
        ]

        def cost(a: int, b: int, of: list[Shape] = shapes) -> float:
            return (
                float(TOP_K + _ALWAYS)
                if selection == "st"
                else _reuse_cost(of[a], of[b], candidates)
            )

        full = 0.0 if selection == "constructed" else float(trials)
        graph = choice_graph(pairs, len(everyone), len(wanted), cost, lambda _, f=full: f)  # type: ignore[misc]
        if selection == "st":
            chosen = selected([shape.extents for shape in shapes])
            costs = sum(full if p == ROOT else TOP_K + _ALWAYS for p, _ in chosen)
            tree = Tree(chosen, float(costs), float(costs))
        else:
            tree = select(
                graph, "each" if selection == "constructed" else selection, limit_s=_PLAN_S
            )
        bound += tree.bound
        for parent, child in tree.edges:
            programs[names[child]] = everyone[child]
            steps.append(
                Step(
                    name=names[child],
                    group=f"{number} {dtype}",
                    parent=names[parent] if parent != ROOT else "",
                    bridge=child >= len(wanted),
                    expected=full if parent == ROOT else cost(child, parent),
                )
            )
    plan = ReusePlan(
        selection=selection,
        steps=tuple(steps),
        cost=sum(step.expected for step in steps),
        bound=bound,
    )
    return _Planned(plan, programs)


def _bridges(wanted: list[Member], dtype: str, trials: int, candidates: int) -> list[Member]:
    """The bridges that could spare most measurements, so many that the graph stays small enough to be solved."""
    shapes = [member.shape for member in wanted]
    best = [
        min(
            (_reuse_cost(a, b, candidates) for b in shapes if a is not b and comparable(a, b)),
            default=float(trials),
        )
        for a in shapes
    ]
    spared = []
    for place, program in enumerate(bridge_programs(shapes)):
        made = Member("", program, dtype, 0)
        gain = sum(
            max(0.0, before - _reuse_cost(shape, made.shape, candidates))
            for shape, before in zip(shapes, best, strict=True)
            if comparable(shape, made.shape)
        )
        spared.append((-gain, place, made))
    most = max(0, _MOST_NODES - len(wanted))
    return [made for gain, _, made in sorted(spared, key=lambda one: one[:2])[:most] if gain < 0]


@checked(but=("trials", "threads", "seed", "model", "example", "selection", "executor"))
def tune_network(
    model: Any,
    example: Any = None,
    *,
    budget: str | int | None = None,
    trials: int = 64,
    threads: int = 1,
    selection: str = "bridges",
    plan_only: bool = False,
    fuse: bool = True,
    seed: int = 0,
    session: str | Path | None = None,
    keep: bool = True,
    options: _core.MeasureOptions | None = None,
    progress: Callable[[int, int, float], None] | str = "auto",
    executor: Any = None,
) -> NetworkTuned:
    """Tunes the distinct programs of a network by measuring, most of them from what is known of their neighbours.

    What was found is on record for later compilations of these programs. The same call again goes on where it was
    interrupted, and measures nothing twice; two processes share the steps of one session.

    Args:
        model: a `torch.nn.Module`, what `syno.load_onnx` gives, or a list of operators or programs.
        example: of a module: what it is called with.
        budget: measurements in all (a number), or time ("20min"); default what the plan expects. With fewer
            measurements than the plan expects, searches and reuses get fewer each.
        trials: of each search without anything to reuse.
        threads: of a call.
        selection: who is searched and who reuses whom: "bridges" (fewest expected measurements, over bridges),
            "greedy" (the same approximately), "no-bridges", "each" (all are searched), "st" (clusters of similar ones take
            the three best schedules of one of them), "constructed" (nothing is measured).
        plan_only: return the plan.
        fuse: join nodes as `syno.compile` does.
        seed: of everything random.
        session: the directory of this tuning's files; default one of the cache, by what is tuned and how.
        keep: put the best into the record store.
        options: of measurements.
        progress, executor: as for `syno.tune`. Who measures decides nothing else: what was begun on this machine goes on
            on several like it, and the other way round.
    Returns:
        The plan and what was done; after Ctrl-C what there is.
    Raises:
        ArgumentError: the model is none, or an option does not fit.
        BudgetError: the budget is none.
        UnknownName: no such selection.
        KernelError: a library that the plan needs is not installed.
        SessionError: the executor has no machines that measure, one of them differs from this machine, or all are gone
            (what was measured is kept: the same call goes on).
    """
    trials = whole("tune", "trials", trials, _ALWAYS, MOST_SEED)
    threads = whole("tune", "threads", threads, 1, MOST_THREADS)
    seed = whole("tune", "seed", seed, 0, MOST_SEED)
    if not isinstance(selection, str) or selection not in SELECTIONS:
        raise unknown_name("selection", str(selection), SELECTIONS)
    if session == "":
        raise ArgumentError("[tune] session='' names no directory", fix="leave it out, or name one")
    limit = Budget.parse(budget) if budget is not None else None
    most = limit.candidates if limit and limit.candidates else None
    members = members_of(model, example, threads=threads, fuse=fuse)
    planned, trials, candidates = _within(members, selection, trials, most)
    counts = {name: member.count for name, member in planned.programs.items() if member.count}
    if plan_only or selection == "constructed":
        return NetworkTuned(
            plan=planned.plan, counts=counts, steps=(), measured=0, seconds=0.0, ended="planned"
        )
    directory = Path(session) if session is not None else _directory(planned, trials, threads, seed)
    with bench_on(executor) as bench, shown(progress) as show:
        run = _Run(planned, directory, trials, candidates, threads, seed, keep, options, bench)
        return run.run(counts, limit.time_s if limit else None, most, show)


def _within(
    members: list[Member], selection: str, trials: int, most: int | None
) -> tuple[_Planned, int, int]:
    """A plan that expects no more than `most` measurements, if one with at least the constructed schedules does."""
    candidates = CANDIDATES
    while True:
        planned = plan_network(members, selection=selection, trials=trials, candidates=candidates)
        if most is None or planned.plan.cost <= most or (trials <= 4 and candidates <= 2):
            return planned, trials, candidates
        trials, candidates = max(4, trials * 3 // 4), max(2, candidates * 3 // 4)


def _directory(planned: _Planned, trials: int, threads: int, seed: int) -> Path | None:
    root = cache_directory()
    if root is None:
        return None
    what = (planned.plan.to_dict(), trials, threads, seed, machine_key(), this_version())
    programs = sorted(member.shape.plain for member in planned.programs.values())
    digest = hashlib.blake2b(repr((what, programs)).encode(), digest_size=8).hexdigest()
    return root / f"tune-network-{digest}"


class _Run:
    def __init__(
        self,
        planned: _Planned,
        directory: Path | None,
        trials: int,
        candidates: int,
        threads: int,
        seed: int,
        keep: bool,
        options: _core.MeasureOptions | None,
        bench: Bench,
    ) -> None:
        if directory is not None and directory.exists() and not directory.is_dir():
            raise ArgumentError(f"[tune] {directory} is no directory", fix="give another session")
        self.planned, self.trials, self.candidates = planned, trials, candidates
        self.threads, self.seed, self.keep, self.options = threads, seed, keep, options
        self.bench = bench
        self.steps = Steps(directory)
        self.file = None if directory is None else directory / "trials.jsonl"
        self.measured = 0

    def run(
        self, counts: dict[str, int], time_s: float | None, most: int | None, progress: Progress
    ) -> NetworkTuned:
        start = time.monotonic()
        done: dict[str, StepDone] = {}
        ended = "done"
        total = round(self.planned.plan.cost)
        try:
            for step in self.steps.in_turns(self.planned.plan.steps, done):
                left = None if time_s is None else time_s - (time.monotonic() - start)
                spent = sum(one.trials for one in done.values())
                if (left is not None and left <= 0) or (
                    most is not None and spent + _ALWAYS > most
                ):
                    ended = "budget"
                    break
                allowed = None if most is None else most - spent

                def show(trial: int, _: int, best_us: float, before: int = spent) -> None:
                    progress(min(before + trial, total), total, best_us)

                self.steps.finish(step.name, self._do(step, left, allowed, show), done)
        except KeyboardInterrupt:
            ended = "interrupted"
        order = [step.name for step in self.planned.plan.steps]
        return NetworkTuned(
            plan=self.planned.plan,
            counts=counts,
            steps=tuple(done[name] for name in order if name in done),
            measured=self.measured,
            seconds=time.monotonic() - start,
            ended=ended,
            damaged=self.steps.damaged,
        )

    def _do(self, step: Step, left: float | None, allowed: int | None, show: Progress) -> StepDone:
        member = self.planned.programs[step.name]
        trials = max(
            _ALWAYS, min(round(step.expected), allowed if allowed is not None else MOST_SEED)
        )
        common: dict[str, Any] = {
            "threads": self.threads, "dtype": member.dtype, "time_limit_s": left, "session": self.file,
            "keep": self.keep, "options": self.options, "progress": show, "executor": self.bench,
        }  # fmt: skip
        origin = "tuned"
        try:
            parents = self._records(step.parent) if step.parent else []
            if not parents:
                tuned = tune(member.program, trials=trials, seed=self.seed, **common)
            elif self.planned.plan.selection == "st":
                origin, tuned = "top k", self._top_k(member, parents, common)
            else:
                most = min(self.trials, allowed if allowed is not None else self.trials)
                tuned, found = reuse(
                    parents[0], member.program, budget=max(1, trials - _ALWAYS),
                    further=self._further(step, parents), search_trials=max(_ALWAYS, most),
                    guard=math.inf if step.bridge else GUARD, seed=self.seed, **common,
                )  # fmt: skip
                origin = "searched, not reused" if found.search else "reused"
        except (
            SessionError
        ):  # the machines', not this program's: it is measured when there are some again
            raise
        except (
            SynoError
        ) as error:  # expected of some programs: no kernel can be made, or none runs in time
            return StepDone(name=step.name, action="failed", reason=str(error))
        self.measured += tuned.measured
        done = _done(step.name, origin, tuned)
        if member.constants and self.keep:
            gain = settle(
                member.program, member.constants, self._records(step.name), dtype=member.dtype,
                threads=self.threads,
            )  # fmt: skip
            done = msgspec.structs.replace(done, packed_gain=gain)
        return done

    def _records(self, name: str) -> list[Record]:
        """The records of a step's program on this machine, the fastest first."""
        member = self.planned.programs[name]
        stores = [RecordStore(self.file)] if self.file is not None else []
        key = member.program.structural_key()
        for store in (*stores, record_store()):
            mine = [
                record
                for record in store
                if record.key == key and self._is_mine(record, member.dtype)
            ]
            if mine:
                return sorted(mine, key=lambda record: record.rank)
        return []

    def _further(self, step: Step, parents: list[Record]) -> list[Record]:
        """What else can be reused: the fastest record of each other sketch of the parent, then that of every other program
        of its group."""
        sketches: dict[str, Record] = {}
        for record in parents:
            with contextlib.suppress(SynoError):  # of another version
                sketches.setdefault(sketch_of(record.trace()), record)
        keys = {
            self.planned.programs[one.name].program.structural_key()
            for one in self.planned.plan.steps
            if one.group == step.group and one.name not in (step.name, step.parent)
        }
        others: dict[str, Record] = {}
        for record in RecordStore(self.file) if self.file is not None else ():
            if record.key in keys and self._is_mine(record, parents[0].dtype):
                known = others.setdefault(record.key, record)
                others[record.key] = min(known, record, key=lambda one: one.rank)
        found = [*sketches.values(), *others.values()]
        return [record for record in found if record is not parents[0]][:_FURTHER]

    def _is_mine(self, record: Record, dtype: str) -> bool:
        """Whether a record is of a kernel that ran, as this tuning measures them."""
        mine = (dtype, self.threads, machine_key())
        return record.outcome == "ok" and (record.dtype, record.threads, record.machine) == mine

    def _top_k(self, member: Member, parents: list[Record], common: dict[str, Any]) -> Tuned:
        """The schedules of another program as they are, `TOP_K` that apply, the fastest there first."""
        from syno.tuning.reuse.shapes import shape_of

        given: list[tuple[_core.Schedule, str]] = []
        for record in parents:
            there = shape_of(_core.Program.parse(record.program))
            moved = transplanted(record.trace(), there, member.shape, member.program)
            if moved is not None and all(moved != known for known, _ in given):
                given.append((moved, "transplanted"))
            if len(given) == TOP_K:
                break
        return measure_given(member.program, given, trials=TOP_K + _ALWAYS, **common)


def _done(name: str, action: str, tuned: Tuned) -> StepDone:
    return StepDone(
        name=name,
        action=action,
        trials=tuned.trials,
        best_us=tuned.best_us,
        constructed_us=tuned.best_us / tuned.gap if tuned.gap > 0 else tuned.constructed_us,
        origin=tuned.origin,
        note=tuned.note,
    )
