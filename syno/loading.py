"""`syno.load`: operators and compiled networks from files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from syno.errors import ArgumentError, shown


def load(path: str | Path) -> Any:
    """Reads what syno wrote: an operator file, or a folder of `syno.export`.

    A folder holds native code: load only what you trust. Digests tell that it is damaged, not who wrote it.

    Args:
        path: an operator file (`"op.syno.json"`), or a folder: of a compiled network (`"net.syno"`), which needs no
            torch, or of a model with operators in it, which does.
    Returns:
        An `Operator`, a `LoadedNetwork`, a `LoadedRangedNetwork`, or a torch module.
    Raises:
        FormatError: it is none of them, or damaged, or of another version.
        KernelError: a network for another CPU than this one.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"load: path={shown(path)} is no path", fix="give str | Path")
    place = Path(path)
    if not place.is_dir():
        from syno.operators.operator import Operator

        return Operator.load(place)
    from syno.graph.loaded import load_folder

    return load_folder(place)
