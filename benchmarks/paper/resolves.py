"""Whether a task tells operators apart: 1x1, separable, grouped and the original, pair by pair, in standard errors."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper import contest
from paper.searched_config import Images
from syno import _core
from syno.known import Place, known_operators
from syno.searching.network import NetworkEvaluator
from syno.searching.plan import default_sites
from syno.searching.proposers import operator_text
from syno.searching.result import EVALUATOR
from syno.session import Budget, Component, Limits, Prune, Session, Stage
from syno.session.protocols import Gains, Proposal
from syno.support.files import write_whole
from syno.torch.groups import SiteGroup
from syno.training.tasks import load_task

#: Known operators that a task must tell apart, beside the original.
NAMES = ("pointwise", "separable", "grouped")


class Listed:
    """Proposes the operators it was given, in their order."""

    def __init__(self, *, seed: int, operators: Sequence[Mapping[str, str]]) -> None:
        self._operators = [(one["known"], one["pgraph"]) for one in operators]
        self._asked = 0

    def ask(self, count: int) -> list[Proposal]:
        chosen = range(self._asked, min(self._asked + count, len(self._operators)))
        self._asked += len(chosen)
        return [
            Proposal(
                ticket=place,
                operator=operator_text(_core.PGraph.parse(self._operators[place][1])),
                why="listed",
                known=self._operators[place][0],
            )
            for place in chosen
        ]

    def tell(self, ticket: int, reward: float, gains: Gains) -> None:
        """What they are worth decides nothing."""

    def state(self) -> str:
        return str(self._asked)

    def restore(self, state: str) -> None:
        self._asked = int(state)


def first_group(task: Any, config: Images) -> tuple[SiteGroup, float, int]:
    """The layers that are replaced, their share of the network's multiply-adds, and these.

    Raises:
        SystemExit: the network is smaller than the sizes say, or too much of it is left as it is.
    """
    model = task.make_model(config.seed)
    groups = default_sites(model, task.example()).groups()[: config.groups]
    from syno.torch import sites

    whole = sum(site.flops for site in sites(model, task.example(), repeats=1))
    share = sum(group.flops for group in groups) / whole
    if whole < config.least_flops or share < config.least_share:
        raise SystemExit(
            f"the network has {whole:,} multiply-adds, {share:.0%} of them in layers that are replaced; at least "
            f"{config.least_flops:,} and {config.least_share:.0%} are wanted: choose other widths, blocks or canvas"
        )
    return groups[0], share, whole


def known_of(group: SiteGroup) -> list[dict[str, str]]:
    """The first operator of each name that the group's shapes allow."""
    place = Place(_core.Spec.from_json(group.to_json()), group.window)
    found: list[dict[str, str]] = []
    for name in NAMES:
        one = next((k for k in known_operators(place, [name]) if k.graph is not None), None)
        if one is None:
            raise SystemExit(f"there is no {name} operator for {group.key}")
        found.append({"known": one.label, "pgraph": str(one.graph.text())})
    return found


def tried(
    config: Images, reference: str, options: Mapping[str, Any], directory: Path, workers: int | None
) -> dict[str, Any]:
    """Trains the four on validation data alone, in a session, and compares each pair."""
    own = {**options, "judged_on": "validation"}
    task = load_task(reference, own)
    group, share, whole = first_group(task, config)
    operators = known_of(group)
    stages = {group.key: [site.name for site in group.sites]}
    settings = {"task": reference, "task_options": own, "stages": stages, "batch": 1}
    limits = Limits(train_limit_s=config.train_limit_s, workers=workers or 0)
    with Session.open(
        directory,
        stages=[
            Stage(
                name=group.key,
                proposer=Component(reference="listed", options={"operators": operators}),
            )
        ],
        evaluator=Component(reference=EVALUATOR, options=settings),
        seed=config.seed,
        prune=Prune(after=1 << 20),
        limits=limits,
        parts={"listed": Listed, EVALUATOR: NetworkEvaluator},
        note="does the task tell operators apart?",
    ) as session:
        summary = session.run(
            budget=Budget(candidates=len(operators)),
            finalists=len(operators),
            final_seeds=config.resolve_seeds,
        )
        if summary.interrupted:
            raise SystemExit("interrupted: the same command goes on")
        baseline = session.baseline
        assert baseline is not None
        rows = [baseline, *session.candidates()]
        if any(len(c.finals) < config.resolve_seeds for c in rows):
            raise SystemExit(
                f"{directory}: some of the four were not trained: syno status {directory}"
            )
        networks = [contest.trained(session, c) for c in rows]
        names = {c.id: c.known or "original" for c in rows}
        pairs = {}
        for a, b in itertools.combinations(networks, 2):
            one = contest.compared(a, b, networks)
            pairs[f"{names[a.id]} against {names[b.id]}"] = {
                "gain": one.gain, "errors": contest.errors_apart(one)
            }  # fmt: skip
        return {
            "flops": whole,
            "replaceable": share,
            "seeds": config.resolve_seeds,
            "values": {names[c.id]: [s.value for s in c.finals] for c in rows},
            "pairs": pairs,
            "least_errors": min(pair["errors"] for pair in pairs.values()),
        }


def hardened(
    config: Images, reference: str, options: Mapping[str, Any], directory: Path, workers: int | None
) -> dict[str, Any]:
    """The first of the task's steps at which all pairs are apart; the one that comes nearest where none does, and said so.

    Written down in ``resolution.json``: what was decided stays.
    """
    path = directory / "resolution.json"
    if path.exists():
        known: dict[str, Any] = json.loads(path.read_text())
        return known
    changes: dict[str, Any] = {}
    steps: list[dict[str, Any]] = []
    for number, more in enumerate([{}, *config.harder]):
        changes = {**changes, **more}
        found = tried(
            config, reference, {**options, **changes}, directory / f"resolves-{number}", workers
        )
        steps.append({"changes": dict(changes), **found})
        print(
            f"task {changes or 'as it is'}: the nearest pair is {found['least_errors']:.1f} standard errors apart",
            flush=True,
        )
        if found["least_errors"] >= config.resolve_errors:
            break
    best = max(range(len(steps)), key=lambda i: steps[i]["least_errors"])
    apart = steps[best]["least_errors"] >= config.resolve_errors
    result = {
        "resolves": apart,
        "changes": steps[best]["changes"],
        "said": (
            f"1x1, separable, grouped and original are apart by at least {steps[best]['least_errors']:.1f} standard errors"
            if apart
            else f"the task does not tell all four apart: the nearest pair is {steps[best]['least_errors']:.1f} standard "
            f"errors apart, {config.resolve_errors:g} are wanted; after {len(steps)} attempts the best is taken"
        ),
        "tried": steps,
    }
    write_whole(path, json.dumps(result, indent=1) + "\n")
    return result
