"""What a search among equivalent programs found: each program with its steps, costs, times and error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno import _core
from syno.deriving import einnet
from syno.deriving.einnet import Sought
from syno.errors import FormatError, UnknownName
from syno.operators.operator import Operator
from syno.support import notebook
from syno.support.notebook import Printed

if TYPE_CHECKING:
    from syno.kernels.kernel import Kernel
    from syno.kernels.prepack import PrepackedKernel

#: A derived program is worth its rounding, memory and time to compile from this speed-up on.
_WORTH = 1.02

Path_ = tuple[tuple[str, _core.RewriteSite], ...]


@dataclass(frozen=True)
class Step(Printed):
    """One rewrite: what it is, where it was applied, and the scopes that it changed."""

    rule: str
    """Its name, of `syno.deriving.rules()`."""
    where: str
    """The scope, and what in it."""
    statement: str
    """What the rule says."""
    exact: bool
    """Whether it holds for all data; else over the reals, for finite data, up to rounding."""
    before: tuple[str, ...]
    """Scopes that are no more, as text."""
    after: tuple[str, ...]
    """Scopes that are new."""
    multiply_adds: tuple[int, int]
    """Of the whole program before and after."""
    bytes: tuple[int, int]
    """Traffic of the whole program before and after: each tensor a scope touches once, in float32."""

    def __str__(self) -> str:
        kind = "" if self.exact else " (over the reals: for finite data)"
        lines = [f"{self.rule} at {self.where}{kind}: {self.statement}"]
        lines += [f"  - {text}" for text in self.before]
        lines += [f"  + {text}" for text in self.after]
        flops, traffic = self.multiply_adds, self.bytes
        lines.append(
            f"  multiply-adds {flops[0]:,} -> {flops[1]:,}, bytes {traffic[0]:,} -> {traffic[1]:,}"
        )
        return "\n".join(lines)


@dataclass
class Derived(Printed):
    """An operator that computes what another one does. `operator` takes the same inputs in the same order."""

    operator: Operator
    path: Path_
    """(rule, site) of each rewrite, from the original on; empty for the original."""
    exact: bool
    """Every rewrite is; else it is equal over the reals, for finite data, up to rounding."""
    original: Operator
    """What it was made of."""
    constants: tuple[str, ...] = ()
    """Inputs that stay the same over calls: what depends on them alone is computed once."""
    dtype: str = "float32"
    """Of inputs and results, and of the times below."""
    threads: int = 1
    """Of a call."""
    constants_from: int = 0
    """The level of the machine model that constants come from at each call, as for `prepacked`."""
    roughness: float = 1.0
    """About how many times the rounding errors of a plain sum of products it makes, by the constant matrices in it."""
    guessed_us: float = 0.0
    """By the search, of its cost alone."""
    predicted_us: float | None = None
    """By the machine model, of a schedule; None where none was made."""
    measured_us: float | None = None
    """Median of calls in turns with the original; None where it was not timed."""
    cold_us: float | None = None
    """The same where constants come from main memory at each call; None where they stay in a near cache anyway."""
    errors: dict[str, float] = field(default_factory=dict)
    """Largest difference from float64, as a part of the largest value, by kind of data."""
    note: str = ""
    """Why it is out of the question, where it is."""
    label: str = ""
    """Which operator of a library the product of it is, where one was looked for."""
    _steps: list[Step] | None = field(default=None, repr=False)

    @property
    def max_rel_err(self) -> float | None:
        """The largest of `errors`; None where it was not measured."""
        return max(self.errors.values()) if self.errors else None

    @property
    def multiply_adds(self) -> int:
        """Of one call, without what is computed once."""
        return int(self._call.cost(0).flops)

    @property
    def bytes(self) -> int:
        """Compulsory traffic of the scopes of one call in float32."""
        return int(self._call.cost(0).bytes)

    @property
    def constant_bytes(self) -> tuple[int, int]:
        """Of the constants that are given, and of what calls read in their place."""
        before, after = _core.constant_bytes(self.operator.program, list(self.constants))
        return before, after

    @property
    def _call(self) -> _core.Program:
        parts = _core.fold_constants(self.operator.program, list(self.constants))
        return self.operator.program if parts is None else parts[1]

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rewrites, in order; a search in EINNET's space says "einnet split_sum" for each move."""
        return tuple(
            name
            for rule, site in self.path
            for name in (einnet.names(site) if rule == einnet.STEP else (rule,))
        )

    @property
    def steps(self) -> list[Step]:
        """Each rewrite with the scopes before and after it."""
        if self._steps is None:
            self._steps = _steps_of(self.original.program, self.path)
        return self._steps

    def compile(self, **options: Any) -> Kernel:
        """A verified kernel of all inputs; constants are transformed in each call.

        Args:
            options: of `Operator.compile`, beside dtype and threads, which are this one's.
        """
        made: Kernel = self.operator.compile(self.dtype, threads=self.threads, **options)
        return made

    def prepack(self, *, check: bool = True) -> PrepackedKernel:
        """A kernel whose constants are given once: `.prepack().pack(k=...)(x)`; verified, unless `check` is False."""
        from syno.kernels.prepack import prepacked

        return prepacked(
            self.operator,
            list(self.constants),
            dtype=self.dtype,
            threads=self.threads,
            constants_from=self.constants_from,
            check=check,
        )

    def explain(self) -> str:
        """Every step: the rule, where, what was before and after, multiply-adds and bytes."""
        if not self.path:
            return f"the original: {self.original.expr}"
        return "\n\n".join(f"{n}. {step}" for n, step in enumerate(self.steps, 1))

    def to_svg(self, path: str | Path | None = None) -> str:
        """The steps as a picture, with multiply-adds and bytes after each: SVG; written to a file, too.

        Args:
            path: an .svg file to write.
        Raises:
            SynoError: it cannot be written.
        """
        from syno.deriving.drawing import to_svg

        return to_svg(self, path)

    def to_dict(self) -> dict[str, Any]:
        """JSON of it, sites included: `syno.deriving.Derivations.load` makes it again by its steps."""
        return {
            "steps": [
                {
                    "rule": rule,
                    "scope": site.scope,
                    "iterator": site.iterator,
                    "other": site.other,
                    "made": site.made,
                    "numbers": list(site.numbers),
                }
                for rule, site in self.path
            ],
            "exact": self.exact,
            "program": str(self.operator.program.text()),
            "multiply_adds": self.multiply_adds,
            "bytes": self.bytes,
            "constant_bytes": list(self.constant_bytes),
            "guessed_us": self.guessed_us,
            "predicted_us": self.predicted_us,
            "measured_us": self.measured_us,
            "cold_us": self.cold_us,
            "errors": self.errors,
            "note": self.note,
        }

    def __str__(self) -> str:
        return f"{' -> '.join(self.rules) or 'the original'}\n{self.operator.program}"


