"""Checks of kernels, remembered beside their machine code: the same object is compared with the same program once."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from syno import _core
from syno.kernels.cache import read_entry, write_entry
from syno.support.files import remove


@dataclass(frozen=True)
class Outcome:
    """Of a check: the largest error, its limit, how many elements were compared, and where the largest was."""

    passed: bool
    max_rel_err: float
    limit: float
    points: int
    detail: str

    @staticmethod
    def of(check: _core.Verification) -> Outcome:
        return Outcome(check.passed, check.max_rel_err, check.limit, check.points, check.detail)


@dataclass(frozen=True)
class Verdict:
    """A place in the cache for the outcome of one check.

    Args:
        directory: of the cache; None: nothing is remembered.
        about: all that the outcome depends on besides the objects: two programs may have one loop nest, where a
            schedule is wrong for one of them.
        codes: the kernels that were checked together. Those of another cache's secret are checked anew.
    """

    directory: Path | None
    about: tuple[str, ...]
    codes: Sequence[_core.Kernel]

    def read(self) -> Outcome | None:
        """Of an earlier check that passed."""
        path = self._path()
        body = read_entry(path) if path else None
        if body is None:
            return None
        try:
            saved = json.loads(body)
            if saved["passed"] is not True or saved["objects"] != self._objects():
                return None
            return Outcome(
                passed=True,
                max_rel_err=float(saved["max_rel_err"]),
                limit=float(saved["limit"]),
                points=int(saved["points"]),
                detail=str(saved["detail"]),
            )
        except (ValueError, KeyError, TypeError):
            return None  # of another version

    def write(self, outcome: Outcome) -> None:
        """Remembers an outcome that passed."""
        path = self._path()
        if path and outcome.passed:
            write_entry(path, json.dumps({**vars(outcome), "objects": self._objects()}).encode())

    def discard(self) -> None:
        """Takes the objects, of which one computes something else, out of the cache."""
        if self.directory is None:
            return
        for code in self.codes:
            with contextlib.suppress(OSError):
                remove(self.directory / f"{code.key}.kernel")

    def _objects(self) -> list[str]:
        return [str(code.digest) for code in self.codes]

    def _path(self) -> Path | None:
        if self.directory is None or not all(self._objects()):
            return None
        parts = (_core.build_id(), *self.about, *(code.key for code in self.codes))
        name = hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
        return self.directory / f"{name}.verified"
