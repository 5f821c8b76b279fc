"""Settings of a search: as in the session that is there, else as asked for, or the usual ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from syno.errors import SessionError, unknown_name
from syno.searching.search_space import SearchSpace
from syno.session import Limits
from syno.session.combining import SHARE
from syno.session.config import read_config

#: What may decide which operators are proposed, pruned and chosen.
LATENCIES = ("predicted", "measured")


def mixing_of(directory: Path, space: SearchSpace) -> str:
    """What becomes of networks that mix tokens; as in the session that is there."""
    path = directory / "session.toml"
    if not path.exists():
        return "tell" if space.mix_tokens else "refuse"
    measurer = read_config(path).measurer
    return "" if measurer is None else str(measurer.options.get("mixing", ""))


def compiled_in(directory: Path) -> bool:
    """Whether latencies are those of compiled networks: in new sessions, and where the session that is there has them."""
    path = directory / "session.toml"
    if not path.exists():
        return True
    measurer = read_config(path).measurer
    return measurer is not None and bool(measurer.options.get("compiled", False))


def limits_of(directory: Path, asked: Mapping[str, float | None]) -> Limits:
    """The limits of the session that is there, or the usual ones, with those replaced that were asked for."""
    path = directory / "session.toml"
    before = read_config(path).limits if path.exists() else Limits()
    given = {name: value for name, value in asked.items() if value is not None}
    return msgspec.structs.replace(before, **given)


def fixed_machine(directory: Path, asked: bool) -> str | None:
    """The machine file of a deterministic session: the one it was begun with, else today's."""
    from syno.config import config, deterministic
    from syno.machines.model import machine_model

    if not asked and not deterministic():
        return None
    path = directory / "session.toml"
    if path.exists() and (kept := read_config(path).machine) is not None:
        return kept
    with config(deterministic="1"):
        return machine_model().to_json()


def predicted_on(directory: Path, latency: str | None, fixed: str | None) -> str | None:
    """The machine file that latencies are predicted from: the one the session was begun with, else today's.

    Raises:
        UnknownName: ``latency`` is neither predicted nor measured.
        SessionError: the session that is there goes by the other one.
    """
    from syno.machines.model import machine_model

    if latency not in (None, *LATENCIES):
        raise unknown_name("latency", latency, LATENCIES)
    path = directory / "session.toml"
    if path.exists():
        kept = read_config(path).predicted_on
        before = LATENCIES[kept is None]
        if latency not in (None, before):
            raise SessionError(
                f"{directory} was begun with latency={before!r}; {latency!r} was asked for",
                fix="use another directory, or leave latency as it was",
                code="R003",
            )
        return kept
    if latency == "measured":
        return None
    return machine_model().to_json() if fixed is None else fixed


def combined(directory: Path, asked: float | None) -> float | None:
    """The share of combinations: as in the session that is there, else what was asked for, or the usual one."""
    path = directory / "session.toml"
    if asked is not None:
        return asked
    return read_config(path).combine if path.exists() else SHARE