def fastest(original: Derived, derived: Sequence[Derived], *, near: bool = False) -> Derived | None:
    """The fastest of those that were measured and are accurate enough; None where no one gains two per cent.

    Fewer multiply-adds often cost more constants. Who calls other kernels between, as a network does, finds these in main
    memory: what is slower than the original then is out of the question, however fast it is while they are near.

    Args:
        original: what they are compared with, measured as well.
        derived: those that were made of it.
        near: constants stay in the caches, or another look is taken where they are used: that does not matter.
    """
    before = original.measured_us or 0.0
    gaining = [
        one
        for one in derived
        if one.measured_us is not None
        and not one.note
        and one.measured_us * _WORTH <= before
        and (near or not _slower_cold(one, original))
    ]
    return min(gaining, key=lambda one: one.measured_us or 0.0, default=None)


def _slower_cold(one: Derived, original: Derived) -> bool:
    if one.cold_us is None or original.cold_us is None:
        return False
    return one.cold_us > original.cold_us


class Derivations:
    """The original first, then what was made of it, fastest first as far as is known. Made by `syno.derive` and `load`."""

    def __init__(
        self,
        derived: list[Derived],
        *,
        states: int = 0,
        seconds: float = 0.0,
        ended: str = "exhausted",
        max_rel_err: float = 1e-5,
        sought: Sought | None = None,
    ) -> None:
        self._all = derived
        self.sought = sought
        """What a search for an operator came to; None for the other searches."""
        self.states = states
        """Different programs that were seen."""
        self.seconds = seconds
        """That the search took, without predicting and measuring."""
        self.ended = ended
        """"exhausted", "seconds", "states", "memory" or "interrupted"."""
        self.max_rel_err = max_rel_err

    @property
    def original(self) -> Derived:
        return self._all[0]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Derived]:
        """The original first."""
        return iter(self._all)

    def __getitem__(self, number: int) -> Derived:
        """The original is 0.

        Raises:
            UnknownName: there are fewer.
        """
        if not isinstance(number, int) or not 0 <= number < len(self._all):
            raise UnknownName(
                f"[derive] there is no derivation {number}; there are 0 (the original) to {len(self) - 1}"
            )
        return self._all[number]

    def best(self, *, near: bool = False) -> Derived:
        """The fastest that was measured and is accurate enough, and no slower than the original where constants come from
        memory; the original where none gains two per cent.

        Args:
            near: constants stay in the caches from call to call, so that their times from memory do not matter.
        """
        return fastest(self.original, self._all[1:], near=near) or self.original

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows, as text."""
        columns = [
            "",
            "steps",
            "multiply-adds",
            "bytes",
            "predicted us",
            "measured us",
            "cold us",
            "error",
            "",
        ]
        best = self.best()
        rows = []
        for number, one in enumerate(self._all):
            error = one.max_rel_err
            said = [text for text in (one.note, one.label) if text]
            if not one.exact:
                said.append("for finite data")
            if one is best:
                said.append("best")
            rows.append(
                [
                    str(number),
                    ", ".join(one.rules) or "the original",
                    f"{one.multiply_adds:,}",
                    f"{one.bytes:,}",
                    _microseconds(one.predicted_us),
                    _microseconds(one.measured_us),
                    _microseconds(one.cold_us),
                    "" if error is None else f"{error:.1e}",
                    "; ".join(said),
                ]
            )
        cold = columns.index("cold us")
        if not any(row[cold] for row in rows):
            columns, rows = (
                columns[:cold] + columns[cold + 1 :],
                [r[:cold] + r[cold + 1 :] for r in rows],
            )
        return columns, rows

    def __str__(self) -> str:
        columns, rows = self.table()
        widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
        words = {1, 7}
        lines = [
            "  ".join(
                cell.ljust(width) if i in words else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in [columns, *rows]
        ]
        ended = {"exhausted": "all there are", "interrupted": "interrupted"}.get(self.ended, "")
        lines.append(
            f"{self.states:,} programs in {self.seconds:.2f} s{f' ({ended})' if ended else ''}; "
            "explain() of each tells its steps"
        )
        if self.sought is not None:
            lines.append(str(self.sought))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        columns, rows = self.table()
        return notebook.table(columns, rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON of it; `load` reads it again."""
        from syno.deriving.kept import to_dict

        return to_dict(self)

    def save(self, path: str | Path) -> Path:
        """Writes a file of it.

        Args:
            path: of the file, JSON; replaced where it is there.
        Returns:
            The path.
        Raises:
            FormatError: it cannot be written.
        """
        from syno.deriving.kept import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Derivations:
        """Reads a file of `save`: every program is made again by its steps, nothing in it is believed.

        Args:
            path: of the file.
        Raises:
            FormatError: it is no such file, or its steps do not lead to its programs.
        """
        from syno.deriving.kept import load

        return load(Path(path))


