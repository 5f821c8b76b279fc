"""Data sets read from the files people already have, and a light seeded batch loader.

>>> from syno import data
>>> train, test = data.open_dataset("fashion-mnist")         # doctest: +SKIP
>>> loader = data.BatchLoader(train, batch=64, seed=0)       # doctest: +SKIP

Readers need NumPy only; torch is imported when a :class:`BatchLoader` is made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from syno.data.cifar import cifar10, cifar100
from syno.data.dataset import Dataset, Splits
from syno.data.folder import image_folder
from syno.data.idx import fashion_mnist, read_idx
from syno.data.loader import AUGMENTATIONS, BatchLoader
from syno.data.small import digits, text_bytes
from syno.errors import unknown_name

_READERS: dict[str, Callable[..., Splits]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "image-folder": image_folder,
    "text": text_bytes,
}


def names() -> list[str]:
    """The names :func:`open_dataset` knows."""
    return sorted(_READERS)


def open_dataset(name: str, path: str | Path | None = None) -> Splits:
    """Training and test part of a named data set; ``path`` where it is not in its usual place.

    Raises:
        UnknownName: no reader of that name.
        DataError: files missing, truncated, empty or of another kind.
    """
    try:
        reader = _READERS[name]
    except KeyError:
        raise unknown_name("data set", name, _READERS) from None
    return reader(path)


__all__ = [
    "AUGMENTATIONS",
    "BatchLoader",
    "Dataset",
    "Splits",
    "cifar10",
    "cifar100",
    "digits",
    "fashion_mnist",
    "image_folder",
    "names",
    "open_dataset",
    "read_idx",
    "text_bytes",
]
