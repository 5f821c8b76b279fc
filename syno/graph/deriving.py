"""Equal programs for the kernels of a network: searched once for each computation, kept where they are faster in place."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from syno import _core
from syno.deriving.apart import SHARE
from syno.deriving.derivations import Path_
from syno.deriving.known import Answer, Answers, Part, Question
from syno.errors import KernelError, ScheduleError
from syno.graph.compiled import CompiledNetwork
from syno.graph.stages import Stage
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.timing.bench import measure
from syno.timing.measuring import measuring

_log = logging.getLogger("syno.graph")

#: Of the search for one program, at most and at least; then come schedules, kernels and times.
_SEARCH_S, _SHORTEST_S = 2.0, 0.1
#: The same of a program without windows: of a product there are few others, and they are found soon.
_PRODUCT_S = 0.5
#: What schedules and kernels of what was found take, about; beside it come so many calls, and seconds for each element of
#: an input, of which four kinds are made and computed in float64.
_JUDGING_S, _CALLS, _ELEMENT_S = 2.0, 150, 2e-7
#: Calls of the network, and what its kernels take, that follow to see what is faster in place; at most so much of the time.
_IN_PLACE, _MOST_RESERVED = 100, 0.2
#: A search is begun where so much of what it will take is left.
_ENOUGH = 0.5
#: Programs predicted to take so many times the original's time are not measured.
_HOPELESS = 1.1
#: A scope with so much of a program's multiply-adds is searched alone, and so are several with `SHARE` each.
_CORE = 0.9
#: Programs of fewer multiply-adds take microseconds.
_LEAST_FLOPS = 2**16
_DTYPES = ("float32", "float64")
#: A derived kernel is worth its rounding where the step gains so much.
_WORTH = 1.02
_ROUNDS, _TURNS = 3, 5
#: Samples of whole networks, and seconds for them.
_WHOLE_TURNS, _WHOLE_S = 9, 10.0


@dataclass(frozen=True)
class Wanted:
    """A node's program, its inputs that are weights, and the type that it computes in."""

    operator: Operator
    constants: tuple[str, ...]
    dtype: str


