"""Which layers are searched, and the stages that a session has for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import ShapeError, SpecError, unknown_name
from syno.searching.search_space import SearchSpace
from syno.session import Component, Stage
from syno.session.config import read_config
from syno.session.trust import check_trust

if TYPE_CHECKING:
    from torch import nn

    from syno.torch import Site, SiteGroup, Sites

_PROPOSER = "syno.searching.proposers:make"

#: Layers with fewer channels than this leave an operator nothing to group or reduce: stems and heads.
LEAST_CHANNELS = 8

#: ... and with a smaller part of the network's multiply-adds than this, little to win.
LEAST_SHARE = 0.02


def default_sites(model: nn.Module, example: Any) -> Sites:
    """The layers worth replacing: enough channels to work with, and enough of the multiply-adds to matter.

    The same layers at every run: measured times decide nothing.

    Raises:
        ShapeError: there is none.
    """
    from syno.torch import sites

    found = sites(model, example)
    whole = sum(site.flops for site in found)
    worth = found.where(predicate=lambda site: not why_not_worth(site, whole))
    if not len(worth):
        refused = [f"{site.name or 'the model'}: {site.reason}" for site in found if site.reason]
        why = f" Of those that cannot: {'; '.join(refused[:3])}." if refused else ""
        raise ShapeError(
            f"[search] none of the {len(found)} layers of the model is worth replacing: each has fewer "
            f"than {LEAST_CHANNELS} channels, under {LEAST_SHARE:.0%} of the multiply-adds, or cannot be replaced.{why} "
            "Give sites=syno.sites(model, x).where(...) to choose yourself"
        )
    return worth


def why_not_worth(site: Site, whole: int) -> str:
    """Why a layer is not searched unless it is asked for; empty for one that is. ``whole``: the network's multiply-adds."""
    if not site.replaceable or site.layer is None:
        return site.reason or "it is no layer"
    if min(site.layer.in_channels, site.layer.out_channels) < LEAST_CHANNELS:
        return f"fewer than {LEAST_CHANNELS} channels"
    if site.flops < LEAST_SHARE * whole:
        return f"less than {LEAST_SHARE:.0%} of the multiply-adds"
    return ""


#: Each stage with the names of its sites.
Plan = list[tuple[Stage, list[str]]]


def plan_stages(groups: Sequence[SiteGroup], space: SearchSpace) -> Plan:
    """One stage a group of sites, the most multiply-adds first; several of a group that has no space for all of its sites.

    The session skips those whose space is empty or contradicts itself. Raises SpecError where all do.
    """
    from syno.searching.proposers import POLICIES, space_problem

    if space.policy not in POLICIES:
        raise unknown_name("policy", space.policy, POLICIES)
    if not groups:
        raise SpecError("[search] no group of sites to search; give sites that can be replaced")
    plan = []
    whole = sum(group.flops for group in groups)
    known: dict[str, str | None] = {}

    def problem_of(spec: str) -> str | None:
        if spec not in known:
            known[spec] = space_problem(spec)
        return known[spec]

    for group, spec in space.chosen(groups, problem_of):
        options: dict[str, Any] = {"spec": spec, "policy": space.policy}
        beside = space.beside(group, spec)
        options |= {} if beside is None else {"known": beside}
        stage = Stage(
            name=group.key,
            proposer=Component(reference=_PROPOSER, options=options),
            share=max(group.flops / whole, 1e-6),
        )
        plan.append((stage, [site.name for site in group.sites]))
    problems = []
    for stage, _ in plan:
        problem = problem_of(str(stage.proposer.options["spec"]))
        if problem is None:
            return plan
        problems.append(f"{stage.name}: {problem}")
    raise SpecError("[search] no group has a space with operators. " + " ".join(problems))


def stored_plan(directory: Path, *, trust: bool = False) -> Plan | None:
    """The plan of the session that is there; it does not depend on how the layers' times fall today.

    Raises:
        TrustError: the session was made by somebody else: its plan names what is imported.
    """
    path = directory / "session.toml"
    if not path.exists():
        return None
    config = read_config(path)
    check_trust(directory, config, trust=trust)
    sites = config.evaluator.options.get("stages", {})
    return [(stage, list(sites.get(stage.name, []))) for stage in config.stages]