def _microseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _scopes(program: _core.Program) -> list[str]:
    """The statements of a program as text, inputs and the return left out."""
    return [
        line.strip()
        for line in str(program.text()).splitlines()
        if line.strip() and line.split()[0] not in ("input", "weight", "constant", "return", "size")
    ]


def _steps_of(program: _core.Program, path: Path_) -> list[Step]:
    statements = {name: (text, exact) for name, text, exact, _ in _core.rewrite_rows()}
    steps = []
    for rule, site in path:
        if rule == einnet.STEP:
            for moved, where, prefix in einnet.moves(program, site):
                statements[moved] = (einnet.STATEMENT, True)
                steps.append(_step(statements, moved, where, program, prefix))
                program = prefix
            continue
        after = _core.rewrite(program, rule, site)
        steps.append(_step(statements, rule, str(site), program, after))
        program = after
    return steps


def _step(
    statements: dict[str, tuple[str, bool]],
    rule: str,
    where: str,
    program: _core.Program,
    after: _core.Program,
) -> Step:
    was, now = _scopes(program), _scopes(after)
    text, exact = statements[rule]
    costs = program.cost(0), after.cost(0)
    return Step(
        rule,
        where,
        text,
        exact,
        tuple(line for line in was if line not in now),
        tuple(line for line in now if line not in was),
        (int(costs[0].flops), int(costs[1].flops)),
        (int(costs[0].bytes), int(costs[1].bytes)),
    )


def made_by(operator: Operator, path: Path_) -> Operator:
    """What the steps make of an operator.

    Args:
        operator: a concrete one.
        path: (rule, site) of each rewrite in turn, as `Derived.path`.
    Raises:
        FormatError: a step does not apply; the message says which.
    """
    from syno.errors import SynoError

    program = operator.program
    for number, (rule, site) in enumerate(path, 1):
        try:
            program = _core.rewrite(program, rule, site)
        except SynoError as error:
            raise FormatError(f"[derive] step {number}, {rule} at {site}: {error}") from error
    return Operator(program) if path else operator
