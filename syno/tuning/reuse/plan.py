"""A plan of reuse: who is tuned, who reuses whom, over which bridges, with the measurements that are expected."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from syno.errors import FormatError, unknown_name
from syno.support.files import read_regular, write_whole
from syno.support.notebook import table
from syno.tuning.reuse.expected import SEARCH_TRIALS, expected_measurements
from syno.tuning.reuse.graph import ROOT, ChoiceGraph, Tree, arborescence, choice_graph
from syno.tuning.reuse.greedy_steiner import greedy_tree
from syno.tuning.reuse.operators import Operator, bridges, reuse_pairs
from syno.tuning.reuse.sets import groups
from syno.tuning.reuse.steiner import steiner_tree

#: How parents are chosen: "each" has none; "no-bridges" the least arborescence; "bridges" the least Steiner tree;
#: "greedy" the paper's approximation of it.
Selection: TypeAlias = Literal["each", "no-bridges", "bridges", "greedy"]
SELECTIONS = ("each", "no-bridges", "bridges", "greedy")

VERSION = 1
_LARGEST = 1 << 26


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is done for one operator. Steps are in an order in which parents come first."""

    name: str
    group: str
    """Type and sketches, between which nothing is reused."""
    parent: str = ""
    """Whose program is reused; empty: it is tuned."""
    bridge: bool = False
    """Only others need it."""
    expected: float
    """Measurements."""

    @property
    def action(self) -> str:
        if self.parent:
            return "reuse"
        return "tune" if self.expected > 0 else "construct"


class ReusePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps for a set of operators, and how good the plan is."""

    version: int = VERSION
    selection: str
    steps: tuple[Step, ...]
    cost: float
    """Expected measurements of all steps."""
    bound: float
    """No plan of this kind expects fewer; equal to `cost` where this one is optimal."""

    @property
    def gap(self) -> float:
        return self.cost / self.bound - 1 if self.bound > 0 else 0.0

    def __str__(self) -> str:
        lines = [
            f"{self.selection}: {self.cost:.0f} measurements expected for {len(self.steps)} operators"
            + (f" (at most {100 * self.gap:.1f} % above the least)" if self.gap > 0 else "")
        ]
        for step in self.steps:
            what = f"{step.action} {step.parent}".rstrip()
            lines.append(
                f"  {step.name}{' (bridge)' if step.bridge else ''}: {what}, {step.expected:.0f}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (
                step.name,
                "bridge" if step.bridge else "",
                step.action,
                step.parent,
                f"{step.expected:.0f}",
            )
            for step in self.steps
        ]
        return table(("operator", "", "", "from", "measurements"), rows)

    def to_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made

    def save(self, path: str | Path) -> None:
        """Writes it as JSON, whole or not at all.

        Raises:
            OSError: the directory cannot be written.
        """
        write_whole(Path(path), msgspec.json.format(msgspec.json.encode(self)).decode() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> ReusePlan:
        """Reads what `save` wrote.

        Raises:
            FormatError: there is no such file, it is damaged, newer, or no plan: a parent comes after its
                child, or is missing.
        """
        content = read_regular(Path(path), _LARGEST, links=True)
        if content is None:
            raise FormatError(f"[reuse] there is no plan in {path}")
        try:
            made = msgspec.json.decode(content, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise FormatError(f"[reuse] {path}: {error}") from error
        if made.version > VERSION:
            raise FormatError(
                f"[reuse] {path}: version {made.version} is newer than {VERSION}; use a newer syno"
            )
        known: set[str] = set()
        for step in made.steps:
            if step.name in known or (step.parent and step.parent not in known):
                raise FormatError(
                    f"[reuse] {path}: {step.name} is there twice, or before its parent"
                )
            known.add(step.name)
        return made


def select(graph: ChoiceGraph, selection: str, *, limit_s: float = 60.0) -> Tree:
    """The tree of a selection; of "bridges" at best the greedy one when `limit_s` is over.

    Raises:
        UnknownName: not one of `SELECTIONS`.
        KernelError: a library that it needs is not installed.
    """
    match selection:
        case "each":
            edges = tuple((ROOT, node) for node in range(graph.terminals))
            cost = sum(graph.costs[edge] for edge in edges)
            return Tree(edges, cost, cost)
        case "no-bridges":
            return arborescence(graph)
        case "greedy":
            return greedy_tree(graph)
        case "bridges":
            return steiner_tree(graph, limit_s=limit_s)
        case _:
            raise unknown_name("selection", selection, SELECTIONS)


def plan_operators(
    operators: tuple[Operator, ...],
    *,
    selection: str = "bridges",
    samples: int | None = 10,
    seed: int = 0,
    sketches: Mapping[str, str] | None = None,
    trials: int = SEARCH_TRIALS,
    limit_s: float = 60.0,
) -> ReusePlan:
    """Plans the reuse among operators on a GPU, as the paper does.

    Args:
        operators: distinct ones; only those of one type with the same sketches reuse each other.
        selection: one of `SELECTIONS`.
        samples: of :func:`~syno.tuning.reuse.expected.expected_measurements`; None: exact averages.
        sketches: by group (`Step.group`), the sketch that the first result of a group with several was found to
            have: costs are estimated again for it.
        trials: of a search without anything to reuse.
        limit_s: of the exact selection, for each group.
    Raises:
        UnknownName: not one of `SELECTIONS`.
        KernelError: a library that it needs is not installed.
    """
    steps: list[Step] = []
    bound = 0.0
    for group, members in groups(tuple(dict.fromkeys(operators))).items():
        name = f"{group[0]} ({', '.join(group[1])})"
        everyone = members + (bridges(members) if selection in ("bridges", "greedy") else ())
        sketch = (sketches or {}).get(name)

        def cost(
            a: int, b: int, of: tuple[Operator, ...] = everyone, sketch: str | None = sketch
        ) -> float:
            return expected_measurements(of[a], of[b], samples=samples, seed=seed, sketch=sketch)

        graph = choice_graph(
            reuse_pairs(everyone), len(everyone), len(members), cost, lambda _: float(trials)
        )
        tree = select(graph, selection, limit_s=limit_s)
        bound += tree.bound
        steps.extend(
            Step(
                name=str(everyone[child]),
                group=name,
                parent=str(everyone[parent]) if parent != ROOT else "",
                bridge=child >= len(members),
                expected=graph.costs[(parent, child)],
            )
            for parent, child in tree.edges
        )
    return ReusePlan(
        selection=selection,
        steps=tuple(steps),
        cost=sum(step.expected for step in steps),
        bound=bound,
    )
