"""Steps that served one program, tried on another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from syno import _core
from syno.deriving import einnet
from syno.deriving.derivations import Derived, Path_, made_by
from syno.errors import FormatError
from syno.machines.model import machine_model
from syno.operators.operator import Operator


def replayed(
    paths: Sequence[Path_],
    operator: Operator,
    constants: Sequence[str],
    dtype: str,
    threads: int,
    constants_from: int,
    *,
    seen: Sequence[Derived],
) -> list[Derived]:
    """What paths make of an operator, each program once, without those that were seen."""
    exact = {str(name): bool(is_exact) for name, _, is_exact, _ in _core.rewrite_rows()}
    exact[einnet.STEP] = True
    machine = machine_model(measure=True)
    keys = {one.operator.program.structural_key() for one in seen}
    found = []
    for made, taken in _finished(operator, paths):
        key = made.program.structural_key()
        if key in keys:
            continue
        keys.add(key)
        kept = all(exact[rule] for rule, _ in taken)
        about = operator, tuple(constants), dtype, threads, constants_from
        one = Derived(made, taken, kept, *about, roughness=_core.roughness(made.program))
        one.guessed_us = 1e6 * _core.guessed_seconds(
            made.program,
            machine,
            constants=list(constants),
            element_bytes=8 if dtype == "float64" else 4,
        )
        found.append(one)
    return found


def _finished(operator: Operator, paths: Sequence[Path_]) -> Iterator[tuple[Operator, Path_]]:
    """What each path makes of an operator. Where its last step is about where the results of a program lie, the program
    has others here: all that there are lie as it says, and as they lie without it."""
    last = _finishing()
    for path in paths:
        made, taken = _as_far_as_it_goes(operator, [step for step in path if step[0] not in last])
        yield made, taken
        ends = [
            (rule, site)
            for rule in dict.fromkeys(rule for rule, _ in path if rule in last)
            for site in _core.rewrite_sites(made.program, rule)
        ]
        finished, more = _as_far_as_it_goes(made, ends)
        if more:
            yield finished, taken + more


def _finishing() -> set[str]:
    return {str(name) for name, _, _, finishes in _core.rewrite_rows() if finishes}


def depth_of(path: Path_) -> int:
    """Its steps, without those about where results lie."""
    last = _finishing()
    return sum(rule not in last for rule, _ in path)


def _as_far_as_it_goes(
    operator: Operator, path: Sequence[tuple[str, _core.RewriteSite]]
) -> tuple[Operator, Path_]:
    taken: list[tuple[str, _core.RewriteSite]] = []
    for step in path:
        try:
            operator = made_by(operator, (step,))
        except FormatError:
            continue
        taken.append(step)
    return operator, tuple(taken)
