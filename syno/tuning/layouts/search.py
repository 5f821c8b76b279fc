"""ALT's joint search of layouts and loops (ALT §5.2), beside a search of loops alone with as many trials.

Two stages. In the *joint stage* an actor proposes an episode of layouts; for each its loop space is built, and the cost model
says what its counted schedules take; the `top` of them are explored, each by `rounds` rounds of the loop search, and the best time
is the layout's reward (a layout that is not measured is worth what the cost model says). In the *loops-only stage* the
layout with the best time keeps its space, and all trials that are left go into its loops. As the program has its tensors,
nothing laid out otherwise, is the first layout of the joint stage: what is found is never worse than that by trials.

What the paper leaves open is decided so: a layout's rounds measure together what lets the joint stage explore
at least `LEAST_LAYOUTS`, at most `rounds` batches; one cost model learns from all layouts; loops are mutated, crossed and
sampled as the search of loops alone does, the same code with a joint stage of nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from syno import _core
from syno.errors import KernelError, ScheduleError, SynoError, shown, unknown_name
from syno.kernels.construct import construct
from syno.machines.model import machine_key, machine_model
from syno.support.numbers import whole
from syno.timing.measuring import WAIT_AGAIN_S
from syno.tuning.benches import Bench, LocalBench
from syno.tuning.cost_model import make_model, rank_correlation
from syno.tuning.layouts.arms import Arm, Picked, Trial, learn
from syno.tuning.layouts.instance import Instance
from syno.tuning.layouts.proposals import PROPOSERS, Proposal, make_proposer
from syno.tuning.layouts.result import LaidTuned
from syno.tuning.layouts.space import LoopSpace
from syno.tuning.layouts.template import Template
from syno.tuning.progress import Progress
from syno.tuning.records import Record, RecordStore, plain_names, record_store

#: A joint stage explores at least so many layouts, where it has two trials for each.
LEAST_LAYOUTS = 6


@dataclass(frozen=True)
class Layouts:
    """How layouts are searched; the defaults are the paper's, scaled to the trials there are.

    Attributes:
        levels: of tiles in the templates, 1 or 2.
        proposals: "ppo" (an actor that learns; needs torch) or "random".
        share: of the trials, for the joint stage; the rest is for the loops of the best layout.
        rounds: of loop search for each layout, at most.
        episode: layouts that are proposed before the actor learns.
        top: of an episode, how many are measured: those that the cost model says are best.
        constants: inputs that stay the same over calls: they are laid out, and packed, before.
        free: arguments that lie so already, for what is measured where other kernels write them; nothing goes
            on record then.
    """

    levels: int = 1
    proposals: str = "ppo"
    share: float = 0.3
    rounds: int = 2
    episode: int = 8
    top: int = 2
    constants: tuple[str, ...] = ()
    free: tuple[str, ...] = ()

    def check(self, program: _core.Program) -> None:
        """Looks at the settings, before work starts.

        Args:
            program: whose layouts are to be searched: `constants` and `free` name tensors of it.
        Raises:
            KernelError: a number is out of its range.
            UnknownName: no such proposals, input or output.
        """
        for name, most in (("rounds", 64), ("episode", 4096), ("top", 4096)):
            whole("tune", name, getattr(self, name), 1, most)
        share = self.share
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise KernelError(
                f"[tune] share={shown(share)} of the trials; the joint stage gets more than 0, at most 1"
            )
        if self.proposals not in PROPOSERS:
            raise unknown_name("proposals", self.proposals, PROPOSERS)
        for name in self.constants:
            if name not in program.inputs:
                raise unknown_name("constant, which is an input", name, program.inputs)
        for name in self.free:
            if name not in (*program.inputs, *program.outputs):
                raise unknown_name("argument", name, [*program.inputs, *program.outputs])


class LayoutSearch:
    """One search; `run` gives its result.

    Args:
        program: a concrete one, a convolution or product.
        how: what decides the layouts that are looked at.
        threads, dtype, seed, model, batch, epsilon, session, cold: as for `syno.tune`.
        options: of measurements.
        bench: who measures; default this machine.
    Raises:
        ScheduleError: the program is no convolution or product.
        KernelError, UnknownName: a setting of `how` is out of its range, or needs torch, which is not installed.
    """

    def __init__(
        self,
        program: _core.Program,
        how: Layouts,
        *,
        threads: int,
        dtype: str,
        seed: int,
        model: str,
        batch: int,
        epsilon: float,
        session: str | Path | None,
        cold: bool,
        options: _core.MeasureOptions,
        bench: Bench | None = None,
    ) -> None:
        how.check(program)
        self.program, self.how, self.threads, self.dtype = program, how, threads, dtype
        self.template = Template(program, how.levels)
        self.proposer = make_proposer(how.proposals, self.template, seed)
        make_model(model, seed)  # says what is missing, before work starts
        self.model_name, self.seed = model, seed
        self.batch, self.epsilon = max(1, batch), epsilon
        self.machine, self.cold, self.options = machine_model(), cold, options
        self.bench: Bench = bench or LocalBench()
        self.constants = plain_names(program, how.constants)
        self.store = RecordStore(session) if session else None
        self.recorded = self._recorded()
        self.measured, self.note = 0, ""
        self.arms: dict[str, Arm | None] = {}

    def run(
        self, trials: int, time_limit_s: float | None, keep: bool, progress: Progress
    ) -> LaidTuned:
        """Searches loops alone, then layouts with loops, `trials` each.

        Args:
            trials: schedules to measure in each of the two.
            time_limit_s: for both together, half of it for loops alone; None: no limit.
            keep: put the best into the record store, unless times are cold or tensors `free`.
            progress: called with (trials done, trials, best microseconds).
        Raises:
            KernelError: no schedule of the operator as it lies can be measured.
        """
        start = time.monotonic()
        deadline = math.inf if time_limit_s is None else start + time_limit_s
        # What time there is, is for both.
        half = start + (deadline - start) / 2

        alone = _Stages(self, trials, half, 0, progress)
        alone.run(joint=0)
        plain = alone.best()
        if plain is None:
            reasons = [t.record.reason for t in alone.trials if not t.ran]
            raise KernelError(
                f"[tune] no schedule of the operator as it lies can be measured: {reasons[0] if reasons else 'no time'}"
            )
        together = _Stages(self, trials, deadline, trials, progress)
        together.run(joint=max(min(trials, 4), round(self.how.share * trials)))
        found, arm = together.best(), together.best_arm()
        ratio = 1.0
        if found is not None and arm is not None and arm.choice is not None:
            ratio = self._ratio(found, arm, plain)
        better = found if ratio < 0.99 else None  # closer is not better
        chosen = better or plain
        first = next((t for t in alone.trials if t.ran), plain)
        gap = 1.0
        if chosen is not first and better is None:
            gap = self._in_turns(plain.schedule, first.schedule)
        elif better is not None and arm is not None:
            gap = self._ratio(better, arm, first)
        if keep and not self.cold and not self.how.free:
            self._keep(chosen)
        ran = [t for t in (*alone.trials, *together.trials) if t.ran]
        outcomes: dict[str, int] = {}
        for trial in (*alone.trials, *together.trials):
            outcomes[trial.record.outcome] = outcomes.get(trial.record.outcome, 0) + 1
        explored = [
            a for a in self.arms.values() if a is not None and a.choice is not None and a.trials
        ]
        return LaidTuned(
            schedule=chosen.schedule,
            best_us=chosen.record.median_us,
            layouts=dict(arm.layouts) if better and arm else {},
            choice=str(arm.choice) if better and arm else "",
            joint_us=found.record.median_us if found else math.inf,
            joint_choice=arm.name if arm else "",
            loops_us=plain.record.median_us,
            constructed_us=alone.first_us(),
            gap=gap or 1.0,
            ratio=ratio,
            counted_us=alone.counted_us(),
            origin=chosen.record.origin,
            trials=trials,
            joint_trials=together.joint,
            explored=len(explored),
            proposed=together.proposed,
            measured=self.measured,
            outcomes=outcomes,
            rank_correlation=rank_correlation(
                [t.candidate.predicted_s for t in ran], [t.record.median_us for t in ran]
            ),
            seconds=time.monotonic() - start,
            curve=tuple(together.curve()),
            loops_curve=tuple(alone.curve()),
            note=self.note,
        )

    # Layouts

    def arm(self, choice: Instance | None) -> Arm | None:
        """The space of a layout, built once; None where the layout cannot be written, or nothing applies to it.

        Args:
            choice: of the template; None: the tensors as the program has them.
        """
        name = str(choice)
        if name not in self.arms:
            layouts = {} if choice is None else self.template.layouts(choice)
            try:
                space = LoopSpace(
                    self.program,
                    layouts,
                    self.machine,
                    dtype=self.dtype,
                    threads=self.threads,
                    constants=self.how.constants,
                    free=self.how.free,
                )
                self.arms[name] = Arm(choice, layouts, space)
            except ScheduleError:
                if choice is None:
                    raise
                self.arms[name] = None
        return self.arms[name]

    # Measuring

    def _recorded(self) -> dict[tuple[str, str], Record]:
        """Trials of an interrupted search on this machine, by program and trace."""
        if self.store is None:
            return {}
        key = (self.dtype, self.threads, machine_key(), self.cold, self.constants)
        found: dict[tuple[str, str], Record] = {}
        for record in self.store:
            same = (record.dtype, record.threads, record.machine, record.cold, record.constants)
            if same == key:
                try:
                    found[record.key, str(record.trace().text())] = record
                except SynoError:  # a damaged trace is measured again
                    continue
        return found

    def measure(self, arm: Arm, picked: Sequence[Picked], number: int) -> list[Trial]:
        """What schedules of a layout take, in their order; what is on record is not measured again.

        Args:
            arm: the layout's space.
            picked: candidates of it, each with its schedule and where that comes from: "constructed", "counted", "sampled", "mutated" or "crossed".
            number: of the first of them among the search's trials.
        """
        program = arm.space.program
        key = program.structural_key()
        texts = [str(schedule.text()) for _, schedule, _ in picked]
        new = [i for i, text in enumerate(texts) if (key, text) not in self.recorded]
        records = self.bench.measure(program, [picked[i][1] for i in new], self.options)
        fresh = []
        for i, record in zip(new, records, strict=True):
            self.note = self.note or record.note
            if record.note:  # whoever holds the machine may hold it for good
                self.options.lock_wait_s = min(self.options.lock_wait_s, WAIT_AGAIN_S)
            made = msgspec.structs.replace(
                record, trial=number + i, origin=picked[i][2], constants=self.constants
            )
            fresh.append(made)
            self.recorded[key, texts[i]] = made
        self.measured += len(new)
        if self.store is not None:
            from syno.tuning.search import kept

            if not kept(self.store, fresh):
                self.store = None
        return [
            Trial(candidate, schedule, self.recorded[key, text])
            for (candidate, schedule, _), text in zip(picked, texts, strict=True)
        ]

    def _ratio(self, found: Trial, arm: Arm, plain: Trial) -> float:
        """Time of the joint search's best / of the best of loops alone, in turns where both are of one program."""
        if arm.space.program.structural_key() == self.program.structural_key():
            ratio = self._in_turns(found.schedule, plain.schedule)
            return ratio if ratio > 0 else math.inf
        return found.record.median_us / plain.record.median_us

    def _in_turns(self, a: _core.Schedule, b: _core.Schedule) -> float:
        pairs = _core.MeasureOptions()
        for name in ("threads", "cold", "limit_s", "lock_file", "lock_wait_s"):
            setattr(pairs, name, getattr(self.options, name))
        pairs.samples, pairs.sample_s = 31, 5e-4
        return self.bench.compare(self.program, a, b, pairs)

    def _keep(self, best: Trial) -> None:
        """On record, ranked in turns with the best one that is."""
        from syno.tuning.search import kept

        known = record_store().best(
            self.program, self.dtype, self.threads, constants=self.how.constants
        )
        record = best.record
        if known is not None:
            same = known[1] == best.schedule
            ratio = 1.0 if same else self._in_turns(best.schedule, known[1])
            record = msgspec.structs.replace(record, rank_us=known[0].rank * ratio)
        kept(record_store(), [record])


