"""``syno.sample`` and ``syno.enumerate``: the operators of a space, at random or all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from syno.errors import SpecError, shown
from syno.notebook import table
from syno.numbers import MOST_SEED, MOST_THREADS, whole
from syno.policies.space import MOST_LOOKED_AT, deepening
from syno.space import Space, as_space

if TYPE_CHECKING:
    from syno import _core
    from syno.operator import Operator
    from syno.torch import SiteGroup

_MOST = 1 << 20
_SHOWN = 20


class Operators(Sequence["Operator"]):
    """Distinct operators of a space; each is built when it is asked for.

    Attributes:
        space: what they are of.
        graphs: their pGraphs, in the same order.
        max_steps: operators of up to so many primitives were looked for.
        complete: these are all of them.
        stats: of an enumeration, what was looked at (see :class:`syno._core.EnumerationResult`); else empty.
    """

    def __init__(
        self,
        space: Space,
        graphs: Iterable[_core.PGraph],
        *,
        max_steps: int,
        complete: bool,
        stats: dict[str, Any] | None = None,
    ) -> None:
        self.space = space
        self.graphs = list(graphs)
        self.max_steps = max_steps
        self.complete = complete
        self.stats = stats or {}
        self._operators: dict[int, Operator] = {}

    def __len__(self) -> int:
        return len(self.graphs)

    @overload
    def __getitem__(self, index: int) -> Operator: ...

    @overload
    def __getitem__(self, index: slice) -> list[Operator]: ...

    def __getitem__(self, index: int | slice) -> Operator | list[Operator]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        from syno.operator import Operator

        at = range(len(self))[index]
        if at not in self._operators:
            self._operators[at] = Operator.from_pgraph(self.graphs[at])
        return self._operators[at]

    def steps(self, index: int) -> int:
        """Primitives of an operator."""
        return len(self.graphs[index].steps)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: formulas and their costs."""
        return {
            "space": self.space.name,
            "max_steps": self.max_steps,
            "complete": self.complete,
            "operators": [
                {
                    "formula": operator.expr,
                    "steps": self.steps(i),
                    "flops": operator.flops,
                    "params": operator.params,
                }
                for i, operator in zip(range(len(self)), self, strict=True)
            ],
        }

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def __str__(self) -> str:
        lines = [self._title()]
        lines += [f"  {'  '.join(row)}" for row in self._rows()]
        return "\n".join([*lines, *self._rest()])

    def _repr_html_(self) -> str:
        import html

        rows = table(["steps", "FLOPs", "parameters", "formula"], self._rows())
        said = "".join(f"<p>{html.escape(text)}</p>" for text in self._rest())
        return f"<div><p>{html.escape(self._title())}</p>{rows}{said}</div>"

    def _title(self) -> str:
        count = len(self)
        which = f"all {count:,}" if self.complete else f"{count:,}"
        of = f" of {self.space.name!r}" if self.space.name else ""
        return f"{which} operator{'s' * (count != 1)}{of} with at most {self.max_steps} primitives"

    def _rows(self) -> list[list[str]]:
        return [
            [str(self.steps(i)), f"{one.flops:,}", f"{one.params:,}", one.expr]
            for i, one in zip(range(_SHOWN), self, strict=False)
        ]

    def _rest(self) -> list[str]:
        return [f"  and {len(self) - _SHOWN:,} more"] if len(self) > _SHOWN else []


def sample(
    space: Space | SiteGroup | _core.Spec | str | Path,
    count: int,
    *,
    seed: int = 0,
    max_steps: int | None = None,
    min_steps: int = 0,
    seconds: float | None = None,
    threads: int = 1,
) -> Operators:
    """``count`` different random operators of a space; fewer where there are no more, or time is up.

    Ctrl-C ends it within moments. The sample is not uniform: each number of primitives gets the same effort.

    Args:
        space: a :class:`Space`, a group of sites, a file or a name.
        seed: the same seed gives the same operators on every machine, whatever ``threads`` is.
        max_steps, min_steps: primitives of an operator; default up to the space's own limit.
        seconds: draw no further after so many; what came until then is the beginning of the whole sample.
    Raises:
        SpecError: a number outside its range; ``min_steps`` exceeds ``max_steps``.
        UnknownName, FormatError: there is no such space, or its file holds none.
    """
    from syno import _core

    found = as_space(space)
    whole("sample", "count", count, 1, _MOST, SpecError)
    whole("sample", "seed", seed, 0, MOST_SEED, SpecError)
    whole("sample", "threads", threads, 1, MOST_THREADS, SpecError)
    most = _steps("sample", found, max_steps)
    whole("sample", "min_steps", min_steps, 0, most, SpecError)
    graphs = _core.sample_operators(
        found.spec,
        n=count,
        seed=seed,
        threads=threads,
        max_steps=most,
        min_steps=min_steps,
        seconds=_seconds("sample", seconds) or 0.0,
    )
    return Operators(found, graphs, max_steps=most, complete=False)


