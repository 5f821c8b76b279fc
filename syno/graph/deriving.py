"""Equal programs for the kernels of a network: searched once for each computation, kept where they are faster in place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from syno import _core
from syno.deriving.derivations import Path_
from syno.deriving.known import Answer, Answers, Part, Question
from syno.errors import KernelError, ScheduleError
from syno.graph.compiled import CompiledNetwork
from syno.graph.stages import Stage
from syno.operators.operator import Operator
from syno.timing.bench import measure
from syno.timing.measuring import measuring

_log = logging.getLogger("syno.graph")

#: Of the search for one program, at most and at least; then come schedules, kernels and times.
_SEARCH_S, _SHORTEST_S = 2.0, 0.1
#: The same of a program without windows: of a product there are few others, and they are found soon.
_PRODUCT_S = 0.5
#: What schedules, kernels and times of what was found take, about.
_JUDGING_S = 2.0
#: Programs predicted to take so many times the original's time are not measured.
_HOPELESS = 1.1
#: A scope with so much of a program's multiply-adds is searched alone, and so are several with so much each.
_CORE, _PART = 0.9, 0.1
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
    the work (a convolution with whatever follows it) that scope is searched, and the steps found are tried on all
    programs around it. Where several do, as the two products of attention, each is searched, and all that was found is
    tried together and alone. Where the time does not suffice to search each, those whose share of the work is not worth a
    search are tried with the steps that served the same formula at other extents. What is found is kept in the cache: an
    interrupted compilation goes on.
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

        def share(question: Question) -> float:
            return work[self._searched_for(question).key] / total

        def seconds(question: Question) -> float:
            most = _SEARCH_S if _slides(self._searched_for(question).operator) else _PRODUCT_S
            return min(most, max(_SHORTEST_S, self._seconds * share(question)))

        order = sorted(questions.values(), key=lambda each: (-share(each), each.key))
        ahead = {self._searched_for(each).key: seconds(each) + _JUDGING_S for each in order}
        for question in order:
            # A share of the work that is worth a whole search gets one.
            paid = self._seconds * share(question) >= seconds(question) + _JUDGING_S
            scarce = not paid and sum(ahead.values()) > self._left
            self._look(question, seconds(question), scarce)
            ahead.pop(self._searched_for(question).key, None)

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

    @staticmethod
    def _promises(wanted: Wanted) -> bool:
        if wanted.dtype not in _DTYPES or wanted.operator.flops < _LEAST_FLOPS:
            return False
        # Of a product of what comes with a call, Strassen's is the only other algorithm, and seldom faster.
        return bool(wanted.constants) or _slides(wanted.operator)

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
            if self._answers.get(searched_for) is None:
                if self._left <= 0:
                    return
                found = self._reused(searched_for) if scarce else None
                self._answers.put(
                    searched_for,
                    found or self._search(searched_for, seconds, searched_for is question),
                )
            answer = self._answers.get(searched_for)
            if answer is not None and searched_for is not question:
                around = self._tried(question, [answer.path]) if answer.path else None
                self._answers.put(question, around or Answer(()))
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
            for part in question.parts(_PART)
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

    def _reused(self, question: Question) -> Answer | None:
        """What other extents of the formula say; None where they say nothing."""
        paths = self._answers.like(question)
        if paths is None:
            return None
        return self._tried(question, paths) if paths else Answer(())

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
        )
        return Answer.of(found, in_place=True) if len(found) > 1 else None

    def _search(self, question: Question, seconds: float, check: bool) -> Answer:
        """`check`: what is found is used; else it is tried in place of a part of something, and checked there."""
        from syno.deriving.search import searched

        found = searched(
            question.operator,
            seconds=seconds,
            hopeless=_HOPELESS,
            constants=question.constants,
            dtype=question.dtype,
            threads=self._threads,
            max_rel_err=self._max_rel_err,
            constants_from=self._constants_from,
            check=check,
        )
        if found.ended == "interrupted":
            raise KeyboardInterrupt
        return Answer.of(found, in_place=True)


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
    leave in the caches others find: in the end the whole network is timed beside the original, which stays where it is faster.

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
    gain = _gain(original, made, inputs)
    _log.debug("derived: %.3f of the original's speed", gain)
    return made if gain >= 1 else original


def _gain(original: CompiledNetwork, made: CompiledNetwork, inputs: Sequence[Any]) -> float:
    """How many times as fast the second one is, in turns."""
    timings = measure(
        {"original": lambda: original(*inputs), "derived": lambda: made(*inputs)},
        turns=_WHOLE_TURNS,
        timeout_s=_WHOLE_S,
        threads=made.threads,
        one_pool=True,
    )
    return timings[1].speed_up
