"""The last measurement of a search: finalists and original timed in turns, as they will be used."""

from __future__ import annotations

from pathlib import Path

import msgspec

from syno.errors import SessionError
from syno.support.machine import Machine


class FinalBench(msgspec.Struct, kw_only=True):
    """Finalists and original interleaved in one run."""

    latencies_us: dict[str, float]
    iqrs_us: dict[str, float]
    speedups: dict[str, float]
    compiled_us: dict[str, float]
    skipped: dict[str, str]
    threads: int
    batch: int
    speedup_iqrs: dict[str, float] = {}
    """Of the ratios turn by turn, ``samples`` of each."""
    samples: int = 0
    runners: dict[str, str] = {}
    """Who ran each of them: ``"compiled"``, or ``"layers"`` and why; empty where all ran layer by layer, before networks were
    compiled."""
    eager_us: float | None = None
    """Of the original as its layers run one by one, in turns with the others, where it is compiled."""
    note: str = ""
    """What may have disturbed it, such as another process that measured; empty: nothing known."""
    machine: Machine | None = None
    """Of it, with load and time; None in sessions from before that was kept."""


FINAL_FILE = "final.json"


def read_final_file(path: Path) -> FinalBench | None:
    """What the file holds; ``None`` where there is none.

    Raises:
        SessionError: it is damaged.
    """
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=FinalBench)
    except (OSError, msgspec.MsgspecError) as error:
        raise SessionError(
            f"{path} cannot be read: {error}",
            fix="remove it: running the search again measures anew",
            code="R005",
        ) from error