def enumerate(
    space: Space | SiteGroup | _core.Spec | str | Path,
    *,
    max_steps: int | None = None,
    limit: int | None = None,
    seconds: float | None = None,
    threads: int = 1,
    memory_mb: float = 0.0,
    checkpoint: str | Path | None = None,
) -> Operators:
    """All operators of a space with at most ``max_steps`` primitives, none twice, whatever ``threads`` is.

    Without ``max_steps`` it goes on, one primitive more at a time, while that takes some seconds or the ``seconds``
    given: :attr:`Operators.max_steps` says how far it came, :attr:`Operators.complete` whether these are all of the
    space. Ctrl-C ends it within moments.

    Args:
        space: a :class:`Space`, a group of sites, a file or a name.
        limit: keep at most this many, in the order of the search.
        seconds: no further number of primitives begins that is expected to end later, by how the last ones
            grew; how far it comes then depends on the machine.
        memory_mb: what the search and its operators may hold, in MB; 0 for no limit.
        checkpoint: a file that keeps what is finished; the same call goes on from there. Wants ``max_steps``.
    Raises:
        SpecError: a number outside its range; the memory does not suffice; the checkpoint is of another
            enumeration, in use, or cannot be written.
        UnknownName, FormatError: there is no such space, or its file holds none; a damaged checkpoint.
    """
    from syno import _core

    found = as_space(space)
    most = _steps("enumerate", found, max_steps)
    if limit is not None:
        whole("enumerate", "limit", limit, 1, 1 << 62, SpecError)
    whole("enumerate", "threads", threads, 1, MOST_THREADS, SpecError)
    allowed = _seconds("enumerate", seconds)
    if not (isinstance(memory_mb, int | float) and 0 <= memory_mb < math.inf):
        raise SpecError(
            f"[enumerate] memory_mb={shown(memory_mb)} must be a number that is not negative"
        )
    options: dict[str, Any] = {"limit": limit, "threads": threads, "memory_mb": memory_mb}
    if checkpoint is not None:
        if max_steps is None or seconds is not None:
            raise SpecError(
                "[enumerate] a checkpoint is of one number of primitives; give max_steps, and no seconds"
            )
        options["checkpoint"] = str(checkpoint)
    if max_steps is not None and allowed is None:
        result = _core.enumerate_operators(found.spec, max_steps=most, **options)
        return _enumerated(found, result, most)
    begun = time.monotonic()
    before, reached = 0.0, 0
    for depth, result, expected in deepening(found.spec, most, **options):
        reached = depth
        now = time.monotonic() - begun
        looked_at = max(1, int(result.stats["children"]))
        if result.stats["truncated"]:
            break
        # Time grows as what is looked at does.
        longer = (now - before) * expected / looked_at
        if now + longer > allowed if allowed is not None else expected > MOST_LOOKED_AT:
            break
        before = now
    return _enumerated(found, result, reached)


def _enumerated(space: Space, result: _core.EnumerationResult, depth: int) -> Operators:
    stats = dict(result.stats)
    whole_space = depth >= int(space.budgets["max_steps"] or 0)
    return Operators(
        space,
        result.operators,
        max_steps=depth,
        complete=whole_space and not stats["truncated"],
        stats=stats,
    )


def _steps(where: str, space: Space, asked: int | None) -> int:
    """Steps of an operator: at most as many as the space allows."""
    own = int(space.spec.max_steps)
    return own if asked is None else whole(where, "max_steps", asked, 1, own, SpecError)


def _seconds(where: str, asked: float | None) -> float | None:
    if asked is None:
        return None
    try:
        if 0 < float(asked) < math.inf:
            return float(asked)
    except (TypeError, ValueError, OverflowError):
        pass
    raise SpecError(f"[{where}] seconds={shown(asked)} must be a positive number, or None")


__all__ = ["Operators", "enumerate", "sample"]
