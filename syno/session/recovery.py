"""What a killed process, or somebody who was in its directory, left of a session: put in order when it is opened for writing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from syno.session.config import SessionConfig
from syno.session.damage import explained
from syno.session.files import checkpoint_path, checkpoints_of, file_name, operator_path
from syno.session.rungs import phase_of
from syno.session.store import Store
from syno.support.files import write_whole

#: States of candidates that are trained no further.
_NEVER_AGAIN = ("failed", "lost", "pruned")

#: Where files are written beside their targets first.
_WRITTEN = ("operators", "weights", "checkpoints")


def recover(directory: Path, store: Store, config: SessionConfig) -> None:
    """What was running is queued again, operator files that are missing or damaged are written again, and what was half
    written, or belongs to a training whose end is recorded, is removed. Nobody else writes here now.

    Raises:
        SessionError: the session cannot be written.
    """
    with store.transaction():
        interrupted = store.execute(
            "UPDATE candidate SET state = 'queued' WHERE state = 'running'"
        ).rowcount
        if interrupted:
            store.event(f"{interrupted} candidates were running: queued again", "warning")
    for key in _damaged(directory, store):
        path = operator_path(directory, key)
        try:
            write_whole(path, store.operator(key).text)
        except OSError as error:
            raise explained(directory / "session.sqlite", error, writing=True) from error
        store.event(f"{path.name} was missing or damaged: written again", "warning")
    for folder in (directory, *(directory / name for name in _WRITTEN)):
        for left in list(_leavings(folder)):
            with contextlib.suppress(OSError):
                os.unlink(left)
    for ended in _ended(directory, store, config):
        with contextlib.suppress(OSError):
            ended.unlink()


def _ended(directory: Path, store: Store, config: SessionConfig) -> list[Path]:
    """What trainings are written down in that go on no more: who recorded their end was killed before it removed that."""
    begins = {
        path.name.partition("-")[0] for path in (directory / "checkpoints").glob("*-*.safetensors")
    }
    numbers = sorted(
        int(text) for text in begins if text.isascii() and text.isdigit() and len(text) < 19
    )
    shares = {phase_of(number): rung.share for number, rung in enumerate(config.rungs or (), 1)}
    found = []
    for number in numbers:
        known = store.execute("SELECT state FROM candidate WHERE number = ?", number).fetchone()
        if known is None:  # nobody's here
            continue
        ends = {
            checkpoint_path(
                directory,
                number,
                "test" if phase == "final" else "validation",
                shares.get(phase, 1.0),
                seed,
            )
            for phase, seed in store.execute(
                "SELECT phase, seed FROM score WHERE candidate = ?", number
            )
        }
        found += [
            path
            for path in checkpoints_of(directory, number)
            if known[0] in _NEVER_AGAIN or path in ends
        ]
    return found


def _damaged(directory: Path, store: Store) -> list[str]:
    """Keys of operators whose files do not hold what the database does."""
    folder = f"{directory / 'operators'}{os.sep}"
    return [
        key
        for key, text in store.operator_texts()
        if not _holds(f"{folder}{file_name(key)}.json", text.encode())
    ]


def _holds(path: str, content: bytes) -> bool:
    """Whether a file is there and holds just that. A session may have hundreds of thousands: nothing is made of a path."""
    try:
        file = os.open(path, _READ)
    except OSError:
        return False
    try:
        found = os.read(file, len(content) + 1)
        while len(found) < len(content) and (more := os.read(file, len(content) + 1 - len(found))):
            found += more
        return found == content
    except OSError:
        return False
    finally:
        os.close(file)


#: A pipe in the place of a file is not waited for, and Windows changes no line's end.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def _leavings(folder: Path) -> Iterator[str]:
    """Files that were being written: ``*.part``, and ``*.part-*``."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if ".part" in entry.name and (entry.name.endswith(".part") or ".part-" in entry.name):
                yield entry.path
