"""Files beside the database: operators and weights, named so that any key is a file name."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def file_name(key: str) -> str:
    """The key itself where it is a plain word, else a hash of it."""
    return key if _PLAIN.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:32]


def operator_path(directory: Path, key: str) -> Path:
    return directory / "operators" / f"{file_name(key)}.json"


def examples_path(directory: Path, key: str, phase: str, seed: int) -> Path:
    """What the metric of a training is the mean of, one float32 an example; the baseline's key is empty."""
    name = file_name(key) if key else "baseline"
    return directory / "examples" / f"{name}-{phase}-{seed}.f32"


def given_path(directory: Path, part: str) -> Path:
    """The same of the model as it was handed in."""
    return directory / "examples" / f"given-{file_name(part)}.f32"


def checkpoint_path(directory: Path, number: int, part: str, share: float, seed: int) -> Path:
    """Where a long training of a candidate is written down while it goes on."""
    return directory / "checkpoints" / f"{number}-{part}-{share:g}-{seed}.safetensors"


def checkpoints_of(directory: Path, number: int) -> list[Path]:
    """Those of a candidate that are there."""
    return sorted((directory / "checkpoints").glob(f"{number}-*.safetensors"))


def weights_path(directory: Path, key: str, seed: int) -> Path:
    """Weights of a network trained with ``seed``; the baseline's key is empty."""
    return directory / "weights" / f"{file_name(key) if key else 'baseline'}-{seed}.safetensors"
