"""Steps of a network's tuning, on disk: each is done once, by one of the processes that share a session."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from syno.errors import FormatError
from syno.support.files import read_regular
from syno.support.numbers import significant
from syno.tuning.reuse.plan import Step

_LARGEST = 1 << 26


class StepDone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one step came to."""

    name: str
    action: str
    """"tuned", "reused", "top k", "searched, not reused" or "failed"."""
    trials: int = 0
    """Measured for it, in whatever call."""
    best_us: float = 0.0
    constructed_us: float = 0.0
    """Of the constructed schedule, from its ratio to the best, called in turns."""
    packed_gain: float = 0.0
    """Of calls with packed weights: time of the kernel they had / that of the fastest; 0: there are none."""
    origin: str = ""
    note: str = ""
    reason: str = ""
    """Of a failure."""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name}: {self.action}, {self.reason}"
        ratio = self.constructed_us / self.best_us if self.best_us > 0 else 1.0
        return (
            f"{self.name}: {self.action}, {significant(self.best_us)} us after {self.trials} ({self.origin}), "
            f"constructed / best {ratio:.3f}"
            + (f", with packed weights {self.packed_gain:.3f}" if self.packed_gain > 0 else "")
        )


class Steps:
    """The file of finished steps, and a lock for each step under way. Without a directory nothing is kept."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.damaged = 0
        if directory is None:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with self._file("a"):
                pass
        except OSError as error:
            raise FormatError(
                f"[tune] {directory} cannot be written: {error.strerror}; give another session"
            ) from error

    def _file(self, mode: str) -> IO[bytes]:
        assert self.directory is not None
        return (self.directory / "steps.jsonl").open(f"{mode}b")

    def finished(self) -> dict[str, StepDone]:
        """By name, the last line of each; lines that are damaged are skipped and counted."""
        self.damaged = 0
        if self.directory is None:
            return {}
        content = read_regular(self.directory / "steps.jsonl", _LARGEST) or b""
        found: dict[str, StepDone] = {}
        for line in content.splitlines():
            if not line.strip():
                continue
            try:
                step = msgspec.json.decode(line, type=StepDone)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self.damaged += 1
                continue
            found[step.name] = step
        return found

    def finish(self, name: str, step: StepDone, done: dict[str, StepDone]) -> None:
        """Notes a step that was done."""
        done[name] = step
        if self.directory is None:
            return
        with self._file("a+") as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            out.seek(0, os.SEEK_END)
            if out.tell() > 0:
                out.seek(-1, os.SEEK_END)
                if out.read(1) != b"\n":  # somebody was killed in the middle of a line
                    out.write(b"\n")
            out.write(msgspec.json.encode(step) + b"\n")

    def in_turns(self, steps: Sequence[Step], done: dict[str, StepDone]) -> Iterator[Step]:
        """Steps to do, each while its lock is held and its parent is finished; others' results go into `done`.

        A step that another process does is passed over as long as there is another one, then waited for.
        """
        pending = list(steps)
        names = {step.name for step in steps}
        while pending:
            finished = self.finished()
            done.update((n, s) for n, s in finished.items() if n in names)
            pending = [step for step in pending if step.name not in done]
            ready = [step for step in pending if not step.parent or step.parent in done]
            for wait in (False, True):
                for step in ready:
                    with self._lock(step.name, wait) as held:
                        if held and step.name not in self.finished():
                            yield step
                    if held:
                        break
                else:
                    continue
                break

    @contextlib.contextmanager
    def _lock(self, name: str, wait: bool) -> Iterator[bool]:
        if self.directory is None:
            yield True
            return
        digest = hashlib.blake2b(name.encode(), digest_size=6).hexdigest()
        with (self.directory / f"step-{digest}.lock").open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True
