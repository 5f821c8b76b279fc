"""What a search of a model would search by default: the space of each group of layers, and how big it is."""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno.errors import SpecError
from syno.policies.space import deepening
from syno.searching.space import Space
from syno.support.notebook import table

if TYPE_CHECKING:
    from syno.searching.search_space import SearchSpace
    from syno.torch import SiteGroup, Sites

#: Operators are counted until one primitive more would look at about so many partial ones: a second or less.
_LOOKED_AT = 1_000_000

_COLUMNS = ("group", "layers", "valuations", "MFLOPs", "operators", "sampled to", "space")


@dataclass(frozen=True)
class SpaceSize:
    """The space of a group, and how big it is.

    Attributes:
        group: what its layers have in common, the stage's name in a session.
        sites: names of its layers.
        flops: multiply-adds of all calls of its layers.
        space: what would be searched; ``None`` where its limits contradict each other.
        operators: how many there are of at most ``counted_to`` primitives.
        growth: how many times as many one primitive more is expected to give.
        problem: why nothing would be searched; else empty.
    """

    group: str
    sites: tuple[str, ...]
    flops: int
    space: Space | None
    operators: int
    counted_to: int
    growth: float | None
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "group": self.group,
            "sites": list(self.sites),
            "flops": self.flops,
            "valuations": None if self.space is None else len(self.space.valuations),
            "max_steps": None if self.space is None else self.space.spec.max_steps,
            "operators": self.operators,
            "counted_to": self.counted_to,
            "growth": self.growth,
            "problem": self.problem,
            "space": None if self.space is None else self.space.to_dict(),
        }


class SpaceSizes(Sequence[SpaceSize]):
    """What a search would search, group by group, and the layers that it leaves alone; prints as a table.

    Attributes:
        left: why a layer that could be replaced is not searched, by its name.
    """

    def __init__(self, sizes: Sequence[SpaceSize], left: dict[str, str]) -> None:
        self._sizes = tuple(sizes)
        self.left = left

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, index: Any) -> Any:
        return self._sizes[index]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"groups": [size.to_dict() for size in self], "not_searched": dict(self.left)}

    def _rows(self) -> list[list[str]]:
        return [_row(size) for size in self]

    def _rest(self) -> list[str]:
        lines = []
        for reason in dict.fromkeys(self.left.values()):
            those = [name or "the model" for name, why in self.left.items() if why == reason]
            listed = ", ".join(those[:6]) + (
                f" and {len(those) - 6} more" if len(those) > 6 else ""
            )
            lines.append(f"not searched: {listed}: {reason}")
        return lines

    def __str__(self) -> str:
        rows = [list(_COLUMNS), *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
        ]
        return "\n".join([*lines, *self._rest()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{html.escape(line)}</p>" for line in self._rest())
        return f"<div>{table(list(_COLUMNS), self._rows())}{said}</div>"


def sizes_of(found: Sites, asked: SearchSpace) -> SpaceSizes:
    """What :func:`syno.search` would search in these layers when it is asked so.

    Raises:
        SpecError: the space that was given fits no group.
    """
    from syno.searching.plan import why_not_worth
    from syno.searching.proposers import space_problem

    whole = sum(site.flops for site in found)
    left = {site.name: why_not_worth(site, whole) for site in found if site.replaceable}
    worth = [name for name, reason in left.items() if not reason]
    left = {name: reason for name, reason in left.items() if reason}
    groups = found.where(predicate=lambda site: site.name in worth).groups()
    if not groups:
        return SpaceSizes([], left)
    chosen = asked.chosen(groups, functools.cache(space_problem))
    taken = {site.name for group, _ in chosen for site in group.sites}
    others = [site.name for group in groups for site in group.sites if site.name not in taken]
    left.update(dict.fromkeys(others, "the space is for other layers"))
    return SpaceSizes([_size(group, spec) for group, spec in chosen], left)


def _size(group: SiteGroup, spec: str) -> SpaceSize:
    names = tuple(site.name for site in group.sites)
    try:
        space = Space.from_json(json.dumps({**json.loads(spec), "name": group.key}))
    except SpecError as error:
        return SpaceSize(group.key, names, group.flops, None, 0, 0, None, str(error))
    counts = [0]
    for _, result, coming in deepening(space.spec, space.spec.max_steps):
        counts.append(len(result.operators))
        if coming > _LOOKED_AT:
            break
    # Odd and even numbers of primitives give unlike numbers of operators: the growth of two, halved.
    growth = (counts[-1] / counts[-3]) ** 0.5 if len(counts) > 3 and counts[-3] else None
    problem = "" if counts[-1] else space.why_empty() or ""
    return SpaceSize(
        group.key, names, group.flops, space, counts[-1], len(counts) - 1, growth, problem
    )


def _row(size: SpaceSize) -> list[str]:
    row = [size.group, str(len(size.sites)), "", f"{size.flops / 1e6:.2f}"]
    if size.space is None or size.problem:
        return [*row, "none", "", size.problem]
    most = int(size.space.spec.max_steps)
    counted = f"{size.operators:,} of at most {size.counted_to} primitives"
    if size.growth is not None and size.counted_to < most:
        counted += f", x{size.growth:.1f} each more"
    row[2] = str(len(size.space.valuations))
    deep = "all counted" if size.counted_to >= most else f"{most} primitives"
    return [*row, counted, deep, ", ".join(size.space.extensions)]


__all__ = ["SpaceSize", "SpaceSizes", "sizes_of"]