class Deriving:
    """Equal programs by `syno.derive`, faster when measured, within an error and a time for all of them.

    Programs that differ by names alone are searched once, those with most work first. Where one scope does nearly all
    the work (a convolution with whatever follows it) that scope is searched, what is found is judged in the first program
    around it, and the fastest there is tried on all others. Where several do, as the two products of attention, each is
    searched, and all that was found is tried together and alone. Where the time does not suffice to search each, those
    whose share of the work is not worth a search are tried with the steps that served the same formula at other extents;
    what does not fit at all is left to the next compilation. What is found is kept in the cache.
    """

    def __init__(
        self,
        *,
        threads: int,
        max_rel_err: float,
        seconds: float,
        directory: Path | None,
        constants_from: int = 0,
    ) -> None:
        self._threads = threads
        self._max_rel_err = max_rel_err
        self._constants_from = constants_from
        self._seconds = self._left = seconds
        self._reserved = 0.0
        self._answers = Answers(directory)

    def prepare(self, wanted: Sequence[Wanted]) -> None:
        """Looks for all programs of a network, those first that take most of its multiply-adds.

        Raises:
            KeyboardInterrupt: Ctrl-C; what was found until then is kept.
        """
        work: dict[str, int] = {}
        questions: dict[str, Question] = {}
        for each in wanted:
            if self._promises(each):
                question = self._question(each)
                questions[question.key] = question
                key = self._searched_for(question).key
                work[key] = work.get(key, 0) + each.operator.flops
        total = sum(work.values())
        network = sum(self._computing(each.operator) for each in wanted)
        self._reserved = min(_MOST_RESERVED * self._seconds, _IN_PLACE * network)

        def share(question: Question) -> float:
            return work[self._searched_for(question).key] / total

        def seconds(question: Question) -> float:
            most = _SEARCH_S if _slides(self._searched_for(question).operator) else _PRODUCT_S
            return min(most, max(_SHORTEST_S, self._seconds * share(question)))

        def takes(question: Question) -> float:
            return seconds(question) + self._judging(question.operator)

        order = sorted(questions.values(), key=lambda each: (-share(each), each.key))
        ahead = {self._searched_for(each).key: takes(each) for each in order}
        for question in order:
            # A share of the work that is worth a whole search gets one.
            paid = self._seconds * share(question) >= takes(question)
            scarce = not paid and sum(ahead.values()) > self._left
            self._look(question, seconds(question), scarce)
            ahead.pop(self._searched_for(question).key, None)

    def _judging(self, operator: Operator) -> float:
        """Seconds that schedules, kernels and times of what a search finds take, about."""
        elements = sum(math.prod(operator.shapes[name]) for name in operator.inputs)
        return _JUDGING_S + _CALLS * self._computing(operator) + _ELEMENT_S * elements

    def _computing(self, operator: Operator, element_bytes: int = 4) -> float:
        """Seconds of a call at the peak of the cores it uses."""
        machine = machine_model()
        cores = min(self._threads, machine.cores)
        return 2e-9 * operator.flops / (machine.peak_gflops(element_bytes) * cores)

    def _waits_for_weights(self, wanted: Wanted) -> bool:
        """Whether weights take longer to come than all multiply-adds: other programs read no fewer of them."""
        if not self._constants_from:
            return False
        level = machine_model().levels[self._constants_from]
        elements = sum(math.prod(wanted.operator.shapes[name]) for name in wanted.constants)
        bytes_each = np.dtype(wanted.dtype).itemsize
        coming = bytes_each * elements / (1e9 * level.read_gbs)
        return bool(coming > self._computing(wanted.operator, bytes_each))

    def __call__(
        self, operator: Operator, constants: Sequence[str], dtype: str
    ) -> tuple[Operator, str, float] | None:
        """A faster program for a node, the rules that made it, and its error; None where none was found."""
        wanted = Wanted(operator, tuple(constants), dtype)
        if not self._promises(wanted):
            return None
        question = self._question(wanted)
        answer = self._answers.get(question)
        if answer is None or not answer.path:
            return None
        return question.made(answer.path), ", ".join(answer.rules), answer.max_rel_err

    def _promises(self, wanted: Wanted) -> bool:
        if wanted.dtype not in _DTYPES or wanted.operator.flops < _LEAST_FLOPS:
            return False
        # Of a product of what comes with a call, Strassen's is the only other algorithm, and seldom faster.
        promises = bool(wanted.constants) or _slides(wanted.operator)
        return promises and not self._waits_for_weights(wanted)

    def _question(self, wanted: Wanted) -> Question:
        return Question.of(
            wanted.operator,
            wanted.constants,
            wanted.dtype,
            self._threads,
            self._max_rel_err,
            self._seconds,
            self._constants_from,
        )

    @staticmethod
    def _searched_for(question: Question) -> Question:
        """Its core, where that is nearly all of it."""
        core = question.core
        if core is not None and core.operator.flops >= _CORE * question.operator.flops:
            return core
        return question

    def _look(self, question: Question, seconds: float, scarce: bool) -> None:
        if self._answers.get(question) is not None:
            return
        begin, left = monotonic(), self._left
        searched_for = self._searched_for(question)
        try:
            if searched_for is question and len(parts := self._parts(question)) > 1:
                self._look_at(question, parts, seconds, scarce)
                return
            known = self._answers.get(searched_for)
            if known is None:
                takes = seconds + self._judging(question.operator)
                begun = self._left < self._seconds
                enough = self._reserved + (_ENOUGH * takes if begun else 0)
                if self._left <= enough:
                    return
                elsewhere = self._answers.like(searched_for) if scarce else None
                found = self._tried(question, elsewhere) if elsewhere else None
                # Where nothing was found for others there is nothing.
                if found is None and elsewhere != []:
                    found = self._tried(question, self._searched(searched_for, seconds))
                self._answers.put(searched_for, found or Answer(()))
            else:
                found = self._tried(question, [known.path]) if known.path else None
            if searched_for is not question:
                self._answers.put(question, found or Answer(()))
        except (ScheduleError, KernelError) as error:
            _log.debug("no derivation of %s: %s", question.operator.expr, error)
        finally:
            took = monotonic() - begin  # what parts took is in it
            self._left = left - took
            if _log.isEnabledFor(logging.DEBUG):
                answer = self._answers.get(question)
                rules = ", ".join(answer.rules) if answer and answer.path else "nothing faster"
                about = took, self._left, question.operator.expr
                _log.debug("%s in %.1f s, %.1f s left: %s", rules, *about)

    @staticmethod
    def _parts(question: Question) -> list[Part]:
        """Those that may have faster programs."""
        return [
            part
            for part in question.parts(SHARE)
            if part.question.constants or _slides(part.question.operator)
        ]

    def _look_at(
        self, question: Question, parts: Sequence[Part], seconds: float, scarce: bool
    ) -> None:
        """Looks for each part of a question, and tries what is found on the whole. Where time ends before all were looked
        for, that serves now, and the next compilation goes on."""
        for part in parts:
            self._look(part.question, max(_SHORTEST_S, seconds / len(parts)), scarce)
        answers = [self._answers.get(part.question) for part in parts]
        paths = [
            part.steps(answer.path)
            for part, answer in zip(parts, answers, strict=True)
            if answer is not None and answer.path
        ]
        if len(paths) > 1:
            paths.insert(0, tuple(step for path in paths for step in path))
        found = self._tried(question, paths) if paths else None
        complete = all(answer is not None for answer in answers)
        self._answers.put(question, found or Answer(()), complete=complete)

    def _tried(self, question: Question, paths: Sequence[Path_]) -> Answer | None:
        """What steps that served elsewhere are worth to this program; None where none of them applies."""
        from syno.deriving.search import tried

        found = tried(
            question.operator,
            paths,
            constants=question.constants,
            dtype=question.dtype,
            threads=self._threads,
            max_rel_err=self._max_rel_err,
            constants_from=self._constants_from,
            hopeless=_HOPELESS,
        )
        return Answer.of(found, in_place=True) if len(found) > 1 else None

    def _searched(self, question: Question, seconds: float) -> list[Path_]:
        """Steps to programs that may be faster, those guessed fastest first."""
        from syno.deriving.search import searched

        found = searched(
            question.operator,
            seconds=seconds,
            constants=question.constants,
            dtype=question.dtype,
            threads=self._threads,
            max_rel_err=self._max_rel_err,
            constants_from=self._constants_from,
            measure=0,
        )
        if found.ended == "interrupted":
            raise KeyboardInterrupt
        return [found[number].path for number in range(1, len(found))]