class _Stages:
    """The trials of one search: a joint stage of some, then loops alone."""

    def __init__(
        self, search: LayoutSearch, trials: int, deadline: float, done: int, progress: Progress
    ) -> None:
        self.search, self.most, self.deadline = search, trials, deadline
        self.done, self.progress = done, progress
        self.trials: list[Trial] = []
        self.arms: list[Arm] = []
        self.joint = self.proposed = 0
        self.model = make_model(search.model_name, search.seed)
        self.random = np.random.default_rng([search.seed, 21])

    def run(self, joint: int) -> None:
        per = min(self.search.how.rounds * self.search.batch, max(2, joint // LEAST_LAYOUTS))
        plain = self._take(None)
        assert plain is not None
        self._begin(plain)
        self._explore(plain, per - len(plain.trials), min(joint, self.most))
        if joint:
            self._joint(joint, per)
        self.joint = len(self.trials) if joint else 0
        best = self.best_arm() or plain
        while len(self.trials) < self.most and time.monotonic() < self.deadline:
            if not self._round(best, self.search.batch, self.most):
                break

    def _take(self, choice: Instance | None) -> Arm | None:
        """A layout's space, with nothing tried in it by this search."""
        made = self.search.arm(choice)
        if made is None:
            return None
        own = next((arm for arm in self.arms if arm.choice == choice), None)
        if own is None:
            made.trials, made.seen = [], set()
            self.arms.append(made)
            own = made
        return own

    def _begin(self, plain: Arm) -> None:
        """As it lies, constructed and counted: what a kernel gets without tuning comes first."""
        search = self.search
        made = construct(
            search.program, threads=search.threads, dtype=search.dtype, machine=search.machine,
            constants=list(search.how.constants), explain=False,
        )  # fmt: skip
        picked: list[Picked] = []
        first = plain.space.candidate(made.schedule)
        if first is not None:
            plain.seen.add(str(made.schedule.text()))
            picked.append((first, made.schedule, "constructed"))
        self._measure(plain, picked + plain.beginnings(1))

    def _joint(self, most: int, per: int) -> None:
        how, proposer = self.search.how, self.search.proposer
        first = self.first_us()
        worth = 2 * first if first < math.inf else 1.0  # U, twice the first time

        def reward(us: float) -> float:
            return max(-1.0, (worth - us) / worth)

        idle = 0
        while len(self.trials) < most and time.monotonic() < self.deadline and idle < 3:
            learn(self.model, self.trials)
            episode = [proposer.propose() for _ in range(how.episode)]
            self.proposed += len(episode)
            said = [self._said(each) for each in episode]
            order = sorted(range(len(episode)), key=lambda i: (said[i], i))
            before = len(self.trials)
            explored: set[str] = set()
            for i in order:
                arm = self.search.arm(episode[i].choice)
                if len(explored) == how.top or len(self.trials) >= most or arm is None:
                    break
                if arm in self.arms and arm.trials:
                    continue  # its best time is known
                taken = self._take(episode[i].choice)
                assert taken is not None
                explored.add(str(episode[i].choice))
                self._explore(taken, per, most)
            idle = idle + 1 if len(self.trials) == before else 0
            times = [self._time(each, us) for each, us in zip(episode, said, strict=True)]
            proposer.learn(episode, [reward(us) for us in times])

    def _said(self, proposal: Proposal) -> float:
        """What the cost model says a layout takes, microseconds."""
        arm = self.search.arm(proposal.choice)
        return math.inf if arm is None else arm.predicted_us(self.model)

    def _time(self, proposal: Proposal, said: float) -> float:
        """What a layout took, where it was measured by now."""
        arm = self.search.arm(proposal.choice)
        known = (
            any(arm is other for other in self.arms) and arm is not None and arm.best_us < math.inf
        )
        return arm.best_us if known and arm is not None else said

    def _explore(self, arm: Arm, trials: int, most: int) -> None:
        """Rounds of the loop search in one layout: its beginnings, then what the model picks."""
        end = min(most, len(self.trials) + max(0, trials))
        rounds = self.search.how.rounds
        share = max(1, -(-max(0, trials) // rounds))
        while len(self.trials) < end and time.monotonic() < self.deadline:
            if not self._round(arm, share, end):
                return

    def _round(self, arm: Arm, count: int, end: int) -> bool:
        count = min(count, end - len(self.trials))
        picked = arm.beginnings(count) if not arm.trials else []
        if len(picked) < count:
            learn(self.model, self.trials)
            picked += arm.pick(count - len(picked), self.model, self.search.epsilon, self.random)
        if not picked:
            return False  # the space is exhausted
        self._measure(arm, picked)
        return True

    def _measure(self, arm: Arm, picked: list[Picked]) -> None:
        made = self.search.measure(arm, picked[: self.most - len(self.trials)], len(self.trials))
        arm.trials += made
        self.trials += made
        best = self.best()
        us = best.record.median_us if best else math.inf
        self.progress(self.done + len(self.trials), 2 * self.most, us)

    def best_arm(self) -> Arm | None:
        ran = [arm for arm in self.arms if arm.best_us < math.inf]
        return min(ran, key=lambda arm: arm.best_us) if ran else None

    def best(self) -> Trial | None:
        ran = [trial for trial in self.trials if trial.ran]
        return min(ran, key=lambda trial: trial.record.median_us) if ran else None

    def first_us(self) -> float:
        return next((t.record.median_us for t in self.trials if t.ran), math.inf)

    def counted_us(self) -> float:
        """As it lies, by counting alone: the second trial, or the first where the two are the same."""
        counted = [t for t in self.trials if t.ran and t.record.origin == "counted"]
        return counted[0].record.median_us if counted else self.first_us()

    def curve(self) -> list[tuple[int, float]]:
        points, best = [], math.inf
        for number, trial in enumerate(self.trials, 1):
            if trial.ran and trial.record.median_us < best:
                best = trial.record.median_us
                points.append((number, best))
        return points
