"""The fastest programs that were found, remembered by what they compute: names of tensors do not matter."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from syno import _core
from syno.deriving.derivations import Derivations, Path_, made_by
from syno.deriving.steps import Step, path_of, steps_of
from syno.errors import SynoError
from syno.kernels.cache import read_entry, usable_cache, write_entry
from syno.machines.model import machine_key
from syno.operators.operator import Operator

#: What `syno.derive` allows and takes by itself.
MAX_REL_ERR, SECONDS = 1e-5, 2.0
#: Faster programs that an answer tells beside the fastest, and paths that are tried for other extents.
_OTHERS, _LIKE = 2, 6
#: Extents at which nothing was found, from which on others are not searched where time is scarce.
_FRUITLESS = 2


@dataclass(frozen=True)
class Question:
    """What is the fastest program that computes this one? Asked under names that say nothing.

    Two programs that differ by the names of their tensors alone ask the same.
    """

    operator: Operator
    constants: tuple[str, ...]
    """Its inputs that stay the same over calls."""
    dtype: str
    threads: int
    max_rel_err: float
    seconds: float
    """That may be spent on it, or on the network that it is of: a longer search is another question."""
    names: Mapping[str, str]
    """Those that were given, by the operator's."""
    constants_from: int = 0
    """The level of the machine model that constants come from, as for `prepacked`."""
    core: Question | None = None
    """The same about the scope with most points alone, under the same names; see `Program.neutral`. Steps found for it
    apply to the whole program, too."""

    @classmethod
    def of(
        cls,
        operator: Operator,
        constants: Sequence[str],
        dtype: str,
        threads: int,
        max_rel_err: float = MAX_REL_ERR,
        seconds: float = SECONDS,
        constants_from: int = 0,
    ) -> Question:
        """The question about a concrete operator; scopes of it that only copy are indices of their readers here."""
        program, names, core = _core.without_copies(operator.program).neutral()
        neutral = {given: name for name, given in names.items()}
        inside = tuple(neutral[name] for name in constants)
        how = (dtype, threads, max_rel_err, seconds)
        alone = None
        if core is not None:
            read = tuple(name for name in inside if name in core.inputs)
            alone = cls(Operator(core), read, *how, {n: n for n in core.inputs}, constants_from)
        return cls(Operator(program), inside, *how, names, constants_from, alone)

    def parts(self, share: float) -> tuple[Part, ...]:
        """Its scopes with much of the work, each as a question of its own, most work first.

        Args:
            share: least part of all work, 0 to 1.
        """
        found = []
        for scope in self.operator.program.heaviest(share):
            _, names, core = self.operator.program.neutral(scope)
            if core is None:
                continue
            read = tuple(n for n, given in names.items() if given in self.constants)
            inside = tuple(name for name in read if name in core.inputs)
            how = (self.dtype, self.threads, self.max_rel_err, self.seconds)
            alike = {name: name for name in core.inputs}
            question = Question(Operator(core), inside, *how, alike, self.constants_from)
            found.append(Part(question, names))
        return tuple(found)

    @property
    def formula(self) -> tuple[object, ...]:
        """The same for programs that differ by their extents."""
        program = str(self.operator.program.short_text())
        how = (self.dtype, self.threads, self.max_rel_err, self.constants_from)
        return (program, self.constants, *how)

    @cached_property
    def key(self) -> str:
        """The same for the same question to the same build on this machine: 32 hexadecimal digits."""
        program = str(self.operator.program.text())
        how = (self.dtype, self.threads, self.max_rel_err, self.seconds, self.constants_from)
        asked = (program, self.constants, *how)
        text = repr((*asked, machine_key(), _core.build_id()))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def made(self, path: Path_) -> Operator:
        """What steps make of the program, under the names that were given.

        Raises:
            FormatError: a step does not apply.
        """
        program = made_by(self.operator, path).program
        ends = {*program.inputs, *program.outputs}
        return Operator(program.renamed({n: g for n, g in self.names.items() if n in ends}))


@dataclass(frozen=True)
class Part:
    """A scope of a question's program alone, and the names that its tensors have there."""

    question: Question
    names: Mapping[str, str]

    def steps(self, path: Path_) -> Path_:
        """Steps of the part as steps of the whole program. What they make is called after what they make it of, `core_data`
        say, there as here."""
        return tuple(
            (
                rule,
                _core.RewriteSite(
                    self._named(site.scope),
                    site.iterator,
                    self._named(site.other),
                    self._named(site.made),
                    site.numbers,
                ),
            )
            for rule, site in path
        )

    def _named(self, name: str) -> str:
        for inside, given in self.names.items():
            if name == inside or name.startswith(f"{inside}_"):
                return given + name.removeprefix(inside)
        return name


