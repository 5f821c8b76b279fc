"""``syno.sample`` and ``syno.enumerate``: the operators of a space, at random or all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from syno.errors import SpecError, shown
from syno.policies.space import MOST_LOOKED_AT, expected
from syno.searching.space import Space, as_space
from syno.support.notebook import table
from syno.support.numbers import MOST_SEED, MOST_THREADS, whole

if TYPE_CHECKING:
    from syno import _core
    from syno.operators.operator import Operator
    from syno.torch import SiteGroup

_MOST = 1 << 20
_SHOWN = 20


class Operators(Sequence["Operator"]):
    """Distinct operators of a space; each is built when it is asked for.

    Those of :func:`enumerate` are looked for when they are asked for, too: iterating, ``ops[9]`` and ``ops[:10]`` look
    no further than they must, ``len(ops)`` and ``ops[-1]`` for all.

    Attributes:
        space: what they are of.
    """

    def __init__(self, space: Space, graphs: Iterable[_core.PGraph], *, max_steps: int) -> None:
        self.space = space
        self._known = list(graphs)
        self._most = max_steps
        self._operators: dict[int, Operator] = {}

    def _look_further(self) -> bool:
        """Whether there may be more than what is known; looks for some."""
        return False

    def _known_to(self, count: float) -> int:
        """How many are known, once there are ``count`` or no more."""
        while len(self._known) < count and self._look_further():
            pass
        return len(self._known)

    @property
    def graphs(self) -> list[_core.PGraph]:
        """All their pGraphs, in the same order."""
        self._known_to(math.inf)
        return list(self._known)

    @property
    def max_steps(self) -> int:
        """Operators of up to so many primitives were looked for."""
        return self._most

    @property
    def complete(self) -> bool:
        """Whether these are all operators of the space."""
        return False

    @property
    def stats(self) -> dict[str, Any]:
        """Of an enumeration, what was looked at until now (see :class:`syno._core.EnumerationResult`); else empty."""
        return {}

    def __len__(self) -> int:
        return self._known_to(math.inf)

    def __bool__(self) -> bool:
        return self._known_to(1) > 0

    def __iter__(self) -> Iterator[Operator]:
        at = 0
        while self._known_to(at + 1) > at:
            yield self[at]
            at += 1

    @overload
    def __getitem__(self, index: int) -> Operator: ...

    @overload
    def __getitem__(self, index: slice) -> list[Operator]: ...

    def __getitem__(self, index: int | slice) -> Operator | list[Operator]:
        if isinstance(index, slice):
            ends = (index.start or 0, -1 if index.stop is None else index.stop)
            enough = max(ends) if min(ends) >= 0 and (index.step or 1) > 0 else math.inf
            return [self[i] for i in range(*index.indices(self._known_to(enough)))]
        from syno.operators.operator import Operator

        at = range(self._known_to(index + 1 if index >= 0 else math.inf))[index]
        if at not in self._operators:
            self._operators[at] = Operator.from_pgraph(self._known[at])
        return self._operators[at]

    def steps(self, index: int) -> int:
        """Primitives of an operator."""
        self._known_to(index + 1 if index >= 0 else math.inf)
        return len(self._known[index].steps)

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
        rows = self._rows()
        return "\n".join([self._title(), *(f"  {'  '.join(row)}" for row in rows), *self._rest()])

    def _repr_html_(self) -> str:
        import html

        rows = table(["steps", "FLOPs", "parameters", "formula"], self._rows())
        said = "".join(f"<p>{html.escape(text)}</p>" for text in self._rest())
        return f"<div><p>{html.escape(self._title())}</p>{rows}{said}</div>"

    def _title(self) -> str:
        return f"{self._counted(len(self._known))} with at most {self._most} primitives"

    def _counted(self, count: int) -> str:
        of = f" of {self.space.name!r}" if self.space.name else ""
        return f"{count:,} operator{'s' * (count != 1)}{of}"

    def _rows(self) -> list[list[str]]:
        return [
            [str(self.steps(i)), f"{one.flops:,}", f"{one.params:,}", one.expr]
            for i, one in zip(range(min(_SHOWN, self._known_to(_SHOWN))), self, strict=False)
        ]

    def _rest(self) -> list[str]:
        left = len(self._known) - _SHOWN
        return [f"  and {left:,} more"] if left > 0 else []


class _Enumerated(Operators):
    """Operators found by looking for one primitive more at a time: those of fewer primitives are always the same.

    What an interrupted look has not finished, the next begins again.
    """

    def __init__(
        self,
        space: Space,
        *,
        asked: int | None,
        seconds: float | None,
        limit: int | None,
        checkpoint: Path | None,
        options: dict[str, Any],
    ) -> None:
        super().__init__(space, [], max_steps=int(space.spec.max_steps) if asked is None else asked)
        self._asked, self._seconds, self._limit = asked, seconds, limit
        self._checkpoint, self._options = checkpoint, options
        self._reached = 0
        self._spent = 0.0
        self._looked_at = 0
        self._ended = False
        self._truncated = False
        self._stats: dict[str, Any] = {}

    def _look_further(self) -> bool:
        from syno import _core

        if self._ended:
            return False
        depth = self._reached + 1
        options = {**self._options, "limit": self._limit}
        if self._checkpoint is not None:
            if self._reached == 0 and self._checkpoint.exists():
                depth = self._most  # what was begun goes on
            if depth == self._most:
                options["checkpoint"] = str(self._checkpoint)
        begun = time.monotonic()
        found = _core.enumerate_operators(self.space.spec, max_steps=depth, **options)
        took = time.monotonic() - begun
        self._known, self._reached = list(found.operators), depth
        self._stats = dict(found.stats)
        self._truncated = bool(self._stats["truncated"])
        looked_at = max(1, int(self._stats["children"]))
        coming, self._looked_at = expected(looked_at, self._looked_at), looked_at
        self._spent += took
        if self._seconds is not None:
            late = self._spent + took * coming / looked_at > self._seconds
        else:
            late = self._asked is None and coming > MOST_LOOKED_AT
        full = self._limit is not None and len(self._known) >= self._limit
        self._ended = late or full or depth == self._most
        if full and depth < self._most:
            self._truncated = True
        return True

    @property
    def max_steps(self) -> int:
        """Operators of up to so many primitives were looked for."""
        self._known_to(math.inf)
        return self._reached

    @property
    def complete(self) -> bool:
        """Whether these are all operators of the space."""
        self._known_to(math.inf)
        return self._reached >= int(self.space.spec.max_steps) and not self._truncated

    @property
    def stats(self) -> dict[str, Any]:
        """What was looked at until now, see :class:`syno._core.EnumerationResult`."""
        return dict(self._stats)

    def _title(self) -> str:
        text = self._counted(len(self._known))
        if not self._ended:
            most = "" if self._asked is None else f" of at most {self._most}"
            return f"{text} with at most {self._reached} primitives{most} so far"
        first = "all " if self.complete else ""
        return f"{first}{text} with at most {self._reached} primitives"


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
    return Operators(found, graphs, max_steps=most)


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

    They are looked for when they are asked for, first those of few primitives: ``for op in syno.enumerate(space,
    max_steps=12)`` gives the first ones at once. ``len(...)`` looks for all. Ctrl-C ends that within moments, and
    asking again goes on.

    Without ``max_steps`` they end where one primitive more is expected to take longer than some seconds, or than the
    ``seconds`` given: :attr:`Operators.max_steps` says how far they go, :attr:`Operators.complete` whether these are
    all of the space.

    Args:
        space: a :class:`Space`, a group of sites, a file or a name.
        limit: at most this many, the first.
        seconds: no further number of primitives begins that is expected to end later, by how the last ones
            grew; how far they go then depends on the machine. Time between two looks does not count.
        memory_mb: what the search and its operators may hold, in MB; 0 for no limit.
        checkpoint: a file that keeps what is finished; the same call, also in another process, goes on from there.
            Wants ``max_steps``.
    Raises:
        SpecError: a number outside its range. While they are looked for: the memory does not suffice; the checkpoint
            is of another enumeration, in use, or cannot be written.
        UnknownName, FormatError: there is no such space, or its file holds none; later, a damaged checkpoint.
    """
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
    if checkpoint is not None and (max_steps is None or seconds is not None):
        raise SpecError(
            "[enumerate] a checkpoint is of one number of primitives; give max_steps, and no seconds"
        )
    return _Enumerated(
        found,
        asked=None if max_steps is None else most,
        seconds=allowed,
        limit=limit,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        options={"threads": threads, "memory_mb": memory_mb},
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