def _slides(operator: Operator) -> bool:
    """Whether something moves along something else, as a window does."""
    return bool(_core.slides(_core.without_copies(operator.program)))


def fastest_in_place(
    derived: CompiledNetwork,
    plain: Callable[[Stage], Stage],
    link: Callable[[list[Stage]], CompiledNetwork],
    inputs: Sequence[Any],
) -> CompiledNetwork:
    """The network with those of its derived kernels that are faster inside it than the kernels of the original programs.

    Alone a kernel finds its weights in the cache; in a network they may come from memory each time, and derived ones are
    often several times as large. So both networks run in turns, and each step is decided by its own least times. What steps
    leave in the caches others find: in the end the whole network is timed beside the original, which stays where it is faster
    by more than those times differ among themselves. (A step that takes a hundredth of a network gains less than that.)

    Args:
        plain: the same step without derivation.
        link: a network of these steps.
        inputs: of a call.
    """
    beside = {stage.name: plain(stage) for stage in derived.stages if stage.derived}
    if not beside:
        return derived
    original = link([beside.get(stage.name, stage) for stage in derived.stages])
    least: list[dict[str, float]] = [{}, {}]
    with measuring():
        for _ in range(_ROUNDS):
            for times, network in zip(least, (original, derived), strict=True):
                for name, us in network.profile(*inputs, turns=_TURNS).times_us.items():
                    times[name] = min(times.get(name, us), us)
    kept = []
    for stage in derived.stages:
        before, after = (times.get(stage.name, 0.0) for times in least)
        if stage.derived and after * _WORTH > before:
            _log.debug("%s: %.1f us derived, %.1f us before", stage.name, after, before)
            stage = beside[stage.name]
        kept.append(stage)
    if not any(stage.derived for stage in kept):
        return original
    same = all(stage is was for stage, was in zip(kept, derived.stages, strict=True))
    made = derived if same else link(kept)
    gain, within = _gain(original, made, inputs)
    _log.debug("derived: %.3f of the original's speed, within %.3f", gain, within)
    return made if gain + within >= 1 else original


def _gain(
    original: CompiledNetwork, made: CompiledNetwork, inputs: Sequence[Any]
) -> tuple[float, float]:
    """How many times as fast the second one is, in turns, and how near that is: twice the standard error of a median of
    nine is 0.6 of the distance between their quartiles."""
    timings = measure(
        {"original": lambda: original(*inputs), "derived": lambda: made(*inputs)},
        turns=_WHOLE_TURNS,
        timeout_s=_WHOLE_S,
        threads=made.threads,
        one_pool=True,
    )
    return timings[1].speed_up, timings[1].speed_up_iqr / 2