@dataclass(frozen=True)
class Answer:
    """The steps to the fastest program that was found, none where that is the original, and its error."""

    path: Path_
    max_rel_err: float = 0.0
    others: tuple[Path_, ...] = ()
    """To other accurate programs that were faster than the original, fastest first."""

    @classmethod
    def of(cls, found: Derivations, *, in_place: bool = False) -> Answer:
        """What was found.

        Args:
            found: by `derive`.
            in_place: it is timed again where it is used. So what is faster with constants near is worth that, where nothing
                is with constants in memory: neither is quite what a network does.
        """
        best = found.best()
        if in_place and not best.path:
            best = found.best(near=True)
        if not best.path:
            return cls(())
        before = found.original.measured_us or 0.0
        faster = [
            (one.measured_us, one.path)
            for one in (found[number] for number in range(1, len(found)))
            if one is not best and not one.note and (one.measured_us or before) < before
        ]
        others = tuple(path for _, path in sorted(faster, key=lambda pair: pair[0] or 0.0))
        return cls(best.path, best.max_rel_err or 0.0, others[:_OTHERS])

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rewrites, each once, in the order in which they are first used."""
        return tuple(dict.fromkeys(rule for rule, _ in self.path))


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    steps: list[Step]
    max_rel_err: float
    others: list[list[Step]] = []


class Answers:
    """Answers by question: in memory, and in entries of the cache where there is one."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._known: dict[str, Answer] = {}
        self._formulas: dict[tuple[object, ...], list[Answer]] = {}
        self._read_last: tuple[Question, Operator] | None = None

    def get(self, question: Question) -> Answer | None:
        """The answer; None where nobody has found one that still applies."""
        if question.key not in self._known:
            answer = self._read(question)
            if answer is None:
                return None
            self._keep(question, answer)
        return self._known[question.key]

    def put(self, question: Question, answer: Answer, *, complete: bool = True) -> None:
        """Remembers an answer; one that is not complete in memory alone."""
        self._keep(question, answer)
        if complete and self._directory is not None:
            entry = _Entry(
                steps_of(answer.path), answer.max_rel_err, [steps_of(p) for p in answer.others]
            )
            write_entry(self._place(question), msgspec.json.encode(entry))

    def made(self, question: Question, answer: Answer) -> Operator:
        """What an answer's steps make, under the names that were given.

        Raises:
            FormatError: a step does not apply.
        """
        if self._read_last is not None and self._read_last[0] is question:
            return self._read_last[1]
        return question.made(answer.path)

    def like(self, question: Question) -> list[Path_] | None:
        """Steps that made the same formula faster at other extents, those first that were fastest somewhere; None where
        other extents say nothing: none were asked for, or nothing was found for too few of them."""
        known = self._formulas.get(question.formula, [])
        best = [answer.path for answer in reversed(known) if answer.path]
        others = [path for answer in reversed(known) for path in answer.others]
        distinct: list[Path_] = []
        for path in (*best, *others):
            if path not in distinct:
                distinct.append(path)
        if not distinct and len(known) < _FRUITLESS:
            return None
        return distinct[:_LIKE]

    def _keep(self, question: Question, answer: Answer) -> None:
        if question.key not in self._known:
            self._formulas.setdefault(question.formula, []).append(answer)
        self._known[question.key] = answer

    def _place(self, question: Question) -> Path:
        assert self._directory is not None
        return self._directory / f"{question.key}.derived"

    def _read(self, question: Question) -> Answer | None:
        body = None if self._directory is None else read_entry(self._place(question))
        if body is None:
            return None
        try:
            entry = msgspec.json.decode(body, type=_Entry)
            others = tuple(path_of(steps) for steps in entry.others)
            answer = Answer(path_of(entry.steps), entry.max_rel_err, others)
            self._read_last = (question, question.made(answer.path))
        except (msgspec.DecodeError, SynoError):
            return None
        return answer


def fastest(
    operator: Operator,
    *,
    constants: Sequence[str],
    dtype: str,
    threads: int,
    cache: bool = True,
) -> Operator:
    """The fastest program that computes an operator, as `derive` finds it; from the cache where it was found before.

    Raises:
        UnknownName: dtypes other than float32 and float64 are not derived.
    """
    from syno.deriving.search import derive

    answers = Answers(usable_cache() if cache else None)
    question = Question.of(operator, constants, dtype, threads)
    answer = answers.get(question)
    if answer is None:
        inside = list(question.constants)
        found = derive(question.operator, constants=inside, dtype=dtype, threads=threads)
        if found.ended == "interrupted":
            raise KeyboardInterrupt
        answer = Answer.of(found)
        answers.put(question, answer)
    return answers.made(question, answer) if answer.path else operator
