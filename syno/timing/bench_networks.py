"""Several networks, each as it is, compiled whole and as others compile it: one comparison a network, and all together."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syno import models
from syno.errors import ArgumentError, unknown_name
from syno.support.numbers import significant
from syno.timing.bench import Comparison


@dataclass(frozen=True, repr=False)
class NetworkComparisons(Mapping[str, Comparison]):
    """What `bench_networks()` measured: from a network's name to its `Comparison`; prints as one table."""

    networks: dict[str, Comparison]

    def __getitem__(self, name: str) -> Comparison:
        return self.networks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.networks)

    def __len__(self) -> int:
        return len(self.networks)

    def contestants(self) -> list[str]:
        """All that ran somewhere, the original first."""
        return list(dict.fromkeys(each for made in self.networks.values() for each in made))

    def geomean(self, contestant: str) -> float:
        """The geometric mean of its speed-ups over the original, of the networks that it ran."""
        logs = [math.log(c[contestant].speed_up) for c in self.networks.values() if contestant in c]
        return math.exp(sum(logs) / len(logs)) if logs else math.nan

    def to_dict(self) -> dict[str, Any]:
        return {
            "networks": {name: made.to_dict() for name, made in self.networks.items()},
            "geomean": {each: self.geomean(each) for each in self.contestants()},
        }

    def rows(self) -> list[tuple[str, ...]]:
        """The head of the table, a row a network, the means."""
        contestants = self.contestants()
        rows = [("network", "original, us", *contestants[1:])]
        for name, made in self.networks.items():
            cells = [f"{made[c].speed_up:.2f}x" if c in made else "-" for c in contestants[1:]]
            rows.append((name, significant(made[contestants[0]].median_us), *cells))
        means = [f"{self.geomean(c):.2f}x" for c in contestants[1:]]
        return [*rows, ("geometric mean", "", *means)]

    def __repr__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.rjust(w) if n else cell.ljust(w)
                for n, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        lines += [
            f"{name} without {who}: {why}"
            for name, made in self.networks.items()
            for who, why in made.skipped.items()
        ]
        first = next(iter(self.networks.values()))
        threads = first.timings[0].threads
        lines.append(f"{threads} thread{'s' * (threads != 1)}; {first.machine}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def cells(tag: str, row: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row) + "</tr>"

        head, *rows = self.rows()
        body = "".join(cells("td", row) for row in rows)
        note = html.escape(repr(self).splitlines()[-1])
        return (
            f"<table><thead>{cells('th', head)}</thead><tbody>{body}</tbody></table><p>{note}</p>"
        )


def bench_networks(
    names: Sequence[str],
    *,
    against: Sequence[str] = ("eager", "whole"),
    threads: int = 1,
    batch: int = 1,
    seed: int = 0,
    progress: Callable[[str, Comparison], None] | None = None,
) -> NetworkComparisons:
    """Times the package's networks with random weights, each in eager and the other forms that are asked for, in turns.

    Args:
        names: of `syno.models.names()`.
        against: of `syno.searching.revisit.CONTESTANTS`; ``"eager"`` is always there.
        batch: images, or texts, of the examples.
        seed: of weights and examples.
        progress: called with each network's comparison once it is there.
    Raises:
        UnknownName: another network or contestant.
        ArgumentError: no network, one twice, or a batch below 1.
    """
    import torch

    from syno.searching.revisit import CONTESTANTS, bench_original

    if not names or len(set(names)) != len(names):
        raise ArgumentError(f"[bench] networks {', '.join(names) or 'none'}", fix="name each once")
    if batch < 1:
        raise ArgumentError(f"[bench] a batch of {batch}", fix="at least 1")
    for name in names:
        if name not in models.names():
            raise unknown_name("network", name, models.names())
    for name in against:
        if name not in CONTESTANTS:
            raise unknown_name("contestant", name, CONTESTANTS)
    made: dict[str, Comparison] = {}
    for name in names:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, example = models.make(name).eval(), models.example(name, batch)
        made[name] = bench_original(model, example, against=against, threads=threads)
        if progress is not None:
            progress(name, made[name])
    return NetworkComparisons(made)
