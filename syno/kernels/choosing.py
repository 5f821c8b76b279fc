"""How a kernel comes to its schedule: the one on record, kept or constructed, without spills; a new one where it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from syno import _core
from syno.errors import SynoError, unknown_name
from syno.kernels.cache import usable_cache
from syno.kernels.construct import Chosen, Policy, choose_schedule, construct, policies
from syno.kernels.spills import without_spills
from syno.operators.operator import Operator

T = TypeVar("T")

_log = logging.getLogger("syno.kernels.choosing")


def by_policy(operator: Operator, policy: Policy, dtype: str, threads: int) -> Chosen:
    """What a policy makes now, whatever is on record or kept."""
    if callable(policy) or policy != "search":
        if not callable(policy) and policy not in list(policies()):
            raise unknown_name("policy", policy, ["search", *policies()])
        made = construct(operator, threads=threads, dtype=dtype, policy=policy, explain=True)
        return Chosen(made.schedule, "constructed", made=made)
    from syno.tuning.search import tune

    found = tune(operator, threads=threads, dtype=dtype, keep=False, progress="off")
    return Chosen(found.schedule, "recorded")


def made_with(choose: Callable[[bool], Chosen], make: Callable[[Chosen], T]) -> T:
    """What is made with the schedule that is on record or kept; where that does not work, with a new one.

    Args:
        choose: a schedule; constructed anew if its argument is true.
    """
    choice = choose(False)
    if not choice.new:
        try:
            return make(choice)
        except (SynoError, MemoryError) as error:
            _log.warning("a schedule that was %s makes no kernel: %s", choice.origin, error)
        choice = choose(True)
    try:
        return make(choice)
    except BaseException:
        choice.forget()
        raise


def schedule_of(
    operator: Operator,
    *,
    dtype: str,
    threads: int,
    constants: Sequence[str] = (),
    cache: bool = True,
    codes: list[_core.Kernel] | None = None,
    anew: bool = False,
    constants_from: int = 0,
    nest_of: Callable[[_core.Schedule], _core.LoopNest] | None = None,
    nest_key: str = "",
) -> Chosen:
    """The schedule that a kernel takes where none is given.

    Args:
        nest_of: what every call of a schedule runs, where that is not what it makes of the operator; `nest_key` tells it
            from others.
        anew: construct it whatever is on record or kept.
        constants, constants_from: inputs that stay the same over calls, as for `syno.kernels.prepack.prepacked`.
        codes: takes what is compiled on the way, so that who compiles it again finds it.
    """
    directory = usable_cache() if cache else None

    def mend(made: _core.Schedule) -> _core.Schedule:
        return without_spills(
            operator.program,
            made,
            dtype=dtype,
            threads=threads,
            constants=constants,
            codes=codes,
            nest_of=nest_of,
        )

    return choose_schedule(
        operator.program,
        dtype,
        threads,
        directory,
        constants=constants,
        constants_from=constants_from,
        mend=mend,
        anew=anew,
        made_for=nest_key,
    )
