"""Steps of derivations as files hold them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from syno import _core
from syno.deriving.derivations import Path_


class Step(msgspec.Struct, forbid_unknown_fields=True):
    """A rewrite and its site, as `Site` of the engine has it."""

    rule: str
    scope: str
    iterator: str = ""
    other: str = ""
    made: str = ""
    numbers: list[int] = []


def path_of(steps: Sequence[Step]) -> Path_:
    return tuple(
        (
            step.rule,
            _core.RewriteSite(step.scope, step.iterator, step.other, step.made, step.numbers),
        )
        for step in steps
    )


def steps_of(path: Path_) -> list[Step]:
    return [
        Step(rule, site.scope, site.iterator, site.other, site.made, list(site.numbers))
        for rule, site in path
    ]
