"""What decides the spaces of a search: settings over those that follow from the layers, or a space that was given."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import SpecError, shown
from syno.known import DEFAULT_KNOWN, chosen
from syno.policies import DEFAULT_POLICY
from syno.searching.space import Space, shapes_of
from syno.searching.space_settings import Settings
from syno.session.config import read_config

if TYPE_CHECKING:
    from syno.torch import SiteGroup


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """What decides the spaces of a search, beside the sites; a resumed session must be asked for the same."""

    policy: str = DEFAULT_POLICY
    flops_ratio: float = 0.9
    min_flops_ratio: float = 0.15
    params_ratio: float | None = None
    max_steps: int | None = None
    groups: int | None = None
    mix_tokens: bool = False
    known: tuple[str, ...] | None = None
    """Names of known operators to train beside those found; ``None``: a session from before there were any."""
    settings: dict[str, Any] | None = None
    given: str | None = None
    """Name and digest of the space that was given for the groups it fits."""
    text: str | None = None
    """... itself; a resumed session has it in its stages."""
    origin: str | None = None
    """... its file or name, as it was written."""

    def asked(
        self, space: Space | str | Path | Mapping[str, Any] | None, directory: Path | None
    ) -> SearchSpace:
        """With what a caller asked for; where that is nothing, as in the session that is there, if any.

        Raises:
            UnknownName, SpecError, FormatError: what is asked for does not exist or is no space; limits twice.
        """
        if space is None:
            if directory is None or not (path := directory / "session.toml").exists():
                return self
            kept = read_config(path).space
            return dataclasses.replace(self, settings=kept.get("settings"), given=kept.get("given"))
        wanted = dict(space) if isinstance(space, Mapping) else {"spec": space}
        source = wanted.pop("spec", None)
        settings = Settings.of(wanted)
        if self.max_steps is not None and "max_steps" in settings.budgets:
            raise SpecError(
                f"[search] max_steps={self.max_steps} and {settings.budgets['max_steps']} in space; give one of them"
            )
        made = dataclasses.replace(self, settings=settings.to_dict() or None)
        if source is None:
            return made
        if self.max_steps is not None:
            raise SpecError(
                f"[search] max_steps={self.max_steps} beside a space that was given, which has its own; "
                f"give space={{'spec': ..., 'max_steps': {self.max_steps}}}"
            )
        if not isinstance(source, Space | str | Path):
            raise SpecError(f"[search] {shown(source)} is no space; give a Space, a file or a name")
        own = (source if isinstance(source, Space) else Space.load(source)).set(settings)
        digest = hashlib.sha256(own.to_json().encode()).hexdigest()[:16]
        return dataclasses.replace(
            made,
            given=f"{own.name or 'space'}, {digest}",
            text=own.to_json(),
            origin=None if isinstance(source, Space) else str(source),
        )

    def with_known(self, known: str | Sequence[str] | None, directory: Path | None) -> SearchSpace:
        """With the known operators that a caller asked for: those of the session that is there, or the usual ones,
        where that is nothing.

        Raises:
            UnknownName: there is no such known operator.
        """
        names: Sequence[str] | None = None
        if known is None and directory is not None and (directory / "session.toml").exists():
            names = read_config(directory / "session.toml").space.get("known")
        else:
            names = chosen(known)
        return dataclasses.replace(self, known=None if names is None else tuple(names))

    def beside(self, group: SiteGroup, spec: str) -> dict[str, Any] | None:
        """The known operators of a group, as an option of its proposer; ``None`` where there are none, or no space."""
        from syno import _core
        from syno.known.beside import beside

        if not self.known:
            return None
        limits = json.loads(spec).get("budgets", {})
        try:
            made = _core.Spec.from_json(spec)
        except SpecError:
            return None  # the session says so, and skips it
        return beside(
            made,
            self.known,
            window=group.window,
            most_flops=limits.get("max_flops"),
            most_params=limits.get("max_params"),
        )

    def recorded(self) -> dict[str, Any]:
        """What a session keeps and compares."""
        hidden = ("text", "origin")
        kept = dataclasses.asdict(self).items()
        return {name: value for name, value in kept if value is not None and name not in hidden}

    def words(self) -> list[str]:
        """Options of the command line that ask for the same."""
        words = [] if self.origin is None else ["--space", self.origin]
        if self.known not in (None, DEFAULT_KNOWN):
            words += ["--known", ",".join(self.known or ()) or "none"]
        return [*words, *Settings.of(self.settings or {}).words()]

    def of(self, group: SiteGroup) -> str:
        """The space of a group as JSON. Raises SpecError for ratios that leave nothing, or contradictions."""
        given: dict[str, Any] = {} if self.max_steps is None else {"max_steps": self.max_steps}
        derived = group.to_json(
            flops_ratio=self.flops_ratio,
            min_flops_ratio=self.min_flops_ratio,
            params_ratio=self.params_ratio,
            mix_tokens=self.mix_tokens,
            **given,
        )
        return Settings.of(self.settings or {}).applied(derived)

    def chosen(
        self, groups: Sequence[SiteGroup], problem_of: Callable[[str], str | None]
    ) -> list[tuple[SiteGroup, str]]:
        """The groups that are searched, each with its space.

        Where the layers of a group have no operator in common, those that have are groups of their own.

        Args:
            problem_of: why nothing can be searched in a space, see :func:`syno.searching.proposers.space_problem`.
        Raises:
            SpecError: the space that was given fits none of them.
        """
        if self.text is None:
            from syno.torch.groups import parted

            def has_operators(group: SiteGroup) -> bool:
                return problem_of(self.of(group)) is None

            parts = (part for one in groups[: self.groups] for part in parted(one, has_operators))
            return [(part, self.of(part)) for part in parts]
        own = Space.from_json(self.text)
        shapes = set(own.shapes())
        derived = [(group, shapes_of(json.loads(group.to_json()))) for group in groups]
        fitting = [group for group, its in derived if set(its) <= shapes]
        if not fitting:
            listed = "; ".join(f"{group.key}: {_shapes_text(its)}" for group, its in derived)
            raise SpecError(
                f"[search] the space {own.name!r} is for {_shapes_text(own.shapes())}; no group of layers has all its "
                f"shapes there. They have: {listed}. group.space().save(...) writes a space of a group"
            )
        # Other kinds of layers may have the same shapes: a space of one kind's is for that.
        named = [group for group in fitting if group.key == own.name]
        return [(group, self.text) for group in (named or fitting)[: self.groups]]


def _shapes_text(shapes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], most: int = 4) -> str:
    distinct = list(dict.fromkeys(f"{list(x)} -> {list(y)}" for x, y in shapes))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more


__all__ = ["SearchSpace"]
