"""The directory of a session: made with its settings, or taken up again with settings that may go with what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SessionError
from syno.session.config import (
    CHANGEABLE,
    FIXED,
    SessionConfig,
    first_difference,
    fixed_json,
    made_with,
    read_config,
    write_config,
)
from syno.session.damage import explained
from syno.session.store import Store
from syno.session.trust import check_trust, sign


def make_directories(path: Path) -> None:
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        shown = str(path).encode("utf-8", "backslashreplace").decode()
        raise SessionError(
            f"the name of {shown} is no Unicode text",
            fix="choose a directory whose name is",
            code="R002",
        ) from None
    try:
        for folder in (path, path / "operators", path / "weights", path / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SessionError(
            f"{path} cannot be made: {error.strerror}",
            fix="choose a directory you may write to",
            code="R002",
        ) from None


def create(path: Path, asked: dict[str, Any]) -> tuple[Store, SessionConfig]:
    missing = [name for name in ("stages", "evaluator") if name not in asked]
    if missing:
        raise SessionError(
            f"{path} holds no session, and a new one needs {' and '.join(missing)}",
            fix="give a proposer (or stages) and an evaluator, or the directory of a session",
            code="R005",
        )
    config = SessionConfig(**asked)
    config.check()
    try:
        sign(path, config)
        write_config(path / "session.toml", config)
        store = Store(path, write=True, create=True)
    except OSError as error:
        raise SessionError(
            f"{path} cannot be written: {error.strerror}",
            fix="choose a directory you may write to, on a disk with space",
            code="R002",
        ) from None
    try:
        _register(store, config)
    except BaseException:
        store.close()
        raise
    return store, config


def _register(store: Store, config: SessionConfig) -> None:
    """Keeps the fixed settings beside the results, where no editor reaches them."""
    with store.transaction():
        if not store.meta("fixed"):
            store.set_meta("fixed", fixed_json(config))
            store.set_meta("made_with", msgspec.json.encode(made_with()).decode())
            for position, stage in enumerate(config.stages):
                store.execute(
                    "INSERT OR IGNORE INTO stage VALUES(?, ?, 'open', NULL, NULL)",
                    stage.name,
                    position,
                )
            store.add_candidate("baseline", "", None)  # number 0, whatever comes first
            store.event("session created")


def resume(path: Path, asked: dict[str, Any], trust: bool) -> tuple[Store, SessionConfig]:
    stored = read_config(path / "session.toml")
    store = Store(path, write=True)
    try:
        _register(store, stored)
        if asked.get("targets") is not None:
            before = stored.targets or {}
            named = {name: one or before.get(name, "") for name, one in asked["targets"].items()}
            asked = {**asked, "targets": {**before, **named}}
        config = msgspec.structs.replace(stored, **asked)
        config.check()
        for source, candidate in (("session.toml says", stored), ("was asked for", config)):
            different = first_difference(store.meta("fixed"), fixed_json(candidate))
            if different is not None:
                name, made, now = different
                raise SessionError(
                    f"{path} was made with {name}={_short(made)}; {source} {_short(now)}"
                    if source.startswith("session")
                    else f"{path} was made with {name}={_short(made)}; {name}={_short(now)} {source}",
                    fix=f"use another directory, or leave {name} as it is. A resumed session may change "
                    f"{', '.join(CHANGEABLE)} and the budget, not {', '.join(FIXED)}",
                    code="R003",
                )
        store.check_stages([stage.name for stage in stored.stages])
        check_trust(path, stored, trust=trust)
        if config != stored:
            try:
                write_config(path / "session.toml", config)
            except OSError as error:
                raise explained(path / "session.sqlite", error, writing=True) from error
        return store, config
    except BaseException:
        store.close()
        raise


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
