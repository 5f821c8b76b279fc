"""CIFAR-10 and CIFAR-100 from their "python version" folders.

Those files are pickles. They are read by an unpickler that can build arrays, bytes, strings, numbers,
lists and dictionaries and knows no other name, so that a file from elsewhere cannot run code.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from syno.data.dataset import Dataset, Splits, channel_statistics
from syno.errors import DataError

# All that pickles of arrays may name, under the modules' old and new names.
_reconstruct: Any = np.array([0]).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


def _encode(text: str, encoding: str) -> bytes:
    """What Python 3 writes for bytes at protocol 2: ``_codecs.encode(text, 'latin1')``."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not allowed")
    return text.encode("latin1")


_ALLOWED["_codecs", "encode"] = _encode


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        try:
            found: Callable[..., Any] = _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which is neither an array nor a plain value"
            ) from None
        return found


def read_arrays(path: Path) -> dict[str, Any]:
    """The dictionary of arrays in one CIFAR file, keys as strings.

    Raises:
        DataError: missing, truncated, not a pickle, or a pickle of anything but arrays and values.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", fix=_WHAT_TO_GIVE, code="D001"
        ) from None
    try:
        loaded = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a corrupt pickle raises almost anything
        raise DataError(
            f"{path} is corrupt or no CIFAR file: {error}", fix=_WHAT_TO_GIVE, code="D002"
        ) from None
    if not isinstance(loaded, dict):
        raise DataError(
            f"{path} holds a {type(loaded).__name__}, not a dictionary",
            fix=_WHAT_TO_GIVE,
            code="D002",
        )
    return {k.decode() if isinstance(k, bytes) else str(k): v for k, v in loaded.items()}


_WHAT_TO_GIVE = "give the unpacked folder of the data set's 'python version'"


def _images(values: dict[str, Any], path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    data = values.get("data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
        found = f"{data.dtype}{list(data.shape)}" if isinstance(data, np.ndarray) else repr(data)
        raise DataError(
            f"{path} has no images: 'data' is {found[:80]}, wanted uint8 [N, 3072]",
            fix=_WHAT_TO_GIVE,
            code="D004",
        )
    return data.reshape(-1, 3, 32, 32)


def _labels(values: dict[str, Any], key: str, path: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    try:
        labels = np.asarray(values[key], dtype=np.int64)
    except (KeyError, TypeError, ValueError):
        labels = np.empty((0, 0), np.int64)
    if labels.ndim != 1:
        raise DataError(
            f"{path} has no list of labels under {key!r}; it has {', '.join(values) or 'nothing'}",
            fix=_WHAT_TO_GIVE,
            code="D004",
        )
    return labels


def _read(
    path: str | Path | None,
    name: str,
    usual: str,
    parts: tuple[Sequence[str], Sequence[str]],
    label_key: str,
    meta: tuple[str, str],
) -> Splits:
    if path is None:
        raise DataError(
            f"{name} is not part of the system", fix=f"give path=…/{usual}", code="D001"
        )
    folder = Path(path)
    if (folder / usual).is_dir():
        folder = folder / usual
    names = read_arrays(folder / meta[0]).get(meta[1], ())
    classes = tuple(n.decode() if isinstance(n, bytes) else str(n) for n in names)
    read = []
    for files in parts:
        loaded = [(folder / file, read_arrays(folder / file)) for file in files]
        read.append(
            (
                np.concatenate([_images(values, file) for file, values in loaded]),
                np.concatenate([_labels(values, label_key, file) for file, values in loaded]),
            )
        )
    mean, std = channel_statistics(read[0][0]) if len(read[0][0]) else ((), ())
    train, test = (
        Dataset(f"{name} {part}", images, labels, classes, mean, std)
        for part, (images, labels) in zip(("training", "test"), read, strict=True)
    )
    return Splits(train, test)


def cifar10(path: str | Path | None = None) -> Splits:
    """CIFAR-10, ``[N, 3, 32, 32]`` uint8, from the folder ``cifar-10-batches-py`` or its parent.

    Raises:
        DataError: the folder or a file is missing, corrupt, or not CIFAR.
    """
    train = [f"data_batch_{i}" for i in range(1, 6)]
    return _read(
        path,
        "CIFAR-10",
        "cifar-10-batches-py",
        (train, ["test_batch"]),
        "labels",
        ("batches.meta", "label_names"),
    )


def cifar100(path: str | Path | None = None) -> Splits:
    """CIFAR-100 with its 100 fine labels, from the folder ``cifar-100-python`` or its parent.

    Raises:
        DataError: the folder or a file is missing, corrupt, or not CIFAR.
    """
    return _read(
        path,
        "CIFAR-100",
        "cifar-100-python",
        (["train"], ["test"]),
        "fine_labels",
        ("meta", "fine_label_names"),
    )
