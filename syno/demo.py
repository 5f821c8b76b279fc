"""``syno demo``: the whole path on Fashion-MNIST, in minutes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syno.report import Report


def run_demo(
    directory: Path,
    *,
    data: Path | None = None,
    candidates: int = 12,
    seed: int = 0,
    workers: int | None = None,
    progress: str = "auto",
) -> Report:
    """Searches operators for the 3x3 convolutions of a small residual network.

    The network, the recipe and the data are those of the task ``fashion-mnist``; the space is that of its
    stride-1 convolutions at three widths. Plain grouped convolutions are trained beside the operators found, and the
    best of each again, on four seeds, with the original: the same recipe, steps and seeds for all.

    Args:
        directory: of the session; running again continues or, when it is finished, only reports.
        data: directory of the four idx files; default where Debian's package puts them.
        candidates: operators to train.
    Raises:
        DataError: the data is not there; says what to install.
    """
    from syno.searching.pipeline import search_task
    from syno.session import Budget

    options: dict[str, Any] = {} if data is None else {"path": str(data)}
    command = f"syno demo -o {shlex.quote(str(directory))} --candidates {candidates} --seed {seed}"
    if data is not None:
        command += f" --data {shlex.quote(str(data))}"
    result = search_task(
        "fashion-mnist",
        directory,
        options=options,
        budget=Budget(candidates=candidates),
        seed=seed,
        workers=workers,
        # The best found, the best of the plain grouped convolutions and the original, on as many seeds as tell them apart.
        known="grouped",
        finalists=2,
        final_seeds=4,
        groups=1,
        progress=progress,
        command=command,
    )
    return result.report
